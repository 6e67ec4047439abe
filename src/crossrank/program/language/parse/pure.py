"""Which functions of plain Python a body may call: those that do nothing but compute, before anything runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np

from crossrank.program.language.dtypes import DataType

BUILTINS: tuple[Any, ...] = (
    abs, all, any, bool, dict, divmod, float, int, isinstance, len, list, max, min, range, reversed, round, set,
    sorted, str, sum, tuple, zip,
)  # fmt: skip
UNCHANGING = (int, float, complex, str, bytes, tuple, range, frozenset, Enum, DataType, np.generic)
"""Types whose methods change nothing."""
READING: dict[type, tuple[str, ...]] = {list: ("count", "index"), dict: ("get", "items", "keys", "values")}
"""Methods of other types that change nothing."""


GROWING = (math.factorial, math.comb, math.perm)
"""Functions whose numbers outgrow what they are given."""
MOST_ITEMS, MOST_GROWTH = 1 << 20, 1000
"""Items that a call may go through, and the largest number that one of `GROWING` may be given."""


def is_short(called: Any, arguments: Sequence[Any]) -> bool:
    """Whether a call of Python's own is over soon: nobody can interrupt it."""
    if called in GROWING:
        return all(isinstance(a, int) and abs(a) <= MOST_GROWTH for a in arguments)
    return called is range or called is len or all(not isinstance(a, range) or len(a) <= MOST_ITEMS for a in arguments)


def is_repeatable(lhs: Any, rhs: Any) -> bool:
    """Whether a product of something with items and a number has no more of them than anybody needs."""
    pairs = [(a, n) for a, n in ((lhs, rhs), (rhs, lhs)) if isinstance(a, (str, bytes, list, tuple))]
    return all(not isinstance(n, int) or len(a) * n <= MOST_ITEMS for a, n in pairs)


def is_pure(called: Any) -> bool:
    """Whether a call has no effect but its value, as far as is known here."""
    if isinstance(called, type):
        return called in BUILTINS or issubclass(called, (np.generic, Enum))
    module, owner = getattr(called, "__module__", None) or "", getattr(called, "__self__", None)
    if module == math.__name__ or module.startswith("crossrank.program.language."):
        return True
    if isinstance(owner, tuple(READING)):
        return any(isinstance(owner, kind) and called.__name__ in names for kind, names in READING.items())
    return isinstance(owner, UNCHANGING) or any(called is each for each in BUILTINS)
