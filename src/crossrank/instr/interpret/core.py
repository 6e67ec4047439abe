"""One core of one rank, and what its instructions do that wait for nobody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from xdsl.ir import Block, SSAValue

from crossrank.instr import registers
from crossrank.instr.compute import Value, evaluate
from crossrank.instr.fields import CollectiveFields, RingFields
from crossrank.instr.instructions import (
    InstCompute,
    InstDMACopy,
    InstGetCurProcessingRankID,
    InstGetGlobalRankId,
    InstGPSIMDSB2SB,
    InstRegisterAlu,
    InstRegisterLoad,
    InstRegisterStore,
    Instruction,
    InstTensorCompletion,
)
from crossrank.instr.interpret.code import Step
from crossrank.instr.interpret.memory import Memory, Operand

if TYPE_CHECKING:
    from crossrank.instr.interpret.machine import Meeting

Array = npt.NDArray[Any]
Place = tuple[int, int]
"""A rank, and a core of it."""


class Registers(dict[SSAValue, int]):
    """The values of registers; those that were never set have none."""

    def __missing__(self, register: SSAValue) -> int:
        raise ValueError(f"nothing has set the register %{register.name_hint or '?'} on the way here")


@dataclass(frozen=True)
class Prepared:
    """A variable exchange that was prepared.

    Attributes:
        fields: of the instruction that did.
        table: its metadata, as they were then.
        where: the instruction, for messages.
    """

    fields: CollectiveFields
    table: Array
    where: str


@dataclass(eq=False)
class Core:
    """One core of one rank.

    Attributes:
        place: its rank and its number there.
        memory: its tensors.
        block: the block that it is in; None when its program has ended.
        at: the next step there.
        registers: the values of its registers.
        meeting: where it waits, if it does.
        jumps: how often it went from block to block since it last met others.
        looping_since: when that was first looked at.
        turns: how often it came to each operation that it does with others.
        prepared: the variable exchange that was prepared and not triggered yet.
    """

    place: Place
    memory: Memory
    block: Block | None
    at: int = 0
    registers: Registers = field(default_factory=Registers)
    meeting: Meeting | None = None
    jumps: int = 0
    looping_since: float = 0.0
    turns: Counter[object] = field(default_factory=Counter)
    prepared: Prepared | None = None

    @property
    def ended(self) -> bool:
        """Whether its program has ended."""
        return self.block is None

    def turn(self, key: object) -> int:
        """How often it came to an operation before: the cores of a loop meet turn by turn."""
        self.turns[key] += 1
        return self.turns[key] - 1

    def read(self, operand: Operand) -> Array:
        """An operand's elements."""
        return operand.read(self.memory, self.registers)

    def write(self, operand: Operand, values: Array, only: Array | None = None) -> None:
        """Store an operand's elements."""
        operand.write(self.memory, self.registers, values, only)

    def forget(self, step: Step) -> None:
        """Give back what nothing touches after a step."""
        for name in step.frees:
            self.memory.forget(name)


def _compute(core: Core, step: Step) -> None:
    _evaluate(core, step, step.fields.function, dict(step.fields.params))


def _copy(core: Core, step: Step) -> None:
    _evaluate(core, step, "dma_copy", {})


def _evaluate(core: Core, step: Step, function: str, params: Mapping[str, Value]) -> None:
    """A computation; rows that a gather skips are left as they are."""
    outs, ins = ([core.read(o) for o in side] for side in (step.outs, step.ins))
    only = None
    for operand in step.ins:
        rows = operand.rows_inside(core.memory, core.registers)
        if rows is not None:
            only = rows if only is None else only & rows
    for operand, values in zip(step.outs, evaluate(function, outs, ins, params), strict=True):
        core.write(operand, values, only if only is not None and len(only) == operand.shape[0] else None)


def _alu(core: Core, step: Step) -> None:
    fields = step.fields
    given = iter([core.registers[r] for r in step.registers])
    left, right = (next(given, 0) if number is None else number for number in (fields.left, fields.right))
    core.registers[step.result] = registers.evaluate(fields.op, left, right)


def _load(core: Core, step: Step) -> None:
    value = core.read(step.ins[0]).reshape(-1)[0]
    if not np.isfinite(value) or np.iscomplexobj(value):
        raise ValueError(f"a register cannot hold {value}")
    core.registers[step.result] = registers.wrapped(int(value))


def _store(core: Core, step: Step) -> None:
    core.write(step.outs[0], np.full(step.outs[0].shape, core.registers[step.registers[0]], np.int64))


def _rank(core: Core, step: Step) -> None:
    core.registers[step.result] = core.place[0]


def _processing_rank(core: Core, step: Step) -> None:
    core.registers[step.result] = processing_rank(step.fields, core.place[0])


def _nothing(core: Core, step: Step) -> None:
    """Steps run one after the other: what comes before is complete."""


LOCAL: Mapping[type[Instruction], Callable[[Core, Step], None]] = {
    InstCompute: _compute,
    InstDMACopy: _copy,
    InstGPSIMDSB2SB: _copy,
    InstRegisterAlu: _alu,
    InstRegisterLoad: _load,
    InstRegisterStore: _store,
    InstGetGlobalRankId: _rank,
    InstGetCurProcessingRankID: _processing_rank,
    InstTensorCompletion: _nothing,
}
"""What each instruction does on a core, of those that wait for nobody."""


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
