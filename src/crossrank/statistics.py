"""Collectives and their bytes before and after each pass, whatever the passes work on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from crossrank.passes import PassResult
from crossrank.remarks import Remark

IR = TypeVar("IR")
Totals = dict[str, dict[str, int]]
"""``{kind: {count, bytes, …}}``."""


class Statistics(Generic[IR]):
    """What a pipeline did to the collectives of a module (or a kernel), step by step.

    Args:
        module: as it is before the first pass.
        measure: its totals by kind.
    """

    def __init__(self, module: IR, measure: Callable[[IR], Totals]) -> None:
        self.steps: list[tuple[PassResult, Totals, Totals]] = []
        self._measure = measure
        self._first = self._last = measure(module)

    def add(self, result: PassResult, module: IR) -> None:
        """Take note of the module as one pass left it."""
        now = self._measure(module) if result.changed else self._last
        self.steps.append((result, self._last, now))
        self._last = now

    @property
    def remarks(self) -> list[Remark]:
        """The remarks of all passes, in order."""
        return [r for result, _, _ in self.steps for r in result.remarks]

    def as_dict(self) -> dict[str, Any]:
        """JSON data with stable keys."""
        return {
            "passes": [
                {
                    "name": result.name,
                    "spec": result.spec,
                    "changed": result.changed,
                    "seconds": result.seconds,
                    "before": before,
                    "after": after,
                    "remarks": [r.as_dict() for r in result.remarks],
                }
                for result, before, after in self.steps
            ],
            "collectives": {"before": counts(self._first), "after": counts(self._last)},
        }


def counts(totals: Totals) -> dict[str, int]:
    """How many there are of each kind."""
    return {kind: total["count"] for kind, total in totals.items()}


def byte_size(n: int) -> str:
    """Bytes for people: ``1.5 MiB``."""
    size = float(n)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError
