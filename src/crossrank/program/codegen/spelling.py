"""Types, constants and texts of the dialect as C++ has them."""

from __future__ import annotations

import math
from typing import Any, cast

from xdsl.dialects.builtin import FloatAttr, IndexType, IntegerAttr, IntegerType
from xdsl.ir import Attribute

from crossrank.collective.dtypes import DType
from crossrank.errors import InputError
from crossrank.program.types import (
    ANY_TENSOR,
    DTYPE_NAMES,
    ArrayType,
    CommCtxType,
    ShapedType,
    TileType,
    element_of,
    is_float,
    spelled,
)

_ELEMENTS = {
    "pred": "bool",
    "f16": "cr::Half",
    "bf16": "cr::Brain",
    "f32": "float",
    "f64": "double",
    **{f"s{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}_t" for bits in (8, 16, 32, 64)},
}


def element_type(dtype: DType) -> str:
    """The type of an element.

    Raises:
        InputError: kernels have no such elements.
    """
    try:
        return _ELEMENTS[dtype.name]
    except KeyError:
        raise InputError(
            f"kernels have no elements of {spelled(dtype)}", f"they have {', '.join(DTYPE_NAMES.values())}"
        ) from None


def value_type(type: Attribute) -> str:
    """The type of a value."""
    if isinstance(type, (TileType, ArrayType)):
        return f"cr::Tile<{element_type(type.dtype)}, {len(type.shape)}>"
    if isinstance(type, ANY_TENSOR):
        return f"cr::View<{element_type(type.dtype)}, {len(cast(ShapedType, type).shape)}>"
    if isinstance(type, CommCtxType):
        return "CommContext*"
    return element_type(element_of(type))


def unsigned_type(type: Attribute) -> str:
    """The type without a sign that is as wide as an integer's."""
    return f"u{value_type(type)}" if value_type(type) != "bool" else "bool"


def literal(value: Attribute) -> str:
    """A constant."""
    if isinstance(value, IntegerAttr):
        return integer(value.value.data, value.type)
    assert isinstance(value, FloatAttr)
    return real(value.value.data, value.type)


def integer(value: int, type: IntegerType | IndexType) -> str:
    """An integer; of one bit it is a truth."""
    if isinstance(type, IntegerType) and type.width.data == 1:
        return "true" if value else "false"
    if value == -(1 << 63):
        return "INT64_MIN"
    return str(value)


def real(value: float, type: Attribute) -> str:
    """A float, rounded to its type."""
    dtype = element_of(type)
    assert is_float(type)
    assert dtype.numpy is not None
    rounded = float(cast(Any, dtype.numpy).type(value))
    if math.isnan(rounded):
        text = '__builtin_nan("")'
    elif math.isinf(rounded):
        text = "-__builtin_inf()" if rounded < 0 else "__builtin_inf()"
    else:
        text = f"{rounded!r}f" if dtype.bits <= 32 else repr(rounded)
    return f"{element_type(dtype)}({text})" if dtype.bits == 16 or not math.isfinite(rounded) else text


def quoted(text: str) -> str:
    """A text between quotes."""
    plain = "".join(c if " " <= c <= "~" else "?" for c in text)
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'
