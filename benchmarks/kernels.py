"""Kernels of the builder level: what tracing, text, lowering and interpretation take, and how it grows.

    python benchmarks/kernels.py [--rounds N] [--json]

Growth is the time per instruction (and core) of the largest case over that of the smallest: about 1 where it is
linear. ``oracle/kernels`` is the time of a run whose collectives are computed by NumPy over that of one by the compiled
kernels, both in one process, turn by turn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from turns import arguments_of, median, show

from crossrank.instr import Kernel, KernelBuilder, read_kernel
from crossrank.instr.interpret import Machine
from crossrank.instr.trace import trace
from crossrank.passes import parse_passes, run_passes

STEPS = (125, 250, 500, 1000)
RANKS = (2, 8, 32)
WIDTHS = (64, 1024, 16384)
PASSES = "lower-local-collectives,insert-ptcom"


def layered(steps: int, ranks: int, width: int, lnc: int = 1) -> Kernel:
    """Steps of a copy, an addition on chip, an exchange of the cores, and an all-reduce."""

    def body(b: KernelBuilder, x: Any) -> None:
        a, c = (b.tensor((16, width), "f32", "sbuf") for _ in range(2))
        y = b.tensor((16, width), "f32", "private_hbm")
        for _ in range(steps):
            b.dma_copy(a, x)
            b.compute("tensor_tensor", [c], [a, a], op="add")
            if lnc == 2:
                b.sendrecv(a, c, 1 - b.core, 1 - b.core, 0)
            b.dma_copy(y, c)
            b.all_reduce_cc("max", [y], [x])
        b.output(x)

    builders = [KernelBuilder(ranks, lnc, core) for core in range(lnc)]
    for b in builders:
        body(b, b.input("x", (16, width), "f32"))
    return Kernel.of([b.finish() for b in builders], world_size=ranks, lnc=lnc, has_collectives=True)


def run(kernel: Kernel, backend: str = "kernels") -> None:
    width = kernel.inputs()[0].type.shape[1]
    Machine(kernel, backend=backend).run([[np.full((16, width), r, np.float32)] for r in range(kernel.world_size)])


def stages(rounds: int) -> list[dict[str, Any]]:
    """Microseconds per instruction of each stage, and how they grow with the kernel."""
    found: dict[str, list[float]] = {}
    for steps in STEPS:
        kernel = layered(steps, 2, 16, lnc=2)
        count = sum(1 for p in kernel.programs for _ in p.instructions())
        text = str(kernel)
        sides = {
            "build": lambda s=steps: layered(s, 2, 16, lnc=2),
            "print": lambda k=kernel: str(k),
            "read": lambda t=text: read_kernel(t),
            "lower": lambda t=text: run_passes(read_kernel(t), parse_passes(PASSES)),
            "run": lambda k=kernel: run(k),
        }
        seconds = dict(zip(sides, median(rounds, *sides.values()), strict=True))
        seconds["lower"] -= seconds["read"]
        for stage, s in seconds.items():
            found.setdefault(stage, []).append(1e6 * s / count)
    return [{"stage": s, "us_per_instruction": t[-1], "growth": t[-1] / t[0]} for s, t in found.items()]


def ranks(rounds: int) -> list[dict[str, Any]]:
    """Microseconds per instruction and core at several rank counts."""
    rows: list[dict[str, Any]] = []
    for count in RANKS:
        kernel = layered(50, count, 16)
        (seconds,) = median(rounds, lambda k=kernel: run(k))
        rows.append({"ranks": count, "us": 1e6 * seconds / (50 * 4 * count)})
    return [row | {"growth": row["us"] / rows[0]["us"]} for row in rows]


def backends(rounds: int) -> list[dict[str, Any]]:
    """The oracle beside the kernels, at several sizes on 8 ranks."""
    rows = []
    for width in WIDTHS:
        kernel = layered(10, 8, width)
        oracle, kernels = median(rounds, lambda k=kernel: run(k, "oracle"), lambda k=kernel: run(k))
        rows.append({"bytes": 64 * width, "oracle/kernels": oracle / kernels})
    return rows


def main() -> None:
    arguments = arguments_of(__doc__)
    trace(lambda x: x, [np.zeros(1, np.float32)])  # everything is imported
    run(layered(1, 2, 16))
    tables = {
        "stages": stages(arguments.rounds),
        "ranks": ranks(arguments.rounds),
        "backends": backends(arguments.rounds),
    }
    show(tables, as_json=arguments.json)


if __name__ == "__main__":
    main()
