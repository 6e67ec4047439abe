"""Which names a piece of source binds, which it reads first, and which of them are read behind it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


def bound_in(statements: Iterable[ast.stmt]) -> list[str]:
    """The names that statements bind, in their order; ``x[…] = v`` binds x again."""
    found: dict[str, None] = {}
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found[node.id] = None
            elif (
                isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name)
            ):
                found[node.value.id] = None
    return list(found)


def read_first(statements: Sequence[ast.stmt], name: str) -> bool | None:
    """Whether a name may be read before it is bound; False: it is bound first; None: neither for sure."""
    for statement in statements:
        if (found := _read_first(statement, name)) is not None:
            return found
    return None


def _read_first(statement: ast.stmt, name: str) -> bool | None:
    match statement:
        case ast.Assign(targets, value):
            return _assignment(targets, value, name)
        case ast.AnnAssign(target, _, value):
            return _assignment([target], value, name)
        case ast.AugAssign(target, _, value):
            return True if any(_has(n, name, how) for n in (value, target) for how in (ast.Load, ast.Store)) else None
        case ast.For(target, turns, body):
            inside = not _has(target, name, ast.Store) and read_first(body, name) is True
            return True if inside or _has(turns, name) else None
        case ast.If(test, body, orelse):
            arms = (read_first(body, name), read_first(orelse, name))
            return True if True in arms or _has(test, name) else False if arms == (False, False) else None
        case ast.With(items, body):
            if any(_has(item.context_expr, name) for item in items):
                return True
            found = read_first(body, name)
            named = any(item.optional_vars is not None and _has(item.optional_vars, name, ast.Store) for item in items)
            return False if found is None and named else found
    return True if _has(statement, name) else None


def _assignment(targets: Sequence[ast.expr], value: ast.expr | None, name: str) -> bool | None:
    if (value is not None and _has(value, name)) or any(_has(target, name) for target in targets):
        return True
    return False if any(_has(target, name, ast.Store) for target in targets) else None


def _has(node: ast.AST, name: str, how: type[ast.expr_context] = ast.Load) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, how) for n in ast.walk(node))


@dataclass(frozen=True)
class Behind:
    """What runs behind a statement.

    Attributes:
        rest: the statements that follow in its block.
        turn: the block again, where it is a loop's.
        outer: what runs behind the block.
    """

    rest: Sequence[ast.stmt]
    turn: Sequence[ast.stmt] = ()
    outer: Behind | None = None

    @property
    def is_end(self) -> bool:
        """Whether nothing runs there."""
        return not self.rest and not self.turn and (self.outer is None or self.outer.is_end)

    def reads(self, name: str) -> bool:
        """Whether a name may be read there before it is bound again."""
        found = read_first(self.rest, name)
        if found is not None:
            return found
        return read_first(self.turn, name) is True or (self.outer is not None and self.outer.reads(name))
