"""Fences between the cores of a rank: which ones have happened, and whether another one is needed."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from crossrank.instr.instructions import Instruction
from crossrank.instr.lowering.places import Tensors, memory_of, tensors_of

Touched = Mapping[int, Iterable[Hashable]]
"""The memory that each core reads, or writes."""


class Fences:
    """What has been touched since the cores last met, in one walk over a block of all cores.

    Args:
        tensors: the tensors of each core.
    """

    def __init__(self, tensors: Tensors) -> None:
        self._tensors = tensors
        self._now = 0
        self._read: dict[tuple[int, Hashable], int] = {}
        self._written: dict[tuple[int, Hashable], int] = {}
        self._met: dict[frozenset[int], int] = {}

    def saw(self, core: int, inst: Instruction) -> None:
        """A core has come to an instruction."""
        self._now += 1
        for access in inst.out_accesses:
            self._written[core, memory_of(access.of, self._tensors)] = self._now
        for access in (*inst.in_accesses, *inst.out_accesses):
            for tensor in tensors_of(access):
                self._read[core, memory_of(tensor, self._tensors)] = self._now

    def met(self, cores: Iterable[int]) -> None:
        """Cores have met: what each did before is done."""
        self._now += 1
        self._met[frozenset(cores)] = self._now

    def enough(self, cores: Iterable[int], reads: Touched, writes: Touched) -> bool:
        """Whether ``cores`` have met since any of them touched what another one will read or write."""
        wanted = frozenset(cores)
        return any(
            wanted <= met and not any(self._late(since, core, wanted, reads, writes) for core in wanted)
            for met, since in self._met.items()
        )

    def _late(self, since: int, core: int, cores: frozenset[int], reads: Touched, writes: Touched) -> bool:
        """Whether a core touched, after a fence, what another core is about to touch."""
        for other in cores - {core}:
            if any(self._written.get((core, memory), 0) > since for memory in reads.get(other, ())):
                return True
            for memory in writes.get(other, ()):
                if max(self._read.get((core, memory), 0), self._written.get((core, memory), 0)) > since:
                    return True
        return False
