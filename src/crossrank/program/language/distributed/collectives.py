"""Collectives. Each gives its target: ``data = pld.tensor.allreduce(data, signal)``.

They stand in a HOST orchestrator, in a CHIP orchestration, or in a kernel, on every rank of the domain alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xdsl.ir import SSAValue

from crossrank.program.dialect.collectives import (
    AllGatherOp,
    AllReduceOp,
    AllToAllOp,
    AllToAllVOp,
    BarrierOp,
    BroadcastOp,
    IndexedAllToAllVOp,
    ReduceScatterOp,
)
from crossrank.program.dialect.tensors import known, shaped
from crossrank.program.kinds import ReduceOp
from crossrank.program.language.builder import Builder
from crossrank.program.language.op import HOST, misplaced, op
from crossrank.program.language.operands import is_number, member, said, tensor, window

__all__ = [
    "all_to_all",
    "all_to_all_v",
    "allgather",
    "allreduce",
    "barrier",
    "broadcast",
    "indexed_all_to_all_v",
    "reduce_scatter",
]


def _core_num(b: Builder, title: str, value: Any) -> SSAValue | None:
    """How many blocks the launch of a managed collective has; None: one, as in kernels."""
    b.ask(is_number(value) and not isinstance(value, float), f"{title} core_num must be an int, got {said(value)}")
    count = known(value) if isinstance(value, SSAValue) else value
    if isinstance(count, int):
        b.ask(count > 0, f"{title} core_num must be positive, got {count}")
    if b.in_kernel:
        b.ask(count == 1, f"{title} core_num must be 1 inside a kernel, got {said(value) if count is None else count}")
    return None if count == 1 else b.index(value)


@op("pld.tensor.allreduce", takes="1 or 2 positional arguments (target[, signal])")
def allreduce(
    b: Builder, target: Any, signal: Any = ..., *, op: Any = ReduceOp.Sum, mode: str = "mesh", core_num: Any = 1
) -> Any:
    """Every rank's data becomes the reduction of all ranks'.

    ``signal`` has a cell for each rank, ``[NR, 1]``, and with ``core_num`` a column for each block; with
    ``mode="ring"`` it is ``[2 * (NR - 1), NR]``, in HOST and CHIP functions ``[2 * (NR - 1) + 1, NR]``. A HOST
    orchestrator may leave it away.
    """
    title = "pld.tensor.allreduce"
    data = window(b, title, "target", target)
    b.ask(signal is not None, f"{title} signal cannot be None; omit the signal argument for host synthesis")
    given = None if signal is ... else window(b, title, "signal", signal)
    if given is None and mode != "ring" and b.level is not HOST:
        misplaced(b, f"{title} without a signal", [HOST], "give it one: signal=…; or ")
    how = member(b, title, "op", ReduceOp, op)
    return b.insert(AllReduceOp(data, given, op=how, mode=mode, core_num=_core_num(b, title, core_num))).result


@op("pld.tensor.barrier", takes="exactly 1 positional argument (signal)")
def barrier(b: Builder, signal: Any) -> Any:
    """Nobody goes on before all have come; gives the signal."""
    return b.insert(BarrierOp(window(b, "pld.tensor.barrier", "signal", signal))).result


@op("pld.tensor.broadcast", takes="exactly 2 positional arguments (target, signal)")
def broadcast(b: Builder, target: Any, signal: Any, *, root: Any) -> Any:
    """Every rank's data becomes that of rank ``root``, which is known before the program runs."""
    title = "pld.tensor.broadcast"
    data, cells = window(b, title, "target", target), window(b, title, "signal", signal)
    rank = known(root) if isinstance(root, SSAValue) else root
    if not isinstance(rank, int):
        b.fail(f"{title} root must be an int (static), got {said(root)}")
    return b.insert(BroadcastOp(data, cells, rank)).result


@op("pld.tensor.allgather", takes="exactly 3 args (input, target, signal)")
def allgather(b: Builder, input: Any, target: Any, signal: Any) -> Any:
    """Row r of every rank's target ``[NR, SIZE]`` becomes rank r's input ``[1, SIZE]``."""
    title = "pld.tensor.allgather"
    source, data = tensor(b, title, "input", input), window(b, title, "target", target)
    return b.insert(AllGatherOp(source, data, window(b, title, "signal", signal))).result


@op("pld.tensor.reduce_scatter", takes="exactly 2 positional arguments (target, signal)")
def reduce_scatter(b: Builder, target: Any, signal: Any, *, op: Any = ReduceOp.Sum) -> Any:
    """Row r of rank r's target ``[NR, SIZE]`` becomes the reduction of all ranks' rows r."""
    title = "pld.tensor.reduce_scatter"
    data, cells = window(b, title, "target", target), window(b, title, "signal", signal)
    return b.insert(ReduceScatterOp(data, cells, member(b, title, "op", ReduceOp, op))).result


@op("pld.tensor.all_to_all", takes="3 args (input, target, signal) for InCore composite")
def all_to_all(b: Builder, input: Any, target: Any, signal: Any) -> Any:
    """Row d of a rank's input goes to rank d, where it becomes the row of the target that has the sender's number."""
    title = "pld.tensor.all_to_all"
    source, data = tensor(b, title, "input", input), window(b, title, "target", target)
    return b.insert(AllToAllOp(source, data, window(b, title, "signal", signal))).result


@op("pld.tensor.all_to_all_v", takes="5 args (input, target, signal, send_counts, recv_counts)")
def all_to_all_v(
    b: Builder, input: Any, target: Any, signal: Any, send_counts: Any, recv_counts: Any, *, core_num: Any = 1
) -> Any:
    """As many rows of block d of a rank's input as ``send_counts[d]`` says go to rank d.

    Blocks have ``rows / NR`` rows; counts are clamped to that. They arrive in the block of the target that has the
    sender's number, and ``recv_counts`` says how many; rows behind them are undefined.
    """
    title = "pld.tensor.all_to_all_v"
    source, data, cells = (
        tensor(b, title, "input", input),
        window(b, title, "target", target),
        window(b, title, "signal", signal),
    )
    sent, received = tensor(b, title, "send_counts", send_counts), window(b, title, "recv_counts", recv_counts)
    _ask_static(
        b,
        title,
        {
            "target dim 0 (NR*MAX_RECV)": data,
            "signal dim 0 (NR)": cells,
            "send_counts dim 0 (NR)": sent,
            "recv_counts dim 0 (NR)": received,
        },
    )
    count = _core_num(b, title, core_num)
    return b.insert(AllToAllVOp(source, data, cells, sent, received, count)).result


@op("pld.tensor.indexed_all_to_all_v", takes="6 args (input, target, signal, send_counts, recv_counts, index)")
def indexed_all_to_all_v(
    b: Builder,
    input: Any,
    target: Any,
    signal: Any,
    send_counts: Any,
    recv_counts: Any,
    index: Any,
    *,
    core_num: Any = 1,
) -> Any:
    """An all-to-all-v that picks its rows: the k-th row for rank d is row ``index[d * M + k]`` of the input.

    M is the number of the target's rows for each rank. The input may have any number of rows, and a row may be sent any
    number of times. ``send_counts`` is a view of a window, the input, ``recv_counts`` and ``index`` any tensor.
    """
    title = "pld.tensor.indexed_all_to_all_v"
    source, data = tensor(b, title, "input", input), window(b, title, "target", target)
    cells, sent = window(b, title, "signal", signal), window(b, title, "send_counts", send_counts)
    received, rows = tensor(b, title, "recv_counts", recv_counts), tensor(b, title, "index", index)
    _ask_static(b, title, {"target dim 0 (NR*MAX_RECV)": data, "signal dim 0 (NR)": cells})
    count = _core_num(b, title, core_num)
    return b.insert(IndexedAllToAllVOp(source, data, cells, sent, received, rows, count)).result


def _ask_static(b: Builder, title: str, extents: Mapping[str, SSAValue]) -> None:
    """Leading extents that are numbers."""
    for what, of in extents.items():
        known_extent = not shaped(of).shape or isinstance(shaped(of).shape[0], int)
        b.ask(known_extent, f"{title} {what} must be a compile-time constant")
