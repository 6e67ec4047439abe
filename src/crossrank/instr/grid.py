"""The launch grid of a kernel, laid over the cores of a rank: each program is a core."""

from __future__ import annotations

import itertools
from collections.abc import Sequence


class ProgramAxis(int):
    """A program's number along one axis of the grid: an int that knows of which axis.

    Attributes:
        axis: the axis.
        extent: how many programs there are along it.
    """

    axis: int
    extent: int

    def __new__(cls, value: int, axis: int, extent: int) -> ProgramAxis:
        """That number on that axis."""
        self = super().__new__(cls, value)
        self.axis = axis
        self.extent = extent
        return self


def program_ids(axes: Sequence[ProgramAxis]) -> list[tuple[int, ...]]:
    """The program ids of each core, row by row; one empty one where there is no grid."""
    return list(itertools.product(*(range(a.extent) for a in axes)))
