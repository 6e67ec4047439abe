"""`synthesize-allreduce-signals`: an allreduce of the host that is given no signal gets one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import ClassVar

from xdsl.dialects import scf
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from crossrank.collective.dtypes import dtype
from crossrank.errors import InputError
from crossrank.passes import option, register
from crossrank.program.analysis.bounds import Bounds
from crossrank.program.analysis.lineage import Lineage
from crossrank.program.dialect.around import around
from crossrank.program.dialect.calls import ScopeYieldOp
from crossrank.program.dialect.collectives import AllReduceOp
from crossrank.program.dialect.windows import AllocWindowOp, WindowOp, WorldSizeOp
from crossrank.program.kinds import ReduceOp
from crossrank.program.passes.lowering.emitter import Emitter, Index
from crossrank.program.program import Function, Program, place, where
from crossrank.program.program_pass import ProgramPass
from crossrank.program.types import UNKNOWN, DistTensorType
from crossrank.remarks import Remarks

CELL = dtype("s32")


@register
@dataclass(frozen=True)
class SynthesizeAllReduceSignals(ProgramPass):
    """Gives each allreduce of the host that has no signal one of its own making.

    Matches `pld.tensor.allreduce(data)` in a HOST orchestrator, in loops and branches too.

    Makes, at the top of the function, one window for each buffer of data, `[world_size, n]` of INT32 where n is the
    most blocks that an allreduce of that data is launched in, and passes its view to all of these. A signal is all zero
    again after each, so that they share it; dispatches to a device run one after another, so that they may.

    Declines calls that have a signal. Fails, with the place, where nobody can say before the loop how many blocks there
    are at most.
    """

    name: ClassVar[str] = "synthesize-allreduce-signals"
    as_source: bool = option(False, "a signal for each call; refuse those in loops, and those within an expression")

    def rewrite(self, program: Program, remarks: Remarks) -> bool:
        """One group of calls after another."""
        lineage = Lineage(program)
        names = _Names(program)
        changed = False
        for host in [f for f in program.functions if f.is_host and f.has_body]:
            calls = [op for op in host.op.walk() if isinstance(op, AllReduceOp) and op.signal is None]
            if self.as_source:
                for op in calls:
                    _ask_as_source(op)
            groups: dict[object, list[AllReduceOp]] = {}
            for op in calls:
                groups.setdefault(op if self.as_source else lineage.roots(op.target), []).append(op)
            for group in groups.values():
                before = _outermost(group[0], host) if self.as_source else host.body.first_op
                assert before is not None
                signal, name = _signal(group, host, before, names)
                for op in group:
                    remarks.done(op.title, f"its signal is {name}", place(op))
                    _give(op, signal)
                changed = True
        return changed


def _ask_as_source(op: AllReduceOp) -> None:
    """What the source does not accept without a signal."""
    if any(isinstance(o, scf.ForOp) for o in around(op)):
        raise InputError(
            f"{where(op)}pld.tensor.allreduce without an explicit signal is not supported inside a for/while loop on "
            "the HOST rail: the synthesized signal binding cannot be allocated per dynamic iteration. Pass an explicit "
            "signal buffer — it is self-clearing and reusable across iterations — or hoist the call out of the loop."
        )
    if op.result.name_hint is None and not all(
        isinstance(use.operation, (ReturnOp, ScopeYieldOp, scf.YieldOp)) for use in op.result.uses
    ):
        raise InputError(
            f"{where(op)}pld.tensor.allreduce must be a direct assignment, expression statement, or return value "
            "before allreduce signal synthesis."
        )


def _outermost(op: Operation, host: Function) -> Operation:
    """The statement of a function that an op is, or stands in: windows are allocated outside of branches."""
    return next(o for o in (op, *around(op)) if o.parent is host.body)


class _Names:
    """Numbers that make names which nobody has: no window and no value."""

    def __init__(self, program: Program) -> None:
        ops = list(program.module.walk())
        self._used = {op.window for op in ops if isinstance(op, AllocWindowOp)}
        self._used |= {r.name_hint for op in ops for r in op.results if r.name_hint}
        self._numbers = count()

    def new(self) -> list[str]:
        """The names of a number of devices, a buffer and its view, with the next number for which all are free."""
        stems = ("signal_world_size", "signal_buf", "signal")
        return next(
            found
            for n in self._numbers
            if not self._used.intersection(found := [f"__allreduce_{stem}_{n}" for stem in stems])
        )


def _signal(group: Sequence[AllReduceOp], host: Function, before: Operation, names: _Names) -> tuple[SSAValue, str]:
    """A signal for a group of calls, made before an op, and the name of its buffer."""
    e = Emitter(group[0].location)
    world_name, buffer_name, signal_name = names.new()
    world = e.insert(WorldSizeOp()).result
    columns: Index = 1
    for op in group:
        columns = e.max(columns, _blocks(op, host))
    size = e.index(e.mul(e.mul(world, columns), CELL.itemsize))
    buffer = e.insert(AllocWindowOp(buffer_name, size)).result
    type = DistTensorType.of([UNKNOWN, columns if isinstance(columns, int) else UNKNOWN], CELL, buffer_name)
    signal = e.insert(WindowOp(buffer, e.indices([world, columns]), type)).result
    for value, name in ((world, world_name), (buffer, buffer_name), (signal, signal_name)):
        value.name_hint = name
    e.put(before)
    return signal, buffer_name


def _blocks(op: AllReduceOp, host: Function) -> Index:
    """The most blocks that a call is launched in: a number, or one that the host is given.

    Raises:
        InputError: neither is known.
    """
    if op.core_num is None:
        return 1
    most = Bounds().of(op.core_num, op)[1]
    if most < math.inf:
        return max(1, int(most))
    if op.core_num in host.body.args:
        return op.core_num
    raise InputError(
        f"{where(op)}{op.title} without a signal: nothing says before it runs how large core_num can be",
        "pass a signal with a column for each block: pld.window(buffer, [pld.world_size(), columns], dtype=pl.INT32)",
    )


def _give(op: AllReduceOp, signal: SSAValue) -> None:
    """Put in place of a call the same with a signal."""
    new = AllReduceOp(op.target, signal, op=ReduceOp[op.op.data], mode=op.mode.data, core_num=op.core_num)
    new.location = op.location
    new.result.name_hint = op.result.name_hint
    Rewriter.replace_op(op, new)
