"""Every collective of a run against the oracle: operands and results, each time that it is met."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crossrank.collective.dtypes import F16
from crossrank.collective.kinds import ReduceOp
from crossrank.compare import same_bits, shown
from crossrank.hlo.execute.backends import meaning, typed
from crossrank.hlo.ffi.call import Call
from crossrank.hlo.ffi.native import Native

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Deviation:
    """The first element that a collective got wrong."""

    collective: str
    rank: int
    result: int
    element: tuple[int, ...]
    expected: str
    actual: str

    @property
    def what(self) -> str:
        """One line for people."""
        return (
            f"rank {self.rank}, result {self.result}, element {list(self.element)}: {self.actual} instead of "
            f"{self.expected}"
        )


class CollectiveChecks:
    """Checks that stand behind collectives and hand on what these gave.

    Args:
        native: where they are made known.
    """

    def __init__(self, native: Native) -> None:
        self._native = native
        self._lock = threading.Lock()
        self._found: dict[int, Deviation] = {}
        self.checked = 0
        self.meetings = 0

    def register(self, call: Call, *, ours: bool) -> int:
        """A check of one collective; returns the id that its custom-call carries.

        The custom-call takes the operands and then the results of the collective, and gives the results. What XLA's own
        collectives (``ours`` is false) are known to do in other ways is not looked at: sums and products in f16,
        products of complex numbers, and what becomes of NaN in a maximum or minimum.
        """
        number = self.checked
        self.checked += 1
        known = len(call.operands)
        op = call.collective.reduce_op

        def check(group: int, inputs: list[list[Array]], outputs: list[list[Array]]) -> None:
            for given, copies in zip(inputs, outputs, strict=True):
                for raw, copy in zip(given[known:], copies, strict=True):
                    copy[...] = raw
            with self._lock:
                self.meetings += 1
                if number in self._found:
                    return
            operands = [[typed(r, s) for r, s in zip(m[:known], call.operands, strict=True)] for m in inputs]
            expected = meaning(call, group, operands)
            ranks = call.collective.groups[group]
            for rank, given, wanted in zip(ranks, inputs, expected, strict=True):
                for n, (raw, shape, value) in enumerate(zip(given[known:], call.results, wanted, strict=True)):
                    inexact = shape.dtype is F16 or (shape.dtype.is_complex and op is ReduceOp.MULTIPLY)
                    if not ours and op in (ReduceOp.ADD, ReduceOp.MULTIPLY) and inexact:
                        continue
                    actual = typed(raw, shape)
                    value = value.reshape(shape.dims)
                    same = same_bits(value, actual)
                    if not ours and op in (ReduceOp.MAXIMUM, ReduceOp.MINIMUM) and shape.dtype.is_float:
                        same = same | np.isnan(value.astype(np.float64))
                    if not same.all():
                        self._note(number, call, rank, n, same, value, actual)
                        return

        return self._native.oracle(f"check of {call.label}", call.world, call.collective.groups, check)

    def _note(
        self, number: int, call: Call, rank: int, result: int, same: Array, expected: Array, actual: Array
    ) -> None:
        where = tuple(int(k) for k in np.argwhere(~same)[0])
        found = Deviation(call.label, rank, result, where, shown(expected[where]), shown(actual[where]))
        with self._lock:
            self._found.setdefault(number, found)

    def as_dict(self) -> dict[str, Any]:
        """``checked, meetings, different [{collective, rank, result, element, expected, actual, what}]``, in order."""
        with self._lock:
            different = [vars(d) | {"what": d.what} for _, d in sorted(self._found.items())]
            return {"checked": self.checked, "meetings": self.meetings, "different": different}
