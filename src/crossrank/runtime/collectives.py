"""One collective of one group over NumPy arrays, by the kernels where they serve it, else by its NumPy meaning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crossrank.collective.dtypes import dtype_of
from crossrank.collective.kinds import Kind
from crossrank.collective.pairs import SourceTargetPairs
from crossrank.collective.semantics import Collective, evaluate_group
from crossrank.kernels import Variant, has_kernel
from crossrank.runtime.threads import run_bodies, run_variant

Array = npt.NDArray[Any]


def run_collective(
    collective: Collective, members: Sequence[Sequence[Array]], *, limit: float = 60.0, flush_subnormals: bool = False
) -> list[list[Array]]:
    """The results of one group; bit for bit what `collective.semantics.evaluate_group` gives, in parallel.

    Args:
        collective: what to compute; pairs are positions in the group.
        members: each member's operands, in group order; untouched.
        limit: seconds that a member of a ragged exchange may wait for another.
        flush_subnormals: take subnormal numbers for zero, as XLA:CPU does, where kernels compute.
    """
    if not _served(collective, members):
        return evaluate_group(collective, members)
    if collective.kind is Kind.RAGGED_ALL_TO_ALL:
        return _ragged(members, limit)
    by_operand = [
        _one(collective, [np.ascontiguousarray(a) for a in inputs], flush_subnormals)
        for inputs in zip(*members, strict=True)
    ]
    return [[results[i] for results in by_operand] for i in range(len(members))]


def _served(collective: Collective, members: Sequence[Sequence[Array]]) -> bool:
    """Whether kernels compute it: all members' operands fit each other, and there is a kernel for each."""
    if len({tuple((a.shape, a.dtype) for a in operands) for operands in members}) != 1 or not members[0]:
        return False  # the meaning says what is wrong
    kind = collective.kind
    if kind is Kind.ALL_TO_ALL and collective.dim is None:
        return False
    moved = members[0][:1] if kind is Kind.RAGGED_ALL_TO_ALL else members[0]  # the others are its tables
    if not all(a.size and has_kernel(kind, collective.reduce_op, dtype_of(a.dtype)) for a in moved):
        return False
    dims = [d for d in (collective.dim, collective.concat_dim) if d is not None]
    if any(not 0 <= d < a.ndim for d in dims for a in members[0]):
        return False
    splits = kind in (Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL)
    return not (splits and any(a.shape[collective.dim or 0] % len(members) for a in members[0]))


def _one(collective: Collective, inputs: Sequence[Array], flush_subnormals: bool) -> list[Array]:
    kind, dim, count = collective.kind, collective.dim or 0, len(inputs)
    shape = list(inputs[0].shape)
    if kind is Kind.ALL_GATHER:
        shape[dim] *= count
    elif kind is Kind.REDUCE_SCATTER:
        shape[dim] //= count
    results = [np.empty(shape, inputs[0].dtype) for _ in inputs]
    slots = [_views(arrays, collective.dim, bytes_only=not kind.reduces) for arrays in (inputs, results)]
    if kind is Kind.COLLECTIVE_PERMUTE:
        sources = SourceTargetPairs(collective.pairs)
        wanted = [sources.source_of(n) for n in range(count)]
        slots.append([np.array([-1 if s is None else s for s in wanted], np.int32)] * count)
    variant = Variant(kind, collective.reduce_op, dtype_of(inputs[0].dtype) if kind.reduces else None)
    run_bodies(variant, *slots, flush_subnormals=flush_subnormals)
    if kind is Kind.ALL_TO_ALL and collective.concat_dim not in (None, dim):
        return [np.concatenate(np.split(r, count, axis=dim), axis=collective.concat_dim) for r in results]
    return results


def _views(arrays: Sequence[Array], dim: int | None, *, bytes_only: bool) -> list[Array]:
    """``[outer, dim, inner]`` views, which is how a dimension reaches a kernel."""
    first = arrays[0]
    outer, extent, inner = 1, first.size, 1
    if dim is not None:
        outer, extent, inner = math.prod(first.shape[:dim]), first.shape[dim], math.prod(first.shape[dim + 1 :])
    if not bytes_only:
        return [a.reshape(outer, extent, inner) for a in arrays]
    return [a.reshape(-1).view(np.uint8).reshape(outer, extent, inner * first.itemsize) for a in arrays]


def _ragged(members: Sequence[Sequence[Array]], limit: float) -> list[list[Array]]:
    results = [np.empty_like(operands[1]) for operands in members]
    rows = [
        [np.ascontiguousarray(a).reshape(-1).view(np.uint8).reshape(len(a), 1, -1) for a in arrays]
        for arrays in ([m[0] for m in members], [m[1] for m in members], results)
    ]
    tables = [[np.ascontiguousarray(m[k]).reshape(-1, 1, 1) for m in members] for k in range(2, 6)]
    run_variant(Variant(Kind.RAGGED_ALL_TO_ALL), *rows[:2], *tables, rows[2], limit=limit)
    return [[r] for r in results]
