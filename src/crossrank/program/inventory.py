"""What a program says between ranks, and where: what `inspect` shows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from xdsl.dialects.builtin import IntegerAttr, StringAttr
from xdsl.dialects.scf import ForOp, IfOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from crossrank.program.cost.estimate import CostReport
from crossrank.program.cost.rails import Rail, rail_of
from crossrank.program.cost.work import whole
from crossrank.program.dialect import remote
from crossrank.program.dialect.around import around
from crossrank.program.dialect.calls import CallOp, CommDomainScopeOp
from crossrank.program.dialect.collectives import CollectiveOp
from crossrank.program.dialect.tensors import ReshapeOp, SliceOp, TransposeOp, known
from crossrank.program.dialect.windows import AllocWindowOp, WindowOp
from crossrank.program.files import ProgramFile
from crossrank.program.program import Function, Program, place
from crossrank.program.types import UNKNOWN, Dim, DistTensorType, ShapedType
from crossrank.statistics import Totals

PRIMITIVES: dict[type[Operation], str] = {
    remote.PutOp: "put",
    remote.GetOp: "get",
    remote.RemoteLoadOp: "remote_load",
    remote.RemoteStoreOp: "remote_store",
    remote.NotifySignalOp: "notify",
    remote.WaitOp: "wait",
    remote.DeferWaitOp: "defer_wait",
}
"""What a kernel says to its peers by itself."""
WITHIN: dict[type[Operation], str] = {ForOp: "loop", IfOp: "branch"}
"""What is told of what an op stands in."""


@dataclass(frozen=True)
class Entry:
    """One op by which ranks have to do with one another.

    Attributes:
        function: where it stands.
        rail: ``HOST``, ``CHIP`` or ``InCore``: who would carry it out.
        op: which collective, or which primitive.
        detail: its reduce op, mode, root, comparison, as text.
        operands: the windows and tensors that it is about, by the author's names.
        dtype: the element type of the first.
        shape: and its extents, as text.
        bytes: and its bytes; None where an extent is known at run time only.
        within: the loops and branches around it, the outermost first, as text.
        where: the author's line.
        core_num: the blocks that a collective asks for; ``?``: a number that is computed; None: it does not say.
        blocks: in how many a collective is launched, or the kernel that it stands in.
        windows: the buffers that it is about, found through calls.
        domain: who takes part: the domain, and its devices.
        dispatches: of a collective, those that it costs on each rank.
        tasks: launches of kernels likewise; none inside of a kernel.
    """

    function: str
    rail: str
    op: str
    detail: str
    operands: tuple[str, ...]
    dtype: str
    shape: str
    bytes: int | None
    within: str
    where: str
    core_num: Dim | None = None
    blocks: tuple[int, ...] = ()
    windows: tuple[str, ...] = ()
    domain: str = ""
    dispatches: float | None = None
    tasks: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """With stable keys, for JSON."""
        return asdict(self)


def inventory(program: Program, cost: CostReport | None = None) -> list[Entry]:
    """Collectives and primitives of all functions, in order; with the cost of its run, also what becomes of them."""
    entries = [
        _entry(function, op)
        for function in program.functions
        if function.has_body
        for op in function.op.walk()
        if isinstance(op, CollectiveOp) or type(op) in PRIMITIVES
    ]
    return entries if cost is None else [_with_cost(e, cost, entries) for e in entries]


def _with_cost(entry: Entry, cost: CostReport, entries: Sequence[Entry]) -> Entry:
    """What becomes of an op in a run; ops of one line share what that costs."""
    found = cost.places.get(entry.where)
    if found is None:  # it is not reached
        return replace(entry, dispatches=0, tasks=0)
    alike = sum(e.where == entry.where for e in entries)
    ranks = len(set().union(*found.domains.values())) or 1
    launched = {blocks for kernel, blocks in cost.launches if kernel == entry.function}
    return replace(
        entry,
        blocks=tuple(sorted(found.widths or launched)),
        windows=tuple(found.windows),
        domain=", ".join(
            f"{name} ({'all' if len(devices) == len(cost.ranks) else ','.join(map(str, devices))})"
            for name, devices in found.domains.items()
        ),
        dispatches=whole(found.dispatches / ranks / alike),
        tasks=whole(found.tasks / ranks / alike),
    )


@dataclass(frozen=True)
class ProgramInventory:
    """What `inspect` shows of a program.

    Attributes:
        file: the program as it is written.
        rail: what its passes make of it, and what that costs; or why they refuse it.
        rails: all programs of the file, where the cheapest was picked.
        entries: its collectives and primitives.
    """

    file: ProgramFile
    rail: Rail
    rails: Sequence[Rail]
    entries: Sequence[Entry]

    @staticmethod
    def of(file: ProgramFile, rails: Sequence[Rail] = ()) -> ProgramInventory:
        """Of a program, and the rails that it was picked from."""
        found = next((rail for rail in rails if rail.file is file), None) or rail_of(file)
        return ProgramInventory(file, found, rails, inventory(file.program, found.cost))

    @property
    def windows(self) -> list[dict[str, Any]]:
        """Its window buffers, with their domains where those can be found."""
        return windows(self.rail.lowered or self.file.program)

    @property
    def warnings(self) -> list[str]:
        """What a reader should know: why a program cannot be compiled."""
        failed = [(rail.name, rail.error) for rail in self.rails or [self.rail] if rail.error is not None]
        return [f"rail {name}: {error.what}" if name else error.what for name, error in failed]

    def as_dict(self) -> dict[str, Any]:
        """JSON data with stable keys."""
        return {
            "file": self.file.path,
            "program": self.file.program.name,
            "rail": self.file.rail,
            "ranks": self.file.ranks,
            "functions": functions(self.file.program),
            "windows": self.windows,
            "collectives": [e.as_dict() for e in self.entries],
            "totals": totals(self.entries),
            "cost": None if self.rail.cost is None else self.rail.cost.as_dict(),
            "rails": [rail.as_dict() for rail in self.rails],
            "warnings": self.warnings,
        }


def totals(entries: Sequence[Entry]) -> Totals:
    """``{op: {count, bytes}}``; bytes of what is known before it runs."""
    found: Totals = {}
    for e in entries:
        total = found.setdefault(e.op, {"count": 0, "bytes": 0})
        total["count"] += 1
        total["bytes"] += e.bytes or 0
    return dict(sorted(found.items()))


def measure(program: Program) -> Totals:
    """The totals of a program."""
    return totals(inventory(program))


def functions(program: Program) -> list[dict[str, Any]]:
    """Each function: ``name, kind, params, calls, where``."""
    return [
        {
            "name": f.name,
            "kind": kind_of(f),
            "params": [{"name": p.name, "type": _described(p.type), "direction": str(p.direction)} for p in f.params],
            "calls": sorted({op.function for op in f.op.walk() if isinstance(op, CallOp)}),
            "where": place(f.op),
        }
        for f in program.functions
    ]


def windows(program: Program) -> list[dict[str, Any]]:
    """Each window buffer: ``name, views, domain, where``; the domain is known once domains are materialized."""
    domains = {
        w.data: f"{op.sym_name.data} ({op.devices.data})"
        for op in program.module.walk()
        if isinstance(op, CommDomainScopeOp)
        for w in op.windows
    }
    found = []
    for op in program.module.walk():
        if isinstance(op, AllocWindowOp):
            uses = [use.operation for use in op.result.uses]
            views = sorted({_described(use.result.type) for use in uses if isinstance(use, WindowOp)})
            domain = domains.get(op.window)
            found.append({"name": op.window, "views": views, "domain": domain, "where": place(op)})
    return found


def kind_of(function: Function) -> str:
    """What a function is, in a word or two."""
    if function.is_worker:
        return "HOST sub-worker"
    if function.is_host:
        return "HOST"
    return "CHIP" if function.is_chip else str(function.type)


def name_of(value: SSAValue) -> str:
    """The author's name for what a value is a view of: a parameter's, a buffer's, or the variable's."""
    while True:
        match owner := value.owner:
            case SliceOp() | ReshapeOp() | TransposeOp():
                value = owner.source
            case WindowOp():
                buffer = owner.buffer.owner
                return buffer.window if isinstance(buffer, AllocWindowOp) else "?"
            case Block():
                parent = owner.parent_op()
                if not isinstance(parent, ForOp) or not isinstance(value, BlockArgument) or value.index == 0:
                    return value.name_hint or "?"
                value = parent.iter_args[value.index - 1]
            case _:
                first = next((o for o in owner.operands if isinstance(o.type, DistTensorType)), None)
                if value.name_hint or first is None:
                    return value.name_hint or "?"
                value = first


def _entry(function: Function, op: Operation) -> Entry:
    shaped = [v for v in op.operands if isinstance(v.type, ShapedType)]
    about = shaped[0].type
    assert isinstance(about, ShapedType)
    is_primitive = type(op) in PRIMITIVES
    asked = getattr(op, "core_num", None)
    return Entry(
        function=function.name,
        rail=function.type if function.is_kernel else kind_of(function),
        op=PRIMITIVES[type(op)] if is_primitive else op.name.removeprefix("program."),
        detail=" ".join(_details(op)),
        operands=tuple(name_of(v) for v in shaped),
        dtype=about.dtype.name,
        shape=f"[{', '.join(map(str, about.shape))}]",
        bytes=about.dtype.itemsize * math.prod(about.extents) if about.is_static else None,
        within=" > ".join(reversed([WITHIN[type(o)] for o in around(op) if type(o) in WITHIN])),
        where=place(op),
        core_num=None if asked is None else UNKNOWN if (number := known(asked)) is None else number,
    )


def _details(op: Operation) -> Iterator[str]:
    for key in ("op", "mode", "cmp", "atomic", "root"):
        match op.properties.get(key):
            case StringAttr(data=text) if text != "None_":
                yield text
            case IntegerAttr(value=number):
                yield f"{key} {number.data}"


def _described(type: Any) -> str:
    return type.described if isinstance(type, ShapedType) else str(type)
