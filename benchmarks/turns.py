"""What benchmarks share: both sides of a comparison turn by turn, and tables."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from crossrank.report import terminal

Rows = Sequence[Mapping[str, Any]]


def arguments_of(text: str | None) -> argparse.Namespace:
    """``--rounds`` and ``--json``, of a benchmark whose docstring is ``text``."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def median(rounds: int, *sides: Callable[[], object]) -> list[float]:
    """The median seconds of each side, turn by turn."""
    times: list[list[float]] = [[] for _ in sides]
    for _ in range(rounds):
        for mine, side in zip(times, sides, strict=True):
            start = time.perf_counter()
            side()
            mine.append(time.perf_counter() - start)
    return [statistics.median(t) for t in times]


def show(tables: Mapping[str, Rows], *, as_json: bool) -> None:
    """Print tables of rows that are alike."""
    if as_json:
        print(json.dumps(tables, indent=2))
        return
    for rows in tables.values():
        table = terminal.table(*rows[0], right=tuple(rows[0]))
        for row in rows:
            table.add_row(*(f"{v:.2f}" if isinstance(v, float) else str(v) for v in row.values()))
        terminal.show(table)
