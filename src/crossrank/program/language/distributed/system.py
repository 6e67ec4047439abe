"""``pld.system``: signals between ranks, each cell of them a number that peers add to, or set."""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import i32
from xdsl.ir import SSAValue

from crossrank.program.dialect.remote import DeferWaitOp, NotifySignalOp, WaitOp
from crossrank.program.kinds import NotifyOp, WaitCmp
from crossrank.program.language.builder import Builder
from crossrank.program.language.distributed.windows import get_comm_ctx as get_comm_ctx
from crossrank.program.language.distributed.windows import nranks as nranks
from crossrank.program.language.distributed.windows import rank as rank
from crossrank.program.language.distributed.windows import world_size as world_size
from crossrank.program.language.op import KERNEL, op
from crossrank.program.language.operands import listed, member, number, window
from crossrank.program.language.operands import peer as rank_of

INT32_MAX = (1 << 31) - 1


@op("pld.system.notify", KERNEL, takes="exactly 4 positional arguments (target, peer, offsets, value)")
def notify(b: Builder, target: Any, peer: Any, offsets: Any, value: Any, *, op: Any) -> None:
    """Adds a value to a cell of a peer's signal, or sets it. What was written before is there for who sees it.

    A peer may be oneself.
    """
    title = "pld.system.notify"
    signal = window(b, title, "target", target)
    who, cell = rank_of(b, title, peer), listed(b, title, "offsets", offsets)
    what = number(b, title, "value", value)
    how = member(b, title, "op", NotifyOp, op)
    b.insert(NotifySignalOp(signal, who, b.indices(cell), b.scalar(what, i32), how))


@op("pld.system.wait", KERNEL, takes="exactly 3 positional arguments (signal, offsets, expected)")
def wait(b: Builder, signal: Any, offsets: Any, expected: Any, *, cmp: Any) -> None:
    """Waits until a cell of the own signal is ``expected``, or at least that."""
    title = "pld.system.wait"
    b.insert(WaitOp(*_cell(b, title, signal, offsets, expected), member(b, title, "cmp", WaitCmp, cmp)))


@op("pld.system.defer_wait", KERNEL, takes="exactly 3 positional arguments (signal, offsets, expected)")
def defer_wait(b: Builder, signal: Any, offsets: Any, expected: Any, *, cmp: Any = WaitCmp.Ge) -> None:
    """Returns at once, and lets the task be over only when a cell of the own signal is at least ``expected``."""
    title = "pld.system.defer_wait"
    if isinstance(expected, int):
        b.ask(
            0 <= expected <= INT32_MAX,
            f"{title} constant expected must be in [0, INT32_MAX], got {expected}",
        )
    how = member(b, title, "cmp", WaitCmp, cmp)
    b.ask(how is WaitCmp.Ge, f"{title} only supports WaitCmp.Ge (got int {how.value})")
    b.insert(DeferWaitOp(*_cell(b, title, signal, offsets, expected), how))


def _cell(
    b: Builder, title: str, signal: Any, offsets: Any, expected: Any
) -> tuple[SSAValue, list[SSAValue], SSAValue]:
    cells, cell = window(b, title, "signal", signal), listed(b, title, "offsets", offsets)
    return cells, b.indices(cell), b.scalar(number(b, title, "expected", expected), i32)
