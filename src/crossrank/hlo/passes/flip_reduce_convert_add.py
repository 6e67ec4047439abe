"""`aws_neuron_flip_reduce_convert_add`: convert first, reduce in the wider type, then accumulate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crossrank.collective.dtypes import DType
from crossrank.hlo.collectives import CollectiveInfo, describe
from crossrank.hlo.module import Instruction
from crossrank.hlo.rewrite import Declined, Expander, Fresh, check_free, check_movable, moved, put
from crossrank.passes import register

_REDUCTIONS = ("all-reduce", "reduce-scatter")


@register
@dataclass(frozen=True)
class FlipReduceConvertAdd(Expander):
    """Reduces gradients in the wide type of the accumulator to which they are added.

    Matches `add(convert(r), g)` in either order, where r is an all-reduce or a reduce-scatter of x and g a
    get-tuple-element of a parameter, and makes `add(r'(convert(x)), g)`. The body of r' is the same operation on the
    wide type; it has a fresh channel id where r had one.

    Sums and products are then rounded in the wide type only, so that the values agree within the tolerance of the
    narrow one; maxima, minima and bit operations give the same bits.

    Declines a convert that cannot hold every value (f32 to bf16, f16 to bf16) or that turns integers into floats; sums
    and products of integers, which would wrap elsewhere; a reduction body that does more than combine its two
    parameters; and reductions and converts with other users or control dependencies.
    """

    name: ClassVar[str] = "aws_neuron_flip_reduce_convert_add"
    reassociates: ClassVar[bool] = True
    opcodes: ClassVar[frozenset[str]] = frozenset({"add"})

    def expand(self, i: Instruction, fresh: Fresh) -> str | None:
        """Flip the convert below one add."""
        pair = next((p for p in (i.operands, i.operands[::-1]) if _is_reduced(p[0])), None)
        if pair is None:
            return None
        convert, accumulated = pair
        reduction = convert.operands[0]
        if accumulated.opcode != "get-tuple-element" or accumulated.operands[0].opcode != "parameter":
            raise Declined("its other operand is no element of a parameter")
        check_movable(reduction)
        check_free(convert)
        if convert.is_root or len(convert.users) > 1:
            raise Declined(f"%{convert.name} has other users")
        info = describe(reduction)
        assert info is not None
        wide = convert.shape.dtype
        if reason := why_not_wider(info, reduction.shape.dtype, wide):
            raise Declined(reason)
        assert info.reduction is not None
        x = reduction.operands[0]
        new = moved(reduction, [moved(convert, [x], x.shape.with_dtype(wide))], convert.shape)
        new.set_called([fresh.bodies.get(info.reduction, wide)])
        if info.channel_id is not None:
            new.edit().channel_id = fresh.channel()
        put(new, convert)
        return f"%{reduction.name} reduces in {wide} now, not in {info.dtype}"


def _is_reduced(i: Instruction) -> bool:
    return i.opcode == "convert" and i.operands[0].opcode in _REDUCTIONS


def why_not_wider(info: CollectiveInfo, narrow: DType, wide: DType) -> str:
    """Why a reduction must not change places with the convert of its result; the empty string where it may.

    It may where the wide type has all values of the narrow one and the reduction means the same in both, up to
    roundings that the wide type does not need.
    """
    if not info.trivial_body or info.reduce_op is None:
        return "reduction body is not a binary op over its two parameters"
    if not wide.holds(narrow):
        return f"{wide} does not have every value of {narrow}"
    if wide is narrow:
        return ""
    if narrow.is_float != wide.is_float or narrow.is_integer != wide.is_integer:
        return f"{info.reduce_op} means something else in {narrow} than in {wide}"
    if narrow.is_integer and info.reduction in ("add", "multiply"):
        return f"{info.reduce_op} wraps elsewhere in {narrow} than in {wide}"
    return ""
