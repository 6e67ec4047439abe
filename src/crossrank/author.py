"""Python that an author wrote, to define a kernel or a program: loaded, run, and its errors told by its own lines."""

from __future__ import annotations

import difflib
import inspect
import linecache
import re
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from enum import EnumType
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import xdsl

from crossrank.errors import Ended, InputError, RunError
from crossrank.files import python_text

HERE = str(Path(__file__).parent)


def load_module(data: bytes, path: str, defines: str) -> ModuleType:
    """Run a file as a module of a name that no real one has.

    Args:
        data: what the file holds.
        path: its name as the user gave it (``-``: standard input).
        defines: what it should define, in words: ``a kernel``.

    Raises:
        InputError: what the file raised, with its line.
    """
    shown = "<stdin>" if path == "-" else path
    package, _ = _package(path)
    name = f"__{defines.rpartition(' ')[2]}_{Path(shown).name.partition('.')[0]}__"
    module = ModuleType(f"{package}.{name}" if package else name)
    module.__file__ = shown
    module.__package__ = package
    sys.modules[module.__name__] = module  # dataclasses look there
    # who asks for source finds it although the file is gzipped, or a pipe
    linecache.cache[shown] = (len(data), None, (python_text(data) or "").splitlines(keepends=True), shown)
    with own_code(path, defines):
        exec(compile(data, shown, "exec", dont_inherit=True), module.__dict__)
    return module


@contextmanager
def own_code(path: str, defines: str) -> Iterator[None]:
    """The surroundings in which a file's own code runs.

    Its folder is searched for imports, and what it prints goes to standard error. An InputError that comes out begins
    with the file.
    """
    _, root = _package(path)
    folders = [str(Path(path).absolute().parent), *([root] if root else [])]
    sys.path[:0] = folders
    try:
        with redirect_stdout(sys.stderr), plain_errors(path):
            yield
    except InputError as error:
        what, remedy = error.what, error.remedy
        if what.startswith(f"{Path(path).name}:"):
            what = path + what.removeprefix(Path(path).name)
        elif not (re.match(r"\S+:\d+: ", what) or what.startswith(path)):
            what = f"{path}: {what}"
        if "attempted relative import" in what:
            remedy = "import it without the dots: the file's own folder is searched; or make the folder a package"
        raise InputError(what, remedy) from None
    except Ended:
        raise
    except SystemExit as error:
        lines = [f.lineno for f in author_frames(error) if f.filename == path]
        place = f"{path}:{lines[-1]}" if lines else path
        raise InputError(f"{place} ends Python, and should only define {defines}") from None
    finally:
        for folder in folders:
            if folder in sys.path:
                sys.path.remove(folder)


def article(value: Any) -> str:
    """A value by its type, in words: ``an int``."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _package(path: str) -> tuple[str, str]:
    """The package in whose folder a file lies, and the folder where that is found; empty where it lies in none."""
    folder, names = Path(path).absolute().parent, list[str]()
    while (folder / "__init__.py").exists() and folder.name.isidentifier():
        names.insert(0, folder.name)
        folder = folder.parent
    return ".".join(names), str(folder) if names else ""


@contextmanager
def plain_errors(name: str) -> Iterator[None]:
    """Turn what the author's Python raises into an InputError that begins with the author's line."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, RunError):
        raise
    except InputError as error:
        before, behind = _author_place(error)
        raise type(error)(f"{before}{error.what}{behind}", error.remedy) from None
    except BaseException as error:
        if isinstance(error, RecursionError):
            places = Counter(map(_place, author_frames(error))).most_common(1)
            raise InputError(f"{places[0][0] if places else name}: it calls itself without end") from None
        before, behind = _author_place(error)
        if isinstance(error, MemoryError):
            raise RunError(f"{before or f'{name}: '}there is not enough memory: {error}") from None
        said, remedy = f"{type(error).__name__}: {error}", ""
        if isinstance(error, AttributeError) and error.name and isinstance(error.obj, (EnumType, ModuleType)):
            said, remedy = f"{error.obj.__name__} has no {error.name}", instead(error.obj, error.name)
        if isinstance(error, SyntaxError) and error.filename == name:  # the file itself, which cannot be compiled
            before, said = f"{name}:{error.lineno}:{error.offset}: ", error.msg
        if isinstance(error, AssertionError):
            said = str(error) or f"this does not hold: {author_frames(error)[-1].line}"
        raise InputError(f"{before}{said.removesuffix(': ')}{behind}", remedy) from None


def instead(of: object, missing: str) -> str:
    """What to write instead of an attribute that a value does not have: what is like it, or an enum's members."""
    if isinstance(of, EnumType):
        return f"it has {', '.join(of.__members__)}"
    names = [name for name in dir(of) if not name.startswith("_")]
    near = difflib.get_close_matches(missing, names, 1) or difflib.get_close_matches(missing, names, 4, 0.5)
    return f"did you mean {' or '.join(near)}?" if near else ""


def _author_place(error: BaseException) -> tuple[str, str]:
    """``file.py:line: `` of the author's innermost line; and, in another file, from which of the file's it came."""
    frames = author_frames(error)
    if not frames or (isinstance(error, InputError) and re.match(r"\S+:\d+:\d+: ", error.what)):
        return "", ""  # it says its place itself
    last, whole = frames[-1], [f for f in frames if f.filename == frames[0].filename]
    caller = f" (called from {_place(whole[-1])})" if last.filename != whole[-1].filename else ""
    return f"{_place(last)}: ", caller


def _place(frame: traceback.FrameSummary) -> str:
    return f"{Path(frame.filename).name}:{frame.lineno}"


def author_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames outside of this package, of NumPy and of Python's own libraries, the innermost last."""
    own = (HERE, "<frozen", *(str(Path(inspect.getfile(m)).parent) for m in (inspect, np, xdsl)))
    return [
        f
        for f in traceback.extract_tb(error.__traceback__)
        if not f.filename.startswith(own) and not f.filename.endswith(".pyx")
    ]
