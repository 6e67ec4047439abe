"""Domains of some devices, on every rail: ranks count within each, and a domain knows nothing of the others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import crossrank.program.language as pl
import crossrank.program.language.distributed as pld
from crossrank.collective import semantics
from crossrank.program import compile
from crossrank.program.execute.failures import Latched
from crossrank.program.kinds import ReduceOp
from crossrank.program.program import Program

SIZE = 40
NR, CELLS = pl.dynamic("NR"), pl.dynamic("CELLS")


def groups(rail: str, first: Sequence[int], second: Sequence[int], rows: int) -> Program:
    """The same functions in two domains, one after the other. ``rows`` are those of the first one's signal."""
    in_kernel, on_chip, on_host = (rail == r for r in ("incore", "chip", "host"))

    @pl.program
    class Groups:
        @pl.function(type=pl.FunctionType.InCore)
        def stage(
            self,
            x: pl.Tensor[[NR, SIZE], pl.FP32],
            own: pl.InOut[pld.DistributedTensor[[NR, SIZE], pl.FP32]],
            sums: pl.InOut[pld.DistributedTensor[[NR, SIZE], pl.FP32]],
        ):
            for r in pl.range(NR):
                row = pl.load(x, [r, 0], [1, SIZE])
                own = pl.store(row, [r, 0], own)
                sums = pl.store(row, [r, 0], sums)
            return own, sums

        @pl.function(type=pl.FunctionType.InCore)
        def within(
            self,
            own: pl.InOut[pld.DistributedTensor[[NR, SIZE], pl.FP32]],
            sums: pl.InOut[pld.DistributedTensor[[NR, SIZE], pl.FP32]],
            parts: pl.InOut[pld.DistributedTensor[[NR, SIZE], pl.FP32]],
            signal: pl.InOut[pld.DistributedTensor[[CELLS, 1], pl.INT32]],
        ):
            parts = pld.tensor.all_to_all(own, parts, signal)
            sums = pld.tensor.allreduce(sums, signal)
            sums = pld.tensor.broadcast(sums, signal, root=1)
            return sums, parts

        @pl.function(type=pl.FunctionType.InCore)
        def show(
            self,
            who: pl.Out[pl.Tensor[[4], pl.INT32]],
            out: pl.Out[pl.Tensor[[2, NR, SIZE], pl.FP32]],
            sums: pl.InOut[pld.DistributedTensor[[NR, SIZE], pl.FP32]],
            parts: pl.InOut[pld.DistributedTensor[[NR, SIZE], pl.FP32]],
            rank: pl.Scalar[pl.INT32],
            ranks: pl.Scalar[pl.INT32],
        ):
            ctx = pld.get_comm_ctx(sums)
            pl.write(who, [0], rank)
            pl.write(who, [1], ranks)
            pl.write(who, [2], pl.cast(pld.rank(ctx), pl.INT32))
            pl.write(who, [3], pl.cast(pld.nranks(ctx), pl.INT32))
            for r in pl.range(NR):
                out[0, r : r + 1, 0:SIZE] = pl.load(sums, [r, 0], [1, SIZE])
                out[1, r : r + 1, 0:SIZE] = pl.load(parts, [r, 0], [1, SIZE])
            return who, out

        @pl.function(type=pl.FunctionType.Orchestration)
        def begin(
            self,
            x: pl.Tensor[[NR, SIZE], pl.FP32],
            own: pl.InOut[pld.DistributedTensor[[NR, SIZE], pl.FP32]],
            sums: pl.InOut[pld.DistributedTensor[[NR, SIZE], pl.FP32]],
            parts: pl.InOut[pld.DistributedTensor[[NR, SIZE], pl.FP32]],
            signal: pl.InOut[pld.DistributedTensor[[CELLS, 1], pl.INT32]],
        ):
            own, sums = self.stage(x, own, sums)
            if in_kernel:
                sums, parts = self.within(own, sums, parts, signal)
            if on_chip:
                parts = pld.tensor.all_to_all(own, parts, signal)
                sums = pld.tensor.allreduce(sums, signal)
                sums = pld.tensor.broadcast(sums, signal, root=1)

        @pl.function(type=pl.FunctionType.Orchestration)
        def end(
            self,
            who: pl.Out[pl.Tensor[[4], pl.INT32]],
            out: pl.Out[pl.Tensor[[2, NR, SIZE], pl.FP32]],
            sums: pl.InOut[pld.DistributedTensor[[NR, SIZE], pl.FP32]],
            parts: pl.InOut[pld.DistributedTensor[[NR, SIZE], pl.FP32]],
        ):
            ctx = pld.get_comm_ctx(sums)
            rank = pld.rank(ctx)
            self.show(who, out, sums, parts, rank, pld.nranks(ctx))

        @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
        def host(
            self,
            x: pl.Tensor[[len(first), len(first), SIZE], pl.FP32],
            y: pl.Tensor[[len(second), len(second), SIZE], pl.FP32],
            who: pl.Out[pl.Tensor[[len(first) + len(second), 4], pl.INT32]],
            out: pl.Out[pl.Tensor[[len(first), 2, len(first), SIZE], pl.FP32]],
            other: pl.Out[pl.Tensor[[len(second), 2, len(second), SIZE], pl.FP32]],
        ):
            own_1 = pld.alloc_window_buffer([len(first), SIZE], dtype=pl.FP32)
            own_2 = pld.alloc_window_buffer([len(second), SIZE], dtype=pl.FP32)
            sums_1 = pld.alloc_window_buffer([len(first), SIZE], dtype=pl.FP32)
            sums_2 = pld.alloc_window_buffer([len(second), SIZE], dtype=pl.FP32)
            parts_1 = pld.alloc_window_buffer([len(first), SIZE], dtype=pl.FP32)
            parts_2 = pld.alloc_window_buffer([len(second), SIZE], dtype=pl.FP32)
            cells_1 = pld.alloc_window_buffer([rows], dtype=pl.INT32)
            cells_2 = pld.alloc_window_buffer([len(second)], dtype=pl.INT32)
            a = pld.window(own_1, [len(first), SIZE], dtype=pl.FP32)
            b = pld.window(own_2, [len(second), SIZE], dtype=pl.FP32)
            s = pld.window(sums_1, [len(first), SIZE], dtype=pl.FP32)
            t = pld.window(sums_2, [len(second), SIZE], dtype=pl.FP32)
            p = pld.window(parts_1, [len(first), SIZE], dtype=pl.FP32)
            q = pld.window(parts_2, [len(second), SIZE], dtype=pl.FP32)
            c = pld.window(cells_1, [rows, 1], dtype=pl.INT32)
            d = pld.window(cells_2, [len(second), 1], dtype=pl.INT32)
            for n in pl.unroll(len(first)):
                self.begin(x[n], a, s, p, c, device=first[n])
            for n in pl.unroll(len(second)):
                self.begin(y[n], b, t, q, d, device=second[n])
            if on_host:
                pld.tensor.all_to_all(a, p, c)
                pld.tensor.allreduce(s, c)
                pld.tensor.broadcast(s, c, root=1)
                pld.tensor.all_to_all(b, q, d)
                pld.tensor.allreduce(t, d)
                pld.tensor.broadcast(t, d, root=1)
            for n in pl.unroll(len(first)):
                self.end(who[n], out[n], s, p, device=first[n])
            for n in pl.unroll(len(second)):
                self.end(who[len(first) + n], other[n], t, q, device=second[n])
            return who, out, other

    return Groups


def drawn(*groups: Sequence[int]) -> list[npt.NDArray[np.float32]]:
    rng = np.random.default_rng(len(groups))
    return [rng.normal(size=(len(g), len(g), SIZE)).astype(np.float32) for g in groups]


@pytest.mark.parametrize("rail", ["incore", "chip", "host"])
@pytest.mark.parametrize(("first", "second", "spare"), [([0, 1], [2, 3], 0), ([0, 2], [1, 2, 3], 3)])
def test_two_domains(rail: str, first: list[int], second: list[int], spare: int) -> None:
    rows = len(first) + (spare if rail == "incore" else 0)  # kernels leave the others alone
    inputs = drawn(first, second)
    who, *outs = compile(groups(rail, first, second, rows), ranks=4)(*inputs)
    np.testing.assert_array_equal(who[:, [0, 2]].T, [[n for g in (first, second) for n in range(len(g))]] * 2)
    np.testing.assert_array_equal(who[:, [1, 3]].T, [[len(g) for g in (first, second) for _ in g]] * 2)
    for x, out in zip(inputs, outs, strict=True):
        np.testing.assert_array_equal(out[:, 0], semantics.all_reduce(list(x), ReduceOp.Sum.collective))
        np.testing.assert_array_equal(out[:, 1], semantics.all_to_all(list(x), 0))


LINES = Path(__file__).read_text().splitlines()
FIRST = next(n for n, text in enumerate(LINES, 1) if "pld.tensor.all_to_all(own" in text and "on_chip" in LINES[n - 2])


@pytest.mark.parametrize("rows", [1, 3])
def test_a_signal_that_is_not_the_domains(rows: int) -> None:
    with pytest.raises(Latched) as raised:
        compile(groups("chip", [0, 2], [1, 3], rows), ranks=4)(*drawn([0, 2], [1, 3]))
    place, _, what = str(raised.value).partition(": ")
    assert place.rpartition("/")[2].startswith(f"test_subsets.py:{FIRST}:")
    assert what == f"signal rows {rows} differ from the domain's size 2 (code 5)"
    assert (raised.value.code, raised.value.status) == (5, -5)
