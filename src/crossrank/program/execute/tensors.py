"""What ops on tensors mean in orchestrators: views are made at once; elements are read and written when those tasks are
over that come before."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.ir import Operation

from crossrank.program.dialect.collectives import CollectiveOp
from crossrank.program.dialect.tensors import (
    AssembleOp,
    CreateArrayOp,
    CreateTensorOp,
    DimOp,
    ReadOp,
    ReshapeOp,
    SliceOp,
    TransposeOp,
    WriteOp,
    shaped,
)
from crossrank.program.dialect.windows import SymbolOp
from crossrank.program.execute.binding import Symbols, symbol
from crossrank.program.execute.failures import ask, refuse, room
from crossrank.program.execute.interpret import Meaning
from crossrank.program.execute.scalars import Number, plain
from crossrank.program.execute.views import View
from crossrank.program.kinds import ArgDirection
from crossrank.program.program import function_of
from crossrank.program.types import is_float

if TYPE_CHECKING:
    from crossrank.program.execute.run import Run


TURNS = 1000


class Orchestrator(ABC):
    """What the body of a function runs in.

    Attributes:
        run: what it is a part of.
        function: its name.
        symbols: the values of its symbolic extents.
    """

    def __init__(self, run: Run, function: str, symbols: Symbols) -> None:
        self.run = run
        self.function = function
        self.symbols = symbols
        self._turns = 0

    def turn(self) -> None:
        """Told at each turn of a loop: now and then it looks whether the run was given up, and raises why."""
        self._turns += 1
        if self._turns % TURNS == 0:
            self.run.engine.wait(())

    @abstractmethod
    def settle(self, view: View, direction: ArgDirection) -> None:
        """Wait until this body itself may touch a view so."""


def _create(op: CreateTensorOp) -> Callable[..., View]:
    dtype = shaped(op.result).dtype.numpy
    assert dtype is not None

    def create(state: Orchestrator, *extents: int) -> View:
        ask(all(e >= 0 for e in extents), f"pl.create_tensor with extents {list(extents)}")
        room(dtype.itemsize * int(np.prod(extents, dtype=object)), f"a tensor {list(extents)} of {state.function}")
        return View(np.zeros(extents, dtype))

    return create


def _slice(op: SliceOp) -> Callable[..., View]:
    count, dropped = len(op.offsets), op.dropped
    return lambda _, view, *numbers: view.slice(numbers[:count], numbers[count:], dropped)


def _transpose(op: TransposeOp) -> Callable[..., View]:
    axis1, axis2 = op.axis1.value.data, op.axis2.value.data
    return lambda _, view: view.transpose(axis1, axis2)


def _dim(op: DimOp) -> Callable[..., int]:
    axis = op.axis.value.data
    return lambda _, view: int(view.array.shape[axis])


def _symbol(op: SymbolOp) -> Callable[..., int]:
    name = op.symbol.data
    return lambda state: symbol(name, state.symbols, state.function)


def _read(op: ReadOp) -> Callable[..., Number]:
    type = op.result.type
    number = float if is_float(type) else int

    def read(state: Orchestrator, view: View, *indices: int) -> Number:
        element = view.element(indices)
        state.settle(element, ArgDirection.Input)
        return plain(number(element.array.item()), type)

    return read


def _write(op: WriteOp) -> Callable[..., None]:
    def write(state: Orchestrator, view: View, *values: Any) -> None:
        *indices, value = values
        element = view.element(indices)
        state.settle(element, ArgDirection.InOut)
        ask(element.array.flags.writeable, "it is written, and its memory is read-only")
        element.array[...] = np.asarray(value).astype(element.array.dtype)

    return write


def _assemble(op: AssembleOp) -> Callable[..., View]:
    def assemble(state: Orchestrator, target: View, source: View, *offsets: int) -> View:
        missing = target.array.ndim - source.array.ndim
        part = target.slice(offsets, (*(1,) * missing, *source.array.shape))
        state.settle(source, ArgDirection.Input)
        state.settle(part, ArgDirection.InOut)
        ask(part.array.flags.writeable, "it is written, and its memory is read-only")
        part.array[...] = source.array
        return target

    return assemble


def _collective(op: CollectiveOp) -> Callable[..., Any]:
    refuse(
        f"{op.title} in function '{function_of(op)}' was not lowered",
        "run the passes lower-l2-tensor-collectives and lower-host-tensor-collectives, which the pipeline program has",
    )


TENSORS: Mapping[type[Operation], Meaning] = {
    CreateTensorOp: _create,
    SliceOp: _slice,
    ReshapeOp: lambda op: lambda _, view, *extents: view.reshape(extents),
    TransposeOp: _transpose,
    ReadOp: _read,
    WriteOp: _write,
    AssembleOp: _assemble,
    DimOp: _dim,
    SymbolOp: _symbol,
    CreateArrayOp: lambda op: lambda _: View(np.zeros(shaped(op.result).extents, shaped(op.result).dtype.numpy)),
    CollectiveOp: _collective,
}
"""What each op means in any orchestrator."""
