"""A program walked through without running it: calls, loops and branches of every rank, by what is known of its values.

Loops whose turns differ in what they do (a branch, a peer or a call depends on the turn) are walked turn by turn; of
others one turn stands for all but the last. Where a branch cannot be told the dearer arm is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.dialects import scf
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Block, Operation, SSAValue

from crossrank.program.analysis.bounds import ANYTHING, Interval, either
from crossrank.program.analysis.lineage import Lineage, yielded
from crossrank.program.builtins import is_builtin, is_dispatch, template_of
from crossrank.program.cost.builtins import launch_of
from crossrank.program.cost.kernels import counted
from crossrank.program.cost.values import Domain, Known, Shape, Value, taken
from crossrank.program.cost.work import Number, Work
from crossrank.program.dialect.calls import CallOp, CommDomainScopeOp, ScopeYieldOp
from crossrank.program.dialect.windows import AllocWindowOp
from crossrank.program.program import Function, Program, place

MOST_TURNS = 32
"""Turns of a loop in a chip function or a kernel that are walked one by one."""
MOST_HOST_TURNS = 4096

Weigh = Callable[[Mapping[str, Number]], float]


@dataclass(frozen=True)
class Site:
    """Where a body runs.

    Attributes:
        device: the device; None: on the host.
        blocks: of the launch that it is of; of a chip function's, those that its launches have where they say none.
        told: the author's line that its tasks are counted for; empty: the lines of their calls.
    """

    device: int | None = None
    blocks: int = 1
    told: str = ""


class Walker:
    """Walks through a program on so many devices; functions that are called alike are walked through once.

    Args:
        program: its passes have run.
        world: how many devices.
        weigh: what counts cost, to tell the dearer arm of a branch.
    """

    def __init__(self, program: Program, world: int, weigh: Weigh) -> None:
        self.world = world
        self.weigh = weigh
        self.lineage = Lineage(program)
        self.domains: dict[str, Domain] = {}
        self.decides: dict[scf.ForOp, bool] = {}
        self._entry = program.entry
        self._done: dict[tuple[str, tuple[Value, ...], Site], Work] = {}

    def run(self, arguments: Sequence[Value]) -> Work:
        """All that a run of the program does."""
        if self._entry.is_host:
            return self.function(self._entry, arguments, Site())
        work = Work()
        work.count(0, "dispatches", 1)
        work.add(self.function(self._entry, arguments, Site(0)))
        return work

    def function(self, function: Function, arguments: Sequence[Value], site: Site) -> Work:
        """What a call of a function does."""
        key = (function.name, tuple(arguments), site)
        if key not in self._done:
            self._done[key] = Work()  # of a function that calls itself
            body = _Body(self, function, arguments, site)
            if function.has_body:
                body.block(function.body)
            self._done[key] = body.work
        return self._done[key]


class _Body:
    """A function being walked through."""

    def __init__(self, walker: Walker, function: Function, arguments: Sequence[Value], site: Site) -> None:
        self.walker = walker
        self.function = function
        self.site = site
        self.work = Work()
        self.known = Known(
            function,
            arguments,
            world=walker.world,
            device=site.device,
            blocks=site.blocks,
            domains=walker.domains,
        )

    def block(self, block: Block) -> None:
        """All ops of a block."""
        for op in block.ops:
            match op:
                case scf.ForOp():
                    self.loop(op)
                case scf.IfOp():
                    self.branch(op)
                case CommDomainScopeOp():
                    self.scope(op)
                case CallOp():
                    self.call(op)
                case AllocWindowOp():
                    self.window(op)
                case ReturnOp() | scf.YieldOp() | ScopeYieldOp():
                    pass
                case _:
                    self.known.note(op)
                    if self.function.is_kernel and (found := counted(op, self.known)) is not None:
                        self._count(op, *found)

    def scope(self, op: CommDomainScopeOp) -> None:
        devices = op.device_list or tuple(range(self.walker.world))
        self.walker.domains |= {w.data: Domain(op.sym_name.data, devices) for w in op.windows}
        self.block(op.body.block)
        for result, value in zip(op.results, yielded(op.body.block), strict=True):
            self.known.values[result] = self.known.of(value)

    def window(self, op: AllocWindowOp) -> None:
        """A buffer on each device of its domain."""
        size = self.known.most(op.size)
        if math.isinf(size):
            self.work.unknown[place(op)] = None
            return
        domain = self.walker.domains.get(op.window)
        for device in () if domain is None else domain.devices:
            self.work.count(device, "window_bytes", size)

    def branch(self, op: scf.IfOp) -> None:
        arms = [r.block for r in taken(self.known.exact(op.cond), op.true_region, op.false_region) if r.blocks]
        if not arms:
            return
        found = [self._apart(block) for block in arms]
        self.work.add(max(found, key=lambda work: self.walker.weigh(work.total)) if len(found) > 1 else found[0])
        for n, result in enumerate(op.results):
            values = [self.known.of(yielded(b)[n]) for b in arms]
            self.known.values[result] = self._joined(values)

    def _apart(self, block: Block) -> Work:
        """What a block does, not yet counted."""
        outer, self.work = self.work, Work()
        self.block(block)
        found, self.work = self.work, outer
        return found

    def _joined(self, values: Sequence[Value]) -> Value:
        """One of several values."""
        first, *others = values
        if isinstance(first, Shape) or any(isinstance(v, Shape) for v in others):
            return first
        return either(first, *(v for v in others if not isinstance(v, Shape)))

    def loop(self, op: scf.ForOp) -> None:
        (low, _), (_, high), (step, _) = (self.known.interval(v) for v in (op.lb, op.ub, op.step))
        number, *carried = op.body.block.args
        for argument, begin in zip(carried, op.iter_args, strict=True):
            self.known.values[argument] = self.known.of(begin)
        if not all(map(math.isfinite, (low, high, step))) or step < 1:
            self.work.unknown[place(op)] = None
            self._turns(op, (low, high), 1)
        elif turns := range(int(low), int(high), int(step)):
            most = MOST_HOST_TURNS if self.function.is_host else MOST_TURNS
            if len(turns) <= most and self._decides(op):
                for n in turns:
                    self._turns(op, (n, n), 1, exact=True)
            else:
                if len(turns) > 1:
                    self._turns(op, (turns[0], turns[-2]), len(turns) - 1)
                self._turns(op, (turns[-1], turns[-1]), 1)
        self.known.values.pop(number, None)
        for result, argument in zip(op.results, carried, strict=True):
            self.known.values[result] = self.known.values[argument]

    def _turns(self, op: scf.ForOp, number: Interval, times: int, exact: bool = False) -> None:
        """Turns of a loop that are alike; ``exact``: this one turn, with what is carried as it is."""
        induction, *carried = op.body.block.args
        end = yielded(op.body.block)
        self.known.values[induction] = number
        if not exact:
            for argument, value in zip(carried, end, strict=True):
                if value is not argument and not isinstance(self.known.values[argument], Shape):
                    self.known.values[argument] = ANYTHING
        self.work.add(self._apart(op.body.block), times)
        if exact:
            found = [self.known.of(value) for value in end]
            self.known.values.update(zip(carried, found, strict=True))

    def _decides(self, loop: scf.ForOp) -> bool:
        """Whether a branch, a peer or a call in a loop depends on the turn."""
        if loop not in self.walker.decides:
            self.walker.decides[loop] = _decides(loop)
        return self.walker.decides[loop]

    # -- calls

    def call(self, op: CallOp) -> None:
        callee = self.walker.lineage.callee(op)
        arguments = [self.known.of(v) for v in op.arguments]
        for result, given in zip(op.returned, self.walker.lineage.returned(callee.name), strict=False):
            self.known.values[result] = self.known.declared(result) if given is None else arguments[given]
        if callee.is_worker:
            return
        if self.function.is_host:
            self._dispatch(op, callee, arguments)
            return
        assert self.site.device is not None
        width = self.site.blocks
        if op.core_num is not None:
            found = self.known.exact(op.core_num)
            if found is None or found < 1:
                self.work.unknown[place(op)] = None
            width = max(found or 1, 1)
        site = replace(self.site, blocks=width)
        if not callee.is_kernel:
            self.work.add(self.walker.function(callee, arguments, site))
            return
        self._launch(callee, arguments, site, self.site.told or place(op))

    def _dispatch(self, op: CallOp, callee: Function, arguments: Sequence[Value]) -> None:
        low, high = (0, 0) if op.device is None else self.known.interval(op.device)
        devices = range(int(max(low, 0)), int(min(high, self.walker.world - 1)) + 1)
        told = place(op) if is_dispatch(callee.name) else ""
        for device in devices:
            work = Work()
            work.count(device, "dispatches", 1)
            work.places[place(op)].dispatches += 1
            work.add(self.walker.function(callee, arguments, Site(device, told=told)))
            self.work.add(work, 1 / len(devices) if len(devices) > 1 else 1)

    def _launch(self, kernel: Function, arguments: Sequence[Value], site: Site, told: str) -> None:
        device = site.device
        assert device is not None
        self.work.count(device, "tasks", 1)
        self.work.count(device, "blocks", site.blocks)
        self.work.launches[kernel.name, site.blocks] += 1
        placed = self.work.places[told]
        placed.tasks += 1
        placed.widths.add(site.blocks)
        if not is_builtin(kernel):
            self.work.add(self.walker.function(kernel, arguments, site), site.blocks)
            return
        builtin, _, element = template_of(kernel)
        shapes = [a for a in arguments if isinstance(a, Shape)]
        named = dict(zip((o.name for o in builtin.operands), shapes, strict=False))
        self._about(told, named.values())
        domain = named["signal"].domain
        if domain is None:
            return
        if any(math.isinf(shape.elements) for shape in named.values()):
            self.work.unknown[told] = None
            named = {name: Shape((0,)) for name in named}
        operands = {name: shape.extents for name, shape in named.items()}
        counts = launch_of(builtin, operands, element.itemsize, len(domain.devices), site.blocks)
        for what, number in counts.items():
            self.work.count(device, what, number)

    def _count(self, op: Operation, what: str, number: Number, about: Sequence[SSAValue]) -> None:
        assert self.site.device is not None
        if math.isinf(number):
            self.work.unknown[place(op)] = None
            number = 0
        self.work.count(self.site.device, what, number)
        if about:
            self._about(place(op), map(self.known.shape, about))

    def _about(self, told: str, shapes: Iterable[Shape]) -> None:
        """Remember which windows a line is about."""
        placed = self.work.places[told]
        for shape in shapes:
            if shape.window and shape.domain is not None:
                placed.windows[shape.window] = None
                placed.domains[shape.domain.name] = shape.domain.devices


def _decides(loop: scf.ForOp) -> bool:
    """Whether the turn of a loop decides about a branch, a peer or a call in it."""
    derived: set[SSAValue] = set(loop.body.block.args)
    for op in loop.body.walk():
        depends = any(v in derived for v in op.operands)
        if isinstance(op, scf.IfOp) and op.cond in derived:
            return True
        if isinstance(op, CallOp) and depends:
            return True
        if (peer := getattr(op, "peer", None)) is not None and peer in derived:
            return True
        if depends:
            derived.update(op.results)
            derived.update(a for region in op.regions for b in region.blocks for a in b.args)
    return False
