"""Steps of the examples with the hook in JAX and without, in one process, turn by turn; a ratio is the median over the
turns of time without over time with.

    python benchmarks/jax_hook.py --turns 200 --only dp_train
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def cases() -> dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]]:
    """For each case what gives a jitted step and its arguments."""
    sys.path.insert(0, str(EXAMPLES))
    import dp_train
    import moe_all_to_all
    import tp_transformer

    def dp(per_rank: int, *widths: int) -> tuple[Any, tuple[Any, ...]]:
        dp_train.WIDTHS = widths
        return dp_train.step, dp_train.setup(per_rank)

    def tp(per_rank: int) -> tuple[Any, tuple[Any, ...]]:
        step, *arguments = tp_transformer.setup(per_rank)
        return step, tuple(arguments)

    return {
        "dp_train": lambda: dp(32, 64, 256, 256, 10),
        "dp_train, 12 MiB of gradients": lambda: dp(4, 1024, 1024, 1024, 1024, 10),
        "tp_transformer": lambda: tp(2),
        "moe_all_to_all": moe_all_to_all.setup,
    }


def measure(step: Any, arguments: tuple[Any, ...], turns: int) -> dict[str, Any]:
    """One case: medians in ms, their ratio, and what ran on our kernels."""
    import jax

    import crossrank.jax

    plain = step.lower(*arguments).compile()
    with crossrank.jax.hook() as report:
        hooked = step.lower(*arguments).compile()
    sides = {"without": plain, "with": hooked}
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(turns + 3):
        for name in sorted(sides, reverse=bool(turn % 2)):
            start = time.perf_counter()
            jax.block_until_ready(sides[name](*arguments))
            if turn >= 3:  # the first ones are to get warm
                taken[name].append(time.perf_counter() - start)
    return {
        "ms": {name: 1e3 * median(times) for name, times in taken.items()},
        "ratio": median(a / b for a, b in zip(taken["without"], taken["with"], strict=True)),
        "converted": report.converted,
        "left": report.left,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--only", default="", help="cases whose name begins so")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={arguments.ranks}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    found = {
        name: measure(*make(), arguments.turns) for name, make in cases().items() if name.startswith(arguments.only)
    }
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    for name, one in found.items():
        ran = ", ".join(f"{n} {kind}" for kind, n in one["converted"].items())
        ms = one["ms"]
        print(f"{name:32} {ms['without']:8.2f} → {ms['with']:8.2f} ms  {one['ratio']:5.2f}×  {ran}")
        for kind, why in one["left"].items():
            print(f"{'':32} left to XLA: {kind}: {why}")


if __name__ == "__main__":
    main()
