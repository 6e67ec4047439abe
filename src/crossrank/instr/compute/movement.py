"""Computations that bring elements somewhere: copies, fills, selections, transposes, gathers."""

from __future__ import annotations

from typing import Any

import numpy as np

from crossrank.instr.compute.alu import BINARY, fold_free
from crossrank.instr.compute.registry import computation
from crossrank.instr.compute.values import Array, Operand, cast, column, fit, fit_size, moved, real, rows

_DMA_HINTS = ("priority", "oob_mode", "dge_mode")
_FP32_MIN = float(np.finfo(np.float32).min)

Pattern = tuple[tuple[int, int], ...]


@computation("dma", ins=("src",), hints=_DMA_HINTS)
def dma_copy(dst: Array, src: Array) -> Array:
    """``src``, of as many elements as ``dst``, in row-major order."""
    return fit_size("src", moved(src, dst.dtype), dst)


@computation("vector", ins=("src",))
def tensor_copy(dst: Array, src: Array) -> Array:
    """``src``, partition by partition."""
    return fit("src", moved(src, dst.dtype), dst)


@computation("vector", ins=())
def memset(dst: Array, value: float) -> Array:
    """``value`` everywhere; an integer that ``dst`` cannot hold keeps its low bits."""
    filler = np.asarray(value)
    if filler.dtype.kind == "f":
        filler = filler.astype(np.float64 if dst.dtype == np.float64 else np.float32)
    return np.full(dst.shape, cast(filler.reshape(1), dst.dtype), dst.dtype)


@computation("dma", ins=())
def constant(dst: Array, values: tuple[float, ...]) -> Array:
    """These numbers, in row-major order."""
    return fit_size("values", cast(np.asarray(values), dst.dtype), dst)


@computation("vector", ins=("src", "predicate"))
def tensor_copy_predicated(dst: Array, src: Operand, predicate: Array, reverse_pred: bool = False) -> Array:
    """``src``, a tensor or a number, where ``predicate`` is not 0; what was there elsewhere."""
    chosen = (fit("predicate", predicate, dst) != 0) ^ reverse_pred
    source = fit("src", moved(src, dst.dtype), dst) if isinstance(src, np.ndarray) else memset(dst, src)
    return np.where(chosen, source, dst)


@computation("vector", outs=("dst", "reduce_res"), ins=("predicate", "on_true", "on_false"))
def select_reduce(
    dst: Array,
    predicate: Array,
    on_true: Array,
    on_false: Operand,
    reduce_res: Array | None = None,
    reduce_op: str = "maximum",
    reduce_cmd: str = "idle",
    reverse_pred: bool = False,
) -> tuple[Array, Array | None]:
    """``on_true`` where ``predicate`` is not 0, else ``on_false``: a number, or one for each partition."""
    chosen = (fit("predicate", predicate, dst) != 0) ^ reverse_pred
    values = real(fit("on_true", on_true, dst))
    result = np.where(chosen, values, column("on_false", on_false, values))
    return result, reduced(reduce_res, reduce_op, reduce_cmd, result)


@computation("vector", outs=("dst", "reduce_res"), ins=("on_true_tile", "bound0", "bound1"))
def range_select(
    dst: Array,
    on_true_tile: Array,
    bound0: Array,
    bound1: Array,
    comp_op0: str,
    comp_op1: str,
    reduce_res: Array | None = None,
    reduce_op: str = "maximum",
    reduce_cmd: str = "reset_reduce",
    range_start: int = 0,
    on_false_value: float = _FP32_MIN,
) -> tuple[Array, Array | None]:
    """Elements whose place in the partition, from ``range_start`` on, compares true with both bounds; else a number."""
    values = real(fit("on_true_tile", on_true_tile, dst))
    places = np.arange(range_start, range_start + rows(values).shape[1]).astype(values.dtype).reshape(1, *dst.shape[1:])
    chosen = np.ones(dst.shape, bool)
    for name, op, bound in (("bound0", comp_op0, bound0), ("bound1", comp_op1, bound1)):
        chosen &= BINARY[op](places, column(name, bound, values)) != 0
    result = np.where(chosen, values, np.asarray(on_false_value, values.dtype))
    return result, reduced(reduce_res, reduce_op, reduce_cmd, result)


def reduced(out: Array | None, op: str | None, cmd: str, values: Array) -> Array | None:
    """What a reduction of ``values`` along all free dims writes to its ``[P, 1]`` output, where there is one."""
    if out is None:
        return None
    if op is None or cmd == "idle":
        raise ValueError("reduce_res needs a reduce_op, and reduce_cmd reset_reduce")
    return fit("reduce_res", fold_free(op, values)[:, None], out)


@computation("gpsimd", ins=())
def iota(dst: Array, pattern: Pattern, offset: int = 0, channel_multiplier: int = 0) -> Array:
    """``offset + partition * channel_multiplier + sum of index * step``, in int32; ``pattern`` has (step, number)."""
    place = np.arange(dst.shape[0], dtype=np.int64)[:, None] * channel_multiplier + offset
    for step, number in pattern:
        place = (place[:, :, None] + np.arange(number, dtype=np.int64) * step).reshape(dst.shape[0], -1)
    return fit("pattern", place.astype(np.int32), dst)


@computation("gpsimd", ins=("on_true_tile",))
def affine_select(
    dst: Array,
    on_true_tile: Array,
    pattern: Pattern,
    channel_multiplier: int,
    on_false_value: float,
    cmp_op: str = "equal",
    offset: int = 0,
) -> Array:
    """Elements whose value of ``iota`` compares true with 0, else ``on_false_value``."""
    place = iota(np.empty(dst.shape, np.int32), pattern, offset, channel_multiplier)
    chosen = BINARY[cmp_op](place, np.zeros_like(place)) != 0
    return np.where(
        chosen, fit("on_true_tile", moved(on_true_tile, dst.dtype), dst), memset(dst, float(on_false_value))
    )


@computation("tensor", ins=("data",))
def nc_transpose(dst: Array, data: Array) -> Array:
    """The partition dim against all free dims, taken as one."""
    return fit("transposed data", moved(rows(data).T, dst.dtype), dst)


_AXES = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}


@computation("dma", ins=("src",), hints=_DMA_HINTS)
def dma_transpose(dst: Array, src: Array, axes: tuple[int, ...] | None = None) -> Array:
    """Dim i of the result is dim ``axes[i]`` of ``src``; by default all reversed, of four the outer two exchanged."""
    order = axes or _AXES.get(src.ndim, ())
    if sorted(order) != list(range(src.ndim)) or src.ndim not in _AXES:
        raise ValueError(f"axes {order} are no order of the dims of src of shape {src.shape}")
    return fit("transposed src", moved(src.transpose(order), dst.dtype), dst)


@computation("vector", ins=("src",))
def nc_stream_shuffle(dst: Array, src: Array, shuffle_mask: tuple[int, ...]) -> Array:
    """In each 32 partitions, partition i gets partition ``shuffle_mask[i]`` of the same 32; with 255 it stays."""
    if len(shuffle_mask) != 32 or not all(0 <= entry < 32 or entry == 255 for entry in shuffle_mask):
        raise ValueError("shuffle_mask must have 32 entries, each 0 to 31 or 255")
    source, result = moved(rows(src), dst.dtype), rows(dst).copy()
    if source.shape[1] != result.shape[1]:
        raise ValueError(f"src of shape {src.shape} does not fit {dst.shape}: not as many elements per partition")
    for partition in range(dst.shape[0]):
        entry = shuffle_mask[partition % 32]
        origin = partition - partition % 32 + entry
        if entry != 255:
            if origin >= src.shape[0]:
                raise ValueError(f"shuffle_mask takes partition {origin} of src of shape {src.shape}")
            result[partition] = source[origin]
    return result.reshape(dst.shape)


@computation("gpsimd", ins=("data", "indices"))
def nc_n_gather(dst: Array, data: Array, indices: Array) -> Array:
    """In each partition the elements at ``indices``, counted over all free dims."""
    picked = rows(fit("indices", indices, dst)).astype(np.int64)
    _check_indices("indices", picked, "data", data)
    return np.take_along_axis(moved(rows(data), dst.dtype), picked, axis=1).reshape(dst.shape)


@computation("gpsimd", ins=("src_buffer", "index"))
def local_gather(
    dst: Array, src_buffer: Array, index: Array, num_elem_per_idx: int = 1, num_valid_indices: int | None = None
) -> Array:
    """In each 16 partitions, all gather ``num_elem_per_idx`` elements from each index that these 16 have, on.

    The indices count elements and are read down the partitions first.
    """
    source, picks = moved(rows(src_buffer), dst.dtype), rows(index).astype(np.int64)
    if len(source) % 16 or len(source) != len(picks):
        raise ValueError(f"index of shape {index.shape} does not fit {src_buffer.shape}: 16 partitions gather together")
    result = []
    for first in range(0, len(source), 16):
        starts = picks[first : first + 16].T.reshape(-1)[:num_valid_indices]
        places = (starts[:, None] + np.arange(num_elem_per_idx)).reshape(-1)
        _check_indices("index", places, "src_buffer", src_buffer)
        result.append(source[first : first + 16, places])
    return fit("gathered src_buffer", np.concatenate(result), dst)


def _check_indices(name: str, places: np.ndarray[Any, Any], source_name: str, source: Array) -> None:
    if places.size and not 0 <= places.min() <= places.max() < rows(source).shape[1]:
        raise ValueError(f"{name} lies outside {source_name} of shape {source.shape}")
