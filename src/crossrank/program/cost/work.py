"""What a program does, counted: on each rank, by kernel, and by the author's line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

Number = int | float
Counts = defaultdict[str, Number]
"""How many of what: of `COUNTED`."""

COUNTED: Mapping[str, str] = {
    "dispatches": "chip functions that the host sends to a device",
    "tasks": "launches of kernels by chip functions",
    "blocks": "blocks of those launches",
    "notifies": "cells of signals that are changed",
    "waits": "cells of signals that are waited for",
    "moved_bytes": "bytes that kernels put, get, load and store from one rank to another",
    "managed_bytes": "bytes that collectives of host and chip functions move from one rank to another",
    "copied_bytes": "bytes from one place of a rank to another, or between its memory and a tile",
    "window_bytes": "bytes of windows, which are zero when a run begins",
    "elements": "elements of tiles, and of collectives' operands, that are computed",
}
"""What is counted, and what it means."""


def counts() -> Counts:
    """Nothing yet."""
    return defaultdict(int)


@dataclass
class Placed:
    """What a line of the author's comes to, on all ranks together.

    Attributes:
        dispatches: of chip functions.
        tasks: launches of kernels.
        widths: the blocks that those launches have.
        windows: the buffers that it is about, in the order in which they are met.
        domains: names and devices of those who share them.
    """

    dispatches: Number = 0
    tasks: Number = 0
    widths: set[int] = field(default_factory=set)
    windows: dict[str, None] = field(default_factory=dict)
    domains: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def add(self, other: Placed, times: Number) -> None:
        """The same again, so many times."""
        self.dispatches += times * other.dispatches
        self.tasks += times * other.tasks
        self.widths |= other.widths
        self.windows |= other.windows
        self.domains |= other.domains


class Work:
    """What is done, as counts that add up.

    Attributes:
        ranks: of each device, how many of what (`COUNTED`).
        launches: how often each kernel is launched, in how many blocks.
        places: by the author's lines.
        unknown: the lines where something is counted once, or not at all, since it depends on what is known only when
            the program runs.
    """

    def __init__(self) -> None:
        self.ranks: defaultdict[int, Counts] = defaultdict(counts)
        self.launches: defaultdict[tuple[str, int], Number] = defaultdict(int)
        self.places: defaultdict[str, Placed] = defaultdict(Placed)
        self.unknown: dict[str, None] = {}

    def count(self, device: int, what: str, number: Number) -> None:
        """So many more of something."""
        self.ranks[device][what] += number

    def add(self, other: Work, times: Number = 1) -> None:
        """All of another, so many times."""
        for device, of_rank in other.ranks.items():
            for what, number in of_rank.items():
                self.count(device, what, times * number)
        for launch, number in other.launches.items():
            self.launches[launch] += times * number
        for place, placed in other.places.items():
            self.places[place].add(placed, times)
        self.unknown |= other.unknown

    @property
    def total(self) -> Counts:
        """Of all ranks together."""
        found = counts()
        for of_rank in self.ranks.values():
            for what, number in of_rank.items():
                found[what] += number
        return found


def whole(number: Number) -> Number:
    """A number without the remains of its being a share of something."""
    return round(number) if abs(number - round(number)) < 1e-6 else round(number, 3)
