"""Tiles: what a core works on. Every op makes a new tile; which part of a tile is valid goes with it at run time."""

from __future__ import annotations

from collections.abc import Sequence
from keyword import iskeyword
from typing import ClassVar

from xdsl.dialects.builtin import IndexType, StringAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    VarConstraint,
    base,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import Pure

from crossrank.program.dialect.tensors import Values, ask, ask_indices, ask_within, known, shaped
from crossrank.program.types import ShapedType, TileType, is_scalar, scalar_type, spelled

UNARY = ("abs", "exp", "log", "neg", "not", "recip", "relu", "rsqrt", "sqrt")
BINARY = ("add", "sub", "mul", "div", "max", "min", "rem", "and", "or", "xor", "shl", "shr")
REDUCE = ("sum", "max", "min")
ROUNDING = ("none", "rint", "round", "floor", "ceil", "trunc")


def word(name: str) -> str:
    """An op of `UNARY` or `BINARY` as programs write it: ``pl.add``, ``pl.and_``."""
    return f"pl.{name}{'_' if iskeyword(name) else ''}"


READ_REMEDY = (
    "; pass clamp=True -- pl.load(x, offsets, shapes, clamp=True) -- to narrow the read to the source edge instead"
)


def ask_region(
    op: str, offsets: Values, valid_shape: Values, tile: ShapedType, of: ShapedType, remedy: str = ""
) -> None:
    """A valid extent for each dimension of a tile or none at all; what is known of the region lies within ``of``."""
    ask(
        len(valid_shape) in (0, len(tile.shape)),
        f"{op} valid_shape rank ({len(valid_shape)}) must match the tile's rank ({len(tile.shape)})",
    )
    valid = [known(v) for v in valid_shape]
    for axis, extent in enumerate(valid):
        ask(
            extent is None or extent >= 0,
            f"{op} valid_shape {axis} is provably negative; a valid region cannot have a negative extent",
        )
        ask(
            extent is None or extent <= tile.extents[axis],
            f"{op} valid_shape {axis} is {extent}, and the tile has {tile.extents[axis]}",
        )
    for axis, (offset, extent, dim) in enumerate(zip(offsets, valid or tile.extents, of.shape, strict=True)):
        ask_within(op, axis, known(offset), extent, dim, remedy)


@irdl_op_definition
class LoadOp(IRDLOperation):
    """A tile of a tensor's elements from ``offsets`` on, as many as the tile has, or as ``valid_shape`` says.

    What lies beyond the valid part is undefined. A tile has two dimensions or those of the tensor.
    """

    name = "program.load"
    source = operand_def(ShapedType)
    offsets = var_operand_def(IndexType)
    valid_shape = var_operand_def(IndexType)
    result = result_def(TileType)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    assembly_format = (
        "$source `[` $offsets `]` `valid` `[` $valid_shape `]` attr-dict `:` type($source) `->` type($result)"
    )

    def __init__(self, source: SSAValue, offsets: Values, type: TileType, valid_shape: Values = ()) -> None:
        super().__init__(operands=[source, offsets, valid_shape], result_types=[type])

    def verify_(self) -> None:
        """Of the tensor's element type, with its number of dimensions."""
        ask_indices("pl.load", "offsets", self.offsets, self.source)
        of, tile = shaped(self.source), shaped(self.result)
        ask(
            len(tile.shape) == len(of.shape),
            f"pl.load: shapes must have {len(of.shape)} entries, got {len(tile.shape)}",
        )
        ask(tile.dtype is of.dtype, f"pl.load: the tile is of {spelled(tile.dtype)}, the tensor of {spelled(of.dtype)}")
        ask_region("pl.load", self.offsets, self.valid_shape, tile, of, READ_REMEDY)


@irdl_op_definition
class StoreOp(IRDLOperation):
    """The valid part of a tile into a tensor from ``offsets`` on; the result is the tensor."""

    name = "program.store"
    T: ClassVar = VarConstraint("T", base(ShapedType))
    source = operand_def(TileType)
    target = operand_def(T)
    offsets = var_operand_def(IndexType)
    result = result_def(T)
    assembly_format = "$source `,` $target `[` $offsets `]` attr-dict `:` type($source) `,` type($target)"

    def __init__(self, source: SSAValue, target: SSAValue, offsets: Values) -> None:
        super().__init__(operands=[source, target, offsets], result_types=[target.type])

    def verify_(self) -> None:
        """Of one element type; an offset for each dimension of the tensor, which has no fewer than the tile."""
        ask_indices("pl.store", "offsets", self.offsets, self.target)
        tile, target = shaped(self.source), shaped(self.target)
        ask(
            tile.dtype is target.dtype,
            f"pl.store: the tile is of {spelled(tile.dtype)}, the tensor of {spelled(target.dtype)}",
        )
        missing = len(target.shape) - len(tile.shape)
        ask(missing >= 0, f"pl.store: {tile.described} has more dimensions than {target.described}")
        whole = (1,) * missing + tile.extents if is_whole(self.source) else (None,) * len(target.shape)
        for axis, (offset, extent, dim) in enumerate(zip(self.offsets, whole, target.shape, strict=True)):
            ask_within("pl.store", axis, known(offset), extent, dim)


def is_whole(tile: SSAValue) -> bool:
    """Whether all of a tile is valid, by what can be seen of its making."""
    todo, seen = [tile], {tile}
    while todo:
        match owner := todo.pop().owner:
            case LoadOp() if not owner.valid_shape:
                sources: list[SSAValue] = []
            case FullOp() | FillPadOp():
                sources = []
            case UnaryOp() | CastOp() | MoveOp():
                sources = [owner.source]
            case BinaryOp():
                sources = [v for v in (owner.lhs, owner.rhs) if not is_scalar(v.type)]
            case _:
                return False
        todo += [v for v in sources if v not in seen]
        seen.update(sources)
    return True


@irdl_op_definition
class FullOp(IRDLOperation):
    """A tile of one value; without one, of whatever was there."""

    name = "program.full"
    value = opt_operand_def(Attribute)
    result = result_def(TileType)
    assembly_format = "($value^ `:` type($value))? attr-dict `->` type($result)"

    def __init__(self, value: SSAValue | None, type: TileType) -> None:
        super().__init__(operands=[value], result_types=[type])

    def verify_(self) -> None:
        """The value is of the element type."""
        wanted = scalar_type(shaped(self.result).dtype)
        ask(self.value is None or self.value.type == wanted, f"pl.full: the value must be a {spelled(wanted)}")


@irdl_op_definition
class MoveOp(IRDLOperation):
    """The tile in another memory."""

    name = "program.move"
    source = operand_def(TileType)
    result = result_def(TileType)
    traits = traits_def(Pure())
    assembly_format = "$source attr-dict `:` type($source) `->` type($result)"

    def __init__(self, source: SSAValue, type: TileType) -> None:
        super().__init__(operands=[source], result_types=[type])


@irdl_op_definition
class UnaryOp(IRDLOperation):
    """A function of each element: one of `UNARY`."""

    name = "program.unary"
    T: ClassVar = VarConstraint("T", base(TileType))
    op = prop_def(StringAttr)
    source = operand_def(T)
    result = result_def(T)
    traits = traits_def(Pure())
    assembly_format = "$op $source attr-dict `:` type($source)"

    def __init__(self, op: str, source: SSAValue) -> None:
        super().__init__(operands=[source], properties={"op": StringAttr(op)}, result_types=[source.type])

    def verify_(self) -> None:
        """There is such a function."""
        ask(self.op.data in UNARY, f"there is no unary op {self.op.data}")


@irdl_op_definition
class BinaryOp(IRDLOperation):
    """A function of each element of two tiles, or of a tile and a scalar: one of `BINARY`.

    A dimension of extent 1 of one tile meets each element of the other's.
    """

    name = "program.binary"
    op = prop_def(StringAttr)
    lhs = operand_def(TileType)
    rhs = operand_def(Attribute)
    result = result_def(TileType)
    traits = traits_def(Pure())
    assembly_format = "$op $lhs `,` $rhs attr-dict `:` type($lhs) `,` type($rhs) `->` type($result)"

    def __init__(self, op: str, lhs: SSAValue, rhs: SSAValue) -> None:
        type = broadcast(lhs, rhs) if isinstance(rhs.type, TileType) else lhs.type
        super().__init__(operands=[lhs, rhs], properties={"op": StringAttr(op)}, result_types=[type])

    def verify_(self) -> None:
        """Of one element type, with extents that meet."""
        ask(self.op.data in BINARY, f"there is no binary op {self.op.data}")
        name, lhs = word(self.op.data), shaped(self.lhs)
        if isinstance(self.rhs.type, TileType):
            rhs = shaped(self.rhs)
            ask(
                lhs.dtype is rhs.dtype,
                f"{name}: the operands are of {spelled(lhs.dtype)} and {spelled(rhs.dtype)}: cast one",
            )
            ask(_meets(lhs, rhs), f"{name}: the operands have shapes {_extents(lhs)} and {_extents(rhs)}")
            ask(self.result.type == broadcast(self.lhs, self.rhs), f"{name}: the result has another type")
        else:
            ask(
                self.rhs.type == scalar_type(lhs.dtype),
                f"{name}: the scalar is a {spelled(self.rhs.type)}, and the tile's elements are of "
                f"{spelled(lhs.dtype)}",
            )


def _extents(type: ShapedType) -> list[int]:
    return list(type.extents)


def _meets(lhs: ShapedType, rhs: ShapedType) -> bool:
    return len(lhs.shape) == len(rhs.shape) and all(
        a == b or 1 in (a, b) for a, b in zip(lhs.extents, rhs.extents, strict=True)
    )


def broadcast(lhs: SSAValue, rhs: SSAValue) -> TileType:
    """The type of what two tiles give together; that of the first where they do not fit."""
    a, b = lhs.type, rhs.type
    assert isinstance(a, TileType)
    assert isinstance(b, TileType)
    if not _meets(a, b):
        return a
    return TileType.of(
        [max(x, y) if 0 not in (x, y) else 0 for x, y in zip(a.extents, b.extents, strict=True)], a.dtype, a.memory
    )


@irdl_op_definition
class CastOp(IRDLOperation):
    """Elements in another type; floats to integers by a rounding of `ROUNDING` (``none``: toward zero)."""

    name = "program.cast"
    source = operand_def(TileType)
    rounding = prop_def(StringAttr)
    result = result_def(TileType)
    traits = traits_def(Pure())
    assembly_format = "$source $rounding attr-dict `:` type($source) `->` type($result)"

    def __init__(self, source: SSAValue, type: TileType, rounding: str = "none") -> None:
        super().__init__(operands=[source], properties={"rounding": StringAttr(rounding)}, result_types=[type])

    def verify_(self) -> None:
        """There is such a rounding; the extents stay."""
        ask(self.rounding.data in ROUNDING, f"pl.cast: there is no mode {self.rounding.data}")
        ask(shaped(self.source).shape == shaped(self.result).shape, "pl.cast: the extents change")


@irdl_op_definition
class ReduceOp(IRDLOperation):
    """One of `REDUCE` along a dimension, of which 1 is left."""

    name = "program.reduce"
    op = prop_def(StringAttr)
    axis = prop_def(StringAttr)
    source = operand_def(TileType)
    result = result_def(TileType)
    traits = traits_def(Pure())
    assembly_format = "$op $axis $source attr-dict `:` type($source) `->` type($result)"

    def __init__(self, op: str, source: SSAValue, axis: str) -> None:
        of = source.type
        assert isinstance(of, TileType)
        last = len(of.shape) - 1
        gone = last if axis == "row" else max(last - 1, 0)
        type = TileType.of([1 if d == gone else e for d, e in enumerate(of.extents)], of.dtype, of.memory)
        properties = {"op": StringAttr(op), "axis": StringAttr(axis)}
        super().__init__(operands=[source], properties=properties, result_types=[type])

    def verify_(self) -> None:
        """There is such an op; ``row`` is along each row, ``col`` along each column."""
        ask(self.op.data in REDUCE, f"there is no reduction {self.op.data}")
        ask(self.axis.data in ("row", "col"), "a reduction is along a row or a col")


@irdl_op_definition
class MatmulOp(IRDLOperation):
    """The product of two tiles, added to a third where there is one; integers and floats of 16 bits in 32."""

    name = "program.matmul"
    lhs = operand_def(TileType)
    rhs = operand_def(TileType)
    acc = opt_operand_def(TileType)
    result = result_def(TileType)
    traits = traits_def(Pure())
    assembly_format = (
        "$lhs `,` $rhs (`acc` $acc^ `:` type($acc))? attr-dict `:` type($lhs) `,` type($rhs) `->` type($result)"
    )

    def __init__(self, lhs: SSAValue, rhs: SSAValue, type: TileType, acc: SSAValue | None = None) -> None:
        super().__init__(operands=[lhs, rhs, acc], result_types=[type])

    def verify_(self) -> None:
        """Inner extents are the same."""
        a, b, c = (shaped(v) for v in (self.lhs, self.rhs, self.result))
        ask(len(a.shape) == len(b.shape) == 2, "pl.matmul: the operands must have 2 dimensions")
        ask(a.dtype is b.dtype, f"pl.matmul: the operands are of {spelled(a.dtype)} and {spelled(b.dtype)}")
        ask(a.shape[1] == b.shape[0], f"pl.matmul: {_extents(a)} and {_extents(b)} have different inner extents")
        ask(c.shape == (a.shape[0], b.shape[1]), "pl.matmul: the result has another shape")
        ask(self.acc is None or self.acc.type == self.result.type, "pl.matmul: acc must be what the result is")


@irdl_op_definition
class SetValidShapeOp(IRDLOperation):
    """The same tile, of which so much is valid."""

    name = "program.set_valid_shape"
    T: ClassVar = VarConstraint("T", base(TileType))
    source = operand_def(T)
    valid_shape = var_operand_def(IndexType)
    result = result_def(T)
    traits = traits_def(Pure())
    assembly_format = "$source `[` $valid_shape `]` attr-dict `:` type($source)"

    def __init__(self, source: SSAValue, valid_shape: Sequence[SSAValue]) -> None:
        super().__init__(operands=[source, valid_shape], result_types=[source.type])

    def verify_(self) -> None:
        """An extent for each dimension."""
        ask_indices("set_validshape", "valid_shape", self.valid_shape, self.source)


@irdl_op_definition
class FillPadOp(IRDLOperation):
    """The tile with a value where it is not valid; all of it is valid then."""

    name = "program.fillpad"
    T: ClassVar = VarConstraint("T", base(TileType))
    source = operand_def(T)
    value = operand_def(Attribute)
    result = result_def(T)
    traits = traits_def(Pure())
    assembly_format = "$source `,` $value attr-dict `:` type($source) `,` type($value)"

    def __init__(self, source: SSAValue, value: SSAValue) -> None:
        super().__init__(operands=[source, value], result_types=[source.type])

    def verify_(self) -> None:
        """The value is of the element type."""
        wanted = scalar_type(shaped(self.source).dtype)
        ask(self.value.type == wanted, f"pl.fillpad: the value must be a {spelled(wanted)}")


@irdl_op_definition
class SelectOp(IRDLOperation):
    """Elements of one tile or the other, by whether those of two others compare so (``lt le gt ge eq ne``)."""

    name = "program.select"
    T: ClassVar = VarConstraint("T", base(TileType))
    comparison = prop_def(StringAttr)
    lhs = operand_def(TileType)
    rhs = operand_def(Attribute)
    yes = operand_def(T)
    no = operand_def(T)
    result = result_def(T)
    traits = traits_def(Pure())
    assembly_format = (
        "$comparison $lhs `,` $rhs `,` $yes `,` $no attr-dict `:` type($lhs) `,` type($rhs) `,` type($yes)"
    )

    def __init__(self, comparison: str, lhs: SSAValue, rhs: SSAValue, yes: SSAValue, no: SSAValue) -> None:
        super().__init__(
            operands=[lhs, rhs, yes, no], properties={"comparison": StringAttr(comparison)}, result_types=[yes.type]
        )

    def verify_(self) -> None:
        """There is such a comparison; a scalar is of the tile's element type."""
        ask(self.comparison.data in ("lt", "le", "gt", "ge", "eq", "ne"), f"no comparison {self.comparison.data}")
        if is_scalar(self.rhs.type):
            ask(self.rhs.type == scalar_type(shaped(self.lhs).dtype), "a comparison is of one element type")
        ask(shaped(self.lhs).shape == shaped(self.yes).shape, "what is compared and what is chosen differ in shape")


OPS = (
    LoadOp,
    StoreOp,
    FullOp,
    MoveOp,
    UnaryOp,
    BinaryOp,
    CastOp,
    ReduceOp,
    MatmulOp,
    SetValidShapeOp,
    FillPadOp,
    SelectOp,
)
