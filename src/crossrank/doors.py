"""What a file is, its content tells, not its name: which door it goes in by."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from crossrank.errors import InputError
from crossrank.files import as_text, python_text, read_bytes


class Door(StrEnum):
    """A kind of program."""

    HLO = "an HLO module"
    INSTR = "a kernel"
    PROGRAM = "a program"


@dataclass(frozen=True)
class Source:
    """A file that was read.

    Attributes:
        path: its name as the user gave it (``-``: standard input).
        data: what it holds, gunzipped.
        door: what it is.
        python: whether it is Python.
    """

    path: str
    data: bytes
    door: Door
    python: bool = False


def read_source(path: str) -> Source:
    """Read a file, or standard input (``-``), and see what it is.

    What is neither Python nor a text of ours is taken for HLO, whose reader says what is wrong with it.

    Raises:
        InputError: it cannot be read, or is Python that defines nothing to run.
    """
    data = read_bytes(path)
    text = as_text(data) or as_text((python_text(data) or "\0").encode())
    if text is None or re.match(r"(?s)(?:\s+|//[^\n]*\n|/\*.*?\*/)*HloModule\b", text):
        return Source(path, data, Door.HLO)
    body = _statements(text, path)
    names = set(_names(body))
    door = _door_of_text(text)
    if not names and (door is not Door.HLO or not _is_py(path)):
        return Source(path, data, door)
    if names & {"program", "programs"}:
        return Source(path, data, Door.PROGRAM, python=True)
    if names & {"kernel", "*"}:
        return Source(path, data, Door.INSTR, python=True)
    made = [node.name for node in body if isinstance(node, ast.FunctionDef) and any(map(_is_jit, node.decorator_list))]
    remedy = "such a file defines kernel (docs/kernels.md) or program (docs/programs.md), and inputs(ranks, seed)"
    if made:
        one = "it" if len(made) == 1 else "one of them"
        remedy = f"it has {', '.join(made)}: rename {one}, or say kernel = {made[0]}"
    classes = [
        node.name for node in body if isinstance(node, ast.ClassDef) and any(map(_is_program, node.decorator_list))
    ]
    if classes:
        remedy = f"it has the class {classes[0]}: say program = {classes[0]}"
    raise InputError(f"{path} is a Python file that defines neither a kernel nor a program", remedy)


def read_sources(paths: Sequence[str]) -> list[Source]:
    """Read several files: the modules of several ranks."""
    found = [read_source(path) for path in paths]
    for source in found if len(found) > 1 else ():
        if source.door is not Door.HLO:
            raise InputError(
                f"{source.path} is {source.door}, and only HLO modules come as several files", "give it alone"
            )
    return found


def _door_of_text(text: str) -> Door:
    """What text is that is no Python."""
    if re.search(r"^\s*\"?instr\.program\b", text, re.M):
        return Door.INSTR
    return Door.PROGRAM if re.match(r"\s*builtin\.module attributes \{[^\n]*program\.name", text) else Door.HLO


def _is_py(path: str) -> bool:
    return path.removesuffix(".gz").endswith(".py")


def _is_jit(decorator: ast.expr) -> bool:
    """Whether that is ``@nki.jit``."""
    return _decorates(decorator, "jit")


def _is_program(decorator: ast.expr) -> bool:
    """Whether that is ``@pl.program``."""
    return _decorates(decorator, "program")


def _decorates(decorator: ast.expr, name: str) -> bool:
    """Whether that is ``@module.name``, whatever the module is called, or ``@module.name(…)``."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")) == name


def _statements(text: str, path: str) -> list[ast.stmt]:
    """The statements of Python text; none where it is no Python."""
    try:
        with warnings.catch_warnings(action="ignore"):  # whoever compiles it in earnest will warn
            return ast.parse(text).body
    except SyntaxError as error:
        if _is_py(path):
            raise InputError(f"{path}:{error.lineno}: {error.msg}") from None
    except (RecursionError, MemoryError):
        if _is_py(path):
            what = f"{path}: an expression is too long for Python, or nested too deeply"
            raise InputError(what, "give its parts names, in statements of their own") from None
    except ValueError:
        pass
    return []


def _names(body: Sequence[ast.AST]) -> Iterator[str]:
    """Names that statements bind, those inside of ``if``, ``try`` and ``with`` too."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name))
        elif isinstance(node, (ast.stmt, ast.excepthandler)):
            yield from _names(list(ast.iter_child_nodes(node)))
