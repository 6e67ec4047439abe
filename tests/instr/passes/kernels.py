"""Kernels of several cores for the tests of passes, and what they compute before and after."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from crossrank.instr.builder import KernelBuilder
from crossrank.instr.interpret import Machine
from crossrank.instr.program import Kernel, read_kernel
from crossrank.instr.tensors import DynamicSlice, View
from crossrank.passes import PassResult, parse_passes, run_passes

Body = Callable[[KernelBuilder, int], None]
Arrays = list[list[np.ndarray[Any, Any]]]


def kernel_of(body: Body, lnc: int = 2, ranks: int = 1, arch: int = 40) -> Kernel:
    """The kernel whose program on each core is what ``body(builder, core)`` builds."""
    programs, collectives = [], False
    for core in range(lnc):
        builder = KernelBuilder(ranks, lnc, core, arch=arch)
        body(builder, core)
        programs.append(builder.finish())
        collectives = collectives or builder.has_collectives
    kernel = Kernel.of(programs, world_size=ranks, lnc=lnc, arch=arch, has_collectives=collectives)
    kernel.verify()
    return kernel


def rewritten(kernel: Kernel, passes: str = "lower-local-collectives") -> tuple[Kernel, list[PassResult]]:
    """A copy of a kernel after passes; verified, and read back from its text."""
    copy = read_kernel(str(kernel))
    results = run_passes(copy, parse_passes(passes))
    copy.verify()
    assert str(read_kernel(str(copy))) == str(copy)
    return copy, results


def outputs(kernel: Kernel, inputs: Arrays, seed: int | None = None, backend: str = "oracle") -> Arrays:
    """What each rank gives."""
    return Machine(kernel, backend=backend, seed=seed).run(inputs)


def same_bits(a: Arrays, b: Arrays) -> bool:
    """Whether two runs gave the same bits, NaN equal to NaN."""
    for x, y in zip((v for rank in a for v in rank), (v for rank in b for v in rank), strict=True):
        if x.dtype.kind in "iub":
            equal = x == y
        else:
            integer = f"u{x.dtype.itemsize}"
            equal = (x.view(integer) == y.view(integer)) | (np.isnan(x) & np.isnan(y))
        if not equal.all():
            return False
    return True


def drawn(shape: Sequence[int], dtype: Any, seed: int) -> np.ndarray[Any, Any]:
    """Values of all magnitudes; of floats some are ±0, subnormal, infinite or NaN."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    values = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)
    special = rng.choice([0.0, -0.0, 1e-40, np.inf, np.nan], shape)
    return np.where(rng.random(shape) < 0.1, special, values).astype(dtype)


DTYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16, "s32": np.int32, "u8": np.uint8}
POOL = 4
KINDS = (
    *("copy", "copy", "barrier", "sendrecv", "cce", "reduce", "reduce", "reduce"),
    *("gather", "scatter", "all_to_all", "ring", "ring_reduce", "broadcast", "global"),
)


class RandomKernel:
    """A kernel that does random local collectives on a pool of tensors, with copies in between.

    Every core gives the whole pool as it is in the end, so that nothing can go wrong unseen.
    """

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.lnc = draw.choice([2, 2, 3, 4])
        self.dtype = draw.choice(list(DTYPES))
        self.ranks = draw.choice([1, 1, 2])
        self.rows, self.columns = self.lnc * 2, draw.choice([12, 24])
        self.shape = (self.lnc, POOL, self.rows, self.columns)
        self.spaces = [draw.choice(["sbuf", "private_hbm", "slices"]) for _ in range(POOL)]
        self._draw = draw
        self.steps = [self._step() for _ in range(draw.randrange(1, 9))]
        self.kernel = kernel_of(self._body, self.lnc, self.ranks)
        self.inputs = [[drawn(self.shape, DTYPES[self.dtype], seed + r)] for r in range(self.ranks)]

    def _step(self) -> Callable[[KernelBuilder, int, list[View]], None]:
        draw, lnc = self._draw, self.lnc
        kind = draw.choice(KINDS)
        cut = draw.choice(["whole", "left", "crossed", "register"])
        one, other, third = (draw.randrange(POOL) for _ in range(3))
        order = draw.sample(range(lnc), lnc)
        size = draw.choice([n for n in range(1, lnc + 1) if lnc % n == 0] + [lnc])
        groups = [order[n : n + size] for n in range(0, lnc, size)]
        op = draw.choice(["add", "maximum", "minimum", "multiply", "average"])
        shift = draw.randrange(1, lnc)
        alone = draw.randrange(lnc)
        dim = draw.randrange(2)

        def cuts(b: KernelBuilder, a: View, z: View) -> tuple[View, View]:
            half = self.columns // 2
            if cut == "left":
                return a[:, :half], z[:, :half]
            if cut == "crossed":
                return a[:, half:], z[:, :half]
            if cut == "register":
                place = b.rank_id() * 0 + 2
                return a[:, DynamicSlice(place, half)], z[:, DynamicSlice(place * 2, half)]
            return a, z

        def step(b: KernelBuilder, core: int, pool: list[View]) -> None:
            src, dst = cuts(b, pool[one], pool[other])
            second = cuts(b, pool[third], pool[other])[0]
            members = next(len(g) for g in groups if core in g)
            after, before = (core + shift) % lnc, (core - shift) % lnc
            if kind == "copy" and core != alone:
                b.dma_copy(dst, src)
            elif kind == "barrier":
                b._barrier(range(lnc))
            elif kind == "sendrecv":
                b.sendrecv(dst, src, after, before, shift)
            elif kind == "cce":
                b.sendrecv_cce(dst, src, after, [before], op, 10 + shift)
            elif kind == "reduce":
                operands = ([src, second], [dst, pool[other - 1][:, : dst.shape[1]]]) if dim else ([src], [dst])
                b.all_reduce_cc_raw(op, *operands, groups, is_local=True)
            elif kind in ("gather", "scatter"):
                shape = list(src.shape)
                shape[dim] *= members
                wide = b.tensor(shape, self.dtype, "private_hbm")
                b.all_gather_cc_raw([src], [wide], groups, dim, is_local=True)
                if kind == "scatter":
                    b.reduce_scatter_cc_raw(op, [wide], [dst], groups, dim, is_local=True)
                else:
                    b.dma_copy(dst, wide[: dst.shape[0], -dst.shape[1] :])
            elif kind == "all_to_all" and src.shape[dim] % members == 0:
                b.all_to_all_cc_raw([src], [dst], groups, dim, dim, is_local=True)
            elif kind == "ring":
                b.tiled_collective_permute_implicit_cc_raw([src], [dst], groups, dim, 2, is_local=True)
            elif kind == "ring_reduce":
                ring = b.tiled_collective_permute_reduce_implicit_cc_raw
                ring(op, [src, second], [dst], groups, dim, 2, is_local=True)
            elif kind == "broadcast":
                b.broadcast_cc_raw([src], [dst], groups, (), is_local=True)
            elif kind == "global":
                b.all_reduce_cc_raw("maximum", [src], [dst], [list(range(self.ranks))])

        return step

    def _body(self, b: KernelBuilder, core: int) -> None:
        x = b.input("x", self.shape, self.dtype, "shared_hbm")
        out = b.tensor(self.shape, self.dtype, "shared_hbm", "out")
        own = b.tensor(self.shape, self.dtype, "shared_hbm", "own")
        pool = []
        for n, space in enumerate(self.spaces):
            shape = (self.rows, self.columns)
            pool.append(own[core, n] if space == "slices" else b.tensor(shape, self.dtype, space, f"t{n}"))
            b.dma_copy(pool[n], x[core, n])
        for step in self.steps:
            step(b, core, pool)
        for n, tensor in enumerate(pool):
            b.dma_copy(out[core, n], tensor)
        b.output(out)
