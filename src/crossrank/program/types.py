"""The types of the dialect: tensors, windows, tiles, and handles.

Scalars have builtin types: ``index`` for extents, offsets and ranks, ``i1`` … ``i64`` (no sign), ``f16``, ``bf16``,
``f32``, ``f64``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, cast

from xdsl.dialects.builtin import (
    BFloat16Type,
    Float16Type,
    Float32Type,
    Float64Type,
    IndexType,
    IntegerType,
    i1,
)
from xdsl.ir import Attribute, Data, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from crossrank.collective.dtypes import DType, dtype
from crossrank.program.kinds import MemorySpace, member

Dim = int | str
"""An extent: a number, the expression of a symbolic one (``NR``, ``M * 2``), or ``?``: known at run time only."""

UNKNOWN = "?"

DTYPE_NAMES = {
    "f16": "FP16",
    "bf16": "BF16",
    "f32": "FP32",
    "f64": "FP64",
    "s8": "INT8",
    "s16": "INT16",
    "s32": "INT32",
    "s64": "INT64",
    "u8": "UINT8",
    "u16": "UINT16",
    "u32": "UINT32",
    "u64": "UINT64",
    "pred": "BOOL",
}
"""The element types of the language, by their names here: as its programs write them."""


@dataclass(frozen=True)
class Form:
    """Extents and element type, and what one kind of type adds.

    Attributes:
        shape: the extents.
        dtype: the element type.
        extra: where a tile lies, or the window that is viewed.
        valid: of a tensor, how many elements from the first on mean something, by dimension; empty: all of them.
    """

    shape: tuple[Dim, ...]
    dtype: DType
    extra: str = ""
    valid: tuple[int, ...] = ()


class ShapedType(Data[Form], TypeAttribute):
    """A tensor, a distributed tensor or a tile: extents and an element type."""

    title: ClassVar[str]
    """What programs call it."""

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The extents."""
        return self.data.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.data.dtype

    @property
    def valid(self) -> tuple[int, ...]:
        """How many elements mean something, by dimension; empty: all of them."""
        return self.data.valid

    @property
    def is_static(self) -> bool:
        """Whether all extents are numbers."""
        return all(isinstance(d, int) for d in self.shape)

    @property
    def extents(self) -> tuple[int, ...]:
        """The extents as numbers; only where all are."""
        assert self.is_static
        return cast(tuple[int, ...], self.shape)

    @property
    def described(self) -> str:
        """Kind, extents and element type as messages write them: ``Tensor[[4, NR], FP32]``."""
        valid = f", TensorView(valid_shape={list(self.valid)})" if self.valid else ""
        return f"{self.title}[[{', '.join(map(str, self.shape))}], {spelled(self.dtype)}{valid}]"

    def with_shape(self, shape: Sequence[Dim], valid: Sequence[int] = ()) -> Self:
        """The type that has these extents, all of them valid unless it is said, and else is the same."""
        partial = () if tuple(valid) == tuple(shape) else tuple(valid)
        return self.new(Form(tuple(shape), self.dtype, self.data.extra, partial))

    def fits(self, other: Attribute) -> bool:
        """Whether a value of this type can stand for one of the other: the same kind and element type, extents that may
        be the same (symbolic ones are bound when it runs), and as many; as much valid."""
        return (
            isinstance(other, ShapedType)
            and type(self) is type(other)
            and self.dtype is other.dtype
            and self.valid == other.valid
            and len(self.shape) == len(other.shape)
            and all(
                a == b or isinstance(a, str) or isinstance(b, str) for a, b in zip(self.shape, other.shape, strict=True)
            )
        )

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Form:
        """Read ``<[4, "NR", ?], f32>`` or ``<[4, 8], f32 valid [2, 8]>``, and what follows another comma."""
        with parser.in_angle_brackets():
            shape = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: _parse_dim(parser))
            parser.parse_punctuation(",")
            name = parser.parse_identifier()
            valid = []
            if parser.parse_optional_keyword("valid"):
                valid = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
                if len(valid) != len(shape):
                    parser.raise_error("valid has another number of dimensions")
            extra = parser.parse_identifier() if parser.parse_optional_punctuation(",") else ""
        try:
            return Form(tuple(shape), dtype(name), extra, tuple(valid))
        except ValueError as error:
            parser.raise_error(str(error))

    def print_parameter(self, printer: Printer) -> None:
        """Write it so."""
        shape = ", ".join(str(d) if isinstance(d, int) or d == UNKNOWN else f'"{d}"' for d in self.shape)
        extra = f", {self.data.extra}" if self.data.extra else ""
        valid = f" valid {list(self.valid)}" if self.valid else ""
        printer.print_string(f"<[{shape}], {self.dtype}{valid}{extra}>")


def _parse_dim(parser: AttrParser) -> Dim:
    if parser.parse_optional_punctuation("?") is not None:
        return UNKNOWN
    text = parser.parse_optional_str_literal()
    return parser.parse_integer(allow_boolean=False) if text is None else text


@irdl_attr_definition
class TensorType(ShapedType):
    """A tensor in a rank's own memory, or in the host's."""

    name = "program.tensor"
    title = "Tensor"

    @staticmethod
    def of(shape: Sequence[Dim], dtype: DType) -> TensorType:
        """The type of those two."""
        return TensorType.new(Form(tuple(shape), dtype))


@irdl_attr_definition
class DistTensorType(ShapedType):
    """A distributed tensor: a view of a window, the same on every rank of its domain."""

    name = "program.dist_tensor"
    title = "DistributedTensor"

    @staticmethod
    def of(shape: Sequence[Dim], dtype: DType, window: str = "") -> DistTensorType:
        """The type of those; ``window`` is the buffer's name where the view is known to be of it."""
        return DistTensorType.new(Form(tuple(shape), dtype, window))

    @property
    def window(self) -> str:
        """The buffer that it views; empty where that is not known."""
        return self.data.extra

    def of_window(self, window: str) -> DistTensorType:
        """The type that is known to be of that buffer, and else is the same."""
        return DistTensorType.new(replace(self.data, extra=window))


@irdl_attr_definition
class TileType(ShapedType):
    """A tile in a core's memory; its extents are numbers, and how much of it is valid is known when it runs."""

    name = "program.tile"
    title = "Tile"

    @staticmethod
    def of(shape: Sequence[int], dtype: DType, memory: MemorySpace = MemorySpace.Vec) -> TileType:
        """The type of those."""
        return TileType.new(Form(tuple(shape), dtype, memory))

    @property
    def memory(self) -> MemorySpace:
        """Where it lies."""
        return cast(MemorySpace, member(MemorySpace, self.data.extra or MemorySpace.Vec))


@irdl_attr_definition
class ArrayType(ShapedType):
    """A small array of scalars in a core, changed in place."""

    name = "program.array"
    title = "Array"

    @staticmethod
    def of(size: int, dtype: DType) -> ArrayType:
        """The type of those two."""
        return ArrayType.new(Form((size,), dtype))


@irdl_attr_definition
class WindowBufferType(ParametrizedAttribute, TypeAttribute):
    """A buffer of the same size on each rank of a domain."""

    name = "program.window_buffer"


@irdl_attr_definition
class CommCtxType(ParametrizedAttribute, TypeAttribute):
    """Who is in a domain, and which of them one is."""

    name = "program.comm_ctx"


@irdl_attr_definition
class TaskType(ParametrizedAttribute, TypeAttribute):
    """A task that was submitted."""

    name = "program.task"


def moves(value: Attribute, to: Attribute) -> bool:
    """Whether a value of one type is one of another, or a tile that is but for where it lies."""
    return value == to or (isinstance(value, TileType) and value.fits(to))


ANY_TENSOR = (TensorType, DistTensorType)
"""What lies in memory that outlives a kernel."""

_FLOATS: dict[str, Attribute] = {
    "f16": Float16Type(),
    "bf16": BFloat16Type(),
    "f32": Float32Type(),
    "f64": Float64Type(),
}


def scalar_type(element: DType) -> Attribute:
    """The type of a scalar of that element type; unsigned ones are held as ``i64``. ValueError where there is none."""
    if element.name in _FLOATS:
        return _FLOATS[element.name]
    if element.name == "pred":
        return i1
    if element.is_integer and element.itemsize * 8 == element.bits:
        return IntegerType(element.bits if element.is_signed else 64)
    raise ValueError(f"there are no scalars of {element}")


def element_of(scalar: Attribute) -> DType:
    """The element type of a scalar; an ``index`` is an s64."""
    if isinstance(scalar, IndexType):
        return dtype("s64")
    if isinstance(scalar, IntegerType):
        return dtype("pred" if scalar.width.data == 1 else f"s{scalar.width.data}")
    return dtype(next(name for name, type in _FLOATS.items() if type == scalar))


def is_scalar(type: Any) -> bool:
    """Whether a value of that type is a scalar."""
    return isinstance(type, (IndexType, IntegerType)) or type in _FLOATS.values()


def spelled(of: Attribute | DType) -> str:
    """A type or an element type as programs write it: ``Tensor[[4, NR], FP32]``, ``Scalar[INT32]``, ``FP32``."""
    if isinstance(of, DType):
        return DTYPE_NAMES.get(of.name, of.name)
    if isinstance(of, ShapedType):
        return of.described
    if is_scalar(of):
        return f"Scalar[{'INDEX' if isinstance(of, IndexType) else spelled(element_of(of))}]"
    return {"program.window_buffer": "Ptr", "program.comm_ctx": "CommCtx", "program.task": "TaskId"}.get(
        of.name, str(of)
    )


def is_float(type: Any) -> bool:
    """Whether a value of that type is a floating-point scalar."""
    return type in _FLOATS.values()
