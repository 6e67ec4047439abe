"""`derive-call-directions`: each call says what it does to each of its arguments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from xdsl.dialects import scf
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from crossrank.passes import register
from crossrank.program.analysis.lineage import Lineage, is_tensor
from crossrank.program.dialect.around import around
from crossrank.program.dialect.calls import PARALLEL, CallOp
from crossrank.program.kinds import ArgDirection, Direction, FunctionType
from crossrank.program.program import Function, Param, Program, place
from crossrank.program.program_pass import ProgramPass
from crossrank.remarks import Remarks

WRAPPERS = (FunctionType.Group, FunctionType.Spmd)
_RANK = {Direction.In: 0, Direction.Out: 1, Direction.InOut: 2}


@register
@dataclass(frozen=True)
class DeriveCallDirections(ProgramPass):
    """Says for each argument of each call how it is ordered: read, changed, or overwritten.

    Matches every call that has no directions yet.

    Makes of the callee's parameters the call's `directions`: `Scalar` for what is no tensor, `Input` for In, `InOut`
    for InOut. An Out argument is `OutputExisting`, and `InOut` where what was there may matter: within a loop whose
    turns follow one another, after another writer of the same buffer, where the caller was given it as InOut, or where
    it is one of several buffers. An argument that its author orders (`no_dep`) is `NoDep`. Before that, parameters that
    are declared In and written become InOut, and those of functions that only wrap kernels (Group, Spmd) what the
    kernels do to them, InOut before Out before In.

    Declines calls that have directions: they are kept.
    """

    name: ClassVar[str] = "derive-call-directions"
    produces: ClassVar[tuple[str, ...]] = ("CallDirectionsResolved",)

    def rewrite(self, program: Program, remarks: Remarks) -> bool:
        """Parameters first, to a fixed point; then each call."""
        lineage = Lineage(program)
        changed = _raise_parameters(lineage, remarks)
        writers = _Writers(program, lineage)
        for op in program.module.walk():
            if not isinstance(op, CallOp):
                continue
            if op.directions is not None:
                remarks.declined(op.function, "it has directions already", place(op))
                continue
            callee = lineage.callee(op)
            directions = [
                _direction(op, argument, param, lineage, writers)
                for argument, param in zip(op.arguments, callee.params, strict=True)
            ]
            op.directions = directions
            remarks.done(op.function, ", ".join(directions) or "no arguments", place(op))
            changed = True
        return changed


def _raise_parameters(lineage: Lineage, remarks: Remarks) -> bool:
    """What a function does to a parameter is the most that its body, or a function that it calls, does to it."""
    functions = [f for f in lineage.functions.values() if f.has_body]
    before = {f.name: f.params for f in functions}
    while any(_raised(f, lineage) for f in functions):
        pass
    for f in functions:
        for old, new in zip(before[f.name], f.params, strict=True):
            if old != new:
                remarks.done(f.name, f"{new.name} is {new.direction}, not {old.direction}", place(f.op))
    return any(before[f.name] != f.params for f in functions)


def _raised(function: Function, lineage: Lineage) -> bool:
    """One step; returns whether anything changed."""
    params = function.params
    for op in function.op.walk():
        for value, direction in _writes(op, lineage, function.type in WRAPPERS):
            for root in lineage.roots(value):
                if not isinstance(root, BlockArgument) or root.block is not function.body:
                    continue
                param = params[root.index]
                if param.direction is Direction.In or (
                    function.type in WRAPPERS and _RANK[param.direction] < _RANK[direction]
                ):
                    params[root.index] = replace(param, direction=direction)
    changed = params != function.params
    function.params = params
    return changed


def _writes(op: Operation, lineage: Lineage, wraps: bool) -> list[tuple[SSAValue, Direction]]:
    """The tensors that an op writes, and how its function does; a wrapper does what the callee does."""
    if not wraps or not isinstance(op, CallOp):
        return [(value, Direction.InOut) for value in lineage.written(op)]
    pairs = zip(op.arguments, lineage.callee(op).params, strict=True)
    return [(value, param.direction) for value, param in pairs if param.direction.writes and is_tensor(value)]


def _direction(call: CallOp, argument: SSAValue, param: Param, lineage: Lineage, writers: _Writers) -> ArgDirection:
    """The table: what the callee declares, and what is around the call."""
    if not is_tensor(argument):
        return ArgDirection.Scalar
    if param.name in call.ordered_by_author:
        return ArgDirection.NoDep
    if param.direction is Direction.In:
        return ArgDirection.Input
    if param.direction is Direction.InOut:
        return ArgDirection.InOut
    root = lineage.root(argument)
    keeps = root is None or _in_sequence(call) or _given_inout(root) or writers.before(call, root)
    return ArgDirection.InOut if keeps else ArgDirection.OutputExisting


def _in_sequence(call: CallOp) -> bool:
    """Whether it stands in a loop whose turns follow one another."""
    return any(isinstance(op, scf.ForOp) and PARALLEL not in op.attributes for op in around(call))


def _given_inout(root: SSAValue) -> bool:
    """Whether it is an InOut parameter of the function that calls."""
    if not isinstance(root, BlockArgument):
        return False
    function = root.block.parent_op()
    return isinstance(function, FuncOp) and Function(function).params[root.index].direction is Direction.InOut


class _Writers:
    """Where in each block of a program a buffer is first written; loops and branches count as a whole."""

    def __init__(self, program: Program, lineage: Lineage) -> None:
        self._number: dict[Operation, int] = {}
        self._first: dict[tuple[Block | None, SSAValue], int] = {}
        for number, op in enumerate(program.module.walk()):
            self._number[op] = number
            for root in {r for w in lineage.written(op) for r in lineage.roots(w)}:
                for unit in (op, *around(op)):
                    self._first.setdefault((unit.parent, root), self._number[unit])

    def before(self, call: CallOp, root: SSAValue) -> bool:
        """Whether something that may run earlier than a call writes the buffer."""
        return any(
            self._first.get((unit.parent, root), self._number[unit]) < self._number[unit]
            for unit in (call, *around(call))
        )
