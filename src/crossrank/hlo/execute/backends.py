"""Who computes a collective of a run: our kernels, or the NumPy oracle."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crossrank.collective.dtypes import PRED
from crossrank.collective.kinds import Kind, ReduceOp
from crossrank.collective.semantics import evaluate_group
from crossrank.hlo.ffi.form import Backend, Call
from crossrank.hlo.ffi.native import Native, Operand
from crossrank.hlo.shape import Shape
from crossrank.kernels import Variant, compile_variants, has_kernel

Array = npt.NDArray[Any]


class KernelBackend:
    """Compiled kernels on the threads of this process."""

    name = "kernels"

    def __init__(self, native: Native) -> None:
        self._native = native

    def serves(self, call: Call) -> bool:
        """Whether every operand has a kernel."""
        c = call.collective
        if c.kind not in (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER):
            return False
        return all(has_kernel(c.kind, c.reduce_op, s.dtype) for s in call.operands)

    def register(self, call: Call) -> int:
        """Make it known natively, its kernels loaded."""
        operands = [_operand(call, shape) for shape in call.operands]
        return self._native.kernels(call.label, call.world, call.collective.groups, operands)


def variants_of(call: Call) -> list[Variant]:
    """The kernels that a call needs."""
    return [_operand(call, shape).variant for shape in call.operands]


def prepare(calls: Sequence[Call], progress: Callable[[int, int], None] | None = None) -> None:
    """Compile what ``calls`` need, in parallel, before anything starts."""
    compile_variants(dict.fromkeys(v for call in calls for v in variants_of(call)), progress)


def _moves(kind: Kind) -> bool:
    return kind is Kind.ALL_GATHER


def _operand(call: Call, shape: Shape) -> Operand:
    c = call.collective
    if c.kind is Kind.ALL_REDUCE:
        view = (1, shape.count, 1)
    else:
        assert c.dim is not None
        view = (math.prod(shape.dims[: c.dim]), shape.dims[c.dim], math.prod(shape.dims[c.dim + 1 :]))
    variant = Variant(c.kind, c.reduce_op, None if _moves(c.kind) else shape.dtype)
    return Operand(variant, view, shape.dtype.itemsize)


class OracleBackend:
    """The NumPy meaning of each collective, called back when the last rank has arrived."""

    name = "oracle"

    def __init__(self, native: Native) -> None:
        self._native = native

    def serves(self, call: Call) -> bool:
        """It serves everything that NumPy has a type for; elements below a byte lie packed in XLA's buffers."""
        dtypes = {s.dtype for s in (*call.operands, *call.results)}
        return all(t.numpy is not None and (t.bits >= 8 or t is PRED) for t in dtypes)

    def register(self, call: Call) -> int:
        """Make it known natively, with a function that evaluates one group."""

        def evaluate(_group: int, inputs: list[list[Array]], outputs: list[list[Array]]) -> None:
            members = [
                [_typed(raw, shape) for raw, shape in zip(member, call.operands, strict=True)] for member in inputs
            ]
            results = evaluate_group(call.collective, members)
            if call.collective.reduce_op in (ReduceOp.MAXIMUM, ReduceOp.MINIMUM):
                # they pass numbers on as they are; a product treats subnormals as this thread's arithmetic does
                results = [[v * v.dtype.type(1) for v in member] for member in results]
            for filled, values in zip(outputs, results, strict=True):
                for raw, value in zip(filled, values, strict=True):
                    raw[...] = np.ascontiguousarray(value).reshape(-1).view(np.uint8)

        return self._native.oracle(call.label, call.world, call.collective.groups, evaluate)


def _typed(raw: Array, shape: Shape) -> Array:
    assert shape.dtype.numpy is not None
    return raw.view(shape.dtype.numpy).reshape(shape.dims)


def make_backend(name: str, native: Native) -> Backend:
    """The backend of that name."""
    return KernelBackend(native) if name == "kernels" else OracleBackend(native)
