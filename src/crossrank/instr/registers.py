"""Arithmetic on registers: 32 bits, signed, wrapping; division and remainder round down, as Python's do."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

OPS: Mapping[str, Callable[[int, int], int]] = {
    "move": lambda a, _b: a,
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.floordiv,
    "mod": operator.mod,
    "min": min,
    "max": max,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shift_left": lambda a, b: a << (b & 31),
    "shift_right": lambda a, b: a >> (b & 31),
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def wrapped(value: int) -> int:
    """The signed number that the low 32 bits say."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def evaluate(op: str, left: int, right: int) -> int:
    """One operation.

    Raises:
        ValueError: a division by zero.
    """
    if op in ("divide", "mod") and right == 0:
        raise ValueError(f"{op} by zero in a register")
    return wrapped(int(OPS[op](left, right)))
