"""One pipeline on the three rails: what a managed collective costs in a host orchestrator, a chip function, a kernel.

    python benchmarks/rails.py [--rounds N] [--json]

The pipeline of examples/exchange_pipeline.py (stage, all-to-all-v, consume), every count at its most, at three sizes;
one persistent worker a rail, turn by turn in one process. ``estimated`` is what the cost report says of the program
before it runs, and ``order`` whether that puts the rails in the order that was measured: those of them that are more
than a tenth apart.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from collectives import size_text
from turns import arguments_of, median, show

from crossrank.author import load_module
from crossrank.program import compile
from crossrank.program.cost.estimate import cost_of

EXAMPLE = Path(__file__).parents[1] / "examples" / "exchange_pipeline.py"
RAILS = ("host", "chip", "incore")
SIZES = ((4, 64), (64, 256), (256, 1024))
"""Rows that a rank has for each other one, and their length."""


def rails(ranks: int, rounds: int) -> list[dict[str, Any]]:
    """A row for each rail at each size."""
    example = load_module(EXAMPLE.read_bytes(), str(EXAMPLE), "a program")
    found = []
    for rows, size in SIZES:
        given = example.inputs(ranks, 0, rows, size)
        given["wanted"][:] = rows
        outputs = {name: np.zeros(a.shape, a.dtype) for name, a in example.expected(ranks, given).items()}
        compiled = {rail: compile(example.pipeline(ranks, rail, rows, size), ranks=ranks) for rail in RAILS}
        with ExitStack() as open:
            workers = [open.enter_context(c.prepare(persistent=True)) for c in compiled.values()]
            sides = [partial(worker, *given.values(), *outputs.values()) for worker in workers]
            for side in sides:
                side()
                expected = example.expected(ranks, given)
                assert all(np.array_equal(outputs[name], expected[name]) for name in outputs)
            seconds = dict(zip(RAILS, median(rounds, *sides), strict=True))
        estimated = {rail: cost_of(c.program, ranks, given).milliseconds for rail, c in compiled.items()}
        apart = [(a, b) for a, b in permutations(RAILS, 2) if seconds[a] > 1.1 * seconds[b]]
        agree = all(estimated[a] > estimated[b] for a, b in apart)
        for rail, c in compiled.items():
            assert c.record is not None
            found.append(
                {
                    "ranks": ranks,
                    "bytes of a rank": size_text(4 * ranks * rows * size),
                    "rail": rail,
                    "dispatches": c.record.dispatches[0],
                    "tasks": c.record.tasks[0],
                    "ms": 1e3 * seconds[rail],
                    "over chip": seconds[rail] / seconds["chip"],
                    "estimated": estimated[rail],
                    "order": "yes" if agree else "no",
                }
            )
    return found


def main() -> None:
    arguments = arguments_of(__doc__)
    show({f"{ranks} ranks": rails(ranks, arguments.rounds) for ranks in (4, 8)}, as_json=arguments.json)


if __name__ == "__main__":
    main()
