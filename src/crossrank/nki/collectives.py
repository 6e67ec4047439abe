"""``nki.collectives``: what ranks say to each other.

Every function checks what the vendor's documentation asks of its tensors, calls the builder's method, and returns a
handle of what it inserted. Beyond the vendor's tools ours take inputs and outputs of the kernel, arithmetic on rank
registers, any reduction, shared sources on ranks of one core, and priorities on any architecture; ``as_documented``
refuses those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from crossrank.errors import InputError, ask
from crossrank.instr.builder import KernelBuilder
from crossrank.instr.instructions import Instruction
from crossrank.instr.kinds import Space
from crossrank.instr.tensors import Register, View
from crossrank.instr.trace import current
from crossrank.nki.operators import value
from crossrank.nki.state import NkiInstruction, PreparedInstruction, is_documented, state

MAX_CHANNELS = 4
"""Channels of an implicit permute, where a group is all ranks; else 2."""
REDUCTIONS = ("add", "minimum", "maximum")
"""The documented ones."""

Tensors = Sequence[View]


class rg_partition_op(Enum):
    """How ``ReplicaGroup.from_partition_op`` finds the list of a rank."""

    bitwise_and = "bitwise_and"
    div = "div"
    mod = "mod"


_PARTITIONS: dict[rg_partition_op, Callable[[int, int], int]] = {
    rg_partition_op.bitwise_and: lambda rank, operand: rank & operand,
    rg_partition_op.div: lambda rank, operand: rank // operand,
    rg_partition_op.mod: lambda rank, operand: rank % operand,
}


@dataclass(frozen=True, init=False, repr=False)
class ReplicaGroup:
    """Lists of ranks; those of one list work together, and the lists apart from each other.

    Attributes:
        rank_lists: the lists; a rank is in at most one.
    """

    rank_lists: tuple[tuple[int, ...], ...]

    def __init__(self, rank_lists: Sequence[Sequence[int]]) -> None:
        try:
            lists = tuple(tuple(int(rank) for rank in ranks) for ranks in rank_lists)
        except TypeError:
            raise InputError(f"a replica group is a list of lists of ranks, not {rank_lists!r}") from None
        ask(lists and all(lists), "a replica group without ranks", "list the ranks that work together")
        seen: set[int] = set()
        for rank in (r for ranks in lists for r in ranks):
            ask(rank not in seen, f"rank {rank} is in two lists of a replica group", "a rank may be in one only")
            seen.add(rank)
        object.__setattr__(self, "rank_lists", lists)

    @staticmethod
    def from_partition_op(world_size: int, op: rg_partition_op, operand: int) -> ReplicaGroup:
        """Ranks with equal ``op(rank, operand)`` share a list."""
        ask(operand > 0 or op is rg_partition_op.bitwise_and, f"{op.name} by {operand}")
        lists: dict[int, list[int]] = {}
        for rank in range(world_size):
            lists.setdefault(_PARTITIONS[op](rank, operand), []).append(rank)
        return ReplicaGroup(list(lists.values()))

    @property
    def _value(self) -> list[list[int]]:
        """The lists by the name under which kernels' tests look for them."""
        return [list(ranks) for ranks in self.rank_lists]

    def __repr__(self) -> str:
        return f"ReplicaGroup({self._value})"


# Group collectives


def all_reduce(
    srcs: Tensors,
    dsts: Tensors,
    replica_group: ReplicaGroup,
    op: Any,
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """Every rank gets the reduction of all."""
    call = _Call("all_reduce", priority, srcs=srcs, dsts=dsts)
    op = call.reduction(op)
    return NkiInstruction.of(
        call.builder.all_reduce_cc_raw(
            op, srcs, dsts, _lists(replica_group), tiled=False, dma_qos=priority, name=_name(name)
        )
    )


def all_gather(
    srcs: Tensors,
    dsts: Tensors,
    replica_group: ReplicaGroup,
    collective_dim: int,
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """Every rank gets what all have, joined along a dimension: 0 in HBM, 0 or 1 in SBUF."""
    call = _Call("all_gather", priority, srcs=srcs, dsts=dsts)
    call.joins(collective_dim, (0,) if call.in_hbm else (0, 1))
    return NkiInstruction.of(
        call.builder.all_gather_cc_raw(
            srcs, dsts, _lists(replica_group), collective_dim, dma_qos=priority, name=_name(name)
        )
    )


def reduce_scatter(
    srcs: Tensors,
    dsts: Tensors,
    replica_group: ReplicaGroup,
    collective_dim: int,
    op: Any,
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """Every rank gets its slice, along dimension 0, of the reduction of all."""
    call = _Call("reduce_scatter", priority, srcs=srcs, dsts=dsts)
    call.joins(collective_dim, (0,))
    op = call.reduction(op)
    return NkiInstruction.of(
        call.builder.reduce_scatter_cc_raw(
            op, srcs, dsts, _lists(replica_group), collective_dim, dma_qos=priority, name=_name(name)
        )
    )


def all_to_all(
    srcs: Tensors,
    dsts: Tensors,
    replica_group: ReplicaGroup,
    collective_dim: int,
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """The rank in place i gets slice i, along dimension 0, of every rank; HBM only.

    Where dimension 0 has no such slices, those of the elements in order count.
    """
    call = _Call("all_to_all", priority, srcs=srcs, dsts=dsts)
    call.is_in_hbm()
    call.joins(collective_dim, (0,))
    lists = _lists(replica_group)
    srcs, dsts = (_sliced(views, len(lists[0])) for views in (srcs, dsts))
    return NkiInstruction.of(
        call.builder.all_to_all_cc_raw(
            srcs, dsts, lists, collective_dim, collective_dim, dma_qos=priority, name=_name(name)
        )
    )


def _sliced(views: Tensors, count: int) -> Tensors:
    """Tensors whose dimension 0 has ``count`` slices: flat ones where theirs has not."""
    return [v if not v.ndim or v.shape[0] % count == 0 or v.size % count else v.reshape(-1) for v in views]


# Variable exchanges


def all_to_all_v(
    srcs: Tensors,
    dsts: Tensors,
    replica_group: ReplicaGroup,
    metadata_tensor: View,
    recv_counts_known: bool = False,
    has_rdispls: bool = False,
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """Each rank sends each other one as many elements as its metadata says.

    ``metadata_tensor`` is uint32, ``(rows, n)`` in HBM or ``(1, rows, n)`` in SBUF: counts to send, where they begin,
    counts that are received (written, unless ``recv_counts_known``), and with ``has_rdispls`` where they go.
    """
    given = (srcs, dsts, replica_group, metadata_tensor, recv_counts_known, has_rdispls, priority)
    return _exchange("all_to_all_v", *given, name)


def all_gather_v(
    srcs: Tensors,
    dsts: Tensors,
    replica_group: ReplicaGroup,
    metadata_tensor: View,
    recv_counts_known: bool = False,
    has_rdispls: bool = False,
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """Each rank sends all ranks the same elements: those that the first column of its metadata says."""
    given = (srcs, dsts, replica_group, metadata_tensor, recv_counts_known, has_rdispls, priority)
    return _exchange("all_gather_v", *given, name)


def all_to_all_v_prepare(
    srcs: Tensors,
    dsts: Tensors,
    replica_group: ReplicaGroup,
    metadata_tensor: View,
    recv_counts_known: bool = False,
    has_rdispls: bool = False,
    priority: int | None = None,
    name: str | None = None,
) -> PreparedInstruction:
    """Read the metadata of an exchange that its trigger will do."""
    given = (srcs, dsts, replica_group, metadata_tensor, recv_counts_known, has_rdispls, priority)
    return _prepare("all_to_all_v", *given, name)


def all_gather_v_prepare(
    srcs: Tensors,
    dsts: Tensors,
    replica_group: ReplicaGroup,
    metadata_tensor: View,
    recv_counts_known: bool = False,
    has_rdispls: bool = False,
    priority: int | None = None,
    name: str | None = None,
) -> PreparedInstruction:
    """Read the metadata of a gather that its trigger will do."""
    given = (srcs, dsts, replica_group, metadata_tensor, recv_counts_known, has_rdispls, priority)
    return _prepare("all_gather_v", *given, name)


def all_to_all_v_trigger(prepare_instr: NkiInstruction, name: str | None = None) -> NkiInstruction:
    """Do the exchange that was prepared."""
    return _trigger("all_to_all_v", prepare_instr, name)


def all_gather_v_trigger(prepare_instr: NkiInstruction, name: str | None = None) -> NkiInstruction:
    """Do the gather that was prepared."""
    return _trigger("all_gather_v", prepare_instr, name)


def _exchange(function: str, *given: Any) -> NkiInstruction:
    """Both halves of an exchange at once."""
    *arguments, name = given
    return NkiInstruction.of(current().all_to_all_v_cc_raw(**_checked_exchange(function, *arguments), name=_name(name)))


def _prepare(function: str, *given: Any) -> PreparedInstruction:
    waiting = state().prepared
    ask(
        waiting is None,
        f"{function}_prepare, and {waiting and waiting.name} is prepared and not triggered yet",
        "prepared exchanges share one slot: trigger that one first",
    )
    *arguments, name = given
    checked = _checked_exchange(function, *arguments)
    inserted = current().all_to_all_v_cc_raw(**checked, phase="prepare", name=_name(name))
    prepared = PreparedInstruction(inserted.label, (inserted,), function, checked)
    state().prepared = prepared
    return prepared


def _trigger(function: str, prepared: NkiInstruction, name: str | None) -> NkiInstruction:
    if not isinstance(prepared, PreparedInstruction) or prepared.function != function:
        raise InputError(f"{function}_trigger takes what {function}_prepare returned")
    ask(
        state().prepared is prepared,
        f"{prepared.name} was triggered before",
        "each prepare is followed by exactly one trigger",
    )
    state().prepared = None
    return NkiInstruction.of(current().all_to_all_v_cc_raw(**prepared.arguments, phase="trigger", name=_name(name)))


def _checked_exchange(
    function: str,
    srcs: Tensors,
    dsts: Tensors,
    replica_group: ReplicaGroup,
    metadata: View,
    recv_counts_known: bool,
    has_rdispls: bool,
    priority: int | None,
) -> dict[str, Any]:
    """The arguments of the builder's method."""
    _Call(function, priority, srcs=srcs, dsts=dsts).is_in_hbm(single=True)
    lists = _lists(replica_group)
    rows, size, shape = 3 + bool(has_rdispls), len(lists[0]), tuple(metadata.shape)
    in_hbm = metadata.buffer.is_hbm
    wanted = (rows, size) if in_hbm else (1, rows, size)
    if shape == ((4, size) if in_hbm else (1, 4, size)):  # kernels of older versions have the last row always
        metadata = metadata[:rows] if in_hbm else metadata[:, :rows]
    else:
        ask(shape == wanted, f"{function} metadata_tensor in {metadata.buffer} has the shape {wanted}, not {shape}")
    ask(metadata.element.name == "u32", f"{function} metadata_tensor is of uint32, not {metadata.element}")
    if is_documented() and function == "all_gather_v":
        ask(not has_rdispls, "all_gather_v does not take has_rdispls=True")
        ask(current().lnc == 2, f"all_gather_v needs ranks of 2 cores, not {current().lnc}")
        ask(size == 4, f"all_gather_v needs lists of 4 ranks, not {size}")
    return {
        "srcs": srcs,
        "dsts": dsts,
        "replica_groups": lists,
        "metadata": metadata,
        "recv_counts_known": bool(recv_counts_known),
        "has_rdispls": bool(has_rdispls),
        "uniform_send": function == "all_gather_v",
        "dma_qos": priority,
    }


# Permutes


def collective_permute(
    srcs: Tensors,
    dsts: Tensors,
    source_target_pairs: Sequence[Sequence[int]],
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """Each source sends to its target; who is no target keeps what it has. HBM only."""
    call = _Call("collective_permute", priority, srcs=srcs, dsts=dsts)
    call.is_in_hbm(single=True)
    return NkiInstruction.of(
        call.builder.tiled_collective_permute_cc_raw(
            srcs, dsts, source_target_pairs, dma_qos=priority, name=_name(name)
        )
    )


def collective_permute_implicit(
    srcs_by_channel: Sequence[Tensors],
    dsts_by_channel: Sequence[Tensors],
    replica_group: ReplicaGroup,
    channel_ids: Sequence[int] = (0,),
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """Each rank sends to its neighbour in its list, on one or several channels; odd channels go the other way round."""
    function, lists = "collective_permute_implicit", _lists(replica_group)
    channels, count = _channels(function, channel_ids, lists, srcs_by_channel=srcs_by_channel, dsts=dsts_by_channel)
    made: list[Instruction] = []
    for n, channel in enumerate(channels):
        srcs, dsts = srcs_by_channel[n], dsts_by_channel[n]
        call = _Call(function, priority, srcs=srcs, dsts=dsts)
        call.has_one_each(f"channel {channel}")
        made.append(
            call.builder.tiled_collective_permute_implicit_cc_raw(
                srcs, dsts, lists, channel, count, dma_qos=priority, name=_name(name, channel, channels)
            )
        )
    return NkiInstruction.of(*made)


def collective_permute_implicit_reduce(
    srcs0_by_channel: Sequence[Tensors],
    srcs1_by_channel: Sequence[Tensors],
    dsts_by_channel: Sequence[Tensors],
    replica_group: ReplicaGroup,
    op: Any,
    channel_ids: Sequence[int] = (0,),
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """Each rank sends ``op(src0, src1)`` to its neighbour in its list, on one or several channels."""
    function, lists = "collective_permute_implicit_reduce", _lists(replica_group)
    channels, count = _channels(
        function,
        channel_ids,
        lists,
        srcs0_by_channel=srcs0_by_channel,
        srcs1_by_channel=srcs1_by_channel,
        dsts_by_channel=dsts_by_channel,
    )
    made: list[Instruction] = []
    for n, channel in enumerate(channels):
        srcs0, srcs1, dsts = srcs0_by_channel[n], srcs1_by_channel[n], dsts_by_channel[n]
        call = _Call(function, priority, srcs0=srcs0, srcs1=srcs1, dsts=dsts)
        call.has_one_each(f"channel {channel}")
        op = call.reduction(op)
        made.append(
            call.builder.tiled_collective_permute_reduce_implicit_cc_raw(
                op,
                [srcs0[0], srcs1[0]],
                dsts,
                lists,
                channel,
                count,
                dma_qos=priority,
                name=_name(name, channel, channels),
            )
        )
    return NkiInstruction.of(*made)


def _channels(
    function: str, channel_ids: Sequence[int], lists: Sequence[Sequence[int]], **by_channel: Sequence[Tensors]
) -> tuple[list[int], int]:
    """The channels, and of how many they are some: consecutive from 0, or a single one of several."""
    channels = [int(c) for c in channel_ids]
    for what, given in by_channel.items():
        ask(
            len(given) == len(channels),
            f"{function} has {len(channels)} channel_ids, and tensors for {len(given)} channels in {what}",
        )
    single = len(channels) == 1 and not is_documented()
    ask(
        channels and (channels == list(range(len(channels))) or single),
        f"{function} channel_ids must be consecutive integers from 0 on, not {channels}",
    )
    whole = len(lists) == 1 and len(lists[0]) == current().world_size
    most = MAX_CHANNELS if whole or not is_documented() else MAX_CHANNELS // 2
    ask(0 <= channels[-1] < most, f"{function} has at most {most} channels here, and channel {channels[-1]} is asked")
    return channels, next(n for n in (1, 2, MAX_CHANNELS) if n > channels[-1])


def collective_permute_implicit_current_processing_rank_id(
    iteration_id: int,
    replica_group: ReplicaGroup,
    channel_id: int = 0,
    name: str | int | None = None,
    num_channels: int = 1,
) -> Register:
    """The rank whose data this rank holds after ``iteration_id`` implicit permutes; a register.

    ``num_channels`` is an argument of older kernels and counts for nothing, also in the place of ``name``.
    """
    if isinstance(name, int):
        name = None
    ask(channel_id in range(MAX_CHANNELS), f"channel_id {channel_id} is none of the {MAX_CHANNELS} channels")
    return _rank_register(
        current().cur_processing_rank_id(
            iteration_id, _lists(replica_group), channel_id, max(num_channels, channel_id + 1), _name(name)
        )
    )


def rank_id(name: str | None = None) -> Register:
    """The number of this rank; a register."""
    return _rank_register(current().rank_id(name=_name(name)))


class RankRegister(Register):
    """A rank's number as the vendor's tools have it: an offset and nothing else."""

    def _alu(self, op: str, left: Any, right: Any) -> Register:
        raise InputError("a rank's number can be an offset only, and is computed with", "look it up in a table")


def _rank_register(register: Register) -> Register:
    return RankRegister(register.builder, register.value) if is_documented() else register


# What is checked


class _Call:
    """One call: its tensors, in lists by the names of its parameters."""

    def __init__(self, function: str, priority: int | None, **lists: Tensors) -> None:
        self.function = function
        self.builder: KernelBuilder = current()
        self._lists = lists
        for what, views in lists.items():
            ask(
                isinstance(views, (list, tuple)) and views and all(isinstance(v, View) for v in views),
                f"{function} {what} must be a list of tensors",
                f"write {what}=[tensor]",
            )
        tensors = [v for views in lists.values() for v in views]
        spaces = {v.buffer for v in tensors}
        self.in_hbm = all(s.is_hbm for s in spaces)
        ask(
            self.in_hbm or spaces == {Space.SBUF},
            f"{function} takes tensors all in HBM or all in SBUF, not in {' and '.join(sorted(spaces))}",
        )
        if self.in_hbm:
            self._one_kind_of_hbm()
        else:
            for view in tensors:
                ask(view.ndim == 2, f"{function} takes tensors of 2 dimensions in SBUF, and {view} has {view.ndim}")
            ask(
                all(len(views) == 1 for views in lists.values()),
                f"{function} takes several tensors in HBM only, and one in SBUF",
            )
        if priority is not None:
            ask(priority in range(4), f"{function} priority is 0, 1, 2 or 3, not {priority}")
            ask(
                not is_documented() or self.builder.arch >= 40,
                f"{function} takes a priority from architecture level 40 on, and this is {self.builder.arch}",
            )

    def _one_kind_of_hbm(self) -> None:
        for what, views in self._lists.items():
            kinds = sorted({v.buffer for v in views})
            ask(len(kinds) == 1, f"{self.function} {what} must lie all in private_hbm or all in shared_hbm")
            if is_documented() and self.builder.lnc == 1 and what.startswith("srcs"):
                ask(
                    kinds == [Space.PRIVATE_HBM],
                    f"{self.function} {what} must lie in private_hbm on ranks of one core",
                )

    def is_in_hbm(self, single: bool = False) -> None:
        """It takes tensors in HBM only."""
        ask(self.in_hbm, f"{self.function} takes tensors in HBM only, not in SBUF", "copy them by nisa.dma_copy")
        if single:
            self.has_one_each()

    def has_one_each(self, where: str = "") -> None:
        """It takes one tensor in each list."""
        for what, views in self._lists.items():
            ask(
                len(views) == 1,
                f"{self.function} takes exactly one tensor in {what}{where and f' of {where}'}, not {len(views)}",
            )

    def joins(self, dim: int, allowed: Sequence[int]) -> None:
        """Its dimension."""
        ask(
            dim in allowed,
            f"{self.function} collective_dim in {'HBM' if self.in_hbm else 'SBUF'} is {' or '.join(map(str, allowed))}"
            f", not {dim}",
        )

    def reduction(self, op: Any) -> Any:
        """Its reduction, as the builder takes it."""
        word = value(op)
        ask(
            not is_documented() or word in REDUCTIONS,
            f"{self.function} op is nl.add, nl.minimum or nl.maximum, not {word}",
        )
        return word


def _lists(group: ReplicaGroup) -> tuple[tuple[int, ...], ...]:
    ask(
        isinstance(group, ReplicaGroup),
        f"replica_group must be a ReplicaGroup, not {group!r}",
        "ReplicaGroup([[0, 1]])",
    )
    return group.rank_lists


def _name(name: str | None, channel: int = 0, channels: Sequence[int] = (0,)) -> str | None:
    """The name of an instruction; of one channel of several with the channel's number."""
    return name and (name if len(channels) == 1 else f"{name}.{channel}")
