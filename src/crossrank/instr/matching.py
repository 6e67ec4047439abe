"""Which instructions of the cores of a rank are one operation, and with whom each of them is done.

Every rank runs the same module, so an operation among ranks is the same instruction on each. Among the cores of a rank:

* what works on shared HBM only and stands in the programs of several cores, the k-th of its kind in each, is one
  operation of the rank, which all of those cores join;
* what works on memory of a core's own is done with the same core of the other ranks;
* local collectives meet the k-th of their kind, groups and channel; sends and receives between cores the k-th of their
  pipe, and so do copies with semaphores.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cached_property

from crossrank.collective.pairs import SourceTargetPairs
from crossrank.instr.fields import CollectiveFields
from crossrank.instr.instructions import (
    InstCollectiveCompute,
    InstDMACopy,
    InstGPSIMDSB2SB,
    InstRecv,
    Instruction,
    InstSend,
)
from crossrank.instr.operands import AccessOp
from crossrank.instr.program import Kernel

Communicating = InstCollectiveCompute | InstSend | InstRecv


@dataclass(frozen=True)
class Match:
    """What an instruction is part of.

    Attributes:
        key: the same for the instructions that are one operation.
        cores: the cores of each rank that join it.
        is_local: whether it stays within a rank.
        groups: the groups that do it apart from each other: ranks, or cores where it is local.
        phase: of a variable exchange.
    """

    key: int
    cores: tuple[int, ...]
    is_local: bool = False
    groups: tuple[tuple[int, ...], ...] = ()
    phase: str = ""

    @cached_property
    def _group_of(self) -> dict[int, tuple[int, ...]]:
        return {member: group for group in self.groups for member in group}

    def group_of(self, member: int) -> tuple[int, ...] | None:
        """The group that a rank (or core) is in; None: in none."""
        return self._group_of.get(member)


class Matching:
    """The matches of all communicating instructions of a kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self._matches: dict[Instruction, Match] = {}
        numbers: defaultdict[Hashable, int] = defaultdict(lambda: len(numbers))
        pipes: dict[int, set[int]] = {}
        shared: dict[Hashable, list[tuple[int, Communicating]]] = {}
        for program in kernel.programs:
            seen: Counter[Hashable] = Counter()
            for inst in program.instructions():
                if not isinstance(inst, Communicating):
                    continue
                fields = inst.fields
                if isinstance(fields, CollectiveFields) and fields.kind.is_point_to_point:
                    pipes.setdefault(fields.pipe_id, set()).add(program.index)
                elif isinstance(fields, CollectiveFields) and fields.is_local:
                    key: Hashable = ("local", fields.kind, _groups(fields), fields.channel_id, fields.phase)
                    self._matches[inst] = Match(numbers[key], (program.index,), True, _groups(fields), fields.phase)
                elif all(a.of.type.space.is_shared for a in (*inst.out_accesses, *inst.in_accesses)):
                    signature = _signature(inst)
                    seen[signature] += 1
                    shared.setdefault((signature, seen[signature]), []).append((program.index, inst))
                else:
                    number = numbers[program.index, inst.label]
                    self._matches[inst] = _among_ranks(number, (program.index,), inst)
        for key, found in shared.items():
            cores = tuple(core for core, _ in found)
            for _, inst in found:
                self._matches[inst] = _among_ranks(numbers[key], cores, inst)
        signalled = [(p.index, i) for p in kernel.programs for i in p.instructions() if is_signalled(i)]
        partners: dict[int, set[int]] = {}
        for core, copy in signalled:
            partners.setdefault(copy.fields.pipe_id, set()).add(core)
        for _, copy in signalled:
            cores = tuple(sorted(partners[copy.fields.pipe_id]))
            self._matches[copy] = Match(numbers["semaphores", copy.fields.pipe_id], cores, True, (cores,))
        for program in kernel.programs:
            for inst in program.instructions():
                if isinstance(inst, InstCollectiveCompute) and inst.fields.kind.is_point_to_point:
                    cores = tuple(sorted(pipes[inst.fields.pipe_id]))
                    self._matches[inst] = Match(numbers["pipe", inst.fields.pipe_id], cores, True, (cores,))

    def of(self, inst: Instruction) -> Match:
        """What an instruction is part of."""
        return self._matches[inst]


def is_signalled(inst: Instruction) -> bool:
    """Whether it is a copy with a semaphore, at which cores wait for one another."""
    return isinstance(inst, InstDMACopy | InstGPSIMDSB2SB) and inst.fields.semaphore


def _among_ranks(number: int, cores: tuple[int, ...], inst: Communicating) -> Match:
    fields = inst.fields
    if not isinstance(fields, CollectiveFields):
        return Match(number, cores)
    return Match(number, cores, False, _groups(fields), fields.phase)


def _groups(fields: CollectiveFields) -> tuple[tuple[int, ...], ...]:
    """Who does it apart from the others: for pairs, those that have to do with each other."""
    if fields.kind.has_pairs:
        return SourceTargetPairs(fields.src_target_pairs).components()  # type: ignore[arg-type]
    return fields.replica_groups


def _signature(inst: Communicating) -> Hashable:
    """What is the same on all cores that do one operation: all but its name, and who wrote it where."""
    fields = inst.fields
    if isinstance(fields, CollectiveFields):
        fields = replace(fields, dma_qos=-1)
    return (type(inst), fields, *(_place(a) for a in (*inst.out_accesses, *inst.in_accesses)))


def _place(access: AccessOp) -> Hashable:
    return (access.of.fields.name, access.fields, len(access.registers))
