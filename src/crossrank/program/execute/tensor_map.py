"""Who read and who wrote which memory last, and so after whom comes who touches it now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

import numpy as np

from crossrank.program.execute.views import View
from crossrank.program.kinds import ArgDirection

Task = TypeVar("Task")

MANY = 1024
"""After so many accesses it is worth looking which tasks are over."""

_HARD = 10_000
"""How much work it may be to find out whether two views with holes have an element in common."""


class _Region(Generic[Task]):
    """Memory that was touched as one view: who wrote it last, and who has read it since."""

    def __init__(self, view: View, writer: Task | None = None) -> None:
        self.view = view
        self.begin, self.end = view.address, view.end
        self.writer = writer
        self.readers: list[Task] = []


class TensorMap(Generic[Task]):
    """Regions of memory and the tasks that touched them.

    Two accesses are ordered where they have bytes in common and one of them writes. Views are compared by where they
    lie, exactly, so that columns of one tensor are as independent as rows.

    Args:
        unfinished: which of some tasks are not over; the others are forgotten from time to time.
    """

    def __init__(self, unfinished: Callable[[list[Task]], Iterable[Task]]) -> None:
        self._regions: dict[tuple[object, ...], _Region[Task]] = {}
        self._unfinished = unfinished
        self._noted, self._many = 0, MANY

    def before(self, view: View, direction: ArgDirection) -> Iterator[Task]:
        """The tasks that come before one that touches ``view`` so; some may be given twice."""
        if not (direction.reads or direction.writes):
            return
        begin, end = view.address, view.end
        for region in self._regions.values():
            if begin < region.end and region.begin < end and _overlap(view, region.view):
                if region.writer is not None:
                    yield region.writer
                if direction.writes:
                    yield from region.readers

    def note(self, view: View, direction: ArgDirection, task: Task, *, ordered: bool = True) -> None:
        """Remember that ``task`` touches ``view``; ``ordered``: it comes after all that `before` gave."""
        if not (direction.reads or direction.writes) or view.address == view.end:
            return
        self._noted += 1
        if self._noted > self._many:
            self._forget()
        key = (view.address, view.array.shape, view.array.strides)
        if not direction.writes:
            self._regions.setdefault(key, _Region(view)).readers.append(task)
            return
        if ordered and view.is_packed:  # whoever comes after it comes after them, too
            begin, end = view.address, view.end
            covered = [k for k, r in self._regions.items() if begin <= r.begin and r.end <= end]
            for old in covered:
                del self._regions[old]
        self._regions[key] = _Region(view, task)

    def _forget(self) -> None:
        """Those that are over need not be waited for. What stays is looked at again when as much has come."""
        known = [task for r in self._regions.values() for task in (r.writer, *r.readers) if task is not None]
        left = set(self._unfinished(known))
        for key, region in list(self._regions.items()):
            region.readers = [task for task in region.readers if task in left]
            if region.writer not in left:
                region.writer = None
            if region.writer is None and not region.readers:
                del self._regions[key]
        self._noted, self._many = 0, max(MANY, len(left))

    def all_before(self, accesses: Iterable[tuple[View, ArgDirection]]) -> list[Task]:
        """The tasks that come before one with these accesses, each once, in the order in which they were found."""
        return list(dict.fromkeys(t for view, direction in accesses for t in self.before(view, direction)))


def _overlap(a: View, b: View) -> bool:
    """Whether two views whose bytes lie among one another have an element in common."""
    if a.is_packed and b.is_packed:
        return True
    try:
        return np.shares_memory(a.array, b.array, max_work=_HARD)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
