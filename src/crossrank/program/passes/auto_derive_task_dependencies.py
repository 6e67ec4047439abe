"""`auto-derive-task-dependencies`: which task comes after which, found out before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, Region, SSAValue

from crossrank.errors import counted
from crossrank.passes import register
from crossrank.program.analysis.lineage import Lineage, yielded
from crossrank.program.analysis.regions import Box, box_of, given_twice
from crossrank.program.dialect.around import around
from crossrank.program.dialect.calls import CallOp
from crossrank.program.kinds import ArgDirection
from crossrank.program.program import Function, Program, place
from crossrank.program.program_pass import ProgramPass
from crossrank.remarks import Remarks


@register
@dataclass(frozen=True)
class AutoDeriveTaskDependencies(ProgramPass):
    """Finds out which task comes after which, where the memory of all tasks of a function is known.

    Matches the calls of each CHIP orchestration, but those of a manual scope: which elements of which buffer each
    argument is, by constant slices, and whether the call reads or writes them.

    Makes each call come after (`auto_deps`) those earlier ones of which it reads what they write, writes what they
    read, or writes what they write, unless it does so already by way of another. The run need not find these out
    again: an argument Input that one of them is about becomes `NoDep`, an argument InOut `OutputExisting`.

    Declines the whole function where a buffer, a box or a task is not known before it runs: a slice from a computed
    offset, a branch that decides which buffer it is, a buffer from outside that each turn of a loop writes, a conflict
    with a task in a loop or a branch that does not hand it on, parameters that a caller gives the same buffer, a caller
    on the chip itself. Buffers that the function itself writes, or that a manual scope uses, are left to the run.
    """

    name: ClassVar[str] = "auto-derive-task-dependencies"
    requires: ClassVar[tuple[str, ...]] = ("CallDirectionsResolved",)
    produces: ClassVar[tuple[str, ...]] = ("CallDirectionsResolved",)

    def rewrite(self, program: Program, remarks: Remarks) -> bool:
        """One orchestration after another."""
        lineage = Lineage(program)
        changed = False
        for function in (f for f in program.functions if f.is_chip and f.has_body):
            try:
                _check_callers(function, program, lineage)
                changed |= _order(function, lineage, remarks)
            except _Unknown as unknown:
                remarks.declined(function.name, unknown.why, unknown.place)
        return changed


class _Unknown(Exception):
    """Something is not known before the run, and where."""

    def __init__(self, why: str, at: Operation) -> None:
        self.why, self.place = why, place(at)


@dataclass(eq=False)
class _Access:
    """An argument of a call: its slot, its elements, what is done to them, and whether a conflict is about it."""

    call: CallOp
    slot: int
    box: Box
    direction: ArgDirection
    ordered: bool = False

    def conflicts(self, other: _Access) -> bool:
        """Whether the two must not be exchanged."""
        return (self.direction.writes or other.direction.writes) and self.box.overlaps(other.box)


def _order(function: Function, lineage: Lineage, remarks: Remarks) -> bool:
    """Order the calls of a function; _Unknown, and nothing changed, where that cannot be said."""
    calls = [op for op in function.op.walk() if isinstance(op, CallOp)]
    if any(call.auto_deps for call in calls):
        return False
    left = {root for call in calls if call.manual is not None for a in call.arguments for root in lineage.roots(a)}
    left |= {root for op in function.op.walk() if not isinstance(op, CallOp) for w in lineage.written(op)
             for root in lineage.roots(w)}  # fmt: skip
    accesses = {call: _accesses(call, left, lineage) for call in calls if call.manual is None}
    found: dict[CallOp, list[SSAValue]] = {}
    closures: dict[CallOp, set[CallOp]] = {}  # what each certainly comes after
    for call, own in accesses.items():
        before = closures[call] = _declared(call, closures)
        handles: dict[SSAValue, None] = {}
        for earlier in reversed(list(found)):
            pairs = [(a, b) for a in accesses[earlier] for b in own if a.conflicts(b)]
            if not pairs or _exclusive(earlier, call):
                continue
            for access in (access for pair in pairs for access in pair):
                access.ordered = True
            if earlier in before:
                continue
            handle = _handle(earlier, call)
            handles[handle] = None
            if handle is earlier.task:  # a task that a branch hands on says nothing of what came before it
                before |= {earlier, *closures[earlier]}
        found[call] = [h for h in reversed(handles) if h not in call.deps]
    for call, handles_found in found.items():
        if handles_found:
            call.give(auto_deps=handles_found)
            remarks.done(call.function, f"comes after {counted(len(handles_found), 'earlier task')}", place(call))
        call.directions = _covered(call, accesses[call])
    return any(found.values())


def _accesses(call: CallOp, left: set[SSAValue], lineage: Lineage) -> list[_Access]:
    """The arguments that are to be ordered; not those of the buffers that are ``left`` to the run."""
    assert call.directions is not None
    found = []
    for slot, (argument, direction) in enumerate(zip(call.arguments, call.directions, strict=True)):
        if not (direction.reads or direction.writes) or not left.isdisjoint(lineage.roots(argument)):
            continue
        box = box_of(argument, lineage)
        if box is None:
            raise _Unknown(f"which elements argument {slot} of {call.function} is, is known only when it runs", call)
        if direction.writes and any(isinstance(op, scf.ForOp) for op in around(call) if not _within(box.root, op)):
            raise _Unknown(f"each turn of a loop writes argument {slot} of {call.function}", call)
        found.append(_Access(call, slot, box, direction))
    return found


def _within(value: SSAValue, op: Operation) -> bool:
    """Whether a value is made inside of an op."""
    owner = value.owner
    return not isinstance(owner, Block) and op in around(owner)


def _exclusive(one: CallOp, other: CallOp) -> bool:
    """Whether they stand in different arms of one branch."""
    return any(
        isinstance(branch, scf.IfOp) and branch in around(other) and _arm(one, branch) is not _arm(other, branch)
        for branch in around(one)
    )


def _arm(op: Operation, branch: scf.IfOp) -> Region | None:
    """The region of a branch that an op stands in."""
    below = op
    for parent in around(op):
        if parent is branch:
            break
        below = parent
    return below.parent_region()


def _declared(call: CallOp, closures: dict[CallOp, set[CallOp]]) -> set[CallOp]:
    """What a call comes after as its author says."""
    found: set[CallOp] = set()
    for dep in call.deps:
        if isinstance(dep.owner, CallOp):
            found |= {dep.owner, *closures.get(dep.owner, ())}
    return found


def _handle(earlier: CallOp, call: CallOp) -> SSAValue:
    """The task of an earlier call as it can be named where a later one stands."""
    handle: SSAValue = earlier.task
    block = earlier.parent
    blocks = {call.parent, *(op.parent for op in around(call))}
    while block not in blocks:
        branch = block.parent_op() if block is not None else None
        if not isinstance(branch, scf.IfOp) or block is None or handle not in (given := yielded(block)):
            raise _Unknown(f"{call.function} comes after a task in a loop or a branch that does not hand it on", call)
        handle, block = branch.results[given.index(handle)], branch.parent
    return handle


def _covered(call: CallOp, accesses: list[_Access]) -> list[ArgDirection]:
    """The directions of a call where what its accesses come before and after has been said."""
    assert call.directions is not None
    directions = list(call.directions)
    for access in accesses:
        if access.ordered:
            covered = {ArgDirection.Input: ArgDirection.NoDep, ArgDirection.InOut: ArgDirection.OutputExisting}
            directions[access.slot] = covered.get(access.direction, access.direction)
    return directions


def _check_callers(function: Function, program: Program, lineage: Lineage) -> None:
    """_Unknown where a caller passes one buffer as two parameters, of which one is written, or is on the chip itself.

    In the first case parameters are not memory of their own; in the second other tasks run beside the function's.
    """
    params = function.params
    for caller in program.functions:
        for call in caller.op.walk():
            if not isinstance(call, CallOp) or call.function != function.name:
                continue
            if caller.is_chip:
                raise _Unknown(f"its tasks are among those of {caller.name}", call)
    for call, a, b in given_twice(function, lineage):
        raise _Unknown(f"'{params[a].name}' and '{params[b].name}' may be given the same buffer", call)
