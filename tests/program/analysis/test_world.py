"""What cannot be on a number of devices: devices that are not there, windows too small or too large, signals too."""

from __future__ import annotations

import pytest

from crossrank.program.analysis.world import unfit
from crossrank.program.program import line_of
from tests.program.language.sources import WHERE, parse

CHIP = "self.chip(x[0], 1, w, y[0], device={})"
WINDOW = "b = pld.alloc_window_buffer({})\nw = pld.window(b, {}, dtype=pl.INT32)\n"
SMALL = WINDOW.format("pld.world_size() * 4", "[pld.world_size(), 1]")
THERE = f"{SMALL}for r in pl.range(pld.world_size()):\n    {CHIP.format('r')}"
BARRIER = "{}for r in pl.range({}):\n    " + CHIP.format("r") + "\npld.tensor.barrier(w)"

TABLE: list[tuple[str, list[tuple[int, str]]]] = [
    (THERE, []),
    (
        f"{SMALL}{CHIP.format(3)}\n{CHIP.format(99)}",
        [(4, "device 99 is not there: the program runs on 4, counted from 0")],
    ),
    (
        f"{SMALL}for r in pl.range(6):\n    {CHIP.format('r')}",
        [(4, "device 4 is not there: the program runs on 4, counted from 0")],
    ),
    (f"{SMALL}if pld.world_size() > 9:\n    {CHIP.format(9)}", []),
    (f"{SMALL}for i in pl.range(4, pld.world_size()):\n    {CHIP.format(9)}", []),
    (
        WINDOW.format("pld.world_size() * 2", "[pld.world_size(), 1]"),
        [(2, "pld.window takes 16 bytes, and buffer b has 8")],
    ),
    (WINDOW.format("NR * 4", "[NR, 1]"), []),
    (
        WINDOW.format("pld.world_size() * 2**50", "[1, 1]"),
        [(1, "window buffer b on 4 devices takes 16777216.0 GiB of memory")],
    ),
    (
        BARRIER.format(WINDOW.format(12, "[3, 1]"), "pld.world_size()"),
        [(5, "signal rows 3 differ from the domain's size 4")],
    ),
    (BARRIER.format(WINDOW.format(12, "[3, 1]"), 3), []),
    (
        f"{THERE.replace('*', '* 2 *', 1)}\npld.tensor.broadcast(w, w, root=4)\npld.tensor.reduce_scatter(w[0:3], w)",
        [
            (5, "pld.tensor.broadcast root (4) must be a valid rank in [0, 4)"),
            (6, "target rows 3 differ from the domain's size 4"),
        ],
    ),
    (BARRIER.format(WINDOW.format(20, "[5, 1]"), "pld.world_size()"), []),
]


@pytest.mark.parametrize(("host", "found"), TABLE)
def test_unfit(host: str, found: list[tuple[int, str]]) -> None:
    lapses = list(unfit(parse(host=host.replace("NR", "x.shape[0]")), 4))
    assert [line_of(lapse.op) - WHERE["host"] + 1 for lapse in lapses] == [line for line, _ in found]
    for lapse, (_, what) in zip(lapses, found, strict=True):
        assert lapse.what.startswith(what)


@pytest.mark.parametrize(("rows", "found"), [(2, 1), (4, 0), (5, 1)])
def test_signal_of_a_chip_function(rows: int, found: int) -> None:
    """Found where the collective stands, by the window that its function is given."""
    window = WINDOW.format(4 * rows, f"[{rows}, 1]")
    program = parse(
        host=f"{window}for r in pl.range(pld.world_size()):\n    {CHIP.format('r')}", chip="pld.tensor.barrier(w)"
    )
    assert [lapse.what for lapse in unfit(program, 4)] == [
        f"signal rows {rows} differ from the domain's size 4"
    ] * found
