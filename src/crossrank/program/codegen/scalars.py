"""Arithmetic on scalars as C++ expressions. Integers wrap (the compiler is told so); floats are rounded op by op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdsl.dialects import arith
from xdsl.dialects.builtin import i1
from xdsl.ir import Operation, SSAValue

from crossrank.program.codegen.spelling import unsigned_type, value_type

Names = Callable[[SSAValue], str]
"""What a value is called."""

Expression = Callable[[Any, Names], str]


def _infix(sign: str, of_truths: str = "") -> Expression:
    def expression(op: Operation, name: Names) -> str:
        lhs, rhs = map(name, op.operands)
        type = op.operands[0].type
        if all(isinstance(value.owner, arith.ConstantOp) for value in op.operands):
            lhs = f"{value_type(type)}({lhs})"  # wide enough for what comes out
        return f"{lhs} {of_truths if of_truths and type == i1 else sign} {rhs}"

    return expression


def _function(function: str, *first: str, unsigned: bool = False) -> Expression:
    """A function that is told the type that it works in."""

    def expression(op: Operation, name: Names) -> str:
        type = (unsigned_type if unsigned else value_type)(op.results[0].type)
        call = f"cr::{function}<{type}>({', '.join((*first, *map(name, op.operands)))})"
        return f"{value_type(op.results[0].type)}({call})" if unsigned else call

    return expression


def _converted(op: Operation, name: Names) -> str:
    return f"cr::convert<{value_type(op.results[0].type)}>({name(op.operands[0])})"


def _from_unsigned(op: Operation, name: Names) -> str:
    value = op.operands[0]
    return f"cr::convert<{value_type(op.results[0].type)}>({unsigned_type(value.type)}({name(value)}))"


def _plain(op: Operation, name: Names) -> str:
    return f"{value_type(op.results[0].type)}({name(op.operands[0])})"


def _cut(op: arith.TruncIOp, name: Names) -> str:
    value = name(op.input)
    return f"bool({value} & 1)" if op.result.type == i1 else f"{value_type(op.result.type)}({value})"


_INTEGER_SIGNS = ("==", "!=", "<", "<=", ">", ">=", "<", "<=", ">", ">=")
_UNSIGNED_FROM = 6


def _compare_integers(op: arith.CmpiOp, name: Names) -> str:
    number = op.predicate.value.data
    values = [name(v) for v in op.operands]
    if number >= _UNSIGNED_FROM:
        values = [f"{unsigned_type(op.lhs.type)}({v})" for v in values]
    return f"{values[0]} {_INTEGER_SIGNS[number]} {values[1]}"


_FLOAT_COMPARISONS = (
    "false",
    *("{0} == {1}", "{0} > {1}", "{0} >= {1}", "{0} < {1}", "{0} <= {1}", "{0} < {1} || {0} > {1}"),
    "{0} == {0} && {1} == {1}",
    *("!({0} < {1} || {0} > {1})", "!({0} <= {1})", "!({0} < {1})", "!({0} >= {1})", "!({0} > {1})", "{0} != {1}"),
    "{0} != {0} || {1} != {1}",
    "true",
)


def _compare_floats(op: arith.CmpfOp, name: Names) -> str:
    return _FLOAT_COMPARISONS[op.predicate.value.data].format(*map(name, op.operands))


def _select(op: arith.SelectOp, name: Names) -> str:
    condition, yes, no = map(name, op.operands)
    return f"{condition} ? {yes} : {no}"


ARITHMETIC: dict[type[Operation], Expression] = {
    arith.AddiOp: _infix("+", "^"),
    arith.SubiOp: _infix("-", "^"),
    arith.MuliOp: _infix("*", "&"),
    arith.DivSIOp: _function("divide", "core"),
    arith.DivUIOp: _function("divide", "core", unsigned=True),
    arith.FloorDivSIOp: _function("floor_divide", "core"),
    arith.CeilDivSIOp: _function("ceil_divide", "core"),
    arith.RemSIOp: _function("remainder", "core"),
    arith.RemUIOp: _function("remainder", "core", unsigned=True),
    arith.MinSIOp: _function("Minimum::of"),
    arith.MaxSIOp: _function("Maximum::of"),
    arith.MinUIOp: _function("Minimum::of", unsigned=True),
    arith.MaxUIOp: _function("Maximum::of", unsigned=True),
    arith.AndIOp: _infix("&"),
    arith.OrIOp: _infix("|"),
    arith.XOrIOp: _infix("^"),
    arith.ShLIOp: _function("ShiftLeft::of"),
    arith.ShRSIOp: _function("ShiftRight::of"),
    arith.ShRUIOp: _function("ShiftRight::of", unsigned=True),
    arith.AddfOp: _infix("+"),
    arith.SubfOp: _infix("-"),
    arith.MulfOp: _infix("*"),
    arith.DivfOp: _infix("/"),
    arith.NegfOp: lambda op, name: f"-({name(op.operand)})",
    arith.MinimumfOp: _function("Minimum::of"),
    arith.MaximumfOp: _function("Maximum::of"),
    arith.CmpiOp: _compare_integers,
    arith.CmpfOp: _compare_floats,
    arith.SelectOp: _select,
    arith.IndexCastOp: _plain,
    arith.ExtSIOp: _plain,
    arith.ExtUIOp: _from_unsigned,
    arith.TruncIOp: _cut,
    arith.SIToFPOp: _converted,
    arith.UIToFPOp: _from_unsigned,
    arith.FPToSIOp: _converted,
    arith.ExtFOp: _converted,
    arith.TruncFOp: _converted,
}
"""What computes nothing but a scalar."""

CAN_FAIL = (arith.DivSIOp, arith.DivUIOp, arith.FloorDivSIOp, arith.CeilDivSIOp, arith.RemSIOp, arith.RemUIOp)
"""Those that divide."""

WIDTHS = (arith.IndexCastOp, arith.ExtSIOp)
"""Those that change the width of an integer, and nothing where C++ has one type for both."""
