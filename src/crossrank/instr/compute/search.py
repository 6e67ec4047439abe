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
