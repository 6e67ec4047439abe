"""Collectives of an HLO module before and after each pass: native ones by opcode, converted ones by target."""

from __future__ import annotations

from typing import Any

from crossrank.hlo.inventory import count_converted, count_native, inventory, totals
from crossrank.hlo.module import Module
from crossrank.passes import PassResult
from crossrank.statistics import Statistics


class ModuleStatistics(Statistics[Module]):
    """What a pipeline did to the collectives of a module, step by step.

    Args:
        module: as it is before the first pass.
    """

    def __init__(self, module: Module) -> None:
        super().__init__(module, lambda m: totals(inventory(m)))
        self.before = count_native(module)
        self.after = self.before
        self.custom_calls = count_converted(module)

    def add(self, result: PassResult, module: Module) -> None:
        """Take note of the module as one pass left it."""
        super().add(result, module)
        if result.changed:
            self.after, self.custom_calls = count_native(module), count_converted(module)

    def as_dict(self) -> dict[str, Any]:
        """JSON data with stable keys."""
        return super().as_dict() | {
            "collectives": {"before": self.before, "after": self.after},
            "custom_calls": self.custom_calls,
        }
