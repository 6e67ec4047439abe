"""One run of a program: its host orchestrator, and all that it sets going."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from threading import Lock
from typing import Any

from crossrank.errors import InputError, RunError
from crossrank.program.analysis.lineage import Lineage
from crossrank.program.codegen.build import CompiledKernel
from crossrank.program.dialect.calls import CallOp
from crossrank.program.execute import chip, host
from crossrank.program.execute.binding import Parameters
from crossrank.program.execute.builtins import Meetings
from crossrank.program.execute.callees import Callee, ChipFunction, Kernel, Operands, Worker
from crossrank.program.execute.dispatch import Dispatcher, Threads
from crossrank.program.execute.failures import Latched, Reason, Refused, refuse
from crossrank.program.execute.interpret import Code
from crossrank.program.execute.options import RuntimeOptions
from crossrank.program.execute.record import Record
from crossrank.program.execute.report import Launched, fault_message, hang_message
from crossrank.program.execute.tensors import Orchestrator
from crossrank.program.execute.views import Domain, Window
from crossrank.program.program import Function, Program, where
from crossrank.runtime.tasks import Engine, Fault, GivenUp, Hang

Workers = Mapping[str, Callable[..., Any]]


class Callees:
    """The functions of a program, ready to run.

    Attributes:
        entries: what a run may begin with, by name.
        entry: what it begins with.
        parameters: of the entry.

    Args:
        program: its passes have run.
        kernels: by name.

    Raises:
        InputError: a body has what an orchestrator cannot do.
    """

    def __init__(self, program: Program, kernels: Mapping[str, CompiledKernel]) -> None:
        self.program = program.name
        self.entries = {f.name: f for f in program.entries}
        self.entry: Function = program.entry
        self.parameters = Parameters(self.entry)
        lineage = Lineage(program)
        self._callees: dict[str, Callee] = {}
        for function in program.functions:
            if function.is_kernel:
                self._callees[function.name] = Kernel(function, lineage, kernels[function.name])
            elif function.is_worker:
                self._callees[function.name] = Worker(function, lineage, program.workers.get(function.name))
            elif not function.is_host:
                self._callees[function.name] = ChipFunction(function, lineage)
        for callee in self._callees.values():
            if isinstance(callee, ChipFunction):
                callee.code = Code(callee.function, chip.meanings(self), Orchestrator.turn)
        self.host = Code(self.entry, host.meanings(self), Orchestrator.turn) if self.entry.is_host else None

    def of(self, call: CallOp) -> Callee:
        """Who is called; InputError where there is no such function, or it is the host orchestrator."""
        found = self._callees.get(call.function)
        if found is None:
            raise InputError(f"{where(call)}there is no function {call.function} to call")
        return found

    @property
    def workers(self) -> dict[str, Worker]:
        """The sub-workers by name."""
        return {name: callee for name, callee in self._callees.items() if isinstance(callee, Worker)}

    @property
    def kernels(self) -> dict[str, Kernel]:
        """The kernels by name."""
        return {name: callee for name, callee in self._callees.items() if isinstance(callee, Kernel)}

    def entered(self, name: str) -> Callees:
        """The same functions, begun with one of `entries`."""
        found = copy(self)
        found.entry = self.entries[name]
        found.parameters = Parameters(found.entry)
        return found

    def entry_function(self) -> ChipFunction:
        """The entry of a program without a host orchestrator."""
        found = self._callees[self.entry.name]
        assert isinstance(found, ChipFunction)
        return found


class Run:
    """What the orchestrators of one run share.

    Args:
        callees: the functions.
        world: how many devices.
        options: of the machine.
        engine: runs the tasks.
        threads: run the orchestrators.
        windows: those that are there from an earlier run, by name; those that this run makes come into it.
        workers: Python of sub-workers, in place of the program's own.
    """

    def __init__(
        self,
        callees: Callees,
        world: int,
        options: RuntimeOptions,
        engine: Engine,
        threads: Threads,
        windows: dict[str, Window],
        workers: Workers,
    ) -> None:
        self.callees = callees
        self.world = world
        self.options = options
        self.engine = engine
        self.dispatcher = Dispatcher(engine, threads)
        self.meetings = Meetings()
        self._windows = windows
        self._workers = workers
        self._domains = 0
        self._tasks: dict[int, Launched] = {}
        self._launching = Lock()
        engine.keep(self._tasks, windows)

    def start(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Run the entry with these (views, and scalars); what it returns, when all is over.

        Raises:
            InputError: bad arguments, or a body that does what cannot be.
            RunError: a hang, a kernel's fault, a limit; with a report.
        """
        try:
            with self.engine.orchestrator("host"):
                given = self._start(arguments)
                self.dispatcher.finish()
                self.engine.finish()
                return given
        except Refused as refused:
            raise InputError(refused.what, refused.remedy) from None
        except Hang as hang:
            record = Record.of(self.engine)
            counts = {device: record.tasks.get(device, 0) for device in record.dispatches}
            with self._launching:
                what = hang_message(hang, self._tasks, self.dispatcher.queued, counts, self.world)
            raise Latched(what, Reason.SCHEDULER_TIMEOUT) from None
        except Fault as fault:
            with self._launching:
                launched = self._tasks[fault.task]
            raise RunError(fault_message(fault, launched)) from None
        except GivenUp as given_up:
            raise (self.dispatcher.failure or given_up) from None

    def _start(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        values, symbols = self.callees.parameters.bind(arguments)
        runs_in = host.Host(self, self.callees.entry.name, symbols)
        if self.callees.host is not None:
            return self.callees.host.run(runs_in, values)
        function = self.callees.entry_function()
        runs_in.dispatch(function, Operands(values, 0, None, ()), function.declared)
        return tuple(
            refuse(f"result {n} of {function.name} is none of its parameters") if p is None else values[p]
            for n, p in enumerate(function.returned)
        )

    def domain(self, name: str, devices: tuple[int, ...]) -> Domain:
        """A new domain."""
        self._domains += 1
        return Domain(name, self._domains, devices)

    def window(self, name: str, domain: Domain, size: int) -> Window:
        """The window of that name: the one that is there, if it is the same, or a new one."""
        found = self._windows.get(name)
        if found is None or found.size != size or found.domain.devices != domain.devices:
            found = self._windows[name] = Window(name, domain, size)
        found.domain = domain
        return found

    def worker(self, worker: Worker) -> Callable[..., None]:
        """The Python of a sub-worker; what it raises is told with its place."""
        do = self._workers.get(worker.name, worker.do)
        if do is None:
            refuse(
                f"sub-worker {worker.name} has no Python",
                f"prepare(sub_worker_overrides={{{worker.name!r}: function}})",
            )

        def run(*arguments: Any) -> None:
            try:
                do(*arguments)
            except BaseException as error:  # on this thread whatever comes is its own
                raise RunError(_raised(worker.name, error)) from None

        return run

    def launch(self, what: Launched, *task: Any) -> int:
        """Submit a task, and remember it: for reports, and so that its memory stays as long as it needs it."""
        with self._launching:  # a kernel may fail at once, and then is looked up
            number = self.engine.submit(*task)
            self._tasks[number] = what
        return number

    def over(self, tasks: Iterable[int]) -> None:
        """Forget tasks that are over."""
        for task in tasks:
            self._tasks.pop(task, None)


def _raised(name: str, error: BaseException) -> str:
    """What a sub-worker raised: the innermost line of its own, and the words."""
    place, trace = "", error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_name == name or not place:
            place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}: "
        trace = trace.tb_next
    if isinstance(error, SystemExit):
        return f"{place}sub-worker {name} ends Python, and should only return"
    return f"{place}sub-worker {name} raised {type(error).__name__}{f': {error}' if str(error) else ''}"
