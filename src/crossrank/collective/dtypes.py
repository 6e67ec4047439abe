"""The element types of XLA, by name, by number and by NumPy dtype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class DType:
    """One element type (or one of the four types that no array has: tuple, opaque, token, buffer).

    Attributes:
        name: as HLO text spells it.
        number: its value in XLA's ``PrimitiveType`` enum.
        bits: the bits that carry a value: 1 for pred, 4 for s4, both halves of a complex number; 0 where there is none.
        numpy: the dtype of an array of it, of ``ml_dtypes`` where NumPy has none; None where no array has it.
    """

    name: str
    number: int
    bits: int
    numpy: np.dtype[Any] | None

    @property
    def is_float(self) -> bool:
        """A real floating-point type of any width."""
        return self.name.startswith(("f", "bf"))

    @property
    def is_complex(self) -> bool:
        """c64 or c128."""
        return self.name.startswith("c")

    @property
    def is_integer(self) -> bool:
        """An integer of any width; pred is none."""
        return self.name[0] in "su" and self.name[1:].isdigit()

    @property
    def is_signed(self) -> bool:
        """Whether it has negative values: signed integers, complex, and all floats but f8e8m0fnu, which has no sign."""
        return (
            self.is_complex or (self.is_float and self.name != "f8e8m0fnu") or (self.is_integer and self.name[0] == "s")
        )

    @property
    def itemsize(self) -> int:
        """The bytes that an element takes in an array: at least one, so pred and s4 take 1; 0 where no array has it."""
        return (self.bits + 7) // 8

    def holds(self, other: DType) -> bool:
        """Whether every value of ``other`` is a value of this type too: a conversion there and back changes nothing.

        Among floats only f16, bf16, f32 and f64 hold others, for they have infinities, NaN and subnormals.
        """
        if other is self:
            return True
        if self.is_complex:
            part = F32 if self is C64 else F64
            return part.holds(F32 if other is C64 else other)
        if other.name == "pred" and (self.is_integer or self.name in _FULL_FLOATS):
            return self.bits > 1
        if self.is_integer and other.is_integer:
            return (
                self.bits > other.bits
                if self.is_signed and not other.is_signed
                else (self.is_signed == other.is_signed and self.bits >= other.bits)
            )
        if self.name not in _FULL_FLOATS:
            return False
        mine = ml_dtypes.finfo(self.numpy)
        if other.is_integer:
            return bool(other.bits - other.is_signed <= mine.nmant + 1)
        if not other.is_float:
            return False
        theirs = ml_dtypes.finfo(other.numpy)
        return bool(
            mine.nmant >= theirs.nmant
            and mine.maxexp >= theirs.maxexp
            and mine.minexp - mine.nmant <= theirs.minexp - theirs.nmant
        )

    def __str__(self) -> str:
        return self.name


_FULL_FLOATS = ("f16", "bf16", "f32", "f64")


_ARRAY_TYPES: list[tuple[str, int, int, Any]] = [
    ("pred", 1, 1, np.bool_),
    ("s1", 30, 1, ml_dtypes.int1),
    ("s2", 26, 2, ml_dtypes.int2),
    ("s4", 21, 4, ml_dtypes.int4),
    ("s8", 2, 8, np.int8),
    ("s16", 3, 16, np.int16),
    ("s32", 4, 32, np.int32),
    ("s64", 5, 64, np.int64),
    ("u1", 31, 1, ml_dtypes.uint1),
    ("u2", 27, 2, ml_dtypes.uint2),
    ("u4", 22, 4, ml_dtypes.uint4),
    ("u8", 6, 8, np.uint8),
    ("u16", 7, 16, np.uint16),
    ("u32", 8, 32, np.uint32),
    ("u64", 9, 64, np.uint64),
    ("f4e2m1fn", 32, 4, ml_dtypes.float4_e2m1fn),
    ("f6e2m3fn", 36, 6, ml_dtypes.float6_e2m3fn),
    ("f6e3m2fn", 35, 6, ml_dtypes.float6_e3m2fn),
    ("f8e3m4", 29, 8, ml_dtypes.float8_e3m4),
    ("f8e4m3", 28, 8, ml_dtypes.float8_e4m3),
    ("f8e4m3b11fnuz", 23, 8, ml_dtypes.float8_e4m3b11fnuz),
    ("f8e4m3fn", 20, 8, ml_dtypes.float8_e4m3fn),
    ("f8e4m3fnuz", 25, 8, ml_dtypes.float8_e4m3fnuz),
    ("f8e5m2", 19, 8, ml_dtypes.float8_e5m2),
    ("f8e5m2fnuz", 24, 8, ml_dtypes.float8_e5m2fnuz),
    ("f8e8m0fnu", 33, 8, ml_dtypes.float8_e8m0fnu),
    ("f16", 10, 16, np.float16),
    ("bf16", 16, 16, ml_dtypes.bfloat16),
    ("f32", 11, 32, np.float32),
    ("f64", 12, 64, np.float64),
    ("c64", 15, 64, np.complex64),
    ("c128", 18, 128, np.complex128),
]

ALL: tuple[DType, ...] = (
    *(DType(name, number, bits, np.dtype(t)) for name, number, bits, t in _ARRAY_TYPES),
    *(DType(name, number, 0, None) for name, number in (("tuple", 13), ("opaque", 14), ("token", 17), ("buffer", 34))),
)
"""Every element type."""

_by_name = {t.name: t for t in ALL}
_by_number = {t.number: t for t in ALL}
_by_numpy = {t.numpy: t for t in ALL if t.numpy is not None}


def dtype(name: str) -> DType:
    """The type that HLO text calls ``name``; ValueError where there is none."""
    try:
        return _by_name[name]
    except KeyError:
        raise ValueError(f"no element type is named {name!r}") from None


def dtype_by_number(number: int) -> DType:
    """The type of that ``PrimitiveType`` number; ValueError where there is none."""
    try:
        return _by_number[number]
    except KeyError:
        raise ValueError(f"no element type has the number {number}") from None


def dtype_of(numpy_dtype: np.dtype[Any]) -> DType:
    """The type of the elements of an array of ``numpy_dtype``; ValueError where XLA has none (text, objects, dates)."""
    try:
        return _by_numpy[np.dtype(numpy_dtype)]
    except KeyError:
        raise ValueError(f"no element type is NumPy's {numpy_dtype}") from None


PRED = dtype("pred")
S8, S16, S32, S64 = (dtype(f"s{bits}") for bits in (8, 16, 32, 64))
U8, U16, U32, U64 = (dtype(f"u{bits}") for bits in (8, 16, 32, 64))
F16, BF16, F32, F64 = (dtype(name) for name in ("f16", "bf16", "f32", "f64"))
C64, C128 = dtype("c64"), dtype("c128")
TUPLE, OPAQUE, TOKEN = dtype("tuple"), dtype("opaque"), dtype("token")
