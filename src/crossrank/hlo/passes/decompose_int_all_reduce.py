"""`aws_neuron_decompose_int_all_reduce`: an integer all-reduce as an all-gather and local arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from crossrank.hlo.build import binary, broadcast, collective_like, reshape, slice_along
from crossrank.hlo.collectives import describe
from crossrank.hlo.module import Instruction
from crossrank.hlo.rewrite import Declined, Expander, Fresh, even_groups
from crossrank.passes import option, register

_LANES = 2


@register
@dataclass(frozen=True)
class DecomposeIntAllReduce(Expander):
    """Gathers the values of an integer all-reduce and combines them on every rank.

    Matches an all-reduce of one integer array with a single element (all dims 1), or of any shape with `any_shape`;
    the reduction is add, multiply, maximum, minimum, and, or, xor.

    Makes an all-gather along a new leading dimension with the groups, channel id and flags of the all-reduce, a slice
    for each rank of the group, and a chain of the reduction's operation over the slices. Integers wrap, so that the
    result is the same bit for bit. With `pad_to_two` a single element travels as two equal lanes.

    Declines variadic all-reduces, other reductions, groups of several widths, and layouts of a device.
    """

    name: ClassVar[str] = "aws_neuron_decompose_int_all_reduce"
    opcodes: ClassVar[frozenset[str]] = frozenset({"all-reduce"})

    any_shape: bool = option(False, "arrays of any shape, not only single elements")
    pad_to_two: bool = option(False, "gather a single element as two equal lanes")

    def expand(self, i: Instruction, fresh: Fresh) -> str | None:
        """Rewrite one all-reduce."""
        leaves = list(i.shape.leaves())
        if not all(leaf.dtype.is_integer and (self.any_shape or leaf.count == 1) for leaf in leaves):
            return None
        info = describe(i)
        assert info is not None
        if i.shape.is_tuple:
            raise Declined("it is variadic")
        if i.shape.tiled or i.shape.dynamic:
            raise Declined("it has a layout or an extent that is a device's own")
        if info.reduce_op is None:
            raise Declined("its reduction is none of add, multiply, maximum, minimum, and, or, xor")
        width = len(even_groups(i)[0])
        gather, total = self._gather_and_reduce(i, width, str(info.reduce_op))
        # what the all-reduce waited for comes before the gather, what waited for it after the result
        gather.set_control_predecessors(i.control_predecessors)
        i.set_control_predecessors(())
        total.take_place_of(i)
        return f"→ %{gather.name} of {width} values and {width - 1} local operations"

    def _gather_and_reduce(self, i: Instruction, width: int, opcode: str) -> tuple[Instruction, Instruction]:
        x = i.operands[0]
        padded = self.pad_to_two and i.shape.count == 1
        if padded:
            part: Sequence[int] = (_LANES,)
            x = broadcast(reshape(x, (), like=i), part, like=i)
        else:
            part = (1, *i.shape.dims)
            x = reshape(x, part, like=i)
        gather = collective_like(i, [x], x.shape.with_dims((width * part[0], *part[1:])))
        gather.set_opcode("all-gather")
        gather.set_called(())
        proto = gather.edit()
        proto.name = i.module.unique_name("all-gather")
        proto.dimensions.append(0)
        proto.ClearField("sharding")  # it speaks of the extents of the all-reduce
        total = slice_along(gather, 0, 0, part[0], like=i)
        for rank in range(1, width):
            other = slice_along(gather, 0, rank * part[0], (rank + 1) * part[0], like=i)
            total = binary(opcode, total, other, like=i)
        if padded:  # both lanes hold the result; the gathered ones hold what each rank gave
            total = slice_along(total, 0, 0, 1, like=i)
        result = i.computation.add("reshape", i.shape, [total], like=i)
        if i.proto.HasField("sharding"):
            result.edit().sharding.CopyFrom(i.proto.sharding)
        return gather, result
