"""What `inspect` tells a person."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape

from crossrank.hlo.inventory import Entry, totals
from crossrank.hlo.io import ModuleFile
from crossrank.report import terminal
from crossrank.statistics import byte_size

LONGEST = 44


def show_inventory(file: ModuleFile, entries: Sequence[Entry]) -> None:
    """A row for each collective, and the totals by kind."""
    out, config = terminal.out(), file.module.config
    out.print(
        f"[bold]{escape(file.path)}[/]: {escape(file.module.name)}, {file.module.world} ranks "
        f"({config.replica_count} replicas × {config.num_partitions} partitions)"
    )
    if not entries:
        out.print("no collectives")
        return
    rows = terminal.table("collective", "instruction", "shape", "bytes", "groups", "ids", "source", right=("bytes",))
    for e in entries:
        kind = f"[cyan]{e.target}[/]" if e.target else e.opcode + (f" {e.reduce}" if e.reduce else "")
        dim = f" dim {e.dim}" if e.dim is not None else ""
        rows.add_row(
            kind + dim,
            escape(f"%{e.name}"),
            escape(_short(e.shape)),
            byte_size(e.bytes),
            escape(_short(e.groups)),
            e.mode,
            escape(e.where),
        )
    out.print()
    terminal.show(rows)
    out.print()
    sums = terminal.table("total", "count", "converted", "bytes", right=("count", "converted", "bytes"))
    for kind, total in totals(entries).items():
        sums.add_row(kind, str(total["count"]), str(total["converted"]), byte_size(total["bytes"]))
    terminal.show(sums)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
