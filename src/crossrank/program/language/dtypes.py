"""The element types of the language: ``pl.FP32``, ``pl.INT32``, …, and ``pl.INDEX`` for extents, offsets and ranks."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import IndexType
from xdsl.ir import Attribute

from crossrank.collective.dtypes import DType, dtype
from crossrank.program.types import DTYPE_NAMES, scalar_type


@dataclass(frozen=True)
class DataType:
    """An element type by its name in programs.

    Attributes:
        name: as programs write it, without ``pl.``.
        element: what it is; ``INDEX`` is an s64.
    """

    name: str
    element: DType

    def get_byte(self) -> int:
        """The bytes of an element."""
        return self.element.itemsize

    def get_bit(self) -> int:
        """The bits of an element."""
        return self.element.bits

    @property
    def scalar(self) -> Attribute:
        """The type of a scalar of it."""
        return IndexType() if self is INDEX else scalar_type(self.element)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"pl.{self.name}"


DTYPES: dict[str, DataType] = {name: DataType(name, dtype(of)) for of, name in DTYPE_NAMES.items()}
"""All that tensors can have, by name."""

FP16 = DTYPES["FP16"]
BF16 = DTYPES["BF16"]
FP32 = DTYPES["FP32"]
FP64 = DTYPES["FP64"]
INT8 = DTYPES["INT8"]
INT16 = DTYPES["INT16"]
INT32 = DTYPES["INT32"]
INT64 = DTYPES["INT64"]
UINT8 = DTYPES["UINT8"]
UINT16 = DTYPES["UINT16"]
UINT32 = DTYPES["UINT32"]
UINT64 = DTYPES["UINT64"]
BOOL = DTYPES["BOOL"]
INDEX = DataType("INDEX", dtype("s64"))
