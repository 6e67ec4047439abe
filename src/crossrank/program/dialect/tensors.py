"""Tensors as values: made, viewed, copied, and their scalars. A view is memory of what it views, never a copy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.arith import ConstantOp, IndexCastOp
from xdsl.dialects.builtin import I64, ArrayAttr, IndexType, IntegerAttr, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    VarConstraint,
    base,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from crossrank.program.types import ArrayType, Dim, ShapedType, TensorType, scalar_type, spelled

Values = Sequence[SSAValue]


def shaped(value: SSAValue) -> ShapedType:
    """The type of a value that has extents."""
    assert isinstance(value.type, ShapedType)
    return value.type


def number(n: int) -> IntegerAttr[I64]:
    """A number as an attribute."""
    return IntegerAttr(n, i64)


def ask(holds: object, what: str) -> None:
    """Raise a VerifyException where something does not hold."""
    if not holds:
        raise VerifyException(what)


def known(value: SSAValue) -> int | None:
    """The number that a value is, where it is a constant."""
    owner = value.owner
    while isinstance(owner, IndexCastOp):
        owner = owner.input.owner
    if isinstance(owner, ConstantOp) and isinstance(owner.value, IntegerAttr):
        return int(owner.value.value.data)
    return None


def ask_indices(op: str, what: str, indices: Values, of: SSAValue) -> None:
    """One index for each dimension."""
    rank = len(shaped(of).shape)
    ask(len(indices) == rank, f"{op}: {what} must have {rank} entries, one a dimension, got {len(indices)}")


def ask_within(op: str, axis: int, offset: int | None, extent: int | None, dim: Dim, remedy: str = "") -> None:
    """Nothing before the first element of a dimension, nothing behind its last, as far as that is known."""
    ask(offset is None or offset >= 0, f"{op}: the offset of dimension {axis} must be non-negative, got {offset}")
    ask(extent is None or extent >= 0, f"{op}: the extent of dimension {axis} must be non-negative, got {extent}")
    if isinstance(dim, int):
        ask(
            (offset or 0) + (extent or 0) <= dim,
            f"{op}: elements {offset or 0} to {(offset or 0) + (extent or 0)} of dimension {axis} are beyond its "
            f"{dim}{remedy}",
        )


@irdl_op_definition
class CreateTensorOp(IRDLOperation):
    """A new tensor, zero-filled; its extents are the operands, where its type leaves them open.

    HOST: in the host's memory. CHIP: in the rank's own.
    """

    name = "program.create_tensor"
    extents = var_operand_def(IndexType)
    result = result_def(TensorType)
    assembly_format = "$extents attr-dict `:` type($result)"

    def __init__(self, extents: Values, type: TensorType) -> None:
        super().__init__(operands=[extents], result_types=[type])

    def verify_(self) -> None:
        """An operand for each extent."""
        ask(len(self.extents) == len(shaped(self.result).shape), "pl.create_tensor: one extent for each dimension")


@irdl_op_definition
class SliceOp(IRDLOperation):
    """A view: ``extents`` elements from ``offsets``, without the dimensions ``drop``, whose extent is 1."""

    name = "program.slice"
    source = operand_def(ShapedType)
    offsets = var_operand_def(IndexType)
    extents = var_operand_def(IndexType)
    drop = prop_def(ArrayAttr[IntegerAttr[I64]])
    result = result_def(ShapedType)
    traits = traits_def(Pure())
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    assembly_format = (
        "$source `[` $offsets `]` `sizes` `[` $extents `]` `drop` $drop attr-dict `:` type($source) `->` type($result)"
    )

    def __init__(
        self, source: SSAValue, offsets: Values, extents: Values, type: ShapedType, drop: Sequence[int] = ()
    ) -> None:
        super().__init__(
            operands=[source, offsets, extents],
            properties={"drop": ArrayAttr([number(d) for d in drop])},
            result_types=[type],
        )

    @property
    def dropped(self) -> tuple[int, ...]:
        """The dimensions that the view does not have."""
        return tuple(d.value.data for d in self.drop)

    def verify_(self) -> None:
        """Offsets and extents for each dimension; the view has the kind and the element type of what it views."""
        ask_indices("slice", "offsets", self.offsets, self.source)
        ask_indices("slice", "sizes", self.extents, self.source)
        of, type = shaped(self.source), shaped(self.result)
        ask(
            type.dtype is of.dtype,
            f"slice: the view has elements of {spelled(type.dtype)}, and what it views {spelled(of.dtype)}",
        )
        ask(len(type.shape) == len(of.shape) - len(self.dropped), "slice: the view has another number of dimensions")
        for axis, (offset, extent, dim) in enumerate(zip(self.offsets, self.extents, of.shape, strict=True)):
            ask_within("slice", axis, known(offset), known(extent), dim)
            ask(axis not in self.dropped or known(extent) == 1, f"slice: dimension {axis} is dropped, and is not of 1")


@irdl_op_definition
class ReshapeOp(IRDLOperation):
    """The same elements in row-major order under other extents: a view of a tensor, or of a tile.

    A tensor must be packed, unless only extents of 1 come or go.
    """

    name = "program.reshape"
    source = operand_def(ShapedType)
    extents = var_operand_def(IndexType)
    result = result_def(ShapedType)
    traits = traits_def(Pure())
    assembly_format = "$source `[` $extents `]` attr-dict `:` type($source) `->` type($result)"

    def __init__(self, source: SSAValue, extents: Values, type: ShapedType) -> None:
        super().__init__(operands=[source, extents], result_types=[type])

    def verify_(self) -> None:
        """As many elements, where that is known."""
        of, type = shaped(self.source), shaped(self.result)
        if of.is_static and type.is_static:
            ask(
                math.prod(of.extents) == math.prod(type.extents),
                f"reshape: {of.described} has not as many elements as {type.described}",
            )


@irdl_op_definition
class TransposeOp(IRDLOperation):
    """Two dimensions exchanged: a view of a tensor, a copy of a tile."""

    name = "program.transpose"
    source = operand_def(ShapedType)
    axis1 = prop_def(IntegerAttr[I64])
    axis2 = prop_def(IntegerAttr[I64])
    result = result_def(ShapedType)
    traits = traits_def(Pure())
    assembly_format = "$source $axis1 $axis2 attr-dict `:` type($source) `->` type($result)"

    def __init__(self, source: SSAValue, axis1: int, axis2: int, type: ShapedType) -> None:
        super().__init__(
            operands=[source], properties={"axis1": number(axis1), "axis2": number(axis2)}, result_types=[type]
        )

    def verify_(self) -> None:
        """There are such dimensions; the result has them exchanged."""
        of, axes = shaped(self.source), [self.axis1.value.data, self.axis2.value.data]
        ask(all(0 <= a < len(of.shape) for a in axes), f"pl.transpose: {of.described} has no dimensions {axes}")
        shape = list(of.shape)
        shape[axes[0]], shape[axes[1]] = shape[axes[1]], shape[axes[0]]
        ask(shaped(self.result).shape == tuple(shape), "pl.transpose: the result has another shape")


@irdl_op_definition
class AssembleOp(IRDLOperation):
    """``target`` with ``source`` copied into it from ``offsets`` on: a tensor in place, and the result is that; a
    tile in a new one.
    """

    name = "program.assemble"
    T: ClassVar = VarConstraint("T", base(ShapedType))
    target = operand_def(T)
    source = operand_def(ShapedType)
    offsets = var_operand_def(IndexType)
    result = result_def(T)
    assembly_format = "$target `,` $source `[` $offsets `]` attr-dict `:` type($target) `,` type($source)"

    def __init__(self, target: SSAValue, source: SSAValue, offsets: Values) -> None:
        super().__init__(operands=[target, source, offsets], result_types=[target.type])

    def verify_(self) -> None:
        """Of one element type; an offset for each dimension of the target, which has no fewer than the source."""
        ask_indices("pl.assemble", "offsets", self.offsets, self.target)
        target, source = shaped(self.target), shaped(self.source)
        ask(
            len(source.shape) <= len(target.shape),
            f"pl.assemble: {source.described} has more dimensions than {target.described}",
        )
        ask(
            target.dtype is source.dtype,
            f"pl.assemble: source is of {spelled(source.dtype)}, target of {spelled(target.dtype)}",
        )


@irdl_op_definition
class ReadOp(IRDLOperation):
    """One element as a scalar."""

    name = "program.read"
    source = operand_def(ShapedType)
    indices = var_operand_def(IndexType)
    result = result_def(Attribute)
    assembly_format = "$source `[` $indices `]` attr-dict `:` type($source) `->` type($result)"

    def __init__(self, source: SSAValue, indices: Values) -> None:
        super().__init__(operands=[source, indices], result_types=[scalar_type(shaped(source).dtype)])

    def verify_(self) -> None:
        """An index for each dimension; the scalar is of the element type."""
        ask_indices("pl.read", "indices", self.indices, self.source)
        ask(self.result.type == scalar_type(shaped(self.source).dtype), "pl.read: the scalar has another type")


@irdl_op_definition
class WriteOp(IRDLOperation):
    """One element becomes a scalar, in place."""

    name = "program.write"
    target = operand_def(ShapedType)
    indices = var_operand_def(IndexType)
    value = operand_def(Attribute)
    assembly_format = "$target `[` $indices `]` `,` $value attr-dict `:` type($target) `,` type($value)"

    def __init__(self, target: SSAValue, indices: Values, value: SSAValue) -> None:
        super().__init__(operands=[target, indices, value])

    def verify_(self) -> None:
        """An index for each dimension; the scalar is of the element type."""
        ask_indices("pl.write", "indices", self.indices, self.target)
        of = shaped(self.target).dtype
        ask(
            self.value.type == scalar_type(of),
            f"pl.write: the value is a {spelled(self.value.type)}, and the elements are of {spelled(of)}",
        )


@irdl_op_definition
class DimOp(IRDLOperation):
    """One extent."""

    name = "program.dim"
    source = operand_def(ShapedType)
    axis = prop_def(IntegerAttr[I64])
    result = result_def(IndexType)
    traits = traits_def(Pure())
    assembly_format = "$source $axis attr-dict `:` type($source)"

    def __init__(self, source: SSAValue, axis: int) -> None:
        super().__init__(operands=[source], properties={"axis": number(axis)}, result_types=[IndexType()])

    def verify_(self) -> None:
        """There is such a dimension."""
        ask(0 <= self.axis.value.data < len(shaped(self.source).shape), f"there is no dimension {self.axis.value.data}")


@irdl_op_definition
class CreateArrayOp(IRDLOperation):
    """A small array of scalars, zero-filled."""

    name = "program.create_array"
    result = result_def(ArrayType)
    assembly_format = "attr-dict `:` type($result)"

    def __init__(self, type: ArrayType) -> None:
        super().__init__(result_types=[type])


OPS = (
    CreateTensorOp,
    SliceOp,
    ReshapeOp,
    TransposeOp,
    AssembleOp,
    ReadOp,
    WriteOp,
    DimOp,
    CreateArrayOp,
)
