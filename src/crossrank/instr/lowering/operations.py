"""Which instructions of the cores of a rank are one operation, found without running them.

As in `matching`, but block by block: the cores of a rank are taken to go the same way through their blocks, so that
the k-th instruction of an operation in a block meets the k-th of the others in the same block.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from crossrank.instr.dialect import ProgramOp
from crossrank.instr.fields import CollectiveFields
from crossrank.instr.instructions import InstCollectiveCompute, InstCoreBarrier, Instruction
from crossrank.instr.matching import Matching
from crossrank.instr.program import Kernel


@dataclass(eq=False)
class Operation:
    """One operation of the cores of a rank.

    Attributes:
        members: who takes part, in the order of the group.
        at: the instruction of each core that has one.
        is_local: whether it stays within the rank.
        has_group: whether its members are in a group of it: who is in none passes by.
        came: how many members have come to it, while programs are walked.
    """

    members: tuple[int, ...]
    at: dict[int, Instruction] = field(default_factory=dict)
    is_local: bool = True
    has_group: bool = True
    came: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether every member has an instruction of it."""
        return self.at.keys() == set(self.members)

    @property
    def is_barrier(self) -> bool:
        """Whether it is a barrier of cores."""
        return isinstance(next(iter(self.at.values())), InstCoreBarrier)

    @property
    def instructions(self) -> list[tuple[int, Instruction]]:
        """The members that have an instruction, with it."""
        return [(core, self.at[core]) for core in self.members if core in self.at]

    @property
    def fields(self) -> CollectiveFields:
        """The fields of a collective, which are alike on all members but for what is a core's own."""
        fields: CollectiveFields = next(iter(self.at.values())).fields
        return fields


def flow_of(program: ProgramOp) -> list[tuple[int, ...]]:
    """The numbers of the blocks that may follow each block."""
    number = {block: n for n, block in enumerate(program.body.blocks)}
    ends = [block.last_op for block in program.body.blocks]
    return [tuple(number[s] for s in end.successors) if end is not None else () for end in ends]


def same_flow(programs: Sequence[ProgramOp]) -> bool:
    """Whether all cores have the same blocks, with the same successors."""
    return all(flow_of(program) == flow_of(programs[0]) for program in programs)


def aligned_blocks(kernel: Kernel) -> Iterator[dict[int, list[Instruction]]]:
    """Block by block, the instructions of each core."""
    programs = kernel.programs
    for blocks in zip(*(p.body.blocks for p in programs), strict=True):
        yield {
            p.index: [op for op in block.ops if isinstance(op, Instruction)]
            for p, block in zip(programs, blocks, strict=True)
        }


def operations(block: Mapping[int, Sequence[Instruction]], matching: Matching) -> list[Operation]:
    """The operations of one block of all cores: local collectives, collectives that cores join, and core barriers."""
    found: dict[Hashable, Operation] = {}
    for core, instructions in block.items():
        seen: Counter[Hashable] = Counter()
        for inst in instructions:
            key: Hashable
            is_local = has_group = True
            if isinstance(inst, InstCoreBarrier):
                members = tuple(sorted(inst.fields.cores))
                key = ("barrier", members, inst.fields.barrier_id)
            elif isinstance(inst, InstCollectiveCompute):
                match = matching.of(inst)
                is_local, group = match.is_local, match.group_of(core)
                has_group = group is not None
                members = (group or (core,)) if is_local else match.cores
                key = (match.key, members, has_group)
                if inst.fields.phase == "prepare" or (not is_local and len(members) == 1):
                    continue  # nobody waits in it, or no other core of the rank has to do with it
            else:
                continue
            seen[key] += 1
            operation = found.setdefault(
                (key, seen[key]), Operation(members, is_local=is_local, has_group=has_group or not is_local)
            )
            operation.at[core] = inst
    return list(found.values())


def walk(
    block: Mapping[int, Sequence[Instruction]],
    meetings: Sequence[Operation],
    passed: Callable[[int, Instruction], None],
    meet: Callable[[Operation], None],
) -> list[Operation]:
    """Walk all cores through a block together, as they would run; linear.

    Args:
        block: the instructions of each core; may be replaced on the way.
        meetings: complete operations, at which members wait for one another.
        passed: told of every other instruction.
        meet: told of an operation when all of its members have come.

    Returns:
        the operations that were never reached, because members come to them in different orders.
    """
    of = {inst: operation for operation in meetings for inst in operation.at.values()}
    rest = {core: iter(instructions) for core, instructions in block.items()}
    met: set[Operation] = set()
    ready = deque(block)
    while ready:
        core = ready.popleft()
        for inst in rest[core]:
            operation = of.get(inst)
            if operation is None:
                passed(core, inst)
                continue
            operation.came += 1
            if operation.came == len(operation.members):
                met.add(operation)
                meet(operation)
                ready.extend(operation.members)
            break
    return [operation for operation in meetings if operation not in met]
