"""Replica groups: the four forms in which HLO writes them, what they expand to, and which ranks they mean."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

IdGroups = tuple[tuple[int, ...], ...]
"""Groups of ids (replicas, partitions or ranks, as the mode says); the order within a group counts."""


class GroupMode(Enum):
    """What the ids in a group are; the value is its name for people."""

    CROSS_REPLICA = "cross-replica"
    CROSS_PARTITION = "cross-partition"
    CROSS_REPLICA_AND_PARTITION = "cross-replica-and-partition"
    FLATTENED = "flattened"

    def __str__(self) -> str:
        return self.value


def group_mode(has_channel_id: bool, use_global_device_ids: bool | None) -> GroupMode:
    """The mode of a collective.

    Args:
        has_channel_id: whether partitions take part at all.
        use_global_device_ids: None where the instruction has no such field (or does not set it), as all-to-all, the
            permute and the broadcast: a channel id alone means partitions there.

    Raises:
        ValueError: global ids without a channel id.
    """
    if not has_channel_id:
        if use_global_device_ids:
            raise ValueError("Invalid combination of has_channel_id and use_global_device_ids")
        return GroupMode.CROSS_REPLICA
    if use_global_device_ids is None:
        return GroupMode.CROSS_PARTITION
    return GroupMode.FLATTENED if use_global_device_ids else GroupMode.CROSS_REPLICA_AND_PARTITION


class ReplicaGroups(ABC):
    """Replica groups in one of the written forms. ``str()`` is the text that XLA prints.

    Attributes:
        num_groups: how many groups are written, known without expansion.
        group_size: how many ids each group has, known without expansion; None where that differs or nothing is written.
    """

    if TYPE_CHECKING:  # only for the checker: at run time a property here would stand in the way of a field below

        @property
        def num_groups(self) -> int:
            """See the class."""

        @property
        def group_size(self) -> int | None:
            """See the class."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is written, ``{}``, which means everyone in one group."""
        return False

    @abstractmethod
    def expand(self) -> IdGroups:
        """The groups as they are written, id by id; made once. ``{}`` gives ``()``."""


@dataclass(frozen=True)
class ExplicitGroups(ReplicaGroups):
    """``{{0,1},{2,3}}``: every id written out. ``ExplicitGroups(())`` is ``{}``."""

    groups: IdGroups

    @property
    def is_empty(self) -> bool:
        """Whether this is ``{}``."""
        return not self.groups

    @property
    def num_groups(self) -> int:
        """How many groups are written."""
        return len(self.groups)

    @property
    def group_size(self) -> int | None:
        """The common size, or None."""
        sizes = {len(group) for group in self.groups}
        return sizes.pop() if len(sizes) == 1 else None

    def expand(self) -> IdGroups:
        """The groups themselves."""
        return self.groups

    def __str__(self) -> str:
        return "{" + ",".join("{" + _commas(group) + "}" for group in self.groups) + "}"


@dataclass(frozen=True)
class IotaGroups(ReplicaGroups):
    """``[4,2]<=[2,4]T(1,0)``: 0, 1, 2, … in the shape ``reshape_dims``, transposed, cut into ``num_groups`` rows.

    The dims and the permutation are brought to XLA's shortest form (no dim of 1, neighbours that stay together are
    one dim), so equal lists in that form are equal objects. An empty permutation changes nothing.

    Raises:
        ValueError: dims that do not multiply to ``num_groups * group_size``, or what is no permutation.
    """

    num_groups: int
    group_size: int
    reshape_dims: tuple[int, ...]
    transpose_perm: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        dims, perm = _shortest(self.reshape_dims, self.transpose_perm)
        if math.prod(dims) != self.num_groups * self.group_size or min(self.num_groups, self.group_size) < 1:
            raise ValueError(
                f"{self.num_groups} groups of {self.group_size} cannot be cut from [{_commas(self.reshape_dims)}]"
            )
        object.__setattr__(self, "reshape_dims", dims)
        object.__setattr__(self, "transpose_perm", perm)

    def expand(self) -> IdGroups:
        """The groups, id by id."""
        return self._expanded

    @cached_property
    def _expanded(self) -> IdGroups:
        return _rows(_iota(self.reshape_dims, self.transpose_perm).reshape(self.num_groups, self.group_size))

    def __str__(self) -> str:
        return f"[{self.num_groups},{self.group_size}]<={_iota_text(self.reshape_dims, self.transpose_perm)}"


@dataclass(frozen=True)
class IotaIds:
    """``[2,4]T(1,0)``: the devices of a mesh as a transposed iota, in the shortest form as in `IotaGroups`."""

    reshape_dims: tuple[int, ...]
    transpose_perm: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        dims, perm = _shortest(self.reshape_dims, self.transpose_perm)
        object.__setattr__(self, "reshape_dims", dims)
        object.__setattr__(self, "transpose_perm", perm)

    def __str__(self) -> str:
        return _iota_text(self.reshape_dims, self.transpose_perm)


DeviceIds = tuple[int, ...] | IotaIds | None
"""The devices of a mesh in row-major order: a list, a transposed iota, or None for 0, 1, 2, …."""


@dataclass(frozen=True)
class AxisRef:
    """An axis of a mesh, or a part of one.

    Attributes:
        axis: its index in the mesh.
        pre_size: for a part ``'b':(2)4`` what comes before it within the axis, here 2 (1 for the slowest part).
        size: the size of that part, here 4; None, with ``pre_size``, for the whole axis.
    """

    axis: int
    pre_size: int | None = None
    size: int | None = None


@dataclass(frozen=True)
class MeshGroups(ReplicaGroups):
    """``mesh['a'=2,'b'=4], device_ids=(…) {'b'}``: the devices that differ along the axes in braces only.

    The axes in braces give the order within a group, the last one fastest; the other axes give the order of the
    groups. The checks are the ones that XLA makes, because there most of them abort the process.

    Attributes:
        axes: name and size of each axis of the mesh, the last one fastest.
        device_ids: which device stands where; a list or an iota that changes nothing becomes None.
        refs: the axes in braces.

    Raises:
        ValueError: a mesh or a reference that XLA would refuse.
    """

    axes: tuple[tuple[str, int], ...]
    device_ids: DeviceIds
    refs: tuple[AxisRef, ...]

    def __post_init__(self) -> None:
        for fault in self._faults():
            raise ValueError(fault)
        ids = self.device_ids
        if isinstance(ids, IotaIds):
            plain = len(ids.reshape_dims) == 1
        else:
            plain = ids is not None and ids == tuple(range(len(ids)))
        if plain:
            object.__setattr__(self, "device_ids", None)

    def _faults(self) -> Iterable[str]:
        names = [name for name, _ in self.axes]
        if len(set(names)) != len(names):
            yield "two axes of the mesh have the same name"
        if any(size < 1 for _, size in self.axes):
            yield "an axis of the mesh has no devices"
        ids = self.device_ids
        if isinstance(ids, IotaIds) and math.prod(ids.reshape_dims) != self._devices:
            yield f"device_ids do not have {self._devices} devices"
        if isinstance(ids, tuple) and (len(ids) != self._devices or sorted(ids) != list(range(len(ids)))):
            yield f"device_ids are no permutation of 0..{self._devices - 1}"
        if len(set(self.refs)) != len(self.refs):
            yield "an axis is named twice"
        for ref in self.refs:
            if not 0 <= ref.axis < len(self.axes):
                yield f"there is no axis {ref.axis}"
                return
            if (ref.pre_size is None) != (ref.size is None):
                yield "a part of an axis needs both its pre-size and its size"
                return
            start, end = self._span(ref)
            whole = self.axes[ref.axis][1]
            if ref.size is not None and (not 1 < ref.size < whole or start < 1 or whole % end):
                yield f"axis '{self.axes[ref.axis][0]}' of {whole} has no part ({start}){ref.size}"
                return
        spans = sorted((ref.axis, *self._span(ref)) for ref in self.refs)
        for (axis, _, end), (next_axis, start, _) in pairwise(spans):
            if axis == next_axis and start % end:
                yield f"two parts of axis '{self.axes[axis][0]}' overlap"
        for one, two in pairwise(self.refs):
            if one.axis == two.axis and self._span(one)[1] == self._span(two)[0]:
                yield f"two neighbouring parts of axis '{self.axes[one.axis][0]}' must be written as one"
        if self.group_size < 2:
            yield "a group of a mesh needs more than one device"

    def _span(self, ref: AxisRef) -> tuple[int, int]:
        """The products of the sizes before the part and with it."""
        start = 1 if ref.pre_size is None else ref.pre_size
        return start, start * (self.axes[ref.axis][1] if ref.size is None else ref.size)

    @cached_property
    def _devices(self) -> int:
        return math.prod(size for _, size in self.axes)

    @property
    def num_groups(self) -> int:
        """How many groups there are."""
        return self._devices // self.group_size

    @cached_property
    def group_size(self) -> int:
        """How many devices each group has."""
        return math.prod(end // start for start, end in map(self._span, self.refs))

    def expand(self) -> IdGroups:
        """The groups, id by id."""
        return self._expanded

    @cached_property
    def _expanded(self) -> IdGroups:
        # Cut each axis where a part begins or ends; then every reference is exactly one dim of the finer mesh.
        dims: list[int] = []
        place: dict[tuple[int, int], int] = {}
        for axis, (_, whole) in enumerate(self.axes):
            cuts = {1, whole}.union(*(self._span(ref) for ref in self.refs if ref.axis == axis))
            ordered = sorted(cuts)
            for start, end in pairwise(ordered):
                place[axis, start] = len(dims)
                dims.append(end // start)
        inner = [place[ref.axis, self._span(ref)[0]] for ref in self.refs if self.axes[ref.axis][1] > 1]
        outer = [dim for dim in range(len(dims)) if dim not in inner]
        if isinstance(self.device_ids, IotaIds):
            ids = _iota(self.device_ids.reshape_dims, self.device_ids.transpose_perm)
        else:
            ids = np.arange(self._devices) if self.device_ids is None else np.array(self.device_ids)
        return _rows(ids.reshape(dims).transpose(outer + inner).reshape(self.num_groups, self.group_size))

    def __str__(self) -> str:
        mesh = "mesh[" + ",".join(f"'{name}'={size}" for name, size in self.axes) + "]"
        if self.device_ids is not None:
            ids = self.device_ids if isinstance(self.device_ids, IotaIds) else _commas(self.device_ids)
            mesh += f", device_ids=({ids})"
        return mesh + " {" + ",".join(map(self._ref_text, self.refs)) + "}"

    def _ref_text(self, ref: AxisRef) -> str:
        name = self.axes[ref.axis][0]
        return f"'{name}'" if ref.size is None else f"'{name}':({ref.pre_size}){ref.size}"


def _commas(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


def _rows(ids: npt.NDArray[Any]) -> IdGroups:
    return tuple(map(tuple, ids.tolist()))


def _iota(dims: Sequence[int], perm: Sequence[int]) -> npt.NDArray[Any]:
    return np.arange(math.prod(dims)).reshape(dims).transpose(perm)


def _iota_text(dims: Sequence[int], perm: Sequence[int]) -> str:
    return f"[{_commas(dims)}]" + (f"T({_commas(perm)})" if len(dims) > 1 else "")


def _shortest(dims: Sequence[int], perm: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The same transposed iota with as few dims as possible, which is how XLA keeps it."""
    perm = perm or range(len(dims))
    if any(dim < 1 for dim in dims) or not dims:
        raise ValueError(f"an iota needs positive dims, not [{_commas(dims)}]")
    if sorted(perm) != list(range(len(dims))):
        raise ValueError(f"T({_commas(perm)}) is no permutation of {len(dims)} dims")
    kept = [dim for dim in range(len(dims)) if dims[dim] != 1]
    runs: list[list[int]] = []  # in transposed order, each a row of dims that stay neighbours
    for dim in (kept.index(dim) for dim in perm if dims[dim] != 1):
        if runs and runs[-1][-1] == dim - 1:
            runs[-1].append(dim)
        else:
            runs.append([dim])
    if not runs:
        return (1,), (0,)
    before = sorted(runs)
    return (
        tuple(math.prod(dims[kept[dim]] for dim in run) for run in before),
        tuple(before.index(run) for run in runs),
    )


_INTS = r"\d+(?:\s*,\s*\d+)*"
_IOTA_IDS = rf"\[\s*({_INTS})\s*\]\s*(?:T\(\s*({_INTS})\s*\))?"
_NAME = r"""(?:'[^']*'|"[^"]*")"""
_AXIS = rf"({_NAME})\s*=\s*(\d+)"
_REF = rf"({_NAME})\s*(?::\s*\(\s*(\d+)\s*\)\s*(\d+))?"
_LIST = r"\{\s*(?:-?\d+(?:\s*,\s*-?\d+)*)?\s*\}"

_EXPLICIT_FORM = re.compile(rf"\{{\s*(?:{_LIST}(?:\s*,\s*{_LIST})*)?\s*\}}")
_IOTA_FORM = re.compile(rf"\[\s*(\d+)\s*,\s*(\d+)\s*\]\s*<=\s*{_IOTA_IDS}")
_MESH_FORM = re.compile(
    rf"mesh\s*\[\s*({_AXIS}(?:\s*,\s*{_AXIS})*)\s*\]\s*"
    rf"(?:,\s*device_ids\s*=\s*\(\s*([^()]*(?:\([^()]*\))?)\s*\)\s*)?"
    rf"\{{\s*({_REF}(?:\s*,\s*{_REF})*)\s*\}}"
)


def parse_groups(text: str) -> ReplicaGroups:
    """Read replica groups in any of the forms that HLO text has; ValueError, naming the text, for anything else."""
    stripped = text.strip()
    try:
        if _EXPLICIT_FORM.fullmatch(stripped):
            return ExplicitGroups(tuple(_ints(group) for group in re.findall(_LIST, stripped[1:-1])))
        if match := _IOTA_FORM.fullmatch(stripped):
            return IotaGroups(int(match[1]), int(match[2]), _ints(match[3]), _ints(match[4] or ""))
        if match := _MESH_FORM.fullmatch(stripped):
            return _parse_mesh(match)
    except ValueError as error:
        raise ValueError(f"cannot read the replica groups {text!r}: {error}") from None
    raise ValueError(f"cannot read the replica groups {text!r}")


def _parse_mesh(match: re.Match[str]) -> MeshGroups:
    axes = tuple((name[1:-1], int(size)) for name, size in re.findall(_AXIS, match[1]))
    names = [name for name, _ in axes]
    refs = []
    ids_text, refs_text = match[6], match[7]
    for quoted, pre_size, size in re.findall(_REF, refs_text):
        if quoted[1:-1] not in names:
            raise ValueError(f"the mesh has no axis {quoted}")
        axis = names.index(quoted[1:-1])
        refs.append(AxisRef(axis, int(pre_size), int(size)) if size else AxisRef(axis))
    ids: DeviceIds = None
    if ids_text is not None:
        if iota := re.fullmatch(_IOTA_IDS, ids_text.strip()):
            ids = IotaIds(_ints(iota[1]), _ints(iota[2] or ""))
        elif re.fullmatch(_INTS, ids_text.strip()):
            ids = _ints(ids_text)
        else:
            raise ValueError("device_ids are neither a list nor an iota")
    return MeshGroups(axes, ids, tuple(refs))


def _ints(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"-?\d+", text)))


def rank_groups(groups: ReplicaGroups | IdGroups, mode: GroupMode, replica_count: int, num_partitions: int) -> IdGroups:
    """The groups of flattened ranks (``replica * num_partitions + partition``) that talk to one another.

    The order within a group is the order as written. No groups written means everyone that the mode spans:

    * cross-replica: the replicas of a group, once for each partition;
    * cross-partition: the partitions of a group, once for each replica;
    * cross-replica-and-partition: all partitions of each replica of the group, replica by replica;
    * flattened: the ids are the ranks.

    Raises:
        ValueError: an id that is outside the replicas, partitions or ranks that the mode spans.
    """
    written = groups.expand() if isinstance(groups, ReplicaGroups) else groups
    spans = {
        GroupMode.CROSS_REPLICA: ("replicas", replica_count),
        GroupMode.CROSS_PARTITION: ("partitions", num_partitions),
        GroupMode.CROSS_REPLICA_AND_PARTITION: ("replicas", replica_count),
        GroupMode.FLATTENED: ("ranks", replica_count * num_partitions),
    }
    what, count = spans[mode]
    for group in written:
        for i in group:
            if not 0 <= i < count:
                raise ValueError(f"id {i} is outside the {count} {what} of {mode} groups")
    everyone = written or (tuple(range(count)),)
    replicas, partitions = range(replica_count), range(num_partitions)
    if mode is GroupMode.CROSS_REPLICA:
        return tuple(tuple(r * num_partitions + p for r in group) for group in everyone for p in partitions)
    if mode is GroupMode.CROSS_PARTITION:
        return tuple(tuple(r * num_partitions + p for p in group) for group in everyone for r in replicas)
    if mode is GroupMode.CROSS_REPLICA_AND_PARTITION:
        return tuple(tuple(r * num_partitions + p for r in group for p in partitions) for group in everyone)
    return everyone


def check_groups(groups: IdGroups, world: int) -> list[str]:
    """What is wrong with groups of ids that ought to hold each of 0..world-1 once, in plain words.

    No groups at all is everyone, and right. Groups of different sizes are no fault here.
    """
    if not groups:
        return []
    problems = [f"group {g} is empty" for g, group in enumerate(groups) if not group]
    where: dict[int, list[int]] = {}
    for g, group in enumerate(groups):
        for i in group:
            where.setdefault(i, []).append(g)
    if outside := sorted(i for i in where if not 0 <= i < world):
        problems.append(f"{listed('id', outside)} outside 0..{world - 1}")
    for i, places in sorted(where.items()):
        for g, times in Counter(places).items():
            if times > 1:
                problems.append(f"id {i} is {times} times in group {g}")
        if len(set(places)) > 1:
            problems.append(f"id {i} is in groups {' and '.join(map(str, dict.fromkeys(places)))}")
    if missing := [i for i in range(world) if i not in where]:
        problems.append(f"{listed('id', missing)} in no group")
    return problems


def listed(noun: str, numbers: Sequence[int], most: int = 8) -> str:
    """``id 3 is`` or ``ids 3, 4, 5 and 12 more are``, for the head of a message."""
    if len(numbers) == 1:
        return f"{noun} {numbers[0]} is"
    shown = ", ".join(map(str, numbers[:most]))
    rest = f" and {len(numbers) - most} more" if len(numbers) > most else ""
    return f"{noun}s {shown}{rest} are"
