"""Every collective on every rail, as a dispatch of the host, a task of the chip, and within a kernel: against NumPy.

What is compared bit for bit with the same arrays is the same on all rails.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import crossrank.program.language as pl
import crossrank.program.language.distributed as pld
from crossrank.collective import semantics
from crossrank.program import compile
from crossrank.program.kinds import ReduceOp
from crossrank.program.language.dtypes import DataType
from crossrank.program.program import Program
from tests.program.test_kernel_collectives import drawn, same
from tests.support import ring_all_reduce

Array = npt.NDArray[Any]

A, B = pl.dynamic("A"), pl.dynamic("B")
RAILS = ("host", "chip", "incore")
MOST = 3
"""The rows that there is room for from each rank, in exchanges of counted rows."""
WIDTH, STRIDE = 5, 8
"""The blocks that collectives of host and chip ask for, where they can have several; the columns of their signal."""
MOVES = 5
"""Results of collectives that reduce nothing: broadcast, allgather, all_to_all, all_to_all_v, indexed."""


@cache
def all_rails(of: DataType, ops: tuple[ReduceOp, ...], ranks: int, S: int) -> Program:
    """All collectives on each rail, on the same input; rails have results of their own and share their windows."""
    count, total = len(ops), ranks * MOST
    results = count * 3

    @pl.program
    class AllRails:
        @pl.function(type=pl.FunctionType.InCore)
        def fill(self, x: pl.Tensor[[A, B], of], d: pl.InOut[pld.DistributedTensor[[A, B], of]]):
            return pld.tensor.put(d, pld.rank(pld.get_comm_ctx(d)), x, chunk_rows=64, chunk_cols=64)

        @pl.function(type=pl.FunctionType.InCore)
        def show(self, d: pld.DistributedTensor[[A, B], of], y: pl.Out[pl.Tensor[[A, B], of]]):
            return pld.tensor.get(y, pld.rank(pld.get_comm_ctx(d)), d, chunk_rows=64, chunk_cols=64)

        @pl.function(type=pl.FunctionType.InCore)
        def fill_counts(self, x: pl.Tensor[[A, B], pl.INT32], d: pl.InOut[pld.DistributedTensor[[A, B], pl.INT32]]):
            return pld.tensor.put(d, pld.rank(pld.get_comm_ctx(d)), x, chunk_rows=64, chunk_cols=64)

        @pl.function(type=pl.FunctionType.InCore)
        def show_counts(self, d: pld.DistributedTensor[[A, B], pl.INT32], y: pl.Out[pl.Tensor[[A, B], pl.INT32]]):
            return pld.tensor.get(y, pld.rank(pld.get_comm_ctx(d)), d, chunk_rows=64, chunk_cols=64)

        @pl.function(type=pl.FunctionType.Orchestration)
        def stage(self, x: pl.Tensor[[A, B], of], d: pl.InOut[pld.DistributedTensor[[A, B], of]]):
            return self.fill(x, d)

        @pl.function(type=pl.FunctionType.Orchestration)
        def take(self, d: pld.DistributedTensor[[A, B], of], y: pl.Out[pl.Tensor[[A, B], of]]):
            return self.show(d, y)

        @pl.function(type=pl.FunctionType.Orchestration)
        def stage_counts(self, x: pl.Tensor[[A, B], pl.INT32], d: pl.InOut[pld.DistributedTensor[[A, B], pl.INT32]]):
            return self.fill_counts(x, d)

        @pl.function(type=pl.FunctionType.Orchestration)
        def take_counts(self, d: pld.DistributedTensor[[A, B], pl.INT32], y: pl.Out[pl.Tensor[[A, B], pl.INT32]]):
            return self.show_counts(d, y)

        @pl.function(type=pl.FunctionType.Orchestration)
        def chip(
            self,
            x: pl.Tensor[[total, S], of],
            counts: pl.Tensor[[ranks, 1], pl.INT32],
            index: pl.Tensor[[total, 1], pl.INT32],
            reduced: pl.Out[pl.Tensor[[results, ranks, S], of]],
            moved: pl.Out[pl.Tensor[[MOVES, total, S], of]],
            received: pl.Out[pl.Tensor[[2, ranks, 1], pl.INT32]],
            rows: pl.InOut[pld.DistributedTensor[[ranks, S], of]],
            blocks: pl.InOut[pld.DistributedTensor[[total, S], of]],
            sent: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
            recv: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
            cells: pl.InOut[pld.DistributedTensor[[ranks, STRIDE], pl.INT32]],
            cell: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
            ring: pl.InOut[pld.DistributedTensor[[2 * ranks - 1, ranks], pl.INT32]],
        ):
            own = pl.slice(x, [ranks, S], [0, 0])
            for n in pl.unroll(count):
                rows = self.fill(own, rows)
                rows = pld.tensor.allreduce(rows, cells, op=ops[n], core_num=WIDTH)
                self.show(rows, reduced[3 * n])
                rows = self.fill(own, rows)
                rows = pld.tensor.allreduce(rows, ring, op=ops[n], mode="ring")
                self.show(rows, reduced[3 * n + 1])
                rows = self.fill(own, rows)
                rows = pld.tensor.reduce_scatter(rows, cell, op=ops[n])
                self.show(rows, reduced[3 * n + 2])
            blocks = self.fill(x, blocks)
            blocks = pld.tensor.broadcast(blocks, cell, root=1)
            self.show(blocks, moved[0])
            rows = pld.tensor.allgather(pl.slice(x, [1, S], [0, 0]), rows, cell)
            self.show(rows, pl.slice(moved[1], [ranks, S], [0, 0]))
            rows = pld.tensor.all_to_all(own, rows, cell)
            self.show(rows, pl.slice(moved[2], [ranks, S], [0, 0]))
            blocks = pld.tensor.all_to_all_v(x, blocks, cells, counts, recv, core_num=WIDTH)
            self.show(blocks, moved[3])
            self.show_counts(recv, received[0])
            sent = self.fill_counts(counts, sent)
            blocks = pld.tensor.indexed_all_to_all_v(x, blocks, cells, sent, recv, index, core_num=WIDTH)
            self.show(blocks, moved[4])
            self.show_counts(recv, received[1])
            return pld.tensor.barrier(cell)

        @pl.function(type=pl.FunctionType.InCore)
        def kernel(
            self,
            x: pl.Tensor[[total, S], of],
            counts: pl.Tensor[[ranks, 1], pl.INT32],
            index: pl.Tensor[[total, 1], pl.INT32],
            reduced: pl.Out[pl.Tensor[[results, ranks, S], of]],
            moved: pl.Out[pl.Tensor[[MOVES, total, S], of]],
            received: pl.Out[pl.Tensor[[2, ranks, 1], pl.INT32]],
            rows: pl.InOut[pld.DistributedTensor[[ranks, S], of]],
            blocks: pl.InOut[pld.DistributedTensor[[total, S], of]],
            sent: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
            recv: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
            cell: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
            ring: pl.InOut[pld.DistributedTensor[[2 * ranks - 2, ranks], pl.INT32]],
        ):
            me = pld.rank(pld.get_comm_ctx(rows))
            own = pl.slice(x, [ranks, S], [0, 0])
            for n in pl.unroll(count):
                rows = pld.tensor.put(rows, me, own, chunk_rows=64, chunk_cols=64)
                rows = pld.tensor.allreduce(rows, cell, op=ops[n])
                pld.tensor.get(reduced[3 * n], me, rows, chunk_rows=64, chunk_cols=64)
                cell = pld.tensor.barrier(cell)
                rows = pld.tensor.put(rows, me, own, chunk_rows=64, chunk_cols=64)
                rows = pld.tensor.allreduce(rows, ring, op=ops[n], mode="ring")
                pld.tensor.get(reduced[3 * n + 1], me, rows, chunk_rows=64, chunk_cols=64)
                cell = pld.tensor.barrier(cell)
                rows = pld.tensor.put(rows, me, own, chunk_rows=64, chunk_cols=64)
                rows = pld.tensor.reduce_scatter(rows, cell, op=ops[n])
                pld.tensor.get(reduced[3 * n + 2], me, rows, chunk_rows=64, chunk_cols=64)
                cell = pld.tensor.barrier(cell)
            blocks = pld.tensor.put(blocks, me, x, chunk_rows=64, chunk_cols=64)
            blocks = pld.tensor.broadcast(blocks, cell, root=1)
            pld.tensor.get(moved[0], me, blocks, chunk_rows=64, chunk_cols=64)
            cell = pld.tensor.barrier(cell)
            rows = pld.tensor.allgather(pl.slice(x, [1, S], [0, 0]), rows, cell)
            pld.tensor.get(pl.slice(moved[1], [ranks, S], [0, 0]), me, rows, chunk_rows=64, chunk_cols=64)
            cell = pld.tensor.barrier(cell)
            rows = pld.tensor.all_to_all(own, rows, cell)
            pld.tensor.get(pl.slice(moved[2], [ranks, S], [0, 0]), me, rows, chunk_rows=64, chunk_cols=64)
            cell = pld.tensor.barrier(cell)
            blocks = pld.tensor.all_to_all_v(x, blocks, cell, counts, recv)
            pld.tensor.get(moved[3], me, blocks, chunk_rows=64, chunk_cols=64)
            pld.tensor.get(received[0], me, recv, chunk_rows=64)
            sent = pld.tensor.put(sent, me, counts, chunk_rows=64)
            cell = pld.tensor.barrier(cell)
            blocks = pld.tensor.indexed_all_to_all_v(x, blocks, cell, sent, recv, index)
            pld.tensor.get(moved[4], me, blocks, chunk_rows=64, chunk_cols=64)
            pld.tensor.get(received[1], me, recv, chunk_rows=64)
            return pld.tensor.barrier(cell)

        @pl.function(type=pl.FunctionType.Orchestration)
        def incore(
            self,
            x: pl.Tensor[[total, S], of],
            counts: pl.Tensor[[ranks, 1], pl.INT32],
            index: pl.Tensor[[total, 1], pl.INT32],
            reduced: pl.Out[pl.Tensor[[results, ranks, S], of]],
            moved: pl.Out[pl.Tensor[[MOVES, total, S], of]],
            received: pl.Out[pl.Tensor[[2, ranks, 1], pl.INT32]],
            rows: pl.InOut[pld.DistributedTensor[[ranks, S], of]],
            blocks: pl.InOut[pld.DistributedTensor[[total, S], of]],
            sent: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
            recv: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
            cell: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
            ring: pl.InOut[pld.DistributedTensor[[2 * ranks - 2, ranks], pl.INT32]],
        ):
            return self.kernel(x, counts, index, reduced, moved, received, rows, blocks, sent, recv, cell, ring)

        @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
        def host(
            self,
            x: pl.Tensor[[ranks, total, S], of],
            counts: pl.Tensor[[ranks, ranks, 1], pl.INT32],
            index: pl.Tensor[[ranks, total, 1], pl.INT32],
            reduced: pl.Out[pl.Tensor[[3, ranks, results, ranks, S], of]],
            moved: pl.Out[pl.Tensor[[3, ranks, MOVES, total, S], of]],
            received: pl.Out[pl.Tensor[[3, ranks, 2, ranks, 1], pl.INT32]],
            left: pl.Out[pl.Tensor[[ranks, ranks, STRIDE], pl.INT32]],
            left_cell: pl.Out[pl.Tensor[[ranks, ranks, 1], pl.INT32]],
            left_ring: pl.Out[pl.Tensor[[ranks, 2 * ranks - 1, ranks], pl.INT32]],
        ):
            rows_buf = pld.alloc_window_buffer(ranks * S * of.get_byte())
            other_buf = pld.alloc_window_buffer(ranks * S * of.get_byte())
            one_buf = pld.alloc_window_buffer(S * of.get_byte())
            blocks_buf = pld.alloc_window_buffer(total * S * of.get_byte())
            input_buf = pld.alloc_window_buffer(total * S * of.get_byte())
            sent_buf = pld.alloc_window_buffer(ranks * 4)
            recv_buf = pld.alloc_window_buffer(ranks * 4)
            index_buf = pld.alloc_window_buffer(total * 4)
            cells_buf = pld.alloc_window_buffer(ranks * STRIDE * 4)
            cell_buf = pld.alloc_window_buffer(ranks * 4)
            ring_buf = pld.alloc_window_buffer((2 * ranks - 1) * ranks * 4)
            kernel_ring_buf = pld.alloc_window_buffer((2 * ranks - 2) * ranks * 4)
            rows = pld.window(rows_buf, [ranks, S], dtype=of)
            other = pld.window(other_buf, [ranks, S], dtype=of)
            one = pld.window(one_buf, [1, S], dtype=of)
            blocks = pld.window(blocks_buf, [total, S], dtype=of)
            input = pld.window(input_buf, [total, S], dtype=of)
            sent = pld.window(sent_buf, [ranks, 1], dtype=pl.INT32)
            recv = pld.window(recv_buf, [ranks, 1], dtype=pl.INT32)
            picked = pld.window(index_buf, [total, 1], dtype=pl.INT32)
            cells = pld.window(cells_buf, [ranks, STRIDE], dtype=pl.INT32)
            cell = pld.window(cell_buf, [ranks, 1], dtype=pl.INT32)
            ring = pld.window(ring_buf, [2 * ranks - 1, ranks], dtype=pl.INT32)
            kernel_ring = pld.window(kernel_ring_buf, [2 * ranks - 2, ranks], dtype=pl.INT32)
            for r in pl.range(pld.world_size()):
                self.chip(
                    x[r], counts[r], index[r], reduced[1, r], moved[1, r], received[1, r],
                    rows, blocks, sent, recv, cells, cell, ring, device=r,
                )  # fmt: skip
            for r in pl.range(pld.world_size()):
                self.incore(
                    x[r], counts[r], index[r], reduced[2, r], moved[2, r], received[2, r],
                    rows, blocks, sent, recv, cell, kernel_ring, device=r,
                )  # fmt: skip
            for n in pl.unroll(count):
                for r in pl.range(pld.world_size()):
                    self.stage(pl.slice(x[r], [ranks, S], [0, 0]), rows, device=r)
                rows = pld.tensor.allreduce(rows, cells, op=ops[n], core_num=WIDTH)
                for r in pl.range(pld.world_size()):
                    self.take(rows, reduced[0, r, 3 * n], device=r)
                    self.stage(pl.slice(x[r], [ranks, S], [0, 0]), rows, device=r)
                rows = pld.tensor.allreduce(rows, ring, op=ops[n], mode="ring")
                for r in pl.range(pld.world_size()):
                    self.take(rows, reduced[0, r, 3 * n + 1], device=r)
                    self.stage(pl.slice(x[r], [ranks, S], [0, 0]), rows, device=r)
                rows = pld.tensor.reduce_scatter(rows, cell, op=ops[n])
                for r in pl.range(pld.world_size()):
                    self.take(rows, reduced[0, r, 3 * n + 2], device=r)
            for r in pl.range(pld.world_size()):
                self.stage(x[r], blocks, device=r)
                self.stage(x[r], input, device=r)
                self.stage(pl.slice(x[r], [ranks, S], [0, 0]), other, device=r)
                self.stage(pl.slice(x[r], [1, S], [0, 0]), one, device=r)
                self.stage_counts(counts[r], sent, device=r)
                self.stage_counts(index[r], picked, device=r)
            blocks = pld.tensor.broadcast(blocks, cell, root=1)
            rows = pld.tensor.allgather(one, rows, cell)
            for r in pl.range(pld.world_size()):
                self.take(blocks, moved[0, r, 0], device=r)
                self.take(rows, pl.slice(moved[0, r, 1], [ranks, S], [0, 0]), device=r)
            rows = pld.tensor.all_to_all(other, rows, cell)
            blocks = pld.tensor.all_to_all_v(input, blocks, cells, sent, recv, core_num=WIDTH)
            for r in pl.range(pld.world_size()):
                self.take(rows, pl.slice(moved[0, r, 2], [ranks, S], [0, 0]), device=r)
                self.take(blocks, moved[0, r, 3], device=r)
                self.take_counts(recv, received[0, r, 0], device=r)
            blocks = pld.tensor.indexed_all_to_all_v(input, blocks, cells, sent, recv, picked, core_num=WIDTH)
            for r in pl.range(pld.world_size()):
                self.take(blocks, moved[0, r, 4], device=r)
                self.take_counts(recv, received[0, r, 1], device=r)
            pld.tensor.barrier(cell)
            for r in pl.range(pld.world_size()):
                self.take_counts(cells, left[r], device=r)
                self.take_counts(cell, left_cell[r], device=r)
                self.take_counts(ring, left_ring[r], device=r)
            return reduced, moved, received, left, left_cell, left_ring

    return AllRails


@pytest.mark.parametrize(
    ("of", "ops", "ranks", "size"),
    [
        (pl.INT8, (ReduceOp.Max,), 2, 70),
        (pl.FP32, tuple(ReduceOp), 4, 33),
        (pl.FP16, (ReduceOp.Sum,), 8, 5),
        (pl.BF16, (ReduceOp.Sum,), 3, 5),
        (pl.FP64, (ReduceOp.Prod,), 2, 5),
        (pl.INT32, (ReduceOp.Sum,), 24, 9),
    ],
    ids=lambda value: str(value) if isinstance(value, (DataType, int)) else "",
)
def test_values(of: DataType, ops: tuple[ReduceOp, ...], ranks: int, size: int) -> None:
    rng = np.random.default_rng(ranks)
    total, results = ranks * MOST, 3 * len(ops)
    x = drawn(rng, (ranks, total, size), of)
    counts = rng.choice([-2, 0, 1, MOST, MOST + 3], (ranks, ranks, 1)).astype(np.int32)
    index = rng.integers(0, total, (ranks, total, 1), np.int32)
    reduced = np.zeros((3, ranks, results, ranks, size), x.dtype)
    moved = np.zeros((3, ranks, MOVES, total, size), x.dtype)
    received = np.full((3, ranks, 2, ranks, 1), -9, np.int32)
    left = [np.ones((ranks, *shape), np.int32) for shape in ((ranks, STRIDE), (ranks, 1), (2 * ranks - 1, ranks))]
    compile(all_rails(of, ops, ranks, size), ranks=ranks)(x, counts, index, reduced, moved, received, *left)

    own = list(x[:, :ranks])
    for n, op in enumerate(ops):
        with np.errstate(all="ignore"):
            mesh, ring = semantics.all_reduce(own, op.collective)[0], ring_all_reduce(own, op.collective)
        for rail, rank in np.ndindex(3, ranks):
            got, what = reduced[rail, rank, 3 * n :], (RAILS[rail], rank, op)
            assert same(got[0], mesh), (*what, "mesh")
            assert same(got[1], ring), (*what, "ring")
            assert same(got[2, rank], mesh[rank]), (*what, "reduce_scatter")
            others = np.arange(ranks) != rank
            assert same(got[2, others], x[rank, :ranks][others]), (*what, "rows of others")
    gathered, parts = semantics.all_gather([a[:1] for a in own], 0), semantics.all_to_all(own, 0)
    clamped = counts.clip(0, MOST)[:, :, 0]
    for rail, rank in np.ndindex(3, ranks):
        got, what = moved[rail, rank], (RAILS[rail], rank)
        assert same(got[0], x[1]), (*what, "broadcast")
        assert same(got[1, :ranks], gathered[rank]), (*what, "allgather")
        assert same(got[2, :ranks], parts[rank]), (*what, "all_to_all")
        for src in range(ranks):
            rows = clamped[src, rank]
            block = np.s_[src * MOST : src * MOST + rows]
            sent = np.s_[rank * MOST : rank * MOST + rows]
            assert same(got[3, block], x[src, sent]), (*what, src, "all_to_all_v")
            assert same(got[4, block], x[src, index[src, sent, 0]]), (*what, src, "indexed")
        assert (received[rail, rank, :, :, 0] == clamped[:, rank]).all(), what
    assert not any(cells.any() for cells in left)
