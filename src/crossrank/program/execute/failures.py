"""The ways in which a body cannot go on, before anybody knows where that was."""

from __future__ import annotations

from typing import NoReturn

INVALID_ARGUMENTS = 5
SYNC_START = 7


class Refused(Exception):
    """An op cannot do what it is asked; the interpreter makes it an InputError with the author's place."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy


class Fatal(Exception):
    """What the runtime latches: a code, and why; the interpreter makes it a RunError with the author's place."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what} (code {code})")


def refuse(what: str, remedy: str = "") -> NoReturn:
    """Raise `Refused`."""
    raise Refused(what, remedy)


def ask(holds: object, what: str, remedy: str = "") -> None:
    """Raise `Refused` where something does not hold."""
    if not holds:
        raise Refused(what, remedy)
