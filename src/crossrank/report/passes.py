"""What `passes` tells a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markdown import Markdown
from rich.markup import escape

from crossrank.report import terminal


def show_passes(passes: Sequence[Mapping[str, Any]], pipelines: Mapping[str, str]) -> None:
    """The passes with a sentence each, and what the pipelines are made of."""
    rows = terminal.table("pass", "what it does")
    for p in passes:
        rows.add_row(f"[cyan]{p['name']}[/]", escape(p["summary"]))
    terminal.show(rows)
    terminal.out().print()
    rows = terminal.table("pipeline", "passes")
    for name, text in pipelines.items():
        rows.add_row(f"[cyan]{name}[/]", escape(text))
    terminal.show(rows)


def show_pass(p: Mapping[str, Any]) -> None:
    """One pass in full, and its options."""
    out = terminal.out()
    out.print(f"[bold cyan]{p['name']}[/]\n")
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
