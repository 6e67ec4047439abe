"""What the commands tell a person of a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape

from crossrank.errors import counted
from crossrank.program.cost.estimate import CostReport
from crossrank.program.cost.rails import Rail
from crossrank.program.inventory import PRIMITIVES, Entry, ProgramInventory, functions, totals
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
    if report.rails:
        show_choice(report.rails, report.rail)
    out.print()
    changes = terminal.table("between ranks", "written", "lowered", right=("written", "lowered"))
    for kind in sorted({*report.before, *report.after}):
        changes.add_row(kind, str(report.before.get(kind, 0)), str(report.after.get(kind, 0)))
    if changes.row_count:
        terminal.show(changes)
    else:
        out.print("its ranks say nothing to one another")
    out.print()
    kernels = ", ".join(_launches(name, n, report.blocks[name]) for name, n in report.launched.items())
    out.print(
        f"each run: {_each(report.dispatches, *DISPATCH)}, {_each(report.tasks, *TASK)}"
        f"{f' ({escape(kernels)})' if kernels else ''}, {report.time_ms:.2f} ms "
        f"({_ms(report.cost)} estimated)"
    )
    _show_verdict(report)
    for warning in report.warnings:
        terminal.warn(warning)


def show_choice(rails: Sequence[Rail], name: str, *, stderr: bool = False) -> None:
    """Which rail was picked, and why: a line, and one for each that cannot be compiled."""
    out = terminal.err() if stderr else terminal.out()
    costs = {rail.name: rail.cost for rail in rails if rail.cost is not None}
    mine = costs.pop(name)
    counts = [
        _each({rank: counts[what] for rank, counts in mine.ranks.items()}, *words)
        for what, words in (("dispatches", DISPATCH), ("tasks", TASK))
    ]
    if all(said.endswith(" a rank") for said in counts):
        counts[0] = counts[0].removesuffix(" a rank")
    others = ", ".join(f"{other} {_ms(cost)}" for other, cost in costs.items())
    out.print(
        escape(f"rail {name}: {_ms(mine)} estimated ({', '.join(counts)})" + f"; {others}" * bool(others)),
        highlight=False,
    )
    for rail in rails:
        if rail.error is not None:
            terminal.warn(f"rail {rail.name} cannot be compiled: {rail.error.what}")


def _ms(cost: CostReport) -> str:
    """An estimate: two digits of it."""
    return f"{cost.milliseconds:.{1 if cost.milliseconds >= 1 else 2}f} ms"


def _launches(name: str, count: int, blocks: Sequence[int]) -> str:
    """How often a kernel is launched, and in how many blocks where those are several."""
    wide = "" if list(blocks) == [1] else f" of {' or '.join(map(str, blocks))} blocks each"
    return (f"{name} ×{count}" if count > 1 else name) + wide


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


DISPATCH, TASK = ("dispatch", "dispatches"), ("task", "tasks")


def _each(by_rank: Mapping[int, float], one: str, many: str) -> str:
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


def show_program_inventory(found: ProgramInventory) -> None:
    """Functions, windows, a row for each op by which ranks have to do with one another, and what a run costs."""
    out, file, entries = terminal.out(), found.file, found.entries
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
    if buffers := found.windows:
        out.print()
        made = terminal.table("window", "views", "domain", "source", fold=("views", "source"))
        for w in buffers:
            made.add_row(*map(escape, (w["name"], ", ".join(w["views"]), w["domain"] or "", w["where"])))
        terminal.show(made)
    out.print()
    if entries:
        _show_entries(entries)
    else:
        out.print("its ranks say nothing to one another")
    _show_costs(found)
    for warning in found.warnings:
        terminal.warn(warning)


def _show_entries(entries: Sequence[Entry]) -> None:
    out, rows = terminal.out(), [_row(e) for e in entries]
    columns = [c for c in rows[0] if any(row[c] for row in rows)]
    made = terminal.table(*columns, right=NUMBERS, fold=FOLDED)
    for row in rows:
        made.add_row(*(escape(row[c]) for c in columns))
    terminal.show(made)
    out.print()
    if collectives := [e for e in entries if e.tasks is not None and e.op not in PRIMITIVES.values()]:
        columns = ["on each rank", "line", "dispatches", "tasks", "blocks", "windows", "domain"]
        made = terminal.table(*columns, right=columns[1:4], fold=("windows", "domain"))
        for e in collectives:
            made.add_row(*map(escape, _on_each_rank(e)))
        terminal.show(made)
        out.print()
    sums = terminal.table("total", "count", "bytes", right=("count", "bytes"))
    for op, total in totals(entries).items():
        sums.add_row(op, str(total["count"]), byte_size(total["bytes"]))
    terminal.show(sums)


def _on_each_rank(e: Entry) -> tuple[str, ...]:
    """What becomes of a collective: a row of the table."""
    line = e.where.rsplit(":", 2)[-2] if ":" in e.where else ""
    blocks = " or ".join(map(str, e.blocks))
    asked = f" of {e.core_num}" if e.core_num is not None and f"{e.core_num}" != blocks else ""
    return e.op, line, f"{e.dispatches:g}", f"{e.tasks:g}", blocks + asked, ", ".join(e.windows), e.domain


COSTS = ("dispatches", "tasks", "blocks", "waits", "moved_bytes", "managed_bytes", "copied_bytes", "elements")


def _show_costs(found: ProgramInventory) -> None:
    """What a run costs, all ranks together: a row for each rail."""
    priced = [(rail.name, rail.cost) for rail in found.rails or [found.rail] if rail.cost is not None]
    if not priced:
        return
    terminal.out().print()
    heads = [what.removesuffix("_bytes") for what in COSTS]
    made = terminal.table("a run", "estimated", *heads, right=("estimated", *heads))
    for name, cost in priced:
        numbers = [byte_size(int(n)) if what.endswith("bytes") else f"{n:g}" for what, n in _costs(cost)]
        made.add_row(escape(name or found.file.program.name), _ms(cost), *numbers)
    terminal.show(made)


def _costs(cost: CostReport) -> list[tuple[str, float]]:
    return [(what, cost.total[what]) for what in COSTS]


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
