"""What is asked of the operands of a kernel that comes with crossrank, when it is launched."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NoReturn

from crossrank.program.builtins import BUILTINS, RING, Builtin, ring_rows, width
from crossrank.program.dialect.collectives import AllGatherOp
from crossrank.program.dialect.windows import LaunchWidthOp
from crossrank.program.execute.failures import Fatal, Reason
from crossrank.program.execute.views import Domain, View, Window


def ask_operands(
    builtin: Builtin, views: Sequence[View], domains: Sequence[Domain], scalars: Sequence[Any], spare: bool
) -> None:
    """Raise `Fatal` (code 5) where a launch cannot be: ranks would reach into the wrong memory, or wait for ever.

    Args:
        builtin: the collective.
        views: its operands, in their order; each of two dimensions.
        domains: of its contexts.
        scalars: the root of a broadcast.
        spare: its signal and its target may have rows for more ranks than the domain has.
    """
    of = dict(zip([o.name for o in builtin.operands], views, strict=True))
    if len(set(domains)) > 1:
        _fail(f"the windows of {builtin.name} are of {' and '.join(d.described for d in dict.fromkeys(domains))}")
    for (one, view), (other, another) in combinations(of.items(), 2):
        if view.address < another.end and another.address < view.end:
            _fail(f"{one} and {other} of {builtin.name} share memory")
    ranks = len(domains[0].devices)
    _ask_signal(builtin, of["signal"], ranks, spare)
    for root in scalars:
        _ask(root < ranks, f"pld.tensor.broadcast root ({root}) must be a valid rank in [0, {ranks})")
    if builtin.in_rows:
        _ask_rows(builtin, of, ranks, spare)


def _ask_signal(builtin: Builtin, signal: View, ranks: int, spare: bool) -> None:
    rows, columns = signal.array.shape
    if builtin is RING:
        needed = ring_rows(ranks)
        _ask(columns == ranks, f"ring allreduce signal shape[1] ({columns}) must equal the domain's size ({ranks})")
        _ask(
            rows == needed,
            f"ring allreduce signal shape[0] ({rows}) must equal 2*(NR-1) + 1 = {needed} for NR = {ranks}",
        )
        return
    _ask(rows == ranks or (spare and rows > ranks), f"signal rows {rows} differ from the domain's size {ranks}")
    _ask(columns > 0, f"signal of {builtin.name} has no cells")


def _ask_rows(builtin: Builtin, of: Mapping[str, View], ranks: int, spare: bool) -> None:
    """There is room for what each rank sends to each, and a count of it."""
    shapes = {name: view.array.shape for name, view in of.items()}
    (cells, _), (rows, size) = shapes["signal"], shapes["target"]
    counted = "send_counts" in of
    if counted:
        _ask(rows % cells == 0, f"signal dim 0 ({cells}) must divide target dim 0 ({rows})")
    else:
        _ask(rows == ranks or (spare and rows > ranks), f"target rows {rows} differ from the domain's size {ranks}")
    sent = ranks * (rows // cells) if counted else ranks
    for name, needed in (("send_counts", ranks), ("recv_counts", ranks), ("index", sent)):
        if name in of:
            there = of[name].array.size
            _ask(there >= needed, f"{name} of {builtin.name} has {there} entries, and needs {needed}")
    if "input" in of:
        there, extent = shapes["input"]
        _ask(extent == size, f"target SIZE ({size}) must equal input SIZE ({extent})")
        needed = 0 if "index" in of else 1 if builtin is BUILTINS[AllGatherOp] else sent
        exact = rows if counted else needed
        enough = there >= needed if "index" in of or (spare and not counted) else there == exact
        _ask(enough, f"input of {builtin.name} has {there} rows, and needs {exact}")


@dataclass
class _Call:
    """A collective on a signal, as the first rank that launched it said, and how many have not."""

    said: str
    rank: int
    place: str
    missing: int


class Meetings:
    """Which collectives ranks launch on which signal: on each rank the same ones, in the same order.

    Their credits alone would not tell: two that meet as often as one another go on with wrong values.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._launched: Counter[tuple[Window, int, int]] = Counter()
        self._calls: dict[tuple[Window, int, int], _Call] = {}

    def come(self, signal: View, device: int, said: str, place: str) -> None:
        """A rank's next launch on a signal; Fatal (code 5) where another rank launches something else there.

        Args:
            signal: a part of a window.
            device: whose.
            said: what it launches, in words.
            place: the author's line.
        """
        window = signal.window
        assert window is not None
        cells = signal.address - window.begin[signal.rank]
        with self._lock:
            number = self._launched[window, cells, device]
            self._launched[window, cells, device] += 1
            key = window, cells, number
            call = self._calls.setdefault(key, _Call(said, device, place, len(window.domain.devices)))
            call.missing -= 1
            if not call.missing:
                del self._calls[key]
        if call.said != said:
            theirs = f"rank {call.rank} launches {call.said}{f' ({call.place})' if call.place else ''}"
            _fail(f"rank {device} launches {said} where {theirs}: ranks launch the same on a signal, in one order")


def launch_width(op: LaunchWidthOp) -> Callable[..., int]:
    """How many blocks, of at most as many as are asked for."""
    folds = op.folds is not None

    def launched(_: Any, limit: int, signal: View) -> int:
        assert signal.window is not None
        ranks, stride = len(signal.window.domain.devices), signal.array.shape[1] if signal.array.ndim > 1 else 1
        count = width(limit, ranks, stride, folds=folds)
        if isinstance(count, str):
            _fail(count)
        return count

    return launched


def _ask(holds: bool, what: str) -> None:
    if not holds:
        _fail(what)


def _fail(what: str) -> NoReturn:
    raise Fatal(what, Reason.INVALID_ARGS)
