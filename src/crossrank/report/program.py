"""What the commands tell a person of a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape

from crossrank.errors import counted
from crossrank.program.files import ProgramFile
from crossrank.program.inventory import Entry, functions, totals, windows
from crossrank.program.run import ProgramReport
from crossrank.report import terminal
from crossrank.report.run import what_changed
from crossrank.statistics import byte_size


def show_program_run(report: ProgramReport) -> None:
    """The table of what changed, what was run, and the verdict."""
    out = terminal.out()
    rail = f" ({escape(report.rail)})" if report.rail else ""
    out.print(
        f"[bold]{escape(report.file)}[/]{rail}: {escape(report.program)} on {counted(report.ranks, 'rank')}: "
        f"{escape(what_changed(report.passes))}"
    )
    out.print()
    changes = terminal.table("between ranks", "written", "lowered", right=("written", "lowered"))
    for kind in sorted({*report.before, *report.after}):
        changes.add_row(kind, str(report.before.get(kind, 0)), str(report.after.get(kind, 0)))
    if changes.row_count:
        terminal.show(changes)
    else:
        out.print("its ranks say nothing to one another")
    out.print()
    kernels = ", ".join(f"{name} ×{n}" if n > 1 else name for name, n in report.launched.items())
    out.print(
        f"each run: {_each(report.dispatches, 'dispatch', 'dispatches')}, {_each(report.tasks, 'task', 'tasks')}"
        f"{f' ({escape(kernels)})' if kernels else ''}, {report.time_ms:.2f} ms"
    )
    _show_verdict(report)
    for warning in report.warnings:
        terminal.warn(warning)


def _show_verdict(report: ProgramReport) -> None:
    out = terminal.out()
    what = ", ".join(report.written)
    if report.result["exact"]:
        if report.written and report.repeats > 1:
            out.print(f"[bold green]equal[/]: {escape(what)} in {report.repeats} runs, bit for bit")
    else:
        out.print("[bold red]a race[/]: two runs on the same arguments give different values")
        out.print(f"  first at {_difference(report.result['first_difference'], report.written)}")
    given = report.expected
    if given is None:
        return
    which = f"all {given['outputs']} outputs" if given["outputs"] != 1 else "the output"
    if given["equal"]:
        error = f"{given['max_rel_err']:.1e}"
        out.print(f"[bold green]expected[/]: {which}, the largest difference {error} of an output's largest value")
    else:
        out.print("[bold red]not as expected[/]")
        out.print(f"  first at {_difference(given['first_difference'], report.written)}")


def _difference(data: Mapping[str, Any], written: Sequence[str]) -> str:
    """Where two values differ, by the argument's name."""
    place = f"{written[data['output']]}{list(data['element'])}"
    return escape(f"{place}: {data['actual']} instead of {data['expected']}")


def _each(by_rank: Mapping[int, int], one: str, many: str) -> str:
    """So many on each rank; where ranks differ, who has how many."""
    numbers = Counter(by_rank.values())
    if not numbers:
        return f"no {many}"
    if len(numbers) == 1:
        n = next(iter(numbers))
        return f"{n} {one if n == 1 else many} a rank"
    return f"{min(numbers)} to {max(numbers)} {many} a rank"


NUMBERS = ("bytes",)
FOLDED = ("shape", "operands", "detail", "within", "source")


def show_program_inventory(file: ProgramFile, entries: Sequence[Entry]) -> None:
    """Functions, windows, and a row for each op by which ranks have to do with one another."""
    out = terminal.out()
    rail = f" ({escape(file.rail)})" if file.rail else ""
    out.print(f"[bold]{escape(file.path)}[/]{rail}: {escape(file.program.name)}, {counted(file.ranks, 'rank')}")
    out.print()
    made = terminal.table("function", "kind", "parameters", "calls", "source", fold=("parameters", "calls", "source"))
    for f in functions(file.program):
        params = ", ".join(
            f"{p['name']}: {p['type']}" if p["direction"] == "In" else f"{p['name']}: {p['direction']} {p['type']}"
            for p in f["params"]
        )
        made.add_row(*map(escape, (f["name"], f["kind"], params, ", ".join(f["calls"]), f["where"])))
    terminal.show(made)
    if buffers := windows(file.program):
        out.print()
        made = terminal.table("window", "views", "domain", "source", fold=("views", "source"))
        for w in buffers:
            made.add_row(*map(escape, (w["name"], ", ".join(w["views"]), w["domain"] or "", w["where"])))
        terminal.show(made)
    out.print()
    if not entries:
        out.print("its ranks say nothing to one another")
        return
    rows = [_row(e) for e in entries]
    columns = [c for c in rows[0] if any(row[c] for row in rows)]
    made = terminal.table(*columns, right=NUMBERS, fold=FOLDED)
    for row in rows:
        made.add_row(*(escape(row[c]) for c in columns))
    terminal.show(made)
    out.print()
    sums = terminal.table("total", "count", "bytes", right=("count", "bytes"))
    for op, total in totals(entries).items():
        sums.add_row(op, str(total["count"]), byte_size(total["bytes"]))
    terminal.show(sums)


def _row(e: Entry) -> dict[str, str]:
    return {
        "function": e.function,
        "rail": e.rail,
        "op": e.op,
        "detail": e.detail,
        "operands": ", ".join(e.operands),
        "type": e.dtype,
        "shape": e.shape,
        "bytes": "" if e.bytes is None else byte_size(e.bytes),
        "within": e.within,
        "source": e.where,
    }
