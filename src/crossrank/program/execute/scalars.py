"""Arithmetic on scalars in orchestrators: integers wrap as their types do, floats are rounded after each op."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerType
from xdsl.ir import Attribute, Operation

from crossrank.program.execute.failures import ask
from crossrank.program.types import element_of, is_float

INDEX_BITS = 64
EXACT = 1 << 53
"""All integers up to it are floats of 64 bits; of greater ones the last bits become one before they are rounded."""
Number = int | float


def _bits(type: Attribute) -> int:
    return type.width.data if isinstance(type, IntegerType) else INDEX_BITS


def plain(value: Number, type: Attribute) -> Number:
    """A value as one that the type has: an integer between the least and the greatest of its width, a float rounded."""
    if is_float(type):
        return _round(type)(value)
    return _wrap(_bits(type))(int(value))


def _wrap(bits: int) -> Callable[[int], int]:
    if bits == 1:
        return lambda x: x & 1
    half, mask = 1 << (bits - 1), (1 << bits) - 1
    return lambda x: ((x + half) & mask) - half


def _round(type: Attribute) -> Callable[[Number], float]:
    element = element_of(type)
    if element.name == "f64":
        return float
    assert element.numpy is not None
    to, by_f32 = element.numpy.type, element.name == "bf16"

    def rounded(x: Number) -> float:
        if isinstance(x, int) and abs(x) > EXACT and (low := x & 0x7FF):
            x = x - low | 0x800
        with np.errstate(over="ignore"):  # what is too large becomes an infinity
            return float(to(_odd(float(x)) if by_f32 else float(x)))

    return rounded


def _odd(x: float) -> np.float32:
    """An f32 that rounds to 16 bits as the f64 does: where it is another number, the odd one next to it."""
    near = np.float32(x)
    if float(near) == x or math.isnan(x):
        return near
    inward = int(near.view(np.uint32)) - (abs(float(near)) > abs(x))
    return np.uint32(inward | 1).view(np.float32)


def _unsigned(x: int, bits: int) -> int:
    return x & ((1 << bits) - 1)


def _divisor(b: int) -> int:
    ask(b, "division by zero")
    return b


def _integers(do: Callable[[int, int], int], unsigned: bool = False) -> Callable[[Operation], Callable[..., int]]:
    def meaning(op: Operation) -> Callable[..., int]:
        bits = _bits(op.results[0].type)
        wrap = _wrap(bits)
        if unsigned:
            return lambda _, a, b: wrap(do(_unsigned(a, bits), _unsigned(b, bits)))
        return lambda _, a, b: wrap(do(a, b))

    return meaning


def _floats(do: Callable[..., float]) -> Callable[[Operation], Callable[..., float]]:
    def meaning(op: Operation) -> Callable[..., float]:
        rounded = _round(op.results[0].type)
        return lambda _, *values: rounded(do(*values))

    return meaning


def _toward_zero(a: int, b: int) -> int:
    quotient = abs(a) // abs(_divisor(b))
    return quotient if (a < 0) == (b < 0) else -quotient


def _divide(a: float, b: float) -> float:
    if b:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1.0, b)


def _least(a: float, b: float) -> float:
    return math.nan if math.isnan(a) or math.isnan(b) else min(a, b)


def _greatest(a: float, b: float) -> float:
    return math.nan if math.isnan(a) or math.isnan(b) else max(a, b)


_COMPARISONS = (
    operator.eq,
    operator.ne,
    *(operator.lt, operator.le, operator.gt, operator.ge),
    *(operator.lt, operator.le, operator.gt, operator.ge),
)
"""By the number of arith's predicate; the last four take their operands as unsigned."""
_UNSIGNED_FROM = 6


def _compare_integers(op: arith.CmpiOp) -> Callable[..., int]:
    number, bits = op.predicate.value.data, _bits(op.lhs.type)
    do = _COMPARISONS[number]
    if number >= _UNSIGNED_FROM:
        return lambda _, a, b: int(do(_unsigned(a, bits), _unsigned(b, bits)))
    return lambda _, a, b: int(do(a, b))


_ORDERED: tuple[Callable[[Any, Any], bool], ...] = (
    *(operator.eq, operator.gt, operator.ge, operator.lt, operator.le, operator.ne),
)


def _never(a: float, b: float) -> bool:
    return False


def _always(a: float, b: float) -> bool:
    return True


_FLOAT_COMPARISONS = (_never, *_ORDERED, _always, *_ORDERED, _never, _always)
"""By the number of arith's predicate, for numbers; where one is NaN the first half is false, the second true."""
_TRUE_OF_NAN_FROM = 8


def _compare_floats(op: arith.CmpfOp) -> Callable[..., int]:
    number = op.predicate.value.data
    do, of_nan = _FLOAT_COMPARISONS[number], int(number >= _TRUE_OF_NAN_FROM)
    return lambda _, a, b: of_nan if math.isnan(a) or math.isnan(b) else int(do(a, b))


def _to_integer(unsigned: bool) -> Callable[[Operation], Callable[..., int]]:
    """Toward zero; what is too large becomes the nearest that there is, NaN 0."""

    def meaning(op: Operation) -> Callable[..., int]:
        bits = _bits(op.results[0].type)
        low, high = (0, (1 << bits) - 1) if unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)
        wrap = _wrap(bits)

        def convert(_: object, x: float) -> int:
            if math.isnan(x):
                return 0
            return wrap(int(min(max(x, low), high)))

        return convert

    return meaning


def _convert(op: Operation) -> Callable[..., Number]:
    to = op.results[0].type
    return lambda _, x: plain(x, to)


def _from_unsigned(op: Operation) -> Callable[..., Number]:
    bits, to = _bits(op.operands[0].type), op.results[0].type
    return lambda _, x: plain(_unsigned(x, bits), to)


def _shift(do: Callable[[int, int], int]) -> Callable[[int, int], int]:
    """By more bits than there are, all are gone."""
    return lambda a, b: do(a, b if 0 <= b < INDEX_BITS else INDEX_BITS)


ARITHMETIC: dict[type[Operation], Callable[[Any], Callable[..., Any]]] = {
    arith.AddiOp: _integers(operator.add),
    arith.SubiOp: _integers(operator.sub),
    arith.MuliOp: _integers(operator.mul),
    arith.DivSIOp: _integers(_toward_zero),
    arith.FloorDivSIOp: _integers(lambda a, b: a // _divisor(b)),
    arith.CeilDivSIOp: _integers(lambda a, b: -(-a // _divisor(b))),
    arith.RemSIOp: _integers(lambda a, b: a - b * _toward_zero(a, b)),
    arith.DivUIOp: _integers(lambda a, b: a // _divisor(b), unsigned=True),
    arith.RemUIOp: _integers(lambda a, b: a % _divisor(b), unsigned=True),
    arith.MinSIOp: _integers(min),
    arith.MaxSIOp: _integers(max),
    arith.MinUIOp: _integers(min, unsigned=True),
    arith.MaxUIOp: _integers(max, unsigned=True),
    arith.AndIOp: _integers(operator.and_),
    arith.OrIOp: _integers(operator.or_),
    arith.XOrIOp: _integers(operator.xor),
    arith.ShLIOp: _integers(_shift(operator.lshift)),
    arith.ShRSIOp: _integers(_shift(operator.rshift)),
    arith.ShRUIOp: _integers(_shift(operator.rshift), unsigned=True),
    arith.AddfOp: _floats(operator.add),
    arith.SubfOp: _floats(operator.sub),
    arith.MulfOp: _floats(operator.mul),
    arith.DivfOp: _floats(_divide),
    arith.NegfOp: _floats(operator.neg),
    arith.MinimumfOp: _floats(_least),
    arith.MaximumfOp: _floats(_greatest),
    arith.CmpiOp: _compare_integers,
    arith.CmpfOp: _compare_floats,
    arith.SelectOp: lambda op: lambda _, condition, yes, no: yes if condition else no,
    arith.IndexCastOp: _convert,
    arith.TruncIOp: _convert,
    arith.ExtSIOp: _convert,
    arith.ExtUIOp: _from_unsigned,
    arith.SIToFPOp: _convert,
    arith.UIToFPOp: _from_unsigned,
    arith.FPToSIOp: _to_integer(unsigned=False),
    arith.FPToUIOp: _to_integer(unsigned=True),
    arith.ExtFOp: _convert,
    arith.TruncFOp: _convert,
}
"""What each op of arith means."""
