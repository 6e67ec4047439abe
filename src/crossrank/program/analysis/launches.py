"""Launches: the cores that they are for, those that may have no block, and those that have too many."""

from __future__ import annotations

import math
from collections.abc import Iterator

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


def deadlock(blocks: int, limit: int) -> str:
    """Why so many blocks, of which all are to be resident at once, never are."""
    return f"require_sync_start block_num={blocks} > limit={limit} (deadlock guaranteed)"


def too_wide(program: Program, aiv_cores: int, aic_cores: int) -> Iterator[tuple[CallOp, str]]:
    """The calls whose blocks can surely never be resident at once, as they have to be, and why."""
    bounds, functions = Bounds(), {f.name: f for f in program.functions}
    for op in program.module.walk():
        if isinstance(op, CallOp) and op.sync_start is not None and op.core_num and op.function in functions:
            limit = max(1, aic_cores if core_type(functions[op.function]) == "aic" else aiv_cores)
            least = bounds.of(op.core_num, op)[0]
            if limit < least < math.inf:
                yield op, deadlock(int(least), limit)


def unproven(program: Program) -> list[tuple[CallOp, SSAValue]]:
    """The calls whose number of blocks is not provably positive where they stand, and that number."""
    bounds = Bounds()
    return [
        (op, op.core_num)
        for op in program.module.walk()
        if isinstance(op, CallOp) and op.core_num is not None and bounds.of(op.core_num, op)[0] < 1
    ]
