"""What the commands tell a person of a kernel."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape

from crossrank.errors import counted
from crossrank.instr.execute import KernelReport
from crossrank.instr.files import KernelFile
from crossrank.instr.inventory import Entry, totals
from crossrank.report import terminal
from crossrank.report.run import difference, show_comparison, show_given, what_changed
from crossrank.statistics import byte_size

LONGEST = 44
NUMBERS = ("core", "channel", "bytes")
FOLDED = ("groups", "shape", "space", "source")
"""Columns that may be broken; names and numbers stay whole."""
LESS = ("instruction", "channel", "space", "bytes")
"""Columns that are left away on a terminal narrower than ``WIDE``: JSON has them."""
WIDE = 100


def show_kernel_run(report: KernelReport) -> None:
    """The table of what changed, the verdict, and how long either took."""
    out = terminal.out()
    via = "" if report.via == "kernels" else f" via {escape(report.via)}"
    out.print(
        f"[bold]{escape(report.file)}[/]: {escape(report.kernel)} on {_size(report.ranks, report.lnc)}{via}: "
        f"{escape(what_changed(report.passes))}"
    )
    out.print()
    changes = terminal.table("instruction", "original", "rewritten", right=("original", "rewritten"))
    for kind in sorted({*report.before, *report.after}):
        changes.add_row(kind, str(report.before.get(kind, 0)), str(report.after.get(kind, 0)))
    if changes.row_count:
        terminal.show(changes)
    else:
        out.print("no collectives")
    out.print()
    if report.result["outputs"]:
        show_comparison(report.result, report.ranks, "the original")
    if report.unordered is not None:
        out.print(
            f"[bold red]a race[/]: {report.unordered['kernel']} gives other values where the cores of a rank go on in "
            f"another order ({report.unordered['order']}): a barrier is missing"
        )
        out.print(f"  first at {escape(str(difference(report.unordered['first_difference'])))}")
    if report.expected is not None:
        show_given("expected", report.expected, is_wrong=True)
    if any(p.changed for p in report.passes):
        times = report.time_ms
        shown = f"{times['original']:.2f} ms the original, {times['rewritten']:.2f} ms the rewritten kernel"
        out.print(f"time in the interpreter: {shown}")
    for warning in report.warnings:
        terminal.warn(warning)


def show_kernel_inventory(file: KernelFile, entries: Sequence[Entry]) -> None:
    """A row for each communicating instruction of each core, and the totals by kind."""
    out, kernel = terminal.out(), file.kernel
    out.print(f"[bold]{escape(file.path)}[/]: {escape(kernel.name)}, {_size(kernel.world_size, kernel.lnc)}")
    if not entries:
        out.print("no collectives")
        return
    rows = [_row(e) for e in entries]
    narrow = terminal.width() < WIDE
    columns = [c for c in rows[0] if any(row[c] for row in rows) and not (narrow and c in LESS)]
    shown = terminal.table(*columns, right=NUMBERS, fold=FOLDED)
    for row in rows:
        shown.add_row(*(row[c] for c in columns))
    out.print()
    terminal.show(shown)
    out.print()
    sums = terminal.table("total", "count", "bytes", right=("count", "bytes"))
    for kind, total in totals(entries).items():
        sums.add_row(kind, str(total["count"]), byte_size(total["bytes"]))
    terminal.show(sums)


def _row(e: Entry) -> dict[str, str]:
    reduce = f" {e.reduce}" if e.reduce else ""
    dim = f" dim {e.dim}" if e.dim is not None else ""
    return {
        "core": str(e.core),
        "instruction": escape(e.name),
        "collective": f"{e.kind}{reduce}{dim}{' (extension)' if e.extension else ''}",
        "groups": escape(_short(e.groups)),
        "channel": "" if e.channel is None else str(e.channel),
        "shape": escape(_short(e.shapes)),
        "bytes": byte_size(e.bytes) if e.shapes else "",
        "space": e.spaces,
        "source": escape(e.where),
    }


def _size(ranks: int, lnc: int) -> str:
    return counted(ranks, "rank") + (f" of {lnc} cores" if lnc > 1 else "")


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
