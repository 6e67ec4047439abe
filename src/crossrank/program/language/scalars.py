"""Scalars: what operators, comparisons and casts of them become.

Python's numbers are folded. One beside a value takes the value's type; integers of two widths meet in the wider one, or
in ``index`` where one of them is that; floats of two types, or a float and an integer, meet only by a cast.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, cast

from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat, IndexType, IntegerType, f32, i1, i64
from xdsl.ir import Attribute, Operation, SSAValue

from crossrank.program.language.builder import Builder, Scalar, Symbol
from crossrank.program.language.dtypes import DataType
from crossrank.program.types import is_float, is_scalar, spelled

Folder = Callable[[Any, Any], Any]

SIGNS: dict[str, str] = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "and": "&",
    "or": "|",
    "xor": "^",
    "shl": "<<",
    "shr": ">>",
    "max": "max",
    "min": "min",
}
"""The binary ops, as programs write them."""

FOLD: dict[str, Folder] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": operator.lshift,
    "shr": operator.rshift,
    "max": max,
    "min": min,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
_FOLD_UNARY: dict[str, Callable[[Any], Any]] = {"neg": operator.neg, "abs": abs, "invert": operator.invert}
_INTEGER: dict[str, Callable[[SSAValue, SSAValue], Operation]] = {
    "add": arith.AddiOp,
    "sub": arith.SubiOp,
    "mul": arith.MuliOp,
    "floordiv": arith.FloorDivSIOp,
    "and": arith.AndIOp,
    "or": arith.OrIOp,
    "xor": arith.XOrIOp,
    "shl": arith.ShLIOp,
    "shr": arith.ShRSIOp,
    "max": arith.MaxSIOp,
    "min": arith.MinSIOp,
}
_FLOAT: dict[str, Callable[[SSAValue, SSAValue], Operation]] = {
    "add": arith.AddfOp,
    "sub": arith.SubfOp,
    "mul": arith.MulfOp,
    "div": arith.DivfOp,
    "max": arith.MaximumfOp,
    "min": arith.MinimumfOp,
}
_UNSIGNED = {"lt": "ult", "le": "ule", "gt": "ugt", "ge": "uge"}
LONGEST_NUMBER = 1 << 16
"""Bits of a number that Python works out while a program is parsed."""
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def is_known(value: Any) -> bool:
    """Whether it is a number that Python knows."""
    return isinstance(value, (int, float))


def binary(b: Builder, name: str, lhs: Scalar, rhs: Scalar) -> Scalar:
    """One of `SIGNS` of two scalars. ``//`` and ``%`` are Python's, toward minus infinity; ``/`` is of floats."""
    if is_known(lhs) and is_known(rhs):
        return cast(Scalar, _folded(b, name, lhs, rhs))
    if isinstance(lhs, Symbol) and name in ("add", "sub", "mul", "floordiv") and isinstance(rhs, (int, Symbol)):
        return cast(Scalar, FOLD[name](lhs, rhs))
    if isinstance(rhs, Symbol) and name in ("add", "sub", "mul", "floordiv") and isinstance(lhs, int):
        return cast(Scalar, FOLD[name](lhs, rhs))
    left, right = unified(b, SIGNS[name], lhs, rhs)
    if name == "mod" and not is_float(left.type):
        whole = b.insert(arith.MuliOp(b.insert(arith.FloorDivSIOp(left, right)).result, right)).result
        return b.insert(arith.SubiOp(left, whole)).result
    ops = _FLOAT if is_float(left.type) else _INTEGER
    if name not in ops:
        b.fail(
            f"{SIGNS[name]} is not there for {spelled(left.type)}",
            "of integers // is the quotient" if name == "div" else "",
        )
    return b.insert(ops[name](left, right)).results[0]


def compare(b: Builder, predicate: str, lhs: Scalar, rhs: Scalar) -> bool | SSAValue:
    """One of `COMPARISONS` of two scalars."""
    if is_known(lhs) and is_known(rhs):
        return bool(_folded(b, predicate, lhs, rhs))
    left, right = unified(b, COMPARISONS[predicate], lhs, rhs)
    if is_float(left.type):
        kind = "une" if predicate == "ne" else f"o{predicate}"
        return b.insert(arith.CmpfOp(left, right, kind)).result
    kind = predicate if predicate in ("eq", "ne") else f"s{predicate}"
    if left.type == i1:  # of one bit, 1 is -1 where it has a sign
        kind = _UNSIGNED.get(predicate, predicate)
    return b.insert(arith.CmpiOp(left, right, kind)).result


def unary(b: Builder, name: str, value: Scalar) -> Scalar:
    """``neg``, ``abs``, ``invert`` (of the bits) or ``not`` (of the truth) of a scalar."""
    if name == "not":
        truth = truth_of(b, value)
        return not truth if isinstance(truth, bool) else binary(b, "xor", truth, True)
    if is_known(value):
        try:
            return cast(Scalar, _FOLD_UNARY[name](value))
        except TypeError as error:
            b.fail(str(error))
    if name == "invert":
        return binary(b, "xor", value, -1)
    if name == "abs":
        return binary(b, "max", value, unary(b, "neg", value))
    of = value if isinstance(value, SSAValue) else b.index(value)
    return b.insert(arith.NegfOp(of)).result if is_float(of.type) else binary(b, "sub", 0, of)


def both(b: Builder, name: str, lhs: Scalar, rhs: Scalar) -> bool | SSAValue:
    """``and`` or ``or`` of two conditions; both are computed."""
    left, right = truth_of(b, lhs), truth_of(b, rhs)
    for known, other in ((left, right), (right, left)):
        if isinstance(known, bool):
            return other if known is (name == "and") else known
    return cast(SSAValue, binary(b, name, left, right))


def truth_of(b: Builder, value: Scalar) -> bool | SSAValue:
    """A condition: whether a scalar is not zero."""
    if not isinstance(value, (SSAValue, Symbol)):
        return bool(value)
    if isinstance(value, SSAValue) and value.type == i1:
        return value
    return compare(b, "ne", value, 0)


def choose(b: Builder, condition: Scalar, yes: Scalar, no: Scalar) -> Scalar:
    """``yes if condition else no``; where the condition is not known before it runs, both are computed."""
    truth = truth_of(b, condition)
    if isinstance(truth, bool):
        return yes if truth else no
    if is_known(yes) and is_known(no):
        type = f32 if isinstance(yes, float) or isinstance(no, float) else IndexType()
        return b.insert(arith.SelectOp(truth, b.scalar(yes, type), b.scalar(no, type))).result
    left, right = unified(b, "if else", yes, no)
    return b.insert(arith.SelectOp(truth, left, right)).result


def cast_to(b: Builder, value: Scalar, dtype: DataType) -> SSAValue:
    """A scalar in another type. Floats become integers toward zero; integers are cut."""
    wanted = dtype.scalar
    if is_known(value):
        return b.constant(int(cast(float, value)) if not is_float(wanted) else cast(float, value), wanted)
    given = value if isinstance(value, SSAValue) else b.index(value)
    b.ask(is_scalar(given.type), f"a scalar is wanted, and this is {spelled(given.type)}")
    if given.type == wanted:
        return given
    if wanted == i1:
        return cast(SSAValue, truth_of(b, given))
    if is_float(given.type) and is_float(wanted):
        longer = cast(AnyFloat, wanted).bitwidth > cast(AnyFloat, given.type).bitwidth
        return b.insert((arith.ExtFOp if longer else arith.TruncFOp)(given, cast(AnyFloat, wanted))).result
    if is_float(given.type):
        whole = b.insert(arith.FPToSIOp(given, wanted if isinstance(wanted, IntegerType) else i64)).result
        return b.scalar(whole, wanted)
    if is_float(wanted):
        return b.insert(arith.SIToFPOp(b.scalar(given, i64), cast(AnyFloat, wanted))).result
    return b.scalar(given, wanted)


def unified(b: Builder, sign: str, lhs: Scalar, rhs: Scalar) -> tuple[SSAValue, SSAValue]:
    """Both in one type; refused where they have none."""
    type = common_type(kind_of(lhs), kind_of(rhs))
    if type is None:
        named = " and ".join(_named(v) for v in (lhs, rhs))
        b.fail(f"{sign} of {named}", "cast one of them: pl.cast(x, pl.FP32)")
    return b.scalar(lhs, type), b.scalar(rhs, type)


def kind_of(value: Scalar) -> Attribute | type[Any]:
    """The type of a value; of Python's numbers their class."""
    if isinstance(value, SSAValue):
        return value.type
    return IndexType() if isinstance(value, Symbol) else type(value)


def type_of(value: Scalar) -> Attribute:
    """The type of a scalar; of a number the one that it has where nothing else says it."""
    if isinstance(value, SSAValue):
        return value.type
    return i1 if isinstance(value, bool) else f32 if isinstance(value, float) else IndexType()


def common_type(lhs: Attribute | type[Any], rhs: Attribute | type[Any]) -> Attribute | None:
    """The type in which two scalars meet, each a value's type or a Python number's class; None where there is none."""
    for known, other in ((lhs, rhs), (rhs, lhs)):
        if isinstance(other, type) and isinstance(known, Attribute) and is_scalar(known):
            if known == i1:
                return i1 if other is bool else IndexType() if other is int else None
            return None if other is float and not is_float(known) else known
    if not is_scalar(lhs) or not is_scalar(rhs):
        return None
    if lhs == rhs:
        return cast(Attribute, lhs)
    if is_float(lhs) or is_float(rhs):
        return None
    if isinstance(lhs, IndexType) or isinstance(rhs, IndexType):
        return IndexType()
    return max((cast(IntegerType, t) for t in (lhs, rhs)), key=lambda t: t.width.data)


def _named(value: Scalar) -> str:
    if isinstance(value, SSAValue):
        return spelled(value.type)
    return repr(value)


def _folded(b: Builder, name: str, lhs: Any, rhs: Any) -> Any:
    if name in ("pow", "shl") and isinstance(lhs, int) and isinstance(rhs, int) and rhs > 0:
        bits = lhs.bit_length() * rhs if name == "pow" else lhs.bit_length() + rhs
        b.ask(bits <= LONGEST_NUMBER, f"{SIGNS[name]} would give a number of some {bits} bits", "no scalar holds it")
    try:
        return FOLD[name](lhs, rhs)
    except (TypeError, ValueError, ArithmeticError) as error:
        b.fail(str(error))
