"""Kernels of several cores for the tests of passes, and what they compute before and after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from crossrank.instr.builder import KernelBuilder
from crossrank.instr.interpret import Machine
from crossrank.instr.program import Kernel, read_kernel
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
