"""`aws_neuron_delete_permute`: all-reduces and permutes of ranks that are alone go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crossrank.hlo.collectives import describe
from crossrank.hlo.module import Instruction
from crossrank.hlo.passes.trivial_cc_removal import take_operands, why_needed
from crossrank.hlo.rewrite import Declined, Expander, Fresh
from crossrank.passes import register


@register
@dataclass(frozen=True)
class DeletePermute(Expander):
    """Replaces all-reduces and collective-permutes by their operands, where every rank is alone in them.

    Matches every native `all-reduce` and `collective-permute`. Whoever used it takes its operand; elements of a
    variadic one take the operand of the same position.

    Declines each that talks to other ranks, that leaves ranks out, or that has control dependencies.
    """

    name: ClassVar[str] = "aws_neuron_delete_permute"
    opcodes: ClassVar[frozenset[str]] = frozenset({"all-reduce", "collective-permute"})

    def expand(self, i: Instruction, fresh: Fresh) -> str | None:
        """Replace one collective."""
        info = describe(i)
        assert info is not None
        if reason := why_needed(info, i.module.config):
            raise Declined(reason)
        return take_operands(i)
