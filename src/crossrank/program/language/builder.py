"""Where ops of a function are made: what the parser of a function's body, and the ops of the language, insert with.

Values of the language are SSA values, or what Python knows before anything runs: numbers, types, enums, and lists of
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, TypeVar, cast

from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    AnyFloat,
    FileLineColLoc,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    LocationAttr,
    UnknownLoc,
)
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from crossrank.errors import InputError
from crossrank.program.dialect.windows import SymbolOp
from crossrank.program.types import is_float, is_scalar

OpT = TypeVar("OpT", bound=Operation)


class Symbol:
    """A symbolic extent, ``pl.dynamic("NR")``, or an expression of one: ``text`` is how types have it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"pl.dynamic({self.text!r})"


Scalar = int | float | bool | Symbol | SSAValue
Extents = Sequence[Scalar]


class Builder:
    """Inserts ops at the end of a block, each with the place in the author's source that it stands for.

    Attributes:
        block: where ops go.
        location: of what is being parsed.
    """

    def __init__(self, block: Block, location: LocationAttr | None = None) -> None:
        self.block = block
        self.location: LocationAttr = location or UnknownLoc()

    def insert(self, op: OpT) -> OpT:
        """Put an op at the end; InputError with the author's place where its verifier refuses it."""
        op.location = self.location
        self.block.add_op(op)
        try:
            op.verify_()
        except VerifyException as error:
            self.fail(str(error))
        return op

    def fail(self, what: str, remedy: str = "") -> NoReturn:
        """Raise an InputError that begins with the author's place."""
        place = self.location
        if isinstance(place, FileLineColLoc):
            what = f"{place.filename.data}:{place.line.data}:{place.column.data}: {what}"
        raise InputError(what, remedy)

    def ask(self, holds: object, what: str, remedy: str = "") -> None:
        """`fail` where something does not hold."""
        if not holds:
            self.fail(what, remedy)

    def constant(self, value: int | float | bool, type: Attribute) -> SSAValue:
        """A constant of a scalar type; one that the type cannot hold is refused."""
        if is_float(type):
            return self.insert(arith.ConstantOp(FloatAttr(float(value), cast(AnyFloat, type)))).result
        if isinstance(value, float) and not value.is_integer():
            self.fail(f"{value} is no whole number, and {type} is wanted")
        number = int(value)
        if isinstance(type, IntegerType):
            bits = type.width.data
            self.ask(-(1 << (bits - 1)) <= number < (1 << bits), f"{number} is no {type}")
        assert isinstance(type, (IndexType, IntegerType))
        return self.insert(arith.ConstantOp(IntegerAttr(number, type, truncate_bits=True), type)).result

    def scalar(self, value: Scalar, type: Attribute) -> SSAValue:
        """A scalar of that type: a constant, or a value, converted between integers of any width and ``index``.

        Floats and integers do not become one another by themselves.
        """
        if isinstance(value, Symbol):
            value = self.insert(SymbolOp(value.text)).result
        if not isinstance(value, SSAValue):
            return self.constant(value, type)
        if value.type == type:
            return value
        self.ask(is_scalar(value.type), f"a scalar is wanted, and this is {value.type}")
        if is_float(value.type) != is_float(type) or is_float(type):
            self.fail(f"{value.type} does not become {type} by itself", "cast it: pl.cast(x, pl.FP32)")
        return self.convert(value, type)

    def convert(self, value: SSAValue, type: Attribute) -> SSAValue:
        """An integer or index as another."""
        if isinstance(value.type, IndexType) or isinstance(type, IndexType):
            return self.insert(arith.IndexCastOp(value, type)).result
        assert isinstance(value.type, IntegerType)
        assert isinstance(type, IntegerType)
        if value.type.width.data > type.width.data:
            return self.insert(arith.TruncIOp(value, type)).result
        wide = arith.ExtUIOp if value.type.width.data == 1 else arith.ExtSIOp
        return self.insert(wide(value, type)).result

    def index(self, value: Scalar) -> SSAValue:
        """An extent, offset or rank."""
        return self.scalar(value, IndexType())

    def indices(self, values: Extents) -> list[SSAValue]:
        """Several."""
        return [self.index(v) for v in values]
