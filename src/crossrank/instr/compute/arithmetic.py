"""Computations that compute.

They compute in f32 (in f64 where an operand has it) and cast once, at the end. Integers keep all their bits where the
operator works on bits. They do too in ``tensor_tensor`` and ``tensor_partition_reduce`` where operands and result are
all integers: there they wrap in the widest of these types.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from crossrank.collective.dtypes import dtype_of
from crossrank.instr.compute.alu import ACTIVATION, BINARY, BITVEC, REDUCTIONS, UNARY, apply, fold
from crossrank.instr.compute.movement import reduced
from crossrank.instr.compute.registry import computation
from crossrank.instr.compute.values import Array, Operand, column, fit, fit_size, integers, is_integer, real, rows

_MATMUL_HINTS = ("is_stationary_onezero", "is_moving_onezero", "tile_position", "tile_size")


@computation("vector", ins=("data1", "data2"), choices={"op": BINARY})
def tensor_tensor(dst: Array, data1: Array, data2: Array, op: str) -> Array:
    """``data1 op data2``."""
    first, second = _whole(op, dst, data1, data2)
    return apply(op, fit("data1", first, dst), fit("data2", second, dst))


@computation("vector", ins=("data", "operand0", "operand1"))
def tensor_scalar(
    dst: Array,
    data: Array,
    op0: str,
    operand0: Operand | None = None,
    reverse0: bool = False,
    op1: str | None = None,
    operand1: Operand | None = None,
    reverse1: bool = False,
) -> Array:
    """``(data op0 operand0) op1 operand1``; an operand is a number, or one for each partition."""
    if op1 is not None and (op0 in BITVEC) != (op1 in BITVEC):
        raise ValueError(f"op0 {op0} and op1 {op1} must both work on bits, or neither")
    result = _one("data", op0, fit("data", data, dst))
    result = _with_scalar(result, op0, "operand0", operand0, reverse0)
    return result if op1 is None else _with_scalar(result, op1, "operand1", operand1, reverse1)


@computation("vector", ins=("data", "operand0", "operand1"), choices={"op1": BINARY})
def scalar_tensor_tensor(
    dst: Array,
    data: Array,
    op0: str,
    operand0: Operand,
    op1: str,
    operand1: Array,
    reverse0: bool = False,
    reverse1: bool = False,
) -> Array:
    """``(data op0 operand0) op1 operand1``; ``operand1`` is as large as ``data``."""
    if {op0, op1} & BITVEC:
        raise ValueError(f"op0 {op0} and op1 {op1} must be arithmetic")
    result = _with_scalar(real(fit("data", data, dst)), op0, "operand0", operand0, reverse0)
    return apply(op1, result, real(fit("operand1", operand1, dst)), reverse1)


@computation("vector", outs=("dst", "reduce_res"), ins=("data", "operand0"))
def tensor_scalar_reduce(
    dst: Array,
    data: Array,
    op0: str,
    operand0: Operand,
    reduce_op: str,
    reduce_res: Array,
    reverse0: bool = False,
    reduce_cmd: str = "reset_reduce",
) -> tuple[Array, Array | None]:
    """``data op0 operand0``, and its reduction along all free dims."""
    if op0 in BITVEC:
        raise ValueError(f"op0 {op0} must be arithmetic")
    result = _with_scalar(real(fit("data", data, dst)), op0, "operand0", operand0, reverse0)
    return result, reduced(reduce_res, reduce_op, reduce_cmd, result)


@computation("vector", ins=("data0", "data1", "initial"), choices={"op0": BINARY, "op1": BINARY})
def tensor_tensor_scan(
    dst: Array,
    data0: Array,
    data1: Array,
    initial: Operand,
    op0: str,
    op1: str,
    reverse0: bool = False,
    reverse1: bool = False,
) -> Array:
    """Element i of a partition is ``(data0[i] op0 element i-1) op1 data1[i]``; ``initial`` is before the first."""
    first, second = real(rows(fit("data0", data0, dst))), real(rows(fit("data1", data1, dst)))
    result = np.empty(first.shape, np.result_type(first, second))
    last = np.broadcast_to(column("initial", initial, first[:, :1]).reshape(-1), first.shape[:1])
    for i in range(first.shape[1]):
        last = apply(op1, apply(op0, first[:, i], last, reverse0), second[:, i], reverse1)
        result[:, i] = last
    return result.reshape(dst.shape)


_CUMULATIVE_START = {
    "add": 0.0,
    "subtract": 0.0,
    "multiply": 1.0,
    "max": -np.inf,
    "maximum": -np.inf,
    "min": np.inf,
    "minimum": np.inf,
}


@computation(
    "vector",
    ins=("src", "imm0", "imm1"),
    choices={"op0": BINARY, "op1": _CUMULATIVE_START, "reduce_cmd": ("reset_reduce", "load_reduce")},
)
def tensor_scalar_cumulative(
    dst: Array,
    src: Array,
    op0: str,
    op1: str,
    imm0: Operand,
    imm1: Operand | None = None,
    reduce_cmd: str = "reset_reduce",
) -> Array:
    """Element i of a partition is ``(src[i] op0 imm0) op1 element i-1``; ``load_reduce`` puts ``imm1`` before it."""
    values = rows(_with_scalar(real(fit("src", src, dst)), op0, "imm0", imm0, False))
    if reduce_cmd == "load_reduce" and imm1 is None:
        raise ValueError("imm1 is missing")
    start = imm1 if reduce_cmd == "load_reduce" and imm1 is not None else _CUMULATIVE_START[op1]
    last = np.broadcast_to(column("imm1", start, values[:, :1]).reshape(-1), values.shape[:1])
    result = np.empty_like(values)
    for i in range(values.shape[1]):
        last = result[:, i] = apply(op1, values[:, i], last)
    return result.reshape(dst.shape)


@computation("vector", ins=("data",), choices={"op": REDUCTIONS})
def tensor_reduce(
    dst: Array, data: Array, op: str, axis: int | tuple[int, ...], negate: bool = False, keepdims: bool = False
) -> Array:
    """``data`` reduced along its last dims, which ``axis`` names; ``keepdims`` is about the shape alone."""
    axes = sorted(i % data.ndim for i in ((axis,) if isinstance(axis, int) else axis))
    kept = data.ndim - len(axes)
    if axes != list(range(kept, data.ndim)) or kept == 0 or not axes:
        raise ValueError(f"axis {axis} must be the last free dims of data of shape {data.shape}")
    if negate and op in BITVEC:
        raise ValueError(f"negate needs an arithmetic op, not {op}")
    values = _one("data", op, data)
    total = fold(op, values.reshape(math.prod(data.shape[:kept]), -1).T)
    return fit("reduced data", (-total if negate else total).reshape(data.shape[:kept]), dst)


@computation("gpsimd", ins=("data",), choices={"op": REDUCTIONS})
def tensor_partition_reduce(dst: Array, data: Array, op: str) -> Array:
    """``data`` reduced along its partitions, to one."""
    (values,) = _whole(op, dst, data)
    return fit("reduced data", fold(op, values)[None], dst)


@computation("dma", ins=("srcs*",), hints=("unique_indices", "oob_mode"))
def dma_compute(dst: Array, srcs: list[Array], reduce_op: str, scales: tuple[float, ...] | None = None) -> Array:
    """``srcs``, each times its scale, reduced; each has as many elements as ``dst``."""
    factors = scales or (1.0,) * len(srcs)
    if not srcs or len(factors) != len(srcs):
        raise ValueError(f"{len(srcs)} srcs and {len(factors)} scales are not one to one")
    if reduce_op in BITVEC:
        raise ValueError(f"reduce_op {reduce_op} must be arithmetic")
    values = [real(fit_size(f"srcs[{i}]", src, dst)) for i, src in enumerate(srcs)]
    return fold(reduce_op, np.stack([value * factor for value, factor in zip(values, factors, strict=True)]))


@computation("scalar", outs=("dst", "reduce_res"), ins=("data", "bias", "scale"), choices={"op": ACTIVATION})
def activation(
    dst: Array,
    data: Array,
    op: str,
    bias: Operand | None = None,
    scale: Operand = 1.0,
    reduce_op: str | None = None,
    reduce_res: Array | None = None,
    reduce_cmd: str = "idle",
) -> tuple[Array, Array | None]:
    """``op(data * scale + bias)``, and its reduction along all free dims."""
    values = real(fit("data", data, dst))
    values = values * column("scale", scale, values)
    result = ACTIVATION[op](values if bias is None else values + column("bias", bias, values))
    return result, reduced(reduce_res, reduce_op, reduce_cmd, result)


@computation("scalar", outs=("dst", "reduce_res"), ins=("data", "bias", "scale"), choices={"op": ACTIVATION})
def activation_reduce(
    dst: Array,
    data: Array,
    op: str,
    reduce_op: str,
    reduce_res: Array,
    bias: Operand | None = None,
    scale: Operand = 1.0,
) -> tuple[Array, Array | None]:
    """``activation`` with a reduction."""
    return activation(dst, data, op, bias, scale, reduce_op, reduce_res, "reset_reduce")


@computation("vector", ins=("data",))
def reciprocal(dst: Array, data: Array) -> Array:
    """``1 / data``."""
    return 1 / real(fit("data", data, dst))


@computation("tensor", ins=("stationary", "moving"), hints=_MATMUL_HINTS, choices={"perf_mode": ("none", "double_row")})
def nc_matmul(
    dst: Array,
    stationary: Array,
    moving: Array,
    is_transpose: bool = False,
    accumulate: bool = False,
    perf_mode: str = "none",
) -> Array:
    """``stationary.T @ moving``, on top of ``dst`` where it accumulates.

    The partition dim is contracted, in double_row the first free dim (of size 2) with it; the other dims count as one.
    To transpose, ``moving`` must have a single 1 in each column (an identity): elements come through bit for bit.
    """
    contracted = (moving.shape[0], 2) if perf_mode == "double_row" else moving.shape[:1]
    if any(operand.shape[: len(contracted)] != contracted for operand in (stationary, moving)):
        raise ValueError(f"stationary of shape {stationary.shape} does not fit moving of shape {moving.shape}")
    left, right = (operand.reshape(math.prod(contracted), -1) for operand in (stationary, moving))
    if is_transpose:
        chosen = right == 1
        if not (chosen.sum(axis=0) == 1).all() or (right[~chosen] != 0).any():
            raise ValueError(f"moving of shape {moving.shape} must be an identity where is_transpose is set")
        product = left[chosen.argmax(axis=0)].T
    else:
        product = real(left).T @ real(right)
    product = fit("stationary.T @ moving", product, dst)
    return real(dst) + real(product) if accumulate else product


@computation("vector", ins=("data",))
def bn_stats(dst: Array, data: Array) -> Array:
    """Count, mean and variance times count of the elements in even places of a partition, then of those in odd ones."""
    values = real(rows(data))
    parts = [_statistics(values[:, start::2]) for start in (0, 1)]
    return fit("statistics of data", np.concatenate(parts, axis=1), dst)


def _statistics(values: Array) -> Array:
    count = values.dtype.type(max(values.shape[1], 1))
    mean = fold("add", values.T) / count
    deviation = fold("add", ((values - mean[:, None]) ** 2).T)
    return np.stack([np.full_like(mean, values.shape[1]), mean, deviation], axis=1)


@computation("vector", ins=("data",))
def bn_aggr(dst: Array, data: Array) -> Array:
    """Mean and variance of what ``bn_stats`` counted, over one or more of its results."""
    values = real(rows(data))
    if values.shape[1] % 3:
        raise ValueError(f"data of shape {data.shape} has no whole triples of count, mean and variance times count")
    counts, means, deviations = (values[:, i::3] for i in range(3))
    total = fold("add", counts.T)
    mean = fold("add", (counts * means).T) / total
    variance = fold("add", (deviations + counts * (means - mean[:, None]) ** 2).T) / total
    return fit("statistics of data", np.stack([mean, variance], axis=1), dst)


def _one(name: str, op: str, array: Array) -> Array:
    """``array`` as ``op`` computes with it: raw bits, or real numbers."""
    if op not in BITVEC:
        return real(array)
    if not is_integer(array):
        raise ValueError(f"op {op} needs integers, but {name} has {dtype_of(array.dtype)}")
    return integers(array)


def _whole(op: str, dst: Array, *arrays: Array) -> list[Array]:
    """The arrays as ``op`` computes with them: raw bits, integers where ``dst`` is one too, or real numbers."""
    if op in BITVEC:
        return [_one(f"operand {i + 1}", op, array) for i, array in enumerate(arrays)]
    if not all(map(is_integer, (dst, *arrays))):
        return list(map(real, arrays))
    common = functools.reduce(np.promote_types, (integers(array).dtype for array in (dst, *arrays)))
    return [integers(array).astype(common if common.kind in "iu" else np.int64) for array in arrays]


def _with_scalar(data: Array, op: str, name: str, value: Operand | None, reverse: bool) -> Array:
    if op in UNARY:
        return UNARY[op](data)
    if value is None:
        raise ValueError(f"{name} is missing")
    if op in BITVEC:
        bits = value if isinstance(value, np.ndarray) else np.full((data.shape[0], 1), value)
        value = _one(name, op, bits).astype(data.dtype)
    return apply(op, data, column(name, value, data), reverse)
