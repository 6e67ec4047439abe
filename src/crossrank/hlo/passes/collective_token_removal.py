"""`collective-token-removal`: collectives without the token behind their results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crossrank.collective.dtypes import TOKEN
from crossrank.collective.kinds import Kind
from crossrank.hlo.build import element, tuple_of
from crossrank.hlo.collectives import kind_of
from crossrank.hlo.module import Instruction
from crossrank.hlo.rewrite import Declined, Expander, Fresh, forward, hand_over_control, moved
from crossrank.hlo.shape import Shape
from crossrank.passes import register


@register
@dataclass(frozen=True)
class CollectiveTokenRemoval(Expander):
    """Takes the token from the end of a collective's results, and from the end of its operands.

    Matches collectives, native or converted, whose result is a tuple with a `token[]` as its last element. Makes the
    same collective without it; a single result that remains is an array. Whoever used the token takes the one that the
    collective was given, or a new `after-all()` where it was given none. Control dependencies stay, the order that the
    token alone gave does not.

    Send and recv, fused or not, keep their tokens: these are part of what they are. The scalar "token" that
    PyTorch/XLA chains through its collectives is ordinary data, and no candidate. Declines a collective that has
    nothing but a token.
    """

    name: ClassVar[str] = "collective-token-removal"
    opcodes: ClassVar[frozenset[str]] = frozenset({*(str(k) for k in Kind if not k.has_tokens), "custom-call"})

    def expand(self, i: Instruction, fresh: Fresh) -> str | None:
        """Take the token of one collective away."""
        kind = kind_of(i)
        if kind is None or kind.has_tokens or not i.shape.elements or i.shape.elements[-1].dtype is not TOKEN:
            return None
        payload = i.shape.elements[:-1]
        if not payload:
            raise Declined("it gives nothing but a token")
        operands = list(i.operands)
        given = operands.pop() if operands and operands[-1].shape.dtype is TOKEN else None
        new = moved(i, operands, payload[0] if len(payload) == 1 else Shape.tuple_of(payload))
        del new.proto.operand_shapes_with_layout[len(operands) :]
        hand_over_control(i, [new])
        parts = [new] if len(payload) == 1 else [element(new, k, like=i) for k in range(len(payload))]
        token = given or i.computation.add("after-all", i.shape.elements[-1], like=i)
        forward(i, tuple_of(i.computation, [*parts, token], like=i))
        return "gives no token any more"
