"""`lower-host-tensor-collectives`: collectives of the host become dispatches to the devices of their domain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import IndexType, UnknownLoc
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Block, SSAValue

from crossrank.passes import option, register
from crossrank.program.analysis.provenance import check_operands
from crossrank.program.builtins import Variant, operands_of
from crossrank.program.dialect.calls import CallOp
from crossrank.program.dialect.collectives import CollectiveOp
from crossrank.program.dialect.windows import WorldSizeOp
from crossrank.program.kinds import ArgDirection, FunctionType
from crossrank.program.passes.lowering.emitter import Emitter
from crossrank.program.passes.lowering.host_operands import Operands
from crossrank.program.passes.lowering.managed import as_matrix, launch
from crossrank.program.program import Function, Param, Program, place
from crossrank.program.program_pass import ProgramPass
from crossrank.remarks import Remarks


@register
@dataclass(frozen=True)
class LowerHostTensorCollectives(ProgramPass):
    """Lowers collectives of the host orchestrator to dispatches of chip functions that come with crossrank.

    Matches every collective in a HOST orchestrator, in loops and branches too.

    Makes of each a dispatch of `builtin.tensor.<variant>` to every device of its domain: a loop over
    `pld.world_size()` where these are all, else one dispatch after another. Such a function becomes one of the program,
    once for each variant: a task of the variant's kernel in as many blocks as are asked for, and nothing else. What
    used the result uses the target.

    Fails, with the place, where an operand is no view of a window, two are views of one, they are in several domains,
    the signal is too small, or the root of a broadcast is not in the domain.
    """

    name: ClassVar[str] = "lower-host-tensor-collectives"
    requires: ClassVar[tuple[str, ...]] = ("CommDomainScopesMaterialized",)
    produces: ClassVar[tuple[str, ...]] = ("HostCollectivesLowered",)
    as_source: bool = option(
        False, "refuse element types, reduce ops, signals and counts of ranks that the source does"
    )
    aiv_cores: int = option(0, "vector cores of a device, to refuse an allreduce on more; 0: that is left to the run")

    def rewrite(self, program: Program, remarks: Remarks) -> bool:
        """Lower, one after another."""
        check_operands(program, lambda function: function.is_host)
        changed = False
        for function in program.functions:
            if not function.is_host:
                continue
            for op in [op for op in function.op.walk() if isinstance(op, CollectiveOp)]:
                at, variant = place(op), Variant.of(op)
                operands = Operands(op)
                operands.check(self.aiv_cores)
                if self.as_source:
                    operands.check_as_source(variant)
                devices = operands.devices
                _dispatch(op, program, variant, devices)
                whom = "every device" if devices is None else f"devices {', '.join(map(str, devices))}"
                remarks.done(op.title, f"in {function.name}: {variant.dispatch} on {whom}", at)
                changed = True
        return changed


def _dispatch(op: CollectiveOp, program: Program, variant: Variant, devices: Sequence[int] | None) -> None:
    """Put dispatches to these devices, or to all, where a collective stands."""
    function = _dispatched(program, variant)
    e = Emitter(op.location)
    given, tensors = operands_of(op), variant.builtin.operands
    arguments = [as_matrix(e, given[o.name], o) for o in tensors]
    if variant.builtin.is_wide:
        arguments.append(getattr(op, "core_num", None) or e.index(1))

    def call(into: Emitter, device: SSAValue) -> None:
        made = CallOp(function.name, arguments, function.returned, device=device)
        made.directions = _directions(function.params)
        into.insert(made)

    if devices is None:
        with e.loop("r", e.insert(WorldSizeOp()).result) as loop:
            call(loop, loop.number)
    else:
        for device in devices:
            call(e, e.index(device))
    e.replace(op, op.returned)


def _dispatched(program: Program, variant: Variant) -> Function:
    """The chip function of a variant: the program's own, or a new one at its end."""
    try:
        return program.function(variant.dispatch)
    except KeyError:
        pass
    params = variant.tensors
    if variant.builtin.is_wide:
        params.append(Param("core_num", IndexType()))
    body = Block(arg_types=[p.type for p in params])
    values = dict(zip([p.name for p in params], body.args, strict=True))
    for name, value in values.items():
        value.name_hint = name
    e = Emitter(UnknownLoc())  # no one line: it is dispatched for several
    call = launch(e, program, variant, values, values.get("core_num"))
    call.directions = _directions(variant.params)
    target = values[variant.builtin.returned]
    end = ReturnOp(target)
    body.add_op(end)
    e.put(end)
    made = Function.of(variant.dispatch, params, [target.type], type=FunctionType.Orchestration, body=body)
    program.module.body.block.add_op(made.op)
    return made


def _directions(params: Sequence[Param]) -> list[ArgDirection]:
    """What a call does to what it gives as these: nobody else orders it."""
    return [
        ArgDirection.Scalar
        if isinstance(p.type, IndexType)
        else (ArgDirection.InOut if p.direction.writes else ArgDirection.Input)
        for p in params
    ]
