"""The pieces in which a collective goes through its data: of at most 16 KiB, however much there is."""

from __future__ import annotations

import math

from xdsl.ir import SSAValue

from crossrank.collective.dtypes import DType
from crossrank.program.dialect.tensors import ReshapeOp, shaped
from crossrank.program.passes.lowering.emitter import Emitter, Index
from crossrank.program.types import UNKNOWN, Dim, DistTensorType

CHUNK_BYTES = 16 * 1024
ALIGNED_BYTES = 32


def most(element: DType) -> int:
    """As many elements as a piece can have."""
    return CHUNK_BYTES // element.itemsize


def aligned(element: DType) -> int:
    """As many elements as 32 bytes have: the step of what begins at any place."""
    return ALIGNED_BYTES // element.itemsize


def width(element: DType, extent: Index) -> int:
    """The extent of the tile that goes through a row of so many elements; no more than they need."""
    if not isinstance(extent, int):
        return most(element)
    step = aligned(element)
    return min(most(element), max(1, -(-extent // step)) * step)


def pieces(element: DType, extent: Dim | SSAValue) -> tuple[int, int]:
    """The rows and columns of a piece of a transfer whose rows have so many elements."""
    columns = max(1, min(extent, most(element))) if isinstance(extent, int) else most(element)
    return most(element) // columns, columns


def flat(e: Emitter, tensor: SSAValue) -> tuple[SSAValue, Index]:
    """A packed distributed tensor as one row, ``[1, size]``, and its size."""
    type = shaped(tensor)
    size: Index = math.prod(d for d in type.shape if isinstance(d, int))
    for axis, extent in enumerate(type.shape):
        if not isinstance(extent, int):
            size = e.named("size", e.mul(e.dim(tensor, axis), size))
    if len(type.shape) == 2 and type.shape[0] == 1:
        return tensor, size
    row = DistTensorType.of([1, size if isinstance(size, int) else UNKNOWN], type.dtype)
    return e.insert(ReshapeOp(tensor, e.indices([1, size]), row)).result, size
