"""Where a function's source is, and its syntax tree with the places of the author's file."""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache
from types import FunctionType

from xdsl.dialects.builtin import FileLineColLoc

from crossrank.errors import InputError
from crossrank.program.program import at


def definition(function: FunctionType) -> ast.FunctionDef:
    """The syntax tree of a function's definition, with the places of its file.

    Raises:
        InputError: its source is not there.
    """
    code = function.__code__
    linecache.checkcache(code.co_filename)
    text = "".join(linecache.getlines(code.co_filename, function.__globals__))
    for node in ast.walk(_tree(text)):
        if isinstance(node, ast.FunctionDef) and node.name == function.__name__:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if first == code.co_firstlineno:
                return node
    raise InputError(
        f"{code.co_filename}:{code.co_firstlineno}:1: the source of {function.__name__} cannot be found",
        "programs are parsed from their source: define them in a file",
    )


@lru_cache(maxsize=16)
def _tree(text: str) -> ast.Module:
    return ast.parse(text)


def place(file: str, node: ast.AST) -> FileLineColLoc:
    """Where a node stands."""
    return at(file, getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1)
