"""What is known of a program while it is traced, beside its instructions, and what its instructions are called by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from crossrank.errors import InputError
from crossrank.instr.builder import KernelBuilder
from crossrank.instr.instructions import Instruction
from crossrank.instr.operands import TensorOp
from crossrank.instr.tensors import View
from crossrank.instr.trace import current


@dataclass(frozen=True)
class NkiInstruction:
    """What a call of ``nki.isa`` or ``nki.collectives`` inserted.

    Attributes:
        name: its name; of several instructions that of the first.
        instructions: one instruction, or one a channel.
    """

    name: str
    instructions: tuple[Instruction, ...]

    @staticmethod
    def of(*instructions: Instruction) -> NkiInstruction:
        """The handle of these."""
        return NkiInstruction(instructions[0].label, instructions)

    @property
    def instruction(self) -> Instruction:
        """The first (and mostly only) instruction."""
        return self.instructions[0]


@dataclass(frozen=True)
class PreparedInstruction(NkiInstruction):
    """A variable exchange whose metadata is read and that waits for its trigger.

    Attributes:
        function: what prepared it.
        arguments: what the trigger needs to know again.
    """

    function: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass
class ProgramState:
    """Of one program.

    Attributes:
        prepared: the exchange that waits for its trigger.
    """

    prepared: PreparedInstruction | None = None
    _whole: set[TensorOp] = field(default_factory=set)
    _somewhere: set[TensorOp] = field(default_factory=set)
    _parts: dict[TensorOp, npt.NDArray[np.bool_]] = field(default_factory=dict)

    def note_written(self, views: Sequence[View]) -> None:
        """An instruction wrote these."""
        for view in views:
            if view.is_whole:
                self._whole.add(view.tensor)
                self._parts.pop(view.tensor, None)
            elif view.is_indirect():
                self._somewhere.add(view.tensor)
            elif view.tensor not in self._whole:
                self._region(view)[...] = True

    def is_written(self, view: View) -> bool:
        """Whether an instruction wrote the elements of a view before."""
        if view.tensor in self._whole:
            return True
        if not current().is_of_this_turn(view.tensor):
            raise InputError(
                f"whether {view.name} was written before depends on the turn of the loop",
                "say accumulate=True and set it to 0 before the loop",
            )
        if view.is_indirect() or view.tensor in self._somewhere:
            raise InputError(
                f"which elements of {view.name} are written is known only when it runs", "say accumulate=True or False"
            )
        if view.tensor not in self._parts:
            return False
        region = self._region(view)
        if region.any() and not region.all():
            raise InputError(
                f"a part of {view} was written before and a part was not", "say accumulate=True or accumulate=False"
            )
        return bool(region.any())

    def _region(self, view: View) -> npt.NDArray[np.bool_]:
        """Flags for the bytes of each element of the view: whether they were written."""
        size, item = view.tensor.type.size * view.tensor.type.dtype.itemsize, view.element.itemsize
        flags = self._parts.setdefault(view.tensor, np.zeros(size, np.bool_))
        strides = [s * item for s in view.strides]
        return np.ndarray((*view.shape, item), np.bool_, flags, view.offset * item, (*strides, 1))


_states: WeakKeyDictionary[KernelBuilder, ProgramState] = WeakKeyDictionary()
_documented: ContextVar[bool] = ContextVar("as_documented", default=False)


def state() -> ProgramState:
    """The state of the program that is being traced."""
    return _states.setdefault(current(), ProgramState())


def is_documented() -> bool:
    """Whether what the vendor's tools refuse is refused too."""
    return _documented.get()


@contextmanager
def documented(refuse: bool) -> Iterator[None]:
    """Refuse what the vendor's tools refuse, or allow it."""
    token = _documented.set(refuse)
    try:
        yield
    finally:
        _documented.reset(token)
