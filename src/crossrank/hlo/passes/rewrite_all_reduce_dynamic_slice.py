"""`aws_neuron_rewrite_all_reduce_dynamic_slice` and `…_multiple_groups`: all-reduces of which a rank keeps its part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crossrank.hlo.build import collective_like, reshape, transpose
from crossrank.hlo.hlo_pass import HloPass
from crossrank.hlo.module import Instruction, Module
from crossrank.hlo.rank_values import RankValues, clamped_start
from crossrank.hlo.rewrite import Declined, Fresh, check_free, even_groups, put
from crossrank.passes import register
from crossrank.remarks import Remarks

_ONE_GROUP = "aws_neuron_rewrite_all_reduce_dynamic_slice"
_SEVERAL_GROUPS = "aws_neuron_rewrite_all_reduce_dynamic_slice_multiple_groups"
_MOVES = ("reshape", "transpose", "copy", "bitcast")
_MOST_PARTS = 2
"""Reduce-scatters that carry together no more than the all-reduce does."""


@dataclass(frozen=True)
class _Slice:
    """A dynamic slice of an all-reduce.

    Attributes:
        instruction: the dynamic-slice.
        moves: what moves the elements between the all-reduce and it, in order.
    """

    instruction: Instruction
    moves: tuple[Instruction, ...]

    @property
    def source(self) -> Instruction:
        return self.instruction.operands[0]

    @property
    def narrowed(self) -> list[int]:
        """The dimensions of which it takes a part."""
        return [d for d, n in enumerate(self.instruction.shape.dims) if n != self.source.shape.dims[d]]


@dataclass(frozen=True)
class _RewriteAllReduceDynamicSlice(HloPass):
    several_groups: ClassVar[bool]
    other: ClassVar[str]

    def run(self, module: Module, remarks: Remarks) -> bool:
        """Rewrite what matches; returns whether anything did."""
        values, fresh = RankValues(module), Fresh(module)
        changed = False
        for computation in self.computations(module):
            for i in [i for i in computation.post_order() if i.opcode == "all-reduce"]:
                try:
                    made = self._expand(i, values, fresh)
                except Declined as reason:
                    remarks.declined(f"%{i.name}", str(reason), i.where)
                    continue
                for new in made:
                    what = f"→ %{new.name} along dimension {new.proto.dimensions[0]}"
                    remarks.done(f"%{i.name}", what, i.where)
                    changed = True
        return changed

    def _expand(self, i: Instruction, values: RankValues, fresh: Fresh) -> list[Instruction]:
        """The reduce-scatters that stand for an all-reduce and its slices; none where it has no slices."""
        slices, sliced_only = _slices(i)
        if not slices:
            return []
        if i.shape.is_tuple:
            raise Declined("it is variadic")
        if not sliced_only:
            raise Declined("it has other users than dynamic slices")
        groups = even_groups(i)
        if (len(groups) > 1) != self.several_groups:
            raise Declined(f"it has {len(groups)} group{'s' * (len(groups) > 1)}: the pass {self.other} takes those")
        for s in slices:
            _check(s, groups, values)
        for held in (i, *(m for s in slices for m in (*s.moves, s.instruction))):
            check_free(held)
        parts: dict[tuple[Instruction, int], list[_Slice]] = {}
        for s in slices:  # all take what is theirs, so that those along one dimension are the same
            parts.setdefault((s.source, s.narrowed[0]), []).append(s)
        if len(parts) > _MOST_PARTS:
            raise Declined(f"{len(parts)} reduce-scatters would carry more than it does")
        return [_scatter(i, same, dim, fresh) for (_, dim), same in parts.items()]


def _slices(i: Instruction) -> tuple[list[_Slice], bool]:
    """The dynamic slices that an all-reduce ends in, and whether it ends in nothing else."""
    found: list[_Slice] = []
    only = True
    work: list[tuple[Instruction, tuple[Instruction, ...]]] = [(i, ())]
    while work:
        node, moves = work.pop()
        only = only and not node.is_root
        for user in node.users:
            if user.opcode == "dynamic-slice" and user.operands[0] is node:
                found.append(_Slice(user, moves))
            elif _moves(user) or (node is i and user.opcode == "get-tuple-element"):
                work.append((user, (*moves, user)))
            else:
                only = False
    return found, only


def _moves(i: Instruction) -> bool:
    """Whether it puts every element of its operand elsewhere and computes nothing."""
    if i.opcode == "bitcast":  # as a reshape, which it is of arrays in the default layout
        before = i.operands[0].shape
        return before.dtype == i.shape.dtype and before.row_major and i.shape.row_major
    return i.opcode in _MOVES


def _check(s: _Slice, groups: Sequence[Sequence[int]], values: RankValues) -> None:
    """Declined where a rank takes anything but the part of the reduce-scatter that is its own.

    A slice that takes all of a dimension starts at 0 there whatever its offset says.
    """
    i, whole = s.instruction, s.source.shape.dims
    if any(shape.tiled or shape.dynamic for shape in (i.shape, s.source.shape)):
        raise Declined(f"%{i.name} has a layout or an extent that is a device's own")
    if len(s.narrowed) != 1:
        raise Declined(f"not 1D: %{i.name} takes a part of {len(s.narrowed)} dimensions")
    dim = s.narrowed[0]
    size, extent, width = i.shape.dims[dim], whole[dim], len(groups[0])
    if size * width != extent:
        raise Declined(f"slice size does not match: %{i.name} takes {size} of {extent}, in a group of {width}")
    if len(i.operands) != 1 + len(whole):
        raise Declined(f"%{i.name} has its starts in one array")
    offset = values.of(i.operands[1 + dim])
    if offset is None:
        raise Declined(f"the offset of %{i.name} depends on more than the rank")
    starts = clamped_start(offset, extent, size)
    own = np.zeros_like(starts)
    for group in groups:
        own[list(group)] = np.arange(width) * size
    wrong = np.flatnonzero(starts != own)
    if wrong.size:
        rank = wrong[0]
        raise Declined(f"the slice of rank {rank} starts at {starts[rank]}, and its part at {own[rank]} (%{i.name})")


def _scatter(i: Instruction, same: Sequence[_Slice], dim: int, fresh: Fresh) -> Instruction:
    """Put one reduce-scatter in the place of equal slices; its operand is moved as the all-reduce's result was."""
    x = i.operands[0]
    for move in same[0].moves:
        if move.opcode == "transpose":
            x = transpose(x, list(move.proto.dimensions), like=move)
        else:
            x = reshape(x, move.shape.dims, like=move)
    new = collective_like(i, [x], same[0].instruction.shape)
    new.set_opcode("reduce-scatter")
    proto = new.edit()
    proto.name = i.module.unique_name("reduce-scatter")
    proto.dimensions.append(dim)
    if proto.channel_id:  # one where there was none would make other ranks of its ids
        proto.channel_id = fresh.channel()
    for s in same:
        put(new, s.instruction)
    return new


@register
@dataclass(frozen=True)
class RewriteAllReduceDynamicSlice(_RewriteAllReduceDynamicSlice):
    """Makes a reduce-scatter of an all-reduce over one group of which every rank keeps its own part.

    Matches an all-reduce of one array whose users are `dynamic-slice`s only, directly or behind reshapes, transposes
    and copies. A slice must take the same part of one dimension on every rank: its position in the group, times the
    extent of the slice. That is proved, by evaluating the offset for every rank, so that it does not matter whether it
    comes from a table, a product, `replica-id` or `partition-id`.

    Makes `reduce-scatter` of the operand with the groups, body and flags of the all-reduce, in the shape of the slice;
    one for all equal slices. Its channel id is a new one, if the all-reduce had one.

    Declines where another part is taken, an offset depends on more than the rank, the all-reduce is used elsewhere or
    is variadic, slices are along more than two dimensions, and control dependencies or layouts of a device stand in
    the way. Several groups are the business of `aws_neuron_rewrite_all_reduce_dynamic_slice_multiple_groups`.
    """

    name: ClassVar[str] = _ONE_GROUP
    other: ClassVar[str] = _SEVERAL_GROUPS
    several_groups: ClassVar[bool] = False


@register
@dataclass(frozen=True)
class RewriteAllReduceDynamicSliceMultipleGroups(_RewriteAllReduceDynamicSlice):
    """Makes a reduce-scatter of an all-reduce over several groups of which every rank keeps its own part.

    Matches and makes what `aws_neuron_rewrite_all_reduce_dynamic_slice` does, where there are several groups of one
    width; a rank's part is the one at its position in its own group.

    Declines groups of several widths besides.
    """

    name: ClassVar[str] = _SEVERAL_GROUPS
    other: ClassVar[str] = _ONE_GROUP
    several_groups: ClassVar[bool] = True
