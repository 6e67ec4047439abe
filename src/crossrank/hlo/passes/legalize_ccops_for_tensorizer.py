"""`legalize-ccops-for-tensorizer`: a variadic collective of several types works in the widest of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crossrank.collective.dtypes import DType
from crossrank.collective.kinds import ReduceOp
from crossrank.hlo.build import convert, element, tuple_of
from crossrank.hlo.collectives import CollectiveInfo, describe
from crossrank.hlo.module import Instruction, Module
from crossrank.hlo.rewrite import Declined, Expander, Fresh, hand_over_control, moved
from crossrank.hlo.shape import Shape
from crossrank.passes import option, register
from crossrank.remarks import Remarks


@register
@dataclass(frozen=True)
class LegalizeCcopsForTensorizer(Expander):
    """Gives variadic collectives of several element types a single one, the widest of them.

    Matches all-gather, all-reduce and reduce-scatter whose results are a tuple of several element types, in every
    computation. Converts the operands to the widest type, makes the collective anew, and converts its elements back
    into a tuple of the old types. A remark tells once how many bytes more that moves.

    Gathers, maxima, minima and bit operations give the same bits, and so do sums and products of integers in wider
    integers, which wrap when they are converted back. Sums and products of floats are rounded once, from the wide
    type: within the tolerance of the narrow one.

    Declines types of which none has every value of the others (s32 beside f32, bf16 beside f16), sums and products of
    integers or predicates in another kind of type, and bodies that do more than combine their two parameters. With
    `allow_inexact` the widest type is taken although it does not have every value, a float rather than an integer.
    """

    name: ClassVar[str] = "legalize-ccops-for-tensorizer"
    reassociates: ClassVar[bool] = True
    opcodes: ClassVar[frozenset[str]] = frozenset({"all-gather", "all-reduce", "reduce-scatter"})

    allow_inexact: bool = option(False, "also where no type has every value of the others, which changes values")

    def run(self, module: Module, remarks: Remarks) -> bool:
        """Legalize; returns whether anything was rewritten."""
        before = self._bytes(module)
        changed = super().run(module, remarks)
        if changed:
            more = self._bytes(module) - before
            remarks.done(module.name, f"warning: collectives that were widened give {more} bytes more on each rank")
        return changed

    def _bytes(self, module: Module) -> int:
        return sum(i.shape.nbytes for i in module.instructions() if i.opcode in self.opcodes)

    def expand(self, i: Instruction, fresh: Fresh) -> str | None:
        """Legalize one collective."""
        types = list(dict.fromkeys(e.dtype for e in i.shape.elements))
        if len(types) < 2:
            return None
        info = describe(i)
        assert info is not None
        wide = self._widest(types)
        for narrow in types:
            if reason := self._why_not(info, narrow, wide):
                raise Declined(reason)
        shapes = [e.with_dtype(wide) for e in i.shape.elements]
        new = moved(i, [convert(o, wide, like=i) for o in i.operands], Shape.tuple_of(shapes))
        if info.reduction is not None:
            new.set_called([fresh.bodies.get(info.reduction, wide)])
        hand_over_control(i, [new])
        parts = [convert(element(new, k, like=i), e.dtype, like=i) for k, e in enumerate(i.shape.elements)]
        tuple_of(i.computation, parts, like=i).take_place_of(i)
        return f"works in {wide} now, not in {', '.join(map(str, types))}"

    def _widest(self, types: list[DType]) -> DType:
        for wide in types:
            if all(wide.holds(narrow) for narrow in types):
                return wide
        if self.allow_inexact:
            return max(types, key=lambda t: (t.bits, t.is_float))
        raise Declined(f"none of {', '.join(map(str, types))} has every value of the others")

    def _why_not(self, info: CollectiveInfo, narrow: DType, wide: DType) -> str:
        if narrow.is_complex != wide.is_complex:
            return f"nothing converts {wide} back to {narrow}"
        if not info.kind.reduces or narrow is wide:
            return ""
        if info.reduce_op is None:
            return "reduction body is not a binary op over its two parameters"
        if not info.reduce_op.valid_for(wide):
            return f"{info.reduce_op} cannot reduce {wide}"
        alike = (narrow.is_float, narrow.is_integer) == (wide.is_float, wide.is_integer)
        if info.reduce_op in (ReduceOp.ADD, ReduceOp.MULTIPLY) and not alike and not self.allow_inexact:
            return f"{info.reduce_op} of {narrow} means something else in {wide}"
        return ""
