"""`materialize-dist-tensor-ctx`: functions are given the context of each window that they see."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects import scf
from xdsl.ir import Block, BlockArgument, SSAValue
from xdsl.rewriter import Rewriter

from crossrank.errors import InputError
from crossrank.passes import register
from crossrank.program.analysis.lineage import Lineage
from crossrank.program.dialect.calls import CallOp
from crossrank.program.dialect.windows import GetCommCtxOp
from crossrank.program.kinds import ArgDirection
from crossrank.program.program import Function, Param, Program, place, where
from crossrank.program.program_pass import ProgramPass
from crossrank.program.types import CommCtxType, DistTensorType
from crossrank.remarks import Remarks


@register
@dataclass(frozen=True)
class MaterializeDistTensorCtx(ProgramPass):
    """Gives functions the context of each window that they see, so that nobody looks one up on a device.

    Matches kernels and functions of a chip with distributed tensors among their parameters.

    Makes a trailing parameter `<name>_ctx` for each of these, in their order. Each call passes as many more arguments:
    on the host `get_comm_ctx` of what it passes, elsewhere the caller's own context of the parameter that it passes on;
    its directions grow by `Scalar`. Off the host `get_comm_ctx` becomes the parameter.

    Declines functions that have their contexts, so that it changes nothing when it is run again.

    Fails, with the place, where a loop or a branch decides which of two parameters a distributed tensor is, or where it
    is none: one value has one context.
    """

    name: ClassVar[str] = "materialize-dist-tensor-ctx"
    requires: ClassVar[tuple[str, ...]] = ("CommDomainScopesMaterialized",)
    produces: ClassVar[tuple[str, ...]] = ("DistTensorCtxMaterialized",)

    def rewrite(self, program: Program, remarks: Remarks) -> bool:
        """First what the functions take, then what they are given."""
        lineage = Lineage(program)
        functions = [f for f in program.functions if not f.is_host and not f.is_worker]
        for function in functions:
            _one_context(function, lineage)
        grown = {f.name for f in functions if _grow(f, remarks)}
        changed = bool(grown)
        for function in program.functions:
            known: dict[tuple[Block | None, SSAValue], SSAValue] = {}
            for op in list(function.op.walk()):
                if isinstance(op, CallOp) and op.function in grown:
                    _pass_on(function, op, lineage, known)
                elif isinstance(op, GetCommCtxOp) and not function.is_host:
                    op.result.replace_all_uses_with(_own(function, op.source, lineage))
                    Rewriter.erase_op(op)
                    changed = True
        return changed


def _windows(params: Iterable[Param]) -> list[int]:
    """The parameters that are distributed tensors."""
    return [n for n, p in enumerate(params) if isinstance(p.type, DistTensorType)]


def _one_context(function: Function, lineage: Lineage) -> None:
    """What loops and branches give is a view of one parameter."""
    for op in function.op.walk():
        if isinstance(op, (scf.ForOp, scf.IfOp)):
            for result in op.results:
                if isinstance(result.type, DistTensorType):
                    _root(result, lineage)


def _root(value: SSAValue, lineage: Lineage) -> SSAValue:
    """The one root of a value; InputError where it has several."""
    roots = lineage.roots(value)
    if len(roots) > 1:
        names = " or ".join(f"'{r.name_hint or '?'}'" for r in roots)
        raise InputError(
            f"{where(value)}a loop or a branch decides whether this distributed tensor is {names}, so that it has "
            "no one context",
            "use a variable for each window",
        )
    return roots[0]


def _own(function: Function, value: SSAValue, lineage: Lineage) -> SSAValue:
    """The context of the parameter that a value is a view of; InputError where that is not one parameter."""
    params, root = function.params, _root(value, lineage)
    if not isinstance(root, BlockArgument):
        raise InputError(
            f"{where(value)}this distributed tensor is no parameter of {function.name}, so that it has no context",
            "let the callee return the parameter that it writes",
        )
    first = len(params) - len(_windows(params))
    return function.body.args[first + _windows(params).index(root.index)]


def _grow(function: Function, remarks: Remarks) -> bool:
    """Add the parameters; returns whether there were any to add."""
    params = function.params
    windows = _windows(params)
    contexts = [n for n, p in enumerate(params) if isinstance(p.type, CommCtxType)]
    if contexts == list(range(len(params) - len(windows), len(params))):
        return False
    if contexts:
        raise InputError(
            f"{where(function.op)}function {function.name} has {len(windows)} windows among its parameters, "
            f"and {len(contexts)} contexts",
            "leave contexts away and ask for them: ctx = pld.get_comm_ctx(x)",
        )
    taken = {p.name for p in params}
    for n in windows:
        name = base = f"{params[n].name}_ctx"
        count = 0
        while name in taken:
            count += 1
            name = f"{base}_{count}"
        taken.add(name)
        params.append(Param(name, CommCtxType()))
        if function.has_body:
            argument = function.body.insert_arg(CommCtxType(), len(function.body.args))
            argument.name_hint = name
    function.params = params
    remarks.done(function.name, f"takes {', '.join(p.name for p in params[-len(windows) :])}", place(function.op))
    return True


def _pass_on(
    caller: Function, call: CallOp, lineage: Lineage, known: dict[tuple[Block | None, SSAValue], SSAValue]
) -> None:
    """Add the arguments of a call; ``known`` has the contexts that the host has asked for."""
    params = lineage.functions[call.function].params
    arguments = list(call.arguments)
    for n in _windows(params):
        argument = arguments[n]
        if not isinstance(argument.type, DistTensorType):
            raise InputError(
                f"{where(call)}call of {call.function}: expected DistributedTensor arg at callee param index {n}",
                "pass a view of a window: pld.window(buffer, shape, dtype=...)",
            )
        if not caller.is_host:
            arguments.append(_own(caller, argument, lineage))
            continue
        key = (call.parent, argument)
        if key not in known:
            ask = GetCommCtxOp(argument)
            ask.location = call.location
            ask.result.name_hint = f"{params[n].name}_ctx"
            assert call.parent is not None
            call.parent.insert_op_before(ask, call)
            known[key] = ask.result
        arguments.append(known[key])
    directions = call.directions
    call.give(arguments=arguments)
    if directions is not None:
        call.directions = [*directions, *[ArgDirection.Scalar] * (len(arguments) - len(directions))]
