"""What is known of the values of a function before it runs: a number lies between two, a tensor has at most extents."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Operation, OpResult, SSAValue

from crossrank.program.analysis.bounds import ANYTHING, ARITHMETIC, Interval, either
from crossrank.program.analysis.lineage import handed_on
from crossrank.program.builtins import blocks as folded
from crossrank.program.cost.work import Number
from crossrank.program.dialect import remote, tiles
from crossrank.program.dialect.tensors import CreateTensorOp, DimOp, ReshapeOp, SliceOp, TransposeOp
from crossrank.program.dialect.windows import (
    AllocWindowOp,
    BlockIndexOp,
    GetCommCtxOp,
    LaunchWidthOp,
    NumBlocksOp,
    NumRanksOp,
    RankOp,
    SymbolOp,
    WindowOp,
    WorldSizeOp,
)
from crossrank.program.execute.binding import evaluate
from crossrank.program.program import Function
from crossrank.program.types import DistTensorType, ShapedType

T = TypeVar("T")


@dataclass(frozen=True)
class Domain:
    """Who shares windows."""

    name: str
    devices: tuple[int, ...]


@dataclass(frozen=True)
class Shape:
    """What is known of a tensor, a tile or a context.

    Attributes:
        extents: at most so many elements; infinite where nobody knows.
        window: the buffer that it is a view of.
        domain: who shares that.
    """

    extents: tuple[Number, ...] = ()
    window: str = ""
    domain: Domain | None = None

    @property
    def elements(self) -> Number:
        """How many elements it has."""
        return 0 if 0 in self.extents else math.prod(self.extents)


Value = Interval | Shape


class Known:
    """What is known of the values of a function, one after the other.

    Attributes:
        values: so far.

    Args:
        function: whose.
        arguments: what is known of its parameters.
        world: how many devices there are.
        device: where it runs; None: on the host.
        blocks: of its launch.
        domains: of the windows, by name.
    """

    def __init__(
        self,
        function: Function,
        arguments: Sequence[Value],
        *,
        world: int,
        device: int | None,
        blocks: int,
        domains: Mapping[str, Domain],
    ) -> None:
        self.world = world
        self.device = device
        self.blocks = blocks
        self.domains = domains
        self.values: dict[SSAValue, Value] = {}
        self.symbols: dict[str, int] = {}
        for param, argument in zip(function.params, arguments, strict=True):
            if isinstance(param.type, ShapedType) and isinstance(argument, Shape):
                for said, extent in zip(param.type.shape, argument.extents, strict=False):
                    if isinstance(said, str) and said.isidentifier() and math.isfinite(extent):
                        self.symbols.setdefault(said, int(extent))
        if function.has_body:
            self.values.update(zip(function.body.args, arguments, strict=True))

    def of(self, value: SSAValue) -> Value:
        """A number, or a tensor."""
        return self.shape(value) if isinstance(value.type, ShapedType) else self.values.get(value, ANYTHING)

    def note(self, op: Operation) -> None:
        """Find out what the results of an op are, which has no regions."""
        for result in op.results:
            self.values[result] = self._result(result)

    def interval(self, value: SSAValue) -> Interval:
        """Between what a number is."""
        found = self.values.get(value, ANYTHING)
        return ANYTHING if isinstance(found, Shape) else found

    def exact(self, value: SSAValue) -> int | None:
        """A number, where it is known."""
        low, high = self.interval(value)
        return int(low) if low == high else None

    def most(self, value: SSAValue) -> Number:
        """The largest that a number can be."""
        return max(self.interval(value)[1], 0)

    def shape(self, value: SSAValue) -> Shape:
        """What is known of a tensor."""
        found = self.values.get(value)
        return found if isinstance(found, Shape) else self.declared(value)

    def declared(self, value: SSAValue) -> Shape:
        """What the type of a value says."""
        if not isinstance(value.type, ShapedType):
            return Shape()
        extents = [d if isinstance(d, int) else evaluate(d, self.symbols) for d in value.type.shape]
        window = value.type.window if isinstance(value.type, DistTensorType) else ""
        return Shape(tuple(math.inf if d is None else d for d in extents), window, self.domains.get(window or ""))

    def _result(self, value: OpResult) -> Value:
        """What is known of a result of an op that has no regions."""
        op = value.op
        if isinstance(value.type, ShapedType):
            return self._viewed(op, value)
        match op:
            case GetCommCtxOp():
                return self.shape(op.source)
            case arith.ConstantOp() if isinstance(op.value, IntegerAttr):
                return (op.value.value.data, op.value.value.data)
            case arith.IndexCastOp() | arith.ExtSIOp() | arith.ExtUIOp() | arith.TruncIOp():
                return self.interval(op.input)
            case arith.SelectOp():
                said = self.exact(op.cond)
                return either(*(self.interval(v) for v in taken(said, op.lhs, op.rhs)))
            case arith.CmpiOp():
                return _compared(op.predicate.value.data, self.interval(op.lhs), self.interval(op.rhs))
            case arith.AndIOp() | arith.OrIOp() | arith.XOrIOp():
                return self._bits(op)
            case WorldSizeOp():
                return (self.world, self.world)
            case NumRanksOp() if (domain := self.shape(op.ctx).domain) is not None:
                return (len(domain.devices), len(domain.devices))
            case RankOp() if (domain := self.shape(op.ctx).domain) is not None and self.device in domain.devices:
                me = domain.devices.index(self.device)
                return (me, me)
            case BlockIndexOp():
                return (0, self.blocks - 1)
            case NumBlocksOp():
                return (self.blocks, self.blocks)
            case SymbolOp() if (number := evaluate(op.symbol.data, self.symbols)) is not None:
                return (number, number)
            case DimOp():
                extent = self.shape(op.source).extents[op.axis.value.data]
                return (0, math.inf) if math.isinf(extent) else (extent, extent)
            case LaunchWidthOp():
                return self._width(op)
        if type(op) in ARITHMETIC:
            return ARITHMETIC[type(op)](self.interval(op.operands[0]), self.interval(op.operands[1]))
        return ANYTHING

    def _bits(self, op: arith.AndIOp | arith.OrIOp | arith.XOrIOp) -> Interval:
        left, right = self.exact(op.lhs), self.exact(op.rhs)
        if isinstance(op, arith.AndIOp) and 0 in (left, right):
            return (0, 0)
        if left is None or right is None:
            return ANYTHING
        found = left & right if isinstance(op, arith.AndIOp) else left | right
        found = left ^ right if isinstance(op, arith.XOrIOp) else found
        return (found, found)

    def _width(self, op: LaunchWidthOp) -> Interval:
        limit, domain = self.exact(op.core_num), self.shape(op.signal).domain
        if limit is None or limit < 1 or domain is None:
            return (1, math.inf)
        width = limit if op.folds is None else folded(len(domain.devices), limit)
        return (width, width)

    def _viewed(self, op: Operation, value: SSAValue) -> Shape:
        """A tensor or a tile that an op makes, views, or hands on."""
        match op:
            case SliceOp():
                kept = [self.most(e) for n, e in enumerate(op.extents) if n not in op.dropped]
                return self._fitting(value, replace(self.shape(op.source), extents=tuple(kept)))
            case ReshapeOp():
                return self._fitting(
                    value, replace(self.shape(op.source), extents=tuple(self.most(e) for e in op.extents))
                )
            case TransposeOp():
                source, axes = self.shape(op.source), [op.axis1.value.data, op.axis2.value.data]
                swapped = list(source.extents)
                swapped[axes[0]], swapped[axes[1]] = swapped[axes[1]], swapped[axes[0]]
                return replace(source, extents=tuple(swapped))
            case WindowOp():
                buffer = op.buffer.owner
                name = buffer.window if isinstance(buffer, AllocWindowOp) else ""
                extents = tuple(self.most(e) for e in op.extents)
                return self._fitting(value, Shape(extents, name, self.domains.get(name)))
            case CreateTensorOp():
                return self._fitting(value, Shape(tuple(self.most(e) for e in op.extents)))
            case tiles.LoadOp() | remote.RemoteLoadOp() | tiles.SetValidShapeOp() if op.valid_shape:
                return self._fitting(value, Shape(tuple(self.most(e) for e in op.valid_shape)))
            case tiles.UnaryOp() | tiles.CastOp() | tiles.MoveOp():
                return self.shape(op.source)
            case tiles.BinaryOp() if self.declared(op.lhs) == self.declared(value):
                return self.shape(op.lhs)
        handle = handed_on(op)
        return self.declared(value) if handle is None else self.shape(handle)

    def _fitting(self, value: SSAValue, found: Shape) -> Shape:
        """What is known of a view, together with what its type says."""
        said = self.declared(value).extents
        return replace(found, extents=tuple(min(a, b) for a, b in zip(found.extents, said, strict=True)))


def taken(said: int | None, true: T, false: T) -> tuple[T, ...]:
    """Those of two that a condition leaves."""
    return (true, false) if said is None else (true,) if said else (false,)


def _compared(predicate: int, left: Interval, right: Interval) -> Interval:
    """Whether a comparison holds: surely (1), surely not (0), or one of them."""
    if predicate in (6, 7, 8, 9):  # unsigned
        if min(left[0], right[0]) < 0:
            return (0, 1)
        predicate -= 4
    if predicate in (4, 5):  # greater: the other way round
        predicate, left, right = predicate - 2, right, left
    (low, high), (least, most) = left, right
    if predicate in (0, 1):
        meet = low <= most and least <= high
        equal = (int(low == high == least == most), int(meet))
        return equal if predicate == 0 else (1 - equal[1], 1 - equal[0])
    if predicate == 2:
        return (int(high < least), int(low < most))
    return (int(high <= least), int(low <= most))
