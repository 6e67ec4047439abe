"""The cores of all ranks, taken forward one at a time: each runs until it must wait for others.

A core that waits is at a *meeting*: a set of cores that all must come. The last one to come does what they came for,
for all of them. When no core can go on and some have not ended, they wait for one another for ever, and each of them
knows for whom.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from xdsl.ir import Block, Operation, SSAValue

from crossrank.collective.semantics import evaluate_group
from crossrank.errors import InputError, RunError
from crossrank.instr.compute import evaluate
from crossrank.instr.dialect import (
    BranchOp,
    InstCollectiveCompute,
    InstCompute,
    InstCoreBarrier,
    InstDMACopy,
    InstGetCurProcessingRankID,
    InstGetGlobalRankId,
    InstGPSIMDSB2SB,
    InstRecv,
    InstRegisterAlu,
    InstRegisterLoad,
    InstRegisterStore,
    Instruction,
    InstSend,
    InstTensorCompletion,
    JumpOp,
    ProgramOp,
)
from crossrank.instr.fields import RingFields
from crossrank.instr.interpret import registers as alu
from crossrank.instr.interpret.exchange import Evaluate, Exchange, Member
from crossrank.instr.interpret.memory import Memory, Operand
from crossrank.instr.matching import Matching
from crossrank.instr.program import Kernel
from crossrank.runtime.collectives import run_collective

Array = npt.NDArray[Any]
Place = tuple[int, int]
"""A rank, and a core of it."""

BACKENDS: Mapping[str, Evaluate] = {"kernels": run_collective, "oracle": evaluate_group}
"""Who computes a collective: the compiled kernels, or its NumPy meaning."""


@dataclass
class Step:
    """An instruction, ready to run on any core.

    Attributes:
        inst: the instruction.
        outs: what it writes.
        ins: what it reads.
        frees: tensors that nothing touches after it.
    """

    inst: Instruction
    outs: list[Operand]
    ins: list[Operand]
    frees: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """Its name, and the author's source line."""
        return f"{self.inst.label} ({self.inst.where})" if self.inst.where else self.inst.label


@dataclass
class Meeting:
    """Cores that wait for one another.

    Attributes:
        who: all that must come.
        finish: what is done when they have.
        came: those that have come, with the instruction at which they wait.
    """

    who: frozenset[Place]
    finish: Callable[[Meeting], bool]
    came: dict[Place, Step] = field(default_factory=dict)

    @property
    def missing(self) -> list[Place]:
        """Who has not come."""
        return sorted(self.who - self.came.keys())


@dataclass
class Core:
    """One core of one rank.

    Attributes:
        place: its rank and its number there.
        steps: the instructions of each block, and what follows the last.
        memory: its tensors.
        registers: the values of its registers.
        block: the block that it is in.
        at: the next step there.
        meeting: where it waits, if it does.
        ended: whether its program has ended.
        turns: how often it came to each instruction that meets others.
        prepared: the metadata of a variable exchange that was prepared and not triggered yet.
    """

    place: Place
    program: ProgramOp
    memory: Memory
    registers: dict[SSAValue, int] = field(default_factory=dict)
    block: Block | None = None
    at: int = 0
    meeting: Meeting | None = None
    ended: bool = False
    turns: Counter[object] = field(default_factory=Counter)
    prepared: Array | None = None

    def read(self, operand: Operand) -> Array:
        """An operand's elements."""
        return operand.read(self.memory, self.registers)

    def write(self, operand: Operand, values: Array, only: Array | None = None) -> None:
        """Store an operand's elements."""
        operand.write(self.memory, self.registers, values, only)


class Machine:
    """A kernel on some ranks.

    Args:
        kernel: what every rank runs.
        ranks: the ranks; all that the kernel is for if None.
        backend: ``kernels`` or ``oracle``.
        limit: seconds that a compiled kernel may take.

    Attributes:
        executed: how often each instruction class ran, over all cores.
    """

    def __init__(
        self, kernel: Kernel, ranks: Sequence[int] | None = None, *, backend: str = "kernels", limit: float = 60.0
    ) -> None:
        if backend not in BACKENDS:
            raise InputError(f"there is no backend {backend}", f"there are {', '.join(BACKENDS)}")
        self.kernel = kernel
        self.ranks = list(range(kernel.world_size) if ranks is None else ranks)
        self.executed: Counter[str] = Counter()
        evaluate_by = BACKENDS[backend]
        if backend == "kernels":
            evaluate_by = lambda c, m: run_collective(c, m, limit=limit)  # noqa: E731
        self._exchange = Exchange(evaluate_by)
        self._matching = Matching(kernel)
        self._code: dict[Block, tuple[list[Step], Operation]] = {}
        for program in kernel.programs:
            self._code.update(_compiled(program, kernel))
        self.cores: dict[Place, Core] = {}
        self._meetings: dict[object, Meeting] = {}
        self._mail: dict[tuple[int, int, object], deque[list[Array]]] = {}
        self._ready: deque[Core] = deque()
        for rank in self.ranks:
            shared: dict[str, Array] = {}
            memories: dict[int, Memory] = {}
            for program in kernel.programs:
                memories[program.index] = Memory(program.tensors(), shared, memories)
                place = (rank, program.index)
                self.cores[place] = Core(place, program, memories[program.index], block=program.body.blocks[0])
        self._ready.extend(self.cores.values())

    # Running

    def run(self, inputs: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """Run all cores to their ends.

        Args:
            inputs: for each rank (in the order of ``ranks``) its inputs in order, of the declared shapes and types.

        Returns:
            The outputs of each rank.

        Raises:
            RunError: a deadlock, an access outside of a tensor, or operands that do not fit each other.
        """
        self._fill(inputs)
        while self._ready:
            core = self._ready.popleft()
            self._advance(core)
        if any(not core.ended for core in self.cores.values()):
            from crossrank.instr.interpret.deadlock import deadlock_message

            raise RunError(deadlock_message(self))
        return [
            [self._core_with(rank, t).memory.whole(t.fields.name).copy() for t in self.kernel.outputs()]
            for rank in self.ranks
        ]

    def input_contents(self) -> list[list[Array]]:
        """What the inputs hold now, rank by rank: a kernel may write them."""
        return [
            [self._core_with(rank, t).memory.whole(t.fields.name).copy() for t in self.kernel.inputs()]
            for rank in self.ranks
        ]

    def _core_with(self, rank: int, tensor: Any) -> Core:
        return self.cores[rank, self.kernel.core_of(tensor)]

    def _fill(self, inputs: Sequence[Sequence[Array]]) -> None:
        declared = self.kernel.inputs()
        if len(inputs) != len(self.ranks):
            raise InputError(f"there are inputs for {len(inputs)} ranks, and {len(self.ranks)} ranks")
        for rank, given in zip(self.ranks, inputs, strict=True):
            if len(given) != len(declared):
                raise InputError(f"rank {rank}: {len(given)} inputs are given, and the kernel takes {len(declared)}")
            for program in self.kernel.programs:
                core = self.cores[rank, program.index]
                for tensor in program.tensors().values():
                    if tensor.fields.input >= 0:
                        array, type = np.asarray(given[tensor.fields.input]), tensor.type
                        if array.shape != type.shape or array.dtype != type.dtype.numpy:
                            raise InputError(
                                f"rank {rank}: input {tensor.fields.name} is {array.dtype}{list(array.shape)}, and the "
                                f"kernel takes {type.dtype.numpy}{list(type.shape)}"
                            )
                        core.memory.whole(tensor.fields.name)[...] = array

    def _advance(self, core: Core) -> None:
        """Run a core until it waits or ends."""
        while core.block is not None:
            steps, last = self._code[core.block]
            while core.at < len(steps):
                step = steps[core.at]
                core.at += 1
                self.executed[step.inst.name] += 1
                if not self._execute(core, step):
                    return
                for name in step.frees:
                    core.memory.forget(name)
            core.at = 0
            core.block = _next_block(core, last)
        core.ended = True

    def _execute(self, core: Core, step: Step) -> bool:
        """Run one instruction; False where the core must wait."""
        try:
            return self._run_one(core, step)
        except ValueError as error:
            raise RunError(f"{self.title(core.place)}: {step.where}: {error}") from None
        except RunError as error:
            text = str(error).removeprefix(f"{step.inst.label} ").removeprefix(f"{step.inst.label}: ")
            raise RunError(f"{self.title(core.place)}: {step.where}: {text}") from None

    def title(self, place: Place) -> str:
        """How messages call a core."""
        return f"rank {place[0]}" + (f" core {place[1]}" if self.kernel.lnc > 1 else "")

    def _run_one(self, core: Core, step: Step) -> bool:
        inst = step.inst
        if isinstance(inst, InstCollectiveCompute):
            return self._collective(core, step)
        if isinstance(inst, InstCoreBarrier):
            return self._barrier(core, step)
        if isinstance(inst, InstSend | InstRecv):
            return self._point_to_point(core, step)
        if isinstance(inst, InstCompute | InstDMACopy | InstGPSIMDSB2SB):
            _compute(core, step)
        elif isinstance(inst, InstRegisterLoad):
            core.registers[_result(inst)] = alu.wrapped(int(core.read(step.ins[0]).reshape(-1)[0]))
        elif isinstance(inst, InstRegisterStore):
            value = core.registers[inst.registers[0]]
            core.write(step.outs[0], np.full(step.outs[0].shape, value, np.int64))
        elif isinstance(inst, InstRegisterAlu):
            operands = iter(core.registers[r] for r in inst.registers)
            left = inst.fields.left if inst.fields.left is not None else next(operands)
            right = inst.fields.right if inst.fields.right is not None else next(operands, 0)
            core.registers[_result(inst)] = alu.evaluate(inst.fields.op, left, right)
        elif isinstance(inst, InstGetGlobalRankId):
            core.registers[_result(inst)] = core.place[0]
        elif isinstance(inst, InstGetCurProcessingRankID):
            core.registers[_result(inst)] = processing_rank(inst.fields, core.place[0])
        else:
            assert isinstance(inst, InstTensorCompletion), inst.name
        return True

    # Meetings

    def _meet(
        self, core: Core, key: object, step: Step, who: frozenset[Place], finish: Callable[[Meeting], bool]
    ) -> bool:
        """Come to a meeting; whether it is over, so that the core goes on."""
        meeting = self._meetings.get(key)
        if meeting is None:
            meeting = self._meetings[key] = Meeting(who, finish)
        meeting.came[core.place] = step
        core.meeting = meeting
        if not meeting.missing and meeting.finish(meeting):
            del self._meetings[key]
            self._release(meeting, but=core)
            core.meeting = None
            return True
        return False

    def _release(self, meeting: Meeting, but: Core | None = None) -> None:
        for place in meeting.came:
            core = self.cores[place]
            if core is not but:
                core.meeting = None
                self._ready.append(core)

    def _turn(self, core: Core, key: object) -> int:
        """How often this core came here before: cores of one loop meet turn by turn."""
        core.turns[key] += 1
        return core.turns[key] - 1

    def _collective(self, core: Core, step: Step) -> bool:
        inst = step.inst
        assert isinstance(inst, InstCollectiveCompute)
        match = self._matching.of(inst)
        rank = core.place[0]
        group = match.group_of(core.place[1] if match.is_local else rank)
        if group is None:
            return True  # this rank is in no group
        if match.phase == "prepare":
            if core.prepared is not None:
                raise ValueError("another exchange was prepared and not triggered yet")
            core.prepared = core.read(step.ins[1]).copy()
            return True
        turn = self._turn(core, match.key)
        if match.is_local:
            who = frozenset((rank, c) for c in group)
        else:
            who = frozenset((r, c) for r in group for c in match.cores)
        key = (match.key, group, rank if match.is_local else -1, turn)

        def finish(meeting: Meeting) -> bool:
            # of the cores that do one operation together the first one's operands count
            chosen = sorted(meeting.who) if match.is_local else [(r, match.cores[0]) for r in group]
            order = {m: n for n, m in enumerate(group)}
            chosen.sort(key=lambda p: order[p[1] if match.is_local else p[0]])
            members = [Member(self.cores[p], meeting.came[p], self.title(p)) for p in chosen]
            self._exchange.run(members)
            return True

        return self._meet(core, key, step, who, finish)

    def _barrier(self, core: Core, step: Step) -> bool:
        fields = step.inst.fields
        cores = tuple(sorted(fields.cores))
        key: object = ("barrier", core.place[0], cores, fields.barrier_id)
        key = (key, self._turn(core, key))
        who = frozenset((core.place[0], c) for c in cores)
        return self._meet(core, key, step, who, lambda _: True)

    def _point_to_point(self, core: Core, step: Step) -> bool:
        """A send leaves its values and goes on; a receive waits for them."""
        inst = step.inst
        assert isinstance(inst, InstSend | InstRecv)
        match = self._matching.of(inst)
        rank, peer = core.place[0], inst.fields.peer_id
        who = frozenset((rank, c) for c in match.cores)
        turn = self._turn(core, match.key)
        channel = "shared" if len(match.cores) > 1 else match.cores[0]
        first = self.cores[rank, match.cores[0]]
        route = (rank, peer, channel) if isinstance(inst, InstSend) else (peer, rank, channel)
        mail = self._mail.setdefault(route, deque())

        def send(meeting: Meeting) -> bool:
            mail.append([first.read(o).copy() for o in meeting.came[first.place].ins])
            self._deliver(route)
            return True

        def receive(meeting: Meeting) -> bool:
            if not mail:
                return False
            for operand, values in zip(meeting.came[first.place].outs, _fitting(mail.popleft(), step), strict=True):
                first.write(operand, values)
            return True

        key = (match.key, rank, turn)
        return self._meet(core, key, step, who, send if isinstance(inst, InstSend) else receive)

    def _deliver(self, route: tuple[int, int, object]) -> None:
        """Let a receive that all of its cores have come to take what was sent."""
        for key, meeting in list(self._meetings.items()):
            inst = next(iter(meeting.came.values())).inst
            place = next(iter(meeting.came))
            if (
                isinstance(inst, InstRecv)
                and (inst.fields.peer_id, place[0]) == route[:2]
                and not meeting.missing
                and meeting.finish(meeting)
            ):
                del self._meetings[key]
                self._release(meeting)
                return


def run_kernel(
    kernel: Kernel,
    inputs: Sequence[Sequence[Array]],
    ranks: Sequence[int] | None = None,
    *,
    backend: str = "kernels",
    limit: float = 60.0,
) -> list[list[Array]]:
    """Run a kernel; see `Machine`."""
    return Machine(kernel, ranks, backend=backend, limit=limit).run(inputs)


def processing_rank(fields: RingFields, rank: int) -> int:
    """The rank whose data ``rank`` holds after some steps of a ring; itself where it is in none.

    Even channels send to the next in the list, so that the data of the one ``n`` places before arrives after ``n``
    steps; odd channels go round the other way.
    """
    for group in fields.replica_groups:
        if rank in group:
            steps = fields.iteration_id if fields.channel_id % 2 == 0 else -fields.iteration_id
            return group[(group.index(rank) - steps) % len(group)]
    return rank


def _compiled(program: ProgramOp, kernel: Kernel) -> dict[Block, tuple[list[Step], Operation]]:
    """The steps of each block, and its last op."""
    code: dict[Block, tuple[list[Step], Operation]] = {}
    for block in program.body.blocks:
        assert block.last_op is not None
        steps = []
        for op in block.ops:
            if isinstance(op, Instruction):
                outs, ins = ([Operand(a, op.label) for a in side] for side in (op.out_accesses, op.in_accesses))
                steps.append(Step(op, outs, ins))
        code[block] = (steps, block.last_op)
    if len(program.body.blocks) == 1:
        _mark_last_uses(next(iter(code.values()))[0], program, kernel)
    return code


def _mark_last_uses(steps: Sequence[Step], program: ProgramOp, kernel: Kernel) -> None:
    """Memory that is a core's own goes after its last use; unrolled loops have many tensors."""
    kept = {t.fields.of for p in kernel.programs for t in p.tensors().values() if t.fields.of}
    last: dict[str, Step] = {}
    for step in steps:
        for operand in (*step.outs, *step.ins):
            for name in operand.tensors():
                last[name] = step
    for name, step in last.items():
        tensor = program.tensors()[name]
        fields = tensor.fields
        mine = not (fields.outputs or fields.input >= 0 or fields.of or name in kept or fields.written_by_peer)
        if mine and not tensor.type.space.is_shared:
            step.frees = (*step.frees, name)


def _next_block(core: Core, last: Operation) -> Block | None:
    if isinstance(last, JumpOp):
        return last.target
    if isinstance(last, BranchOp):
        return last.then if core.registers[last.condition] else last.otherwise
    return None


def _compute(core: Core, step: Step) -> None:
    inst = step.inst
    function, params = "dma_copy", {}
    if isinstance(inst, InstCompute):
        function, params = inst.fields.function, dict(inst.fields.params)
    outs, ins = ([core.read(o) for o in side] for side in (step.outs, step.ins))
    only = None
    for operand in step.ins:
        rows = operand.rows_inside(core.memory, core.registers)
        only = rows if only is None or rows is None else only & rows
    for operand, values in zip(step.outs, evaluate(function, outs, ins, params), strict=True):
        core.write(operand, values, only if only is not None and len(only) == operand.shape[0] else None)


def _result(inst: Instruction) -> SSAValue:
    assert inst.result is not None
    return inst.result


def _fitting(sent: Sequence[Array], step: Step) -> Sequence[Array]:
    """What was sent, where it is what is expected."""
    expected = [(o.shape, o.dtype) for o in step.outs]
    if [(a.shape, a.dtype) for a in sent] != expected:
        given = ", ".join(f"{a.dtype}{list(a.shape)}" for a in sent)
        wanted = ", ".join(f"{d}{list(s)}" for s, d in expected)
        raise ValueError(f"{given} was sent, and {wanted} is received")
    return sent
