"""Brackets: ``x[r]``, ``x[r, 0:64]``, ``x[i, j]``, read and written."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xdsl.ir import SSAValue

from crossrank.program.dialect.tensors import ReadOp, WriteOp, shaped
from crossrank.program.dialect.tiles import StoreOp
from crossrank.program.language import scalars
from crossrank.program.language.affine import difference
from crossrank.program.language.builder import Scalar, Symbol
from crossrank.program.language.operands import extent, is_number, of_rank, said, tile, view
from crossrank.program.types import ArrayType, ShapedType, scalar_type, spelled

if TYPE_CHECKING:
    from crossrank.program.language.parse.expressions import Expressions


@dataclass(frozen=True)
class Part:
    """A part of a value.

    Attributes:
        of: the value.
        offsets: where the part begins in each dimension.
        extents: how long it is there.
        drop: the dimensions that an index, and no slice, stands for.
    """

    of: SSAValue
    offsets: list[Scalar] = field(default_factory=list)
    extents: list[Scalar] = field(default_factory=list)
    drop: list[int] = field(default_factory=list)

    @property
    def is_element(self) -> bool:
        """Whether it is one element."""
        return len(self.drop) == len(self.offsets)


def part(body: Expressions, node: ast.Subscript, of: SSAValue) -> Part:
    """Of which part of a value brackets speak."""
    if not isinstance(of.type, ShapedType):
        body.fail_at(node, f"{spelled(of.type)} has no elements")
    items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    rank = len(of.type.shape)
    if len(items) > rank:
        body.fail_at(node, f"{spelled(of.type)} has {rank} dimensions, and is given {len(items)} indices")
    found = Part(of)
    for axis in range(rank):
        item = items[axis] if axis < len(items) else None
        with body.at(item or node):
            if item is None or isinstance(item, ast.Slice):
                begin, length = _range(body, item or ast.Slice(), of, axis)
            else:
                begin, length = _index(body, body.evaluate(item)), 1
                found.drop.append(axis)
            _check(body, begin, length, of, axis)
        found.offsets.append(begin)
        found.extents.append(length)
    return found


def _index(body: Expressions, value: Any) -> Scalar:
    if not is_number(value) or isinstance(value, float):
        body.fail(f"an index is an integer, and this is {said(value)}")
    assert isinstance(value, (int, Symbol, SSAValue))
    return value


def _range(body: Expressions, item: ast.Slice, of: SSAValue, axis: int) -> tuple[Scalar, Scalar]:
    """Where a slice begins, and how long it is: a number where that is seen, as in ``i * 8:(i + 1) * 8``."""
    body.ask(item.step is None, "a slice has no step", "write begin:end")
    begin: Scalar = 0 if item.lower is None else _index(body, body.evaluate(item.lower))
    match item.upper:
        case None:
            end: Scalar = extent(body, of, axis)
        case ast.BinOp(left, ast.Add(), more) if item.lower is not None and ast.dump(left) == ast.dump(item.lower):
            return begin, _index(body, body.evaluate(more))  # and no op is made for the end
        case upper:
            end = _index(body, body.evaluate(upper))
    length = difference(end, begin)
    return begin, scalars.binary(body, "sub", end, begin) if length is None else length


def _check(body: Expressions, begin: Scalar, length: Scalar, of: SSAValue, axis: int) -> None:
    for number in (begin, length):
        if isinstance(number, int) and number < 0:
            body.fail(f"{number} is negative", "indices count from the begin, and ranges run forwards")
    whole = shaped(of).shape[axis]
    if isinstance(begin, int) and isinstance(length, int) and isinstance(whole, int):
        body.ask(
            begin + length <= whole, f"{begin}:{begin + length} lies beyond dimension {axis}, whose extent is {whole}"
        )


def read(body: Expressions, of: Part) -> SSAValue:
    """A part as a value: an element as a scalar, else a view."""
    if of.is_element:
        return body.insert(ReadOp(of.of, body.indices(of.offsets))).result
    return view(body, of.of, of.offsets, of.extents, of.drop)


def write(body: Expressions, to: Part, value: Any) -> SSAValue:
    """Let a part be a value; gives the handle on the whole."""
    if to.is_element and is_number(value):
        element = body.scalar(value, scalar_type(shaped(to.of).dtype))
        body.insert(WriteOp(to.of, body.indices(to.offsets), element))
        return to.of
    body.ask(not isinstance(to.of.type, ArrayType), "an element of an array is a scalar")
    source = tile(body, "x[…] = value", value)
    extents = shaped(source).extents
    body.ask(
        all(isinstance(e, int) for e in to.extents),
        "this part has extents that are known only when the program runs",
        "say how much of the tile is valid, and store it: pl.store(tile, offsets, x)",
    )
    body.ask(
        [e for e in to.extents if e != 1] == [e for e in extents if e != 1],
        f"a part of extents {to.extents} cannot become what has extents {list(extents)}",
    )
    if len(extents) > len(to.offsets):
        source = of_rank(body, "x[…] = value", source, len(to.offsets))
    return body.insert(StoreOp(source, to.of, body.indices(to.offsets))).result
