"""Run a compiled kernel on ranks that are threads of this process, over NumPy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy.typing as npt

from crossrank.collective.dtypes import dtype_of
from crossrank.errors import RunError
from crossrank.kernels import Variant, compile_variants
from crossrank.kernels.compile import load
from crossrank.runtime.library import library

Array = npt.NDArray[Any]


class Tensor(ctypes.Structure):
    """One argument of one rank, as ``crossrank/abi.h`` lays it out."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
    )

    @classmethod
    def of(cls, array: Array) -> Tensor:
        """The tensor that is ``array``, which must stay alive as long as it."""
        extents = (ctypes.c_int64 * array.ndim)(*array.shape)
        strides = (ctypes.c_int64 * array.ndim)(*(s // array.itemsize for s in array.strides))
        return cls(array.ctypes.data, extents, strides, dtype_of(array.dtype).number, array.ndim)


_GIVEN_UP, _BAD_ROWS, _PEER_FAILED, _RUNNING = 1, 3, 4, -1  # as abi.h has them
_abandoned: list[object] = []  # arguments of threads that did not come back: their memory must stay


_loaded = cache(load)


def entry(path: Path, symbol: str) -> int:
    """The address of a function that a kernel's library exports."""
    address = ctypes.cast(getattr(_loaded(path), symbol), ctypes.c_void_p).value
    assert address is not None
    return address


def run_entry(
    address: int,
    arguments: Sequence[Sequence[Array]],
    *,
    limit: float = 60.0,
    stream_above: int | None = None,
    staged: bool = False,
) -> None:
    """Call a kernel once on every rank of one group, each on a thread of its own.

    Args:
        address: the kernel's entry, ``int32_t (*)(const Slot*)``.
        arguments: for each rank, in group order, the arrays in its slots, which may be changed; as many on each.
        limit: seconds after which nobody waits for a peer any more.
        stream_above: bytes moved from which stores go past the caches; what suits this machine if None.
        staged: let no rank reach a peer's memory, so that each access is a checked call of the fabric.

    Raises:
        RunError: a rank gave up, failed, or did not come back.
    """
    ranks, slots = len(arguments), len(arguments[0])
    if any(len(mine) != slots for mine in arguments):
        raise ValueError("the ranks have different numbers of arguments")
    run = library().crossrank_run_threads
    run.argtypes = [
        *(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.POINTER(Tensor)),
        *(ctypes.c_uint64, ctypes.c_double, ctypes.c_int32, ctypes.POINTER(ctypes.c_int32)),
    ]
    run.restype = ctypes.c_uint32
    tensors = (Tensor * (ranks * slots))(*(Tensor.of(a) for mine in arguments for a in mine))
    statuses = (ctypes.c_int32 * ranks)()
    above = _stream_above() if stream_above is None else stream_above
    if run(address, ranks, slots, tensors, above, limit, staged, statuses):
        _abandoned.append((tensors, arguments))
    failed = {r: s for r, s in enumerate(statuses) if s}
    failed = {r: s for r, s in failed.items() if s != _PEER_FAILED} or failed
    if failed:
        raise RunError(f"{_ranks(failed)} of {ranks} failed: {_reason(failed, limit)}")


@cache
def _entry_of(variant: Variant, which: str) -> int:
    """The address of a kernel's ``body`` or ``kernel``, compiled on first use."""
    return entry(compile_variants([variant])[variant], f"{variant.symbol}_{which}")


def run_variant(
    variant: Variant,
    *slots: Sequence[Array],
    limit: float = 60.0,
    stream_above: int | None = None,
    staged: bool = False,
) -> None:
    """Run one collective.

    Args:
        variant: which.
        slots: for each slot of the kernel (most have operand and result, ``[outer, dim, inner]`` views) the arrays of
            all ranks, in group order.
        limit: as for `run_entry`, and so the others.
    """
    arguments = list(zip(*slots, strict=True))
    run_entry(_entry_of(variant, "kernel"), arguments, limit=limit, stream_above=stream_above, staged=staged)


def run_bodies(variant: Variant, *slots: Sequence[Array], flush_subnormals: bool = False) -> None:
    """Run one collective of ranks that all lie here: bodies on the pool, and no rank that waits.

    Args:
        variant: which; not the ragged exchange, whose tables only its kernel checks.
        slots: for each slot of the kernel the arrays of all ranks, in group order, alike in shape and C-contiguous.
        flush_subnormals: take subnormal numbers for zero, as XLA:CPU does.

    Raises:
        RunError: a body failed.
    """
    run = library().crossrank_run_bodies
    run.argtypes = [
        *(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.POINTER(Tensor)),
        *(ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int32),
    ]
    run.restype = ctypes.c_int32
    body = _entry_of(variant, "body")
    size = len(slots[0])
    tensors = (Tensor * len(slots))(*(Tensor.of(arrays[0]) for arrays in slots))
    addresses = [array.__array_interface__["data"][0] for arrays in slots for array in arrays]
    peers = (ctypes.c_void_p * len(addresses))(*addresses)
    moved = sum(array.nbytes for arrays in slots for array in arrays)
    if status := run(body, size, len(slots), tensors, peers, _stream_above(), moved, flush_subnormals):
        raise RunError(f"the kernel returned {status}")


@cache
def _stream_above() -> int:
    function = library().crossrank_stream_above
    function.restype = ctypes.c_uint64
    return int(function())


def _ranks(failed: dict[int, int]) -> str:
    return f"rank{'s' if len(failed) > 1 else ''} {','.join(map(str, failed))}"


def _reason(failed: dict[int, int], limit: float) -> str:
    statuses = set(failed.values())
    if _RUNNING in statuses:
        stuck = {r: s for r, s in failed.items() if s == _RUNNING}
        return f"{_ranks(stuck)} did not return within {limit:g} s"
    if _GIVEN_UP in statuses:
        return f"waited {limit:g} s for a peer"
    if _BAD_ROWS in statuses:
        return "rows to send lie outside of an array, or are not as many as their receiver expects"
    return f"the kernel returned {max(statuses)}"
