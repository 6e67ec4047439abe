"""What a program costs: its counts, and the milliseconds that they come to on a machine like ours.

The estimate is there to tell which of several ways to write a program is the fastest. Its constants were measured by
`benchmarks/prices.py` on two cores of an AMD EPYC (docs/benchmarks.md); all ranks share the cores.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crossrank.arrays import Array
from crossrank.program.analysis.bounds import ANYTHING
from crossrank.program.cost.values import Shape, Value
from crossrank.program.cost.walk import Walker
from crossrank.program.cost.work import COUNTED, Number, Placed, whole
from crossrank.program.program import Param, Program
from crossrank.program.types import ShapedType, is_float

BEGIN = 100e3
"""Nanoseconds to begin and end a run, for each rank."""
ALONE: Mapping[str, float] = {"dispatches": 140e3, "tasks": 55e3, "window_bytes": 0.045}
"""Nanoseconds of what Python does, on one core at a time."""
SHARED: Mapping[str, float] = {
    "blocks": 25e3,
    "notifies": 10,
    "waits": 800,
    "moved_bytes": 0.08,
    "managed_bytes": 0.03,
    "copied_bytes": 0.05,
    "elements": 0.07,
}
"""Nanoseconds of what kernels do, on as many cores as there are, of what is more than the caches hold."""


def milliseconds(counts: Mapping[str, Number], ranks: int = 0, cores: int = 1) -> float:
    """What the counts of so many ranks together come to, on so many cores."""
    alone = ranks * BEGIN + sum(price * counts.get(what, 0) for what, price in ALONE.items())
    return 1e-6 * (
        alone + sum(price * counts.get(what, 0) for what, price in SHARED.items()) / max(1, min(cores, ranks))
    )


@dataclass(frozen=True)
class CostReport:
    """What a run of a program does, before it runs.

    Attributes:
        ranks: of each, how many of what (`COUNTED`).
        launches: how often each kernel is launched, in how many blocks.
        places: what each of the author's lines comes to.
        milliseconds: estimated, of a run.
        unknown: the author's lines of which only a part is counted: the rest is known only when it runs.
    """

    ranks: Mapping[int, Mapping[str, Number]]
    launches: Mapping[tuple[str, int], Number]
    places: Mapping[str, Placed]
    milliseconds: float
    unknown: tuple[str, ...]

    @property
    def total(self) -> dict[str, Number]:
        """Of all ranks together."""
        return {what: sum(counts[what] for counts in self.ranks.values()) for what in COUNTED}

    def as_dict(self) -> dict[str, Any]:
        """JSON data with stable keys."""
        return {
            "estimated_ms": round(self.milliseconds, 4),
            "total": {what: whole(n) for what, n in self.total.items()},
            "ranks": [{"rank": r, **{w: whole(n) for w, n in c.items()}} for r, c in sorted(self.ranks.items())],
            "launches": [
                {"kernel": kernel, "blocks": blocks, "count": whole(n)}
                for (kernel, blocks), n in sorted(self.launches.items())
            ],
            "unknown": list(self.unknown),
        }


def cost_of(
    program: Program, ranks: int, arguments: Mapping[str, Array] | None = None, *, cores: int | None = None
) -> CostReport:
    """What a run of a program costs.

    Args:
        program: its passes have run.
        ranks: on how many devices.
        arguments: of its entry, by name, as far as they are known: extents and numbers.
        cores: of the machine that it runs on; None: as many as this process may use.

    Raises:
        InputError: a call of nothing.
    """
    given = arguments or {}
    values = [_value(p, given.get(p.name)) for p in program.entry.params]
    work = Walker(program, ranks, milliseconds).run(values)
    return CostReport(
        {rank: {what: work.ranks[rank][what] for what in COUNTED} for rank in range(ranks)},
        dict(work.launches),
        dict(work.places),
        milliseconds(work.total, ranks, cores or len(os.sched_getaffinity(0))),
        tuple(work.unknown),
    )


def _value(param: Param, argument: Array | None) -> Value:
    """What is known of an argument."""
    if isinstance(param.type, ShapedType):
        said = [d if isinstance(d, int) else float("inf") for d in param.type.shape]
        return Shape(tuple(said) if argument is None else argument.shape)
    return ANYTHING if argument is None or is_float(param.type) else (int(argument), int(argument))
