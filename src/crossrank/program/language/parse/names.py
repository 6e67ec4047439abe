"""What the names in a function's source mean, apart from those that it binds itself."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping
from typing import Any

from crossrank.program.language.declare import Declaration


class Surroundings(Mapping[str, Any]):
    """The names around a function: its closure, what enclosed it when it was decorated, its module, Python's own."""

    def __init__(self, declaration: Declaration) -> None:
        function = declaration.function
        closure = {}
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                closure[name] = cell.cell_contents
            except ValueError:
                continue  # bound later, or never
        self._scopes: tuple[Mapping[str, Any], ...] = (
            closure,
            declaration.names,
            function.__globals__,
            vars(builtins),
        )

    def __getitem__(self, name: str) -> Any:
        for scope in self._scopes:
            if name in scope:
                return scope[name]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for scope in self._scopes for name in scope))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def evaluate(self, node: ast.expr) -> Any:
        """What a piece of plain Python is worth; raises whatever that raises."""
        return eval(compile(ast.Expression(node), "<annotation>", "eval"), {}, self)
