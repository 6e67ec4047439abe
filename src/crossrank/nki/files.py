"""A Python file that defines a kernel: loaded, its inputs made, the kernel traced.

The file defines ``kernel`` and ``inputs(ranks, seed)``, for each rank a tuple of the kernel's arguments. It
may define ``expected(ranks, inputs)``, for each rank a tuple of arrays, and ``grid`` and ``lnc``. While it runs,
``import nki`` is answered by this package, its own folder is searched for imports, and what it prints goes to standard
error.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

from crossrank.arrays import Array
from crossrank.author import article, load_module, own_code
from crossrank.doors import Source
from crossrank.errors import InputError, counted
from crossrank.instr.files import ByRank, KernelFile, kernel_from_text
from crossrank.instr.program import check_world
from crossrank.instr.trace import replaced
from crossrank.nki.aliases import install
from crossrank.nki.kernel import JitKernel
from crossrank.nki.simulation import bind, simulate


def read_kernel_file(source: Source, ranks: int | None, lnc: int | None = None, seed: int = 0) -> KernelFile:
    """The kernel of a file: Python that defines one, or its text; see `kernel_from_python` and `kernel_from_text`."""
    if source.python:
        return kernel_from_python(source.data, source.path, ranks, lnc, seed)
    return kernel_from_text(source.data, source.path, ranks, lnc)


def kernel_from_python(data: bytes, path: str, ranks: int | None, lnc: int | None = None, seed: int = 0) -> KernelFile:
    """The kernel that a Python file defines, traced for ``ranks`` ranks of ``lnc`` cores.

    Args:
        data: what the file holds.
        path: its name; its folder is where its imports are looked for.
        ranks: how many ranks will run it.
        lnc: how many cores each has; else what the file's ``lnc`` says, or as many as its grid has programs.
        seed: handed to the file's ``inputs``.

    Raises:
        InputError: what the file's own code raised, with its line, or what the file does not define as it should.
    """
    if ranks is None:
        raise InputError(f"{path} does not say how many ranks it runs on", "say it: --ranks N")
    if ranks < 1:
        raise InputError(f"--ranks {ranks}: there is no run on fewer than one rank")
    check_world(ranks, lnc or 1)
    install()
    module = load_module(data, path, "a kernel")
    kernel, expected = getattr(module, "kernel", None), getattr(module, "expected", None)
    if not callable(kernel):
        raise InputError(f"{path}: kernel is {kernel!r}, not a function")
    for name in ("inputs", "expected"):
        given = getattr(module, name, None)
        if given is not None and not callable(given):
            raise InputError(f"{path}: {name} is {article(given)}, not a function", f"define {name}{_TAKES[name]}")
    cores = lnc or getattr(module, "lnc", None)
    if cores is not None and (not isinstance(cores, int) or cores < 1):
        raise InputError(f"{path}: lnc is {cores!r}, not a number of cores")
    arguments = _inputs(module, path, ranks, seed)
    with _own_code(path):
        traced, arrays = simulate(kernel, ranks, cores, getattr(module, "grid", None)).trace(arguments)
    return KernelFile(
        path,
        traced.kernel,
        arrays,
        None if expected is None else _expectation(expected, path, [_by_name(kernel, own) for own in arguments]),
        list(zip(traced.shapes, traced.dtypes, strict=True)),
        "" if traced.shapes or traced.returned is None else f"{article(traced.returned)} (no tensor)",
    )


@contextmanager
def _own_code(path: str) -> Iterator[None]:
    """The surroundings in which the file's own code runs."""
    install()
    with own_code(path, "a kernel"):
        yield


_TAKES = {"inputs": "(ranks, seed)", "expected": "(ranks, inputs)"}


def _inputs(module: ModuleType, path: str, ranks: int, seed: int) -> list[Any]:
    """The arguments of each rank."""
    make = getattr(module, "inputs", None)
    with _own_code(path):
        if make is None:
            if any(p.default is p.empty for p in inspect.signature(module.kernel).parameters.values()):
                raise InputError(
                    f"{path} does not say what its kernel's arguments are",
                    "define inputs(ranks, seed): for each rank the tuple of its arguments",
                )
            return [()] * ranks
        return _for_each_rank(make(ranks, seed), "inputs", ranks)


def _expectation(
    expected: Callable[[int, Sequence[Any]], Any], path: str, arguments: Sequence[Any]
) -> Callable[[ByRank], ByRank]:
    """What is expected of the arrays of each rank: they stand in its arguments when ``expected`` is asked."""

    def call(inputs: ByRank) -> ByRank:
        given = [_with_arrays(own, arrays) for own, arrays in zip(arguments, inputs, strict=True)]
        with _own_code(path):
            found = _for_each_rank(expected(len(inputs), given), "expected", len(inputs))
            return [[_array(a, rank) for a in own] for rank, own in enumerate(found)]

    return call


def _for_each_rank(found: Any, function: str, ranks: int) -> list[Any]:
    """What one of the file's functions gave, where it is a tuple for each rank."""
    if not isinstance(found, Iterable) or isinstance(found, dict):
        raise InputError(f"{function}() gives {article(found)}, not a list with a tuple for each rank")
    by_rank = list(found)
    if len(by_rank) != ranks:
        raise InputError(f"{function}() gives a list for {counted(len(by_rank), 'rank')}, and {ranks} run")
    for rank, own in enumerate(by_rank):
        if not isinstance(own, (tuple, list, *((dict,) if function == "inputs" else ()))):
            raise InputError(f"{function}() gives rank {rank} {article(own)}, not a tuple")
    return by_rank


def _array(value: Any, rank: int) -> Array:
    try:
        return np.asarray(value)
    except ValueError:
        raise InputError(f"expected() gives rank {rank} {article(value)} that is no array: its rows differ") from None


def _by_name(kernel: Callable[..., Any], own: Any) -> Any:
    """A rank's arguments; those that came by name in the order of the kernel's parameters, defaults included."""
    function = kernel.function if isinstance(kernel, JitKernel) else kernel
    return dict(bind(function, (), own).arguments) if isinstance(own, dict) else own


def _with_arrays(arguments: Any, arrays: Sequence[Array]) -> Any:
    """The arguments of a rank with other arrays in the place of theirs."""
    left = iter(arrays)
    return replaced(arguments, lambda leaf: next(left, leaf) if isinstance(leaf, np.ndarray) else leaf)
