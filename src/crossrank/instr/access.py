"""Access patterns: which elements of a tensor an operand is, as an offset and a stride for each dimension.

Elements are counted in the row-major order of the tensor; element ``(i, j, …)`` of a pattern is the tensor's element
``offset + i·stride_i + j·stride_j + …``. Plain data, without a tensor: what a tensor is, is said elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType

Index = int | slice | EllipsisType
"""What a dimension may be indexed with here; registers and ``ds`` are the business of `tensors`."""


@dataclass(frozen=True)
class AccessPattern:
    """An offset, and ``(stride, extent)`` of each dimension, outermost first."""

    offset: int
    dims: tuple[tuple[int, int], ...]

    @staticmethod
    def row_major(shape: Sequence[int]) -> AccessPattern:
        """The pattern of a whole tensor of ``shape``."""
        strides, step = [], 1
        for extent in reversed(shape):
            strides.append(step)
            step *= extent
        return AccessPattern(0, tuple(zip(reversed(strides), shape, strict=True)))

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        return tuple(extent for _, extent in self.dims)

    @property
    def strides(self) -> tuple[int, ...]:
        """The strides, in elements."""
        return tuple(stride for stride, _ in self.dims)

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def bounds(self) -> tuple[int, int]:
        """The first element that it touches, and the one after the last; both the offset where it is empty."""
        if not self.size:
            return self.offset, self.offset
        spans = [stride * (extent - 1) for stride, extent in self.dims]
        return self.offset + sum(min(s, 0) for s in spans), self.offset + sum(max(s, 0) for s in spans) + 1

    @property
    def is_contiguous(self) -> bool:
        """Whether its elements lie one after the other, in order."""
        merged = [d for d in self.dims if d[1] != 1]
        return not self.size or [s for s, _ in merged] == list(AccessPattern.row_major([n for _, n in merged]).strides)

    def covers(self, count: int) -> bool:
        """Whether it is all of a tensor of ``count`` elements, in order."""
        return self.offset == 0 and self.size == count and self.is_contiguous

    def moved(self, by: int) -> AccessPattern:
        """The same, ``by`` elements further on."""
        return AccessPattern(self.offset + by, self.dims)

    def indexed(self, indices: Sequence[Index]) -> AccessPattern:
        """What NumPy's basic indexing gives: an int drops its dimension, a slice keeps it.

        Raises:
            ValueError: an index outside of its dimension, or more of them than there are.
        """
        offset, dims = self.offset, []
        for position, (index, (stride, extent)) in enumerate(
            zip(expanded(indices, len(self.dims)), self.dims, strict=True)
        ):
            if isinstance(index, slice):
                start, stop, step = _checked_slice(index, extent, position)
                offset += start * stride
                dims.append((stride * step, max(0, -((start - stop) // step))))
            else:
                if not -extent <= index < extent:
                    raise ValueError(f"index {index} is outside of dimension {position}, which has {extent}")
                offset += (index + extent if index < 0 else index) * stride
        return AccessPattern(offset, tuple(dims))

    def permuted(self, order: Sequence[int]) -> AccessPattern:
        """The dimensions in another order."""
        if sorted(order) != list(range(len(self.dims))):
            raise ValueError(f"{list(order)} is no order of {len(self.dims)} dimensions")
        return AccessPattern(self.offset, tuple(self.dims[d] for d in order))

    def reshaped(self, shape: Sequence[int]) -> AccessPattern:
        """The same elements in the same order under another shape; one extent may be -1.

        Raises:
            ValueError: another number of elements, or no pattern can say it: the elements lie too far apart.
        """
        shape = list(shape)
        if shape.count(-1) == 1:
            rest = math.prod(n for n in shape if n != -1)
            shape[shape.index(-1)] = self.size // rest if rest else 0
        if math.prod(shape) != self.size or any(n < 0 for n in shape):
            raise ValueError(f"{self.size} elements of shape {list(self.shape)} cannot have the shape {shape}")
        if not self.size:
            return AccessPattern(self.offset, tuple((1, n) for n in shape))
        runs = self._runs()
        dims: list[tuple[int, int]] = []
        stride, left = runs.pop() if runs else (1, 1)
        for extent in reversed(shape):  # split the innermost run first
            if extent == 1:
                dims.append((stride, 1))
                continue
            if left == 1 and runs:
                stride, left = runs.pop()
            if left % extent:
                raise ValueError(
                    f"the shape {list(self.shape)} with strides {list(self.strides)} has no view of shape {shape}: "
                    "copy it"
                )
            dims.append((stride, extent))
            stride, left = stride * extent, left // extent
        return AccessPattern(self.offset, tuple(reversed(dims)))

    def _runs(self) -> list[tuple[int, int]]:
        """The dimensions, merged where one continues the next."""
        runs: list[tuple[int, int]] = []
        for stride, extent in self.dims:
            if extent == 1:
                continue
            if runs and runs[-1][0] == stride * extent:
                runs[-1] = (stride, runs[-1][1] * extent)
            else:
                runs.append((stride, extent))
        return runs


def expanded(indices: Sequence[Index], rank: int) -> list[int | slice]:
    """As many indices as there are dimensions: ``...`` stands for what is missing, and so does the end."""
    dots = [n for n, i in enumerate(indices) if i is Ellipsis]
    if len(dots) > 1 or len(indices) - len(dots) > rank:
        raise ValueError(f"{len(indices) - len(dots)} indices for {rank} dimensions")
    at = dots[0] if dots else len(indices)
    missing = [slice(None)] * (rank - len(indices) + len(dots))
    return [i for i in (*indices[:at], *missing, *indices[at + 1 :]) if i is not Ellipsis]


def _checked_slice(index: slice, extent: int, position: int) -> tuple[int, int, int]:
    start, stop, step = index.indices(extent)
    asked = [b for b in (index.start, index.stop) if b is not None]
    if step < 1 or any(not -extent <= b <= extent for b in asked):
        written = ":".join("" if b is None else str(b) for b in (index.start, index.stop))
        raise ValueError(f"slice {written} is outside of dimension {position}, which has {extent}")
    return start, max(start, stop), step
