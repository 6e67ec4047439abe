"""What passes make sure of in a program, and how it is checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from crossrank.errors import InputError
from crossrank.program.analysis.fences import missing
from crossrank.program.analysis.launches import unproven
from crossrank.program.analysis.lineage import Lineage, is_tensor
from crossrank.program.dialect.around import around
from crossrank.program.dialect.calls import CallOp, CommDomainScopeOp
from crossrank.program.dialect.collectives import CollectiveOp
from crossrank.program.dialect.windows import AllocWindowOp, GetCommCtxOp, WindowOp
from crossrank.program.kinds import ArgDirection
from crossrank.program.program import Function, Program, where
from crossrank.program.types import CommCtxType, DistTensorType


@dataclass(frozen=True)
class Property:
    """Something that is so in a program from some pass on.

    Attributes:
        made_by: the pass that makes sure of it.
        broken: the first place where it is not so, in words; None: nowhere.
    """

    made_by: str
    broken: Callable[[Program], str | None]


def _collective_in(which: Callable[[Function], bool]) -> Callable[[Program], str | None]:
    """A collective that is left in a function of a kind."""

    def broken(program: Program) -> str | None:
        for function in program.functions:
            for op in function.op.walk() if which(function) else ():
                if isinstance(op, CollectiveOp):
                    return f"{where(op)}{op.title} in function {function.name}"
        return None

    return broken


def _empty_launch(program: Program) -> str | None:
    for call, _ in unproven(program):
        return f"{where(call)}launch '{call.function}' may have a non-positive core_num, and nothing guards it"
    return None


def _undirected_call(program: Program) -> str | None:
    lineage = Lineage(program)
    for op in program.module.walk():
        if isinstance(op, CallOp):
            what = f"{where(op)}the call of {op.function}"
            if op.directions is None:
                return f"{what} has no directions"
            for argument, param, said in zip(op.arguments, lineage.callee(op).params, op.directions, strict=True):
                if (said is ArgDirection.Scalar) is is_tensor(argument):
                    return (
                        f"{what} says {said} of '{param.name}', which is {'a' if is_tensor(argument) else 'no'} tensor"
                    )
                if said is ArgDirection.Input and param.direction.writes:
                    return f"{what} says {said} of '{param.name}', which the callee writes"
    return None


def _window_apart(program: Program) -> str | None:
    for function in program.functions:
        for op in function.op.walk() if function.is_host else ():
            if isinstance(op, WindowOp):
                buffer, type = op.buffer.owner, op.result.type
                if isinstance(buffer, AllocWindowOp) and (
                    not isinstance(type, DistTensorType) or type.window != buffer.window
                ):
                    return f"{where(op)}a view does not say that it is of window '{buffer.window}'"
            elif isinstance(op, AllocWindowOp):
                scopes = sum(isinstance(s, CommDomainScopeOp) and op.sym_name in s.windows.data for s in around(op))
                if scopes != 1:
                    return f"{where(op)}window '{op.window}' is in {scopes} communication domains"
    return None


def _context_missing(program: Program) -> str | None:
    lineage = Lineage(program)
    for function in program.functions:
        types = [p.type for p in function.params]
        wanted = sum(isinstance(t, DistTensorType) for t in types)
        inside = not function.is_host and not function.is_worker
        if inside and not all(isinstance(t, CommCtxType) for t in types[len(types) - wanted :]):
            return f"{where(function.op)}function {function.name} lacks a context for each of its {wanted} windows"
        for op in function.op.walk():
            if isinstance(op, GetCommCtxOp) and inside:
                return f"{where(op)}function '{function.name}' asks for a context; only host orchestration may"
            if isinstance(op, CallOp):
                params = lineage.callee(op).params
                for argument, param in zip(op.arguments, params, strict=True):
                    if isinstance(param.type, CommCtxType) is not isinstance(argument.type, CommCtxType):
                        return f"{where(op)}the call of {op.function} passes no context as '{param.name}'"
    return None


def _unfenced(program: Program) -> str | None:
    lineage = Lineage(program)
    for function in program.functions:
        if function.is_kernel and function.has_body:
            for need in missing(function, lineage):
                return f"{where(need.after)}no fence after a {need.why} in function {function.name}"
    return None


def _said(check: Callable[[Program], str | None]) -> Callable[[Program], str | None]:
    """A check to which what cannot be asked (a call of nothing) is a fault as well."""

    def broken(program: Program) -> str | None:
        try:
            return check(program)
        except InputError as error:
            return error.what

    return broken


PROPERTIES: dict[str, Property] = {
    "CompositesLowered": Property("lower-composite-ops", _collective_in(lambda f: f.is_kernel)),
    "L2CollectivesLowered": Property("lower-l2-tensor-collectives", _collective_in(lambda f: f.is_chip)),
    "SpmdLaunchesLegal": Property("legalize-spmd-launches", _empty_launch),
    "CallDirectionsResolved": Property("derive-call-directions", _said(_undirected_call)),
    "CommDomainScopesMaterialized": Property("materialize-comm-domain-scopes", _window_apart),
    "HostCollectivesLowered": Property("lower-host-tensor-collectives", _collective_in(lambda f: f.is_host)),
    "DistTensorCtxMaterialized": Property("materialize-dist-tensor-ctx", _said(_context_missing)),
    "CommFencesInserted": Property("insert-comm-fence", _said(_unfenced)),
}
