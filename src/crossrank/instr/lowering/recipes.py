"""What each core of a local collective gets from which others, as data: the meaning of each kind in copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from crossrank.instr.fields import CollectiveFields
from crossrank.instr.kinds import CollectiveKind

Cut = tuple[int, int, int]
"""Of a dimension, which of how many equal parts."""


@dataclass(frozen=True)
class Take:
    """One piece of a member's result: what is read from some members, reduced where they are several.

    Attributes:
        sources: the positions of these members in the group.
        src: the slice of each that is read; None: all of it.
        dst: the slice of the result that is written; None: all of it.
    """

    sources: tuple[int, ...]
    src: Cut | None = None
    dst: Cut | None = None


Recipe = Callable[[CollectiveFields, int, int], list[Take]]
"""The pieces of the member at a position, in a group of some size."""


def _dims(fields: CollectiveFields) -> tuple[int, int]:
    """The dimension that is split or joined, and the one that an all-to-all joins."""
    dim = int(fields.cc_dim or 0)
    return dim, dim if fields.concat_dim is None else int(fields.concat_dim)


def _reduce_scatter(fields: CollectiveFields, me: int, count: int) -> list[Take]:
    return [Take(tuple(range(count)), src=(_dims(fields)[0], me, count))]


def _all_gather(fields: CollectiveFields, me: int, count: int) -> list[Take]:
    return [Take((n,), dst=(_dims(fields)[0], n, count)) for n in range(count)]


def _all_to_all(fields: CollectiveFields, me: int, count: int) -> list[Take]:
    split, concat = _dims(fields)
    return [Take((n,), (split, me, count), (concat, n, count)) for n in range(count)]


def _ring(fields: CollectiveFields, me: int, count: int) -> list[Take]:
    step = -1 if fields.channel_id > 0 and fields.channel_id % 2 else 1
    return [Take(((me - step) % count,))]


def _broadcast(fields: CollectiveFields, me: int, count: int) -> list[Take]:
    return [Take((0,))]


RECIPES: Mapping[CollectiveKind, Recipe] = {
    CollectiveKind.REDUCE_SCATTER: _reduce_scatter,
    CollectiveKind.ALL_GATHER: _all_gather,
    CollectiveKind.ALL_TO_ALL: _all_to_all,
    CollectiveKind.PERMUTE_IMPLICIT: _ring,
    CollectiveKind.PERMUTE_REDUCE_IMPLICIT: _ring,
    CollectiveKind.BROADCAST: _broadcast,
}
"""The kinds that are lowered beyond what the source lowers."""
