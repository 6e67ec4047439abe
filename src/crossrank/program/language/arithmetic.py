"""Words that compute, a new tile from others: element by element, along rows and columns, products of matrices.

Tensors among their arguments are loaded whole first. Those of one or two elements compute on scalars, too, and then
they can stand anywhere.
"""

from __future__ import annotations

import math
from typing import Any

from xdsl.ir import SSAValue

from crossrank.collective.dtypes import dtype
from crossrank.program.dialect.tensors import TransposeOp, shaped
from crossrank.program.dialect.tiles import (
    ROUNDING,
    BinaryOp,
    CastOp,
    FillPadOp,
    FullOp,
    MatmulOp,
    ReduceOp,
    SelectOp,
    SetValidShapeOp,
    UnaryOp,
)
from crossrank.program.kinds import MemorySpace, PadValue
from crossrank.program.language import scalars
from crossrank.program.language.builder import Builder
from crossrank.program.language.op import KERNEL, Op, op
from crossrank.program.language.operands import (
    all_valid,
    element,
    extent,
    is_number,
    is_tensor,
    member,
    of_rank,
    said,
    tile,
    valid_part,
    view,
)
from crossrank.program.types import TileType, scalar_type

__all__ = [
    "abs",
    "add",
    "and_",
    "cast",
    "cmp",
    "col_expand",
    "col_expand_add",
    "col_expand_div",
    "col_expand_expdif",
    "col_expand_max",
    "col_expand_min",
    "col_expand_mul",
    "col_expand_sub",
    "col_max",
    "col_min",
    "col_sum",
    "div",
    "exp",
    "expands",
    "fillpad",
    "log",
    "matmul",
    "matmul_acc",
    "max",
    "maximum",
    "min",
    "minimum",
    "mul",
    "neg",
    "not_",
    "or_",
    "recip",
    "relu",
    "rem",
    "row_expand",
    "row_expand_add",
    "row_expand_div",
    "row_expand_expdif",
    "row_expand_max",
    "row_expand_min",
    "row_expand_mul",
    "row_expand_sub",
    "row_max",
    "row_min",
    "row_sum",
    "rsqrt",
    "sel",
    "set_validshape",
    "shl",
    "shr",
    "sqrt",
    "sub",
    "xor",
]

SCALAR_UNARY = {"abs": "abs", "neg": "neg", "not": "invert"}
SCALAR_BINARY = {"rem": "mod"}
"""What scalars call it, where that is another name."""
COMMUTATIVE = ("add", "mul", "max", "min", "and", "or", "xor")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
"""By the numbers that ``pl.cmp`` takes."""


def _tile_type(of: SSAValue) -> TileType:
    assert isinstance(of.type, TileType)
    return of.type


def filled(b: Builder, type: TileType, value: Any) -> SSAValue:
    """A tile of one value."""
    return b.insert(FullOp(b.scalar(value, scalar_type(type.dtype)), type)).result


def elementwise(b: Builder, title: str, name: str, lhs: Any, rhs: Any) -> Any:
    """One of the dialect's `BINARY`, of scalars or with a tile in it."""
    if is_number(lhs) and is_number(rhs):
        return scalars.binary(b, SCALAR_BINARY.get(name, name), lhs, rhs)
    if is_number(lhs):
        other = tile(b, title, rhs)
        first, second = (other, lhs) if name in COMMUTATIVE else (filled(b, _tile_type(other), lhs), other)
    else:
        first, second = tile(b, title, lhs), rhs
    if is_number(second):
        return b.insert(BinaryOp(name, first, b.scalar(second, scalar_type(shaped(first).dtype)))).result
    second = tile(b, title, second)
    rank = max_rank(first, second)
    return b.insert(BinaryOp(name, of_rank(b, title, first, rank), of_rank(b, title, second, rank))).result


def max_rank(*tiles: SSAValue) -> int:
    """The most dimensions that one of them has."""
    return sorted(len(shaped(t).shape) for t in tiles)[-1]


def _unary(word: str, name: str, what: str) -> Op:
    def emit(b: Builder, input: Any) -> Any:
        if is_number(input):
            b.ask(name in SCALAR_UNARY, f"pl.{word} takes a tile or a tensor, got {said(input)}")
            return scalars.unary(b, SCALAR_UNARY[name], input)
        return b.insert(UnaryOp(name, tile(b, f"pl.{word}", input))).result

    emit.__doc__ = f"{what} of each element."
    return op(f"pl.{word}")(emit)


def _binary(word: str, name: str, what: str) -> Op:
    def emit(b: Builder, lhs: Any, rhs: Any) -> Any:
        return elementwise(b, f"pl.{word}", name, lhs, rhs)

    emit.__doc__ = (
        f"{what}, element by element, of tiles of one element type or of a tile and a scalar; a dimension of extent 1 "
        "meets each element of the other's. Of two scalars it is a scalar."
    )
    return op(f"pl.{word}")(emit)


abs = _unary("abs", "abs", "The absolute value")
exp = _unary("exp", "exp", "e to the power")
log = _unary("log", "log", "The natural logarithm")
neg = _unary("neg", "neg", "The negative")
not_ = _unary("not_", "not", "The inverted bits")
recip = _unary("recip", "recip", "The reciprocal")
relu = _unary("relu", "relu", "The larger of zero and the element,")
rsqrt = _unary("rsqrt", "rsqrt", "The reciprocal of the square root")
sqrt = _unary("sqrt", "sqrt", "The square root")

add = _binary("add", "add", "The sum")
sub = _binary("sub", "sub", "The difference")
mul = _binary("mul", "mul", "The product")
div = _binary("div", "div", "The quotient")
rem = _binary("rem", "rem", "What division leaves")
maximum = _binary("maximum", "max", "The larger")
minimum = _binary("minimum", "min", "The smaller")
max = _binary("max", "max", "The larger")
min = _binary("min", "min", "The smaller")
and_ = _binary("and_", "and", "The bits that both have")
or_ = _binary("or_", "or", "The bits that one of them has")
xor = _binary("xor", "xor", "The bits that only one of them has")
shl = _binary("shl", "shl", "The bits moved up")
shr = _binary("shr", "shr", "The bits moved down")


@op("pl.cast")
def cast(b: Builder, input: Any, target_type: Any, mode: Any = "round") -> Any:
    """Elements of another type, or a scalar of another.

    ``mode`` is one of none, rint, round, floor, ceil, trunc, or its number; it matters where floats become integers.
    """
    if is_number(input):
        element(b, "pl.cast", target_type)
        return scalars.cast_to(b, input, target_type)
    source = tile(b, "pl.cast", input)
    wanted, of = element(b, "pl.cast", target_type), _tile_type(source)
    if isinstance(mode, int) and 0 <= mode < len(ROUNDING):
        mode = ROUNDING[mode]
    b.ask(mode in ROUNDING, f"pl.cast: there is no mode {mode!r}", f"modes are {', '.join(ROUNDING)}")
    if wanted is of.dtype:
        return source
    return b.insert(CastOp(source, TileType.of(of.extents, wanted, of.memory), mode)).result


def _reduction(name: str, axis: str, what: str) -> Op:
    title = f"pl.{axis}_{name}"

    def emit(b: Builder, input: Any, tmp_tile: Any = None) -> Any:
        return b.insert(ReduceOp(name, tile(b, title, input), axis)).result

    emit.__doc__ = (
        f"{what} of each {'row' if axis == 'row' else 'column'}, of which 1 is left; it needs no ``tmp_tile``."
    )
    return op(title, KERNEL)(emit)


row_sum = _reduction("sum", "row", "The sum")
row_max = _reduction("max", "row", "The largest element")
row_min = _reduction("min", "row", "The smallest element")
col_sum = _reduction("sum", "col", "The sum")
col_max = _reduction("max", "col", "The largest element")
col_min = _reduction("min", "col", "The smallest element")


def _vector(b: Builder, title: str, axis: str, value: Any) -> SSAValue:
    """A tile of one column (``row``: a value for each row) or one row (``col``)."""
    found = tile(b, title, value)
    shape = shaped(found).shape
    one = shape[-1] if axis == "row" else shape[-2] if len(shape) > 1 else 1
    wanted = "[rows, 1]" if axis == "row" else "[1, columns]"
    b.ask(one == 1, f"{title} takes a vector of shape {wanted}, got {said(found)}")
    return found


def _expanded(axis: str, name: str, what: str) -> Op:
    title = f"pl.{axis}_expand_{name}"

    def emit(b: Builder, input: Any, vector: Any) -> Any:
        vector = _vector(b, title, axis, vector)
        if name == "expdif":
            return b.insert(UnaryOp("exp", elementwise(b, title, "sub", input, vector))).result
        return elementwise(b, title, name, input, vector)

    each = "a value for each row" if axis == "row" else "a value for each column"
    emit.__doc__ = f"{what} each element and the vector's, which has {each}."
    return op(title, KERNEL)(emit)


row_expand_add = _expanded("row", "add", "The sum of")
row_expand_sub = _expanded("row", "sub", "The difference of")
row_expand_mul = _expanded("row", "mul", "The product of")
row_expand_div = _expanded("row", "div", "The quotient of")
row_expand_max = _expanded("row", "max", "The larger of")
row_expand_min = _expanded("row", "min", "The smaller of")
row_expand_expdif = _expanded("row", "expdif", "e to the power of the difference of")
col_expand_add = _expanded("col", "add", "The sum of")
col_expand_sub = _expanded("col", "sub", "The difference of")
col_expand_mul = _expanded("col", "mul", "The product of")
col_expand_div = _expanded("col", "div", "The quotient of")
col_expand_max = _expanded("col", "max", "The larger of")
col_expand_min = _expanded("col", "min", "The smaller of")
col_expand_expdif = _expanded("col", "expdif", "e to the power of the difference of")


def _expand(axis: str) -> Op:
    title = f"pl.{axis}_expand"

    def emit(b: Builder, target: Any, vector: Any) -> Any:
        of, found = _tile_type(tile(b, title, target)), _vector(b, title, axis, vector)
        # A product with 1 is the value itself, whatever it is.
        ones = filled(b, TileType.of(of.extents, shaped(found).dtype, of.memory), 1)
        return elementwise(b, title, "mul", ones, found)

    emit.__doc__ = (
        f"A tile of the target's shape, each {'row' if axis == 'row' else 'column'} of it the vector's value."
    )
    return op(title, KERNEL)(emit)


row_expand = _expand("row")
col_expand = _expand("col")


@op("pl.expands", KERNEL)
def expands(b: Builder, target: Any, scalar: Any) -> Any:
    """A tile of the target's shape and element type, of one value."""
    return filled(b, _tile_type(tile(b, "pl.expands", target)), scalar)


@op("pl.cmp", KERNEL)
def cmp(b: Builder, lhs: Any, rhs: Any, cmp_type: int = 0) -> Any:
    """A tile of BOOL: where elements compare so: 0 ``==``, 1 ``!=``, 2 ``<``, 3 ``<=``, 4 ``>``, 5 ``>=``."""
    b.ask(cmp_type in range(len(COMPARISONS)), f"pl.cmp cmp_type must be 0 to 5, got {cmp_type}")
    first = tile(b, "pl.cmp", lhs)
    second = b.scalar(rhs, scalar_type(shaped(first).dtype)) if is_number(rhs) else tile(b, "pl.cmp", rhs)
    type = TileType.of(shaped(first).extents, dtype("pred"))
    yes, no = filled(b, type, True), filled(b, type, False)
    return b.insert(SelectOp(COMPARISONS[cmp_type], first, second, yes, no)).result


@op("pl.sel", KERNEL)
def sel(b: Builder, mask: Any, lhs: Any, rhs: Any) -> Any:
    """Elements of ``lhs`` where the mask is not zero, else of ``rhs``, one of which may be a scalar."""
    chosen = tile(b, "pl.sel", mask)
    zero = b.scalar(0, scalar_type(shaped(chosen).dtype))
    one = tile(b, "pl.sel", rhs if is_number(lhs) else lhs)
    yes, no = (
        filled(b, _tile_type(one), value) if is_number(value) else tile(b, "pl.sel", value) for value in (lhs, rhs)
    )
    return b.insert(SelectOp("ne", chosen, zero, yes, no)).result


def _product(
    b: Builder, title: str, acc: SSAValue | None, lhs: Any, rhs: Any, a_trans: bool, b_trans: bool
) -> SSAValue:
    first, second = (
        swapped(b, tile(b, title, v), 0, 1) if trans else tile(b, title, v)
        for v, trans in ((lhs, a_trans), (rhs, b_trans))
    )
    a, c = _tile_type(first), _tile_type(second)
    b.ask(
        len(a.shape) == len(c.shape) == 2,
        f"{title} takes two tiles of 2 dimensions, got {said(first)} and {said(second)}",
    )
    wide = dtype("s32" if a.dtype.is_integer else "f64" if a.dtype.name == "f64" else "f32")
    type = TileType.of([a.extents[0], c.extents[1]], wide, MemorySpace.Acc) if acc is None else _tile_type(acc)
    return b.insert(MatmulOp(first, second, type, acc)).result


def swapped(b: Builder, source: SSAValue, axis1: int, axis2: int) -> SSAValue:
    """Two dimensions exchanged; negative ones count from the last."""
    all_valid(b, "pl.transpose", source)
    type = shaped(source)
    rank = len(type.shape)
    axes = [a + rank if a < 0 else a for a in (axis1, axis2)]
    b.ask(all(0 <= a < rank for a in axes), f"pl.transpose: {type.described} has no dimensions {axis1}, {axis2}")
    shape = list(type.shape)
    shape[axes[0]], shape[axes[1]] = shape[axes[1]], shape[axes[0]]
    return b.insert(TransposeOp(source, axes[0], axes[1], type.with_shape(shape))).result


@op("pl.matmul", KERNEL)
def matmul(
    b: Builder,
    lhs: Any,
    rhs: Any,
    out_dtype: Any = None,
    a_trans: bool = False,
    b_trans: bool = False,
    c_matrix_nz: bool = False,
) -> Any:
    """The product of two matrices: ``[M, K]`` and ``[K, N]`` give ``[M, N]``.

    Of FP16, BF16 and FP32 it is in FP32, of integers in INT32, or in ``out_dtype`` after that.
    """
    found = _product(b, "pl.matmul", None, lhs, rhs, a_trans, b_trans)
    return found if out_dtype is None else cast.emit(b, [found, out_dtype], {"mode": "rint"})


@op("pl.matmul_acc", KERNEL)
def matmul_acc(b: Builder, acc: Any, lhs: Any, rhs: Any, a_trans: bool = False, b_trans: bool = False) -> Any:
    """``acc`` and the product of two matrices."""
    return _product(b, "pl.matmul_acc", tile(b, "pl.matmul_acc", acc), lhs, rhs, a_trans, b_trans)


@op("pl.fillpad", KERNEL)
def fillpad(b: Builder, x: Any, pad_value: Any = PadValue.zero) -> Any:
    """The tile with zeros, or the element type's largest or smallest value, where it is not valid."""
    source = tile(b, "pl.fillpad", x)
    if not is_number(pad_value):
        pad_value = _extreme(shaped(source).dtype.name, member(b, "pl.fillpad", "pad_value", PadValue, pad_value))
    return b.insert(FillPadOp(source, b.scalar(pad_value, scalar_type(shaped(source).dtype)))).result


def _extreme(name: str, pad: PadValue) -> int | float:
    of = dtype(name)
    if pad is PadValue.zero:
        return 0
    if of.is_float:
        return math.inf if pad is PadValue.max else -math.inf
    low = -(1 << (of.bits - 1)) if of.is_signed else 0
    return low + (1 << of.bits) - 1 if pad is PadValue.max else low


@op("pl.set_validshape")
def set_validshape(b: Builder, x: Any, valid_rows: Any, valid_cols: Any) -> Any:
    """The same tile or tensor of 2 dimensions, of which so many rows and columns are valid."""
    title = "pl.set_validshape"
    source = x if is_tensor(x) else tile(b, title, x)
    rank = len(shaped(source).shape)
    b.ask(rank == 2, f"{title} takes a tile or a tensor of 2 dimensions, got {said(source)}")
    if is_tensor(source):
        valid = valid_part(b, title, shaped(source).shape, [valid_rows, valid_cols])
        return view(b, source, [0, 0], [extent(b, source, axis) for axis in range(2)], valid=valid)
    return b.insert(SetValidShapeOp(source, b.indices([valid_rows, valid_cols]))).result
