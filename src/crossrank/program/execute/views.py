"""Memory, as orchestrators see it: views of arrays, windows that several devices share, and who is in a domain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crossrank.collective.dtypes import dtype_of
from crossrank.errors import counted
from crossrank.program.execute.failures import ask, refuse, room
from crossrank.program.types import spelled
from crossrank.runtime.threads import Tensor

Array = npt.NDArray[Any]

ALIGNMENT = 64
"""Bytes: a line of the processor's cache, so that the signals of two windows are never in one."""
PAGE, HUGE_PAGE = 4 << 10, 2 << 20


class Domain:
    """A communication domain: which devices are in it, in rising order; a rank is the place in that order.

    Attributes:
        name: for people.
        number: no other domain of the run has it.
        devices: who is in it.
        ranks: the rank of each device.
    """

    def __init__(self, name: str, number: int, devices: Iterable[int]) -> None:
        self.name = name
        self.number = number
        self.devices = tuple(sorted(devices))
        self.ranks = {device: rank for rank, device in enumerate(self.devices)}

    @property
    def described(self) -> str:
        """Its name, and who is in it."""
        return f"{self.name} ({counted(len(self.devices), 'device')}: {', '.join(map(str, self.devices))})"


class Window:
    """A buffer of the same size on each device of a domain, zero-filled.

    Attributes:
        name: the author's.
        domain: who has one.
        size: bytes on each.
    """

    def __init__(self, name: str, domain: Domain, size: int) -> None:
        ask(size >= 0, f"window buffer {name} cannot have {size} bytes")
        room(size * len(domain.devices), f"window buffer {name} on {counted(len(domain.devices), 'device')}")
        self.name = name
        self.domain = domain
        self.size = size
        self.memory = _zeros(size, len(domain.devices))
        self.begin = [address_of(m) for m in self.memory]

    def clear(self) -> None:
        """Zeros again."""
        for memory in self.memory:
            memory[:] = 0

    def view(self, rank: int, like: View) -> View:
        """What is to that rank what ``like`` is to rank 0."""
        offset = like.address - self.begin[0]
        array: Array = np.ndarray(like.array.shape, like.array.dtype, self.memory[rank], offset, like.array.strides)
        return View(array, self, rank)


def _zeros(size: int, count: int) -> list[Array]:
    """So many times so many bytes, aligned; an empty buffer has an address of its own, too.

    They lie in one array, for NumPy asks for huge pages under a large one. There they are a page apart, so that the
    same element of all ranks has not the same place in the caches.
    """
    alignment, apart = (HUGE_PAGE, PAGE) if size * count >= HUGE_PAGE else (ALIGNMENT, 0)
    stride = size // ALIGNMENT * ALIGNMENT + ALIGNMENT + apart
    area = np.zeros(stride * count + alignment, np.uint8)
    first = -address_of(area) % alignment
    return [area[begin : begin + size] for begin in range(first, first + stride * count, stride)]


def named(dtype: np.dtype[Any]) -> str:
    """An array's element type as programs write it; what they have no word for, as NumPy does."""
    try:
        return spelled(dtype_of(dtype))
    except ValueError:
        return str(dtype)


def address_of(array: Array) -> int:
    """Where its first element lies."""
    return int(array.__array_interface__["data"][0])


class View:
    """A tensor as a handle on memory: an array, and the window that it is a part of, if any.

    Attributes:
        array: the elements; what changes them changes what they are a view of.
        window: what it is a part of; None for a tensor that is no distributed one.
        rank: whose part of the window it is. The host, which is no rank, sees rank 0's in place of all.
        address: where its first element lies.
        end: behind its last byte.
    """

    def __init__(self, array: Array, window: Window | None = None, rank: int = 0) -> None:
        self.array = array
        self.window = window
        self.rank = rank
        self.address = self.end = address_of(array)
        if array.size:
            last = sum([(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)])
            self.end += last + array.itemsize
        self._descriptor: Tensor | None = None

    @property
    def descriptor(self) -> Tensor:
        """What a kernel is given of it."""
        if self._descriptor is None:
            self._descriptor = Tensor.of(self.array)
        return self._descriptor

    @property
    def is_packed(self) -> bool:
        """Whether its elements lie one behind the other in row-major order."""
        return self.array.flags.c_contiguous

    def peers(self, domain: Domain) -> list[int] | None:
        """The addresses on the ranks of a domain that are its own there; None where it is in no window of theirs."""
        if self.window is None or self.window.domain is not domain:
            return None
        offset = self.address - self.window.begin[self.rank]
        return [begin + offset for begin in self.window.begin]

    @property
    def described(self) -> str:
        """Extents and element type as messages write them."""
        return f"[{', '.join(map(str, self.array.shape))}] {named(self.array.dtype)}"

    def _of(self, array: Array) -> View:
        return View(array, self.window, self.rank)

    def slice(self, offsets: Sequence[int], extents: Sequence[int], dropped: Sequence[int] = ()) -> View:
        """``extents`` elements from ``offsets`` on, without the dimensions ``dropped``.

        Raises:
            Refused: they are not all there.
        """
        for axis, (offset, extent, there) in enumerate(zip(offsets, extents, self.array.shape, strict=True)):
            if extent < 0 or offset < 0 or offset + extent > there:
                what = f"a slice from {offset} to {offset + extent} of dimension {axis} of {self.described}"
                refuse(f"{what}, which ends at {there}")
        where: list[Any] = [
            offset if axis in dropped else slice(offset, offset + extent)
            for axis, (offset, extent) in enumerate(zip(offsets, extents, strict=True))
        ]
        return self._of(self.array[(*where, ...)])

    def element(self, indices: Sequence[int]) -> View:
        """One element, as a view without dimensions; Refused where it is not there."""
        for axis, (index, there) in enumerate(zip(indices, self.array.shape, strict=True)):
            if not 0 <= index < there:
                refuse(f"index {index} in dimension {axis} of {self.described}, which ends at {there}")
        where: list[Any] = [*indices, ...]
        return self._of(self.array[tuple(where)])

    def reshape(self, extents: Sequence[int]) -> View:
        """The same elements under other extents; Refused where they are not as many, or not packed.

        Extents of 1 may come and go anywhere.
        """
        shape = tuple(extents)
        if [e for e in shape if e != 1] == [e for e in self.array.shape if e != 1]:
            return self._of(self.array.squeeze()[(*(None if e == 1 else slice(None) for e in shape), ...)])
        if not self.is_packed:
            refuse(f"reshape of {self.described}, whose elements do not lie one behind the other")
        size = 1
        for extent in shape:
            size *= extent
        if size != self.array.size or any(e < 0 for e in shape):
            refuse(f"reshape of {self.described}, which has {self.array.size} elements, to {list(shape)}")
        return self._of(self.array.reshape(shape))

    def transpose(self, axis1: int, axis2: int) -> View:
        """Two dimensions exchanged."""
        return self._of(self.array.swapaxes(axis1, axis2))

    def as_rank(self, rank: int) -> View:
        """The same with as many dimensions, where leading ones of extent 1 come or go; else as it is."""
        shape = self.array.shape
        more = rank - len(shape)
        if more > 0:
            return self._of(self.array[(None,) * more])
        if more < 0 and all(extent == 1 for extent in shape[:-more]):
            return self._of(self.array.squeeze(tuple(range(-more))))
        return self
