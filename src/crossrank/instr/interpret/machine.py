"""The cores of all ranks, taken forward one at a time: each runs until it must wait for others.

A core that waits is at a *meeting*: a set of cores that all must come. The last one to come does what they came for,
for all of them. When no core can go on and some have not ended, they wait for one another for ever, and each of them
knows for whom.
"""

from __future__ import annotations

import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from crossrank.collective.semantics import evaluate_group
from crossrank.errors import InputError, RunError, counted
from crossrank.instr.instructions import InstCollectiveCompute, InstCoreBarrier, InstRecv, InstSend
from crossrank.instr.interpret.code import Step, compiled
from crossrank.instr.interpret.core import LOCAL, Core, Place, Prepared
from crossrank.instr.interpret.deadlock import deadlock_message
from crossrank.instr.interpret.exchange import Evaluate, Exchange, FaultOf, Member
from crossrank.instr.interpret.memory import Memory
from crossrank.instr.matching import Matching, is_signalled
from crossrank.instr.operands import TensorOp
from crossrank.instr.program import Kernel
from crossrank.runtime.collectives import run_collective

Array = npt.NDArray[Any]

BACKENDS: Mapping[str, Evaluate] = {"kernels": run_collective, "oracle": evaluate_group}
"""Who computes a collective: the compiled kernels, or its NumPy meaning."""
JUMPS_A_LOOK = 1 << 12
"""How often a core that meets nobody may jump before somebody looks how long that takes."""


@dataclass(eq=False)
class Meeting:
    """Cores that wait for one another.

    Attributes:
        key: by which they find it.
        who: all that must come.
        finish: what is done when they have; False where what they came for is not there yet.
        sender: of a receive: who must send when all have come.
        came: those that have come, with the instruction at which they wait.
    """

    key: object
    who: frozenset[Place]
    finish: Callable[[Meeting], bool]
    sender: Place | None = None
    came: dict[Place, Step] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        """Whether all have come."""
        return len(self.came) == len(self.who)

    @property
    def awaited(self) -> list[Place]:
        """For whom those wait that have come."""
        return [self.sender] if self.is_full and self.sender else sorted(self.who - self.came.keys())


class Machine:
    """A kernel on some ranks.

    Args:
        kernel: what every rank runs.
        ranks: the ranks; all that the kernel is for if None.
        backend: ``kernels``, ``oracle``, or a function that computes a collective of one group.
        limit: seconds that a compiled kernel may take, and a loop in which a core meets nobody.
        seed: draws which core goes on, and how far; None: in order, each as far as it can. A kernel whose results
            depend on it has a race.
        backwards: let the last core of the last rank begin, and so on.

    Attributes:
        executed: how often each instruction class ran, over all cores.
    """

    def __init__(
        self,
        kernel: Kernel,
        ranks: Sequence[int] | None = None,
        *,
        backend: str | Evaluate = "kernels",
        limit: float = 60.0,
        seed: int | None = None,
        backwards: bool = False,
    ) -> None:
        if isinstance(backend, str) and backend not in BACKENDS:
            raise InputError(f"there is no backend {backend}", f"there are {', '.join(BACKENDS)}")
        self.kernel = kernel
        self.ranks = list(range(kernel.world_size) if ranks is None else ranks)
        if len(set(self.ranks)) != len(self.ranks) or not set(self.ranks) <= set(range(kernel.world_size)):
            raise InputError(f"the ranks {self.ranks} are not among the {kernel.world_size} that the kernel is for")
        self.executed: Counter[str] = Counter()
        self._random = None if seed is None else random.Random(seed)
        evaluate_by = BACKENDS[backend] if isinstance(backend, str) else backend
        self._limit = limit
        self._exchange = Exchange(partial(run_collective, limit=limit) if backend == "kernels" else evaluate_by)
        self._matching = Matching(kernel)
        self._code = compiled(kernel)
        self._tensors = {program.index: program.tensors() for program in kernel.programs}
        self._meetings: dict[object, Meeting] = {}
        self._mail: dict[object, deque[list[Array]]] = {}
        self._waiting: dict[object, Meeting] = {}
        self.cores: dict[Place, Core] = {}
        for rank in self.ranks:
            shared: dict[str, Array] = {}
            memories: dict[int, Memory] = {}
            for program in kernel.programs:
                memories[program.index] = Memory(self._tensors[program.index], shared, memories)
                place = (rank, program.index)
                self.cores[place] = Core(place, memories[program.index], program.body.blocks[0])
        self._ready = deque(reversed(self.cores.values()) if backwards else self.cores.values())

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
            if self._random is not None:
                self._ready.rotate(self._random.randrange(len(self._ready)))
            self._advance(self._ready.popleft())
        if not all(core.ended for core in self.cores.values()):
            raise RunError(deadlock_message(self))
        for core in self.cores.values():
            if core.prepared is not None:
                raise RunError(f"{self.title(core.place)}: {core.prepared.where}: it was prepared and never triggered")
        return self._contents(self.kernel.outputs())

    def input_contents(self) -> list[list[Array]]:
        """What the inputs hold now, rank by rank: a kernel may write them."""
        return self._contents(self.kernel.inputs())

    def _contents(self, tensors: Sequence[TensorOp]) -> list[list[Array]]:
        places = [(self.kernel.core_of(tensor), tensor.fields.name) for tensor in tensors]
        return [[self.cores[rank, core].memory.whole(name).copy() for core, name in places] for rank in self.ranks]

    def _fill(self, inputs: Sequence[Sequence[Array]]) -> None:
        count = len(self.kernel.inputs())
        if len(inputs) != len(self.ranks):
            raise InputError(f"there are inputs for {counted(len(inputs), 'rank')}, and {len(self.ranks)} run")
        for rank, given in zip(self.ranks, inputs, strict=True):
            if len(given) != count:
                raise InputError(f"rank {rank}: {len(given)} inputs are given, and the kernel takes {count}")
        for core, tensors in self._tensors.items():
            for tensor in tensors.values():
                if tensor.fields.input >= 0:
                    for rank, given in zip(self.ranks, inputs, strict=True):
                        self._fill_one(rank, core, tensor, np.asarray(given[tensor.fields.input]))

    def _fill_one(self, rank: int, core: int, tensor: TensorOp, array: Array) -> None:
        name, type = tensor.fields.name, tensor.type
        if array.shape != type.shape or array.dtype != type.dtype.numpy:
            raise InputError(
                f"rank {rank}: input {name} is {array.dtype}{list(array.shape)}, and the kernel takes "
                f"{type.dtype.numpy}{list(type.shape)}"
            )
        self.cores[rank, core].memory.whole(name)[...] = array

    def _advance(self, core: Core) -> None:
        """Run a core until it waits or ends."""
        while core.block is not None:
            code = self._code[core.block]
            while core.at < len(code.steps):
                step = code.steps[core.at]
                core.at += 1
                self.executed[step.inst.name] += 1
                if not self._execute(core, step):
                    return
                core.forget(step)
                if self._random is not None and self._random.random() < 0.5:
                    self._ready.append(core)
                    return
            core.at = 0
            taken = code.condition is None or core.registers[code.condition]
            core.block = code.then if taken else code.otherwise
            core.jumps += 1
            if core.jumps % JUMPS_A_LOOK == 0:
                self._look_at_loop(core, code.steps)

    def _look_at_loop(self, core: Core, steps: Sequence[Step]) -> None:
        """End a core that has gone round and round for longer than the limit."""
        now = time.monotonic()
        if core.jumps == JUMPS_A_LOOK:
            core.looping_since = now
        if now - core.looping_since > self._limit:
            where = f" at {steps[-1].where}" if steps else ""
            raise RunError(
                f"{self.title(core.place)} goes round{where} for {self._limit:g} s and neither waits nor ends: "
                "a loop without end?"
            )

    def _execute(self, core: Core, step: Step) -> bool:
        """Run one instruction; False where the core must wait."""
        inst = step.inst
        try:
            if is_signalled(inst):
                return self._signalled(core, step)
            if (run := LOCAL.get(type(inst))) is not None:
                run(core, step)
                return True
            if isinstance(inst, InstCollectiveCompute):
                return self._collective(core, step)
            if isinstance(inst, InstCoreBarrier):
                return self._barrier(core, step)
            assert isinstance(inst, InstSend | InstRecv), inst.name
            return self._point_to_point(core, step)
        except FaultOf as error:
            raise RunError(f"{error.member.title}: {error.member.step.where}: {error}") from None
        except MemoryError as error:
            raise RunError(f"{self.title(core.place)}: {step.where}: there is not enough memory: {error}") from None
        except (ValueError, RunError) as error:
            raise RunError(f"{self.title(core.place)}: {step.where}: {error}") from None

    def title(self, place: Place) -> str:
        """How messages call a core."""
        return f"rank {place[0]}" + (f" core {place[1]}" if self.kernel.lnc > 1 else "")

    # Meetings

    def _meet(
        self,
        core: Core,
        key: object,
        step: Step,
        who: Callable[[], Iterable[Place]],
        finish: Callable[[Meeting], bool],
        sender: Place | None = None,
    ) -> bool:
        """Come to a meeting; whether it is over, so that the core goes on."""
        meeting = self._meetings.get(key)
        if meeting is None:
            meeting = self._meetings[key] = Meeting(key, frozenset(who()), finish, sender)
        meeting.came[core.place] = step
        core.meeting = meeting
        return meeting.is_full and self._ends(meeting, core)

    def _ends(self, meeting: Meeting, here: Core | None = None) -> bool:
        """Do what all have come for, and let them go on; ``here`` is the one that goes on by itself."""
        if not meeting.finish(meeting):
            return False
        del self._meetings[meeting.key]
        for place, step in meeting.came.items():
            core = self.cores[place]
            core.meeting = None
            core.jumps = 0
            if core is not here:
                core.forget(step)
                self._ready.append(core)
        return True

    def _collective(self, core: Core, step: Step) -> bool:
        match = self._matching.of(step.inst)
        rank, number = core.place
        group = match.group_of(number if match.is_local else rank)
        if group is None:
            return True  # this rank is in no group
        if match.phase == "prepare":
            if core.prepared is not None:
                raise ValueError("another exchange was prepared and not triggered yet")
            core.prepared = Prepared(step.fields, np.array(core.read(step.ins[1])), step.where)
            return True

        def who() -> list[Place]:
            return [(rank, c) for c in group] if match.is_local else [(r, c) for r in group for c in match.cores]

        def finish(meeting: Meeting) -> bool:
            # of the cores that do one operation together the first one's operands count
            speak = [(rank, c) for c in group] if match.is_local else [(r, match.cores[0]) for r in group]
            self._exchange.run([Member(self.cores[p], meeting.came[p], self.title(p)) for p in speak])
            for place in meeting.came if match.phase == "trigger" else ():
                self.cores[place].prepared = None
            return True

        key = (match.key, group[0], rank if match.is_local else -1, core.turn(match.key))
        return self._meet(core, key, step, who, finish)

    def _barrier(self, core: Core, step: Step) -> bool:
        rank, cores = core.place[0], step.fields.cores
        key: object = ("barrier", rank, tuple(sorted(cores)), step.fields.barrier_id)
        return self._meet(core, (key, core.turn(key)), step, lambda: [(rank, c) for c in cores], lambda _: True)

    def _signalled(self, core: Core, step: Step) -> bool:
        """Copies of one pipe: each is done when all have come, so that all have what they wait for."""
        match, rank = self._matching.of(step.inst), core.place[0]

        def finish(meeting: Meeting) -> bool:
            for place, copy in sorted(meeting.came.items(), key=lambda item: item[0]):
                LOCAL[type(copy.inst)](self.cores[place], copy)
            return True

        key = (match.key, rank, core.turn(match.key))
        return self._meet(core, key, step, lambda: [(rank, c) for c in match.cores], finish)

    def _point_to_point(self, core: Core, step: Step) -> bool:
        """A send leaves its values and goes on; a receive waits for them.

        What several cores do together is the first one's: a route leads from a core of one rank to the same of another.
        """
        match = self._matching.of(step.inst)
        rank, peer, number = core.place[0], step.fields.peer_id, match.cores[0]
        first = self.cores[rank, number]
        sends = isinstance(step.inst, InstSend)
        route = (rank, peer, number) if sends else (peer, rank, number)
        mail = self._mail.setdefault(route, deque())

        def send(meeting: Meeting) -> bool:
            mail.append([first.read(o).copy() for o in meeting.came[first.place].ins])
            if route in self._waiting:
                self._ends(self._waiting.pop(route))
            return True

        def receive(meeting: Meeting) -> bool:
            if not mail:
                self._waiting[route] = meeting
                return False
            step = meeting.came[first.place]
            for operand, values in zip(step.outs, _fitting(mail.popleft(), step), strict=True):
                first.write(operand, values)
            return True

        key = (match.key, rank, core.turn(match.key))
        who = lambda: [(rank, c) for c in match.cores]  # noqa: E731
        return self._meet(core, key, step, who, send if sends else receive, None if sends else (peer, number))


def run_kernel(
    kernel: Kernel,
    inputs: Sequence[Sequence[Array]],
    ranks: Sequence[int] | None = None,
    *,
    backend: str | Evaluate = "kernels",
    limit: float = 60.0,
    seed: int | None = None,
) -> list[list[Array]]:
    """Run a kernel; see `Machine`."""
    return Machine(kernel, ranks, backend=backend, limit=limit, seed=seed).run(inputs)


def _fitting(sent: Sequence[Array], step: Step) -> Sequence[Array]:
    """What was sent, where it is what is expected."""
    expected = [(o.shape, o.dtype) for o in step.outs]
    if [(a.shape, a.dtype) for a in sent] != expected:
        given = ", ".join(f"{a.dtype}{list(a.shape)}" for a in sent)
        wanted = ", ".join(f"{d}{list(s)}" for s, d in expected)
        raise ValueError(f"{given} was sent, and {wanted} is received")
    return sent
