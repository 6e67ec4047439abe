"""The dialect ``program``: windows, tensors, tiles, remote accesses, collectives, calls; on func, scf and arith.

A module is a program; each of its functions is a ``func.func`` that says what it is (`program.Function`). Tensors are
handles on memory: what changes one in place (a store, a call) gives the handle back as a result, so that who reads it
after stands after it. Loops and branches are scf's, and carry what is rebound within them.

    func.func @ring(%x : !program.tensor<[1, 64], f32>, %w : !program.dist_tensor<[1, 64], f32>) -> … {
      %t = program.load %x[%c0, %c0] valid [] : !program.tensor<[1, 64], f32> -> !program.tile<[1, 64], f32, Vec>
      %s = program.store %t, %w[%c0, %c0] : !program.tile<[1, 64], f32, Vec>, !program.dist_tensor<[1, 64], f32>
      program.notify %signal at %peer[%c0, %c0], %one op "AtomicAdd" : !program.dist_tensor<[1, 1], s32>
"""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.arith import Arith
from xdsl.dialects.builtin import Builtin
from xdsl.dialects.func import Func
from xdsl.dialects.scf import Scf
from xdsl.ir import Dialect

from crossrank.program.dialect import calls, collectives, remote, tensors, tiles, windows
from crossrank.program.types import (
    ArrayType,
    CommCtxType,
    DistTensorType,
    TaskType,
    TensorType,
    TileType,
    WindowBufferType,
)

PROGRAM = Dialect(
    "program",
    [*tensors.OPS, *tiles.OPS, *windows.OPS, *remote.OPS, *collectives.OPS, *calls.OPS],
    [ArrayType, CommCtxType, DistTensorType, TaskType, TensorType, TileType, WindowBufferType],
)


def context() -> Context:
    """What a parser of programs knows."""
    found = Context()
    for dialect in (Builtin, Func, Scf, Arith, PROGRAM):
        found.load_dialect(dialect)
    return found
