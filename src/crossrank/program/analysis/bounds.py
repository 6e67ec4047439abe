"""Between which numbers an integer is, by how it is computed, and by the loops and branches around."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import product

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerAttr, IntegerType
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from crossrank.program.analysis.lineage import yielded
from crossrank.program.dialect.tensors import DimOp, shaped
from crossrank.program.dialect.windows import (
    BlockIndexOp,
    LaunchWidthOp,
    NumBlocksOp,
    NumRanksOp,
    RankOp,
    SymbolOp,
    WorldSizeOp,
)

Number = int | float
Interval = tuple[Number, Number]
"""Both ends are within; an infinite one is not known."""

ANYTHING: Interval = (-math.inf, math.inf)
MOST_ASSUMED = 4
"""Loops within one another whose carried values are followed."""
MOST_STEPS = 100
"""Values, each computed from the next one, that are followed."""

_EQ, _NE, _LT, _LE, _GT, _GE = range(6)  # the predicates of arith.cmpi that have a sign
_INVERSE = (_NE, _EQ, _GE, _GT, _LE, _LT)
_SWAPPED = (_EQ, _NE, _GT, _GE, _LT, _LE)

Fact = tuple[SSAValue, int, SSAValue]
"""A comparison that holds."""


class Bounds:
    """The bounds of values. Extents and counts in ``index`` and ``i64`` are taken not to overflow.

    Args:
        assumed: what is taken to be so of some values.
        steps: how many values were followed to here.
    """

    def __init__(self, assumed: Mapping[SSAValue, Interval] | None = None, steps: int = 0) -> None:
        self._assumed = dict(assumed or {})
        self._steps = steps
        self._known: dict[tuple[SSAValue, Block | None], Interval] = {}
        self._facts: dict[Block | None, list[Fact]] = {}

    def of(self, value: SSAValue, at: Operation) -> Interval:
        """Between what a value is whenever ``at`` runs."""
        if value in self._assumed:
            return self._assumed[value]
        key = (value, at.parent)
        if key not in self._known and self._steps < MOST_STEPS:
            self._known[key] = ANYTHING  # what is asked again while it is being found out
            self._steps += 1
            if at.parent not in self._facts:
                self._facts[at.parent] = list(_facts(at))
            found = _within(self._computed(value, at), value)
            for left, predicate, right in self._facts[at.parent]:
                if left is value:
                    found = _narrowed(found, predicate, self.of(right, at))
                elif right is value:
                    found = _narrowed(found, _SWAPPED[predicate], self.of(left, at))
            self._known[key] = found
            self._steps -= 1
        return self._known.get(key, ANYTHING)

    def _computed(self, value: SSAValue, at: Operation) -> Interval:
        if isinstance(value, BlockArgument):
            loop = value.block.parent_op()
            return self._carried(loop, value) if isinstance(loop, scf.ForOp) and value.index > 0 else ANYTHING
        assert isinstance(value, OpResult)
        op = value.op
        match op:
            case arith.ConstantOp() if isinstance(op.value, IntegerAttr):
                return (op.value.value.data, op.value.value.data)
            case arith.IndexCastOp() | arith.ExtSIOp() | arith.TruncIOp():
                return self.of(op.input, at)
            case arith.ExtUIOp():
                assert isinstance(op.input.type, IntegerType)
                return (0, (1 << op.input.type.width.data) - 1)
            case arith.SelectOp():
                return either(self.of(op.lhs, at), self.of(op.rhs, at))
            case scf.IfOp():
                ends = [r.block.last_op for r in op.regions if r.blocks]
                return either(*(self.of(end.operands[value.index], end) for end in ends if end is not None))
            case scf.ForOp():
                end = op.body.block.last_op
                assert end is not None
                return either(self.of(op.iter_args[value.index], op), self.of(end.operands[value.index], end))
            case WorldSizeOp() | NumRanksOp() | NumBlocksOp() | LaunchWidthOp():
                return (1, math.inf)
            case RankOp() | BlockIndexOp() | SymbolOp():
                return (0, math.inf)
            case DimOp():
                extent = shaped(op.source).shape[op.axis.value.data]
                return (extent, extent) if isinstance(extent, int) else (0, math.inf)
            case arith.SubiOp() if (by := _modulus(op)) is not None:
                low, high = self.of(by, at)
                return (0, high - 1) if low >= 1 else ANYTHING
        if len(op.operands) == 2 and type(op) in ARITHMETIC:
            return ARITHMETIC[type(op)](self.of(op.operands[0], at), self.of(op.operands[1], at))
        return ANYTHING

    def _carried(self, loop: scf.ForOp, value: BlockArgument) -> Interval:
        """By induction: an end of what the loop begins with stays one, where each turn leaves it so."""
        if len(self._assumed) >= MOST_ASSUMED:
            return ANYTHING
        low, high = self.of(loop.iter_args[value.index - 1], loop)
        end, next_value = loop.body.block.last_op, yielded(loop.body.block)[value.index - 1]
        assert end is not None
        rising: Interval = (low, math.inf)
        falling: Interval = (-math.inf, high)
        rises = Bounds({**self._assumed, value: rising}, self._steps).of(next_value, end)[0] >= low
        falls = Bounds({**self._assumed, value: falling}, self._steps).of(next_value, end)[1] <= high
        return (low if rises else -math.inf, high if falls else math.inf)


def _facts(at: Operation) -> Iterator[Fact]:
    """What the loops and branches around an op say: it is run only where that holds."""
    inner: Operation = at
    while (around := inner.parent_op()) is not None:
        if isinstance(around, scf.IfOp):
            yield from _said(around.cond, inner.parent_region() is around.true_region)
        elif isinstance(around, scf.ForOp):
            turn = around.body.block.args[0]
            yield from ((turn, _GE, around.lb), (turn, _LT, around.ub), (around.ub, _GT, around.lb))
        inner = around


def _said(condition: SSAValue, holds: bool) -> Iterator[Fact]:
    """The comparisons that follow from a condition that holds, or does not."""
    op = condition.owner
    if isinstance(op, arith.CmpiOp):
        predicate = op.predicate.value.data
        if predicate <= _GE:
            yield (op.lhs, predicate if holds else _INVERSE[predicate], op.rhs)
    elif isinstance(op, arith.AndIOp if holds else arith.OrIOp):
        yield from _said(op.lhs, holds)
        yield from _said(op.rhs, holds)
    elif isinstance(op, arith.XOrIOp) and isinstance(op.rhs.owner, arith.ConstantOp):  # not
        yield from _said(op.lhs, not holds)


def _narrowed(interval: Interval, predicate: int, other: Interval) -> Interval:
    """What is left of an interval where its value compares so with one in another."""
    (low, high), (least, most) = interval, other
    if predicate in (_GT, _GE, _EQ):
        low = max(low, least + (predicate == _GT))
    if predicate in (_LT, _LE, _EQ):
        high = min(high, most - (predicate == _LT))
    if predicate == _NE and least == most:
        low, high = low + (low == least), high - (high == least)
    return (low, high)


def _within(interval: Interval, value: SSAValue) -> Interval:
    """An interval, or that of the value's type where the value may have wrapped around."""
    type = value.type
    if not isinstance(type, IntegerType) or type.width.data >= 64:
        return interval
    reach = 1 << (type.width.data - 1)
    low, high = interval
    return interval if -reach <= low and high < max(reach, 2) else (-reach, max(reach - 1, 1))


def either(*intervals: Interval) -> Interval:
    """Between what one of several is."""
    return (min(low for low, _ in intervals), max(high for _, high in intervals))


def _modulus(op: arith.SubiOp) -> SSAValue | None:
    """``b`` where an op is ``a - a // b * b``, which is how ``a % b`` is written; else None."""
    back = op.rhs.owner
    if isinstance(back, arith.MuliOp):
        for quotient, by in ((back.lhs, back.rhs), (back.rhs, back.lhs)):
            divided = quotient.owner
            if isinstance(divided, arith.FloorDivSIOp) and divided.lhs is op.lhs and divided.rhs is by:
                return by
    return None


def _corners(of: Callable[[Number, Number], Number]) -> Callable[[Interval, Interval], Interval]:
    """A function of two intervals that is largest and smallest where both are at an end."""

    def result(left: Interval, right: Interval) -> Interval:
        ends = [of(a, b) for a, b in product(left, right)]
        return (min(ends), max(ends))

    return result


def _times(a: Number, b: Number) -> Number:
    return 0 if 0 in (a, b) else a * b


def _over(a: Number, b: Number) -> Number:
    if math.isinf(a):
        return a
    return (0 if a >= 0 else -1) if math.isinf(b) else a // b


def _floored(left: Interval, right: Interval) -> Interval:
    return _corners(_over)(left, right) if right[0] >= 1 else ANYTHING


def _truncated(left: Interval, right: Interval) -> Interval:
    return _floored(left, right) if left[0] >= 0 else ANYTHING


def _ceiled(left: Interval, right: Interval) -> Interval:
    low, high = _floored((-left[1], -left[0]), right)
    return (-high, -low)


def _remainder(left: Interval, right: Interval) -> Interval:
    return (0, min(left[1], right[1] - 1)) if left[0] >= 0 and right[0] >= 1 else ANYTHING


ARITHMETIC: dict[type[Operation], Callable[[Interval, Interval], Interval]] = {
    arith.AddiOp: lambda left, right: (left[0] + right[0], left[1] + right[1]),
    arith.SubiOp: lambda left, right: (left[0] - right[1], left[1] - right[0]),
    arith.MuliOp: _corners(_times),
    arith.FloorDivSIOp: _floored,
    arith.CeilDivSIOp: _ceiled,
    arith.DivSIOp: _truncated,
    arith.RemSIOp: _remainder,
    arith.MinSIOp: lambda left, right: (min(left[0], right[0]), min(left[1], right[1])),
    arith.MaxSIOp: lambda left, right: (max(left[0], right[0]), max(left[1], right[1])),
}
"""Of the bounds of two numbers those of what an op makes of them."""
