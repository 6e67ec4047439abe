"""What passes make sure of in a program, and how it is checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from crossrank.program.dialect.calls import CallOp
from crossrank.program.dialect.collectives import CollectiveOp
from crossrank.program.program import Program, where


@dataclass(frozen=True)
class Property:
    """Something that is so in a program from some pass on.

    Attributes:
        made_by: the pass that makes sure of it.
        broken: the first place where it is not so, in words; None: nowhere.
    """

    made_by: str
    broken: Callable[[Program], str | None]


def _composite_left(program: Program) -> str | None:
    for function in program.functions:
        if function.is_kernel:
            for op in function.op.walk():
                if isinstance(op, CollectiveOp):
                    return f"{where(op)}{op.title} in function {function.name}"
    return None


def _undirected_call(program: Program) -> str | None:
    for op in program.module.walk():
        if isinstance(op, CallOp) and op.directions is None:
            return f"{where(op)}the call of {op.function} has no directions"
    return None


PROPERTIES: dict[str, Property] = {
    "CompositesLowered": Property("lower-composite-ops", _composite_left),
    "CallDirectionsResolved": Property("derive-call-directions", _undirected_call),
}
