"""`opt-barrier-removal`: what an optimization barrier holds goes straight to those who use it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crossrank.hlo.module import Instruction
from crossrank.hlo.rewrite import Expander, Fresh, check_free, forward
from crossrank.passes import register


@register
@dataclass(frozen=True)
class OptBarrierRemoval(Expander):
    """Takes optimization barriers away, so that later passes see through them.

    Matches every optimization barrier (`opt-barrier`). `get-tuple-element(opt-barrier(tuple(…)), i)` becomes operand i
    of the tuple; any other use of a barrier takes its operand.

    Declines a barrier with control dependencies.
    """

    name: ClassVar[str] = "opt-barrier-removal"
    opcodes: ClassVar[frozenset[str]] = frozenset({"opt-barrier"})

    def expand(self, i: Instruction, fresh: Fresh) -> str | None:
        """Take one barrier away."""
        check_free(i)
        held = i.operands[0]
        forward(i, held)
        return f"its users take what %{held.name} holds"
