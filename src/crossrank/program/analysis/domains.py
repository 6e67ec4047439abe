"""Which devices share which windows, by who is given them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import BlockArgument, OpResult, SSAValue

from crossrank.errors import InputError
from crossrank.program.analysis.lineage import Lineage
from crossrank.program.dialect.calls import CallOp
from crossrank.program.dialect.collectives import CollectiveOp
from crossrank.program.dialect.windows import AllocWindowOp, WorldSizeOp
from crossrank.program.program import Function, where

Devices = frozenset[int] | None
"""Numbers of devices; None: all that there are."""


def constant(value: SSAValue) -> int | None:
    """The number that a value is, where that is known."""
    op = value.owner
    while isinstance(op, (arith.IndexCastOp, arith.ExtSIOp, arith.ExtUIOp, arith.TruncIOp)):
        op = op.input.owner
    if isinstance(op, arith.ConstantOp) and isinstance(op.value, IntegerAttr):
        return int(op.value.value.data)
    return None


def both(one: Devices, other: Devices) -> Devices:
    """Those of either."""
    return None if one is None or other is None else one | other


def listed(devices: Devices) -> str:
    """The devices by number, as `CommDomainScopeOp` has them: ``0,2``, or ``all``."""
    return "all" if devices is None else ",".join(map(str, sorted(devices)))


def devices_of(call: CallOp) -> Devices:
    """The devices that a call is for: those that its ``device=`` can be; without it, device 0.

    Raises:
        InputError: that cannot be said before it runs.
    """
    if call.device is None:
        return frozenset({0})
    device = call.device
    while isinstance(device.owner, arith.IndexCastOp):
        device = device.owner.input
    number = constant(device)
    if number is not None:
        if number < 0:
            _refuse(call, f"device= ConstInt must be non-negative, got {number}")
        return frozenset({number})
    if not isinstance(device, BlockArgument):
        _refuse(
            call, "device= expression must be ConstInt or the induction var of pl.range; got an unsupported expression"
        )
    loop = device.block.parent_op()
    if not isinstance(loop, scf.ForOp) or device.index > 0:
        _refuse(call, "device= Var is not the induction variable of any enclosing pl.range loop")
    start, step, stop = constant(loop.lb), constant(loop.step), constant(loop.ub)
    if step != 1:
        _refuse(call, f"device=r over a non-unit-step loop is not supported (step={'?' if step is None else step})")
    if start is None:
        _refuse(call, "device=r loop start must be ConstInt")
    if start < 0:
        _refuse(call, f"device=r loop range must be [0, N) with N>=0, got start {start}")
    if stop is not None:
        return frozenset(range(start, stop))
    bound = loop.ub
    while isinstance(bound.owner, arith.IndexCastOp):
        bound = bound.owner.input
    if not isinstance(bound.owner, WorldSizeOp):
        _refuse(call, "device=r loop bound must be ConstInt or pld.system.world_size()")
    if start > 0:
        _refuse(call, f"device=r loop over pld.system.world_size() must start at 0, got {start}")
    return None


def _refuse(call: CallOp, what: str) -> NoReturn:
    raise InputError(
        f"{where(call)}dispatch of {call.function}: {what}",
        "dispatch with device=<number>, or with device=r in `for r in pl.range(pld.world_size())`",
    )


def buffers(value: SSAValue, lineage: Lineage) -> Iterator[AllocWindowOp]:
    """The buffers of windows that a value is a view of."""
    for root in lineage.roots(value):
        if isinstance(root, OpResult) and isinstance(root.op, AllocWindowOp):
            yield root.op


def coverage(host: Function, lineage: Lineage) -> dict[AllocWindowOp, Devices]:
    """The devices that use each buffer of a HOST orchestrator: those that are given a view of it, and those of the data
    with which it is in a collective, where nobody is given it. Buffers that nobody uses are not in it."""
    found: dict[AllocWindowOp, Devices] = {}
    collectives: list[list[AllocWindowOp]] = []
    for op in host.op.walk():
        if isinstance(op, CallOp) and not lineage.callee(op).is_worker:
            given = [b for a in op.arguments for b in buffers(a, lineage)]
            devices = devices_of(op) if given else frozenset()
            for buffer in given if devices is None or devices else ():
                found[buffer] = both(found.get(buffer, devices), devices)
        elif isinstance(op, CollectiveOp):
            data = [op.returned, *op.operands]
            collectives.append([b for v in data for b in buffers(v, lineage)])
    direct = set(found)
    while True:
        reached = dict(found)
        for members in collectives:
            source = next((b for b in members if b in reached), None)
            for buffer in members:
                if source is not None and buffer not in direct and buffer not in reached:
                    reached[buffer] = reached[source]
        if reached == found:
            return found
        found = reached
