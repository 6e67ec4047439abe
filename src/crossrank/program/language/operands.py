"""What words make of their arguments: tensors, tiles, windows, lists of extents, members of enums.

Each takes the builder, the word's title and the argument, and refuses what the argument cannot be.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, TypeGuard, TypeVar, cast

from xdsl.ir import Attribute, SSAValue

from crossrank.collective.dtypes import DType
from crossrank.program.dialect.tensors import DimOp, ReshapeOp, SliceOp, known, shaped
from crossrank.program.dialect.tiles import LoadOp
from crossrank.program.dialect.windows import SymbolOp
from crossrank.program.kinds import TensorLayout
from crossrank.program.language.builder import Builder, Scalar, Symbol
from crossrank.program.language.dtypes import DataType
from crossrank.program.language.op import KERNEL, misplaced
from crossrank.program.types import (
    ANY_TENSOR,
    UNKNOWN,
    Dim,
    DistTensorType,
    TileType,
    is_scalar,
    spelled,
)

EnumT = TypeVar("EnumT", bound=Enum)


def said(value: Any) -> str:
    """What a value is, for messages: its type as programs write it, or what Python calls it."""
    return spelled(value.type) if isinstance(value, SSAValue) else type(value).__name__


def said_apart(*values: Any) -> list[str]:
    """What values are, or types; with their windows where they differ in these alone."""
    types = [value.type if isinstance(value, SSAValue) else value for value in values]
    texts = [spelled(type) if isinstance(type, Attribute) else said(type) for type in types]
    if len(set(texts)) > 1:
        return texts
    windows = [type.window if isinstance(type, DistTensorType) else "" for type in types]
    return [f"{text} of {window}" if window else text for text, window in zip(texts, windows, strict=True)]


def is_tensor(value: Any) -> TypeGuard[SSAValue]:
    """Whether it is a tensor, of a window or not."""
    return isinstance(value, SSAValue) and isinstance(value.type, ANY_TENSOR)


def is_window(value: Any) -> TypeGuard[SSAValue]:
    """Whether it is a view of a window."""
    return isinstance(value, SSAValue) and isinstance(value.type, DistTensorType)


def is_tile(value: Any) -> TypeGuard[SSAValue]:
    """Whether it is a tile."""
    return isinstance(value, SSAValue) and isinstance(value.type, TileType)


def is_number(value: Any) -> bool:
    """Whether it is a scalar, of whatever type, known before the program runs or not."""
    if isinstance(value, SSAValue):
        return is_scalar(value.type)
    return isinstance(value, (int, float, Symbol)) and not isinstance(value, Enum)


def number(b: Builder, title: str, what: str, value: Any, why: str = "") -> Scalar:
    """A scalar."""
    b.ask(is_number(value), f"{title} {what} must be a scalar{why}, got {said(value)}")
    return cast(Scalar, value)


def peer(b: Builder, title: str, value: Any) -> SSAValue:
    """A rank of a domain."""
    return b.index(number(b, title, "peer", value, " (rank index)"))


def listed(b: Builder, title: str, what: str, values: Any) -> list[Scalar]:
    """Offsets or extents, one a dimension."""
    b.ask(
        isinstance(values, (list, tuple)),
        f"{title} {what} must be a tuple (MakeTuple of scalars), got {said(values)}",
    )
    for n, value in enumerate(values):
        b.ask(not isinstance(value, float), f"{title} {what} {n} must be an integer, got {value}", "divide with //")
    return [number(b, title, f"{what} {n}", value) for n, value in enumerate(values)]


def fixed(b: Builder, title: str, what: str, values: Any) -> list[int]:
    """Extents of a tile: numbers that are known before the program runs."""
    found = [dim_of(v) for v in listed(b, title, what, values)]
    for n, extent in enumerate(found):
        if not isinstance(extent, int):
            b.fail(
                f"{title} {what} {n} must be known before the program runs: a tile has fixed extents",
                "take a chunk of fixed extents, and say with valid_shape how much of it there is",
            )
        b.ask(extent >= 0, f"{title} {what} {n} must be non-negative, got {extent}")
    return [e for e in found if isinstance(e, int)]


def whole(b: Builder, title: str, what: str, value: Any) -> int:
    """A number that is known before the program runs."""
    found = known(value) if isinstance(value, SSAValue) else value
    if not isinstance(found, int) or isinstance(found, bool):
        b.fail(f"{title} {what} must be an int (static), got {said(value)}")
    return int(found)


def element(b: Builder, title: str, value: Any) -> DType:
    """An element type."""
    if not isinstance(value, DataType):
        b.fail(f"{title} takes an element type, got {said(value)}", "it is one of pl.FP32, pl.INT32, …")
    return value.element


def member(b: Builder, title: str, what: str, kind: type[EnumT], value: Any) -> EnumT:
    """A member of an enum, or its number."""
    members = {m.value: m for m in kind}
    if not isinstance(value, kind) and (type(value) not in (int, str) or value not in members):
        names = list(kind.__members__)
        first = f"{kind.__name__}.{names[0]}"
        others = (
            f"{first} or {kind.__name__}.{names[1]}"
            if len(names) == 2
            else f"{', '.join([first, *names[1:-1]])}, or {names[-1]}"
        )
        b.fail(f"{title} {what} must be {others} (got {type(value).__name__} {value})")
    return members[value]


def row_major(b: Builder, title: str, layout: Any) -> None:
    """The layout of all tensors that there are."""
    b.ask(
        layout is None or layout is TensorLayout.ND,
        f"{title}: layout {layout}; here tensors are row-major (ND)",
        "leave the layout away, and transpose what lies otherwise",
    )


def valid_part(b: Builder, title: str, shape: Sequence[Dim], valid_shape: Any) -> list[int]:
    """How much of each dimension of a tensor is valid: numbers that are known before the program runs."""
    given = listed(b, title, "valid_shape", valid_shape)
    b.ask(
        len(given) == len(shape),
        f"{title} valid_shape must have {len(shape)} entries, one a dimension, got {len(given)}",
    )
    found = [dim_of(v) for v in given]
    for axis, (extent, valid) in enumerate(zip(shape, found, strict=True)):
        if not isinstance(valid, int):
            b.fail(
                f"{title} valid_shape {axis} of a tensor must be known before the program runs",
                "slice what is valid, or load it: pl.load(x, offsets, shapes, valid_shape=…)",
            )
        within = not isinstance(extent, int) or valid <= extent
        b.ask(valid >= 0 and within, f"{title} valid_shape {axis} must be in [0, {extent}], got {valid}")
    return [v for v in found if isinstance(v, int)]


def all_valid(b: Builder, title: str, value: SSAValue) -> None:
    """Refuse a tensor of which a part is not valid."""
    b.ask(not shaped(value).valid, f"{title} of {said(value)}, of which a part is not valid", "slice what is valid")


def window(b: Builder, title: str, what: str, value: Any) -> SSAValue:
    """A view of a window."""
    if not is_window(value):
        b.fail(f"{title} {what} must be a DistributedTensor (window-bound), got {said(value)}")
    return value


def tensor(b: Builder, title: str, what: str, value: Any) -> SSAValue:
    """A tensor, of a window or not."""
    if not is_tensor(value):
        b.fail(f"{title} {what} must be a Tensor or DistributedTensor, got {said(value)}")
    return value


def expected_window(b: Builder, title: str, what: str, value: Any) -> SSAValue:
    """A view of a window; what remote accesses say where it is none."""
    if not is_window(value):
        b.fail(f"{title} expects a DistributedTensor {what} (window-bound); got {said(value)}")
    return value


def expected_tensor(b: Builder, title: str, what: str, value: Any) -> SSAValue:
    """A tensor, of a window or not; what remote accesses say where it is none."""
    if not is_tensor(value):
        b.fail(f"{title} expects a Tensor or DistributedTensor {what}; got {said(value)}")
    return value


def tile(b: Builder, title: str, value: Any) -> SSAValue:
    """A tile; of a tensor all elements are loaded. Only in kernels."""
    if is_tile(value):
        return value
    if not is_tensor(value):
        b.fail(f"{title}: a tile or a tensor is wanted, got {said(value)}")
    if not b.in_kernel:
        misplaced(b, f"{title} of tensors", [KERNEL])
    of = shaped(value)
    b.ask(
        of.is_static,
        f"{title}: {of.described} has extents that are known only when the program runs",
        "load a part of fixed extents: pl.load(x, offsets, shapes, valid_shape=…)",
    )
    origin, type = b.indices([0] * len(of.shape)), TileType.of(of.extents, of.dtype)
    return b.insert(LoadOp(value, origin, type, b.indices(of.valid))).result


def dim_of(value: Scalar) -> Dim:
    """An extent as types have it."""
    if isinstance(value, Symbol):
        return value.text
    if isinstance(value, SSAValue):
        if isinstance(value.owner, SymbolOp):
            return value.owner.symbol.data
        if isinstance(value.owner, DimOp):
            return shaped(value.owner.source).shape[value.owner.axis.value.data]
        return UNKNOWN if (found := known(value)) is None else found
    return int(value)


def extent(b: Builder, of: SSAValue, axis: int) -> Scalar:
    """An extent of a value: a number where its type has one."""
    known_one = shaped(of).shape[axis]
    return known_one if isinstance(known_one, int) else b.insert(DimOp(of, axis)).result


def view(
    b: Builder,
    source: SSAValue,
    offsets: Sequence[Scalar],
    extents: Sequence[Scalar],
    drop: Sequence[int] = (),
    valid: Sequence[int] = (),
) -> SSAValue:
    """A part of a tensor, or of a tile, without the dimensions ``drop``, whose extents are 1.

    ``valid``: so much of it is; all of it, where that is empty, and all of what it is a part of.
    """
    kept = [axis for axis in range(len(extents)) if axis not in drop]
    shape = [dim_of(e) for e in extents]
    if shaped(source).valid:
        valid = _valid_there(b, source, [dim_of(o) for o in offsets], valid or shape)
    type = shaped(source).with_shape([shape[a] for a in kept], [valid[a] for a in kept] if valid else ())
    return b.insert(SliceOp(source, b.indices(offsets), b.indices(extents), type, drop)).result


def _valid_there(b: Builder, source: SSAValue, offsets: Sequence[Dim], extents: Sequence[Dim]) -> list[int]:
    """How much of a part is valid in each dimension, of a tensor that is valid in part."""
    found = []
    for offset, extent, there in zip(offsets, extents, shaped(source).valid, strict=True):
        if not isinstance(offset, int) or not isinstance(extent, int):
            b.fail(f"a slice of {said(source)} needs offsets and extents that are known before the program runs")
        found.append(max(0, min(extent, there - offset)))
    return found


def reshaped(b: Builder, source: SSAValue, extents: Sequence[Scalar]) -> SSAValue:
    """The same elements under other extents."""
    all_valid(b, "pl.reshape", source)
    return b.insert(
        ReshapeOp(source, b.indices(extents), shaped(source).with_shape([dim_of(e) for e in extents]))
    ).result


def of_rank(b: Builder, title: str, source: SSAValue, rank: int) -> SSAValue:
    """The same with so many dimensions: with leading ones of 1, or without."""
    shape = shaped(source).shape
    extents = [extent(b, source, axis) for axis in range(len(shape))] if rank != len(shape) else []
    if rank > len(shape):
        return reshaped(b, source, [*[1] * (rank - len(shape)), *extents])
    if rank < len(shape):
        surplus = len(shape) - rank
        b.ask(
            all(d == 1 for d in shape[:surplus]),
            f"{title}: {shaped(source).described} has {len(shape)} dimensions, and {rank} are taken of it",
            "slice it: x[i] is without its first dimension",
        )
        if is_tile(source):
            return reshaped(b, source, extents[surplus:])
        return view(b, source, [0] * len(shape), extents, range(surplus))
    return source
