"""A module from its text, by xDSL's parser; what it cannot read is told by line and column."""

from __future__ import annotations

import re
from bisect import bisect_right

from xdsl.context import Context
from xdsl.dialects.builtin import FileLineColLoc, IntAttr, ModuleOp, StringAttr, UnknownLoc
from xdsl.ir import Operation
from xdsl.parser import Parser
from xdsl.utils.exceptions import ParseError, VerifyException

from crossrank.errors import InputError

_TOKENS = re.compile(r'//[^\n]*|"(?:[^"\\\n\v\f]|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*"|"')
"""Comments, strings, and quotation marks that begin no string."""


def parse_module(context: Context, text: str, path: str | None = None) -> ModuleOp:
    """The module that a text is, unverified.

    Args:
        context: its dialects.
        text: what to read.
        path: the file that it is from, if any: there stand the ops that say no place.

    Raises:
        InputError: it cannot be read; the message begins with ``path:line:column``.
    """
    places = _Places(text, path or "<text>")
    for token in _TOKENS.finditer(text):
        if token[0] == '"':  # xDSL's lexer would take a time exponential in the rest of the line
            raise InputError(f"{places.at(token.start())}: a string is not closed, or has an escape that is none")
    parser = _Parser(context, text, places, has_path=path is not None)
    try:
        return parser.parse_module()
    except ParseError as error:
        if not text[error.span.start :].strip():
            raise InputError(
                f"{places.at(error.span.start)}: the text ends too early: a }} is missing", "copy or print it again"
            ) from None
        said = (error.msg.strip().splitlines() or ["cannot be read"])[-1].strip()
        position = parser.begin if said.endswith("is not registered") else error.span.start
        raise InputError(f"{places.at(position)}: {said}") from None
    except VerifyException as error:
        raise InputError(f"{places.at(parser.begin)}: {reason(error)}") from None
    except RecursionError:
        raise InputError(f"{places.at(parser.begin)}: this is nested too deeply to be read") from None


def reason(error: VerifyException) -> str:
    """What a verifier said, without the op that xDSL prints around it."""
    return str(error.args[0] if error.args else error).strip().splitlines()[-1].strip()


class _Places:
    """Lines and columns of a text, from 1."""

    def __init__(self, text: str, path: str) -> None:
        self.path = path
        self._lines = [0, *(newline.end() for newline in re.finditer("\n", text))]

    def of(self, position: int) -> tuple[int, int]:
        line = bisect_right(self._lines, position)
        return line, position - self._lines[line - 1] + 1

    def at(self, position: int) -> str:
        line, column = self.of(position)
        return f"{self.path}:{line}:{column}"


class _Parser(Parser):
    """Gives ops their place in a file.

    Attributes:
        begin: where the op stands that was begun last.
    """

    def __init__(self, context: Context, text: str, places: _Places, *, has_path: bool) -> None:
        super().__init__(context, text, places.path)
        self.begin = 0
        self._places = places
        self._file = StringAttr(places.path) if has_path else None

    def parse_operation(self) -> Operation:
        begin = self.begin = self.pos
        op = super().parse_operation()
        if self._file is not None and isinstance(op.location, UnknownLoc):
            line, column = self._places.of(begin)
            op.location = FileLineColLoc(self._file, IntAttr(line), IntAttr(column))
        return op
