"""Standard output and standard error, with colour where a terminal reads them.

Results go to standard output; progress, remarks and complaints to standard error.
"""

from __future__ import annotations

import codecs
import io
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from crossrank.remarks import Remark

_PLAIN = {"→": "->", "×": "x", "–": "-", "…": "...", "•": "*"}


def _in_plain_characters(error: UnicodeError) -> tuple[bytes, int]:
    """What stands for characters that a stream has no code for; bytes of file names stay what they are."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    said = b""
    for c in error.object[error.start : error.end]:
        byte = ord(c) - 0xDC00
        said += bytes([byte]) if 0x80 <= byte <= 0xFF else _PLAIN.get(c, "?").encode()
    return said, error.end


codecs.register_error("crossrank", _in_plain_characters)


def never_fail() -> None:
    """Let both streams show what their encoding lacks as something near it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="crossrank")


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # the command line's affair


def out() -> Console:
    """Standard output. Made on each call: whoever redirects it wants the stream of now."""
    return _Console(highlight=False, soft_wrap=True)


def err() -> Console:
    """Standard error."""
    return _Console(stderr=True, highlight=False, soft_wrap=True)


def error(message: str) -> None:
    """One line that says what went wrong."""
    err().print(f"[bold red]crossrank:[/] {escape(message)}")


def hint(message: str) -> None:
    """One line that says what to do about it."""
    err().print(f"  {escape(message)}", style="dim")


def warn(message: str) -> None:
    """One line on what is odd, though not wrong."""
    err().print(f"[yellow]warning:[/] {escape(message)}")


def remarks(items: Iterable[Remark]) -> None:
    """One line for each remark."""
    console = err()
    for r in items:
        console.print(escape(str(r)), style="" if r.outcome == "done" else "yellow")


def table(
    *columns: str, right: Iterable[str] = (), title: str | None = None, fold: Iterable[str] | None = None
) -> Table:
    """A plain table; columns in ``right`` hold numbers, and only those in ``fold`` are broken where room is short."""
    made = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left", title_style="bold")
    numbers, foldable = set(right), None if fold is None else set(fold)
    for c in columns:
        whole = foldable is not None and c not in foldable
        made.add_column(c, justify="right" if c in numbers else "left", overflow="fold", no_wrap=whole)
    return made


def show(made: Table, *, stderr: bool = False) -> None:
    """Print a table: as wide as the terminal, or as wide as it wants to be in a pipe."""
    console = _Console(highlight=False, stderr=stderr, width=width(stderr=stderr))
    if console.is_terminal:
        console.print(made)
        return
    with console.capture() as captured:
        console.print(made)
    for line in captured.get().splitlines():
        console.print(line.rstrip(), markup=False, soft_wrap=True)


def width(*, stderr: bool = False) -> int:
    """Columns of a table: those of the terminal, or plenty in a pipe."""
    console = _Console(stderr=stderr)
    return console.width if console.is_terminal else max(200, console.width)


@contextmanager
def progress() -> Iterator[Callable[[dict[str, Any]], None]]:
    """A line on standard error that says what is going on, on a terminal; nothing in a pipe."""
    console = err()
    if not console.is_terminal:
        yield lambda _event: None
        return
    with console.status("starts") as status:

        def update(event: dict[str, Any]) -> None:
            total = f" ({event['done']} of {event['total']})" if "total" in event else ""
            status.update(escape(f"{event['stage']}{total}"))

        yield update
