"""Branches whose condition is known only when the program runs: what their arms bind, as values behind them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xdsl.dialects import scf
from xdsl.dialects.builtin import IndexType, f32, i1
from xdsl.ir import Attribute, Block, Region, SSAValue

from crossrank.errors import counted
from crossrank.program.language import scalars
from crossrank.program.language.operands import is_number, said_apart
from crossrank.program.language.parse.faults import Unbound
from crossrank.program.language.parse.source import place
from crossrank.program.types import moves

if TYPE_CHECKING:
    from crossrank.program.language.parse.statements import Statements

NUMBERS: tuple[Attribute, ...] = (i1, IndexType(), f32)
"""The types that numbers have where nothing else says them; a later one holds an earlier one."""

_MISSING: Any = object()


def with_rest(statements: Sequence[ast.stmt]) -> Sequence[ast.stmt]:
    """The same statements, where an if that returns takes what follows it into its arms.

    So a branch returns at its end only, and a function at one place.
    """
    for n, node in enumerate(statements):
        if isinstance(node, ast.If) and any(isinstance(inner, ast.Return) for inner in ast.walk(node)):
            whole, rest = copy(node), statements[n + 1 :]
            whole.body, whole.orelse = [*node.body, *rest], [*node.orelse, *rest]
            return [*statements[:n], whole]
    return statements


@dataclass
class Arm:
    """An arm of a branch.

    Attributes:
        block: what it inserts.
        names: what names are worth at its end.
        returned: what the function returns there; None where it goes on.
    """

    block: Block
    names: dict[str, Any]
    returned: tuple[Any, ...] | None


class Branch:
    """An if statement, with or without an else.

    A name that an arm binds has a value behind it where both arms leave one of one type; else it may not be read there.
    What both return the function returns.
    """

    def __init__(self, body: Statements, node: ast.If, condition: SSAValue) -> None:
        self.body = body
        self.node = node
        self.condition = condition
        self.title = f"the if of line {node.lineno}"

    def insert(self) -> None:
        """Insert it."""
        body, node = self.body, self.node
        arms = [self._arm(node.body), self._arm(node.orelse)]
        results: list[str] = []
        handed: list[list[SSAValue]] = [[], []]
        for name in dict.fromkeys(name for arm in arms for name in arm.names):
            values = [arm.names.get(name, _MISSING) for arm in arms]
            if _same(*values):
                body.names[name] = values[0]
                continue
            found = self._merged(name, values, arms)
            if isinstance(found, Unbound):
                body.names[name] = found
            else:
                results.append(name)
                for values, value in zip(handed, found, strict=True):
                    values.append(value)
        returns = any(arm.returned is not None for arm in arms)
        if returns:
            for values, more in zip(handed, self._returned(arms), strict=True):
                values += more
        for arm, values in zip(arms, handed, strict=True):
            with body.into(arm.block):
                body.insert(scf.YieldOp(*values))
        yes, no = (Region(arm.block) for arm in arms)
        if not node.orelse and not handed[0]:
            no = Region()
        with body.at(self.node):
            op = body.insert(scf.IfOp(self.condition, [v.type for v in handed[0]], yes, no))
        for name, result in zip(results, op.results, strict=False):
            body.bind(name, result)
        if returns:
            body.returned = tuple(op.results[len(results) :])

    def _arm(self, statements: list[ast.stmt]) -> Arm:
        block = Block()
        with self.body.within(block, self.title):
            self.body.run(statements)
            return Arm(block, self.body.names, self.body.returned)

    def _returned(self, arms: list[Arm]) -> list[list[SSAValue]]:
        """What each arm returns, in the same types."""
        body = self.body
        body.location = place(body.file, self.node)
        body.ask(
            body.behind.is_end or all(arm.returned is not None for arm in arms),
            f"one arm of {self.title} returns, and the other one goes on behind this block",
            "return at the end of the function",
        )
        counts = [len(arm.returned or ()) for arm in arms]
        body.ask(
            counts[0] == counts[1],
            f"{self.title} returns {' or '.join(counted(n, 'value') for n in counts)}, by its arm",
            "return as many in both",
        )
        found: list[list[SSAValue]] = [[], []]
        for pair in zip(*(arm.returned or () for arm in arms), strict=True):
            type = _one_type(list(pair))
            theirs = " or ".join(said_apart(*pair))
            body.ask(type is not None, f"{self.title} returns {theirs}, by its arm", "return the same type in both")
            assert type is not None
            for values, value, arm in zip(found, pair, arms, strict=True):
                with body.into(arm.block):
                    values.append(body.typed(value, type))
        return found

    def _merged(self, name: str, values: list[Any], arms: list[Arm]) -> list[SSAValue] | Unbound:
        """A name's value at the end of each arm, in one type."""
        for value in values:
            if value is _MISSING:
                return Unbound(f"{name} is bound in one arm of {self.title} only", "bind it before the if, too")
            if isinstance(value, Unbound):
                return value
        if not self.body.behind.reads(name):
            return Unbound(f"what {name} is depends on {self.title}")
        type = _one_type(values)
        if type is None:
            theirs = " and ".join(said_apart(*values))
            return Unbound(f"{name} is {theirs} in the arms of {self.title}", "give both one type, or two names")
        found = []
        for value, arm in zip(values, arms, strict=True):
            with self.body.into(arm.block):
                found.append(self.body.typed(value, type))
        return found


def _same(value: Any, other: Any) -> bool:
    """Whether both arms leave the same: one value, or equal things that Python knows."""
    if isinstance(value, SSAValue) or isinstance(other, SSAValue):
        return value is other
    plain = (int, float, bool, str, tuple, list)
    return value is other or (type(value) is type(other) and type(value) in plain and bool(value == other))


def _one_type(values: list[Any]) -> Attribute | None:
    """The type in which the values of two arms meet: their own, or that of one where the other is a number."""
    if not all(isinstance(v, SSAValue) or is_number(v) for v in values):
        return None
    types = [v.type for v in values if isinstance(v, SSAValue)]
    if not types:
        return max((scalars.type_of(v) for v in values), key=NUMBERS.index)
    fits = all(
        moves(v.type, types[0])
        if isinstance(v, SSAValue)
        else scalars.common_type(scalars.kind_of(v), types[0]) == types[0]
        for v in values
    )
    return types[0] if fits else None
