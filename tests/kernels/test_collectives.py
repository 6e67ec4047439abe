"""Every kernel against the NumPy meaning, bit for bit: its body block by block, and ranks that are threads."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from crossrank.collective import semantics
from crossrank.collective.dtypes import ALL, F32, DType, dtype
from crossrank.collective.kinds import Kind, ReduceOp
from crossrank.errors import RunError
from crossrank.kernels import Variant, compile_variants, has_kernel
from crossrank.runtime.threads import Tensor, entry, run_variant

Array = npt.NDArray[Any]
RANKS = (1, 2, 3, 4, 8)
REDUCTIONS = [(op, t) for op in ReduceOp for t in ALL if has_kernel(Kind.ALL_REDUCE, op, t)]
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 3e-5, 7e4)


def draw(shape: tuple[int, ...], t: DType, rng: np.random.Generator) -> Array:
    """Values that tell operations apart: floats with zeros of both signs, infinities, NaN and subnormals among them."""
    if t.is_complex or t.is_float:
        parts = [rng.standard_normal(shape) * 2.0 ** rng.integers(-8, 9, shape) for _ in range(2)]
        if t.is_float:
            with np.errstate(over="ignore"):
                return np.where(rng.random(shape) < 0.1, rng.choice(SPECIAL, shape), parts[0]).astype(t.numpy)
        return (parts[0] + 1j * parts[1]).astype(t.numpy)
    return (
        rng.integers(0, 256, (*shape, t.itemsize), np.uint8).view(t.numpy).reshape(shape)
        if t.is_integer
        else (rng.random(shape) < 0.5)
    )


def assert_same(got: Sequence[Array], wanted: Sequence[Array], what: object) -> None:
    for rank, (g, w) in enumerate(zip(got, wanted, strict=True)):
        assert g.shape == w.shape
        parts = [(x.real, x.imag) if x.dtype.kind == "c" else (x,) for x in (g, w)]
        for a, b in zip(*parts, strict=True):
            equal = np.ascontiguousarray(a).view(f"u{a.itemsize}") == np.ascontiguousarray(b).view(f"u{b.itemsize}")
            assert (equal | ((a != a) & (b != b))).all(), f"{what}, rank {rank}"


class Context(ctypes.Structure):
    """CommContext of crossrank/abi.h, of peers that are all reachable."""

    _fields_ = (
        ("fabric", ctypes.c_void_p),
        ("state", ctypes.c_void_p),
        ("peers", ctypes.POINTER(ctypes.c_void_p)),
        ("stream_above", ctypes.c_uint64),
        ("rank", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("slots", ctypes.c_uint32),
    )


def run_body(variant: Variant, *slots: Sequence[Array], blocks: int, streamed: bool) -> None:
    address = entry(compile_variants([variant])[variant], f"{variant.symbol}_body")
    body = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)(address)
    n = len(slots[0])
    peers = (ctypes.c_void_p * (len(slots) * n))(*(a.ctypes.data for slot in slots for a in slot))
    context = Context(None, None, peers, 0 if streamed else 1 << 60, 0, n, len(slots))
    tensors = [Tensor.of(slot[0]) for slot in slots]
    args = (ctypes.c_void_p * (len(slots) + 1))(*map(ctypes.addressof, (*tensors, context)))
    for block in reversed(range(blocks)):
        assert body(args, block, blocks) == 0


def empty(like: Array, shift: int) -> Array:
    """An array whose first element lies `shift` elements behind the start of a line."""
    line = 64 // min(like.itemsize, 64)
    room = np.full(like.size + line + shift, 1, np.uint8).astype(like.dtype)
    start = (-room.ctypes.data % 64) // like.itemsize + shift
    return room[start : start + like.size].reshape(like.shape)


def check(
    variant: Variant,
    operands: list[Array],
    wanted: list[Array],
    rng: np.random.Generator,
    before: Sequence[Sequence[Array]] = (),
    after: Sequence[Sequence[Array]] = (),
    staged: bool = False,
) -> None:
    """``before`` and ``after``: further slots, before and behind the result."""
    what = (variant, operands[0].shape, len(operands))
    for shift in (0, 1):
        given = [empty(a, shift) for a in operands]
        for to, a in zip(given, operands, strict=True):
            to[...] = a
        for blocks, streamed in ((1, False), (int(rng.integers(2, 12)), True)):
            results = [empty(w, shift) for w in wanted]
            run_body(variant, given, *before, results, *after, blocks=blocks, streamed=streamed)
            assert_same(results, wanted, what)
    for stage in (False, True)[: 1 + staged]:
        results = [empty(w, 0) for w in wanted]
        slots = (operands, *before, results, *after)
        run_variant(variant, *slots, limit=20, stream_above=int(rng.choice([0, 1 << 40])), staged=stage)
        assert_same(results, wanted, what)


@pytest.mark.parametrize(("op", "t"), REDUCTIONS, ids=lambda x: str(x))
def test_reductions(op: ReduceOp, t: DType) -> None:
    rng = np.random.default_rng(3)
    for n in RANKS:
        for count in (0, 1, int(rng.integers(2, 700)), 5000):
            operands = [draw((1, count, 1), t, rng) for _ in range(n)]
            wanted = semantics.all_reduce(operands, op)
            check(Variant(Kind.ALL_REDUCE, op, t), operands, wanted, rng)
        outer, dim, inner = (int(x) for x in rng.integers(1, (6, 5, 9)))
        for view in ((outer, dim * n, inner), (1, n * 700, 1), (3, n, 400), (2, 0, 3)):
            operands = [draw(view, t, rng) for _ in range(n)]
            wanted = semantics.reduce_scatter(operands, op, 1)
            check(Variant(Kind.REDUCE_SCATTER, op, t), operands, wanted, rng)


@pytest.mark.parametrize("t", [t for t in ALL if t.numpy is not None and has_kernel(Kind.ALL_GATHER, None, t)], ids=str)
def test_gathers(t: DType) -> None:
    rng = np.random.default_rng(4)
    for n in RANKS:
        outer, dim, inner = (int(x) for x in rng.integers(1, (6, 5, 9)))
        for view in ((outer, dim, inner), (1, 700, 3), (40, 1, 1), (3, 2, 900), (2, 0, 3)):
            operands = [rng.integers(0, 256, (*view[:2], view[2] * t.itemsize), np.uint8) for _ in range(n)]
            check(Variant(Kind.ALL_GATHER), operands, semantics.all_gather(operands, 1), rng)


def random_bytes(view: tuple[int, ...], n: int, rng: np.random.Generator) -> list[Array]:
    return [rng.integers(0, 256, view, np.uint8) for _ in range(n)]


@pytest.mark.parametrize("n", [*RANKS, 20])
def test_all_to_all(n: int) -> None:
    rng = np.random.default_rng(8)
    outer, dim, inner = (int(x) for x in rng.integers(1, (9, 5, 9)))
    for view in ((outer, n * dim, inner), (1, n * 3, 700), (700, n, 4), (5, n * 9, 150), (3, n, 2001), (2, 0, 3)):
        operands = random_bytes(view, n, rng)
        check(Variant(Kind.ALL_TO_ALL), operands, semantics.all_to_all(operands, 1), rng, staged=True)


@pytest.mark.parametrize("n", RANKS)
def test_all_to_all_with_an_operand_for_each_peer(n: int) -> None:
    """As many permutes as there are ranks."""
    rng = np.random.default_rng(9)
    operands = [random_bytes((1, 333, 3), n, rng) for _ in range(n)]
    wanted = semantics.all_to_all_tuple(operands)
    results = [[empty(a, 0) for a in mine] for mine in operands]
    for d in range(n):
        sources = [np.array([(r - d) % n for r in range(n)], np.int32)] * n
        given = [operands[r][(r + d) % n] for r in range(n)]
        run_variant(Variant(Kind.COLLECTIVE_PERMUTE), given, [results[r][(r - d) % n] for r in range(n)], sources)
    for got, expected in zip(results, wanted, strict=True):
        assert_same(got, expected, n)


@pytest.mark.parametrize("n", [*RANKS, 20])
def test_permute(n: int) -> None:
    rng = np.random.default_rng(10)
    for size in (0, 1, 777, 200_001):
        for targets in (n, int(rng.integers(0, n + 1))):
            pairs = list(zip(rng.permutation(n).tolist(), rng.permutation(n)[:targets].tolist(), strict=False))
            sources = np.full(n, -1, np.int32)
            for source, target in pairs:
                sources[target] = source
            operands = random_bytes((1, size, 1), n, rng)
            wanted = semantics.collective_permute(operands, pairs)
            check(Variant(Kind.COLLECTIVE_PERMUTE), operands, wanted, rng, after=[[sources] * n], staged=True)


@pytest.mark.parametrize("n", RANKS)
def test_broadcast(n: int) -> None:
    rng = np.random.default_rng(11)
    for size in (0, 1, 777, 200_001):
        operands = random_bytes((1, size, 1), n, rng)
        check(Variant(Kind.COLLECTIVE_BROADCAST), operands, semantics.collective_broadcast(operands), rng, staged=True)


def ragged(n: int, each: int, rows: tuple[int, int], t: type, rng: np.random.Generator) -> list[list[Array]]:
    """Tables by slot: rows from anywhere to anywhere, overlaps among them."""
    sends = rng.integers(0, min(rows) + 1, (n, n * each)) * (rng.random((n, n * each)) < 0.8)
    starts = [[int(rng.integers(0, rows[0] - s + 1)) for s in mine] for mine in sends]
    places = [[int(rng.integers(0, rows[1] - s + 1)) for s in mine] for mine in sends]
    receives = sends.reshape(n, n, each).transpose(1, 0, 2).reshape(n, n * each)
    return [[np.array(mine, t) for mine in table] for table in (starts, sends, places, receives)]


RAGGED = Variant(Kind.RAGGED_ALL_TO_ALL)


@pytest.mark.parametrize("n", RANKS)
@pytest.mark.parametrize("t", [np.int32, np.int64])
def test_ragged(n: int, t: type) -> None:
    rng = np.random.default_rng(12)
    for each, rows, row in ((1, (9, 14), 5), (3, (30, 11), 1), (1, (0, 4), 3), (2, (5, 0), 2), (1, (40, 40), 2000)):
        inputs, outputs = random_bytes((rows[0], row), n, rng), random_bytes((rows[1], row), n, rng)
        tables = ragged(n, each, rows, t, rng)
        members = [[a, o, *mine] for a, o, *mine in zip(inputs, outputs, *tables, strict=True)]
        wanted = semantics.ragged_all_to_all(members)
        check(RAGGED, inputs, wanted, rng, before=[outputs, *tables], staged=True)
        run_variant(RAGGED, inputs, outputs, *tables, outputs, limit=20)
        assert_same(outputs, wanted, "in the place of the outputs")


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize(
    ("table", "value"), [(0, -1), (0, 1 << 30), (0, 4), (1, -3), (1, 1 << 62), (2, 7), (2, -(1 << 63)), (3, 3)]
)
def test_ragged_rows_that_are_not_there(table: int, value: int, staged: bool) -> None:
    """Rank 1 (or whoever sends to it) is told, everyone returns, and nothing was touched."""
    rng = np.random.default_rng(13)
    n, rows = 3, 5
    inputs, results = random_bytes((rows, 64), n, rng), random_bytes((rows, 64), n, rng)
    tables = [[np.full(n, v, np.int64) for _ in range(n)] for v in (0, 2, 1, 2)]
    tables[table][1][2] = value
    if table == 1:
        tables[3][2][1] = value
    before = [a.copy() for a in results]
    culprit = 2 if table == 3 else 1
    with pytest.raises(RunError, match=f"rank {culprit} of 3 failed: rows to send lie outside of an array"):
        run_variant(RAGGED, inputs, results, *tables, results, limit=20, staged=staged)
    assert_same(results, before, "untouched")


@pytest.mark.parametrize("n", [1, 3, 8, 20])
def test_in_place(n: int) -> None:
    rng = np.random.default_rng(5)
    variant = Variant(Kind.ALL_REDUCE, ReduceOp.ADD, F32)
    operands = [draw((1, 40_001, 1), F32, rng) for _ in range(n)]
    wanted = semantics.all_reduce(operands, ReduceOp.ADD)
    by_body, by_kernel = ([a.copy() for a in operands] for _ in range(2))
    run_body(variant, by_body, by_body, blocks=7, streamed=True)
    run_variant(variant, by_kernel, by_kernel, limit=20)
    assert_same(by_body, wanted, n)
    assert_same(by_kernel, wanted, n)


@pytest.mark.parametrize("n", [17, 33, 80])
@pytest.mark.parametrize("name", ["f32", "bf16", "c64"])
def test_groups_of_any_size(n: int, name: str) -> None:
    rng = np.random.default_rng(6)
    t = dtype(name)
    for kind, view in (
        (Kind.ALL_REDUCE, (1, 3001, 1)),
        (Kind.REDUCE_SCATTER, (2, n, 7)),
        (Kind.ALL_GATHER, (2, 1, 40)),
    ):
        operands = [draw(view, t, rng) for _ in range(n)]
        if kind is Kind.ALL_GATHER:
            operands, variant = [a.view(np.uint8) for a in operands], Variant(kind)
            wanted = semantics.all_gather(operands, 1)
        else:
            variant = Variant(kind, ReduceOp.ADD, t)
            reduced = semantics.all_reduce(operands, ReduceOp.ADD)
            wanted = reduced if kind is Kind.ALL_REDUCE else semantics.reduce_scatter(operands, ReduceOp.ADD, 1)
        check(variant, operands, wanted, rng)


@pytest.mark.parametrize("n", [1, 3, 8])
def test_where_no_peer_can_be_reached(n: int) -> None:
    """The same kernels on a fabric that stages every access."""
    rng = np.random.default_rng(7)
    for kind, view in (
        (Kind.ALL_REDUCE, (1, 9000, 1)),
        (Kind.REDUCE_SCATTER, (3, n * 500, 3)),
        (Kind.ALL_GATHER, (3, 5, 9)),
    ):
        operands = [draw(view, F32, rng) for _ in range(n)]
        if kind is Kind.ALL_GATHER:
            variant, wanted = Variant(kind), semantics.all_gather(operands, 1)
        else:
            variant = Variant(kind, ReduceOp.ADD, F32)
            scattered = kind is Kind.REDUCE_SCATTER
            wanted = (
                semantics.reduce_scatter(operands, ReduceOp.ADD, 1)
                if scattered
                else semantics.all_reduce(operands, ReduceOp.ADD)
            )
        results = [np.empty_like(w) for w in wanted]
        run_variant(variant, operands, results, limit=20, staged=True)
        assert_same(results, wanted, (kind, n))
        if kind is Kind.ALL_REDUCE:
            run_variant(variant, operands, operands, limit=20, staged=True)
            assert_same(operands, wanted, "staged, in place")


def test_what_has_no_kernel() -> None:
    assert not has_kernel(Kind.ALL_REDUCE, ReduceOp.AND, F32)
    assert not has_kernel(Kind.ALL_REDUCE, ReduceOp.MAXIMUM, dtype("c64"))
    assert not has_kernel(Kind.ALL_REDUCE, None, F32)
    assert not has_kernel(Kind.SEND_RECV, None, None)
    assert not has_kernel(Kind.ALL_GATHER, None, dtype("s4"))
    assert not has_kernel(Kind.COLLECTIVE_PERMUTE, None, dtype("u2"))
    with pytest.raises(ValueError, match="no kernel for all-reduce and f32"):
        Variant(Kind.ALL_REDUCE, ReduceOp.AND, F32)
