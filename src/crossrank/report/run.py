"""What `run` tells a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape

from crossrank.compare import Difference, output_name
from crossrank.hlo.execute.run import RunReport
from crossrank.passes import PassResult
from crossrank.report import terminal


def show_run(report: RunReport) -> None:
    """The table of what changed, the verdict, and how fast either was."""
    out = terminal.out()
    via = "" if report.via == "kernels" else f" via {escape(report.via)}"
    out.print(f"[bold]{escape(report.file)}[/] on {report.ranks} ranks{via}: {escape(what_changed(report.passes))}")
    if report.raised_for_original:
        calls = f"{report.raised_for_original} custom-call{'s' if report.raised_for_original > 1 else ''}"
        out.print(f"the file holds {calls} of the contract: raised to native collectives, they are the original")
    out.print()
    changes = terminal.table("collective", "original", "rewritten", right=("original", "rewritten"))
    for kind in sorted({*report.before, *report.after}):
        changes.add_row(kind, str(report.before.get(kind, 0)), str(report.after.get(kind, 0)))
    for target, count in report.custom_calls.items():
        changes.add_row(f"[cyan]{target}[/]", "0", str(count))
    if changes.row_count:
        terminal.show(changes)
    else:
        out.print("no collectives")
    out.print()
    _show_verdict(report)
    if report.stages:
        _show_stages(report)
    _show_times(report)
    for warning in report.warnings:
        terminal.warn(warning)


def what_changed(passes: Sequence[PassResult]) -> str:
    """How many passes there are, and which of them changed something."""
    changed = [p.spec for p in passes if p.changed]
    if not passes:
        return "no passes"
    if not changed:
        return "the pass changes nothing" if len(passes) == 1 else f"none of {len(passes)} passes changes it"
    return (f"{len(changed)} of {len(passes)} passes change it: " if len(passes) > 1 else "") + ", ".join(changed)


def _show_verdict(report: RunReport) -> None:
    out, result = terminal.out(), report.result
    show_comparison(result, report.ranks, f"the {result['reference']}")
    if result["reference"] != "original" and not result["untouched"]["exact"]:
        out.print(
            "  (XLA compiles a native collective and a custom-call differently: the untouched original: "
            f"{_far(result['untouched']['max_rel_err'])})",
            style="dim",
        )
    if result["golden"] is not None:
        show_given("golden", result["golden"], is_wrong=not report.equal)


def show_comparison(result: Mapping[str, Any], ranks: int, reference: str) -> None:
    """Whether all outputs are those of the reference; else where the first difference is, and how large they are."""
    out, outputs = terminal.out(), result["outputs"]
    exact = sum(o["exact"] for o in outputs)
    if result["exact"]:
        which = f"all {len(outputs)} outputs" if len(outputs) != 1 else "the output"
        whose = f"all {ranks} ranks" if ranks != 1 else "the only rank"
        out.print(f"[bold green]equal[/]: {which} of {whose}, bit for bit, to {reference}")
    elif result["equal"]:
        worst = max(o["max_rel_err"] for o in outputs)
        out.print(
            f"[bold green]equal[/] within the tolerance: {exact} of {len(outputs)} outputs bit for bit to {reference}, "
            f"the largest difference {worst:.1e} of an output's largest value"
        )
    else:
        out.print(f"[bold red]different[/]: {len(outputs) - exact} of {len(outputs)} outputs differ from {reference}")
        out.print(f"  first at {escape(str(difference(result['first_difference'])))}")
        wrong = terminal.table("output", "shape", "max abs err", "max ulp", right=("output", "max abs err", "max ulp"))
        for o in [o for o in outputs if not o["equal"]][:10]:
            ulp = "" if o["max_ulp"] is None else str(o["max_ulp"])
            wrong.add_row(output_name(o), f"{o['dtype']}{o['shape']}", f"{o['max_abs_err']:.3g}", ulp)
        terminal.show(wrong)


def show_given(word: str, given: Mapping[str, Any], *, is_wrong: bool) -> None:
    """How far outputs are from those that were given; ``word`` is what these are called."""
    out = terminal.out()
    if given["equal"]:
        which = f"all {given['outputs']} given outputs" if given["outputs"] != 1 else "the given output"
        error = f"{given['max_rel_err']:.1e}"
        out.print(f"[bold green]{word}[/]: {which}, the largest difference {error} of an output's largest value")
    else:
        out.print(f"[bold {'red' if is_wrong else 'yellow'}]{word}[/]: {_far(given['max_rel_err'])}")
        out.print(f"  first at {escape(str(difference(given['first_difference'])))}")


def _show_stages(report: RunReport) -> None:
    """Under --verify-each: values after each pass that changed something, and every collective against the oracle."""
    out = terminal.out()
    rows = terminal.table("after the pass", "values")
    for stage in report.stages:
        verdict = "[green]exact[/]" if stage.exact else "[green]equal[/] within the tolerance"
        if not stage.equal:
            what = stage.error or str(difference(stage.first_difference or {}))
            verdict = f"[red]different[/]: {escape(what)}"
        rows.add_row(escape(stage.spec or "none"), verdict)
    terminal.show(rows)
    checks = report.result.get("collective_checks")
    if checks:
        out.print(
            f"{checks['checked']} collectives met {checks['meetings']} times: operands and results compared with the "
            f"oracle, {len(checks['different'])} different"
        )
        for found in checks["different"][:10]:
            out.print(f"  [red]different[/]: {escape(found['collective'])}: {escape(found['what'])}")
    if report.culprit:
        out.print(f"[bold red]first[/]: {escape(report.culprit)} changes values")


def _far(relative: float) -> str:
    """How far values are off."""
    return (
        f"up to {relative:.1e} of an output's largest value off"
        if relative < 1e300
        else "NaN or infinity on one side only"
    )


def difference(data: dict[str, object]) -> Difference:
    """A difference from its JSON data."""
    return Difference(**{**data, "element": tuple(data["element"])})  # type: ignore[arg-type]


def _show_times(report: RunReport) -> None:
    times = report.result["time_ms"]
    if times:
        ratio = report.result["speedup"]
        terminal.out().print(
            f"time: {times['original']:.2f} ms the original, {times['rewritten']:.2f} ms the rewritten module "
            f"([bold]{ratio:.2f}×[/])"
        )
