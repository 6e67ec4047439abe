"""What annotations mean: the types of parameters, of what a function returns, and of names."""

from __future__ import annotations

import math
import types as python
from collections.abc import Sequence
from typing import Any

from xdsl.ir import Attribute, SSAValue

from crossrank.program.kinds import Direction, TensorLayout
from crossrank.program.language.annotations import (
    Annotation,
    DistributedTensor,
    InOut,
    Out,
    Scalar,
    Tensor,
    TensorView,
    Tile,
    Word,
)
from crossrank.program.language.builder import Builder, Symbol
from crossrank.program.language.dtypes import DataType
from crossrank.program.language.operands import is_number, row_major, said, valid_part
from crossrank.program.types import Dim, DistTensorType, ShapedType, TensorType, TileType, is_scalar, spelled

SHAPED: dict[Word, Any] = {Tensor: TensorType, DistributedTensor: DistTensorType, Tile: TileType}
DIRECTIONS = {Out: Direction.Out, InOut: Direction.InOut}
HOW = "write pl.Tensor[[4, 64], pl.FP32], pld.DistributedTensor[[4, 64], pl.FP32] or pl.Scalar[pl.INT32]"


def parameter(b: Builder, annotation: Any) -> tuple[Attribute, Direction]:
    """The type of a parameter, and what the function does to it."""
    if isinstance(annotation, Annotation) and annotation.word in DIRECTIONS:
        type = type_of(b, annotation.given)
        b.ask(isinstance(type, ShapedType), f"{annotation.word} is for tensors, and this is {spelled(type)}")
        return type, DIRECTIONS[annotation.word]
    type = type_of(b, annotation)
    b.ask(not isinstance(type, TileType), "a tile is no parameter", "pass a tensor, and load from it")
    return type, Direction.In


def returned(b: Builder, annotation: Any) -> list[Attribute]:
    """The types of what a function returns."""
    if annotation is None:
        return []
    if isinstance(annotation, python.GenericAlias) and annotation.__origin__ is tuple:
        return [type_of(b, each) for each in annotation.__args__]
    return [type_of(b, annotation)]


def type_of(b: Builder, annotation: Any) -> Attribute:
    """The type that an annotation is."""
    if isinstance(annotation, Word):
        b.fail(f"{annotation} says no extents and no element type", HOW)
    if not isinstance(annotation, Annotation) or annotation.word in DIRECTIONS:
        b.fail(f"{annotation!r} is no type of a program", HOW)
    word, given = annotation.word, annotation.given
    if word is Scalar:
        return _dtype(b, word, given).scalar
    view = TensorView()
    if isinstance(given, tuple) and len(given) == 3 and isinstance(given[2], (TensorView, TensorLayout)):
        view = given[2] if isinstance(given[2], TensorView) else TensorView(layout=given[2])
        given = given[:2]
    if not isinstance(given, tuple) or len(given) != 2 or not isinstance(given[0], (list, tuple)):
        b.fail(f"{word}[…] takes extents and an element type", f"write {word}[[4, 64], pl.FP32]")
    element = _dtype(b, word, given[1]).element
    shape = [_extent(b, word, extent) for extent in given[0]]
    b.ask(word is not Tile or all(isinstance(e, int) for e in shape), "the extents of a tile are numbers")
    made: ShapedType = SHAPED[word].of(shape, element)
    return made.with_shape(shape, _viewed(b, word, shape, view))


def _viewed(b: Builder, word: Word, shape: Sequence[Dim], view: TensorView) -> Sequence[int]:
    """How much is valid; refused where elements would not lie as they do here."""
    title = f"{word}[…]"
    row_major(b, title, view.layout)
    packed = [math.prod(rest) if all(isinstance(e, int) for e in rest) else None for rest in _behind(shape)]
    b.ask(
        view.stride is None or list(view.stride) == packed,
        f"{title}: a tensor of strides {view.stride}; here elements lie one behind the other",
        "leave stride away; what is passed may still be a view that is not packed",
    )
    return () if view.valid_shape is None else valid_part(b, title, shape, view.valid_shape)


def _behind(shape: Sequence[Any]) -> list[Sequence[Any]]:
    """The extents behind each."""
    return [shape[axis + 1 :] for axis in range(len(shape))]


def _extent(b: Builder, word: Word, extent: Any) -> Dim:
    if isinstance(extent, Symbol):
        return extent.text
    if isinstance(extent, bool) or not hasattr(extent, "__index__"):
        b.fail(f"{word}[…]: {extent!r} is no extent", 'an extent is a number, or pl.dynamic("NR")')
    b.ask(extent.__index__() >= 0, f"{word}[…]: an extent is {extent}")
    return int(extent.__index__())


def _dtype(b: Builder, word: Word, given: Any) -> DataType:
    if not isinstance(given, DataType):
        b.fail(f"{word}[…]: {given!r} is no element type", "it is one of pl.FP32, pl.INT32, …")
    return given


def convert(b: Builder, annotation: Any, value: Any) -> Any:
    """A value for a name with that annotation: a scalar in that type; of all else the types must agree."""
    if not isinstance(annotation, (Annotation, Word)):
        return value  # int, float, …: of what Python knows
    type = type_of(b, annotation)
    if is_scalar(type):
        b.ask(is_number(value), f"this is {said(value)}, and the name is declared as {spelled(type)}")
        return b.scalar(value, type)
    b.ask(
        same(type, value), f"this is {said(value)}, and the name is declared as {spelled(type)}", "declare what it is"
    )
    return value


def same(declared: Attribute, value: Any) -> bool:
    """Whether a value has the extents and the element type of a declared one; a tile may be declared as a tensor."""
    if (
        not isinstance(value, SSAValue)
        or not isinstance(declared, ShapedType)
        or not isinstance(value.type, ShapedType)
    ):
        return False
    return declared.fits(declared.new(value.type.data))
