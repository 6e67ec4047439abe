"""The two ways in which a command fails, each with an exit status of its own.

Everything that a person can cause or mend is one of them; anything else that escapes is a fault of ours.
"""


def counted(n: int, what: str) -> str:
    """``1 rank``, ``2 ranks``."""
    return f"{n} {what}{'' if n == 1 else 's'}"


class InputError(Exception):
    """Bad input or bad usage: a file, an option, a module that cannot be what it should be (exit status 2).

    The message says in one or two lines where the fault lies, what it is and what to do about it.

    Args:
        what: the fault, with the place where it lies (file, line, instruction).
        remedy: what to do about it; printed on a line of its own.
    """

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(f"{what}\n{remedy}" if remedy else what)
        self.what = what
        self.remedy = remedy


class Ended(SystemExit):
    """Somebody asks us to end, by a signal; no fault of what runs, unlike another SystemExit in it."""


class RunError(Exception):
    """A run that failed by itself: a limit, a kernel, a compiler, a rank (exit status 3)."""


def ask(holds: object, what: str, remedy: str = "") -> None:
    """Raise an InputError where something does not hold."""
    if not holds:
        raise InputError(what, remedy)
