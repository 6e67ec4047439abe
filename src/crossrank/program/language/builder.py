"""Where ops of a function are made: what the parser of a function's body, and the ops of the language, insert with.

Values of the language are SSA values, or what Python knows before anything runs: numbers, types, enums, and lists of
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    i1,
)
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from crossrank.errors import InputError
from crossrank.program.dialect.windows import SymbolOp
from crossrank.program.kinds import Level
from crossrank.program.types import element_of, is_float, is_scalar, spelled

OpT = TypeVar("OpT", bound=Operation)


def _expression(sign: str, *, swapped: bool = False) -> Callable[[Symbol, Symbol | int], Symbol]:
    def join(self: Symbol, other: Symbol | int) -> Symbol:
        if not isinstance(other, (Symbol, int)):
            return NotImplemented
        lhs, rhs = (other, self) if swapped else (self, other)
        left, right = (f"({o.text})" if isinstance(o, Symbol) and o.parts else str(o) for o in (lhs, rhs))
        return Symbol(f"{left} {sign} {right}", (sign, lhs, rhs))

    return join


class Symbol:
    """A symbolic extent, ``pl.dynamic("NR")``, or an expression of some: ``NR * 2``.

    Attributes:
        text: how types have it.
        parts: of an expression its sign and its two operands.
    """

    def __init__(self, text: str, parts: tuple[str, Symbol | int, Symbol | int] | None = None) -> None:
        self.text = text
        self.parts = parts

    __add__, __radd__ = _expression("+"), _expression("+", swapped=True)
    __sub__, __rsub__ = _expression("-"), _expression("-", swapped=True)
    __mul__, __rmul__ = _expression("*"), _expression("*", swapped=True)
    __floordiv__, __rfloordiv__ = _expression("//"), _expression("//", swapped=True)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"pl.dynamic({self.text!r})"


_SIGNS: dict[str, Callable[[SSAValue, SSAValue], Operation]] = {
    "+": arith.AddiOp,
    "-": arith.SubiOp,
    "*": arith.MuliOp,
    "//": arith.FloorDivSIOp,
}

Scalar = int | float | bool | Symbol | SSAValue
Extents = Sequence[Scalar]


class Builder:
    """Inserts ops at the end of a block, each with the place in the author's source that it stands for.

    Attributes:
        block: where ops go.
        location: of what is being parsed.
        level: whose statements these are: of HOST, of CHIP, or of a kernel (CORE_GROUP).
    """

    def __init__(self, block: Block, location: LocationAttr | None = None, level: Level = Level.CORE_GROUP) -> None:
        self.block = block
        self.location: LocationAttr = location or UnknownLoc()
        self.level = level
        self._constants: dict[tuple[Block, str, Attribute], SSAValue] = {}

    @property
    def in_kernel(self) -> bool:
        """Whether it is a kernel's body."""
        return self.level is Level.CORE_GROUP

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
        """A constant of a scalar type, one for each block; one that the type cannot hold is refused."""
        if is_float(type):
            try:
                value = float(value)
            except OverflowError:
                self.fail(f"a number of {int(value).bit_length()} bits is no {spelled(type)}")
        elif isinstance(value, int):
            self.ask(value.bit_length() <= 64, f"a number of {value.bit_length()} bits is no {spelled(type)}")
        key = (self.block, repr(value), type)
        if key not in self._constants:
            self._constants[key] = self._constant(value, type)
        return self._constants[key]

    def _constant(self, value: int | float | bool, type: Attribute) -> SSAValue:
        if is_float(type):
            return self.insert(arith.ConstantOp(FloatAttr(value, cast(AnyFloat, type)))).result
        if isinstance(value, float) and not value.is_integer():
            self.fail(f"{value} is no whole number, and {spelled(type)} is wanted")
        number = int(value)
        assert isinstance(type, (IndexType, IntegerType))
        bits, unsigned = (64, False) if isinstance(type, IndexType) else (type.width.data, True)
        self.ask(-(1 << (bits - 1)) <= number < (1 << (bits - 1 + unsigned)), f"{number} is no {spelled(type)}")
        return self.insert(arith.ConstantOp(IntegerAttr(number, type, truncate_bits=True), type)).result

    def scalar(self, value: Scalar, type: Attribute) -> SSAValue:
        """A scalar of that type: a constant, or a value, converted between integers of any width and ``index``.

        Floats and integers do not become one another by themselves.
        """
        if isinstance(value, Symbol):
            value = self.symbol(value)
        if not isinstance(value, SSAValue):
            return self.constant(value, type)
        if value.type == type:
            return value
        self.ask(is_scalar(value.type), f"a scalar is wanted, and this is {spelled(value.type)}")
        if is_float(value.type) != is_float(type) or is_float(type):
            element = "INDEX" if isinstance(type, IndexType) else spelled(element_of(type))
            self.fail(
                f"{spelled(value.type)} does not become {spelled(type)} by itself", f"cast it: pl.cast(x, pl.{element})"
            )
        return self.convert(value, type)

    def symbol(self, symbol: Symbol) -> SSAValue:
        """The value of a symbolic extent, or of an expression of some; an ``index``."""
        if symbol.parts is None:
            return self.insert(SymbolOp(symbol.text)).result
        sign, lhs, rhs = symbol.parts
        return self.insert(_SIGNS[sign](self.index(lhs), self.index(rhs))).results[0]

    def convert(self, value: SSAValue, type: Attribute) -> SSAValue:
        """An integer or index as another; as a truth, whether it is not zero."""
        if type == i1:
            return self.insert(arith.CmpiOp(value, self.constant(0, value.type), "ne")).result
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
