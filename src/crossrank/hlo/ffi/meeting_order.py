"""In which order the modules of several ranks come to what they share, so that no two wait for each other.

XLA may run a module one instruction after another, in any order that its operands allow, and a rank that waits runs
nothing else meanwhile. So a send that nothing orders may stand behind a wait for the very rank that should receive it,
and control dependencies are lost on the way into XLA. Here the program is played through once, with all that orders
it: a send happens as soon as it can, a recv after its send, and what else meets once all of it is there. Ranks that
keep the order in which things happened then can only wait for each other where the program has no other way.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from crossrank.hlo.module import Computation, Instruction, Module


@dataclass(eq=False)
class Step:
    """What a rank shares with others, or a loop or conditional around some of it; others see it as one.

    Attributes:
        members: the instructions that become one, of one computation.
        meets: those with the same (not None) wait for each other.
        after: a step that must come before it, in whichever module.
        around: whether it is a loop or conditional.
    """

    members: tuple[Instruction, ...]
    meets: object = None
    after: Step | None = None
    around: bool = False

    @property
    def computation(self) -> Computation:
        """Where it stands."""
        return self.members[0].computation


def meeting_order(modules: Sequence[Module], steps: Sequence[Step]) -> dict[Computation, list[Step]]:
    """The order of ``steps``, and of loops and conditionals around some, in each computation that has any.

    Args:
        modules: of all ranks; each computation with steps is called from one place.
        steps: all of them; what they need of each other within a computation is read off there.
    """
    callers = {body: i for m in modules for i in m.instructions() for body in i.called}
    around: dict[Instruction, Step] = {}

    def path(step: Step) -> list[Step]:
        """The steps around it from the entry computation on, and itself."""
        found = [step]
        while (i := callers.get(found[-1].computation)) is not None:
            found.append(around.setdefault(i, Step((i,), around=True)))
        return found[::-1]

    paths = {step: path(step) for step in steps}
    order: dict[Computation, list[Step]] = {}
    for depth in range(max(map(len, paths.values()), default=0)):
        for step in _Play({s: p[depth] for s, p in paths.items() if depth < len(p)}).run():
            order.setdefault(step.computation, []).append(step)
    return order


@dataclass(eq=False)
class _Group:
    """Steps that wait for each other, and what must have happened before."""

    steps: list[Step]
    after: set[Step] = field(default_factory=set)


class _Play:
    """The computations of one depth, of all ranks, played through. What is in a loop happens with the loop."""

    def __init__(self, at: dict[Step, Step]) -> None:
        self.at = at
        self.steps = list(dict.fromkeys(at.values()))
        self.groups = {s: _Group([s]) for s in self.steps}
        self.waiting: dict[Step, list[_Group]] = defaultdict(list)
        self._join()
        self.unit: dict[Instruction, Step] = {i: s for s in self.steps for i in s.members}
        self.missing: dict[Step | Instruction, int] = {}
        self.users: dict[Step | Instruction, list[Step | Instruction]] = defaultdict(list)
        self.here: dict[Step, None] = {}  # has all that it needs in its own computation
        self.happened: dict[Step, None] = {}

    def _join(self) -> None:
        first: dict[object, Step] = {}
        for inner, step in self.at.items():
            if inner.meets is not None:
                self._unite(step, first.setdefault(inner.meets, step))
        for inner, step in self.at.items():
            before = self.at.get(inner.after) if inner.after is not None else None
            if before is None or before.computation is step.computation:
                continue
            if before.around and step.around:  # they may go back and forth
                self._unite(before, step)
            else:
                self.groups[step].after.add(before)
        for group in dict.fromkeys(self.groups.values()):
            group.after.difference_update(group.steps)
            for before in group.after:
                self.waiting[before].append(group)

    def _unite(self, a: Step, b: Step) -> None:
        one, other = self.groups[a], self.groups[b]
        if one is other:
            return
        one.steps += other.steps
        one.after |= other.after
        self.groups.update(dict.fromkeys(other.steps, one))

    def _needs(self, unit: Step | Instruction) -> Iterator[Step | Instruction]:
        for i in unit.members if isinstance(unit, Step) else (unit,):
            for n in i.needs():
                need = self.unit.get(n, n)
                if need is not unit:
                    yield need

    def run(self) -> list[Step]:
        """All steps, as they happened."""
        ready: deque[Step | Instruction] = deque()
        for c in dict.fromkeys(s.computation for s in self.steps):
            for unit in dict.fromkeys(self.unit.get(i, i) for i in c.post_order()):
                needs = set(self._needs(unit))
                self.missing[unit] = len(needs)
                for need in needs:
                    self.users[need].append(unit)
                if not needs:
                    ready.append(unit)
        able: deque[_Group] = deque()

        def over(unit: Step | Instruction) -> None:
            for user in self.users[unit]:
                self.missing[user] -= 1
                if not self.missing[user]:
                    ready.append(user)

        def happen(step: Step) -> None:
            if step not in self.happened:
                self.happened[step] = None
                able.extend(self.waiting[step])
                over(step)

        while True:
            while ready:
                unit = ready.popleft()
                if isinstance(unit, Instruction):
                    over(unit)
                    continue
                self.here[unit] = None
                group = self.groups[unit]
                if unit.meets is None and not unit.around and not group.after:
                    happen(unit)  # before all that may have to wait
                else:
                    able.append(group)
            if able:
                group = able.popleft()
                if all(s in self.here for s in group.steps) and all(s in self.happened for s in group.after):
                    for step in group.steps:
                        happen(step)
                continue
            stuck = [s for s in self.here if s not in self.happened]
            if not stuck:
                return list(self.happened)
            # the program waits in a circle; or what is in a loop need not wait for all that is in another one
            happen(next((s for s in stuck if s.around), stuck[0]))
