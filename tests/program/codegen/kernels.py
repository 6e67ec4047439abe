"""Kernels made op by op, compiled together, and run on ranks that are threads."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from xdsl.dialects.builtin import IndexType
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Attribute, Block, SSAValue

from crossrank.collective.dtypes import DType
from crossrank.program.codegen.build import CompiledKernel
from crossrank.program.dialect.tiles import LoadOp
from crossrank.program.kinds import Direction, FunctionType, Level
from crossrank.program.language.builder import Builder
from crossrank.program.program import Function, Param, Program, at
from crossrank.program.types import CommCtxType, DistTensorType, ShapedType, TileType
from crossrank.runtime import tasks
from crossrank.runtime.threads import Tensor

Array = npt.NDArray[Any]
INDEX = IndexType()


class Range(ctypes.Structure):
    """Of ``abi.h``, and so the others."""

    _fields_ = (("offset", ctypes.c_uint64), ("bytes", ctypes.c_uint64))


CALL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, Range, ctypes.c_void_p)


class Fabric(ctypes.Structure):
    _fields_ = (("read", CALL), ("write", CALL), ("others", ctypes.c_void_p * 6))


class Launch(ctypes.Structure):
    _fields_ = (
        *(("block", ctypes.c_uint32), ("blocks", ctypes.c_uint32), ("line", ctypes.c_uint32)),
        *(("fault", ctypes.c_char * 244), ("state", ctypes.c_void_p)),
    )


class Context(ctypes.Structure):
    _fields_ = (
        *(("fabric", ctypes.c_void_p), ("state", ctypes.c_void_p), ("peers", ctypes.POINTER(ctypes.c_void_p))),
        *(("stream_above", ctypes.c_uint64), ("rank", ctypes.c_uint32), ("size", ctypes.c_uint32)),
        *(("slots", ctypes.c_uint32), ("launch", ctypes.c_void_p)),
    )


def kernel(
    name: str, params: dict[str, Attribute], body: Callable[..., None], *, type: FunctionType = FunctionType.InCore
) -> Function:
    """A kernel; ``body`` gets a builder and the parameters. Contexts are added, as the pass adds them."""
    contexts = {f"{n}_ctx": CommCtxType() for n, t in params.items() if isinstance(t, DistTensorType)}
    given = params | contexts
    block = Block(arg_types=list(given.values()))
    b = Builder(block, at("kernels.py", 7, 1), Level.CORE_GROUP)
    body(b, *block.args)
    block.add_op(ReturnOp())
    made = [Param(n, t, Direction.InOut if isinstance(t, ShapedType) else Direction.In) for n, t in given.items()]
    return Function.of(name, made, [], type=type, body=block, location=at("kernels.py", 5, 1))


def program(*functions: Function) -> Program:
    """The program of some kernels."""
    found = Program.of("made", functions)
    found.verify()
    return found


def load(b: Builder, source: SSAValue, offsets: Sequence[Any] = (), shape: Sequence[int] = ()) -> SSAValue:
    """A tile of a tensor, of all of it where nothing else is said."""
    of = source.type
    assert isinstance(of, ShapedType)
    extents = tuple(shape) or of.extents
    type = TileType.of(extents, of.dtype)
    return b.insert(LoadOp(source, b.indices(offsets or [0] * len(extents)), type)).result


def launch(compiled: CompiledKernel, function: Function, *ranks: Sequence[Any], blocks: int = 1) -> None:
    """Run a kernel on each rank, whose arguments are arrays, changed in place, and numbers; as `Engine.submit` fails.

    Distributed tensors are windows of one domain, in which all ranks are.
    """
    slots, params = compiled.slots, function.params
    table = [
        [mine[n].ctypes.data for mine in ranks] if isinstance(params[n].type, DistTensorType) else None
        for n in slots.tensors
    ]
    with tasks.Engine(limit=20) as engine, engine.orchestrator():
        for rank, mine in enumerate(ranks):
            engine.submit(
                compiled.address,
                function.name,
                rank,
                [Tensor.of(mine[n]) for n in slots.tensors],
                [tasks.Context.of(0, rank, len(ranks), table) for _ in slots.contexts],
                [mine[n] for n in slots.scalars],
                blocks=blocks,
                never_waits=compiled.never_waits,
            )
        engine.finish()


def draw(shape: tuple[int, ...], t: DType, rng: np.random.Generator) -> Array:
    """Values that tell operations apart: of floats zeros of both signs, infinities, NaN and subnormals among them."""
    assert t.numpy is not None
    if t.is_float:
        special = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 3e-5, 7e4], shape)
        plain = rng.standard_normal(shape) * 2.0 ** rng.integers(-8, 9, shape)
        with np.errstate(over="ignore"):
            return np.where(rng.random(shape) < 0.1, special, plain).astype(t.numpy)
    if t.name == "pred":
        return rng.random(shape) < 0.5
    return rng.integers(0, 256, (*shape, t.itemsize), np.uint8).view(t.numpy).reshape(shape)


def assert_same(got: Array, wanted: Array, what: object) -> None:
    """The same bits, but that NaN is NaN."""
    assert got.shape == wanted.shape, what
    assert got.dtype == wanted.dtype, what
    bits = [np.ascontiguousarray(x).view(f"u{x.itemsize}") for x in (got, wanted)]
    with np.errstate(invalid="ignore"):
        same = (bits[0] == bits[1]) | ((got != got) & (wanted != wanted))
    assert same.all(), (what, got[~same][:4], wanted[~same][:4])
