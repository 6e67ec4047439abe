"""What is counted of a program before it runs: by hand, and against what its run did."""

from __future__ import annotations

import numpy as np
import pytest

import crossrank.program.language as pl
import crossrank.program.language.distributed as pld
from crossrank.passes import pipeline, run_passes
from crossrank.program import compile
from crossrank.program.cost.estimate import CostReport, cost_of, milliseconds
from crossrank.program.program import Program

SIZE, STEP = 100, 32
Row, Count = pl.Tensor[[1, SIZE], pl.FP32], pl.Scalar[pl.INT32]
Window = pld.DistributedTensor[[1, SIZE], pl.FP32]


def steps(ranks: int) -> Program:
    """A kernel with each kind of loop and branch, on every rank but the last; two blocks on device 0."""
    Cells = pld.DistributedTensor[[ranks, 1], pl.INT32]

    @pl.program
    class Steps:
        @pl.function(type=pl.FunctionType.InCore)
        def step(self, x: Row, y: pl.Out[Row], w: pl.InOut[Window], s: pl.InOut[Cells], n: Count, t: Count):
            me = pld.rank(pld.get_comm_ctx(w))
            for c in pl.range(0, SIZE, STEP):
                width = pl.min(STEP, SIZE - c)
                tile = pl.load(x, [0, c], [1, STEP], valid_shape=[1, width])
                y = pl.store(pl.add(tile, 1.0), [0, c], y)
            for p in pl.range(ranks - 1):
                if p != me:
                    pld.system.notify(target=s, peer=p, offsets=[me, 0], value=1, op=pld.NotifyOp.AtomicAdd)
            for p in pl.range(ranks - 1):
                w = pld.tensor.put(w, p, x)
            for _ in pl.range(n):
                pld.system.wait(signal=s, offsets=[0, 0], expected=0, cmp=pld.WaitCmp.Ge)
            if t > 0:
                pld.system.notify(target=s, peer=me, offsets=[me, 0], value=0, op=pld.NotifyOp.AtomicAdd)
            else:
                for _ in pl.range(10):
                    pld.system.notify(target=s, peer=me, offsets=[me, 0], value=0, op=pld.NotifyOp.AtomicAdd)
            return y, w

        @pl.function(type=pl.FunctionType.Orchestration)
        def chip(self, x: Row, y: pl.Out[Row], w: pl.InOut[Window], s: pl.InOut[Cells], n: Count, t: Count, r: Count):
            if r == 0:
                y, w, _ = pl.spmd_submit(self.step, x, y, w, s, n, t, core_num=2)
            else:
                y, w = self.step(x, y, w, s, n, t)
            return y

        @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
        def host(
            self,
            x: pl.Tensor[[ranks, 1, SIZE], pl.FP32],
            y: pl.Out[pl.Tensor[[ranks, 1, SIZE], pl.FP32]],
            n: Count,
            t: Count,
        ):
            data = pld.alloc_window_buffer(SIZE * 4)
            cells = pld.alloc_window_buffer(ranks * 4)
            for _ in pl.range(2):
                for r in pl.range(ranks - 1):
                    w = pld.window(data, [1, SIZE], dtype=pl.FP32)
                    s = pld.window(cells, [ranks, 1], dtype=pl.INT32)
                    self.chip(x[r], y[r], w, s, n, t, r, device=r)
            return y

    return Steps


def cost(program: Program, ranks: int, **arguments: object) -> CostReport:
    lowered = program.clone()
    run_passes(lowered, pipeline("program"))
    return cost_of(lowered, ranks, {name: np.asarray(value) for name, value in arguments.items()})


def test_loops_and_branches_are_counted() -> None:
    found = cost(steps(4), 4, n=3, t=0)
    once = {"notifies": 2 + 10, "waits": 3, "moved_bytes": 2 * 400, "copied_bytes": 400 + 2 * 400, "elements": 100}
    windows = {"window_bytes": 400 + 4 * 4}
    assert {rank: {what: n for what, n in counts.items() if n} for rank, counts in found.ranks.items()} == {
        0: {"dispatches": 2, "tasks": 2, "blocks": 4} | windows | {what: 4 * n for what, n in once.items()},
        1: {"dispatches": 2, "tasks": 2, "blocks": 2} | windows | {what: 2 * n for what, n in once.items()},
        2: {"dispatches": 2, "tasks": 2, "blocks": 2} | windows | {what: 2 * n for what, n in once.items()},
        3: {},
    }
    assert found.launches == {("step", 2): 2, ("step", 1): 4}
    assert found.unknown == ()


def test_what_is_not_known_is_told() -> None:
    """Of a loop of an unknown number of turns one is counted, of a branch the dearer arm."""
    found, known = cost(steps(4), 4), cost(steps(4), 4, n=1, t=0)
    assert [line.split(":")[0] for line in found.unknown] == [__file__]
    assert (found.total, found.milliseconds) == (known.total, known.milliseconds)
    assert cost(steps(4), 4, n=1, t=1).total["notifies"] == known.total["notifies"] - 9 * (4 + 2 + 2)


def rails(ranks: int, rail: str, core_num: int) -> Program:
    """An all-gather (and on HOST and CHIP a wide all-reduce) of which everything can be counted by hand."""
    All, AllWindow = pl.Tensor[[ranks, SIZE], pl.FP32], pld.DistributedTensor[[ranks, SIZE], pl.FP32]
    Cells = pld.DistributedTensor[[ranks, core_num], pl.INT32]

    @pl.program
    class Rails:
        @pl.function(type=pl.FunctionType.InCore)
        def put_in(self, x: Row, w: pl.InOut[Window]):
            return pl.store(pl.load(x, [0, 0], [1, SIZE]), [0, 0], w)

        @pl.function(type=pl.FunctionType.InCore)
        def take_out(self, w: AllWindow, y: pl.Out[All]):
            return pl.store(pl.load(w, [0, 0], [ranks, SIZE]), [0, 0], y)

        @pl.function(type=pl.FunctionType.Orchestration)
        def begin(self, x: Row, w: pl.InOut[Window]):
            return self.put_in(x, w)

        @pl.function(type=pl.FunctionType.Orchestration)
        def end(self, w: pl.InOut[AllWindow], y: pl.Out[All], s: pl.InOut[Cells]):
            if rail == "chip":
                w = pld.tensor.allreduce(w, s, core_num=core_num)
            return self.take_out(w, y)

        @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
        def host(self, x: pl.Tensor[[ranks, 1, SIZE], pl.FP32], y: pl.Out[pl.Tensor[[ranks, ranks, SIZE], pl.FP32]]):
            one = pld.alloc_window_buffer(SIZE * 4)
            every = pld.alloc_window_buffer(ranks * SIZE * 4)
            cells = pld.alloc_window_buffer(ranks * 4)
            wide = pld.alloc_window_buffer(ranks * core_num * 4)
            w = pld.window(one, [1, SIZE], dtype=pl.FP32)
            v = pld.window(every, [ranks, SIZE], dtype=pl.FP32)
            s = pld.window(cells, [ranks, 1], dtype=pl.INT32)
            t = pld.window(wide, [ranks, core_num], dtype=pl.INT32)
            for r in pl.range(pld.world_size()):
                self.begin(x[r], w, device=r)
            v = pld.tensor.allgather(w, v, s)
            if rail == "host":
                v = pld.tensor.allreduce(v, t, core_num=core_num)
            for r in pl.range(pld.world_size()):
                self.end(v, y[r], t, device=r)
            return y

    return Rails


@pytest.mark.parametrize(("rail", "dispatches"), [("host", 4), ("chip", 3)])
def test_the_counts_are_those_of_the_run(rail: str, dispatches: int) -> None:
    ranks, core_num = 3, 2
    subject = rails(ranks, rail, core_num)
    found = cost(subject, ranks)
    compiled = compile(subject, ranks=ranks)
    x = np.arange(ranks * SIZE, dtype=np.float32).reshape(ranks, 1, SIZE)
    y = np.zeros((ranks, ranks, SIZE), np.float32)
    compiled(x, y)
    assert np.array_equal(y, np.broadcast_to(ranks * x[:, 0], y.shape))
    record = compiled.record
    assert record is not None
    assert {rank: counts["dispatches"] for rank, counts in found.ranks.items()} == record.dispatches
    assert {rank: counts["tasks"] for rank, counts in found.ranks.items()} == record.tasks
    assert record.dispatches == dict.fromkeys(range(ranks), dispatches)
    launched = {kernel: n for (kernel, _), n in found.launches.items()}
    assert (launched, {kernel: [blocks] for kernel, blocks in found.launches}) == (record.launched, record.blocks)
    assert record.blocks["__builtin_allreduce__sum__fp32"] == [core_num]
    peers, row, gathered = ranks - 1, SIZE * 4, ranks * SIZE * 4
    assert {what: n / ranks for what, n in found.total.items()} == {
        "dispatches": dispatches,
        "tasks": 4,
        "blocks": 3 + core_num,
        "notifies": 3 * peers * (1 + core_num),  # two barriers each, and the cells are cleared
        "waits": 2 * peers * (1 + core_num),
        "moved_bytes": 0,
        "managed_bytes": peers * row + 2 * peers * row,
        "copied_bytes": 2 * row + row + 2 * row + 2 * gathered,
        "window_bytes": row + gathered + 4 * ranks * (1 + core_num),
        "elements": peers * SIZE,
    }


@pytest.mark.parametrize("ranks", [2, 8])
def test_more_of_anything_costs_more(ranks: int) -> None:
    found = cost(steps(ranks), ranks, n=3, t=0)
    for what in found.total:
        more = {name: n + 1e6 * (name == what) for name, n in found.total.items()}
        assert milliseconds(more, ranks) > found.milliseconds
