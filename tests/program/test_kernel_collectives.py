"""Collectives within kernels, on ranks that run at once: against NumPy, bit for bit, on signals that are used again."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import crossrank.program.language as pl
import crossrank.program.language.distributed as pld
from crossrank.collective import semantics
from crossrank.collective.dtypes import dtype_of
from crossrank.errors import RunError
from crossrank.passes import parse_passes, pipeline, run_passes
from crossrank.program import CompiledProgram, compile
from crossrank.program.kinds import ReduceOp
from crossrank.program.language.dtypes import DataType
from crossrank.program.program import Program
from tests.support import ring_all_reduce

Array = npt.NDArray[Any]

NR, S, R, M = pl.dynamic("NR"), pl.dynamic("S"), pl.dynamic("R"), pl.dynamic("M")
OPS = tuple(ReduceOp)
RANKS = (1, 2, 3, 4, 8)


@cache
def reductions(of: DataType, ops: tuple[ReduceOp, ...]) -> Program:
    """All-reduces of one input by each op, mesh and ring in turn; in the end what is left in the signals."""
    count = len(ops)

    @pl.program
    class Reductions:
        @pl.function(type=pl.FunctionType.InCore)
        def reduce(
            self,
            x: pl.Tensor[[1, S], of],
            out: pl.Out[pl.Tensor[[2 * count, S], of]],
            left: pl.Out[pl.Tensor[[NR, 1], pl.INT32]],
            left_ring: pl.Out[pl.Tensor[[2 * (NR - 1), NR], pl.INT32]],
            data: pl.InOut[pld.DistributedTensor[[1, S], of]],
            cells: pl.InOut[pld.DistributedTensor[[NR, 1], pl.INT32]],
            ring: pl.InOut[pld.DistributedTensor[[2 * (NR - 1), NR], pl.INT32]],
            end: pl.InOut[pld.DistributedTensor[[NR, 1], pl.INT32]],
        ):
            me = pld.rank(pld.get_comm_ctx(data))
            for n in pl.unroll(count):
                data = pld.tensor.put(data, me, x, chunk_cols=4096)
                data = pld.tensor.allreduce(data, cells, op=ops[n])
                out = pld.tensor.get(out, me, data, [2 * n, 0], [0, 0], [1, S], chunk_cols=4096)
                data = pld.tensor.put(data, me, x, chunk_cols=4096)
                data = pld.tensor.allreduce(data, ring, op=ops[n], mode="ring")
                out = pld.tensor.get(out, me, data, [2 * n + 1, 0], [0, 0], [1, S], chunk_cols=4096)
            end = pld.tensor.barrier(end)
            left = pld.tensor.get(left, me, cells, chunk_rows=64)
            left_ring = pld.tensor.get(left_ring, me, ring, chunk_rows=64, chunk_cols=64)
            return out, left, left_ring

        @pl.function(type=pl.FunctionType.Orchestration)
        def chip(
            self,
            x: pl.Tensor[[1, S], of],
            out: pl.Out[pl.Tensor[[2 * count, S], of]],
            left: pl.Out[pl.Tensor[[NR, 1], pl.INT32]],
            left_ring: pl.Out[pl.Tensor[[2 * (NR - 1), NR], pl.INT32]],
            data: pl.InOut[pld.DistributedTensor[[1, S], of]],
            cells: pl.InOut[pld.DistributedTensor[[NR, 1], pl.INT32]],
            ring: pl.InOut[pld.DistributedTensor[[2 * (NR - 1), NR], pl.INT32]],
            end: pl.InOut[pld.DistributedTensor[[NR, 1], pl.INT32]],
        ):
            return self.reduce(x, out, left, left_ring, data, cells, ring, end)

        @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
        def host(
            self,
            x: pl.Tensor[[NR, 1, S], of],
            out: pl.Out[pl.Tensor[[NR, 2 * count, S], of]],
            left: pl.Out[pl.Tensor[[NR, NR, 1], pl.INT32]],
            left_ring: pl.Out[pl.Tensor[[NR, 2 * (NR - 1), NR], pl.INT32]],
        ):
            data_buf = pld.alloc_window_buffer(S * of.get_byte())
            cells_buf = pld.alloc_window_buffer(NR * 4)
            ring_buf = pld.alloc_window_buffer(2 * (NR - 1) * NR * 4)
            end_buf = pld.alloc_window_buffer(NR * 4)
            for r in pl.range(pld.world_size()):
                data = pld.window(data_buf, [1, S], dtype=of)
                cells = pld.window(cells_buf, [NR, 1], dtype=pl.INT32)
                ring = pld.window(ring_buf, [2 * (NR - 1), NR], dtype=pl.INT32)
                end = pld.window(end_buf, [NR, 1], dtype=pl.INT32)
                self.chip(x[r], out[r], left[r], left_ring[r], data, cells, ring, end, device=r)
            return out, left, left_ring

    return Reductions


@cache
def lowered(program: Program, protocol: str) -> Program:
    lowered = program.clone()
    first, *others = pipeline("program")
    assert first.name == "lower-composite-ops"
    run_passes(lowered, [*parse_passes(f"{first.name}{{protocol={protocol}}}"), *others])
    return lowered


@cache
def compiled(program: Program, ranks: int, protocol: str = "newest") -> CompiledProgram:
    return compile(lowered(program, protocol), ranks=ranks, passes=[])


def drawn(rng: np.random.Generator, shape: tuple[int, ...], of: DataType) -> Array:
    element, type = dtype_of(of.element.numpy), of.element.numpy
    if not element.is_float:
        return rng.integers(0 if not element.is_signed else -100, 2 if element.bits == 1 else 100, shape).astype(type)
    values = rng.standard_normal(shape).astype(type)
    values[rng.random(shape) < 0.1] = rng.choice([0.0, -0.0, np.nan, np.inf])
    values[..., :1] = -0.0
    return values


def same(a: Array, b: Array) -> bool:
    """Whether all bits are the same, NaN being NaN."""
    nan = np.asarray(a != a) & np.asarray(b != b)
    return a.dtype == b.dtype and a.shape == b.shape and bool(((a == b) & (np.signbit(a) == np.signbit(b)) | nan).all())


@pytest.mark.parametrize(
    ("of", "ops", "cases"),
    [
        (pl.FP32, OPS, [(n, s) for n in RANKS for s in (0, 1, 70)] + [(3, 9001), (24, 50), (64, 100)]),
        (pl.FP16, OPS, [(n, 70) for n in RANKS] + [(2, 20000), (8, 0)]),
        (pl.BF16, (ReduceOp.Sum,), [(n, 70) for n in RANKS]),
        (pl.INT8, OPS, [(n, 100) for n in RANKS]),
        (pl.BOOL, (ReduceOp.Sum,), [(4, 40)]),
    ],
    ids=lambda value: str(value) if isinstance(value, DataType) else "",
)
def test_all_reduce(of: DataType, ops: tuple[ReduceOp, ...], cases: list[tuple[int, int]]) -> None:
    rng = np.random.default_rng(1)
    for ranks, size in cases:
        x = drawn(rng, (ranks, 1, size), of)
        out = np.empty((ranks, 2 * len(ops), size), x.dtype)
        left, left_ring = np.ones((ranks, ranks, 1), np.int32), np.ones((ranks, 2 * (ranks - 1), ranks), np.int32)
        compiled(reductions(of, ops), ranks)(x, out, left, left_ring)
        with np.errstate(all="ignore"):
            for n, op in enumerate(ops):
                mesh, ring = semantics.all_reduce(list(x), op.collective)[0], ring_all_reduce(list(x), op.collective)
                for rank in range(ranks):
                    assert same(out[rank, 2 * n : 2 * n + 1], mesh), (ranks, size, op, "mesh", rank)
                    assert same(out[rank, 2 * n + 1 : 2 * n + 2], ring), (ranks, size, op, "ring", rank)
        assert not left.any()
        assert not left_ring.any()


@pl.program
class Rounds:
    """Rounds of the other collectives, in a loop and in branches, all on one signal; ranks take different time."""

    @pl.function(type=pl.FunctionType.InCore)
    def rounds(
        self,
        x: pl.Tensor[[R, NR, S], pl.FP32],
        work: pl.Tensor[[R], pl.INT32],
        reduced: pl.Out[pl.Tensor[[R, S], pl.FP32]],
        shown: pl.Out[pl.Tensor[[R, S], pl.FP32]],
        gathered: pl.Out[pl.Tensor[[R, NR, S], pl.FP32]],
        swapped: pl.Out[pl.Tensor[[R, NR, S], pl.FP32]],
        left: pl.Out[pl.Tensor[[NR, 1], pl.INT32]],
        rows: pl.InOut[pld.DistributedTensor[[NR, S], pl.FP32]],
        one: pl.InOut[pld.DistributedTensor[[1, S], pl.FP32]],
        all_: pl.InOut[pld.DistributedTensor[[NR, S], pl.FP32]],
        parts: pl.InOut[pld.DistributedTensor[[NR, S], pl.FP32]],
        cells: pl.InOut[pld.DistributedTensor[[NR, 1], pl.INT32]],
        end: pl.InOut[pld.DistributedTensor[[NR, 1], pl.INT32]],
    ):
        ctx = pld.get_comm_ctx(rows)
        me = pld.rank(ctx)
        for n in pl.range(R):
            own = x[n]
            first = pl.slice(own, [1, S], [0, 0])
            for _ in pl.range(pl.read(work, [n])):
                rows = pld.tensor.put(rows, me, own, chunk_rows=1, chunk_cols=4096)
            if n % 3 == 0:
                rows = pld.tensor.reduce_scatter(rows, cells, op=ReduceOp.Sum)
            elif n % 3 == 1:
                rows = pld.tensor.reduce_scatter(rows, cells, op=ReduceOp.Max)
            else:
                rows = pld.tensor.reduce_scatter(rows, cells, op=ReduceOp.Prod)
            reduced = pld.tensor.get(reduced, me, rows, [n, 0], [me, 0], [1, S], chunk_cols=4096)
            one = pld.tensor.put(one, me, first, chunk_cols=4096)
            if pld.nranks(ctx) > 1:
                one = pld.tensor.broadcast(one, cells, root=1)
            else:
                one = pld.tensor.broadcast(one, cells, root=0)
            shown = pld.tensor.get(shown, me, one, [n, 0], [0, 0], [1, S], chunk_cols=4096)
            all_ = pld.tensor.allgather(first, all_, cells)
            parts = pld.tensor.all_to_all(own, parts, cells)
            for r in pl.range(NR):
                to = pl.slice(gathered[n], [1, S], [r, 0])
                to = pld.tensor.get(to, me, all_, [0, 0], [r, 0], [1, S], chunk_cols=4096)
                to = pl.slice(swapped[n], [1, S], [r, 0])
                to = pld.tensor.get(to, me, parts, [0, 0], [r, 0], [1, S], chunk_cols=4096)
        cells = pld.tensor.barrier(cells)
        end = pld.tensor.barrier(end)
        left = pld.tensor.get(left, me, cells, chunk_rows=64)
        return reduced, shown, gathered, swapped, left

    @pl.function(type=pl.FunctionType.Orchestration)
    def chip(
        self,
        x: pl.Tensor[[R, NR, S], pl.FP32],
        work: pl.Tensor[[R], pl.INT32],
        reduced: pl.Out[pl.Tensor[[R, S], pl.FP32]],
        shown: pl.Out[pl.Tensor[[R, S], pl.FP32]],
        gathered: pl.Out[pl.Tensor[[R, NR, S], pl.FP32]],
        swapped: pl.Out[pl.Tensor[[R, NR, S], pl.FP32]],
        left: pl.Out[pl.Tensor[[NR, 1], pl.INT32]],
        rows: pl.InOut[pld.DistributedTensor[[NR, S], pl.FP32]],
        one: pl.InOut[pld.DistributedTensor[[1, S], pl.FP32]],
        all_: pl.InOut[pld.DistributedTensor[[NR, S], pl.FP32]],
        parts: pl.InOut[pld.DistributedTensor[[NR, S], pl.FP32]],
        cells: pl.InOut[pld.DistributedTensor[[NR, 1], pl.INT32]],
        end: pl.InOut[pld.DistributedTensor[[NR, 1], pl.INT32]],
    ):
        return self.rounds(x, work, reduced, shown, gathered, swapped, left, rows, one, all_, parts, cells, end)

    @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
    def host(
        self,
        x: pl.Tensor[[NR, R, NR, S], pl.FP32],
        work: pl.Tensor[[NR, R], pl.INT32],
        reduced: pl.Out[pl.Tensor[[NR, R, S], pl.FP32]],
        shown: pl.Out[pl.Tensor[[NR, R, S], pl.FP32]],
        gathered: pl.Out[pl.Tensor[[NR, R, NR, S], pl.FP32]],
        swapped: pl.Out[pl.Tensor[[NR, R, NR, S], pl.FP32]],
        left: pl.Out[pl.Tensor[[NR, NR, 1], pl.INT32]],
    ):
        rows_buf = pld.alloc_window_buffer(NR * S * 4)
        one_buf = pld.alloc_window_buffer(S * 4)
        all_buf = pld.alloc_window_buffer(NR * S * 4)
        parts_buf = pld.alloc_window_buffer(NR * S * 4)
        cells_buf = pld.alloc_window_buffer(NR * 4)
        end_buf = pld.alloc_window_buffer(NR * 4)
        for r in pl.range(pld.world_size()):
            rows = pld.window(rows_buf, [NR, S], dtype=pl.FP32)
            one = pld.window(one_buf, [1, S], dtype=pl.FP32)
            all_ = pld.window(all_buf, [NR, S], dtype=pl.FP32)
            parts = pld.window(parts_buf, [NR, S], dtype=pl.FP32)
            cells = pld.window(cells_buf, [NR, 1], dtype=pl.INT32)
            end = pld.window(end_buf, [NR, 1], dtype=pl.INT32)
            self.chip(
                x[r], work[r], reduced[r], shown[r], gathered[r], swapped[r], left[r],
                rows, one, all_, parts, cells, end, device=r,
            )  # fmt: skip
        return reduced, shown, gathered, swapped, left


@pytest.mark.parametrize("ranks", [*RANKS, 24])
def test_other_collectives(ranks: int) -> None:
    rng = np.random.default_rng(ranks)
    for rounds, size in ((6, 40), (2, 5000), (1, 0)):
        x = drawn(rng, (ranks, rounds, ranks, size), pl.FP32)
        work = rng.integers(1, 20, (ranks, rounds)).astype(np.int32)
        reduced, shown = (np.empty((ranks, rounds, size), np.float32) for _ in range(2))
        gathered, swapped = (np.empty(x.shape, np.float32) for _ in range(2))
        left = np.ones((ranks, ranks, 1), np.int32)
        compiled(Rounds, ranks)(x, work, reduced, shown, gathered, swapped, left)
        for n in range(rounds):
            inputs = [x[rank, n] for rank in range(ranks)]
            op = (ReduceOp.Sum, ReduceOp.Max, ReduceOp.Prod)[n % 3]
            with np.errstate(all="ignore"):
                scattered = semantics.reduce_scatter(inputs, op.collective, 0)
            all_ = semantics.all_gather([rows[:1] for rows in inputs], 0)
            parts = semantics.all_to_all(inputs, 0)
            for rank in range(ranks):
                assert same(reduced[rank, n : n + 1], scattered[rank]), (n, rank)
                assert same(shown[rank, n], x[min(1, ranks - 1), n, 0]), (n, rank)
                assert same(gathered[rank, n], all_[rank]), (n, rank)
                assert same(swapped[rank, n], parts[rank]), (n, rank)
        assert not left.any()


@cache
def ragged(ranks: int, capacity: int) -> Program:
    """Rounds on one signal: all-to-all-v with counts in a window, in a plain tensor, and with an index."""
    rows = ranks * capacity

    @pl.program
    class Ragged:
        @pl.function(type=pl.FunctionType.InCore)
        def rounds(
            self,
            x: pl.Tensor[[R, rows, S], pl.INT16],
            counts: pl.Tensor[[R, ranks], pl.INT32],
            index: pl.Tensor[[R, rows], pl.INT32],
            got: pl.Out[pl.Tensor[[3, R, rows, S], pl.INT16]],
            seen: pl.Out[pl.Tensor[[3, R, ranks, 1], pl.INT32]],
            to: pl.InOut[pld.DistributedTensor[[rows, S], pl.INT16]],
            shown: pl.InOut[pld.DistributedTensor[[ranks], pl.INT32]],
            recv: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
            cells: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
        ):
            me = pld.rank(pld.get_comm_ctx(to))
            for n in pl.range(R):
                shown = pld.tensor.put(shown, me, counts[n])
                to = pld.tensor.all_to_all_v(x[n], to, cells, shown, recv)
                here = got[0, n]
                here = pld.tensor.get(here, me, to, chunk_cols=64)
                count = seen[0, n]
                count = pld.tensor.get(count, me, recv)
                cells = pld.tensor.barrier(cells)
                to = pld.tensor.all_to_all_v(x[n], to, cells, counts[n], recv)
                here = got[1, n]
                here = pld.tensor.get(here, me, to, chunk_cols=64)
                count = seen[1, n]
                count = pld.tensor.get(count, me, recv)
                cells = pld.tensor.barrier(cells)
                to = pld.tensor.indexed_all_to_all_v(x[n], to, cells, shown, seen[2, n], index[n])
                here = got[2, n]
                here = pld.tensor.get(here, me, to, chunk_cols=64)
                cells = pld.tensor.barrier(cells)
            return got, seen

        @pl.function(type=pl.FunctionType.Orchestration)
        def chip(
            self,
            x: pl.Tensor[[R, rows, S], pl.INT16],
            counts: pl.Tensor[[R, ranks], pl.INT32],
            index: pl.Tensor[[R, rows], pl.INT32],
            got: pl.Out[pl.Tensor[[3, R, rows, S], pl.INT16]],
            seen: pl.Out[pl.Tensor[[3, R, ranks, 1], pl.INT32]],
            to: pl.InOut[pld.DistributedTensor[[rows, S], pl.INT16]],
            shown: pl.InOut[pld.DistributedTensor[[ranks], pl.INT32]],
            recv: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
            cells: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
        ):
            return self.rounds(x, counts, index, got, seen, to, shown, recv, cells)

        @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
        def host(
            self,
            x: pl.Tensor[[ranks, R, rows, S], pl.INT16],
            counts: pl.Tensor[[ranks, R, ranks], pl.INT32],
            index: pl.Tensor[[ranks, R, rows], pl.INT32],
            got: pl.Out[pl.Tensor[[ranks, 3, R, rows, S], pl.INT16]],
            seen: pl.Out[pl.Tensor[[ranks, 3, R, ranks, 1], pl.INT32]],
        ):
            to_buf = pld.alloc_window_buffer(rows * S * 2)
            shown_buf = pld.alloc_window_buffer(ranks * 4)
            recv_buf = pld.alloc_window_buffer(ranks * 4)
            cells_buf = pld.alloc_window_buffer(ranks * 4)
            for r in pl.range(pld.world_size()):
                to = pld.window(to_buf, [rows, S], dtype=pl.INT16)
                shown = pld.window(shown_buf, [ranks], dtype=pl.INT32)
                recv = pld.window(recv_buf, [ranks, 1], dtype=pl.INT32)
                cells = pld.window(cells_buf, [ranks, 1], dtype=pl.INT32)
                self.chip(x[r], counts[r], index[r], got[r], seen[r], to, shown, recv, cells, device=r)
            return got, seen

    return Ragged


@pytest.mark.parametrize(
    ("ranks", "capacity", "protocol"), [(1, 3, "newest"), (4, 5, "newest"), (4, 5, "full_capacity")]
)
def test_all_to_all_v(ranks: int, capacity: int, protocol: str) -> None:
    """Counts below 0 and above the capacity are clamped; rows behind a count are as they were, or as they were sent."""
    rng = np.random.default_rng(ranks)
    for rounds, size in ((5, 7), (1, 3000)):
        x = drawn(rng, (ranks, rounds, ranks * capacity, size), pl.INT16)
        counts = rng.integers(-2, capacity + 3, (ranks, rounds, ranks)).astype(np.int32)
        index = rng.integers(0, ranks * capacity, (ranks, rounds, ranks * capacity)).astype(np.int32)
        got = np.empty((ranks, 3, *x.shape[1:]), np.int16)
        seen = np.empty((ranks, 3, rounds, ranks, 1), np.int32)
        compiled(ragged(ranks, capacity), ranks, protocol)(x, counts, index, got, seen)
        blocks = x.reshape(ranks, rounds, ranks, capacity, size)
        clamped = counts.clip(0, capacity)
        for rank in range(ranks):
            so_far = np.zeros((ranks, capacity, size), np.int16)
            for n in range(rounds):
                for src in range(ranks):
                    moved = clamped[src, n, rank] if protocol == "newest" else capacity
                    so_far[src, :moved] = blocks[src, n, rank, :moved]
                for turn in range(3):
                    for src in range(ranks) if turn == 2 else ():
                        picked = index[src, n, rank * capacity :][: clamped[src, n, rank]]
                        so_far[src, : len(picked)] = x[src, n, picked]
                    assert np.array_equal(seen[rank, turn, n, :, 0], clamped[:, n, rank])
                    assert np.array_equal(got[rank, turn, n].reshape(so_far.shape), so_far)


@pytest.mark.parametrize("entry", [-1, 6])
def test_an_index_that_is_none(entry: int) -> None:
    """Of one of 6 rows, in an entry that counts."""
    x, counts = np.zeros((2, 1, 6, 4), np.int16), np.full((2, 1, 2), 2, np.int32)
    index, got, seen = (
        np.zeros((2, 1, 6), np.int32),
        np.zeros((2, 3, 1, 6, 4), np.int16),
        np.zeros((2, 3, 1, 2, 1), "i4"),
    )
    index[1, 0, [2, 5]] = entry  # behind the 2 that are sent
    compiled(ragged(2, 3), 2)(x, counts, index, got, seen)
    index[1, 0, 4] = entry
    what = rf"rounds on rank 1: pld.tensor.put reads rows {entry}..{entry + 1} of x, which has "
    with pytest.raises(RunError, match=what):
        compiled(ragged(2, 3), 2)(x, counts, index, got, seen)
