"""What cannot be on a given number of devices, as far as numbers of the HOST orchestrator's body are known."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue

from crossrank.arrays import check_room
from crossrank.errors import InputError, RunError, counted
from crossrank.program.analysis.bounds import Bounds
from crossrank.program.analysis.discipline import Lapse
from crossrank.program.analysis.domains import devices_of
from crossrank.program.analysis.lineage import Lineage
from crossrank.program.analysis.provenance import Provenance
from crossrank.program.builtins import RING, builtin_of, operands_of
from crossrank.program.dialect.around import around
from crossrank.program.dialect.calls import CallOp
from crossrank.program.dialect.collectives import (
    AllGatherOp,
    AllToAllOp,
    BroadcastOp,
    CollectiveOp,
    ReduceScatterOp,
)
from crossrank.program.dialect.tensors import shaped
from crossrank.program.dialect.windows import AllocWindowOp, WindowOp, WorldSizeOp
from crossrank.program.program import Function, Program
from crossrank.program.types import Dim, ShapedType


def unfit(program: Program, world: int) -> Iterator[Lapse]:
    """Dispatches to devices that are not there, windows smaller than a view of them, and those that find no room;
    collectives that do not fit their domain."""
    lineage = Lineage(program)
    yield from _collectives(program, world)
    for function in program.functions:
        if function.is_host and function.has_body:
            yield from _unfit(function, lineage, world)


def _unfit(host: Function, lineage: Lineage, world: int) -> Iterator[Lapse]:
    ops = list(host.op.walk())
    bounds = Bounds({op.result: (world, world) for op in ops if isinstance(op, WorldSizeOp)})
    for op in ops:
        if not _runs(op, bounds):
            continue
        match op:
            case CallOp() if not lineage.callee(op).is_worker:
                try:
                    devices = devices_of(op) or frozenset()
                except InputError:  # which is asked for where windows are given
                    continue
                if missing := sorted(d for d in devices if d >= world):
                    what = f"device {missing[0]} is not there: the program runs on {world}, counted from 0"
                    yield Lapse(op, what, "run it on more, or dispatch to one of these")
            case AllocWindowOp():
                size, _ = bounds.of(op.size, op)
                try:
                    check_room(
                        int(size) * world if size > 0 and math.isfinite(size) else 0,
                        f"window buffer {op.window} on {counted(world, 'device')}",
                    )
                except RunError as error:
                    yield Lapse(op, str(error), "make it smaller, or run on fewer devices")
            case WindowOp() if isinstance(op.buffer.owner, AllocWindowOp):
                _, size = bounds.of(op.buffer.owner.size, op)
                extents = [bounds.of(extent, op)[0] for extent in op.extents]
                needed = math.prod(max(extent, 0) for extent in extents) * shaped(op.result).dtype.itemsize
                if needed > size:
                    what = f"pld.window takes {needed} bytes, and buffer {op.buffer.owner.window} has {size}"
                    yield Lapse(op, what, "make the buffer larger")


def _collectives(program: Program, world: int) -> Iterator[Lapse]:
    """Collectives that do not fit their domain, of which the first function that is given one's windows tells."""
    if not any(isinstance(op, CollectiveOp) for op in program.module.walk()):
        return
    provenance = Provenance(program)
    told = set[CollectiveOp]()
    for context in provenance.contexts():
        covered = provenance.covered(context)
        for op in context.function.op.walk():
            if not isinstance(op, CollectiveOp) or op in told:
                continue
            origin = provenance.origin(op.returned, context)
            if origin is None or origin.allocation not in covered:
                continue
            devices = covered[origin.allocation]
            extents = {
                name: _viewed(value, found.allocation)
                for name, value in operands_of(op).items()
                if value is not None and (found := provenance.origin(value, context))
            }
            ranks = world if devices is None else len(devices)
            for what in _misfits(op, extents, ranks, exactly=context.function.is_chip):
                told.add(op)
                yield Lapse(op, what, "its ranks are the devices that its windows are dispatched to")


def _misfits(op: CollectiveOp, extents: Mapping[str, Sequence[Dim]], ranks: int, *, exactly: bool) -> Iterator[str]:
    """What of a collective cannot be among so many ranks; ``exactly``: nothing has rows for more ranks either."""
    signal = extents.get("signal", ())
    if builtin_of(op) is RING and len(signal) > 1:
        if isinstance(signal[1], int) and signal[1] != ranks:
            yield f"signal columns {signal[1]} differ from the domain's size {ranks}"
    elif signal and isinstance(signal[0], int) and (signal[0] < ranks or (exactly and signal[0] > ranks)):
        yield f"signal rows {signal[0]} differ from the domain's size {ranks}"
    if isinstance(op, (AllGatherOp, ReduceScatterOp, AllToAllOp)) and (target := extents.get("target")):
        rows = target[0]
        if isinstance(rows, int) and (rows < ranks or (exactly and rows > ranks)):
            yield f"target rows {rows} differ from the domain's size {ranks}"
    if isinstance(op, BroadcastOp) and (root := op.root.value.data) >= ranks:
        yield f"{op.title} root ({root}) must be a valid rank in [0, {ranks})"


def _viewed(value: SSAValue, allocation: AllocWindowOp) -> Sequence[Dim]:
    """The extents of a view of an allocation: where a parameter has but names for them, those of its only view."""
    shape = shaped(value).shape
    if shaped(value).is_static:
        return shape
    views = {use.operation.result.type for use in allocation.result.uses if isinstance(use.operation, WindowOp)}
    (view,) = views if len(views) == 1 else (value.type,)
    named = all(isinstance(d, int) or d.isidentifier() for d in shape)
    return view.shape if named and isinstance(view, ShapedType) and len(view.shape) == len(shape) else shape


def _runs(op: Operation, bounds: Bounds) -> bool:
    """Whether an op runs whatever happens: in no branch, and only in loops that have a turn."""
    for scope in around(op):
        if isinstance(scope, scf.IfOp):
            return False
        if isinstance(scope, scf.ForOp) and bounds.of(scope.ub, scope)[0] <= bounds.of(scope.lb, scope)[1]:
            return False
    return True
