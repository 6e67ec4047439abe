"""What a run did, counted from what its engine recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crossrank.runtime.tasks import Engine


@dataclass(frozen=True)
class Record:
    """What a run did.

    Attributes:
        dispatches: chip functions sent to each device.
        dispatched: how often each chip function was.
        tasks: launches of kernels on each device.
        launched: how often each kernel was.
        blocks: in how many blocks each kernel was, from the fewest on.
        trace: of each task and orchestrator its device (of the host and of sub-workers -1) and its times
            (`runtime.tasks.RECORD`).
        names: those in the trace, by number.
    """

    dispatches: Mapping[int, int]
    dispatched: Mapping[str, int]
    tasks: Mapping[int, int]
    launched: Mapping[str, int]
    blocks: Mapping[str, Sequence[int]]
    trace: npt.NDArray[np.void]
    names: Sequence[str]

    @staticmethod
    def of(engine: Engine) -> Record:
        """What was done in an engine until now."""
        trace, names = engine.trace(), engine.names()
        kernels = trace[trace["blocks"] > 0]
        dispatches = trace[(trace["orchestrator"] == 1) & (trace["rank"] >= 0)]
        blocks: dict[str, list[int]] = {}
        for name, width in np.unique(kernels[["name", "blocks"]]).tolist():
            blocks.setdefault(names[name], []).append(width)
        return Record(
            dispatches=_counts(dispatches["rank"]),
            dispatched={names[name]: n for name, n in _counts(dispatches["name"]).items()},
            tasks=_counts(kernels["rank"]),
            launched={names[name]: n for name, n in _counts(kernels["name"]).items()},
            blocks=blocks,
            trace=trace,
            names=names,
        )


def _counts(values: npt.NDArray[Any]) -> dict[int, int]:
    """How often each is there, in the order in which they first are."""
    found, first, counts = np.unique(values, return_index=True, return_counts=True)
    order = np.argsort(first)
    return dict(zip(found[order].tolist(), counts[order].tolist(), strict=True))
