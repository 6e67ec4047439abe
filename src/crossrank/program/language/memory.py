"""Words that bring elements from here to there: tensors to tiles and back, views, single elements.

What changes something gives it back: ``out = pl.store(tile, [0, 0], out)``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from xdsl.ir import SSAValue

from crossrank.program.dialect.tensors import (
    AssembleOp,
    CreateTensorOp,
    ReadOp,
    WriteOp,
    shaped,
)
from crossrank.program.dialect.tiles import FullOp, LoadOp, MoveOp, StoreOp
from crossrank.program.kinds import AtomicType, MemorySpace
from crossrank.program.language import scalars
from crossrank.program.language.arithmetic import filled, swapped
from crossrank.program.language.builder import Builder, Scalar
from crossrank.program.language.op import CHIP, HOST, KERNEL, op
from crossrank.program.language.operands import (
    dim_of,
    element,
    extent,
    fixed,
    is_number,
    is_tensor,
    is_tile,
    listed,
    member,
    of_rank,
    reshaped,
    row_major,
    said,
    tile,
    valid_part,
    view,
    whole,
)
from crossrank.program.types import ShapedType, TensorType, TileType, scalar_type

__all__ = [
    "assemble",
    "concat",
    "create_tensor",
    "create_tile",
    "dim",
    "full",
    "load",
    "move",
    "read",
    "reshape",
    "slice",
    "store",
    "transpose",
    "write",
]


@op("pl.load", KERNEL)
def load(
    b: Builder,
    tensor: Any,
    offsets: Any,
    shapes: Any,
    valid_shape: Any = None,
    target_memory: Any = MemorySpace.Vec,
    clamp: bool = False,
) -> Any:
    """A tile of the elements of a tensor from ``offsets`` on.

    Its shape is ``shapes``, known before the program runs; as much of it is valid, and read, as ``valid_shape`` says.
    ``clamp`` takes as much as the tensor has. Leading dimensions of 1 may be left away, or added.
    """
    title = "The operator tile.load"
    b.ask(
        is_tensor(tensor),
        f"{title} requires first argument to be a TensorType or DistributedTensorType, but got {said(tensor)}",
    )
    start, shape = listed(b, "pl.load", "offsets", offsets), fixed(b, "pl.load", "shapes", shapes)
    b.ask(shape, f"{title} requires at least one dimension, but got empty shapes tuple")
    b.ask(
        len(start) == len(shape),
        f"{title} requires offsets and shapes to have same number of dimensions, but got {len(start)} offsets and "
        f"{len(shape)} shapes",
    )
    valid: Sequence[Scalar] = shape if valid_shape is None else listed(b, "pl.load", "valid_shape", valid_shape)
    b.ask(
        len(valid) == len(shape),
        f"{title} requires valid_shape and shapes to have the same number of dimensions, but got {len(valid)} "
        f"valid_shape and {len(shape)} shapes",
    )
    source = of_rank(b, "pl.load", tensor, len(shape))
    valid = clipped(b, source, start, valid, clamp)
    space = member(b, "pl.load", "target_memory", MemorySpace, target_memory)
    type = TileType.of(shape, shaped(source).dtype, space)
    partial = [dim_of(v) for v in valid] != shape
    return b.insert(LoadOp(source, b.indices(start), type, b.indices(valid) if partial else ())).result


def clipped(
    b: Builder, source: SSAValue, offsets: Sequence[Scalar], wanted: Sequence[Scalar], clamp: bool = False
) -> Sequence[Scalar]:
    """As much of what is wanted from offsets on as is valid of a tensor; with ``clamp``, as there is of it at all."""
    ends: Sequence[Scalar] = shaped(source).valid
    if clamp and not ends:
        ends = [extent(b, source, axis) for axis in range(_rank(source))]
    if not ends:
        return wanted
    return [_clamped(b, v, o, end) for v, o, end in zip(wanted, offsets, ends, strict=False)]


def _clamped(b: Builder, wanted: Scalar, offset: Scalar, end: Scalar) -> Scalar:
    """As much of what is wanted as there is from an offset on."""
    there = scalars.binary(b, "max", scalars.binary(b, "sub", end, offset), 0)
    return scalars.binary(b, "min", wanted, there)


@op("pl.store", KERNEL)
def store(
    b: Builder, tile: Any, offsets: Any, output_tensor: Any, shapes: Any = None, *, atomic: Any = AtomicType.None_
) -> Any:
    """The tensor with the valid part of a tile from ``offsets`` on, in place.

    ``shapes`` are the tile's extents there, where it has other dimensions than the tensor.
    """
    title = "The operator tile.store"
    b.ask(
        is_tensor(output_tensor),
        f"{title} requires third argument to be a TensorType or DistributedTensorType, but got {said(output_tensor)}",
    )
    b.ask(is_tile(tile), f"{title} requires first argument to be a TileType, but got {said(tile)}")
    b.ask(
        member(b, "pl.store", "atomic", AtomicType, atomic) is AtomicType.None_,
        "pl.store adds to nothing that is there",
        "pld.tile.remote_store(tile, window, my_rank, offsets, atomic=pld.AtomicType.Add) does",
    )
    start = listed(b, "pl.store", "offsets", offsets)
    if shapes is not None:
        tile = reshaped(b, tile, fixed(b, "pl.store", "shapes", shapes))
    if len(shaped(tile).shape) > len(shaped(output_tensor).shape):
        tile = of_rank(b, "pl.store", tile, len(shaped(output_tensor).shape))
    return b.insert(StoreOp(tile, output_tensor, b.indices(start))).result


@op("pl.create_tile", KERNEL)
def create_tile(b: Builder, shape: Any, dtype: Any, target_memory: Any = MemorySpace.Vec) -> Any:
    """A tile of which nothing is known but its shape and element type."""
    title = "pl.create_tile"
    space = member(b, title, "target_memory", MemorySpace, target_memory)
    return b.insert(FullOp(None, TileType.of(fixed(b, title, "shape", shape), element(b, title, dtype), space))).result


@op("pl.full", KERNEL)
def full(b: Builder, shape: Any, dtype: Any, value: Any) -> Any:
    """A tile of one value."""
    return filled(b, TileType.of(fixed(b, "pl.full", "shape", shape), element(b, "pl.full", dtype)), value)


@op("pl.move", KERNEL)
def move(b: Builder, tile: Any, target_memory: Any, blayout: Any = None, slayout: Any = None) -> Any:
    """The tile in another memory; layouts are the hardware's, and change nothing here."""
    b.ask(is_tile(tile), f"pl.move takes a tile, got {said(tile)}")
    type = shaped(tile)
    space = member(b, "pl.move", "target_memory", MemorySpace, target_memory)
    return b.insert(MoveOp(tile, TileType.of(type.extents, type.dtype, space))).result


@op("pl.create_tensor", HOST, CHIP)
def create_tensor(
    b: Builder, shape: Any, dtype: Any, layout: Any = None, manual_dep: bool = False, init_value: Any = None
) -> Any:
    """A new tensor of zeros: of the host in a HOST orchestrator, of the rank in a CHIP orchestration."""
    title = "pl.create_tensor"
    b.ask(init_value in (None, 0), f"{title} makes zeros, and init_value is {init_value}")
    extents = listed(b, title, "shape", shape)
    row_major(b, title, layout)
    type = TensorType.of([dim_of(e) for e in extents], element(b, title, dtype))
    return b.insert(CreateTensorOp(b.indices(extents), type)).result


def _shaped(b: Builder, title: str, value: Any) -> SSAValue:
    if not isinstance(value, SSAValue) or not isinstance(value.type, ShapedType):
        b.fail(f"{title} takes a tensor or a tile, got {said(value)}")
    return value


@op("pl.slice")
def slice(
    b: Builder, input: Any, shape: Any, offset: Any, valid_shape: Any = None, drop_dims: Any = None, clamp: bool = False
) -> Any:
    """A view of ``shape`` elements from ``offset`` on, without the dimensions ``drop_dims``, whose extents are 1.

    Of a tensor's view as much is valid as ``valid_shape`` says, and as the tensor is.
    """
    source = _shaped(b, "pl.slice", input)
    b.ask(not clamp, "pl.slice clamps nothing", "load what there is: pl.load(x, offsets, shapes, clamp=True)")
    b.ask(
        valid_shape is None or is_tensor(source),
        "pl.slice of a tile has no valid_shape",
        "say it of what it gives: pl.set_validshape(tile, rows, cols)",
    )
    extents, start = listed(b, "pl.slice", "shape", shape), listed(b, "pl.slice", "offset", offset)
    drop = [whole(b, "pl.slice", "drop_dims", d) for d in drop_dims or ()]
    rank = len(shaped(source).shape)
    for what, values in (("shape", extents), ("offset", start)):
        b.ask(len(values) == rank, f"pl.slice {what} must have {rank} entries, one a dimension, got {len(values)}")
    dims = [dim_of(e) for e in extents]
    valid = () if valid_shape is None else valid_part(b, "pl.slice", dims, valid_shape)
    return view(b, source, start, extents, drop, valid)


@op("pl.reshape")
def reshape(b: Builder, input: Any, shape: Any) -> Any:
    """The same elements in row-major order under other extents; of a tensor a view.

    A tensor must be packed, unless only extents of 1 come or go.

    One extent may be -1: what is left for it, where all others are known.
    """
    source = _shaped(b, "pl.reshape", input)
    extents = listed(b, "pl.reshape", "shape", shape)
    if -1 in extents:
        rest = [e for e in extents if e != -1]
        size, others = (dims_size(b, v) for v in ([extent(b, source, a) for a in range(_rank(source))], rest))
        b.ask(others and len(rest) == len(extents) - 1 and size % others == 0, f"pl.reshape: no extent fits in {shape}")
        extents[extents.index(-1)] = size // others
    return reshaped(b, source, extents)


def _rank(of: SSAValue) -> int:
    return len(shaped(of).shape)


def dims_size(b: Builder, extents: Sequence[Scalar]) -> int:
    """The product of extents, which are known before the program runs."""
    return math.prod(whole(b, "pl.reshape", f"extent {n}", e) for n, e in enumerate(extents))


@op("pl.transpose")
def transpose(b: Builder, input: Any, axis1: int, axis2: int) -> Any:
    """Two dimensions exchanged: a view of a tensor, a copy of a tile."""
    axes = [whole(b, "pl.transpose", what, a) for what, a in (("axis1", axis1), ("axis2", axis2))]
    return swapped(b, _shaped(b, "pl.transpose", input), *axes)


@op("pl.assemble")
def assemble(b: Builder, target: Any, source: Any, offset: Any) -> Any:
    """The target with the source copied into it from ``offset`` on, in place."""
    title = "pl.assemble"
    into, start = _shaped(b, title, target), listed(b, title, "offset", offset)
    what = _shaped(b, title, source)
    if b.in_kernel and is_tensor(into):
        return b.insert(StoreOp(tile(b, title, what), into, b.indices(start))).result
    if is_tile(into):
        what = tile(b, title, what)
    return b.insert(AssembleOp(into, what, b.indices(start))).result


@op("pl.concat", KERNEL)
def concat(b: Builder, src0: Any, src1: Any) -> Any:
    """Two tiles beside one another: ``[M, A]`` and ``[M, B]`` give ``[M, A + B]``."""
    first, second = tile(b, "pl.concat", src0), tile(b, "pl.concat", src1)
    (*rows, width), (*others, more) = shaped(first).extents, shaped(second).extents
    b.ask(
        rows == others and shaped(first).dtype is shaped(second).dtype,
        f"pl.concat: {said(first)} and {said(second)} do not fit",
    )
    both = b.insert(FullOp(None, TileType.of([*rows, width + more], shaped(first).dtype))).result
    left = b.insert(AssembleOp(both, first, b.indices([0] * _rank(first)))).result
    return b.insert(AssembleOp(left, second, b.indices([*[0] * len(rows), width]))).result


def _indices(b: Builder, title: str, of: SSAValue, offset: Any) -> list[SSAValue]:
    """An index for each dimension; a single one may stand for itself."""
    return b.indices([offset] if is_number(offset) else listed(b, title, "offset", offset))


@op("pl.read")
def read(b: Builder, src: Any, offset: Any) -> Any:
    """One element of a tensor, a tile or an array, as a scalar."""
    source = _shaped(b, "pl.read", src)
    return b.insert(ReadOp(source, _indices(b, "pl.read", source, offset))).result


@op("pl.write")
def write(b: Builder, dst: Any, offset: Any, value: Any) -> Any:
    """The tensor, tile or array with a scalar as one of its elements, in place."""
    target = _shaped(b, "pl.write", dst)
    where = _indices(b, "pl.write", target, offset)
    b.ask(is_number(value), f"pl.write value must be a scalar, got {said(value)}")
    b.insert(WriteOp(target, where, b.scalar(value, scalar_type(shaped(target).dtype))))
    return target


@op("pl.dim")
def dim(b: Builder, tensor: Any, axis: int) -> Any:
    """An extent; a negative axis counts from the last."""
    of = _shaped(b, "pl.dim", tensor)
    number, rank = whole(b, "pl.dim", "axis", axis), _rank(of)
    b.ask(-rank <= number < rank, f"pl.dim: {said(of)} has no dimension {number}")
    return extent(b, of, number % rank)
