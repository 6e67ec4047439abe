"""Launches: the cores that they are for, and those that may have no block."""

from __future__ import annotations

from xdsl.ir import SSAValue

from crossrank.program.analysis.bounds import Bounds
from crossrank.program.dialect.calls import CallOp
from crossrank.program.dialect.tiles import MatmulOp
from crossrank.program.kinds import FunctionType
from crossrank.program.program import Function, Program


def core_type(kernel: Function) -> str:
    """The cores that a kernel is for: ``aic`` where it multiplies matrices, else ``aiv``."""
    multiplies = any(isinstance(op, MatmulOp) for op in kernel.op.walk())
    return "aic" if kernel.type is FunctionType.AIC or multiplies else "aiv"


def unproven(program: Program) -> list[tuple[CallOp, SSAValue]]:
    """The calls whose number of blocks is not provably positive where they stand, and that number."""
    bounds = Bounds()
    return [
        (op, op.core_num)
        for op in program.module.walk()
        if isinstance(op, CallOp) and op.core_num is not None and bounds.of(op.core_num, op)[0] < 1
    ]
