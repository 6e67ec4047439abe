"""Backends that a run imports by name; see `test_backends`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crossrank.collective.kinds import Kind
from crossrank.errors import InputError, RunError
from crossrank.hlo.execute.backends import Array, CalledBack
from crossrank.hlo.ffi.call import Call


class Sums(CalledBack):
    """All-reduces only, and each a sum."""

    name = "sums"

    def serves(self, call: Call) -> bool:
        return super().serves(call) and call.collective.kind is Kind.ALL_REDUCE

    def values(self, call: Call, group: int, members: Sequence[Sequence[Array]]) -> list[list[Array]]:
        return [
            [np.sum(of_all, axis=0, dtype=of_all[0].dtype) for of_all in zip(*members, strict=True)] for _ in members
        ]


class Bad(CalledBack):
    """What it does wrong is up to how many elements it is given."""

    name = "bad"

    def values(self, call: Call, group: int, members: Sequence[Sequence[Array]]) -> list[list[Array]]:
        given = [[np.array(a) for a in member] for member in members]
        match call.operands[0].count:
            case 1:
                raise InputError("no queue is left", "take fewer")
            case 2:
                raise RunError("the ring is broken")
            case 3:
                raise ValueError("a table is empty")
            case 4:
                return given[1:]
            case 5:
                return [[a.astype(np.float64) for a in member] for member in given]
        return [[] for _ in given]


def nothing(_native: object) -> str:
    return "no backend"
