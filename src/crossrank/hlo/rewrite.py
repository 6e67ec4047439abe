"""Rewrites of one instruction at a time: the driver of such passes, and what they do over and over.

An expander matches an instruction and puts another in its place. The flips among them let an operation and the
collective before it change places: `moved` copies both, `put` lets the copies stand for them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import ClassVar

from crossrank.collective.groups import check_groups
from crossrank.hlo.build import ReductionBodies, collective_like
from crossrank.hlo.collectives import describe, ranks_of
from crossrank.hlo.hlo_pass import HloPass
from crossrank.hlo.module import Computation, Instruction, Module
from crossrank.hlo.rank_values import RankValues
from crossrank.hlo.shape import Shape
from crossrank.remarks import Remarks


class Declined(Exception):
    """A candidate is left as it is; the message says why."""


class Fresh:
    """What the rewrites of one module make anew, and what they ask of it.

    Args:
        module: where they must differ from what is there.

    Attributes:
        bodies: reduction bodies.
        rank_values: what is computed from ids, on each rank.
    """

    def __init__(self, module: Module) -> None:
        self._module = module
        self._channel = 0
        self._numbers = count()
        self.bodies = ReductionBodies(module)
        self.rank_values = RankValues(module)

    def number(self) -> int:
        """0, 1, 2, …"""
        return next(self._numbers)

    def channel(self) -> int:
        """A channel id that nothing has."""
        self._channel = self._channel + 1 if self._channel else self._module.next_channel_id()
        return self._channel


@dataclass(frozen=True)
class Expander(HloPass):
    """A pass that looks at one instruction after the other, operands first, in every computation but fusion bodies.

    Attributes:
        opcodes: of the instructions that it looks at.
    """

    opcodes: ClassVar[frozenset[str]]

    def run(self, module: Module, remarks: Remarks) -> bool:
        """Rewrite what matches; returns whether anything did."""
        fresh = Fresh(module)
        changed = False
        for computation in self.scope(module):
            last = -1
            # what a rewrite has made may be a candidate too: a convert behind two gathers goes before both
            while found := [i for i in computation.post_order() if i.id > last and i.opcode in self.opcodes]:
                last = max(i.id for i in computation.post_order())
                for i in found:
                    try:
                        done = self.expand(i, fresh)
                    except Declined as reason:
                        remarks.declined(f"%{i.name}", str(reason), i.where)
                        continue
                    if done is not None:
                        remarks.done(f"%{i.name}", done, i.where)
                        changed = True
        if changed:
            module.remove_unreachable()
        return changed

    def scope(self, module: Module) -> list[Computation]:
        """The computations that it looks at."""
        return self.computations(module)

    @abstractmethod
    def expand(self, i: Instruction, fresh: Fresh) -> str | None:
        """Rewrite what ends in ``i``; returns what was done, or None where ``i`` is no candidate.

        Raises:
            Declined: it is a candidate that must stay; nothing has been changed.
        """


def check_free(i: Instruction) -> None:
    """Declined where control dependencies hold an instruction in its place."""
    if i.control_predecessors or i.control_successors:
        raise Declined(f"%{i.name} has control dependencies")


def check_movable(collective: Instruction) -> None:
    """Declined where another operation cannot change places with a collective that it follows.

    A collective with other users would stay beside its flipped form, so that both communicate.
    """
    check_free(collective)
    if collective.is_root or len(collective.users) > 1:
        raise Declined(f"%{collective.name} has other users")
    if any(leaf.tiled or leaf.dynamic for leaf in collective.shape.leaves()):
        raise Declined(f"%{collective.name} has a layout or an extent that is a device's own")


def even_groups(collective: Instruction) -> tuple[tuple[int, ...], ...]:
    """The groups of ranks of a collective; Declined where they are not of one width, or not every rank is in one."""
    module = collective.module
    if not module.config.says_ranks:
        raise Declined("the module does not say how many ranks it has")
    info = describe(collective)
    assert info is not None
    try:
        groups = ranks_of(info, module.config)
    except ValueError as error:
        raise Declined(str(error)) from None
    if len({len(g) for g in groups}) > 1:
        raise Declined("group sizes not consistent")
    for problem in check_groups(groups, module.world):
        raise Declined(problem)
    return groups


def moved(i: Instruction, operands: Sequence[Instruction], shape: Shape) -> Instruction:
    """A copy of ``i`` over other operands, for another place."""
    new = collective_like(i, operands, shape)
    new.proto.ClearField("sharding")  # it speaks of other extents
    return new


def put(new: Instruction, old: Instruction) -> None:
    """Let ``new`` stand for ``old``; what only ``old`` used goes too. ``new`` keeps its origin."""
    origin, operands = new.origin, list(old.operands)
    proto = new.edit()
    proto.ClearField("sharding")
    if old.proto.HasField("sharding"):
        proto.sharding.CopyFrom(old.proto.sharding)
    new.take_place_of(old)
    new.origin = origin
    new.computation.remove_dead(operands)


def forward(old: Instruction, value: Instruction) -> None:
    """Let ``value``, which is there already, stand for ``old``; elements of a tuple go straight to their users.

    Control dependencies of ``old`` must have been looked after.
    """
    if value.opcode == "tuple":
        taken = {
            user: value.operands[int(user.proto.tuple_index)]
            for user in old.users
            if user.opcode == "get-tuple-element" and not user.control_predecessors and not user.control_successors
        }
        # each user once, however many elements it takes
        for user in dict.fromkeys(u for element in taken for u in element.users):
            user.set_operands([taken.get(o, o) for o in user.operands])
        for element, part in taken.items():
            element.replace_all_uses_with(part)  # where it is the result
            element.computation.remove(element)
    old.replace_all_uses_with(value)
    old.computation.remove(old)
    value.computation.remove_dead([value])


def hand_over_control(old: Instruction, new: Sequence[Instruction]) -> None:
    """Let ``new`` run where control dependencies have put ``old``."""
    for n in new:
        n.set_control_predecessors(old.control_predecessors)
    old.set_control_predecessors(())
    for s in old.control_successors:
        s.set_control_predecessors((*(p for p in s.control_predecessors if p is not old), *new))
