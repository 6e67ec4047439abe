"""Which functions of plain Python a body may call: those that do nothing but compute, before anything runs."""

from __future__ import annotations

import math
from enum import Enum
from typing import Any

import numpy as np

from crossrank.program.language.dtypes import DataType

BUILTINS: tuple[Any, ...] = (
    abs, all, any, bool, dict, divmod, float, int, isinstance, len, list, max, min, pow, range, reversed, round, set,
    sorted, str, sum, tuple, zip,
)  # fmt: skip
UNCHANGING = (int, float, complex, str, bytes, tuple, range, frozenset, Enum, DataType, np.generic)
"""Types whose methods change nothing."""
READING: dict[type, tuple[str, ...]] = {list: ("count", "index"), dict: ("get", "items", "keys", "values")}
"""Methods of other types that change nothing."""


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
