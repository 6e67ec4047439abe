"""The ways in which a body cannot go on, before anybody knows where that was."""

from __future__ import annotations

from enum import IntEnum
from typing import NoReturn

from crossrank.errors import RunError


class Reason(IntEnum):
    """Why the runtime ends a run."""

    INVALID_ARGS = 5
    REQUIRE_SYNC_START_INVALID = 7
    SCHEDULER_TIMEOUT = 100


class Latched(RunError):
    """A run that was ended with a code: that of its first failure.

    Attributes:
        code: why.
        status: what a runtime on a device returns for it.
    """

    def __init__(self, what: str, code: Reason) -> None:
        super().__init__(what)
        self.code = code
        self.status = -code


class Refused(Exception):
    """An op cannot do what it is asked; the interpreter makes it an InputError with the author's place."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy


class Fatal(Exception):
    """What the runtime latches: a code, and why; the interpreter makes it `Latched`, with the author's place."""

    def __init__(self, what: str, code: Reason) -> None:
        super().__init__(f"{what} (code {code})")
        self.code = code


def refuse(what: str, remedy: str = "") -> NoReturn:
    """Raise `Refused`."""
    raise Refused(what, remedy)


def ask(holds: object, what: str, remedy: str = "") -> None:
    """Raise `Refused` where something does not hold."""
    if not holds:
        raise Refused(what, remedy)
