"""What every computation does alike with its arrays: how shapes must fit, and how values change their type.

On-chip arrays are ``[partition, free...]``. An input and an output of an element-wise computation have the same number
of partitions and of elements in each; how the free dims are cut does not matter.

A cast rounds to the nearest even. From a float to an integer it truncates toward zero, stops at the ends of the range
and makes 0 of NaN (as XLA's convert does; NKI's public texts do not say). Between integers it keeps the low bits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from crossrank.collective.dtypes import F64, PRED, dtype_of

Array = npt.NDArray[Any]
Operand = Array | float
"""A tensor, or the number that stands in its place."""


def is_integer(array: Array) -> bool:
    """Whether its elements are integers; a bool is one, of a byte."""
    kind = dtype_of(array.dtype)
    return kind.is_integer or kind == PRED


def real(array: Array) -> Array:
    """Its values as the engines compute with them: f32, but f64 stays f64."""
    return array if dtype_of(array.dtype) == F64 else array.astype(np.float32)


def integers(array: Array) -> Array:
    """Its values in a dtype that NumPy computes with in full: bool and sub-byte integers take a byte."""
    kind = dtype_of(array.dtype)
    if kind == PRED or (kind.bits < 8 and not kind.is_signed):
        return array.astype(np.uint8)
    return array.astype(np.int8) if kind.bits < 8 else array


def cast(array: Array, dtype: np.dtype[Any]) -> Array:
    """A copy of ``array`` in ``dtype``."""
    if array.dtype == dtype:
        return array.copy()
    kind = dtype_of(dtype)
    if kind == PRED:
        return np.not_equal(array, np.zeros((), array.dtype))
    if is_integer(array):
        return integers(array).astype(dtype) if kind.is_integer or kind == F64 else real(array).astype(dtype)
    return _to_integers(array, kind.bits, kind.is_signed).astype(dtype) if kind.is_integer else array.astype(dtype)


def _to_integers(array: Array, bits: int, signed: bool) -> Array:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    whole = np.trunc(np.nan_to_num(array.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
    over, under = whole >= high + 1, whole < low
    result = np.where(over | under, 0, whole).astype(np.int64 if signed else np.uint64)
    result[over], result[under] = high, low
    return result


def moved(array: Array, dtype: np.dtype[Any]) -> Array:
    """Its values as a copy brings them: bit for bit where the dtype stays, through f32 where it changes."""
    return cast(array if array.dtype == dtype or dtype_of(dtype) == F64 else real(array), dtype)


def fit(name: str, array: Array, like: Array) -> Array:
    """``array`` in the shape of ``like``, partition by partition; ValueError where they differ in size."""
    if array.shape[:1] != like.shape[:1]:
        raise ValueError(f"{name} of shape {array.shape} does not fit {like.shape}: not as many partitions")
    return fit_size(name, array, like)


def fit_size(name: str, array: Array, like: Array) -> Array:
    """``array`` in the shape of ``like``, in row-major order; ValueError where they differ in size."""
    if array.size != like.size:
        raise ValueError(f"{name} of shape {array.shape} does not fit {like.shape}: not as many elements")
    return array.reshape(like.shape)


def rows(array: Array) -> Array:
    """``[partition, all free dims in one]``."""
    return array.reshape(array.shape[0], math.prod(array.shape[1:]))


def column(name: str, value: Operand, data: Array) -> Array:
    """A ``[P, 1]`` operand or a number, in the dtype of ``data``, ready to broadcast over its free dims."""
    if not isinstance(value, np.ndarray):
        return np.asarray(value, data.dtype)
    if value.shape[:1] != data.shape[:1] or value.size != data.shape[0]:
        raise ValueError(f"{name} of shape {value.shape} does not fit {data.shape}: not one element per partition")
    return (value if value.dtype == data.dtype else real(value)).reshape(-1, *[1] * (data.ndim - 1))
