"""Arrays of all ranks: read from an ``.npz``, saved in one, drawn from a seed."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from crossrank.collective.dtypes import DType
from crossrank.errors import InputError, RunError

Array = npt.NDArray[Any]

FLOAT_SCALE = 0.1
INTEGERS_BELOW = 8
WORTH_ASKING = 1 << 24
"""Bytes below which nobody asks how much memory is free."""


def load_arrays(path: str) -> dict[str, Array]:
    """All arrays of an ``.npz``; InputError where it is none."""
    try:
        with np.load(Path(path), allow_pickle=False) as data:
            return {k: data[k] for k in data.files}
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile, AttributeError):
        raise InputError(
            f"{path} is no .npz of arrays",
            "save it with numpy.savez(path, p0=…, p1=…), what a program is given under its parameters' names",
        ) from None


def save_arrays(path: str | Path, arrays: dict[str, Array]) -> None:
    """Write an ``.npz``; types that NumPy has no word for go as their bits. InputError where that fails."""
    builtin = 1
    plain = {k: a if a.dtype.isbuiltin == builtin else a.view(f"u{a.dtype.itemsize}") for k, a in arrays.items()}
    try:
        with open(path, "wb") as file:  # under exactly that name: NumPy would add a suffix
            np.savez(file, **plain)  # type: ignore[arg-type]
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def by_rank(
    arrays: dict[str, Array], key: str, dims: Sequence[int], dtype: DType, world: int, path: str
) -> list[Array]:
    """The array ``key`` of the file ``path``, for each of ``world`` ranks: ``[ranks, …]``, or the same for all.

    Raises:
        InputError: it is not there, or has another shape or type (one that NumPy has no word for may come as its bits).
    """
    shape, wanted = tuple(dims), f"{dtype.name}[{','.join(map(str, dims))}]"
    if key not in arrays:
        raise InputError(
            f"{path} has no {key}, a {wanted}", "the keys are p0, p1, …, each [ranks, …] or the same for all"
        )
    array = _as_dtype(arrays[key], dtype)
    if array is None:
        raise InputError(f"{path}: {key} is {arrays[key].dtype}, not {wanted}")
    if array.shape == (world, *shape):
        return [np.ascontiguousarray(array[r]).reshape(shape) for r in range(world)]
    if array.shape == shape:
        return [np.ascontiguousarray(array).reshape(shape)] * world
    raise InputError(f"{path}: {key} has shape {list(array.shape)}, not {[world, *shape]} or {list(shape)} ({wanted})")


def _as_dtype(array: Array, dtype: DType) -> Array | None:
    """The array as that type, its bits read anew where numpy has no word for it; None where it is another type."""
    if dtype.numpy is None:
        return None
    if array.dtype == dtype.numpy:
        return array
    bits = array.dtype.kind in "uV" and array.dtype.itemsize == dtype.numpy.itemsize
    if bits and dtype.numpy.type.__module__.startswith(ml_dtypes.__name__):
        return array.view(dtype.numpy)
    return None


def check_room(size: int, what: str) -> None:
    """RunError where ``size`` bytes are more than this machine has free: the system would end us, or make it wait."""
    if size >= WORTH_ASKING and size > (free := _free_memory()):
        raise RunError(f"{what} takes {size / 2**30:.1f} GiB of memory, and {free / 2**30:.1f} are free")


def _free_memory() -> int:
    """Bytes of memory that are free, or can be."""
    try:
        found = re.search(r"MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        found = None
    return 1024 * int(found[1]) if found else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def draw(rng: np.random.Generator, dims: Sequence[int], dtype: DType, below: int = INTEGERS_BELOW) -> Array:
    """Floats normal with deviation 0.1, predicates, integers from 0 up and ``below`` a bound."""
    if dtype.numpy is None:
        raise InputError(f"there are no values of type {dtype.name} here")
    shape = tuple(dims)
    if dtype.name == "pred":
        values: Array = rng.random(shape) < 0.5
    elif dtype.is_complex:
        values = rng.normal(0, FLOAT_SCALE, shape) + 1j * rng.normal(0, FLOAT_SCALE, shape)
    elif dtype.is_float:
        values = rng.normal(0, FLOAT_SCALE, shape)
    else:
        limit = min(below, 1 << (dtype.bits - (1 if dtype.is_signed else 0)))
        values = rng.integers(0, max(1, limit), shape)
    return np.asarray(values).astype(dtype.numpy)
