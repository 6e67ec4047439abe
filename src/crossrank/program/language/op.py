"""The words of the language: functions that a program calls, and that its parser turns into ops of the dialect.

A word is defined once, as the function that inserts its ops: the function's parameters are the word's, its docstring is
what people read. Its first parameter is the `Builder`, which the author does not see. It gets what the arguments are
worth: SSA values, or what Python knows before anything runs. What it returns is what the call is worth.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import update_wrapper
from typing import Any, NoReturn

from crossrank.errors import InputError
from crossrank.program.kinds import Level
from crossrank.program.language.builder import Builder

HOST, CHIP, KERNEL = Level.HOST, Level.CHIP, Level.CORE_GROUP
BODIES = {HOST: "a HOST orchestrator", CHIP: "a CHIP orchestration", KERNEL: "a kernel"}
"""Whose statements a word can be."""
_DECLARED = {
    HOST: "the HOST orchestrator is the function with level=pl.Level.HOST, role=pl.Role.Orchestrator",
    CHIP: "a CHIP orchestration is a function of type Orchestration",
    KERNEL: "a kernel is a function of type InCore, or what stands in `with pl.at(level=pl.Level.CORE_GROUP):`",
}
"""How such a function is declared."""


class Op:
    """A word of the language.

    Attributes:
        title: as programs write it: ``pl.load``, ``pld.tensor.put``.
        levels: whose statements it can be.
        takes: its positional arguments in words, for who gives another number of them.
    """

    def __init__(self, title: str, levels: Sequence[Level], takes: str, emit: Callable[..., Any]) -> None:
        update_wrapper(self, emit)
        self.title = title
        self.takes = takes
        self.levels = tuple(levels) or tuple(BODIES)
        self._emit = emit
        whole = inspect.signature(emit, eval_str=False)
        self.__signature__ = whole.replace(parameters=list(whole.parameters.values())[1:])

    def emit(self, builder: Builder, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """Insert its ops; InputError where it cannot stand, or the arguments are not what it takes."""
        if builder.level not in self.levels:
            misplaced(builder, self.title, self.levels)
        try:
            self.__signature__.bind(*arguments, **keywords)
        except TypeError as error:
            remedy = f"it is {self.title}{self.described}"
            if named := self._left_away(arguments, keywords):
                builder.fail(f"{self.title} needs {', '.join(f'{name}=…' for name in named)}", remedy)
            if self.takes and keywords.keys() <= self.__signature__.parameters.keys():
                positional = self.__signature__.parameters.values()
                by_name = sum(p.name in keywords for p in positional if p.kind is p.POSITIONAL_OR_KEYWORD)
                builder.fail(f"{self.title} requires {self.takes}, but got {len(arguments) + by_name}", remedy)
            builder.fail(f"{self.title}: {error}", remedy)
        return self._emit(builder, *arguments, **keywords)

    def _left_away(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> list[str]:
        """The arguments by name that a call lacks, where it lacks nothing else."""
        parameters = self.__signature__.parameters.values()
        needed = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
        lacking = [name for name in needed if name not in keywords]
        try:
            self.__signature__.bind(*arguments, **keywords, **dict.fromkeys(lacking))
        except TypeError:
            return []
        return lacking

    @property
    def described(self) -> str:
        """Its parameters, as people write them."""
        bare = [
            p.replace(annotation=p.empty, default=p.default if p.default is p.empty else _Shown(p.default))
            for p in self.__signature__.parameters.values()
        ]
        return str(inspect.Signature(bare))

    def __call__(self, *arguments: Any, **keywords: Any) -> NoReturn:
        """Refused: words are parsed, never run."""
        raise InputError(
            f"{self.title} was called as Python; it stands in a function of a program, whose source is parsed, not run",
            "write it inside of a method that @pl.function decorates, in a class that @pl.program decorates",
        )

    def __repr__(self) -> str:
        return self.title


class _Shown:
    """What a parameter is where it is left away, as people write it."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        if self.value is ...:
            return "…"
        return f"{type(self.value).__name__}.{self.value.name}" if isinstance(self.value, Enum) else repr(self.value)


def op(title: str, *levels: Level, takes: str = "") -> Callable[[Callable[..., Any]], Op]:
    """Decorator: the function that inserts a word's ops becomes the word; without levels it can stand anywhere."""
    return lambda emit: Op(title, levels, takes, emit)


def misplaced(builder: Builder, title: str, levels: Sequence[Level], otherwise: str = "") -> NoReturn:
    """Refuse a word that stands where it cannot; ``otherwise``: what else its author can do."""
    builder.fail(
        f"{title} stands in {' or '.join(BODIES[level] for level in levels)}, and this is {BODIES[builder.level]}",
        f"{otherwise}put it there: {'; '.join(_DECLARED[level] for level in levels)}",
    )
