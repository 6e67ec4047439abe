"""A chip function at work on one device: its calls become tasks, ordered by what they touch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xdsl.ir import Operation

from crossrank.program.analysis.launches import deadlock
from crossrank.program.builtins import is_dispatch
from crossrank.program.dialect.calls import CallOp, JoinOp
from crossrank.program.dialect.windows import LaunchWidthOp, NumRanksOp, RankOp
from crossrank.program.execute.binding import Symbols
from crossrank.program.execute.builtins import ask_operands, launch_width
from crossrank.program.execute.callees import ChipFunction, Kernel, Operands, operands_of, returned_of
from crossrank.program.execute.failures import Fatal, Reason, ask, refuse
from crossrank.program.execute.interpret import Meaning
from crossrank.program.execute.report import Launched
from crossrank.program.execute.tensor_map import MANY, TensorMap
from crossrank.program.execute.tensors import TENSORS, Orchestrator
from crossrank.program.execute.views import Domain, View
from crossrank.program.kinds import ArgDirection
from crossrank.program.program import place
from crossrank.runtime.tasks import Context

if TYPE_CHECKING:
    from crossrank.program.execute.run import Callees, Run

Task = int
Access = tuple[View, ArgDirection]


@dataclass(frozen=True)
class How:
    """How launches are made: in how many blocks, after what, and after nothing else if ``manual``."""

    blocks: int | None = None
    sync_start: bool = False
    manual: bool = False
    deps: tuple[Task, ...] = ()

    @staticmethod
    def of(call: CallOp, operands: Operands, outer: How) -> How:
        """As a call says; what it leaves open is as the function it stands in was called."""
        return How(
            outer.blocks if operands.core_num is None else operands.core_num,
            outer.sync_start or call.sync_start is not None,
            outer.manual or call.manual is not None,
            (*operands.deps, *outer.deps),
        )


class Chip(Orchestrator):
    """What a chip function's body runs in: one dispatch to one device.

    Attributes:
        device: where it runs.
        place: the author's line of the dispatch, for calls in what comes with crossrank, which have none.
        map: who touched which memory, of its tasks.
        tasks: what it has submitted, but for some that are over.
    """

    def __init__(self, run: Run, device: int, place: str) -> None:
        super().__init__(run, "", {})
        self.device = device
        self.place = place
        self.map: TensorMap[Task] = TensorMap(run.engine.unfinished)
        self.tasks: list[Task] = []
        self._many = MANY
        self._how = How()

    def do(self, function: ChipFunction, arguments: Sequence[Any], symbols: Symbols, how: How) -> tuple[Any, ...]:
        """Run a function's body; what it returns. Its tasks may go on."""
        outer = self.function, self.symbols, self._how
        self.function, self.symbols, self._how = function.name, symbols, how
        try:
            return function.code.run(self, arguments)
        finally:
            self.function, self.symbols, self._how = outer

    def finish(self) -> None:
        """Wait until all its tasks are over."""
        self.run.engine.wait(self.tasks)
        self.run.over(self.tasks)

    def settle(self, view: View, direction: ArgDirection) -> None:
        """Wait for the tasks that touch it."""
        if before := self.map.all_before([(view, direction)]):
            self.run.engine.wait(before)

    def join(self, *deps: Task) -> Task:
        """A task that does nothing."""
        return self._submitted(self.run.engine.submit(0, "join", self.device, (), (), (), deps))

    def launch(self, kernel: Kernel, operands: Operands, directions: Sequence[ArgDirection], call: CallOp) -> Task:
        """A kernel's task.

        Raises:
            Refused: an argument is not what its parameter is declared to be.
            Fatal: a launch that cannot be.
        """
        values, _ = kernel.parameters.bind(operands.arguments)
        code, slots = kernel.code, kernel.code.slots
        views: list[View] = [values[n] for n in slots.tensors]
        domains: list[Domain] = [values[n] for n in slots.contexts]
        scalars = [values[n] for n in slots.scalars]
        for n in kernel.written:
            ask(
                values[n].array.flags.writeable,
                f"{kernel.name} writes {kernel.parameters.params[n].name}, and gets memory that is read-only",
                "pass a copy",
            )
        how = How.of(call, operands, self._how)
        blocks, at = self._blocks(kernel, how), place(call) or self.place
        if kernel.wants_packed:
            for n, view in zip(slots.tensors, views, strict=True):
                if not view.is_packed:
                    name = kernel.parameters.params[n].name
                    raise Fatal(f"operand {name} of {kernel.name} is not contiguous", Reason.INVALID_ARGS)
        if kernel.builtin is not None:
            ask_operands(kernel.builtin, views, domains, scalars, is_dispatch(self.function))
            self._meet(kernel, views, scalars, blocks, at)
        accesses = [(view, directions[n]) for n, view in zip(slots.tensors, views, strict=True)]
        before = dict.fromkeys((*how.deps, *(() if how.manual else self.map.all_before(accesses))))
        contexts = {domain: self._context(domain, views) for domain in dict.fromkeys(domains)}
        task = self.run.launch(
            Launched(kernel, self.device, tuple(views), tuple(domains), at),
            code.address,
            kernel.name,
            self.device,
            [view.descriptor for view in views],
            [contexts[domain] for domain in domains],
            scalars,
            list(before),
            blocks,
            code.never_waits,
        )
        for view, direction in accesses:
            self.map.note(view, direction, task, ordered=not how.manual)
        return self._submitted(task)

    def _meet(self, kernel: Kernel, views: Sequence[View], scalars: Sequence[Any], blocks: int, at: str) -> None:
        """Say to the other ranks which collective this one launches next on its signal."""
        assert kernel.builtin is not None
        of = dict(zip([o.name for o in kernel.builtin.operands], views, strict=True))
        said = f"{kernel.name} of {of[kernel.builtin.returned].described}"
        said += "".join(f", root {root}" for root in scalars) + (f" in {blocks} blocks" if blocks > 1 else "")
        self.run.meetings.come(of["signal"], self.device, said, at)

    def wrapped(self, wrapper: ChipFunction, operands: Operands, call: CallOp) -> tuple[tuple[Any, ...], Task]:
        """The launches of a function that wraps kernels, made as its call says.

        What it returns, and a task that is over when its tasks are.
        """
        arguments, symbols = wrapper.parameters.bind(operands.arguments)
        before, self.tasks = self.tasks, []
        given = self.do(wrapper, arguments, symbols, How.of(call, operands, self._how))
        task = self.join(*self.tasks)
        before += self.tasks
        self.tasks = before
        return given, task

    def _blocks(self, kernel: Kernel, how: How) -> int:
        blocks = 1 if how.blocks is None else how.blocks
        if blocks < 1:
            raise Fatal(f"{kernel.name} is launched with core_num={blocks}, and needs at least 1", Reason.INVALID_ARGS)
        options = self.run.options
        limit = options.aic_cores if kernel.cores == "aic" else options.aiv_cores
        if how.sync_start and blocks > max(1, limit):
            raise Fatal(deadlock(blocks, limit), Reason.REQUIRE_SYNC_START_INVALID)
        return blocks

    def rank(self, domain: Domain) -> int:
        """Which rank of a domain it is; Refused where it is none."""
        rank = domain.ranks.get(self.device)
        if rank is None:
            refuse(f"{self.function} on device {self.device}, which is not in {domain.described}")
        return rank

    def _context(self, domain: Domain, views: Iterable[View]) -> Context:
        return Context.of(domain.number, self.rank(domain), len(domain.devices), [view.peers(domain) for view in views])

    def _submitted(self, task: Task) -> Task:
        self.tasks.append(task)
        if len(self.tasks) >= self._many:  # those that are over are forgotten, as `map` does
            left = self.run.engine.unfinished(self.tasks)
            self.run.over(set(self.tasks).difference(left))
            self.tasks, self._many = left, 2 * len(left) + MANY
        return task


def meanings(callees: Callees) -> Mapping[type[Operation], Meaning]:
    """What ops mean in chip functions."""

    def call(op: CallOp) -> Callable[..., Any]:
        callee = callees.of(op)
        split = operands_of(op)
        if isinstance(callee, ChipFunction):

            def wrapped(chip: Chip, *operands: Any) -> Any:
                given, task = chip.wrapped(callee, split(operands), op)
                return (*given, task) if given else task

            return wrapped
        assert isinstance(callee, Kernel)
        directions = callee.directions(op)
        returned = returned_of(op, callee)

        def launch(chip: Chip, *operands: Any) -> Any:
            given = split(operands)
            task = chip.launch(callee, given, directions, op)
            return (*(given.arguments[n] for n in returned), task) if returned else task

        return launch

    return {
        **TENSORS,
        LaunchWidthOp: launch_width,
        RankOp: lambda op: lambda chip, domain: chip.rank(domain),
        NumRanksOp: lambda op: lambda chip, domain: len(domain.devices),
        CallOp: call,
        JoinOp: lambda op: lambda chip, *deps: chip.join(*deps),
    }
