"""Kernels that programs launch in blocks: what a block does, values against NumPy, signals that are used again."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from crossrank.collective import semantics
from crossrank.collective.dtypes import ALL, F32, DType, dtype
from crossrank.collective.kinds import Kind, ReduceOp
from crossrank.kernels import Variant, has_kernel
from crossrank.kernels.compile import Unit, build
from crossrank.kernels.render import render, render_managed
from crossrank.runtime.tasks import Context, Engine, Fault, Hang
from crossrank.runtime.threads import Tensor, entry
from tests.kernels.test_collectives import assert_same, draw
from tests.support import ring_all_reduce

Array = npt.NDArray[Any]

PLAN = """
#include "crossrank/plan.h"
using namespace crossrank;
extern "C" void lanes(uint64_t block, uint64_t blocks, uint64_t ranks, uint64_t* into) {
  const Lanes l = lanes_of(block, blocks, ranks);
  into[0] = l.first, into[1] = l.step, into[2] = l.lane, into[3] = l.lanes;
}
extern "C" void part(uint64_t elements, uint64_t bytes, uint64_t lane, uint64_t lanes, uint64_t* into) {
  const Range r = part_of(elements, bytes, {0, 1, lane, lanes});
  into[0] = r.offset, into[1] = r.bytes;
}
"""


@cache
def plan() -> ctypes.CDLL:
    return ctypes.CDLL(str(build(Unit("test-plan", PLAN, flags=("-O1",)))))


def asked(name: str, *numbers: int, results: int) -> list[int]:
    into = (ctypes.c_uint64 * results)()
    getattr(plan(), name)(*map(ctypes.c_uint64, numbers), into)
    return list(into)


@pytest.mark.parametrize(
    ("blocks", "ranks", "peers"),
    [
        (1, 4, [[0, 1, 2, 3]]),
        (3, 4, [[0, 3], [1], [2]]),
        (4, 4, [[0], [1], [2], [3]]),
        (6, 2, [[0], [0], [0], [1], [1], [1]]),
        (5, 2, [[0], [0], [1], [1], []]),
    ],
)
def test_peers_of_blocks(blocks: int, ranks: int, peers: list[list[int]]) -> None:
    found = []
    for block in range(blocks):
        first, step, lane, lanes = asked("lanes", block, blocks, ranks, results=4)
        found.append(list(range(first, ranks, step)))
        assert (lane, lanes) == ((0, 1) if blocks < ranks else (block % (blocks // ranks), blocks // ranks))
    assert found == peers


@pytest.mark.parametrize(
    ("elements", "size", "bounds"),
    [
        (64, 4, [0, 96, 192, 256]),
        (64, 1, [0, 32, 64, 64]),
        (3, 4, [0, 12, 12, 12]),
        (0, 8, [0, 0, 0, 0]),
        (7, 2, [0, 14, 14, 14]),
        (24, 8, [0, 64, 128, 192]),
    ],
)
def test_parts_of_lanes(elements: int, size: int, bounds: list[int]) -> None:
    lanes = len(bounds) - 1
    for lane in range(lanes):
        begin, bytes_ = asked("part", elements, size, lane, lanes, results=2)
        assert (begin, begin + bytes_) == (bounds[lane], bounds[lane + 1])


class Group:
    """Ranks that run rounds of one kernel on the engine of tasks.

    Args:
        template: of the kernel.
        tensors: for each operand the arrays of all ranks, and whether peers can reach them.
        contexts: how many the kernel takes.
        op: the reduce op.
        of: the element type.
        library: has the kernel; None: one of its own.
    """

    def __init__(
        self,
        template: str,
        tensors: Sequence[tuple[Sequence[Array], bool]],
        contexts: int,
        op: ReduceOp | None = None,
        of: DType = F32,
        library: Path | None = None,
    ) -> None:
        symbol, source = render_managed(template, op, of)
        self.kernel = entry(library or build(Unit(symbol, source)), symbol)
        self.name = template
        self.tensors = tensors
        self.contexts = contexts
        self.ranks = len(tensors[0][0])

    def run(
        self, blocks: int = 1, scalars: Sequence[int] = (), ranks: Sequence[int] | None = None, rounds: int = 1
    ) -> None:
        """Launch it on some ranks, all of them unless said otherwise, round after round."""
        peers = [[a.ctypes.data for a in arrays] if reached else None for arrays, reached in self.tensors]
        with Engine(limit=20) as engine:
            engine.keep(self.tensors)
            with engine.orchestrator():
                for rank in range(self.ranks) if ranks is None else ranks:
                    given = [Tensor.of(arrays[rank]) for arrays, _ in self.tensors]
                    contexts = [Context.of(1, rank, self.ranks, peers)] * self.contexts
                    before: list[int] = []
                    for _ in range(rounds):
                        task = engine.submit(self.kernel, self.name, rank, given, contexts, scalars, before, blocks)
                        before = [task]
                engine.finish()


def windows(arrays: Sequence[Array]) -> tuple[list[Array], bool]:
    return list(arrays), True


def local(arrays: Sequence[Array]) -> tuple[list[Array], bool]:
    return list(arrays), False


def signals(ranks: int, blocks: int) -> list[Array]:
    return [np.zeros((ranks, blocks + 1), np.int32) for _ in range(ranks)]


CASES = [(1, 1), (2, 3), (3, 1), (4, 4), (8, 1), (8, 20), (24, 2)]


@pytest.mark.parametrize(("ranks", "blocks"), CASES)
def test_one_signal_serves_all(ranks: int, blocks: int) -> None:
    """Collectives one after another; each leaves the signal as it was, and spare columns are never touched."""
    rng = np.random.default_rng(ranks)
    signal = signals(ranks, blocks)
    for cells in signal:
        cells[:, blocks] = 7
    for size in (0, 5, 3001):
        x = [draw((ranks, size), F32, rng) for _ in range(ranks)]
        rows = [a[:1].copy() for a in x]

        target = [a.copy() for a in x]
        with np.errstate(all="ignore"):
            summed = semantics.all_reduce(x, ReduceOp.ADD)
        Group("all_reduce", [windows(target), windows(signal)], 2, ReduceOp.ADD).run(blocks)
        assert_same(target, summed, "all-reduce")

        target = [a.copy() for a in x]
        Group("reduce_scatter", [windows(target), windows(signal)], 2, ReduceOp.ADD).run(blocks)
        assert_same([a[r] for r, a in enumerate(target)], [a[r] for r, a in enumerate(summed)], "reduce-scatter")
        for r, (a, before) in enumerate(zip(target, x, strict=True)):
            assert_same(np.delete(a, r, 0), np.delete(before, r, 0), "rows of others stay")

        target = [a.copy() for a in x]
        root = ranks // 2
        Group("collective_broadcast", [windows(target), windows(signal)], 2).run(blocks, [root])
        assert_same(target, [x[root]] * ranks, "broadcast")

        target = [np.zeros_like(a) for a in x]
        Group("all_gather", [local(rows), windows(target), windows(signal)], 2).run(blocks)
        assert_same(target, semantics.all_gather(rows, 0), "all-gather")

        target = [np.zeros_like(a) for a in x]
        Group("all_to_all", [local(x), windows(target), windows(signal)], 2).run(blocks)
        assert_same(target, semantics.all_to_all(x, 0), "all-to-all")

        Group("barrier", [windows(signal)], 1).run(blocks)
        for cells in signal:
            assert not cells[:, :blocks].any()
            assert (cells[:, blocks] == 7).all()


@pytest.mark.parametrize(("ranks", "blocks"), CASES)
@pytest.mark.parametrize("of", ["f32", "s8"])
def test_all_to_all_v(ranks: int, blocks: int, of: str) -> None:
    """Counts below 0 and above the capacity are clamped; rows behind a count, and spare columns, are left alone."""
    rng = np.random.default_rng(ranks)
    signal = signals(ranks, blocks)
    target: list[Array] = []
    picked: list[Array] = []
    for round_, (most, size) in enumerate(((3, 64), (3, 64), (5, 17), (1, 0))):
        x = [draw((ranks * most, size), dtype(of), rng) for _ in range(ranks)]
        index = [rng.integers(0, ranks * most, (ranks * most, 1), np.int32) for _ in range(ranks)]
        counts = [rng.choice([-2, 0, 1, most, most + 3], (ranks, 1)).astype(np.int32) for _ in range(ranks)]
        if round_ != 1:  # else it is used again
            target, picked = ([np.full_like(a, 1) for a in x] for _ in range(2))
        received, seen = ([np.full((ranks, 1), -9, np.int32) for _ in range(ranks)] for _ in range(2))
        wanted, wanted_picked = ([a.copy() for a in t] for t in (target, picked))
        for src in range(ranks):
            for dst in range(ranks):
                rows = min(max(int(counts[src][dst, 0]), 0), most)
                block = x[src][dst * most :][:rows]
                wanted[dst][src * most :][:rows] = block
                wanted_picked[dst][src * most :][:rows] = x[src][index[src][dst * most :][:rows, 0]]
        clamped = np.array(counts).clip(0, most)[:, :, 0]
        operands = [local(x), windows(target), windows(signal), local(counts), windows(received)]
        Group("all_to_all_v", operands, 3).run(blocks)
        operands = [local(x), windows(picked), windows(signal), windows(counts), local(seen), local(index)]
        Group("indexed_all_to_all_v", operands, 3).run(blocks)
        assert_same(target, wanted, "all-to-all-v")
        assert_same(picked, wanted_picked, "indexed")
        for rank in range(ranks):
            assert np.array_equal(received[rank][:, 0], clamped[:, rank])
            assert np.array_equal(seen[rank][:, 0], clamped[:, rank])
            assert not signal[rank].any()


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 24])
@pytest.mark.parametrize(("op", "of"), [(ReduceOp.ADD, "f32"), (ReduceOp.MULTIPLY, "f16"), (ReduceOp.MAXIMUM, "s8")])
def test_ring(ranks: int, op: ReduceOp, of: str) -> None:
    rng = np.random.default_rng(ranks)
    signal = [np.zeros((2 * ranks - 1, ranks), np.int32) for _ in range(ranks)]
    for size in (0, 1, 70, 9001):
        x = [draw((1, size), dtype(of), rng) for _ in range(ranks)]
        target = [a.copy() for a in x]
        Group("all_reduce_ring", [windows(target), windows(signal)], 2, op, dtype(of)).run()
        with np.errstate(all="ignore"):
            wanted = ring_all_reduce(x, op)
        assert_same(target, [wanted] * ranks, (op, of, size))
        assert not any(cells.any() for cells in signal)


NUMBERS = [t for t in ALL if has_kernel(Kind.ALL_REDUCE, ReduceOp.ADD, t) and not t.is_complex]


@cache
def sums() -> Path:
    """All-reduces and rings of every type, as one library; types that share their code have one."""
    templates = ("all_reduce", "all_reduce_ring")
    sources = dict(render_managed(template, ReduceOp.ADD, of) for template in templates for of in NUMBERS)
    return build(Unit("test-sums", "\n".join(sources.values()), flags=("-O1",)))


@pytest.mark.parametrize("of", NUMBERS, ids=str)
def test_every_type(of: DType) -> None:
    rng = np.random.default_rng(1)
    x = [draw((1, 1001), of, rng) for _ in range(3)]
    ring_signal = [np.zeros((5, 3), np.int32) for _ in range(3)]
    target, ring_target = ([a.copy() for a in x] for _ in range(2))
    Group("all_reduce", [windows(target), windows(signals(3, 2))], 2, ReduceOp.ADD, of, sums()).run(2)
    Group("all_reduce_ring", [windows(ring_target), windows(ring_signal)], 2, ReduceOp.ADD, of, sums()).run()
    with np.errstate(all="ignore"):
        assert_same(target, semantics.all_reduce(x, ReduceOp.ADD), of)
        assert_same(ring_target, [ring_all_reduce(x, ReduceOp.ADD)] * 3, of)


@pytest.mark.parametrize(("template", "blocks"), [("all_reduce", 1), ("all_reduce", 3), ("all_reduce_ring", 1)])
def test_rounds(template: str, blocks: int) -> None:
    """Who is fast may be at the next one already: it takes nothing that others still need."""
    ranks, rounds = 5, 40
    cells = (2 * ranks - 1, ranks) if template == "all_reduce_ring" else (ranks, blocks)
    signal = [np.zeros(cells, np.int32) for _ in range(ranks)]
    x = [np.full((1, 301), rank, np.int32) for rank in range(ranks)]
    Group(template, [windows(x), windows(signal)], 2, ReduceOp.ADD, dtype("s32")).run(blocks, rounds=rounds)
    total = sum(range(ranks)) * pow(ranks, rounds - 1, 2**32) % 2**32
    assert_same(x, [np.full((1, 301), total, np.uint32).view(np.int32)] * ranks, template)
    assert not any(cells.any() for cells in signal)


def test_index_that_is_not_there() -> None:
    x, target = ([np.zeros((4, 3), np.float32) for _ in range(2)] for _ in range(2))
    counts, received = ([np.full((2, 1), 2, np.int32) for _ in range(2)] for _ in range(2))
    index = [np.array([[0], [1], [2], [row]], np.int32) for row in (3, 4)]
    operands = [local(x), windows(target), windows(signals(2, 1)), windows(counts), local(received), local(index)]
    with pytest.raises(Fault, match=r"rank 1 failed: index\[3\] is 4, and input has 4 rows"):
        Group("indexed_all_to_all_v", operands, 3).run()


def test_who_is_missing() -> None:
    """Whoever waits for several ranks says all that have not come."""
    with pytest.raises(Hang) as caught:
        Group("barrier", [windows(signals(5, 2))], 1).run(2, ranks=(1, 3))
    waits = {(t.rank, w.block, w.cell) for t in caught.value.stuck.tasks for w in t.waits if w.what == "cell"}
    assert waits == {(rank, block, 3 * src + block) for rank in (1, 3) for block in (0, 1) for src in (0, 2, 4)}


@pytest.mark.parametrize(
    ("kind", "op"),
    [
        (Kind.ALL_REDUCE, ReduceOp.ADD),
        (Kind.REDUCE_SCATTER, ReduceOp.MAXIMUM),
        (Kind.ALL_GATHER, None),
        (Kind.ALL_TO_ALL, None),
        (Kind.COLLECTIVE_BROADCAST, None),
    ],
)
def test_one_source_for_all_doors(kind: Kind, op: ReduceOp | None) -> None:
    """What an HLO module runs is what a program launches."""
    of_module = render(Variant(kind, op, F32 if op else None))
    assert render_managed(kind.replace("-", "_"), op, F32)[1] == of_module
