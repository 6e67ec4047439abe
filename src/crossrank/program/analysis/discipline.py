"""What authors should keep to where tensors are written, although a run does what they mean without it.

A parameter that a function writes is declared so; and what a call was given to write is read as what the call gives
back, not under its old name: compilers for devices move statements by that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.dialects import scf
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from crossrank.program.analysis.lineage import Lineage, is_tensor
from crossrank.program.dialect.calls import CallOp
from crossrank.program.kinds import Direction, FunctionType
from crossrank.program.program import Function, Program, line_of


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
    """Parameters that are In and written, each once."""
    params, told = function.params, set[int]()
    for op in function.op.walk():
        for value in lineage.written(op):
            n = lineage.parameter(value)
            if n is not None and n not in told and params[n].direction is Direction.In:
                told.add(n)
                name = params[n].name
                yield Lapse(
                    op, f"{function.name} writes {name}, which it declares In", f"declare it: {name}: pl.InOut[…]"
                )


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
            arms = [dict(consumed) for region in op.regions if region.blocks] if isinstance(op, scf.IfOp) else []
            for n, region in enumerate(r for r in op.regions if r.blocks):
                yield from self.block(region.block, arms[n] if arms else consumed)
            for arm in arms:
                consumed |= arm
            if isinstance(op, CallOp):
                consumed |= dict.fromkeys(self._given_to_write(op), op)

    def _given_to_write(self, call: CallOp) -> list[SSAValue]:
        pairs = zip(call.arguments, self.lineage.callee(call).params, strict=True)
        return [value for value, param in pairs if param.direction.writes and is_tensor(value)]

    def _lapse(self, op: Operation, call: CallOp, value: SSAValue) -> Lapse:
        params = self.lineage.callee(call).params
        param = params[list(call.arguments).index(value)]
        name = _name(value) or param.name
        return Lapse(
            op,
            f"{name} is read here, and was given to {call.function} as {param.direction} in line {line_of(call)}",
            f"go on with what the call gives: {name} = self.{call.function}(…)",
        )


def _name(value: SSAValue) -> str:
    """The author's name for a value, where it has one."""
    if isinstance(value, BlockArgument):
        parent = value.block.parent_op()
        if isinstance(parent, FuncOp):
            return Function(parent).params[value.index].name
    return value.name_hint or ""
