"""Says who waits for whom when nobody can go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crossrank.instr.interpret.code import Step
    from crossrank.instr.interpret.core import Core, Place
    from crossrank.instr.interpret.machine import Machine

SHOWN = 8


def deadlock_message(machine: Machine) -> str:
    """One line for the whole, then one for each core of a cycle (or of those that wait for one that has ended)."""
    waiting = [c for c in machine.cores.values() if c.meeting is not None]
    shown = (_cycle(machine, waiting) or waiting)[:SHOWN]
    lines = [_line(machine, core) for core in shown]
    more = len(waiting) - len(lines)
    if more > 0:
        lines.append(f"and {more} more wait")
    return "\n".join([f"deadlock: {len(waiting)} of {len(machine.cores)} cores wait and none can go on", *lines])


def _cycle(machine: Machine, waiting: list[Core]) -> list[Core]:
    """Cores that wait for one another in a circle; empty where all wait for some that have ended."""
    state: dict[Place, int] = {}
    for start in waiting:
        path: list[Core] = []
        core: Core | None = start
        while core is not None and core.meeting is not None and state.get(core.place, 0) == 0:
            state[core.place] = 1
            path.append(core)
            core = next((machine.cores[p] for p in core.meeting.awaited if p in machine.cores), None)
        if core is not None and core in path:
            return path[path.index(core) :]
    return []


def _line(machine: Machine, core: Core) -> str:
    meeting = core.meeting
    assert meeting is not None
    awaited = meeting.awaited
    named = ", ".join(f"{machine.title(p)} {_state(machine, p)}" for p in awaited[:3])
    if len(awaited) > 3:
        named += f" and {len(awaited) - 3} more"
    return f"{machine.title(core.place)} waits in {_where(machine, core)} for {named}"


def _state(machine: Machine, place: Place) -> str:
    core = machine.cores.get(place)
    if core is None:
        return "(which is not there)"
    if core.meeting is None:
        return "(which has ended)"
    return f"(which waits in {_where(machine, core)})"


def _where(machine: Machine, core: Core) -> str:
    """The instruction at which a core waits; with its tensors, where others wait in one of the same name and line."""
    steps = [c.meeting.came[c.place] for c in machine.cores.values() if c.meeting is not None]
    assert core.meeting is not None
    own = core.meeting.came[core.place]
    if all(_tensors(s) == _tensors(own) for s in steps if s.where == own.where):
        return own.where
    return f"{own.where} {_tensors(own)}"


def _tensors(step: Step) -> str:
    """What an instruction reads and writes, by name: ``x → y``."""
    sides = (", ".join(o.tensor for o in side) for side in (step.ins, step.outs))
    return " → ".join(filter(None, sides))
