"""What `passes` tells a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markdown import Markdown
from rich.markup import escape

from crossrank.report import terminal


def show_passes(passes: Sequence[Mapping[str, Any]], pipelines: Mapping[str, Sequence[str]]) -> None:
    """The passes with a sentence each, by what they work on, and what the pipelines are made of."""
    for works_on in dict.fromkeys(p["works_on"] for p in passes):
        rows = terminal.table(f"pass on {works_on or 'anything'}", "what it does")
        for p in passes:
            if p["works_on"] == works_on:
                rows.add_row(f"[cyan]{p['name']}[/]", escape(p["summary"]))
        terminal.show(rows)
        terminal.out().print()
    rows = terminal.table("pipeline", "passes")
    room = terminal.width() - max(map(len, ("pipeline", *pipelines))) - 2
    for name, listed in pipelines.items():
        rows.add_row(f"[cyan]{name}[/]", escape("\n".join(_lines(listed, room))))
    terminal.show(rows)


def _lines(passes: Sequence[str], width: int) -> list[str]:
    """The passes behind one another, with line breaks between them only."""
    lines = [""]
    for n, spec in enumerate(passes, 1):
        spec += "," if n < len(passes) else ""
        if lines[-1] and len(lines[-1]) + len(spec) > width:
            lines.append("")
        lines[-1] += spec
    return lines


def show_pipeline(name: str, passes: Sequence[Mapping[str, str]]) -> None:
    """The passes of a pipeline, one a line."""
    out = terminal.out()
    out.print(f"[bold cyan]{name}[/]\n")
    for p in passes:
        out.print(escape(p["spec"]))


def show_pass(p: Mapping[str, Any]) -> None:
    """One pass in full, and its options."""
    out = terminal.out()
    out.print(f"[bold cyan]{p['name']}[/] [dim]on {p['works_on'] or 'anything'}[/]\n")
    if out.is_terminal:
        out.print(Markdown(p["text"]))
    else:
        out.print(escape(p["text"]))
    if p["options"]:
        out.print()
        rows = terminal.table("option", "type", "default", "what it does")
        for o in p["options"]:
            default = str(o["default"])
            default = default.lower() if isinstance(o["default"], bool) else default  # as the command line takes it
            rows.add_row(o["name"], escape(o["type"]), escape(default), escape(o["text"]))
        terminal.show(rows)
