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


def run_body(
    variant: Variant, operands: Sequence[Array], results: Sequence[Array], blocks: int, streamed: bool
) -> None:
    address = entry(compile_variants([variant])[variant], f"{variant.symbol}_body")
    body = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)(address)
    n = len(operands)
    peers = (ctypes.c_void_p * (2 * n))(*(a.ctypes.data for a in (*operands, *results)))
    context = Context(None, None, peers, 0 if streamed else 1 << 60, 0, n, 2)
    tensors = [Tensor.of(operands[0]), Tensor.of(results[0])]
    args = (ctypes.c_void_p * 3)(*map(ctypes.addressof, (*tensors, context)))
    for block in reversed(range(blocks)):
        assert body(args, block, blocks) == 0


def empty(like: Array, shift: int) -> Array:
    """An array whose first element lies `shift` elements behind the start of a line."""
    line = 64 // min(like.itemsize, 64)
    room = np.full(like.size + line + shift, 1, np.uint8).astype(like.dtype)
    start = (-room.ctypes.data % 64) // like.itemsize + shift
    return room[start : start + like.size].reshape(like.shape)


def check(variant: Variant, operands: list[Array], wanted: list[Array], rng: np.random.Generator) -> None:
    what = (variant, operands[0].shape, len(operands))
    for shift in (0, 1):
        given = [empty(a, shift) for a in operands]
        for to, a in zip(given, operands, strict=True):
            to[...] = a
        for blocks, streamed in ((1, False), (int(rng.integers(2, 12)), True)):
            results = [empty(w, shift) for w in wanted]
            run_body(variant, given, results, blocks, streamed)
            assert_same(results, wanted, what)
    results = [np.empty_like(w) for w in wanted]
    run_variant(variant, operands, results, limit=20, stream_above=int(rng.choice([0, 1 << 40])))
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


@pytest.mark.parametrize("n", [1, 3, 8, 20])
def test_in_place(n: int) -> None:
    rng = np.random.default_rng(5)
    variant = Variant(Kind.ALL_REDUCE, ReduceOp.ADD, F32)
    operands = [draw((1, 40_001, 1), F32, rng) for _ in range(n)]
    wanted = semantics.all_reduce(operands, ReduceOp.ADD)
    by_body, by_kernel = ([a.copy() for a in operands] for _ in range(2))
    run_body(variant, by_body, by_body, 7, True)
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
    assert not has_kernel(Kind.ALL_TO_ALL, None, None)
    assert not has_kernel(Kind.ALL_GATHER, None, dtype("s4"))
    with pytest.raises(ValueError, match="no kernel for all-reduce and f32"):
        Variant(Kind.ALL_REDUCE, ReduceOp.AND, F32)
