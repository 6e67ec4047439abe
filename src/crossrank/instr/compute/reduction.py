"""Reductions as a collective does them, so that the cores of a rank can do by copies what a collective would."""

from __future__ import annotations

from typing import Any

import numpy as np

from crossrank.collective.dtypes import dtype_of
from crossrank.collective.semantics import all_reduce
from crossrank.instr.compute.registry import computation
from crossrank.instr.compute.values import Array, fit_size
from crossrank.instr.kinds import AluOp


@computation("dma", ins=("srcs*",), choices={"op": [op.name.lower() for op in AluOp]})
def group_reduce(dst: Array, srcs: list[Array], op: str) -> Array:
    """``srcs``, all of the type of ``dst``, reduced in their order, bit for bit as `collective.semantics` says."""
    if not srcs or any(src.dtype != dst.dtype for src in srcs):
        raise ValueError(f"srcs must be one or more, with elements of {dtype_of(dst.dtype)}")
    fitted = [fit_size(f"srcs[{i}]", src, dst) for i, src in enumerate(srcs)]
    return reduced(fitted, AluOp[op.upper()])


def reduced(arrays: list[Array], op: AluOp) -> Array:
    """Arrays of one type, reduced."""
    if op is not AluOp.AVERAGE:
        return all_reduce(arrays, op.reduce_op)[0]
    wide = [array.astype(average_type(array.dtype)) for array in arrays]
    return divided(all_reduce(wide, op.reduce_op)[0], len(arrays)).astype(arrays[0].dtype)


def average_type(given: np.dtype[Any]) -> np.dtype[Any]:
    """The type that an average is computed in, to be rounded once: f32 or wider, or 64 bits."""
    type = dtype_of(given)
    if type.is_complex:
        return given
    if type.is_float:
        return np.promote_types(np.float32, given)
    if type.is_integer:
        return np.dtype(np.int64 if type.is_signed else np.uint64)
    raise ValueError(f"average is not defined on {type}")


def divided(total: Array, count: int) -> Array:
    """A sum, divided; integers are rounded down."""
    divide = np.floor_divide if dtype_of(total.dtype).is_integer else np.divide
    return np.asarray(divide(total, total.dtype.type(count)))
