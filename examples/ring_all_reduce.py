"""An all-reduce around a ring, by hand: sums travel once around, then the finished chunks do.

Each rank has as many chunks as there are ranks. In each step it puts one to its right neighbour, tells it so, and waits
for the one from its left. After `NR - 1` steps each rank has one chunk that is complete; after as many more it has all.

    crossrank run examples/ring_all_reduce.py --ranks 8
"""

import numpy as np

import crossrank.program.language as pl
import crossrank.program.language.distributed as pld

CHUNK = 256


def program(ranks):
    steps = max(2 * (ranks - 1), 1)

    @pl.program
    class RingAllReduce:
        @pl.function(type=pl.FunctionType.InCore)
        def ring(
            self,
            x: pl.Tensor[[ranks, CHUNK], pl.FP32],
            total: pl.Out[pl.Tensor[[ranks, CHUNK], pl.FP32]],
            chunks: pl.InOut[pld.DistributedTensor[[ranks, CHUNK], pl.FP32]],
            inbox: pl.InOut[pld.DistributedTensor[[ranks, CHUNK], pl.FP32]],
            signal: pl.InOut[pld.DistributedTensor[[steps, 1], pl.INT32]],
        ) -> pl.Tensor[[ranks, CHUNK], pl.FP32]:
            ctx = pld.get_comm_ctx(chunks)
            me = pld.rank(ctx)
            right = (me + 1) % ranks
            chunks = pl.store(pl.load(x, [0, 0], [ranks, CHUNK]), [0, 0], chunks)
            for step in pl.range(ranks - 1):
                mine = (me - step) % ranks
                inbox = pld.tensor.put(
                    inbox, peer=right, src=chunks, dst_offsets=[step, 0], src_offsets=[mine, 0], shape=[1, CHUNK]
                )
                pld.system.notify(target=signal, peer=right, offsets=[step, 0], value=1, op=pld.NotifyOp.AtomicAdd)
                pld.system.wait(signal=signal, offsets=[step, 0], expected=1, cmp=pld.WaitCmp.Ge)
                came = (me - step - 1) % ranks
                so_far = pl.load(inbox, [step, 0], [1, CHUNK])
                chunks = pl.store(pl.add(pl.load(chunks, [came, 0], [1, CHUNK]), so_far), [came, 0], chunks)
            for step in pl.range(ranks - 1):
                # what the right neighbour has in this row it has sent on long ago: the ring is as long as that
                done = (me + 1 - step) % ranks
                chunks = pld.tensor.put(
                    chunks, peer=right, src=chunks, dst_offsets=[done, 0], src_offsets=[done, 0], shape=[1, CHUNK]
                )
                cell = ranks - 1 + step
                pld.system.notify(target=signal, peer=right, offsets=[cell, 0], value=1, op=pld.NotifyOp.AtomicAdd)
                pld.system.wait(signal=signal, offsets=[cell, 0], expected=1, cmp=pld.WaitCmp.Ge)
            return pl.store(pl.load(chunks, [0, 0], [ranks, CHUNK]), [0, 0], total)

        @pl.function(type=pl.FunctionType.Orchestration)
        def chip(
            self,
            x: pl.Tensor[[ranks, CHUNK], pl.FP32],
            total: pl.Out[pl.Tensor[[ranks, CHUNK], pl.FP32]],
            chunks: pl.InOut[pld.DistributedTensor[[ranks, CHUNK], pl.FP32]],
            inbox: pl.InOut[pld.DistributedTensor[[ranks, CHUNK], pl.FP32]],
            signal: pl.InOut[pld.DistributedTensor[[steps, 1], pl.INT32]],
        ) -> pl.Tensor[[ranks, CHUNK], pl.FP32]:
            return self.ring(x, total, chunks, inbox, signal)

        @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
        def host(
            self,
            x: pl.Tensor[[ranks, ranks, CHUNK], pl.FP32],
            total: pl.Out[pl.Tensor[[ranks, ranks, CHUNK], pl.FP32]],
        ) -> pl.Tensor[[ranks, ranks, CHUNK], pl.FP32]:
            chunks_buf = pld.alloc_window_buffer(ranks * CHUNK * pl.FP32.get_byte())
            inbox_buf = pld.alloc_window_buffer(ranks * CHUNK * pl.FP32.get_byte())
            signal_buf = pld.alloc_window_buffer(steps * pl.INT32.get_byte())
            for r in pl.range(pld.world_size()):
                chunks = pld.window(chunks_buf, [ranks, CHUNK], dtype=pl.FP32)
                inbox = pld.window(inbox_buf, [ranks, CHUNK], dtype=pl.FP32)
                signal = pld.window(signal_buf, [steps, 1], dtype=pl.INT32)
                self.chip(x[r], total[r], chunks, inbox, signal, device=r)
            return total

    return RingAllReduce


def inputs(ranks, seed):
    x = np.random.default_rng(seed).normal(0, 1, (ranks, ranks, CHUNK))
    return {"x": x.astype(np.float32), "total": np.zeros((ranks, ranks, CHUNK), np.float32)}


def expected(ranks, inputs):
    return {"total": np.broadcast_to(inputs["x"].astype(np.float64).sum(axis=0), inputs["total"].shape)}
