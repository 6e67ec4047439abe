"""All that is wrong with a program's source, not only what is found first.

While somebody collects, the parser goes on behind a statement that cannot be: what that would have bound is `Unknown`,
and what is said of an unknown value is of no interest.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from crossrank.errors import InputError

_collected: ContextVar[list[InputError] | None] = ContextVar("collected", default=None)


@dataclass(frozen=True)
class Unbound:
    """What a name is worth that may not be read: why, and what to do about it."""

    what: str
    remedy: str = ""


class Unknown(Unbound):
    """What a name is worth that a faulty statement would have bound."""


class OfUnknown(InputError):
    """A statement that uses an unknown value."""


@contextmanager
def collecting() -> Iterator[list[InputError]]:
    """The faults of all programs that are parsed meanwhile; a program that has any still raises its first."""
    faults: list[InputError] = []
    token = _collected.set(faults)
    try:
        yield faults
    finally:
        _collected.reset(token)


def collected() -> int:
    """How many faults there are so far."""
    return len(_collected.get() or ())


@contextmanager
def recovering() -> Iterator[list[Exception]]:
    """Take note of a fault within, and go on; gives a list that then has it. Nobody collects: let it out."""
    faults, before, failed = _collected.get(), collected(), list[Exception]()
    try:
        yield failed
    except InputError as error:
        if faults is None:
            raise
        inner = len(faults) > before  # what is said of a loop with a fault in it is what became of that
        if not inner and not isinstance(error, OfUnknown) and error.what not in [f.what for f in faults]:
            faults.append(error)
        failed.append(error)
    except Exception as error:
        if faults is None or len(faults) == before:
            raise  # else it is what became of an unknown value
        failed.append(error)
