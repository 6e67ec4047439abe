"""Which instructions of the cores of a rank are one operation, and with whom each of them is done.

Every rank runs the same module, so an operation among ranks is the same instruction on each. Among the cores of a rank:

* what works on shared HBM only and stands in the programs of several cores, the k-th of its kind in each, is one
  operation of the rank, which all of those cores join;
* what works on memory of a core's own is done with the same core of the other ranks;
* local collectives meet the k-th of their kind and group; sends and receives between cores the k-th of their pipe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, replace

from crossrank.collective.pairs import SourceTargetPairs
from crossrank.instr.dialect import AccessOp, InstCollectiveCompute, InstRecv, Instruction, InstSend
from crossrank.instr.fields import CollectiveFields
from crossrank.instr.program import Kernel

Communicating = InstCollectiveCompute | InstSend | InstRecv


@dataclass(frozen=True)
class Match:
    """What an instruction is part of.

    Attributes:
        key: equal for the instructions that are one operation.
        cores: the cores of each rank that join it.
        is_local: whether it stays within a rank.
        groups: the groups that do it apart from each other: ranks, or cores where it is local.
        phase: of a variable exchange.
    """

    key: Hashable
    cores: tuple[int, ...]
    is_local: bool = False
    groups: tuple[tuple[int, ...], ...] = ()
    phase: str = ""

    def group_of(self, member: int) -> tuple[int, ...] | None:
        """The group that a rank (or core) is in; None: in none."""
        return next((g for g in self.groups if member in g), None)


class Matching:
    """The matches of all communicating instructions of a kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self._matches: dict[Instruction, Match] = {}
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
                    key: Hashable = ("local", fields.kind, fields.replica_groups, fields.phase)
                    self._matches[inst] = Match(key, (program.index,), True, fields.replica_groups, fields.phase)
                elif all(a.of.type.space.is_shared for a in (*inst.out_accesses, *inst.in_accesses)):
                    signature = _signature(inst)
                    seen[signature] += 1
                    shared.setdefault((signature, seen[signature]), []).append((program.index, inst))
                else:
                    self._matches[inst] = _among_ranks((program.index, inst.label), (program.index,), inst)
        for key, found in shared.items():
            cores = tuple(core for core, _ in found)
            for _, inst in found:
                self._matches[inst] = _among_ranks(key, cores, inst)
        for program in kernel.programs:
            for inst in program.instructions():
                if isinstance(inst, InstCollectiveCompute) and inst.fields.kind.is_point_to_point:
                    cores = tuple(sorted(pipes[inst.fields.pipe_id]))
                    key = ("pipe", inst.fields.pipe_id)
                    self._matches[inst] = Match(key, cores, True, (cores,))

    def of(self, inst: Instruction) -> Match:
        """What an instruction is part of."""
        return self._matches[inst]


def _among_ranks(key: Hashable, cores: tuple[int, ...], inst: Communicating) -> Match:
    fields = inst.fields
    if not isinstance(fields, CollectiveFields):
        return Match(key, cores)
    groups = fields.replica_groups
    if fields.kind.has_pairs:
        groups = SourceTargetPairs(fields.src_target_pairs).components()  # type: ignore[arg-type]
    return Match(key, cores, False, groups, fields.phase)


def _signature(inst: Communicating) -> Hashable:
    """What is the same on all cores that do one operation: all but its name, and who wrote it where."""
    fields = inst.fields
    if isinstance(fields, CollectiveFields):
        fields = replace(fields, dma_qos=-1)
    return (type(inst), fields, *(_place(a) for a in (*inst.out_accesses, *inst.in_accesses)))


def _place(access: AccessOp) -> Hashable:
    return (access.of.fields.name, access.fields, len(access.registers))
