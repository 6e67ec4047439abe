"""What `check` tells a person."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape

from crossrank.findings import Finding
from crossrank.report import terminal

_STYLES = {"error": "bold red", "warning": "yellow"}


def show_findings(path: str, findings: Sequence[Finding]) -> None:
    """A line for each finding and its remedy, and how many there are."""
    out = terminal.out()
    for f in findings:
        out.print(f"[{_STYLES[f.severity]}]{f.severity}[/] {f.kind}: {escape(str(f))}")
        if f.remedy:
            out.print(f"  {escape(f.remedy)}", style="dim")
    if findings:
        out.print(f"{escape(path)}: {len(findings)} finding{'s' if len(findings) > 1 else ''}")
    else:
        out.print(f"{escape(path)}: [bold green]nothing found[/]")
