"""The host orchestrator at work: windows are made, calls become dispatches to devices or runs of sub-workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Operation

from crossrank.program.builtins import is_dispatch
from crossrank.program.dialect.calls import CallOp, CommDomainScopeOp, JoinOp
from crossrank.program.dialect.tensors import shaped
from crossrank.program.dialect.windows import AllocWindowOp, GetCommCtxOp, WindowOp, WorldSizeOp
from crossrank.program.execute.binding import Symbols
from crossrank.program.execute.callees import Callee, ChipFunction, Kernel, Operands, Worker, operands_of, returned_of
from crossrank.program.execute.chip import Chip, How
from crossrank.program.execute.dispatch import Job
from crossrank.program.execute.failures import Latched, ask, refuse
from crossrank.program.execute.interpret import Meaning
from crossrank.program.execute.tensor_map import TensorMap
from crossrank.program.execute.tensors import TENSORS, Orchestrator
from crossrank.program.execute.views import Domain, View, Window
from crossrank.program.kinds import ArgDirection
from crossrank.program.program import place

if TYPE_CHECKING:
    from crossrank.program.execute.run import Callees, Run

WORLD_SIZE = "world_size"
Jobs = tuple[Job, ...]
"""A task, as the host has it: what has to be over."""


class Host(Orchestrator):
    """What the host orchestrator's body runs in.

    Attributes:
        map: who touched which of the host's memory, of its jobs.
    """

    def __init__(self, run: Run, function: str, symbols: Symbols) -> None:
        super().__init__(run, function, {WORLD_SIZE: run.world, **symbols})
        self.map: TensorMap[Job] = TensorMap(lambda jobs: (job for job in jobs if not job.over))
        self._last: dict[int, Job] = {}
        self._domains: dict[str, Domain] = {}

    def settle(self, view: View, direction: ArgDirection) -> None:
        """Wait for the dispatches and sub-workers that touch it."""
        ask(view.window is None, "a window lies on devices, and the host cannot reach into it", "dispatch a function")
        self.run.dispatcher.wait(self.map.all_before([(view, direction)]))

    @contextmanager
    def scope(self, name: str, devices: tuple[int, ...] | None, windows: list[str]) -> Iterator[None]:
        """A domain with these windows; at the end all is waited for that was dispatched."""
        world = self.run.world
        domain = self.run.domain(name, devices or tuple(range(world)))
        for device in domain.devices:
            self.ask_device(device, f"{domain.described}: ")
        self._domains.update(dict.fromkeys(windows, domain))
        yield
        self.run.dispatcher.finish()

    def ask_device(self, device: int, what: str = "") -> None:
        """Refused where the program does not run on that device."""
        world = self.run.world
        ask(
            0 <= device < world,
            f"{what}device {device} is not there: the program runs on {world}, counted from 0",
            "run it on more, or dispatch to one of these",
        )

    def alloc(self, name: str, size: int) -> Window:
        """The window of that name."""
        domain = self._domains.get(name)
        if domain is None:
            refuse(
                f"window buffer {name} is in no communication domain yet",
                "run materialize-comm-domain-scopes before it",
            )
        return self.run.window(name, domain, size)

    def dispatch(
        self, function: ChipFunction, operands: Operands, directions: list[ArgDirection], place: str = ""
    ) -> Job:
        """Run a chip function on a device, after what it comes after; ``place`` is the author's line of the call."""
        device = operands.device or 0
        self.ask_device(device)
        values, symbols = function.parameters.bind(operands.arguments)
        arguments = [self._on(device, value, function, n) for n, value in enumerate(values)]
        chip = Chip(self.run, device, place)

        def do() -> None:
            try:
                chip.do(function, arguments, symbols, How())
            except Latched as latched:
                raise latched.called_at(place if is_dispatch(function.name) else "") from None
            chip.finish()

        after = [self._last[device]] if device in self._last else []
        job = self._submit(Job(function.name, device, do), operands, directions, after)
        self._last[device] = job
        return job

    def work(self, worker: Worker, operands: Operands, directions: list[ArgDirection]) -> Job:
        """Run a sub-worker, after what it comes after."""
        do = self.run.worker(worker)
        values, _ = worker.parameters.bind(operands.arguments)
        arguments = [v.array if isinstance(v, View) else v for v in values]
        return self._submit(Job(worker.name, -1, lambda: do(*arguments)), operands, directions, [])

    def _submit(self, job: Job, operands: Operands, directions: list[ArgDirection], after: list[Job]) -> Job:
        accesses = [
            (value, direction)
            for value, direction in zip(operands.arguments, directions, strict=True)
            if isinstance(value, View) and value.window is None
        ]
        deps = [job for jobs in operands.deps for job in jobs]
        self.run.dispatcher.submit(job, [*after, *deps, *self.map.all_before(accesses)])
        for view, direction in accesses:
            self.map.note(view, direction, job)
        return job

    def _on(self, device: int, value: Any, function: Callee, n: int) -> Any:
        """An argument as the device has it."""
        if isinstance(value, Domain) and device not in value.ranks:
            refuse(f"{function.name} on device {device}, which is not in {value.described}")
        if not isinstance(value, View):
            return value
        name = function.parameters.params[n].name
        if value.window is None:
            if not value.is_packed:
                refuse(
                    f"{name} of {function.name} is a host tensor whose elements do not lie one behind the other, and "
                    "such are not dispatched",
                    "pass a tensor whose leading dimension alone is sliced, or a copy",
                )
            return value
        domain = value.window.domain
        if device not in domain.ranks:
            refuse(
                f"{name} of {function.name} on device {device} is window {value.window.name}, whose domain is "
                f"{domain.described}"
            )
        return value.window.view(domain.ranks[device], value)


def _window(op: WindowOp) -> Callable[..., View]:
    type = shaped(op.result)
    dtype = type.dtype.numpy
    assert dtype is not None

    def view(host: Host, window: Window, *extents: int) -> View:
        size = dtype.itemsize
        for extent in extents:
            size *= extent
        ask(
            min(extents, default=0) >= 0 and size <= window.size,
            f"pld.window {list(extents)} takes {size} bytes, and buffer {window.name} has {window.size}",
        )
        memory = window.memory[0]
        return View(memory[:size].view(dtype).reshape(extents), window)

    return view


def _alloc(op: AllocWindowOp) -> Callable[..., Window]:
    name = op.window
    return lambda host, size: host.alloc(name, size)


def _scope(op: CommDomainScopeOp) -> Callable[..., Any]:
    name, devices, windows = op.sym_name.data, op.device_list, op.windows
    assert isinstance(windows, ArrayAttr)
    names = [w.data for w in windows]
    return lambda host: host.scope(name, devices, names)


def _join(op: JoinOp) -> Callable[..., Jobs]:
    return lambda _, *deps: tuple(job for jobs in deps for job in jobs)


def meanings(callees: Callees) -> Mapping[type[Operation], Meaning]:
    """What ops mean in the host orchestrator."""

    def call(op: CallOp) -> Callable[..., Any]:
        callee = callees.of(op)
        if isinstance(callee, Kernel):
            refuse(f"the host calls kernel {callee.name}", "call it from a chip function, and dispatch that")
        split, directions, returned = operands_of(op), callee.directions(op), returned_of(op, callee)
        at = place(op)

        def submit(host: Host, *values: Any) -> Any:
            operands = split(values)
            if isinstance(callee, ChipFunction):
                job = host.dispatch(callee, operands, directions, at)
            else:
                assert isinstance(callee, Worker)
                job = host.work(callee, operands, directions)
            task: Jobs = (job,)
            return (*(operands.arguments[n] for n in returned), task) if returned else task

        return submit

    return {
        **TENSORS,
        WorldSizeOp: lambda op: lambda host: host.run.world,
        AllocWindowOp: _alloc,
        WindowOp: _window,
        GetCommCtxOp: lambda op: lambda host, view: view.window.domain,
        CommDomainScopeOp: _scope,
        CallOp: call,
        JoinOp: _join,
    }
