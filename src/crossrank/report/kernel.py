"""What the commands tell a person of a kernel."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape

from crossrank.instr.execute import KernelReport
from crossrank.instr.files import KernelFile
from crossrank.instr.inventory import Entry, totals
from crossrank.report import terminal
from crossrank.report.run import show_comparison, show_given, what_changed

LONGEST = 44


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
    if report.expected is not None:
        show_given("expected", report.expected, is_wrong=True)
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
    numbers = ("core", "channel", "bytes")
    rows = terminal.table(
        "core", "instruction", "collective", "groups", "channel", "shape", "bytes", "space", "source", right=numbers
    )
    for e in entries:
        reduce = f" {e.reduce}" if e.reduce else ""
        dim = f" dim {e.dim}" if e.dim is not None else ""
        rows.add_row(
            str(e.core),
            escape(e.name),
            f"{e.kind}{reduce}{dim}{' (extension)' if e.extension else ''}",
            escape(_short(e.groups)),
            "" if e.channel is None else str(e.channel),
            escape(_short(e.shapes)),
            terminal.byte_size(e.bytes) if e.shapes else "",
            e.spaces,
            escape(e.where),
        )
    out.print()
    terminal.show(rows)
    out.print()
    sums = terminal.table("total", "count", "bytes", right=("count", "bytes"))
    for kind, total in totals(entries).items():
        sums.add_row(kind, str(total["count"]), terminal.byte_size(total["bytes"]))
    terminal.show(sums)


def _size(ranks: int, lnc: int) -> str:
    cores = f" of {lnc} cores" if lnc > 1 else ""
    return f"{ranks} rank{'s' if ranks > 1 else ''}{cores}"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
