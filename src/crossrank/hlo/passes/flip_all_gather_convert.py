"""`aws_neuron_flip_all_gather_convert`: convert first, gather then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crossrank.hlo.module import Instruction
from crossrank.hlo.rewrite import Declined, Expander, Fresh, check_movable, moved, put
from crossrank.passes import option, register


@register
@dataclass(frozen=True)
class FlipAllGatherConvert(Expander):
    """Converts what each rank has before it is gathered, so that the gather moves the narrower type.

    Matches `convert(all-gather(x))` and makes `all-gather(convert(x))` with the channel id of the all-gather. A gather
    only moves elements, so that the values are the same bits, whatever the two types are.

    Declines a gather with other users or control dependencies and, unless `widen` is set, a convert to a type with
    more bytes: the gather would move more.
    """

    name: ClassVar[str] = "aws_neuron_flip_all_gather_convert"
    opcodes: ClassVar[frozenset[str]] = frozenset({"convert"})

    widen: bool = option(False, "also where the gather then moves more bytes")

    def expand(self, i: Instruction, fresh: Fresh) -> str | None:
        """Flip one convert."""
        gather = i.operands[0]
        if gather.opcode != "all-gather":
            return None
        check_movable(gather)
        before, after = gather.shape.dtype, i.shape.dtype
        if after.itemsize > before.itemsize and not self.widen:
            raise Declined(f"{after} is wider than {before}, so that %{gather.name} would move more bytes")
        x = gather.operands[0]
        local = moved(i, [x], x.shape.with_dtype(after))
        put(moved(gather, [local], i.shape), i)
        return f"converted before %{gather.name}, which moves {after} now"
