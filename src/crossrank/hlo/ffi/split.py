"""A variadic collective as one for each operand, for what StableHLO has no word for."""

from __future__ import annotations

from crossrank.hlo.build import tuple_of
from crossrank.hlo.module import Instruction


def split_variadic(i: Instruction) -> list[Instruction]:
    """Replace a tuple-shaped collective by one for each operand; returns these."""
    c = i.computation
    parts = []
    for operand, shape in zip(i.operands, i.shape.elements, strict=True):
        part = c.clone_in(i, [operand])
        part.set_shape(shape)
        parts.append(part)
    tuple_of(c, parts).take_place_of(i)
    return parts
