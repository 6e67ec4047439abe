"""Stage, exchange, consume: one all-to-all-v in a host orchestrator, in a chip function, or inside of a kernel.

Each rank stages rows for every other one in a window; the exchange takes as many as its counts say to where they
belong, and tells how many came from whom; each rank copies what came. The values are the same on all rails. What
differs is who carries the exchange out: on the HOST rail it is the second of three dispatches to each rank, on the CHIP
rail the second of three tasks of one dispatch, on the InCore rail a line of one kernel.

    crossrank run examples/exchange_pipeline.py --ranks 4 --rail chip
"""

from functools import partial

import numpy as np

import crossrank.program.language as pl
import crossrank.program.language.distributed as pld

ROWS, SIZE = 4, 64  # most rows that a rank has for another one, and their length


def pipeline(ranks, rail, rows=ROWS, size=SIZE):
    """The program on a rail: ``host``, ``chip`` or ``incore``."""
    total = ranks * rows
    Rows, Counts = pl.Tensor[[total, size], pl.FP32], pl.Tensor[[ranks, 1], pl.INT32]
    RowsWindow = pld.DistributedTensor[[total, size], pl.FP32]
    CellsWindow = pld.DistributedTensor[[ranks, 1], pl.INT32]
    AllRows, AllCounts = pl.Tensor[[ranks, total, size], pl.FP32], pl.Tensor[[ranks, ranks, 1], pl.INT32]

    @pl.program
    class ExchangePipeline:
        if rail == "incore":

            @pl.function(type=pl.FunctionType.InCore)
            def exchange(
                self,
                mine: Rows,
                wanted: Counts,
                taken: pl.Out[Rows],
                came: pl.Out[Counts],
                stage: pl.InOut[RowsWindow],
                data: pl.InOut[RowsWindow],
                signal: pl.InOut[CellsWindow],
                counts: pl.InOut[CellsWindow],
                recv: pl.InOut[CellsWindow],
            ):
                for row in pl.range(total):
                    stage = pl.store(pl.load(mine, [row, 0], [1, size]), [row, 0], stage)
                for peer in pl.range(ranks):
                    pl.write(counts, [peer, 0], pl.read(wanted, [peer, 0]))
                data = pld.tensor.all_to_all_v(stage, data, signal, counts, recv)
                for peer in pl.range(ranks):
                    count = pl.read(recv, [peer, 0])
                    pl.write(came, [peer, 0], count)
                    for n in pl.range(pl.cast(count, pl.INDEX)):
                        row = peer * rows + n
                        taken = pl.store(pl.load(data, [row, 0], [1, size]), [row, 0], taken)
                return taken, came

        else:

            @pl.function(type=pl.FunctionType.InCore)
            def stage(self, mine: Rows, wanted: Counts, stage: pl.InOut[RowsWindow], counts: pl.InOut[CellsWindow]):
                for row in pl.range(total):
                    stage = pl.store(pl.load(mine, [row, 0], [1, size]), [row, 0], stage)
                for peer in pl.range(ranks):
                    pl.write(counts, [peer, 0], pl.read(wanted, [peer, 0]))
                return stage, counts

            @pl.function(type=pl.FunctionType.InCore)
            def consume(self, data: RowsWindow, recv: CellsWindow, taken: pl.Out[Rows], came: pl.Out[Counts]):
                for peer in pl.range(ranks):
                    count = pl.read(recv, [peer, 0])
                    pl.write(came, [peer, 0], count)
                    for n in pl.range(pl.cast(count, pl.INDEX)):  # of the other rows nothing is known
                        row = peer * rows + n
                        taken = pl.store(pl.load(data, [row, 0], [1, size]), [row, 0], taken)
                return taken, came

        if rail == "host":

            @pl.function(type=pl.FunctionType.Orchestration)
            def stage_chip(
                self, mine: Rows, wanted: Counts, stage: pl.InOut[RowsWindow], counts: pl.InOut[CellsWindow]
            ):
                return self.stage(mine, wanted, stage, counts)

            @pl.function(type=pl.FunctionType.Orchestration)
            def consume_chip(self, data: RowsWindow, recv: CellsWindow, taken: pl.Out[Rows], came: pl.Out[Counts]):
                return self.consume(data, recv, taken, came)

        else:

            @pl.function(type=pl.FunctionType.Orchestration)
            def chip(
                self,
                mine: Rows,
                wanted: Counts,
                taken: pl.Out[Rows],
                came: pl.Out[Counts],
                stage: pl.InOut[RowsWindow],
                data: pl.InOut[RowsWindow],
                signal: pl.InOut[CellsWindow],
                counts: pl.InOut[CellsWindow],
                recv: pl.InOut[CellsWindow],
            ):
                if rail == "incore":
                    return self.exchange(mine, wanted, taken, came, stage, data, signal, counts, recv)
                stage, counts = self.stage(mine, wanted, stage, counts)
                data = pld.tensor.all_to_all_v(stage, data, signal, counts, recv)
                return self.consume(data, recv, taken, came)

        @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
        def host(self, mine: AllRows, wanted: AllCounts, taken: pl.Out[AllRows], came: pl.Out[AllCounts]):
            stage_buf = pld.alloc_window_buffer(total * size * pl.FP32.get_byte())
            data_buf = pld.alloc_window_buffer(total * size * pl.FP32.get_byte())
            signal_buf = pld.alloc_window_buffer(ranks * pl.INT32.get_byte())
            counts_buf = pld.alloc_window_buffer(ranks * pl.INT32.get_byte())
            recv_buf = pld.alloc_window_buffer(ranks * pl.INT32.get_byte())
            stage = pld.window(stage_buf, [total, size], dtype=pl.FP32)
            data = pld.window(data_buf, [total, size], dtype=pl.FP32)
            signal = pld.window(signal_buf, [ranks, 1], dtype=pl.INT32)
            counts = pld.window(counts_buf, [ranks, 1], dtype=pl.INT32)
            recv = pld.window(recv_buf, [ranks, 1], dtype=pl.INT32)
            if rail == "host":
                for r in pl.range(pld.world_size()):
                    stage, counts = self.stage_chip(mine[r], wanted[r], stage, counts, device=r)
                data = pld.tensor.all_to_all_v(stage, data, signal, counts, recv)
                for r in pl.range(pld.world_size()):
                    self.consume_chip(data, recv, taken[r], came[r], device=r)
            else:
                for r in pl.range(pld.world_size()):
                    self.chip(mine[r], wanted[r], taken[r], came[r], stage, data, signal, counts, recv, device=r)
            return taken, came

    return ExchangePipeline


programs = {rail: partial(pipeline, rail=rail) for rail in ("host", "chip", "incore")}


def inputs(ranks, seed, rows=ROWS, size=SIZE):
    """Counts of none, one, all, more than there is room for, less than none, in turn; the seed says which is first."""
    patterns = np.array([0, 1, rows, rows + 3, -2], np.int32)
    source, to, row, column = np.ogrid[:ranks, :ranks, :rows, :size]
    mine = (source * 1000 + to * 100 + row * 10 + column % 10).astype(np.float32)
    return {
        "mine": mine.reshape(ranks, ranks * rows, size),
        "wanted": patterns[(np.arange(ranks * ranks) + seed) % len(patterns)].reshape(ranks, ranks, 1),
    }


def expected(ranks, inputs):
    mine = inputs["mine"].reshape(ranks, ranks, -1, inputs["mine"].shape[-1])
    rows = mine.shape[2]
    came = np.clip(inputs["wanted"], 0, rows).swapaxes(0, 1)
    taken = np.where(np.arange(rows)[:, None] < came[..., None], mine.swapaxes(0, 1), 0)
    return {"taken": taken.reshape(inputs["mine"].shape), "came": came}
