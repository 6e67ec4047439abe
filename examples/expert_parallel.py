"""Experts on ranks: tokens travel to the rank of their expert, as many as there are, and their results come back.

Which expert a token goes to is known at run time only: two ranks may exchange no row, or all. Each rank packs its
tokens by destination, an all-to-all-v inside of the kernel moves them and says how many came from whom, the expert
works on those that came, and a second all-to-all-v takes them back to where they were.

    crossrank run examples/expert_parallel.py --ranks 4
"""

import numpy as np

import crossrank.program.language as pl
import crossrank.program.language.distributed as pld

TOKENS, WIDTH = 12, 16


def program(ranks):
    rows = ranks * TOKENS  # a block of rows for each peer, each with room for all tokens

    @pl.program
    class ExpertParallel:
        @pl.function(type=pl.FunctionType.InCore)
        def dispatch(
            self,
            tokens: pl.Tensor[[TOKENS, WIDTH], pl.FP32],
            experts: pl.Tensor[[TOKENS, 1], pl.INT32],
            packed: pl.Out[pl.Tensor[[rows, WIDTH], pl.FP32]],
            slots: pl.Out[pl.Tensor[[TOKENS, 1], pl.INT32]],
            arrived: pl.InOut[pld.DistributedTensor[[rows, WIDTH], pl.FP32]],
            signal: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
            sent: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
            came: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
        ):
            for peer in pl.range(ranks):
                pl.write(sent, [peer, 0], pl.const(0, pl.INT32))
            for t in pl.range(TOKENS):
                expert = pl.cast(pl.read(experts, [t, 0]), pl.INDEX)
                place = pl.read(sent, [expert, 0])
                row = expert * TOKENS + pl.cast(place, pl.INDEX)
                packed = pl.store(pl.load(tokens, [t, 0], [1, WIDTH]), [row, 0], packed)
                pl.write(slots, [t, 0], row)
                pl.write(sent, [expert, 0], place + 1)
            arrived = pld.tensor.all_to_all_v(packed, arrived, signal, sent, came)
            return slots, arrived, signal, came

        @pl.function(type=pl.FunctionType.InCore)
        def expert(
            self,
            arrived: pld.DistributedTensor[[rows, WIDTH], pl.FP32],
            came: pld.DistributedTensor[[ranks, 1], pl.INT32],
            scale: pl.Tensor[[1, WIDTH], pl.FP32],
            done: pl.Out[pl.Tensor[[rows, WIDTH], pl.FP32]],
        ) -> pl.Tensor[[rows, WIDTH], pl.FP32]:
            weights = pl.load(scale, [0, 0], [1, WIDTH])
            for source in pl.range(ranks):
                count = pl.cast(pl.read(came, [source, 0]), pl.INDEX)
                for n in pl.range(count):
                    x = pl.load(arrived, [source * TOKENS + n, 0], [1, WIDTH])
                    done = pl.store(pl.add(pl.mul(x, weights), 1.0), [source * TOKENS + n, 0], done)
            return done

        @pl.function(type=pl.FunctionType.InCore)
        def combine(
            self,
            done: pl.Tensor[[rows, WIDTH], pl.FP32],
            slots: pl.Tensor[[TOKENS, 1], pl.INT32],
            result: pl.Out[pl.Tensor[[TOKENS, WIDTH], pl.FP32]],
            returned: pl.InOut[pld.DistributedTensor[[rows, WIDTH], pl.FP32]],
            signal: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
            came: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
            back: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
        ) -> pl.Tensor[[TOKENS, WIDTH], pl.FP32]:
            # what came from a rank goes back there: the counts of the way back are those of what arrived
            returned = pld.tensor.all_to_all_v(done, returned, signal, came, back)
            for t in pl.range(TOKENS):
                row = pl.cast(pl.read(slots, [t, 0]), pl.INDEX)
                result = pl.store(pl.load(returned, [row, 0], [1, WIDTH]), [t, 0], result)
            return result

        @pl.function(type=pl.FunctionType.Orchestration)
        def chip(
            self,
            tokens: pl.Tensor[[TOKENS, WIDTH], pl.FP32],
            experts: pl.Tensor[[TOKENS, 1], pl.INT32],
            scale: pl.Tensor[[1, WIDTH], pl.FP32],
            result: pl.Out[pl.Tensor[[TOKENS, WIDTH], pl.FP32]],
            arrived: pl.InOut[pld.DistributedTensor[[rows, WIDTH], pl.FP32]],
            returned: pl.InOut[pld.DistributedTensor[[rows, WIDTH], pl.FP32]],
            signal: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
            sent: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
            came: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
            back: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
        ) -> pl.Tensor[[TOKENS, WIDTH], pl.FP32]:
            packed = pl.create_tensor([rows, WIDTH], dtype=pl.FP32)
            slots = pl.create_tensor([TOKENS, 1], dtype=pl.INT32)
            done = pl.create_tensor([rows, WIDTH], dtype=pl.FP32)
            slots, arrived, signal, came = self.dispatch(tokens, experts, packed, slots, arrived, signal, sent, came)
            done = self.expert(arrived, came, scale, done)
            return self.combine(done, slots, result, returned, signal, came, back)

        @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
        def host(
            self,
            tokens: pl.Tensor[[ranks, TOKENS, WIDTH], pl.FP32],
            experts: pl.Tensor[[ranks, TOKENS, 1], pl.INT32],
            scale: pl.Tensor[[ranks, 1, WIDTH], pl.FP32],
            result: pl.Out[pl.Tensor[[ranks, TOKENS, WIDTH], pl.FP32]],
        ) -> pl.Tensor[[ranks, TOKENS, WIDTH], pl.FP32]:
            arrived_buf = pld.alloc_window_buffer(rows * WIDTH * pl.FP32.get_byte())
            returned_buf = pld.alloc_window_buffer(rows * WIDTH * pl.FP32.get_byte())
            signal_buf = pld.alloc_window_buffer(ranks * pl.INT32.get_byte())
            sent_buf = pld.alloc_window_buffer(ranks * pl.INT32.get_byte())
            came_buf = pld.alloc_window_buffer(ranks * pl.INT32.get_byte())
            back_buf = pld.alloc_window_buffer(ranks * pl.INT32.get_byte())
            for r in pl.range(pld.world_size()):
                arrived = pld.window(arrived_buf, [rows, WIDTH], dtype=pl.FP32)
                returned = pld.window(returned_buf, [rows, WIDTH], dtype=pl.FP32)
                signal = pld.window(signal_buf, [ranks, 1], dtype=pl.INT32)
                sent = pld.window(sent_buf, [ranks, 1], dtype=pl.INT32)
                came = pld.window(came_buf, [ranks, 1], dtype=pl.INT32)
                back = pld.window(back_buf, [ranks, 1], dtype=pl.INT32)
                self.chip(
                    tokens[r], experts[r], scale[r], result[r], arrived, returned, signal, sent, came, back, device=r
                )
            return result

    return ExpertParallel


def inputs(ranks, seed):
    rng = np.random.default_rng(seed)
    experts = rng.integers(0, ranks, (ranks, TOKENS, 1)).astype(np.int32)
    experts[0] = 0  # rank 0 keeps all of its tokens, and so sends nobody any
    return {
        "tokens": rng.normal(0, 1, (ranks, TOKENS, WIDTH)).astype(np.float32),
        "experts": experts,
        "scale": rng.normal(0, 1, (ranks, 1, WIDTH)).astype(np.float32),
        "result": np.zeros((ranks, TOKENS, WIDTH), np.float32),
    }


def expected(ranks, inputs):
    scale = inputs["scale"][inputs["experts"][..., 0], 0]
    return {"result": inputs["tokens"] * scale + np.float32(1)}
