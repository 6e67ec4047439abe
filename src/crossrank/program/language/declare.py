"""The decorators: ``@pl.program`` on a class, ``@pl.function`` on its methods."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FrameType, FunctionType
from typing import Any, NoReturn, overload

from crossrank.errors import InputError
from crossrank.program import kinds
from crossrank.program.kinds import Level, Role
from crossrank.program.program import Program


@dataclass(frozen=True)
class Declaration:
    """A decorated function of a program.

    Attributes:
        function: the author's Python; of all but a sub-worker only its source counts.
        type: what it is compiled to.
        level: where it runs.
        role: what it does there.
        names: what surrounds its source: the names of the enclosing function and of the class, when it was decorated.
    """

    function: FunctionType
    type: kinds.FunctionType
    level: Level | None
    role: Role | None
    names: Mapping[str, Any] = field(repr=False)

    @property
    def name(self) -> str:
        """Its name."""
        return self.function.__name__

    @property
    def is_worker(self) -> bool:
        """Whether it is a host sub-worker: plain Python."""
        return self.role is Role.SubWorker

    def __call__(self, *arguments: Any, **keywords: Any) -> NoReturn:
        """Refused: it is called by another function of its program."""
        raise InputError(
            f"{self.name} was called as Python; it is a function of a program, whose source is parsed, not run",
            "call it from another function of the program: self.f(…); run the program with crossrank.program.compile",
        )


@overload
def function(func: Callable[..., Any]) -> Declaration: ...
@overload
def function(
    *,
    type: kinds.FunctionType = ...,
    level: Level | None = None,
    role: Role | None = None,
    auto_scope: bool = True,
    strict_ssa: bool = False,
) -> Callable[[Callable[..., Any]], Declaration]: ...
def function(
    func: Callable[..., Any] | None = None,
    *,
    type: kinds.FunctionType = kinds.FunctionType.Opaque,
    level: Level | None = None,
    role: Role | None = None,
    auto_scope: bool = True,
    strict_ssa: bool = False,
) -> Declaration | Callable[[Callable[..., Any]], Declaration]:
    """Decorator of a method of a program: what it is compiled to, where it runs, and what it does there.

    ``auto_scope`` and ``strict_ssa`` are taken and make no difference: variables may always be bound again.
    """

    def declare(func: Callable[..., Any]) -> Declaration:
        if not isinstance(func, FunctionType):
            raise InputError(f"@pl.function decorates functions, and {func!r} is none")
        frame = sys._getframe(1 + bare)
        if "__qualname__" in frame.f_locals and isinstance(frame.f_locals.get(func.__name__), Declaration):
            code = func.__code__
            raise InputError(
                f"{code.co_filename}:{code.co_firstlineno}:1: a second function is called {func.__name__}",
                "give each function of a program a name of its own",
            )
        return Declaration(func, type, level, role, _names(frame))

    bare = func is not None
    return declare if func is None else declare(func)


def _names(frame: FrameType) -> dict[str, Any]:
    """The local names of the class and of the function around it."""
    found: dict[str, Any] = {}
    around = frame.f_back
    for scope in (around, frame):
        if scope is not None and scope.f_locals is not scope.f_globals:
            found |= scope.f_locals
    return found


@overload
def program(cls: type[Any]) -> Program: ...
@overload
def program(*, strict_ssa: bool = False) -> Callable[[type[Any]], Program]: ...
def program(cls: type[Any] | None = None, *, strict_ssa: bool = False) -> Program | Callable[[type[Any]], Program]:
    """Decorator of a class whose methods are the functions of a program; the program takes the place of the class.

    Raises:
        InputError: what the source says that cannot be, with its place: file, line, column.
    """

    frame = sys._getframe(1)

    def parse(cls: type[Any]) -> Program:
        from crossrank.program.language.parse.program import parse_program  # the parser knows the words, not they it

        return parse_program(cls, f"{frame.f_code.co_filename}:{frame.f_lineno}:1: ")

    return parse if cls is None else parse(cls)
