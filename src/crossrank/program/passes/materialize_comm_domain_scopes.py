"""`materialize-comm-domain-scopes`: a host orchestrator says which devices share which windows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import FunctionType
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Block, SSAValue
from xdsl.rewriter import Rewriter

from crossrank.errors import InputError
from crossrank.passes import register
from crossrank.program.analysis.domains import Devices, buffers, coverage, listed
from crossrank.program.analysis.lineage import Lineage
from crossrank.program.dialect.calls import CommDomainScopeOp, ScopeYieldOp
from crossrank.program.dialect.collectives import BarrierOp
from crossrank.program.dialect.windows import AllocWindowOp, WindowOp
from crossrank.program.program import Function, Program, place, where
from crossrank.program.program_pass import ProgramPass
from crossrank.program.types import DistTensorType
from crossrank.remarks import Remarks


@register
@dataclass(frozen=True)
class MaterializeCommDomainScopes(ProgramPass):
    """Says which devices share which windows, by the dispatches that are given them.

    Matches HOST orchestrators that allocate windows and have no domains yet.

    Makes nested scopes `comm_d0`, `comm_d1`, … around the body, one for each set of devices, in the order in which
    their first window is allocated. A window is on every device for which something that is given a view of it is
    dispatched: `device=` a number, or the variable of a loop over numbers or over `pld.world_size()` (all). What only
    collectives reach (signals, counts) is where their data is. Views get the name of their window in their type.

    Fails, with the place, where a `device=` cannot be said before the run, a window has no view or no consumer, two
    windows have one name, or a loop or a branch decides which of two windows a view is of.
    """

    name: ClassVar[str] = "materialize-comm-domain-scopes"
    produces: ClassVar[tuple[str, ...]] = ("CommDomainScopesMaterialized",)

    def rewrite(self, program: Program, remarks: Remarks) -> bool:
        """One function after another."""
        lineage = Lineage(program)
        hosts = [f for f in program.functions if f.is_host and f.has_body]
        return any(_rewrite(f, lineage, remarks) for f in hosts)  # a program has one, if any


def _rewrite(host: Function, lineage: Lineage, remarks: Remarks) -> bool:
    ops = list(host.op.walk())
    allocations = [op for op in ops if isinstance(op, AllocWindowOp)]
    if not allocations or any(isinstance(op, CommDomainScopeOp) for op in ops):
        return False
    devices = _devices(host, allocations, lineage)
    _name_views(host, lineage)
    domains: dict[Devices, list[str]] = {}
    for allocation in allocations:
        domains.setdefault(devices[allocation], []).append(allocation.window)
    _wrap(host, domains)
    for n, (members, windows) in enumerate(domains.items()):
        remarks.done(f"comm_d{n}", f"devices {listed(members)} share {', '.join(windows)}", place(host.op))
    return True


def _devices(host: Function, allocations: list[AllocWindowOp], lineage: Lineage) -> Mapping[AllocWindowOp, Devices]:
    """The devices of each window; InputError where something about it cannot be."""
    names: set[str] = set()
    for allocation in allocations:
        what = f"{where(allocation)}pld.tensor.alloc_window_buffer '{allocation.window}'"
        if allocation.window in names:
            raise InputError(
                f"{where(allocation)}duplicate allocation name '{allocation.window}'", "give each window its own name"
            )
        names.add(allocation.window)
        if allocation.parent is not host.body:
            raise InputError(
                f"{what} stands in a loop or a branch", "allocate windows before it: they live until the end"
            )
        if not any(isinstance(use.operation, WindowOp) for use in allocation.result.uses):
            raise InputError(
                f"{what} has no pld.tensor.window materialisation (dead allocation)",
                "view it, x = pld.window(buffer, shape, dtype=...), or leave it away",
            )
    found = coverage(host, lineage)
    for allocation in allocations:
        if allocation not in found:
            raise _unused(host, allocation, lineage)
    return found


def _unused(host: Function, allocation: AllocWindowOp, lineage: Lineage) -> InputError:
    for op in host.op.walk():
        if isinstance(op, BarrierOp) and allocation in buffers(op.signal, lineage):
            return InputError(
                f"{where(op)}pld.tensor.barrier signal buffer has no inferred comm-domain coverage — add a device= "
                "annotation or ensure the signal window is consumed by a device-tagged chip dispatch"
            )
    return InputError(
        f"{where(allocation)}pld.tensor.alloc_window_buffer '{allocation.window}' is not consumed by any chip_orch "
        "dispatch",
        "pass a view of it to a chip function with device=..., or leave it away",
    )


def _name_views(host: Function, lineage: Lineage) -> None:
    """Views say whose they are, and so does what stands for one."""
    found = {
        v: list(buffers(v, lineage)) for v in _values(host) if isinstance(v.type, DistTensorType)
    }  # before any changes
    for value, owners in found.items():
        if len(owners) > 1:
            names = " or ".join(f"'{owner.window}'" for owner in owners)
            raise InputError(
                f"{where(value)}a loop or a branch decides whether this is a view of window {names}",
                "use a variable for each window",
            )
        if owners:
            assert isinstance(value.type, DistTensorType)
            Rewriter.replace_value_with_new_type(value, value.type.of_window(owners[0].window))
    inputs, end = host.op.function_type.inputs, host.body.last_op
    assert end is not None
    host.op.function_type = FunctionType.from_lists(inputs.data, [v.type for v in end.operands])


def _values(host: Function) -> Iterator[SSAValue]:
    for op in host.op.walk():
        yield from op.results
        for region in op.regions:
            for block in region.blocks:
                yield from block.args


def _wrap(host: Function, domains: Mapping[Devices, list[str]]) -> None:
    """Put the body into one scope after the other, the first outermost."""
    end = host.body.last_op
    assert isinstance(end, ReturnOp)
    returned = list(end.operands)
    inner = [op for op in host.body.ops if op is not end]
    for op in inner:
        op.detach()
    values = returned
    for n, (devices, windows) in reversed(list(enumerate(domains.items()))):
        yielded = ScopeYieldOp(values)
        body = Block([*inner, yielded])
        scope = CommDomainScopeOp(f"comm_d{n}", listed(devices), windows, body, [v.type for v in values])
        for result, value in zip(scope.results, returned, strict=True):
            result.name_hint = value.name_hint
        scope.location = yielded.location = host.op.location
        inner, values = [scope], list(scope.results)
    host.body.insert_ops_before(inner, end)
    end.operands = values
