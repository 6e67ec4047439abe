"""What a kernel's file expects, made comparable with what the kernel gave: nothing reshaped, nothing lost in a cast."""

from __future__ import annotations

import numpy as np

from crossrank.arrays import Array
from crossrank.collective.dtypes import DType, dtype_of
from crossrank.errors import InputError, counted
from crossrank.instr.files import ByRank, KernelFile


def as_returned(file: KernelFile, after: list[list[Array]]) -> list[list[Array]]:
    """The outputs as the kernel's Python returned them: views of their tensors."""
    forms = file.returned or ()
    seen = [[a.view(dtype).reshape(shape) for a in after[n]] for n, (shape, dtype) in enumerate(forms)]
    return [*seen, *after[len(forms) :]]


def by_output(file: KernelFile, expected: ByRank, after: list[list[Array]], written: int) -> dict[int, list[Array]]:
    """What is expected, by output: in its type, or floats in one that holds what was given."""
    least = len(after) - written
    columns: dict[int, list[Array]] = {}
    for rank, arrays in enumerate(expected):
        if not least <= len(arrays) <= len(after) or len(arrays) != len(expected[0]):
            wanted = counted(least, "output") + (f" and writes {written} of its inputs" if written else "")
            raise InputError(
                f"{file.path}: expected() gives {counted(len(arrays), 'array')} for rank {rank}, "
                f"and the kernel gives {wanted}"
            )
        for n, array in enumerate(arrays):
            like = after[n][rank]
            what = f"{file.path}: expected() gives {array.dtype}{list(array.shape)} for output {n} of rank {rank}"
            if array.shape != like.shape:
                raise InputError(f"{what}, and the kernel gives {like.dtype}{list(like.shape)}", "give it that shape")
            columns.setdefault(n, []).append(_comparable(array, like, what))
    return columns


def _comparable(array: Array, like: Array, what: str) -> Array:
    """What is expected of an output, nothing lost: integers and predicates in its type, floats in that or a wide one.

    Raises:
        InputError: it is no number, or one that such an output cannot be.
    """
    given, wanted = _dtype(array), _dtype(like)
    if given is None:
        raise InputError(f"{what}: not numbers", "give arrays of numbers, as the kernel does")
    if given is wanted:
        return array
    if given.is_complex and not (wanted is not None and wanted.is_complex):
        raise InputError(f"{what}, and the kernel gives {like.dtype}", "give real numbers")
    if wanted is not None and wanted.is_complex:
        return array.astype(np.complex128)
    if wanted is not None and wanted.is_float:
        return array.astype(np.float64)
    with np.errstate(invalid="ignore"):
        held = array.astype(like.dtype)
    lost = [a for a, b in zip(array.ravel().tolist(), held.ravel().tolist(), strict=True) if a != b]
    if lost:
        raise InputError(f"{what}, and in it {lost[0]}, which {like.dtype} cannot be")
    return held


def _dtype(array: Array) -> DType | None:
    """The element type; None where it is none of ours."""
    try:
        return dtype_of(array.dtype)
    except ValueError:
        return None
