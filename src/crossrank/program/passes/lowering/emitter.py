"""Statements of a kernel as a pass writes them: numbers that fold, loops and branches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

from xdsl.dialects import scf
from xdsl.dialects.builtin import IndexType, LocationAttr, i1, i32
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter

from crossrank.program.dialect.tensors import DimOp, shaped
from crossrank.program.language import scalars
from crossrank.program.language.builder import Builder

Index = int | SSAValue
"""An extent, offset or rank: a number where it is known before anything runs."""


class Emitter(Builder):
    """A `Builder` of statements that are put in place together (`put`, `replace`); constants come before all of them.

    Args:
        location: of the author's statement that they stand for.
        outer: who emits the loop or branch whose body this is.
        arguments: the types of the body's arguments.
    """

    def __init__(
        self, location: LocationAttr, outer: Emitter | None = None, arguments: Sequence[Attribute] = ()
    ) -> None:
        super().__init__(Block(arg_types=arguments), location)
        self._prologue: Builder = Builder(Block(), location) if outer is None else outer._prologue

    def constant(self, value: int | float | bool, type: Attribute) -> SSAValue:
        """A constant of a scalar type, made once and before all else."""
        return self._prologue.constant(value, type)

    def put(self, before: Operation) -> None:
        """Put everything before an op."""
        parent = before.parent_block()
        assert parent is not None
        for block in (self._prologue.block, self.block):
            statements = [block.detach_op(statement) for statement in list(block.ops)]
            parent.insert_ops_before(statements, before)

    def replace(self, op: Operation, by: SSAValue) -> None:
        """Put everything where ``op`` stands; what used its result uses another value."""
        self.put(op)
        op.results[0].replace_all_uses_with(by)
        Rewriter.erase_op(op)

    def _number(self, name: str, lhs: Index, rhs: Index) -> Index:
        return cast(Index, scalars.binary(self, name, lhs, rhs))

    def add(self, lhs: Index, rhs: Index) -> Index:
        """The sum."""
        return lhs if rhs == 0 else self._number("add", lhs, rhs)

    def sub(self, lhs: Index, rhs: Index) -> Index:
        """The difference."""
        return lhs if rhs == 0 else self._number("sub", lhs, rhs)

    def mul(self, lhs: Index, rhs: Index) -> Index:
        """The product."""
        return lhs if rhs == 1 else self._number("mul", lhs, rhs)

    def div(self, lhs: Index, rhs: Index) -> Index:
        """The quotient, rounded down."""
        return lhs if rhs == 1 else self._number("floordiv", lhs, rhs)

    def ceildiv(self, lhs: Index, rhs: Index) -> Index:
        """The quotient, rounded up."""
        return self.div(self.add(lhs, self.sub(rhs, 1)), rhs)

    def mod(self, lhs: Index, rhs: Index) -> Index:
        """The remainder, with the sign of ``rhs``."""
        return self._number("mod", lhs, rhs)

    def min(self, lhs: Index, rhs: Index) -> Index:
        """The smaller one."""
        return self._number("min", lhs, rhs)

    def max(self, lhs: Index, rhs: Index) -> Index:
        """The larger one."""
        return self._number("max", lhs, rhs)

    def named(self, name: str, value: Index) -> Index:
        """The number, under a name that generated code has."""
        if isinstance(value, SSAValue):
            value.name_hint = name
        return value

    def s32(self, value: Index) -> SSAValue:
        """A number as a cell of a signal has it."""
        return self.scalar(value, i32)

    def dim(self, tensor: SSAValue, axis: int) -> Index:
        """An extent of a tensor."""
        extent = shaped(tensor).shape[axis]
        return extent if isinstance(extent, int) else self.insert(DimOp(tensor, axis)).result

    @contextmanager
    def loop(
        self, name: str, end: Index, *, start: Index = 0, step: Index = 1, carry: Sequence[SSAValue] = ()
    ) -> Iterator[Loop]:
        """``for name in range(start, end, step)``; what is emitted with what it gives is the body."""
        inner = Loop(self, name, carry)
        yield inner
        inner.insert(scf.YieldOp(*inner.carried))
        lower, upper, stride = self.indices([start, end, step])
        found = self.insert(scf.ForOp(lower, upper, stride, carry, Region(inner.block)))
        inner.carried = found.results

    @contextmanager
    def unless(self, lhs: Index, rhs: Index) -> Iterator[Emitter]:
        """``if lhs != rhs``; what is emitted with what it gives is the branch."""
        condition = self.scalar(scalars.compare(self, "ne", lhs, rhs), i1)
        inner = Emitter(self.location, self)
        yield inner
        inner.insert(scf.YieldOp())
        self.insert(scf.IfOp(condition, [], Region(inner.block)))


class Loop(Emitter):
    """The body of a loop.

    Attributes:
        number: of which turn this is.
        carried: what the values that it carries have become: before this turn; as set, after it; in the end, after all.
    """

    def __init__(self, outer: Emitter, name: str, carry: Sequence[SSAValue]) -> None:
        super().__init__(outer.location, outer, [IndexType(), *(value.type for value in carry)])
        self.number: SSAValue = self.block.args[0]
        self.number.name_hint = name
        self.carried: Sequence[SSAValue] = self.block.args[1:]
