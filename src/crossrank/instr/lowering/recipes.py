"""What each core of a local collective gets from which others, as data: the meaning of each kind in copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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


Recipe = Callable[[CollectiveFields, int, Sequence[int]], list[Take]]
"""The pieces of the member at a position among these cores."""


def _dims(fields: CollectiveFields) -> tuple[int, int]:
    """The dimension that is split or joined, and the one that an all-to-all joins."""
    dim = int(fields.cc_dim or 0)
    return dim, dim if fields.concat_dim is None else int(fields.concat_dim)


def _sendrecv_cce(fields: CollectiveFields, me: int, cores: Sequence[int]) -> list[Take]:
    return [Take(tuple(map(cores.index, fields.recv_from_ranks)))]


def _reduce_scatter(fields: CollectiveFields, me: int, cores: Sequence[int]) -> list[Take]:
    count = len(cores)
    return [Take(tuple(range(count)), src=(_dims(fields)[0], me, count))]


def _all_gather(fields: CollectiveFields, me: int, cores: Sequence[int]) -> list[Take]:
    count = len(cores)
    return [Take((n,), dst=(_dims(fields)[0], n, count)) for n in range(count)]


def _all_to_all(fields: CollectiveFields, me: int, cores: Sequence[int]) -> list[Take]:
    (split, concat), count = _dims(fields), len(cores)
    return [Take((n,), (split, me, count), (concat, n, count)) for n in range(count)]


def _pairs(fields: CollectiveFields, me: int, cores: Sequence[int]) -> list[Take]:
    return [Take((cores.index(source),)) for source, target in fields.src_target_pairs if target == cores[me]]


def _ring(fields: CollectiveFields, me: int, cores: Sequence[int]) -> list[Take]:
    step = -1 if fields.channel_id > 0 and fields.channel_id % 2 else 1
    return [Take(((me - step) % len(cores),))]


def _broadcast(fields: CollectiveFields, me: int, cores: Sequence[int]) -> list[Take]:
    return [Take((0,))]


RECIPES: Mapping[CollectiveKind, Recipe] = {
    CollectiveKind.SEND_RECV_CCE: _sendrecv_cce,
    CollectiveKind.REDUCE_SCATTER: _reduce_scatter,
    CollectiveKind.ALL_GATHER: _all_gather,
    CollectiveKind.ALL_TO_ALL: _all_to_all,
    CollectiveKind.PERMUTE: _pairs,
    CollectiveKind.PERMUTE_IMPLICIT: _ring,
    CollectiveKind.PERMUTE_REDUCE_IMPLICIT: _ring,
    CollectiveKind.BROADCAST: _broadcast,
}
"""The kinds whose members take what they get; but for the first, the source does not lower them."""
