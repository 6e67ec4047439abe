"""A program as a file gives it: Python that defines one, or its text, with inputs and what is expected of them.

A Python file defines ``program``, or ``programs`` of which one is picked; each is a program, or a function that takes
the number of ranks and makes one. It may define ``inputs(ranks, seed)``, the host orchestrator's arguments by name, and
``expected(ranks, inputs)``, those that the program writes. While it runs, ``import pypto`` is answered by this package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, cast

import numpy as np

from crossrank.arrays import Array, check_room, draw, load_arrays
from crossrank.author import article, load_module, own_code
from crossrank.collective.dtypes import DType, dtype_of
from crossrank.doors import Source
from crossrank.errors import InputError, ask
from crossrank.files import python_text
from crossrank.program.aliases import install
from crossrank.program.execute.binding import evaluate
from crossrank.program.kinds import Direction
from crossrank.program.program import Param, Program, read_program
from crossrank.program.types import ShapedType, element_of

Arguments = dict[str, Array]
"""The host orchestrator's arguments by name; a scalar is an array without dimensions."""


@dataclass(frozen=True)
class ProgramFile:
    """A program and how it came.

    Attributes:
        path: the file's name as the user gave it (``-``: standard input).
        program: the program, as its author wrote it: no pass has run.
        ranks: on how many devices it is to run.
        rail: which of the file's ``programs`` it is; empty where the file defines one ``program``.
        inputs: from a seed its arguments; None: they are to be drawn.
        expected: from the arguments those that its author expects it to write; None: the file does not say.
    """

    path: str
    program: Program
    ranks: int
    rail: str = ""
    inputs: Callable[[int], Arguments] | None = None
    expected: Callable[[Arguments], Arguments] | None = None


AUTO = "auto"
"""In place of a rail's name: whichever program costs least."""


def read_program_file(source: Source, ranks: int | None, rail: str | None = None) -> ProgramFile:
    """The program of a file.

    Args:
        source: what was read.
        ranks: on how many devices it is to run.
        rail: which of the file's ``programs``; needed where it has several.

    Raises:
        InputError: what the file's own code raised, with its line, or what it does not define as it should.
    """
    number = _ask_ranks(source, ranks)
    if not source.python:
        ask(rail in (None, AUTO), f"--rail {rail}: {source.path} is the text of one program", "leave it away")
        return ProgramFile(source.path, read_program((python_text(source.data) or ""), source.path), number)
    module = _module(source)
    made, rail = _chosen(module, source.path, rail)
    return _program_file(module, made, source.path, number, rail)


def read_program_files(source: Source, ranks: int | None) -> dict[str, ProgramFile | InputError]:
    """All programs of a file by the names of their rails, or what is wrong with them; one program has the name ``""``.

    Raises:
        InputError: the file's own code raised something, or defines no programs.
    """
    number = _ask_ranks(source, ranks)
    module = _module(source) if source.python else None
    if module is None or getattr(module, "programs", None) is None:
        return {"": read_program_file(source, ranks)}
    found: dict[str, ProgramFile | InputError] = {}
    for name, made in _programs(module, source.path).items():
        try:
            found[name] = _program_file(module, made, source.path, number, name)
        except InputError as error:
            found[name] = error
    return found


def _ask_ranks(source: Source, ranks: int | None) -> int:
    if ranks is None:
        raise InputError(f"{source.path} does not say how many ranks it runs on", "say it: --ranks N")
    ask(1 <= ranks <= MOST_RANKS, f"--ranks {ranks}: a program runs on 1 to {MOST_RANKS} ranks")
    return ranks


def _module(source: Source) -> ModuleType:
    """A file's own code, run."""
    install()
    module = load_module(source.data, source.path, "a program")
    for name in ("inputs", "expected"):
        given = getattr(module, name, None)
        ask(given is None or callable(given), f"{source.path}: {name} is no function", f"define {name}{_TAKES[name]}")
    return module


def _program_file(module: ModuleType, made: Any, path: str, ranks: int, rail: str) -> ProgramFile:
    """A program as the file has it: made, where it is a function that makes one."""
    if not isinstance(made, Program):
        ask(
            not isinstance(made, type),
            f"{path}: the program is the class {getattr(made, '__name__', '')} as Python has it",
            "decorate it with @pl.program",
        )
        ask(callable(made), f"{path}: the program is {article(made)}", "decorate a class with @pl.program")
        with own_code(path, "a program"):
            made = made(ranks)
        ask(
            isinstance(made, Program),
            f"{path}: the function that makes the program returned {article(made)}",
            "return the class that @pl.program decorates",
        )
    inputs, expected = getattr(module, "inputs", None), getattr(module, "expected", None)
    return ProgramFile(
        path,
        cast(Program, made),
        ranks,
        rail,
        None if inputs is None else _inputs(inputs, path, ranks),
        None if expected is None else _expected(expected, path, ranks),
    )


MOST_RANKS = 256
"""Ranks that threads of one process stand for."""

_TAKES = {"inputs": "(ranks, seed)", "expected": "(ranks, inputs)"}


def _chosen(module: ModuleType, path: str, rail: str | None) -> tuple[Any, str]:
    """The program of a file, or the one of its ``programs`` that is called ``rail``."""
    if getattr(module, "programs", None) is None:
        ask(rail in (None, AUTO), f"--rail {rail}: {path} defines one program", "leave it away")
        return module.program, ""
    several = _programs(module, path)
    names = ", ".join(several)
    if rail is None and len(several) == 1:
        rail = next(iter(several))
    if rail is None:
        raise InputError(f"{path} defines several programs: {names}", f"pick one: --rail NAME, or --rail {AUTO}")
    ask(rail in several, f"--rail {rail}: {path} has {names}", "pick one of these")
    return several[rail], rail


def _programs(module: ModuleType, path: str) -> dict[str, Any]:
    """The ``programs`` of a file."""
    several = module.programs
    ask(isinstance(several, Mapping), f"{path}: programs is {article(several)}", "map rails to programs")
    ask(several, f"{path}: programs is empty", "map rails to programs")
    return {str(name): made for name, made in several.items()}


def _inputs(make: Callable[[int, int], Any], path: str, ranks: int) -> Callable[[int], Arguments]:
    def call(seed: int) -> Arguments:
        with own_code(path, "a program"):
            return _by_name(make(ranks, seed), "inputs", path)

    return call


def _expected(make: Callable[[int, Any], Any], path: str, ranks: int) -> Callable[[Arguments], Arguments]:
    def call(inputs: Arguments) -> Arguments:
        with own_code(path, "a program"):
            return _by_name(make(ranks, {name: a.copy() for name, a in inputs.items()}), "expected", path)

    return call


def _by_name(found: Any, function: str, path: str) -> Arguments:
    """What one of the file's functions gave, where it is arrays by name."""
    ask(
        isinstance(found, Mapping),
        f"{path}: {function}() gives {article(found)}, not a dict",
        "give the host orchestrator's arguments by name",
    )
    arrays = {}
    for name, value in found.items():
        try:
            arrays[str(name)] = np.asarray(value)
        except ValueError:
            raise InputError(f"{path}: {function}() gives for {name} what is no array: its rows differ") from None
    return arrays


def arguments_of(file: ProgramFile, seed: int, given: str | None = None) -> Arguments:
    """All arguments of the host orchestrator, by name, in its order.

    Inputs come from the ``.npz`` file ``given`` (under the parameters' names), else from the file's ``inputs``, else
    they are drawn; Out parameters that are not among them are zeros.

    Raises:
        InputError: one is missing, has another type, or does not fit the parameter's extents.
    """
    params = file.program.entry.params
    found = given_arguments(file, seed, given)
    source = given or (f"{file.path}: inputs()" if file.inputs is not None else "")
    stray = sorted(set(found) - {p.name for p in params})
    if stray:
        names = ", ".join(p.name for p in params)
        raise InputError(f"{source}: {stray[0]} is no parameter of {file.program.entry.name}", f"it has {names}")
    symbols: dict[str, int] = {}
    arrays = {p.name: _fitting(found[p.name], p, symbols, source) for p in params if p.name in found}
    rng = np.random.default_rng(seed)
    for param in params:
        if param.name not in arrays:
            ask(
                not source or param.direction is Direction.Out,
                f"{source} does not give {param.name}, a parameter of {file.program.entry.name}",
            )
            arrays[param.name] = _made(param, symbols, rng, file.path)
    return {p.name: arrays[p.name] for p in params}


def given_arguments(file: ProgramFile, seed: int, given: str | None = None) -> Arguments:
    """The arguments that an ``.npz`` or the file gives, as they are; what nobody gives is not among them."""
    if given is not None:
        return {k: a for k, a in load_arrays(given).items() if not k.startswith(EXPECTED)}
    return {} if file.inputs is None else file.inputs(seed)


EXPECTED = "expected_"
"""In an ``.npz`` of arguments, before the name of one that is expected to be written so."""


def expected_of(file: ProgramFile, arguments: Arguments, given: str | None = None) -> Arguments | None:
    """What is expected to be written, by name; None where nobody says.

    Raises:
        InputError: it is no parameter that the program writes, or of another shape.
    """
    if given is not None:
        arrays = {k.removeprefix(EXPECTED): a for k, a in load_arrays(given).items() if k.startswith(EXPECTED)}
        found, source = arrays or None, given
    else:
        found = None if file.expected is None else file.expected(arguments)
        source = f"{file.path}: expected()"
    if found is None:
        return None
    written = {p.name for p in file.program.entry.params if p.direction.writes}
    for name, array in found.items():
        ask(
            name in written,
            f"{source} gives {name}, which is no Out or InOut parameter",
            f"there are {sorted(written)}",
        )
        like = arguments[name]
        if array.dtype != like.dtype and _bits(array, like) is not None:
            found[name] = array = cast(Array, _bits(array, like))
        ask(
            array.shape == like.shape,
            f"{source} gives {array.dtype}{list(array.shape)} for {name}, which is {like.dtype}{list(like.shape)}",
            "give it that shape",
        )
    return found


def _bits(array: Array, like: Array) -> Array | None:
    """An array of 16-bit integers as the bf16 that it stands for in an ``.npz``; None where it does not."""
    is_bits = array.dtype == np.uint16 and like.dtype.kind == "V" and like.dtype.itemsize == array.dtype.itemsize
    return array.view(like.dtype) if is_bits else None


def _fitting(array: Array, param: Param, symbols: dict[str, int], source: str) -> Array:
    """An argument as the parameter wants it; extents bind what symbols stand for."""
    what = f"{source} gives {array.dtype}{list(array.shape)} for {param.name}"
    if not isinstance(param.type, ShapedType):
        ask(array.ndim == 0, f"{what}, which is a scalar")
        return array.astype(element_of(param.type).numpy)
    wanted = param.type.dtype
    like = np.empty(0, wanted.numpy)
    if array.dtype != like.dtype:
        bits = _bits(array, like)
        ask(bits is not None or _holds(wanted, array), f"{what}, which is {param.type.described}", "give it that type")
        array = array.astype(like.dtype) if bits is None else bits
    shape = param.type.shape
    fits = array.ndim == len(shape) and all(
        symbols.setdefault(d, n) == n if isinstance(d, str) and d.isidentifier() else isinstance(d, str) or d == n
        for d, n in zip(shape, array.shape, strict=True)
    )
    bound = f" with {', '.join(f'{k} = {v}' for k, v in symbols.items())}" if symbols else ""
    ask(fits, f"{what}, which is {param.type.described}{bound}", "give it that shape")
    return np.ascontiguousarray(array).reshape(array.shape)


def _holds(wanted: DType, array: Array) -> bool:
    """Whether an array's numbers are numbers of that type, none lost."""
    try:
        return wanted.holds(dtype_of(array.dtype)) or bool((array.astype(wanted.numpy) == array).all())
    except ValueError:
        return False


def _made(param: Param, symbols: Mapping[str, int], rng: np.random.Generator, path: str) -> Array:
    """An argument that nobody gave: zeros where the program writes it, else drawn."""
    if not isinstance(param.type, ShapedType):
        return draw(rng, (), element_of(param.type))
    shape = []
    for extent in param.type.shape:
        length = evaluate(extent, symbols) if isinstance(extent, str) else extent
        if length is None:
            raise InputError(
                f"{path}: nobody says how long the extent {extent} of {param.name} is",
                "give it in inputs(ranks, seed), or in an .npz: --inputs FILE",
            )
        ask(length >= 0, f"{path}: the extent {extent} of {param.name} comes to {length}")
        shape.append(length)
    check_room(int(np.prod(shape, dtype=object)) * 8, param.name)
    if param.direction is Direction.Out:
        return np.zeros(shape, param.type.dtype.numpy)
    return draw(rng, shape, param.type.dtype)
