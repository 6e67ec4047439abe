"""Computations that look for values in each partition. Values are compared as numbers; NaN is equal to nothing."""

from __future__ import annotations

import numpy as np

from crossrank.instr.compute.registry import computation
from crossrank.instr.compute.values import Array, cast, fit, integers, is_integer, moved, real, rows


@computation("vector", ins=("src",))
def max8(dst: Array, src: Array) -> Array:
    """The 8 largest values in descending order; NaN is larger than all."""
    values = real(rows(src))
    if values.shape[1] < 8:
        raise ValueError(f"src of shape {src.shape} has fewer than 8 elements per partition")
    return fit("the 8 largest of src", np.sort(values, axis=1)[:, :-9:-1], dst)


@computation("vector", ins=("data", "vals"))
def nc_find_index8(dst: Array, data: Array, vals: Array) -> Array:
    """Where each of 8 values stands in ``data``; all bits are set where it does not.

    A value that is sought n times is found in its first n places.
    """
    places = _find8(data, vals)
    absent = np.uint64(np.iinfo(np.uint64).max) if is_integer(dst) else np.uint64(0xFFFFFFFF)
    return fit("indices of vals", np.where(places < 0, absent, places.astype(np.uint64)), dst)


@computation("vector", outs=("dst", "dst_idx"), ins=("data", "vals"))
def nc_match_replace8(
    dst: Array, data: Array, vals: Array, imm: float, dst_idx: Array | None = None
) -> tuple[Array, Array | None]:
    """``data`` with ``imm`` in place of what ``nc_find_index8`` finds, and these indices."""
    places = _find8(data, vals)
    result = moved(rows(data), dst.dtype)
    partitions, which = np.nonzero(places >= 0)
    result[partitions, places[partitions, which]] = cast(np.full(1, imm, np.float32), dst.dtype)
    found = None if dst_idx is None else nc_find_index8(dst_idx, data, vals)
    return fit("data", result, dst), found


def _find8(data: Array, vals: Array) -> Array:
    """The index of each value in its partition, -1 where it is not: ``[P, 8]``."""
    if vals.shape[:1] != data.shape[:1] or rows(vals).shape[1] != 8:
        raise ValueError(f"vals of shape {vals.shape} does not fit {data.shape}: not 8 elements per partition")
    whole = is_integer(data) and is_integer(vals)
    where, sought = (integers(rows(x)).astype(np.int64) if whole else real(rows(x)) for x in (data, vals))
    result = np.full(sought.shape, -1, np.int64)
    for i in range(8):
        value = sought[:, i : i + 1]
        before = (sought[:, :i] == value).sum(axis=1, keepdims=True)
        hits = where == value
        hits &= np.cumsum(hits, axis=1, dtype=np.int32) == before + 1
        result[:, i] = np.where(hits.any(axis=1), hits.argmax(axis=1), -1)
    return result


@computation("gpsimd", ins=("src",))
def nonzero_with_count(dst: Array, src: Array, index_offset: int = 0, padding_val: int = -1) -> Array:
    """Where the first of each 16 partitions is not 0, on from ``index_offset``; then padding, and last their number."""
    values, result = rows(src), rows(dst).copy()
    if len(values) != len(result) or result.shape[1] != values.shape[1] + 1:
        raise ValueError(f"dst of shape {dst.shape} does not fit src of shape {src.shape}: it has one element more")
    for partition in range(0, len(values), 16):
        found = np.flatnonzero(np.not_equal(values[partition], 0))
        result[partition] = padding_val
        result[partition, : len(found)] = found + index_offset
        result[partition, -1] = len(found)
    return result.reshape(dst.shape)
