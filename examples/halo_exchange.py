"""A stencil on a grid that is cut into bands of rows: before each step neighbours exchange the rows at their edges.

A rank may be one step ahead of its neighbours, so that each edge has two slots, used in turns: who has got the edges of
step `s + 1` knows that those of step `s` have been read.

    crossrank run examples/halo_exchange.py --ranks 4
"""

import numpy as np

import crossrank.program.language as pl
import crossrank.program.language.distributed as pld

ROWS, COLS, STEPS = 8, 32, 5
ABOVE, BELOW = 0, 1

NR = pl.dynamic("NR")


@pl.program
class HaloExchange:
    @pl.function(type=pl.FunctionType.InCore)
    def relax(
        self,
        band: pl.Tensor[[ROWS, COLS], pl.FP32],
        result: pl.Out[pl.Tensor[[ROWS, COLS], pl.FP32]],
        halo: pl.InOut[pld.DistributedTensor[[4, COLS], pl.FP32]],
        signal: pl.InOut[pld.DistributedTensor[[2, 1], pl.INT32]],
    ) -> pl.Tensor[[ROWS, COLS], pl.FP32]:
        ctx = pld.get_comm_ctx(halo)
        me = pld.rank(ctx)
        last = pld.nranks(ctx) - 1
        now = pl.load(band, [0, 0], [ROWS, COLS])
        result = pl.store(now, [0, 0], result)
        for step in pl.range(STEPS):
            slot = (step % 2) * 2
            if me > 0:  # my first row is what the band above has below it
                up = pl.load(result, [0, 0], [1, COLS])
                halo = pld.tile.remote_store(up, target=halo, peer=me - 1, offsets=[slot + BELOW, 0])
                pld.system.notify(target=signal, peer=me - 1, offsets=[BELOW, 0], value=1, op=pld.NotifyOp.AtomicAdd)
            if me < last:
                down = pl.load(result, [ROWS - 1, 0], [1, COLS])
                halo = pld.tile.remote_store(down, target=halo, peer=me + 1, offsets=[slot + ABOVE, 0])
                pld.system.notify(target=signal, peer=me + 1, offsets=[ABOVE, 0], value=1, op=pld.NotifyOp.AtomicAdd)
            # beyond the ends of the grid lies what is at the end itself
            above = pl.load(result, [0, 0], [1, COLS])
            below = pl.load(result, [ROWS - 1, 0], [1, COLS])
            if me > 0:
                pld.system.wait(signal=signal, offsets=[ABOVE, 0], expected=step + 1, cmp=pld.WaitCmp.Ge)
                above = pl.load(halo, [slot + ABOVE, 0], [1, COLS])
            if me < last:
                pld.system.wait(signal=signal, offsets=[BELOW, 0], expected=step + 1, cmp=pld.WaitCmp.Ge)
                below = pl.load(halo, [slot + BELOW, 0], [1, COLS])
            before = above
            for row in pl.range(ROWS - 1):
                here = pl.load(result, [row, 0], [1, COLS])
                after = pl.load(result, [row + 1, 0], [1, COLS])
                mean = pl.mul(pl.add(pl.add(before, after), pl.add(here, here)), 0.25)
                result = pl.store(mean, [row, 0], result)
                before = here
            here = pl.load(result, [ROWS - 1, 0], [1, COLS])
            mean = pl.mul(pl.add(pl.add(before, below), pl.add(here, here)), 0.25)
            result = pl.store(mean, [ROWS - 1, 0], result)
        return result

    @pl.function(type=pl.FunctionType.Orchestration)
    def chip(
        self,
        band: pl.Tensor[[ROWS, COLS], pl.FP32],
        result: pl.Out[pl.Tensor[[ROWS, COLS], pl.FP32]],
        halo: pl.InOut[pld.DistributedTensor[[4, COLS], pl.FP32]],
        signal: pl.InOut[pld.DistributedTensor[[2, 1], pl.INT32]],
    ) -> pl.Tensor[[ROWS, COLS], pl.FP32]:
        return self.relax(band, result, halo, signal)

    @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
    def host(
        self,
        grid: pl.Tensor[[NR, ROWS, COLS], pl.FP32],
        result: pl.Out[pl.Tensor[[NR, ROWS, COLS], pl.FP32]],
    ) -> pl.Tensor[[NR, ROWS, COLS], pl.FP32]:
        halo_buf = pld.alloc_window_buffer(4 * COLS * pl.FP32.get_byte())
        signal_buf = pld.alloc_window_buffer(2 * pl.INT32.get_byte())
        for r in pl.range(pld.world_size()):
            halo = pld.window(halo_buf, [4, COLS], dtype=pl.FP32)
            signal = pld.window(signal_buf, [2, 1], dtype=pl.INT32)
            self.chip(grid[r], result[r], halo, signal, device=r)
        return result


program = HaloExchange


def inputs(ranks, seed):
    grid = np.random.default_rng(seed).normal(0, 1, (ranks, ROWS, COLS)).astype(np.float32)
    return {"grid": grid, "result": np.zeros_like(grid)}


def expected(ranks, inputs):
    grid = inputs["grid"].astype(np.float64).reshape(ranks * ROWS, COLS)
    for _ in range(STEPS):
        padded = np.concatenate([grid[:1], grid, grid[-1:]])
        grid = (padded[:-2] + padded[2:] + 2 * grid) / 4
    return {"result": grid.reshape(ranks, ROWS, COLS)}
