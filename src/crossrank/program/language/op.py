"""The words of the language: functions that a program calls, and that its parser turns into ops of the dialect.

A word is defined once, as the function that inserts its ops: the function's parameters are the word's, its docstring is
what people read. Its first parameter is the `Builder`, which the author does not see. It gets what the arguments are
worth: SSA values, or what Python knows before anything runs. What it returns is what the call is worth.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import update_wrapper
from typing import Any, NoReturn

from crossrank.errors import InputError
from crossrank.program.language.builder import Builder


class Op:
    """A word of the language.

    Attributes:
        title: as programs write it: ``pl.load``, ``pld.tensor.put``.
    """

    def __init__(self, title: str, emit: Callable[..., Any]) -> None:
        update_wrapper(self, emit)
        self.title = title
        self._emit = emit
        whole = inspect.signature(emit, eval_str=False)
        self.__signature__ = whole.replace(parameters=list(whole.parameters.values())[1:])

    def emit(self, builder: Builder, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """Insert its ops; InputError where the arguments are not what it takes."""
        try:
            self.__signature__.bind(*arguments, **keywords)
        except TypeError as error:
            builder.fail(f"{self.title}: {error}", f"it is {self.title}{self.described}")
        return self._emit(builder, *arguments, **keywords)

    @property
    def described(self) -> str:
        """Its parameters, as people write them."""
        bare = [p.replace(annotation=inspect.Parameter.empty) for p in self.__signature__.parameters.values()]
        return str(inspect.Signature(bare))

    def __call__(self, *arguments: Any, **keywords: Any) -> NoReturn:
        """Refused: words are parsed, never run."""
        raise InputError(
            f"{self.title} was called as Python; it stands in a function of a program, whose source is parsed, not run",
            "write it inside of a method that @pl.function decorates, in a class that @pl.program decorates",
        )

    def __repr__(self) -> str:
        return self.title


def op(title: str) -> Callable[[Callable[..., Any]], Op]:
    """Decorator: the function that inserts a word's ops becomes the word."""
    return lambda emit: Op(title, emit)
