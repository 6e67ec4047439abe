"""`aws_neuron_flip_all_gathers_binary`: combine first, gather once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crossrank.hlo.collectives import comparable_groups, describe
from crossrank.hlo.module import Instruction
from crossrank.hlo.rewrite import Declined, Expander, Fresh, check_movable, moved, put
from crossrank.passes import register


@register
@dataclass(frozen=True)
class FlipAllGathersBinary(Expander):
    """Combines what each rank has before it is gathered: one gather in the place of two.

    Matches `op(all-gather(a), all-gather(b))` where op is add, and, divide, maximum, minimum, multiply, or, remainder
    or subtract, and makes `all-gather(op(a, b))`, with a fresh channel id where the all-gathers have one.

    Declines gathers that differ in dimension, groups (as ordered lists of ranks, however they are written), group mode
    or `constrain_layout`, or have other users or control dependencies.
    """

    name: ClassVar[str] = "aws_neuron_flip_all_gathers_binary"
    opcodes: ClassVar[frozenset[str]] = frozenset(
        {"add", "and", "divide", "maximum", "minimum", "multiply", "or", "remainder", "subtract"}
    )

    def expand(self, i: Instruction, fresh: Fresh) -> str | None:
        """Flip one binary operation."""
        one, two = i.operands
        if one.opcode != "all-gather" or two.opcode != "all-gather":
            return None
        check_movable(one)
        check_movable(two)
        if difference := _difference(one, two):
            raise Declined(f"%{one.name} and %{two.name} {difference}")
        a, b = one.operands[0], two.operands[0]
        new = moved(one, [moved(i, [a, b], a.shape)], i.shape)
        if one.proto.channel_id:
            new.edit().channel_id = fresh.channel()
        put(new, i)
        return (
            f"one all-gather in the place of %{one.name} and %{two.name}" if one is not two else "gathered afterwards"
        )


def _difference(one: Instruction, two: Instruction) -> str:
    """In what two all-gathers differ besides their operands; the empty string where in nothing."""
    a, b = describe(one), describe(two)
    assert a is not None
    assert b is not None
    if a.dim != b.dim:
        return "gather on different dimensions"
    if a.mode is not b.mode:
        return "have different group modes"
    if a.constrain_layout != b.constrain_layout:
        return "differ in constrain_layout"
    try:
        config = one.module.config
        same = a.groups == b.groups or comparable_groups(a, config) == comparable_groups(b, config)
    except ValueError:
        same = False
    return "" if same else "have different groups"
