"""Source-target pairs: who sends to whom in a collective-permute, a send and a recv."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from crossrank.collective.groups import GroupMode, listed

_PAIR = r"\{\s*(-?\d+)\s*,\s*(-?\d+)\s*\}"
_FORM = re.compile(rf"\{{\s*(?:{_PAIR}(?:\s*,\s*{_PAIR})*)?\s*\}}")


@dataclass(frozen=True)
class SourceTargetPairs:
    """``{{0,1},{1,2}}``: pairs of source and target ids. ``str()`` is the text that XLA prints."""

    pairs: tuple[tuple[int, int], ...]

    @classmethod
    def parse(cls, text: str) -> SourceTargetPairs:
        """Read the text of pairs; ValueError, naming the text, for anything else."""
        if not _FORM.fullmatch(text.strip()):
            raise ValueError(f"cannot read the source-target pairs {text!r}")
        return cls(tuple((int(source), int(target)) for source, target in re.findall(_PAIR, text)))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    def __str__(self) -> str:
        return "{" + ",".join(f"{{{source},{target}}}" for source, target in self.pairs) + "}"

    def source_of(self, target: int) -> int | None:
        """Who sends to ``target``; None where nobody does, and it gets zeros."""
        return self._source.get(target)

    @cached_property
    def _source(self) -> dict[int, int]:
        return {target: source for source, target in self.pairs}

    def components(self) -> tuple[tuple[int, ...], ...]:
        """The ids that pairs connect, directly or by way of others, each set sorted: who must wait for whom at all."""
        leader: dict[int, int] = {}

        def find(i: int) -> int:
            while leader.setdefault(i, i) != i:
                leader[i] = i = leader[leader[i]]
            return i

        for source, target in self.pairs:
            leader[find(target)] = find(source)
        found: dict[int, list[int]] = {}
        for i in sorted(leader):
            found.setdefault(find(i), []).append(i)
        return tuple(map(tuple, found.values()))

    def within(self, members: Sequence[int]) -> SourceTargetPairs:
        """The pairs among ``members``, by their positions there."""
        place = {member: n for n, member in enumerate(members)}
        return SourceTargetPairs(tuple((place[s], place[t]) for s, t in self.pairs if s in place and t in place))

    def check(self, world: int) -> list[str]:
        """What is wrong with the pairs among ids 0..world-1, in plain words."""
        problems = []
        if outside := sorted({i for pair in self.pairs for i in pair if not 0 <= i < world}):
            problems.append(f"{listed('rank', outside)} outside 0..{world - 1}")
        for side, role in ((1, "target"), (0, "source")):
            for rank, times in sorted(Counter(pair[side] for pair in self.pairs).items()):
                if times > 1:
                    problems.append(f"rank {rank} is the {role} of {times} pairs")
        return problems

    def expand(self, mode: GroupMode, replica_count: int, num_partitions: int) -> SourceTargetPairs:
        """The pairs of flattened ranks (``replica * num_partitions + partition``).

        Args:
            mode: cross-replica (the ids are replicas; the same pairs for every partition) or cross-partition (the
                ids are partitions; the same pairs on every replica): ``group_mode(has_channel_id, None)``.
            replica_count: the replicas of the module.
            num_partitions: its partitions.

        Raises:
            ValueError: another mode, or an id outside what the mode spans.
        """
        if mode not in (GroupMode.CROSS_REPLICA, GroupMode.CROSS_PARTITION):
            raise ValueError(f"source-target pairs have no {mode} mode")
        across_replicas = mode is GroupMode.CROSS_REPLICA
        count = replica_count if across_replicas else num_partitions
        for pair in self.pairs:
            if not (0 <= pair[0] < count and 0 <= pair[1] < count):
                raise ValueError(f"pair {pair[0]},{pair[1]} is outside the {count} ids of {mode} pairs")
        if across_replicas:
            ranks = [
                (s * num_partitions + p, t * num_partitions + p) for s, t in self.pairs for p in range(num_partitions)
            ]
        else:
            ranks = [
                (r * num_partitions + s, r * num_partitions + t) for r in range(replica_count) for s, t in self.pairs
            ]
        return SourceTargetPairs(tuple(ranks))


def parse_pairs(text: str) -> SourceTargetPairs:
    """`SourceTargetPairs.parse`, as ``parse_groups`` is for groups."""
    return SourceTargetPairs.parse(text)
