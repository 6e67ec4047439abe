"""What each thing that a program does takes: the constants of the cost estimate (`crossrank.program.cost.estimate`).

    python benchmarks/prices.py [--rounds N] [--json]

One program does as many of each as its arguments say. A price is what more of one thing adds to the shortest of the
runs, over how many more; of what kernels do, times the cores that share it.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import Any

import numpy as np
from turns import arguments_of, show

import crossrank.program.language as pl
import crossrank.program.language.distributed as pld
from crossrank.program import compile
from crossrank.program.cost.estimate import ALONE, SHARED
from crossrank.program.program import Program

RANKS = 8
SIZE, TILE = 1 << 21, 1 << 12  # elements of a tensor, 8 MiB: all ranks' are past the caches; and of a tile


def everything(ranks: int) -> Program:
    """So many dispatches a rank, of so many tasks, of so many blocks; and one of a kernel that does the rest."""
    Number = pl.Scalar[pl.INDEX]
    Row = pl.Tensor[[1, SIZE], pl.FP32]
    Window = pld.DistributedTensor[[1, SIZE], pl.FP32]
    Blocks = pld.DistributedTensor[[ranks, SIZE // ranks], pl.FP32]
    Cells = pld.DistributedTensor[[ranks, 1], pl.INT32]

    @pl.program
    class Everything:
        @pl.function(type=pl.FunctionType.InCore)
        def nothing(
            self, x: Row, data: pl.InOut[Window], there: pl.InOut[Blocks], back: pl.InOut[Blocks], signal: Cells
        ):
            pld.system.wait(signal=signal, offsets=[0, 0], expected=0, cmp=pld.WaitCmp.Ge)
            return data, there, back

        @pl.function(type=pl.FunctionType.InCore)
        def work(
            self,
            x: pl.InOut[Row],
            data: pl.InOut[Window],
            there: pl.InOut[Blocks],
            back: pl.InOut[Blocks],
            signal: pl.InOut[Cells],
            notifies: Number,
            barriers: Number,
            puts: Number,
            copies: Number,
            adds: Number,
        ):
            me = pld.rank(pld.get_comm_ctx(signal))
            for _ in pl.range(notifies):
                pld.system.notify(target=signal, peer=me, offsets=[me, 0], value=0, op=pld.NotifyOp.AtomicAdd)
            for _ in pl.range(barriers):
                signal = pld.tensor.barrier(signal)
            for _ in pl.range(puts):
                back = pld.tensor.all_to_all(there, back, signal)
            for _ in pl.range(copies):
                for n in pl.range(SIZE // TILE):
                    data = pl.store(pl.load(x, [0, n * TILE], [1, TILE]), [0, n * TILE], data)
            tile = pl.load(x, [0, 0], [1, TILE])
            for _ in pl.range(adds):
                tile = pl.add(tile, 1.0)
            x = pl.store(tile, [0, 0], x)
            return x, data, back

        @pl.function(type=pl.FunctionType.Orchestration)
        def launches(
            self,
            x: Row,
            data: pl.InOut[Window],
            there: pl.InOut[Blocks],
            back: pl.InOut[Blocks],
            signal: pl.InOut[Cells],
            tasks: Number,
            blocks: Number,
            exchanges: Number,
        ):
            for _ in pl.range(tasks):
                if blocks > 0:
                    pl.spmd_submit(self.nothing, x, data, there, back, signal, core_num=blocks)
            for _ in pl.range(exchanges):
                back = pld.tensor.all_to_all(there, back, signal)
            return data, there, back

        @pl.function(type=pl.FunctionType.Orchestration)
        def works(
            self,
            x: pl.InOut[Row],
            data: pl.InOut[Window],
            there: pl.InOut[Blocks],
            back: pl.InOut[Blocks],
            signal: pl.InOut[Cells],
            notifies: Number,
            barriers: Number,
            puts: Number,
            copies: Number,
            adds: Number,
        ):
            return self.work(x, data, there, back, signal, notifies, barriers, puts, copies, adds)

        @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
        def host(
            self,
            x: pl.InOut[pl.Tensor[[ranks, 1, SIZE], pl.FP32]],
            dispatches: Number,
            tasks: Number,
            blocks: Number,
            exchanges: Number,
            notifies: Number,
            barriers: Number,
            puts: Number,
            copies: Number,
            adds: Number,
        ):
            data = pld.window(pld.alloc_window_buffer(SIZE * 4, name="data"), [1, SIZE], dtype=pl.FP32)
            there_buf = pld.alloc_window_buffer(SIZE * 4)
            back_buf = pld.alloc_window_buffer(SIZE * 4)
            there = pld.window(there_buf, [ranks, SIZE // ranks], dtype=pl.FP32)
            back = pld.window(back_buf, [ranks, SIZE // ranks], dtype=pl.FP32)
            signal = pld.window(pld.alloc_window_buffer(ranks * 4, name="signal"), [ranks, 1], dtype=pl.INT32)
            for _ in pl.range(dispatches):
                for r in pl.range(pld.world_size()):
                    self.launches(x[r], data, there, back, signal, tasks, blocks, exchanges, device=r)
            for r in pl.range(pld.world_size()):
                self.works(x[r], data, there, back, signal, notifies, barriers, puts, copies, adds, device=r)
            return x

    return Everything


NOTHING = ("exchanges", "notifies", "barriers", "puts", "copies", "adds")
BASE = {"dispatches": 1, "tasks": 1, "blocks": 1, **dict.fromkeys(NOTHING, 0)}
MORE: dict[str, dict[str, int]] = {
    "dispatches": {"dispatches": 21},
    "tasks": {"tasks": 41},
    "blocks": {"blocks": 21},
    "notifies": {"notifies": 20_000},
    "waits": {"barriers": 50},
    "moved_bytes": {"puts": 5},
    "managed_bytes": {"exchanges": 5},
    "copied_bytes": {"copies": 5},
    "elements": {"adds": 2_000},
}
"""What more of each is done than in `BASE`."""
USED = {"copies": 1, "exchanges": 1}
"""What uses every window once: those that were zeroed are in no cache then."""


WINDOWS = RANKS * 3 * SIZE * 4
"""Bytes of all windows, but for the signals."""


def seconds(worker: Any, x: Any, counts: dict[str, int], rounds: int) -> float:
    """The shortest of the runs."""
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        worker(x, *counts.values())
        found.append(time.perf_counter() - start)
    return min(found)


def prices(rounds: int) -> dict[str, float]:
    """Nanoseconds of each thing that is counted."""
    compiled = compile(everything(RANKS), ranks=RANKS)
    x = np.zeros((RANKS, 1, SIZE), np.float32)
    cores = min(os.cpu_count() or 1, RANKS)
    added = {}
    persistent = partial(compiled.prepare, persistent=True)
    with persistent(reset_persistent_windows=False) as worker, persistent() as zeroing:
        for what, more in MORE.items():
            less = seconds(worker, x, BASE, rounds)
            added[what] = 1e9 * (seconds(worker, x, BASE | more, rounds) - less)
        less = seconds(worker, x, BASE | USED, rounds)
        added["window_bytes"] = 1e9 * (seconds(zeroing, x, BASE | USED, rounds) - less)
    blocks = added["blocks"] / (20 * RANKS)
    task = added["tasks"] / (40 * RANKS) - blocks
    notify = added["notifies"] * cores / (20_000 * RANKS)
    peers, exchanges, moved = RANKS - 1, 5 * RANKS, 5 * RANKS * SIZE * 4
    wait = added["waits"] * cores / (50 * RANKS * peers) - 2 * notify
    inside = (added["moved_bytes"] * cores - exchanges * peers * wait) / moved
    managed = ((added["managed_bytes"] - exchanges * (task + blocks)) * cores - 2 * exchanges * peers * wait) / moved
    return {
        "dispatches": added["dispatches"] / (20 * RANKS) - task - blocks,  # each has one task
        "tasks": task,
        "blocks": blocks * cores,
        "notifies": notify,
        "waits": wait,
        "moved_bytes": inside,
        "managed_bytes": managed,
        "window_bytes": added["window_bytes"] / WINDOWS,
        "copied_bytes": added["copied_bytes"] * cores / (2 * moved),  # to a tile, and back
        "elements": added["elements"] * cores / (2_000 * RANKS * TILE),
    }


def main() -> None:
    arguments = arguments_of(__doc__)
    used = {**ALONE, **SHARED}
    rows = [{"what": what, "ns": ns, "used": used[what]} for what, ns in prices(arguments.rounds).items()]
    show({"prices": rows}, as_json=arguments.json)


if __name__ == "__main__":
    main()
