"""What authors should keep to where tensors are written, although a program runs without it.

A parameter that a function writes is declared so, and one that is declared Out is written; and what a call was given to
write is read as what the call gives back, not under its old name: compilers for devices move statements by that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from crossrank.program.analysis.lineage import Lineage, is_tensor
from crossrank.program.dialect.calls import CallOp
from crossrank.program.kinds import Direction, FunctionType
from crossrank.program.program import Function, Program, line_of
from crossrank.program.types import TensorType


@dataclass(frozen=True)
class Lapse:
    """A place where an author does not keep to it."""

    op: Operation
    what: str
    remedy: str


def lapses(program: Program) -> Iterator[Lapse]:
    """All of them, function by function."""
    lineage = Lineage(program)
    for function in program.functions:
        if function.has_body:
            yield from _undeclared(function, lineage)
            if function.type is not FunctionType.Group:  # its kernels write the same tensor side by side
                yield from _Walk(lineage).block(function.body, {})


def _undeclared(function: Function, lineage: Lineage) -> Iterator[Lapse]:
    """Tensors that are In and written, and those that are Out and are not; windows are written by peers as well."""
    first = lineage.first_written(function)
    for n, param in enumerate(function.params):
        name = param.name
        if not isinstance(param.type, TensorType):
            continue
        if param.direction is Direction.In and n in first:
            what = f"{function.name} writes {name}, which it declares In"
            yield Lapse(first[n], what, f"declare it: {name}: pl.InOut[…]")
        if param.direction is Direction.Out and n not in first:
            what = f"{function.name} declares {name} Out, and never writes it"
            yield Lapse(function.op, what, f"store into it: {name} = pl.store(tile, offsets, {name})")


Consumed = dict[SSAValue, CallOp]
"""What was given to a call to write, and that call."""


@dataclass(frozen=True)
class _Walk:
    """Goes through statements in their order."""

    lineage: Lineage

    def block(self, block: Block, consumed: Consumed) -> Iterator[Lapse]:
        """Those of a block; ``consumed`` is what it begins with, and then what it ends with."""
        for op in block.ops:
            for value in op.operands:
                if (call := consumed.pop(value, None)) is not None:
                    yield self._lapse(op, call, value)
            arms = [dict(consumed) if isinstance(op, scf.IfOp) else consumed for _ in op.regions]
            for region, arm in zip(op.regions, arms, strict=True):
                if region.blocks:
                    yield from self.block(region.block, arm)
            if isinstance(op, scf.IfOp):
                consumed.clear()
                for arm in arms:
                    consumed |= arm
            if isinstance(op, CallOp):
                consumed |= dict.fromkeys(self._given_to_write(op), op)

    def _given_to_write(self, call: CallOp) -> list[SSAValue]:
        pairs = zip(call.arguments, self.lineage.callee(call).params, strict=True)
        return [value for value, param in pairs if param.direction.writes and is_tensor(value)]

    def _lapse(self, op: Operation, call: CallOp, value: SSAValue) -> Lapse:
        number = list(call.arguments).index(value)
        param = self.lineage.callee(call).params[number]
        name = value.name_hint or param.name
        remedy = f"go on with what the call gives: {name} = self.{call.function}(…)"
        if number not in self.lineage.returned(call.function):
            remedy = f"let {call.function} return {param.name}, and g{remedy[1:]}"
        return Lapse(
            op,
            f"{name} is read here, and was given to {call.function} as {param.direction} in line {line_of(call)}",
            remedy,
        )
