"""Tracing: a kernel's Python runs once for each program of the launch grid, and what it calls becomes instructions.

Loops unroll, arrays among the arguments become inputs, what the function returns becomes the outputs. While a kernel
runs, `current` is the builder of its program.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from crossrank.author import plain_errors
from crossrank.errors import InputError
from crossrank.instr.builder import KernelBuilder
from crossrank.instr.kinds import Space
from crossrank.instr.program import Kernel
from crossrank.instr.tensors import View

Array = npt.NDArray[Any]
_current: ContextVar[KernelBuilder | None] = ContextVar("builder", default=None)


def current() -> KernelBuilder:
    """The builder of the program that is being traced."""
    builder = _current.get()
    if builder is None:
        raise InputError("no kernel is being traced", "call this from a kernel, and the kernel by nki.simulate")
    return builder


def tracing() -> bool:
    """Whether a kernel is being traced."""
    return _current.get() is not None


@contextmanager
def building(builder: KernelBuilder) -> Iterator[KernelBuilder]:
    """Make ``builder`` the current one."""
    token = _current.set(builder)
    try:
        yield builder
    finally:
        _current.reset(token)


@dataclass(frozen=True)
class Traced:
    """A traced kernel.

    Attributes:
        kernel: its programs.
        arrays: where the inputs are found among the arguments: the name of each.
        returned: what the function returned, with the position of an output in the place of each view.
        shapes: the shape of each output as it was returned.
        dtypes: and its element type, which may be another one than its tensor's.
    """

    kernel: Kernel
    arrays: tuple[str, ...]
    returned: Any
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype[Any], ...]

    def rebuilt(self, outputs: Sequence[Array]) -> Any:
        """What the function returned, with one rank's outputs in it."""
        shaped = [a.view(d).reshape(s) for a, s, d in zip(outputs, self.shapes, self.dtypes, strict=True)]
        return replaced(self.returned, lambda leaf: shaped[leaf.position] if isinstance(leaf, _Output) else leaf)


@dataclass(frozen=True)
class _Output:
    position: int


def trace(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    world_size: int = 1,
    lnc: int = 1,
    grid: Sequence[int] | None = None,
    arch: int = 40,
) -> Traced:
    """Trace a kernel.

    Args:
        function: the kernel.
        args: its arguments; of arrays only shape and type count, all else is constant.
        kwargs: more of them.
        world_size: how many ranks will run it.
        lnc: how many cores each has.
        grid: the launch grid, each program a core; None: the kernel runs once, on core 0.
        arch: the architecture level.

    Raises:
        InputError: whatever the kernel did that cannot be, with the line where it did so.
    """
    name = name_of(function)
    _check_plain(function, name)
    try:
        bound = inspect.signature(function).bind(*args, **(kwargs or {}))
    except TypeError as error:
        raise InputError(f"the kernel {name} cannot take these arguments: {error}") from None
    bound.apply_defaults()
    count = max(1, math.prod(grid or ()))  # of a grid with no programs the builder says what is wrong
    programs, traced, collectives = [], None, False
    for core in range(count):
        builder = KernelBuilder(world_size, max(lnc, 1), core, grid, arch)
        taken = _Arguments(builder, Space.SHARED_HBM if lnc > 1 else Space.PRIVATE_HBM)
        with building(builder), plain_errors(name):
            arguments = inspect.BoundArguments(bound.signature, {k: taken.of(k, v) for k, v in bound.arguments.items()})
            result = function(*arguments.args, **arguments.kwargs)
            outputs: list[View] = []
            returned = replaced(result, partial(_as_output, found=outputs))
            for view in outputs:
                builder.output(view)
        programs.append(builder.finish())
        collectives = collectives or builder.has_collectives
        if traced is None:
            traced = (
                tuple(taken.names),
                returned,
                tuple(v.shape for v in outputs),
                tuple(v.dtype for v in outputs),
            )
        elif traced[2] != tuple(v.shape for v in outputs):
            raise InputError(f"{name}: program {core} returns other shapes than program 0")
    assert traced is not None
    kernel = Kernel.of(
        programs,
        name=name,
        world_size=world_size,
        lnc=max(lnc, count),
        arch=arch,
        has_collectives=collectives,
    )
    kernel.verify()
    return Traced(kernel, *traced)


def name_of(function: Callable[..., Any]) -> str:
    """What a kernel is called: its function's name; of an object that can be called, its class."""
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


def _check_plain(function: Callable[..., Any], name: str) -> None:
    """A kernel runs when it is called, and gives what it returns."""
    while isinstance(function, partial):
        function = function.func
    for form in (inspect.unwrap(function), type(function).__call__):
        is_async = inspect.iscoroutinefunction(form) or inspect.isasyncgenfunction(form)
        if is_async or inspect.isgeneratorfunction(form):
            what = "an async function" if is_async else "a generator: it yields"
            raise InputError(f"the kernel {name} is {what}", "write a plain function that returns its tensors")


class _Arguments:
    """Makes inputs of the arrays among a kernel's arguments."""

    def __init__(self, builder: KernelBuilder, space: Space) -> None:
        self._builder = builder
        self._space = space
        self.names: list[str] = []

    def of(self, name: str, value: Any) -> Any:
        """The argument as the kernel gets it."""
        if isinstance(value, np.ndarray):
            self.names.append(name)
            return self._builder.input(name, value.shape, value.dtype, self._space)
        if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
            return type(value)(self.of(f"{name}_{n}", item) for n, item in enumerate(value))
        if type(value) is dict:
            return {key: self.of(f"{name}_{key}", item) for key, item in value.items()}
        return value


def arrays_in(value: Any) -> Iterator[Array]:
    """The arrays in an argument, in the order in which they become inputs."""
    if isinstance(value, np.ndarray):
        yield value
    elif type(value) in (list, tuple):
        for item in value:
            yield from arrays_in(item)
    elif type(value) is dict:
        for item in value.values():
            yield from arrays_in(item)


def replaced(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """Nested tuples, lists and dicts with each leaf replaced."""
    if type(value) in (list, tuple):
        return type(value)(replaced(item, leaf) for item in value)
    if type(value) is dict:
        return {key: replaced(item, leaf) for key, item in value.items()}
    return leaf(value)


def _as_output(leaf: Any, found: list[View]) -> Any:
    if not isinstance(leaf, View):
        return leaf
    found.append(leaf)
    return _Output(len(found) - 1)
