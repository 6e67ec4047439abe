"""``nki.simulate``: a kernel on ranks that are not there, with arrays in the place of tensors."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crossrank.errors import InputError, ask, counted
from crossrank.instr.instructions import InstCollectiveCompute
from crossrank.instr.interpret import Machine
from crossrank.instr.inventory import written_inputs
from crossrank.instr.program import Kernel
from crossrank.instr.trace import Traced, arrays_in, name_of, trace
from crossrank.nki.kernel import ARCHITECTURES, JitKernel, axes_of
from crossrank.nki.state import documented

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Simulation:
    """A kernel that is ready to be called with arrays.

    With ``ranks`` it takes one argument: for each rank a tuple of its positional arguments, or a dict of its keyword
    arguments; it returns what the kernel returned on each rank. Without, it takes the kernel's own arguments and
    returns what the kernel returns, on one rank. Arrays that the kernel writes are written.

    Attributes:
        function: the kernel's Python function.
        ranks: how many ranks; None: one, called with the kernel's own arguments.
        lnc: how many cores a rank has.
        grid: the launch grid, or None.
        arch: the architecture level.
        backend: who computes collectives, ``kernels`` or ``oracle``.
        as_documented: whether what the vendor's tools refuse is refused too.
        limit: seconds that a compiled kernel may take, and a loop in which a core meets nobody.
    """

    function: Callable[..., Any]
    ranks: int | None
    lnc: int
    grid: tuple[int, ...] | None
    arch: int
    backend: str
    as_documented: bool
    limit: float

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the kernel returns: on one rank, or a list of it for each rank."""
        if self.ranks is None:
            return self._run([bind(self.function, args, kwargs)])[0]
        if len(args) != 1 or kwargs:
            raise InputError(
                "a simulation of several ranks takes one argument: the arguments of each rank",
                "call it with a list that has a tuple (or a dict) for each rank",
            )
        return self._run(self._per_rank(args[0]))

    def trace(self, inputs: Any) -> tuple[Traced, list[list[Array]]]:
        """The traced kernel, and the arrays of each rank; ``inputs`` as they are called with on several ranks."""
        return self._traced(self._per_rank(inputs))

    def _per_rank(self, inputs: Any) -> list[inspect.BoundArguments]:
        count = 1 if self.ranks is None else self.ranks
        if not isinstance(inputs, Sequence) or len(inputs) != count:
            given = f"{len(inputs)} are given" if isinstance(inputs, Sequence) else f"{type(inputs).__name__} is given"
            raise InputError(f"arguments for {counted(count, 'rank')} are needed, and {given}")
        bound = []
        for rank, own in enumerate(inputs):
            if isinstance(own, Mapping):
                bound.append(bind(self.function, (), own))
            elif isinstance(own, (tuple, list)):
                bound.append(bind(self.function, own, {}))
            else:
                raise InputError(
                    f"the arguments of rank {rank} are {type(own).__name__}",
                    "give a tuple of positional arguments, or a dict of keyword arguments",
                )
        return bound

    def _traced(self, bound: Sequence[inspect.BoundArguments]) -> tuple[Traced, list[list[Array]]]:
        first = {name: _kind_of(value) for name, value in bound[0].arguments.items()}
        for rank, arguments in enumerate(bound):
            for name, value in arguments.arguments.items():
                if _kind_of(value) != first[name]:
                    remedy = "ranks run one program: arrays are alike in shape and type, all else is equal"
                    if "__eq__" not in {name for cls in type(value).__mro__[:-1] for name in vars(cls)}:
                        remedy = f"give all ranks the same object, or {type(value).__name__} an __eq__ (a dataclass)"
                    raise InputError(
                        f"rank {rank}: the argument {name} is {_shown(value)}, and on rank 0 "
                        f"{_shown(bound[0].arguments[name])}",
                        remedy,
                    )
        with documented(self.as_documented):
            traced = trace(
                self.function,
                bound[0].args,
                bound[0].kwargs,
                world_size=len(bound),
                lnc=self.lnc,
                grid=self.grid,
                arch=self.arch,
            )
        _check_prepared(traced.kernel)
        if self.as_documented:
            _check_operands(traced.kernel)
        return traced, [[a for v in b.arguments.values() for a in arrays_in(v)] for b in bound]

    def _run(self, bound: Sequence[inspect.BoundArguments]) -> list[Any]:
        traced, arrays = self._traced(bound)
        written = written_inputs(traced.kernel)
        for rank, position in ((rank, n) for rank in range(len(arrays)) for n in written):
            if not arrays[rank][position].flags.writeable:
                raise InputError(
                    f"rank {rank}: the kernel writes {traced.arrays[position]}, which is read-only",
                    "give a NumPy array that can be written",
                )
        machine = Machine(traced.kernel, backend=self.backend, limit=self.limit)
        outputs = machine.run(arrays)
        if written:
            for given, contents in zip(arrays, machine.input_contents(), strict=True):
                for position in written:
                    given[position][...] = contents[position]
        return [traced.rebuilt(own) for own in outputs]


def simulate(
    kernel: Callable[..., Any],
    ranks: int | None = None,
    lnc: int | None = None,
    grid: int | Sequence[int] | None = None,
    arch: int | None = None,
    backend: str = "kernels",
    as_documented: bool = False,
    limit: float = 60.0,
) -> Simulation:
    """Make a kernel ready to be called with arrays; see `Simulation`.

    Args:
        kernel: a kernel (``kernel[2]`` with a launch grid) or a plain function.
        ranks: how many ranks; None: one, in the form of NKI itself, ``nki.simulate(kernel)(x, y)``.
        lnc: how many cores a rank has; by default one for each program of the grid.
        grid: the launch grid, where ``kernel`` has none.
        arch: the architecture level, 20, 30 or 40; by default the kernel's ``platform_target``, else 40.
        backend: who computes collectives: the compiled ``kernels``, or the ``oracle`` in NumPy.
        as_documented: refuse what the vendor's tools refuse and ours allow.
        limit: seconds that a compiled kernel may take, and a loop in which a core meets nobody.

    Raises:
        InputError: what cannot be, with the line of the kernel; by the call, and so is RunError, a run that failed.
    """
    if not callable(kernel):
        raise InputError(f"{kernel!r} is no kernel", "give a function")
    for name, number in (("ranks", ranks), ("lnc", lnc)):
        if number is not None and not isinstance(number, int):
            raise InputError(f"{name} is {number!r}, not a whole number")
    if ranks is not None and ranks < 1:
        raise InputError(f"a kernel runs on one rank or more, not on {ranks}")
    own = kernel.grid if isinstance(kernel, JitKernel) else None
    given = None if grid is None else axes_of(grid)
    if own is not None and given not in (None, own):
        raise InputError(f"the kernel has the grid {list(own)}, and {list(given or ())} is given", "give one of them")
    if arch is not None and arch not in ARCHITECTURES.values():
        raise InputError(f"there is no architecture level {arch}", "there are 20, 30 and 40")
    axes = own if own is not None else given
    cores = math.prod(axes) if axes else 1
    target = kernel.arch if isinstance(kernel, JitKernel) else None
    function = kernel.function if isinstance(kernel, JitKernel) else kernel
    return Simulation(function, ranks, lnc or cores, axes, arch or target or 40, backend, as_documented, limit)


def bind(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
    """A kernel's arguments by name, defaults included; arrays of other libraries become NumPy's."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError) as error:
        raise InputError(f"the kernel {name_of(function)} cannot take these arguments: {error}") from None
    bound.apply_defaults()
    for name, value in bound.arguments.items():
        bound.arguments[name] = _as_numpy(value)
    return bound


def _as_numpy(value: Any) -> Any:
    """An argument with the arrays of other libraries as NumPy's."""
    if type(value) in (list, tuple):
        return type(value)(_as_numpy(item) for item in value)
    if type(value) is dict:
        return {key: _as_numpy(item) for key, item in value.items()}
    foreign = hasattr(value, "__array__") and not isinstance(value, (np.ndarray, np.generic))
    return np.asarray(value) if foreign else value


@dataclass(frozen=True)
class _ArrayKind:
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def _kind_of(value: Any) -> Any:
    """What must be equal on all ranks of an argument."""
    if isinstance(value, np.ndarray):
        return _ArrayKind(value.shape, value.dtype)
    if type(value) in (list, tuple):
        return type(value)(_kind_of(item) for item in value)
    if type(value) is dict:
        return {key: _kind_of(item) for key, item in value.items()}
    return value


def _shown(value: Any) -> str:
    text = f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _check_prepared(kernel: Kernel) -> None:
    """Every exchange that was prepared is triggered."""
    for program in kernel.programs:
        waiting: InstCollectiveCompute | None = None
        for inst in program.instructions():
            if isinstance(inst, InstCollectiveCompute) and inst.fields.phase:
                waiting = inst if inst.fields.phase == "prepare" else None
        if waiting is not None:
            raise InputError(f"{waiting.where}: {waiting.label} is prepared and never triggered")


def _check_operands(kernel: Kernel) -> None:
    """Collectives do not work on inputs and outputs of the kernel."""
    for program in kernel.programs:
        for inst in program.instructions():
            if isinstance(inst, InstCollectiveCompute):
                for access in (*inst.in_accesses, *inst.out_accesses):
                    fields = access.of.fields
                    ask(
                        fields.input < 0 and not fields.outputs,
                        f"{inst.where}: {inst.label} works on {fields.name}, which is an input or output of the kernel",
                        "copy it to or from a tensor of the kernel's own by nisa.dma_copy",
                    )
