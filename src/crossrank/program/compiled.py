"""``compile(program, …)``: a program that can be called, with the arrays of its entry's parameters."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, SupportsIndex

import numpy as np

from crossrank.arrays import check_room
from crossrank.errors import InputError, ask
from crossrank.kernels.compile import Progress
from crossrank.passes import Pass, PassResult, parse_passes, pipeline, run_passes
from crossrank.program.codegen.build import build_kernels
from crossrank.program.codegen.folder import write_folder
from crossrank.program.dialect.remote import PutOp, RemoteStoreOp
from crossrank.program.dialect.tensors import shaped
from crossrank.program.execute.binding import evaluate
from crossrank.program.execute.dispatch import Threads
from crossrank.program.execute.options import RuntimeOptions
from crossrank.program.execute.record import Record
from crossrank.program.execute.run import Callees, Run
from crossrank.program.execute.scalars import plain
from crossrank.program.execute.views import Array, View, Window
from crossrank.program.kinds import AtomicType, Direction
from crossrank.program.passes.lower_host_tensor_collectives import LowerHostTensorCollectives
from crossrank.program.program import Param, Program, where
from crossrank.program.types import ShapedType, is_float, is_scalar, spelled
from crossrank.runtime.tasks import Engine

PIPELINE = "program"

PLATFORMS = {
    "a2a3sim": RuntimeOptions(),
    "a2a3": RuntimeOptions(),
    "a5sim": RuntimeOptions(aiv_cores=36, aic_cores=18, adds_bf16=False),
    "a5": RuntimeOptions(aiv_cores=36, aic_cores=18, adds_bf16=False),
}
"""The machines that a program may be compiled for, with their cores."""


class BadValue(InputError, ValueError):
    """An argument with a value that cannot be."""


class BadCall(InputError, TypeError):
    """A call with the wrong arguments."""


@dataclass
class DistributedConfig:
    """On which devices a program runs.

    Attributes:
        device_ids: of the devices; the program counts them from 0, in this order.
        num_sub_workers: accepted; sub-workers run in this process.
        runtime: accepted.
        aicpu_thread_num: accepted.
        sub_worker_overrides: Python in place of sub-workers' own, by name.

    Raises:
        ValueError: a field cannot be so.
    """

    device_ids: Sequence[int] = (0,)
    num_sub_workers: int = 0
    runtime: str = "tensormap_and_ringbuffer"
    aicpu_thread_num: int = 0
    sub_worker_overrides: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        def ask(holds: bool, what: str) -> None:
            if not holds:
                raise BadValue(f"DistributedConfig.{what}")

        ids = list(self.device_ids)
        ask(all(isinstance(d, SupportsIndex) for d in ids), f"device_ids must be numbers of devices, got {ids}")
        ask(bool(ids), "device_ids must not be empty")
        ask(all(d >= 0 for d in ids), f"device_ids must be non-negative device indices, got {ids}")
        ask(len(set(ids)) == len(ids), f"device_ids must be distinct, got {ids}")
        ask(self.num_sub_workers >= 0, f"num_sub_workers must be non-negative, got {self.num_sub_workers}")
        threads = self.aicpu_thread_num
        ask(
            threads == 0 or threads >= 2,
            f"aicpu_thread_num must be 0 (architecture default) or at least 2, got {threads}",
        )


@dataclass
class RunConfig:
    """How a call runs. Of its fields only ``platform`` says anything here.

    Raises:
        ValueError: there is no such platform.
    """

    platform: str = "a2a3sim"
    device_id: int = 0
    rtol: float = 1e-5
    atol: float = 1e-5

    def __post_init__(self) -> None:
        options_of(self.platform)


def options_of(platform: str | None) -> RuntimeOptions:
    """The cores of a platform; ValueError where there is none of that name."""
    found = PLATFORMS.get(platform or "a2a3sim")
    if found is None:
        raise BadValue(f"Invalid platform {platform!r}. Expected 'a2a3sim', 'a2a3', 'a5sim', or 'a5'.")
    return found


def compile(
    program: Program,
    platform: str | None = None,
    distributed_config: DistributedConfig | None = None,
    output_dir: str | os.PathLike[str] | None = None,
    skip_ptoas: bool | None = None,
    *,
    passes: Sequence[Pass[Program]] | None = None,
    ranks: int | None = None,
    options: RuntimeOptions | None = None,
    analyze_auto_scopes_for_deps: bool = False,
    progress: Progress | None = None,
) -> CompiledProgram:
    """Run the passes over a copy of a program, compile its kernels, and make it callable.

    Args:
        program: left as it is.
        platform: whose cores launches are held against.
        distributed_config: the devices.
        output_dir: where the build folder is written; without it none is.
        skip_ptoas: accepted.
        passes: in place of the pipeline ``program``.
        ranks: how many devices, in place of what ``distributed_config`` says.
        options: of the run, in place of the platform's.
        analyze_auto_scopes_for_deps: derive dependencies of tasks before the run, too.
        progress: told how many of how many libraries are compiled.

    Raises:
        InputError: a program that cannot be compiled.
    """
    config = distributed_config or DistributedConfig()
    _ask_is(program, Program, "program", "it is what @pl.program makes; call the function that makes it yourself")
    _ask_is(config, DistributedConfig, "distributed_config")
    _ask_is(options or RuntimeOptions(), RuntimeOptions, "options")
    for given in passes or ():
        _ask_is(given, Pass, "each of passes", "crossrank.passes.parse_passes makes them of their names")
    if ranks is not None:
        if not isinstance(ranks, SupportsIndex):
            raise BadCall(f"ranks must be a number, got {ranks!r}")
        if ranks < 1:
            raise BadValue(f"a program runs on at least one rank, not on {ranks}")
        config = replace(config, device_ids=range(ranks))
    found = options or options_of(platform)
    clone = program.clone()
    results = run_passes(clone, fitted(_passes(analyze_auto_scopes_for_deps) if passes is None else passes, found))
    if not found.adds_bf16:
        _ask_no_bf16_added(clone)
    kernels = build_kernels(clone, progress)
    folder = None
    if output_dir is not None:
        folder = Path(output_dir).resolve()
        write_folder(clone, folder)
    return CompiledProgram(clone, Callees(clone, kernels), config, found, folder, results)


def _ask_is(value: object, wanted: type, what: str, remedy: str = "") -> None:
    """BadCall where an argument is of another type."""
    if not isinstance(value, wanted):
        raise BadCall(f"{what} must be a {wanted.__name__}, got {value!r}", remedy)


def _ask_no_bf16_added(program: Program) -> None:
    """InputError where bf16 is added to what is there."""
    for op in program.module.walk():
        if isinstance(op, (PutOp, RemoteStoreOp)) and op.atomic.data == AtomicType.Add.name:
            ask(
                shaped(op.result).dtype.name != "bf16",
                f"{where(op)}atomic=AtomicType.Add of BF16: the cores of this platform do not add that as one step",
                "add FP32 or FP16, or compile for a2a3",
            )


def fitted(passes: Sequence[Pass[Program]], options: RuntimeOptions) -> list[Pass[Program]]:
    """The passes, told how many cores there are where nobody has said so."""
    return [
        replace(p, aiv_cores=options.aiv_cores) if isinstance(p, LowerHostTensorCollectives) and not p.aiv_cores else p
        for p in passes
    ]


def _passes(derive_dependencies: bool) -> list[Pass[Program]]:
    found = pipeline(PIPELINE)
    if derive_dependencies:
        after = next(n for n, p in enumerate(found, 1) if p.name == "derive-call-directions")
        found[after:after] = parse_passes("auto-derive-task-dependencies")
    return found


class CompiledProgram:
    """A program that can be called.

    A call takes what the entry's parameters are, in order: numbers, and arrays (NumPy's, or what can be seen as one
    without a copy); Out and InOut parameters are written in place. It gives what the entry returns. Where the Out
    parameters are left away they are made, if the others tell their extents, and given back in their order.

    Of a program without a host orchestrator that has several chip functions, ``compiled["f"]`` or ``compiled.f`` is the
    one to call.

    Attributes:
        program: as the passes left it.
        config: its devices.
        output_dir: the build folder; None where none was written.
        passes: what each pass did.
        record: what the last run did; None before the first.
        callees: its functions, ready to run.
        options: of its runs.
    """

    def __init__(
        self,
        program: Program,
        callees: Callees,
        config: DistributedConfig,
        options: RuntimeOptions,
        output_dir: Path | None,
        passes: Sequence[PassResult],
    ) -> None:
        self.program = program
        self.config = config
        self.output_dir = output_dir
        self.passes = tuple(passes)
        self.record: Record | None = None
        self.callees = callees
        self.options = options
        self._chosen = len(callees.entries) < 2

    def __call__(self, *arguments: Any, config: RunConfig | None = None) -> Any:
        """Run it once."""
        with self.prepare() as worker:
            return worker(*arguments, config=config)

    @property
    def name(self) -> str:
        """The function that a call begins with."""
        return self.callees.entry.name

    @property
    def param_names(self) -> list[str]:
        """The names of its parameters."""
        return [p.name for p in self.callees.parameters.params]

    @property
    def orchestration_names(self) -> list[str]:
        """The functions that a call may begin with: several, where no host orchestrator says."""
        return list(self.callees.entries)

    def __getitem__(self, name: str) -> CompiledProgram:
        """The same program, begun with one of its `orchestration_names`; KeyError where it is none."""
        names = self.orchestration_names
        if name not in names:
            raise KeyError(f"{self.program.name} has no orchestration {name}; it has {', '.join(names) or 'none'}")
        folder = self.output_dir if self._chosen else self.output_dir and self.output_dir / "next_levels" / name
        found = CompiledProgram(
            self.program, self.callees.entered(name), self.config, self.options, folder, self.passes
        )
        found._chosen = True
        return found

    def __getattr__(self, name: str) -> CompiledProgram:
        """An orchestration by its name."""
        callees = self.__dict__.get("callees")
        if callees is None or name not in callees.entries:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self[name]

    def prepare(
        self,
        config: RunConfig | None = None,
        *,
        persistent: bool = False,
        reset_persistent_windows: bool | None = None,
        callbacks: Mapping[str, Callable[..., Any]] | None = None,
        sub_worker_overrides: Mapping[str, Callable[..., Any]] | None = None,
    ) -> DistributedWorker:
        """What runs it several times, to be used in a ``with`` statement.

        Args:
            config: accepted.
            persistent: windows live from one call to the next.
            reset_persistent_windows: they are zeroed before each call (unless this is False).
            callbacks: Python in place of sub-workers' own, by name.
            sub_worker_overrides: the same.

        Raises:
            ValueError: a name is no sub-worker's.
            TypeError: nobody says with which of its chip functions it begins.
        """
        if not self._chosen:
            names = self.orchestration_names
            raise BadCall(
                f"program {self.program.name} has no HOST orchestrator, and several others: {', '.join(names)}",
                f'select one explicitly: compiled["{names[0]}"]',
            )
        workers = {**self.config.sub_worker_overrides, **(callbacks or {}), **(sub_worker_overrides or {})}
        if unknown := sorted(set(workers) - set(self.callees.workers)):
            known = ", ".join(self.callees.workers) or "none"
            raise BadValue(f"{', '.join(unknown)}: not sub-workers of program {self.program.name}; it has {known}")
        return DistributedWorker(self, workers, persistent, reset_persistent_windows is not False)

    def __fspath__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return str(self.output_dir or self.program.name)


class DistributedWorker:
    """Runs a program, any number of times; its threads and windows stay in between.

    Calls from several threads take turns where its windows are persistent, and else run side by side.
    """

    def __init__(
        self, compiled: CompiledProgram, workers: Mapping[str, Callable[..., Any]], persistent: bool, reset: bool
    ) -> None:
        self._compiled = compiled
        self._workers = workers
        self._persistent = persistent
        self._reset = reset
        self._threads: Threads | None = Threads()
        self._windows: dict[str, Window] = {}
        self._turn = threading.Lock() if persistent else nullcontext()

    def __enter__(self) -> DistributedWorker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let its threads go, and its windows."""
        if self._threads is not None:
            self._threads.end()
        self._threads = None
        self._windows = {}

    def __call__(self, *arguments: Any, config: RunConfig | None = None) -> Any:
        """Run it once; see `CompiledProgram`.

        Raises:
            InputError: bad arguments, or a program that does what cannot be.
            RunError: a hang, a kernel's fault, a limit.
        """
        if self._threads is None:
            raise InputError("this worker was closed", "call prepare() again")
        call = _Call(self._compiled, arguments)
        with self._turn:
            return call.result(self._run(call.values, self._threads))

    def _run(self, arguments: Sequence[Any], threads: Threads) -> Sequence[Any]:
        """What the entry returns."""
        compiled = self._compiled
        windows = self._windows if self._persistent else {}
        if self._reset:
            for window in windows.values():
                window.clear()
        world = len(compiled.config.device_ids)
        with Engine(compiled.options.limit_s) as engine:
            run = Run(compiled.callees, world, compiled.options, engine, threads, windows, self._workers)
            try:
                return run.start(arguments)
            finally:
                compiled.record = Record.of(engine)

    def run(self, compiled: CompiledProgram, *arguments: Any, config: RunConfig | None = None) -> Any:
        """Run the program that it was prepared for."""
        if compiled is not self._compiled:
            raise BadValue(f"{compiled.program.name} is not what this worker was prepared for")
        return self(*arguments, config=config)


class _Call:
    """The arguments of a call as a run takes them, and its results as its caller does.

    Attributes:
        values: views and numbers.
    """

    def __init__(self, compiled: CompiledProgram, arguments: Sequence[Any]) -> None:
        params = compiled.callees.parameters.params
        outs = [n for n, p in enumerate(params) if p.direction is Direction.Out]
        name = compiled.program.name
        given = iter(arguments)
        self._made: list[int] | None = None
        self._objects: dict[int, Any] = {}
        self.values: list[Any]
        if len(arguments) == len(params):
            self.values = [self._value(p, a) for p, a in zip(params, arguments, strict=True)]
        elif outs and len(arguments) == len(params) - len(outs):
            self._made = outs
            values = [None if p.direction is Direction.Out else self._value(p, next(given)) for p in params]
            symbols = _symbols(params, values)
            self.values = [_new(p, symbols) if n in outs else values[n] for n, p in enumerate(params)]
        else:
            ways = f"{len(params)} (in-place)" + (f" or {len(params) - len(outs)} (return)" if outs else "")
            names = [p.name for p in params]
            raise BadCall(f"{name} expects {ways} arguments, got {len(arguments)}. Parameters: {names}")

    def result(self, returned: Sequence[Any]) -> Any:
        """What the caller gets: Out parameters that were made, or what the entry returns."""
        values = returned if self._made is None else [self.values[n] for n in self._made]
        found = [self._object(v) for v in values]
        return found[0] if len(found) == 1 else (tuple(found) or None)

    def _value(self, param: Param, argument: Any) -> Any:
        if is_scalar(param.type):
            return _number(param, argument)
        array = _array(param, argument)
        if param.direction.writes and not array.flags.writeable:
            raise BadValue(f"parameter {param.name} is written, and this array is read-only")
        view = View(array)
        self._objects[view.address] = (argument, array)
        return view

    def _object(self, value: Any) -> Any:
        """A result as its caller knows it: the very object that was passed, where it is that."""
        if not isinstance(value, View):
            return value
        argument, array = self._objects.get(value.address, (None, None))
        same = array is not None and array.shape == value.array.shape and array.strides == value.array.strides
        return argument if same else value.array


def _number(param: Param, argument: Any) -> int | float:
    """A number as one of the parameter's type: a float is rounded to it, an integer must be one."""
    try:
        number = (float if is_float(param.type) else int)(argument)
    except (TypeError, ValueError, OverflowError):
        raise BadCall(f"parameter {param.name} is a number, and gets {argument!r}") from None
    value = plain(number, param.type)
    if not is_float(param.type) and value != argument:
        raise BadCall(f"parameter {param.name} is a {spelled(param.type)}, and gets {argument!r}")
    return value


def _array(param: Param, argument: Any) -> Array:
    """The memory of an argument as an array; never a copy, since what is written must reach the caller."""
    if isinstance(argument, np.ndarray):
        return argument
    try:
        if hasattr(argument, "__array__") or hasattr(argument, "__array_interface__"):
            return np.asarray(argument)
        if hasattr(argument, "__dlpack__"):
            return np.from_dlpack(argument)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise BadCall(f"parameter {param.name} gets what cannot be seen as an array: {error}") from None
    raise BadCall(f"parameter {param.name} is a tensor, and gets {type(argument).__name__}", "pass an array")


def _symbols(params: Sequence[Param], values: Sequence[Any]) -> dict[str, int]:
    """The symbolic extents that tensors tell; whether all tell the same is seen when they are bound."""
    found: dict[str, int] = {}
    for param, value in zip(params, values, strict=True):
        if isinstance(param.type, ShapedType) and isinstance(value, View):
            found |= {d: n for d, n in zip(param.type.shape, value.array.shape, strict=False) if isinstance(d, str)}
    return found


def _new(param: Param, symbols: Mapping[str, int]) -> View:
    """Zeros for an Out parameter."""
    assert isinstance(param.type, ShapedType)
    dtype = param.type.dtype.numpy
    assert dtype is not None
    shape = [evaluate(d, symbols) if isinstance(d, str) else d for d in param.type.shape]
    extents = [n for n in shape if n is not None and n >= 0]
    if len(extents) < len(shape):
        raise BadValue(
            f"Cannot allocate output tensor {param.name!r}: shape ({', '.join(map(str, param.type.shape))}) contains "
            "dynamic dimensions.",
            "pass it",
        )
    check_room(dtype.itemsize * int(np.prod(extents, dtype=object)), f"output tensor {param.name}")
    return View(np.zeros(extents, dtype))
