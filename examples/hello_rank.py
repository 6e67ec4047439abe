"""Hello from every rank: each puts its number into its right neighbour's mailbox, and reads what its left one put.

crossrank run examples/hello_rank.py --ranks 4
"""

import numpy as np

import crossrank.program.language as pl
import crossrank.program.language.distributed as pld

NR = pl.dynamic("NR")


@pl.program
class HelloRank:
    @pl.function(type=pl.FunctionType.InCore)
    def greet(
        self,
        heard: pl.Out[pl.Tensor[[1, 2], pl.INT32]],
        mailbox: pl.InOut[pld.DistributedTensor[[1, 1], pl.INT32]],
    ) -> pl.Tensor[[1, 2], pl.INT32]:
        ctx = pld.get_comm_ctx(mailbox)
        me = pld.rank(ctx)
        right = (me + 1) % pld.nranks(ctx)
        # cells begin as zero, so that what is put there must not be zero to be noticed
        pld.system.notify(target=mailbox, peer=right, offsets=[0, 0], value=me + 1, op=pld.NotifyOp.Set)
        pld.system.wait(signal=mailbox, offsets=[0, 0], expected=1, cmp=pld.WaitCmp.Ge)
        pl.write(heard, [0, 0], me)
        pl.write(heard, [0, 1], pl.read(mailbox, [0, 0]) - 1)
        return heard

    @pl.function(type=pl.FunctionType.Orchestration)
    def chip(
        self,
        heard: pl.Out[pl.Tensor[[1, 2], pl.INT32]],
        mailbox: pl.InOut[pld.DistributedTensor[[1, 1], pl.INT32]],
    ) -> pl.Tensor[[1, 2], pl.INT32]:
        return self.greet(heard, mailbox)

    @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
    def host(self, heard: pl.Out[pl.Tensor[[NR, 1, 2], pl.INT32]]) -> pl.Tensor[[NR, 1, 2], pl.INT32]:
        mailboxes = pld.alloc_window_buffer(pl.INT32.get_byte())
        for r in pl.range(pld.world_size()):
            mailbox = pld.window(mailboxes, [1, 1], dtype=pl.INT32)
            self.chip(heard[r], mailbox, device=r)
        return heard


program = HelloRank


def inputs(ranks, seed):
    return {"heard": np.zeros((ranks, 1, 2), np.int32)}


def expected(ranks, inputs):
    me = np.arange(ranks, dtype=np.int32)
    return {"heard": np.stack([me, (me - 1) % ranks], axis=1).reshape(ranks, 1, 2)}
