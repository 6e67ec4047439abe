"""What `opt --stats` tells a person."""

from __future__ import annotations

from typing import Any

from crossrank.report import terminal
from crossrank.statistics import Statistics, byte_size


def show_statistics(statistics: Statistics[Any], title: str | None = None) -> None:
    """A row for each pass and kind: how many collectives and bytes before and after (standard error)."""
    tables = [totals for _, before, after in statistics.steps for totals in (before, after)]
    convertible = any("converted" in total for totals in tables for total in totals.values())
    counted = ("count", "converted") if convertible else ("count",)
    numbers = (*counted, "bytes", "ms")
    rows = terminal.table("pass", "changed", "collective", *numbers, right=numbers, title=title)
    for result, before, after in statistics.steps:
        name, ms = result.spec, f"{result.seconds * 1e3:.1f}"
        changed = "yes" if result.changed else "no"
        for kind in sorted({*before, *after}) if result.changed else [""]:
            old, new = before.get(kind, {}), after.get(kind, {})
            rows.add_row(
                name,
                changed,
                kind,
                *(_step(old.get(k, 0), new.get(k, 0)) if kind else "" for k in counted),
                _step(byte_size(old.get("bytes", 0)), byte_size(new.get("bytes", 0))) if kind else "",
                ms,
            )
            name = changed = ms = ""
    terminal.show(rows, stderr=True)


def _step(old: object, new: object) -> str:
    return str(new) if old == new else f"{old} → {new}"
