"""What a function is given, held against what its parameters are declared to be; symbolic extents get their values."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from crossrank.program.execute.failures import ask, refuse
from crossrank.program.execute.views import View
from crossrank.program.program import Function
from crossrank.program.types import ANY_TENSOR, UNKNOWN, DistTensorType, ShapedType

Symbols = dict[str, int]


class Parameters:
    """The parameters of a function, ready to be bound at each call."""

    def __init__(self, function: Function) -> None:
        self.function = function.name
        self.params = function.params
        self.tensors: list[tuple[int, str, ShapedType]] = [
            (n, p.name, p.type) for n, p in enumerate(self.params) if isinstance(p.type, ANY_TENSOR)
        ]

    def bind(self, values: Sequence[Any]) -> tuple[list[Any], Symbols]:
        """The values as the function has them, and its symbolic extents.

        A tensor may come with more or fewer leading dimensions of extent 1 than its parameter has.

        Raises:
            Refused: a tensor is not what its parameter is declared to be.
        """
        found = list(values)
        symbols: Symbols = {}
        said: dict[str, str] = {}
        composite: list[tuple[int, str, ShapedType, str, int]] = []
        for n, name, type in self.tensors:
            view = found[n]
            if view.array.ndim != len(type.shape):
                found[n] = view = view.as_rank(len(type.shape))
            if view.array.ndim != len(type.shape) or view.array.dtype != type.dtype.numpy:
                self._refuse(name, type, values[n])
            if isinstance(type, DistTensorType) and view.window is None:
                refuse(f"{name} of {self.function} is a distributed tensor, and gets a tensor that is none")
            for declared, actual in zip(type.shape, view.array.shape, strict=True):
                if isinstance(declared, int):
                    if declared != actual:
                        self._refuse(name, type, values[n])
                elif declared.isidentifier():
                    if symbols.setdefault(declared, actual) != actual:
                        self._refuse(name, type, values[n], f"{declared} is {symbols[declared]} by {said[declared]}")
                    said.setdefault(declared, name)
                elif declared != UNKNOWN:
                    composite.append((n, name, type, declared, actual))
        for n, name, type, declared, actual in composite:
            value = evaluate(declared, symbols)
            if value is None:
                value = symbols.setdefault(declared, actual)
            if value != actual:
                self._refuse(name, type, values[n], f"{declared} is {value}")
        return found, symbols

    def _refuse(self, name: str, type: ShapedType, view: View, why: str = "") -> None:
        refuse(
            f"{name} of {self.function} is declared {type.described}, and gets {view.described}"
            + (f": {why}" if why else "")
        )


_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def evaluate(expression: str, symbols: Mapping[str, int]) -> int | None:
    """What an extent's expression (``M * 2``) is worth; None where nothing says what one of its symbols is."""
    if expression in symbols:
        return symbols[expression]
    try:
        return _value(ast.parse(expression, mode="eval").body, symbols)
    except (SyntaxError, KeyError, ZeroDivisionError):
        return None


def _value(node: ast.expr, symbols: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return symbols[name]
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_value(left, symbols), _value(right, symbols))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, symbols)
    raise KeyError(ast.unparse(node))


def symbol(name: str, symbols: Mapping[str, int], function: str) -> int:
    """The value of a symbolic extent in the body of a function; Refused where no parameter gives it one."""
    value = evaluate(name, symbols)
    ask(
        value is not None,
        f"nothing says what {name} is: no parameter of {function} has it as an extent",
        "make it an extent of one, or pass it as a scalar",
    )
    assert value is not None
    return value
