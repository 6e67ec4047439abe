"""The functions of a program as those who call them need them: bodies ready to run, kernels ready to be launched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from crossrank.errors import InputError, counted
from crossrank.program.analysis.launches import core_type
from crossrank.program.analysis.lineage import Lineage
from crossrank.program.builtins import CONTIGUOUS, is_builtin, template_of
from crossrank.program.codegen.build import CompiledKernel
from crossrank.program.dialect.calls import CallOp
from crossrank.program.execute.binding import Parameters
from crossrank.program.execute.failures import refuse
from crossrank.program.execute.interpret import Code
from crossrank.program.kinds import ArgDirection, Direction
from crossrank.program.program import Function, where
from crossrank.program.types import ShapedType

_DIRECTIONS = {
    Direction.In: ArgDirection.Input,
    Direction.Out: ArgDirection.OutputExisting,
    Direction.InOut: ArgDirection.InOut,
}


class Callee:
    """A function that others call.

    Attributes:
        function: as the program has it.
        name: its name.
        parameters: what it takes.
        returned: for each result the parameter that it gives back, or None.
        declared: what it does to each parameter.
    """

    def __init__(self, function: Function, lineage: Lineage) -> None:
        self.function = function
        self.name = function.name
        self.parameters = Parameters(function)
        self.returned = lineage.returned(function.name)
        self.declared = [
            _DIRECTIONS[p.direction] if isinstance(p.type, ShapedType) else ArgDirection.Scalar
            for p in self.parameters.params
        ]

    def directions(self, call: CallOp) -> list[ArgDirection]:
        """What a call does to each argument; before that is derived, what the callee says of its parameters."""
        return self.declared if call.directions is None else call.directions


class Kernel(Callee):
    """A kernel, compiled.

    Attributes:
        code: its entry, and its slots.
        cores: which cores it runs on.
        wants_packed: its tensors must lie in one piece.
        builtin: the collective that it is, where it comes with crossrank.
        written: the parameters that it writes, whatever it declares.
    """

    def __init__(self, function: Function, lineage: Lineage, compiled: CompiledKernel) -> None:
        super().__init__(function, lineage)
        self.code = compiled
        self.cores = core_type(function)
        self.wants_packed = CONTIGUOUS in function.op.attributes
        self.builtin = template_of(function)[0] if is_builtin(function) else None
        declared = [n for n, p in enumerate(self.parameters.params) if p.direction.writes]
        self.written = {*declared, *lineage.first_written(function)}.intersection(compiled.slots.tensors)


class ChipFunction(Callee):
    """A chip function; its code comes later, since such functions may call one another."""

    code: Code


class Worker(Callee):
    """A host sub-worker: plain Python."""

    def __init__(self, function: Function, lineage: Lineage, do: Callable[..., Any] | None) -> None:
        super().__init__(function, lineage)
        self.do = do


@dataclass(frozen=True)
class Operands:
    """The operands of a call, apart."""

    arguments: Sequence[Any]
    device: int | None
    core_num: int | None
    deps: Sequence[Any]


def operands_of(call: CallOp) -> Callable[[Sequence[Any]], Operands]:
    """How to take the operands of a call apart, in the order in which the op has them."""
    arguments = len(call.arguments)
    has_device, has_core_num = call.device is not None, call.core_num is not None
    first = arguments + has_device + has_core_num

    def split(values: Sequence[Any]) -> Operands:
        return Operands(
            values[:arguments],
            values[arguments] if has_device else None,
            values[first - 1] if has_core_num else None,
            values[first:],
        )

    return split


def returned_of(call: CallOp, callee: Callee) -> list[int]:
    """For each result of a call the argument that it is.

    Raises:
        InputError: a result that somebody uses is none; or the call does not fit its callee.
    """
    wanted, given = len(callee.parameters.params), len(call.arguments)
    if wanted != given:
        raise InputError(f"{where(call)}{callee.name} takes {counted(wanted, 'argument')}, and gets {given}")
    if len(callee.returned) != len(call.returned):
        refuse(f"{callee.name} returns {counted(len(callee.returned), 'value')}, not {len(call.returned)}")
    for n, (value, parameter) in enumerate(zip(call.returned, callee.returned, strict=True)):
        if parameter is None and value.first_use is not None:
            refuse(
                f"result {n} of {callee.name} is none of its parameters, so that nobody has it before it has run",
                "let it write and return an Out parameter",
            )
    return [parameter or 0 for parameter in callee.returned]
