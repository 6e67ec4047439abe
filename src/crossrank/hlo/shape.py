"""Shapes of HLO values, as plain hashable data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from crossrank.collective.dtypes import TUPLE, DType, dtype_by_number
from crossrank.hlo.schema import ShapeProto


@dataclass(frozen=True)
class Shape:
    """An array, a token or a tuple of shapes.

    Attributes:
        dtype: the element type; ``tuple`` for a tuple.
        dims: extents of an array, outermost first.
        layout: dimensions from minor to major, or None where none is written.
        elements: the shapes of a tuple.
        tiled: the layout has tiles or a memory space, as compiled modules of devices do.
        dynamic: some extent is only an upper bound.
    """

    dtype: DType
    dims: tuple[int, ...] = ()
    layout: tuple[int, ...] | None = None
    elements: tuple[Shape, ...] = ()
    tiled: bool = False
    dynamic: bool = False

    @property
    def is_tuple(self) -> bool:
        """Whether this is a tuple (of anything)."""
        return self.dtype is TUPLE or self.dtype.name == "tuple"

    @property
    def is_array(self) -> bool:
        """Whether this is an array: neither a tuple, nor a token, nor opaque."""
        return not self.is_tuple and self.dtype.bits > 0

    @property
    def count(self) -> int:
        """Number of elements of an array."""
        return math.prod(self.dims)

    @property
    def nbytes(self) -> int:
        """Bytes of all leaves together, unpadded."""
        if self.is_tuple:
            return sum(e.nbytes for e in self.elements)
        return self.count * self.dtype.itemsize if self.is_array else 0

    @property
    def row_major(self) -> bool:
        """Whether the layout is the default one (or none is written)."""
        return self.layout is None or self.layout == tuple(range(len(self.dims) - 1, -1, -1))

    def leaves(self) -> Iterator[Shape]:
        """The arrays (and tokens) of a possibly nested tuple, in order."""
        if self.is_tuple:
            for e in self.elements:
                yield from e.leaves()
        else:
            yield self

    def with_dims(self, dims: Sequence[int]) -> Shape:
        """An array of the same element type with other extents, row-major."""
        return Shape(self.dtype, tuple(dims), tuple(range(len(dims) - 1, -1, -1)))

    def as_row_major(self) -> Shape:
        """The same shape, every leaf in the default layout."""
        if self.is_tuple:
            return Shape(self.dtype, elements=tuple(e.as_row_major() for e in self.elements))
        return self.with_dims(self.dims) if self.is_array else self

    def with_dtype(self, dtype: DType) -> Shape:
        """The same extents and layout with another element type."""
        return Shape(dtype, self.dims, self.layout)

    def same_extents(self, other: Shape) -> bool:
        """Equal up to layouts."""
        return self.as_row_major() == other.as_row_major()

    @staticmethod
    def tuple_of(elements: Sequence[Shape]) -> Shape:
        """A tuple."""
        return Shape(TUPLE, elements=tuple(elements))

    @staticmethod
    def read(proto: Any) -> Shape:
        """The shape in a ``Shape`` message."""
        dtype = dtype_by_number(proto.element_type)
        if dtype is TUPLE:
            return Shape.tuple_of([Shape.read(e) for e in proto.tuple_shapes])
        layout, tiled = None, False
        if proto.HasField("layout"):
            layout = tuple(proto.layout.minor_to_major)
            tiled = bool(proto.layout.tiles) or proto.layout.memory_space != 0
        return Shape(dtype, tuple(proto.dimensions), layout, (), tiled, any(proto.is_dynamic_dimension))

    @staticmethod
    @lru_cache(maxsize=4096)
    def parse(data: bytes) -> Shape:
        """The shape in a serialized ``Shape`` message; a module has few different ones, so that they are kept."""
        return Shape.read(ShapeProto.FromString(data))

    def write(self, proto: Any) -> None:
        """Put this shape into an (emptied) ``Shape`` message."""
        proto.Clear()
        proto.element_type = self.dtype.number
        for e in self.elements:
            e.write(proto.tuple_shapes.add())
        if self.is_array:
            proto.dimensions.extend(self.dims)
            proto.is_dynamic_dimension.extend(False for _ in self.dims)
            proto.layout.minor_to_major.extend(
                self.layout if self.layout is not None else range(len(self.dims) - 1, -1, -1)
            )

    def proto(self) -> Any:
        """This shape as a message of its own."""
        p = ShapeProto()
        self.write(p)
        return p

    def without_layout(self) -> str:
        """As HLO text, without layouts."""
        if self.is_tuple:
            return "(" + ", ".join(e.without_layout() for e in self.elements) + ")"
        return f"{self.dtype.name}[{','.join(map(str, self.dims))}]"

    def __str__(self) -> str:
        if self.is_tuple:
            return "(" + ", ".join(map(str, self.elements)) + ")"
        return self.without_layout() + ("{" + ",".join(map(str, self.layout)) + "}" if self.layout else "")


def row_major_strides(dims: Sequence[int]) -> tuple[int, ...]:
    """Elements between neighbours along each dimension of a row-major array."""
    strides = [1] * len(dims)
    for i in range(len(dims) - 2, -1, -1):
        strides[i] = strides[i + 1] * dims[i + 1]
    return tuple(strides)
