"""How far two integers are from one another, where that is seen before the program runs."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from crossrank.program.analysis.order import postorder
from crossrank.program.dialect.tensors import DimOp
from crossrank.program.dialect.tensors import known as number_of
from crossrank.program.dialect.windows import SymbolOp
from crossrank.program.language.builder import Scalar, Symbol

Terms = dict[Hashable, int]
"""A sum: how often each of its terms is in it. The term 1 is the number 1."""

_SAME_OF_SAME = (arith.FloorDivSIOp, arith.MuliOp, arith.MinSIOp, arith.MaxSIOp, arith.IndexCastOp, arith.ExtSIOp)
"""What gives the same wherever its operands are the same."""


def difference(end: Scalar, begin: Scalar) -> Scalar | None:
    """``end - begin``, where it is a number, or one value that is there already; else None.

    So is ``(i + 1) * 8 - i * 8`` 8, and ``i + n - i`` is n.
    """
    values: dict[Hashable, Scalar] = {}
    known: dict[Scalar, Terms] = {}
    for value in (end, begin):
        for each in postorder(value, _made_of, known):
            known[each] = _terms(each, known, values)
    left = _plus(known[end], known[begin], -1)
    if not left.keys() - {1}:
        return left.get(1, 0)
    ((term, times), *others) = left.items()
    return values.get(term) if times == 1 and not others else None


def _made_of(value: Scalar) -> Sequence[Scalar]:
    """The values whose terms say what a value's are."""
    if _number(value) is None:
        if (parts := _parts(value)) is not None:
            return parts[1:]
        if isinstance(value, SSAValue) and isinstance(value.owner, _SAME_OF_SAME):
            return value.owner.operands
    return ()


def _terms(value: Scalar, known: Mapping[Scalar, Terms], values: dict[Hashable, Scalar]) -> Terms:
    """A value as a sum, by those that it is made of; notes which value each term is."""
    number = _number(value)
    if number is not None:
        return {1: number} if number else {}
    match _parts(value):
        case "+" | "-" as sign, left, right:
            return _plus(known[left], known[right], 1 if sign == "+" else -1)
        case "*", left, right:
            for factor, times in ((left, _number(right)), (right, _number(left))):
                if times is not None:
                    return _plus({}, known[factor], times)
    term = _term(value, known)
    values.setdefault(term, value)
    return {term: 1}


def _number(value: Scalar) -> int | None:
    """The number that it is, where it is a constant."""
    if isinstance(value, SSAValue):
        return number_of(value)
    return None if isinstance(value, Symbol) else int(value)


_SIGNS: dict[type, str] = {arith.AddiOp: "+", arith.SubiOp: "-", arith.MuliOp: "*"}


def _parts(value: Scalar) -> tuple[str, Scalar, Scalar] | None:
    """Of what it is the sum, the difference or the product."""
    if isinstance(value, Symbol):
        return value.parts
    op = value.owner if isinstance(value, SSAValue) else None
    return (_SIGNS[type(op)], op.lhs, op.rhs) if isinstance(op, (arith.AddiOp, arith.SubiOp, arith.MuliOp)) else None


def _term(value: Scalar, known: Mapping[Scalar, Terms]) -> Hashable:
    """The same for two values of which nothing is known but that they are the same."""
    if isinstance(value, Symbol):
        return value.text
    if isinstance(value, SSAValue):
        op = value.owner
        if isinstance(op, SymbolOp):
            return op.symbol.data
        if isinstance(op, DimOp):
            return (op.source, op.axis.value.data)
        if isinstance(op, _SAME_OF_SAME):
            return (type(op), value.type, *(frozenset(known[o].items()) for o in op.operands))
    return value


def _plus(left: Terms, right: Terms, times: int) -> Terms:
    total = {term: left.get(term, 0) + times * right.get(term, 0) for term in left | right}
    return {term: count for term, count in total.items() if count}
