"""What a program says between ranks, and where: what `inspect` shows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from xdsl.dialects.builtin import IntegerAttr, StringAttr
from xdsl.dialects.scf import ForOp, IfOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from crossrank.program.dialect import remote
from crossrank.program.dialect.around import around
from crossrank.program.dialect.calls import CallOp, CommDomainScopeOp
from crossrank.program.dialect.collectives import CollectiveOp
from crossrank.program.dialect.tensors import ReshapeOp, SliceOp, TransposeOp
from crossrank.program.dialect.windows import AllocWindowOp, WindowOp
from crossrank.program.program import Function, Program, place
from crossrank.program.types import DistTensorType, ShapedType
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

    def as_dict(self) -> dict[str, Any]:
        """With stable keys, for JSON."""
        return asdict(self)


def inventory(program: Program) -> list[Entry]:
    """Collectives and primitives of all functions, in order."""
    return [
        _entry(function, op)
        for function in program.functions
        if function.has_body
        for op in function.op.walk()
        if isinstance(op, CollectiveOp) or type(op) in PRIMITIVES
    ]


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
