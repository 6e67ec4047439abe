"""The numbers of constants, as NumPy arrays.

A literal keeps its numbers in the order of its layout, in one field for each element type: a list of numbers for some,
bytes (little-endian) for the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from crossrank.collective.dtypes import DType, dtype_of
from crossrank.hlo.shape import Shape

Array = npt.NDArray[Any]

_NUMBERS = {"pred": "preds", "s32": "s32s", "s64": "s64s", "u32": "u32s", "u64": "u64s", "f32": "f32s", "f64": "f64s"}
_PARTS = {"c64": "c64s", "c128": "c128s"}
_BYTES = {"s8": "s8s", "u8": "u8s", "s16": "s16s", "u16": "u16s", "f16": "f16s", "bf16": "bf16s"}


def has_literal(dtype: DType) -> bool:
    """Whether constants of that type can be read and written here."""
    return dtype.name in _NUMBERS or dtype.name in _PARTS or dtype.name in _BYTES


def read_literal(proto: Any) -> Array | None:
    """The array in a ``Literal`` message, in logical order; None where its type or its numbers are not there."""
    shape = Shape.read(proto.shape)
    name = shape.dtype.name
    if not has_literal(shape.dtype) or shape.dtype.numpy is None:
        return None
    if name in _BYTES:
        flat: Array = np.frombuffer(getattr(proto, _BYTES[name]), shape.dtype.numpy)
    elif name in _PARTS:
        parts = np.array(getattr(proto, _PARTS[name]), np.float32 if name == "c64" else np.float64)
        flat = parts.view(shape.dtype.numpy)
    else:
        flat = np.array(getattr(proto, _NUMBERS[name]), shape.dtype.numpy)
    if flat.size != shape.count:
        return None
    if shape.row_major:
        return flat.reshape(shape.dims)
    order = tuple((shape.layout or ())[::-1])
    physical = flat.reshape([shape.dims[d] for d in order])
    return physical.transpose([order.index(d) for d in range(len(order))])


def write_literal(proto: Any, values: Array) -> None:
    """Put an array into an (emptied) ``Literal`` message, row-major; ValueError for a type without a field here."""
    dtype = dtype_of(values.dtype)
    if not has_literal(dtype):
        raise ValueError(f"there are no constants of type {dtype} here")
    proto.Clear()
    Shape(dtype).with_dims(values.shape).write(proto.shape)
    flat = np.ascontiguousarray(values).reshape(-1)
    name = dtype.name
    if name in _BYTES:
        setattr(proto, _BYTES[name], flat.tobytes())
    elif name in _PARTS:
        getattr(proto, _PARTS[name]).extend(flat.view(np.float32 if name == "c64" else np.float64).tolist())
    else:
        getattr(proto, _NUMBERS[name]).extend(flat.tolist())
