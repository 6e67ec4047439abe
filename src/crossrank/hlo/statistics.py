"""Collectives and their bytes before and after each pass."""

from __future__ import annotations

from typing import Any

from crossrank.hlo.inventory import count_converted, count_native, inventory, totals
from crossrank.hlo.module import Module
from crossrank.passes import PassResult
from crossrank.remarks import Remark

Totals = dict[str, dict[str, int]]


class Statistics:
    """What a pipeline did to the collectives of a module, step by step.

    Args:
        module: as it is before the first pass.
    """

    def __init__(self, module: Module) -> None:
        self.before = count_native(module)
        self.after = self.before
        self.custom_calls = count_converted(module)
        self.steps: list[tuple[PassResult, Totals, Totals]] = []
        self._last = totals(inventory(module))

    def add(self, result: PassResult, module: Module) -> None:
        """Take note of the module as one pass left it."""
        now = totals(inventory(module)) if result.changed else self._last
        self.steps.append((result, self._last, now))
        self._last = now
        if result.changed:
            self.after, self.custom_calls = count_native(module), count_converted(module)

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
            "collectives": {"before": self.before, "after": self.after},
            "custom_calls": self.custom_calls,
        }
