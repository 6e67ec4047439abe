"""The ways in which a body cannot go on, before anybody knows where that was; `told` makes what people see of them."""

from __future__ import annotations

from enum import IntEnum
from typing import NoReturn

from xdsl.ir import Operation

from crossrank.arrays import check_room
from crossrank.errors import InputError, RunError
from crossrank.program.program import where


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

    def called_at(self, place: str) -> Latched:
        """The same with the author's place of what called the function that it was in, for one that has no lines."""
        return Latched(f"{place}: {self}", self.code) if place else self


class Refused(Exception):
    """An op cannot do what it is asked."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy


class Fatal(Exception):
    """What the runtime latches: a code, and why."""

    def __init__(self, what: str, code: Reason) -> None:
        super().__init__(f"{what} (code {code})")
        self.code = code


class NoRoom(Exception):
    """There is not enough memory."""


FAILURES = (Refused, Fatal, NoRoom)


def told(op: Operation, failure: Refused | Fatal | NoRoom) -> InputError | RunError:
    """A failure of an op as people see it, with the author's place."""
    match failure:
        case Refused():
            return InputError(f"{where(op)}{failure.what}", failure.remedy)
        case Fatal():
            return Latched(f"{where(op)}{failure}", failure.code)
    return RunError(f"{where(op)}{failure}")


def room(size: int, what: str) -> None:
    """Raise `NoRoom` where this machine does not have so many bytes."""
    try:
        check_room(size, what)
    except RunError as error:
        raise NoRoom(str(error)) from None


def refuse(what: str, remedy: str = "") -> NoReturn:
    """Raise `Refused`."""
    raise Refused(what, remedy)


def ask(holds: object, what: str, remedy: str = "") -> None:
    """Raise `Refused` where something does not hold."""
    if not holds:
        raise Refused(what, remedy)
