"""`all-reduce-combiner`, `reduce-scatter-combiner`, `all-gather-combiner`: many collectives become one variadic one."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import ClassVar

from crossrank.collective.kinds import Kind
from crossrank.errors import InputError
from crossrank.hlo.build import collective_like, element, transpose, tuple_of
from crossrank.hlo.collectives import CollectiveInfo, comparable_groups, describe
from crossrank.hlo.dependence import levels
from crossrank.hlo.hlo_pass import HloPass
from crossrank.hlo.module import Computation, Instruction, Module
from crossrank.hlo.shape import Shape
from crossrank.passes import option, register
from crossrank.remarks import Remarks

REACHABLE = "Instruction is reachable."
COUNT_REACHED = "Combined count threshold reached."
SIZE_EXCEEDED = "Combined size threshold exceeded."
CROWDED = "its computation has too many kinds of collectives to look at each kind alone"

_COLLECTIVE_TYPE = "collective_type"
_TP_REDUCE_SCATTER = "tp_reduce_scatter"
_TP_GROUPS = ("marked", "first", "off")
_SINGLE_WALKS = 32
"""How many kinds of collectives of one computation get a walk of their own; the rest share one, to stay linear."""


@dataclass(frozen=True)
class _Member:
    """A collective that may be combined, with the arrays that it gives."""

    instruction: Instruction
    info: CollectiveInfo

    @property
    def results(self) -> tuple[Shape, ...]:
        shape = self.instruction.shape
        return shape.elements if shape.is_tuple else (shape,)

    @property
    def arrays(self) -> list[tuple[Instruction, Shape]]:
        """Each operand with what becomes of it."""
        return list(zip(self.instruction.operands, self.results, strict=True))


@dataclass(frozen=True)
class _Combiner(HloPass):
    kind: ClassVar[Kind]

    threshold_count: int = option(256, "most arrays in one collective; 0 or less turns the pass off")
    threshold_bytes: int = option(0x40000000, "most bytes of results on one rank; 0 or less turns the pass off")
    skip_while_loops: bool = option(False, "leave the bodies of while loops alone, and what they call")

    def run(self, module: Module, remarks: Remarks) -> bool:
        """Combine; returns whether anything was combined."""
        if self.threshold_count <= 0 or self.threshold_bytes <= 0:
            return False
        scope = self._scope(module)
        found = {c: [i for i in c.post_order() if i.opcode == self.kind] for c in scope}
        pinned = next((i for matched in found.values() for i in matched if i.proto.constrain_layout), None)
        if pinned is not None:
            reason = f"its layout is pinned (constrain_layout=true), so that no {self.kind} of the module is combined"
            remarks.declined(f"%{pinned.name}", reason, pinned.where)
            return False
        tp_groups = self._find_tp_groups(module)
        changed = False
        for computation, matched in found.items():
            if len(matched) > 1:
                changed |= self._combine_in(computation, matched, tp_groups, remarks)
        return changed

    def _scope(self, module: Module) -> list[Computation]:
        scope = self.computations(module)
        if not self.skip_while_loops:
            return scope
        loops = {c for i in module.instructions() if i.opcode == "while" for c in i.called}
        work = list(loops)
        while work:
            new = {b for i in work.pop() for b in i.called} - loops
            loops |= new
            work.extend(new)
        return [c for c in scope if c not in loops]

    # -- which belong together -----------------------------------------------------------------------------------------
    def _find_tp_groups(self, module: Module) -> object:
        """The groups outside of which nothing is combined; None where there is no such limit."""
        return None

    @abstractmethod
    def _key(self, info: CollectiveInfo, i: Instruction) -> tuple[object, ...]:
        """What members of one collective have in common beside mode and groups."""

    def _why_not(self, i: Instruction, info: CollectiveInfo) -> str:
        """What keeps a collective out of every set; the empty string where nothing does."""
        if i.control_predecessors or i.control_successors:
            return "it has control dependencies"
        leaves = i.shape.elements if i.shape.is_tuple else (i.shape,)
        if not all(leaf.is_array for leaf in leaves):
            return "hlo->shape().IsArray()"
        if len(i.operands) != len(leaves):
            return "hlo->operand_count() == 1"
        if any(leaf.tiled or leaf.dynamic for leaf in leaves):
            return "its layout is a device's, or its extents are dynamic"
        if info.kind.reduces and info.dtype is None:
            return "it reduces several element types"
        if info.kind.reduces and not info.trivial_body:
            return "reduction body is not a binary op over its two parameters"
        return ""

    def _combine_in(
        self, computation: Computation, matched: Sequence[Instruction], tp_groups: object, remarks: Remarks
    ) -> bool:
        if any(i.opcode == "domain" for i in computation.post_order()):
            remarks.declined(f"%{matched[0].name}", "its computation is cut into domains", matched[0].where)
            return False
        sets: dict[tuple[object, ...], list[_Member]] = {}
        for i in matched:
            info = describe(i)
            assert info is not None
            reason = self._why_not(i, info)
            try:
                groups = comparable_groups(info, i.module.config)
            except ValueError as error:
                reason = reason or str(error)
            if not reason and tp_groups is not None and groups != tp_groups:
                reason = "its groups are not those of tensor parallelism"
            if reason:
                remarks.declined(f"%{i.name}", reason, i.where)
            else:
                sets.setdefault((info.mode, groups, *self._key(info, i)), []).append(_Member(i, info))
        several = sorted((s for s in sets.values() if len(s) > 1), key=len, reverse=True)
        alone, crowd = several[:_SINGLE_WALKS], several[_SINGLE_WALKS:]
        changed = False
        # One key after the other: combining one may put members of another behind each other.
        for batch in ([[s] for s in alone] + [crowd]) if crowd else [[s] for s in alone]:
            changed |= self._combine_by_level(batch, remarks)
        return changed

    def _combine_by_level(self, batch: Sequence[Sequence[_Member]], remarks: Remarks) -> bool:
        """Combine members of one set that stand on one level, in post-order."""
        of = {m.instruction: (n, m) for n, members in enumerate(batch) for m in members}
        level = levels(of)
        changed = False
        order = sorted(level, key=lambda i: (of[i][0], level[i]))
        for _, same in groupby(order, key=lambda i: (of[i][0], level[i])):
            bins = list(self._bins([of[i][1] for i in same]))
            for n, (members, why_opened) in enumerate(bins):
                first = members[0].instruction
                if why_opened:
                    remarks.declined(f"%{first.name}", why_opened, first.where)
                if len(members) > 1:
                    self._combine(members, remarks)
                    changed = True
                elif not why_opened:
                    dependent = REACHABLE if len(batch) == 1 else CROWDED
                    remarks.declined(f"%{first.name}", bins[n + 1][1] if len(bins) > 1 else dependent, first.where)
        return changed

    def _bins(self, members: Sequence[_Member]) -> Iterator[tuple[list[_Member], str]]:
        """Cut independent members where a threshold is met; each part with the reason why it is one of its own."""
        part: list[_Member] = []
        count = size = 0
        why_opened = ""
        for m in members:
            reason = ""
            if part and count + len(m.results) > self.threshold_count:
                reason = COUNT_REACHED
            elif part and size + m.info.nbytes > self.threshold_bytes:
                reason = SIZE_EXCEEDED
            if reason:
                yield part, why_opened
                part, count, size, why_opened = [], 0, 0, reason
            part.append(m)
            count += len(m.results)
            size += m.info.nbytes
        yield part, why_opened

    # -- making one of them --------------------------------------------------------------------------------------------
    def _combine(self, members: Sequence[_Member], remarks: Remarks) -> None:
        first = members[0].instruction
        dim = _common_dim(members)
        places: dict[tuple[Instruction, int | None, Shape], int] = {}  # what is asked for twice moves once
        operands: list[Instruction] = []
        shapes: list[Shape] = []
        for m in members:
            for operand, shape in m.arrays:
                if places.setdefault((operand, m.info.dim, shape), len(operands)) == len(operands):
                    operands.append(_swap(operand, m.info.dim, dim, m.instruction))
                    shapes.append(_swapped(shape, m.info.dim, dim))
        new = collective_like(first, operands, Shape.tuple_of(shapes))
        proto = new.edit()
        proto.ClearField("sharding")  # that of one array; each element has its own
        if dim is not None:
            proto.dimensions[0] = dim
        for key, value in first.frontend_attributes.items():
            if any(m.instruction.frontend_attributes.get(key) != value for m in members):
                new.set_frontend_attribute(key, None)
        size = sum(s.nbytes for s in shapes)
        what = f"combined with {len(members) - 1} more → %{new.name}: {len(shapes)} arrays, {size} bytes"
        remarks.done(f"%{first.name}", what, first.where)
        for m in members:
            parts = []
            for operand, shape in m.arrays:
                part = element(new, places[operand, m.info.dim, shape], like=m.instruction)
                part = _swap(part, dim, m.info.dim, m.instruction)
                part.set_shape(shape)
                parts.append(part)
            _replace(m.instruction, parts)


def _common_dim(members: Sequence[_Member]) -> int | None:
    """The dimension along which a combined collective works: the most frequent one, where all arrays have it."""
    dims = Counter(m.info.dim for m in members)
    dim = dims.most_common(1)[0][0]
    return dim if dim is None or len(dims) == 1 or all(dim < len(s.dims) for m in members for s in m.results) else 0


def _permutation(rank: int, a: int, b: int) -> list[int]:
    order = list(range(rank))
    order[a], order[b] = b, a
    return order


def _swapped(shape: Shape, a: int | None, b: int | None) -> Shape:
    """The shape with two dimensions exchanged, and the bytes where they are."""
    if a is None or b is None or a == b:
        return shape
    order = _permutation(len(shape.dims), a, b)
    layout = shape.layout and tuple(order[d] for d in shape.layout)
    return replace(shape, dims=tuple(shape.dims[d] for d in order), layout=layout)


def _swap(x: Instruction, a: int | None, b: int | None, like: Instruction) -> Instruction:
    """``x`` with two dimensions exchanged; a change of names only, not of bytes."""
    if a is None or b is None or a == b:
        return x
    new = transpose(x, _permutation(len(x.shape.dims), a, b), like=like)
    new.set_shape(_swapped(x.shape, a, b))
    return new


def _replace(old: Instruction, parts: Sequence[Instruction]) -> None:
    """Let ``parts`` stand for the arrays that ``old`` gave."""
    if not old.shape.is_tuple:
        if old.proto.HasField("sharding"):
            parts[0].edit().sharding.CopyFrom(old.proto.sharding)
        parts[0].take_place_of(old)
        return
    for user in list(old.users):
        if user.opcode == "get-tuple-element":
            parts[int(user.proto.tuple_index)].take_place_of(user)
    if old.users or old.is_root:
        tuple_of(old.computation, parts, like=old).take_place_of(old)
    else:
        old.computation.remove(old)
        old.computation.remove_dead(parts)


@register
@dataclass(frozen=True)
class AllReduceCombiner(_Combiner):
    """Combines independent all-reduces that agree in all but their operands into one variadic all-reduce.

    Matches all-reduces of one computation (no body of a fusion or of an asynchronous wrapper) with the same element
    type, reduction, group mode and groups; groups are compared as lists of ranks, however they are written. Variadic
    ones are taken in with all their operands.

    Makes one tuple-shaped all-reduce over all operands, in post-order, with channel id, groups and metadata of the
    first, and a `get-tuple-element` for each array. Members need not be neighbours: of chains of dependent
    all-reduces each link is combined with the same link of the others, so that two chains of two become two.

    Declines members with control dependencies, bodies that do more than combine their two parameters, arrays in
    layouts of a device, and the whole module where one all-reduce has its layout pinned. A set is cut where it would
    hold more than `threshold_count` arrays or `threshold_bytes` bytes.
    """

    name: ClassVar[str] = "all-reduce-combiner"
    kind: ClassVar[Kind] = Kind.ALL_REDUCE

    def _key(self, info: CollectiveInfo, i: Instruction) -> tuple[object, ...]:
        return info.dtype, _body(info, i)


@dataclass(frozen=True)
class _DimensionedCombiner(_Combiner):
    combine_by_dim: bool = option(True, "only those along one dimension; else the others are transposed in and out")
    tp_groups: str = option(
        "marked",
        f"nothing outside the groups of a reduce-scatter: the first with {_COLLECTIVE_TYPE}={_TP_REDUCE_SCATTER} "
        "(`marked`), the first of all (`first`), no such limit (`off`)",
    )

    def __post_init__(self) -> None:
        if self.tp_groups not in _TP_GROUPS:
            raise InputError(f"pass {self.name}: tp_groups is {' or '.join(_TP_GROUPS)}, not {self.tp_groups}")

    def _find_tp_groups(self, module: Module) -> object:
        if self.tp_groups == "off":
            return None
        for i in module.instructions():
            if i.opcode != Kind.REDUCE_SCATTER:
                continue
            if self.tp_groups == "first" or i.frontend_attributes.get(_COLLECTIVE_TYPE) == _TP_REDUCE_SCATTER:
                info = describe(i)
                assert info is not None
                try:
                    return comparable_groups(info, module.config)
                except ValueError as error:
                    raise InputError(f"%{i.name}: {error}") from None
        return None


@register
@dataclass(frozen=True)
class ReduceScatterCombiner(_DimensionedCombiner):
    """Combines independent reduce-scatters that agree in all but their operands into one variadic reduce-scatter.

    Matches and makes what `all-reduce-combiner` does; the scatter dimension is the same too, or with
    `combine_by_dim=false` the most frequent one, to which the others are transposed and back.

    Declines what `all-reduce-combiner` does, reductions that are none of add, multiply, max, min, and, or, xor, and
    groups other than those of tensor parallelism (see `tp_groups`).
    """

    name: ClassVar[str] = "reduce-scatter-combiner"
    kind: ClassVar[Kind] = Kind.REDUCE_SCATTER

    def _key(self, info: CollectiveInfo, i: Instruction) -> tuple[object, ...]:
        return info.dtype, _body(info, i), info.dim if self.combine_by_dim else -1

    def _why_not(self, i: Instruction, info: CollectiveInfo) -> str:
        reason = super()._why_not(i, info)
        return reason or ("" if info.reduce_op else f"{info.reduction} is no reduction that is known")


@register
@dataclass(frozen=True)
class AllGatherCombiner(_DimensionedCombiner):
    """Combines independent all-gathers that agree in all but their operands into one variadic all-gather.

    Matches and makes what `all-reduce-combiner` does; the gather dimension is the same too, or with
    `combine_by_dim=false` the most frequent one, to which the others are transposed and back. Element types may differ
    with `combine_different_dtypes`, since an all-gather has no body that is made for one.

    Declines what `all-reduce-combiner` does, and groups other than those of tensor parallelism (see `tp_groups`).
    """

    name: ClassVar[str] = "all-gather-combiner"
    kind: ClassVar[Kind] = Kind.ALL_GATHER

    combine_different_dtypes: bool = option(False, "several element types in one all-gather")

    def _key(self, info: CollectiveInfo, i: Instruction) -> tuple[object, ...]:
        return None if self.combine_different_dtypes else info.dtype, info.dim if self.combine_by_dim else None

    def _why_not(self, i: Instruction, info: CollectiveInfo) -> str:
        reason = super()._why_not(i, info)
        several = info.dtype is None and not self.combine_different_dtypes
        return reason or ("it gathers several element types" if several else "")


def _body(info: CollectiveInfo, i: Instruction) -> object:
    """What the reduction does; an operation that is no known reduction is only like itself."""
    body = i.called[0]
    return info.reduce_op or body, body.root.shape.dtype
