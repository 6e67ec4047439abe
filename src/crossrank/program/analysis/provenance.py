"""Which window allocations the operands of a collective are, through the calls that lead to it from the host.

Two that are one allocation are written and read by several ranks at once; two of different domains have different
peers behind the same rank. Both are refused where they are certain, whatever function the collective stands in. What a
loop or a branch decides is not known here, nor what a function is given that no host calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations

from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, OpResult, SSAValue

from crossrank.errors import InputError
from crossrank.program.analysis.domains import Devices, constant, coverage, listed
from crossrank.program.analysis.lineage import Lineage
from crossrank.program.analysis.order import postorder
from crossrank.program.builtins import operands_of, role
from crossrank.program.dialect.calls import CallOp
from crossrank.program.dialect.collectives import CollectiveOp
from crossrank.program.dialect.tensors import SliceOp, TransposeOp, shaped
from crossrank.program.dialect.windows import AllocWindowOp, WindowOp
from crossrank.program.program import Function, Program, place, where
from crossrank.program.types import ShapedType

Span = tuple[float, float]
"""From which byte of something to before which one; infinite where an extent is not known."""


@dataclass(frozen=True)
class Origin:
    """Where in a window allocation a tensor lies.

    Attributes:
        allocation: the buffer.
        span: the bytes that it has there, without a gap; None where that is not known.
    """

    allocation: AllocWindowOp
    span: Span | None

    def surely_meets(self, other: Origin) -> bool:
        """Whether they have a byte in common, as far as that is certain."""
        if self.allocation is not other.allocation or self.span is None or other.span is None:
            return False
        return max(self.span[0], other.span[0]) < min(self.span[1], other.span[1])


@dataclass(frozen=True)
class Context:
    """A function as one chain of calls from the host reaches it.

    Attributes:
        function: which.
        given: for each parameter where it lies; None where it is no window, or one of several.
        call: the last call of the chain; None in the host itself.
        caller: in what that stands.
    """

    function: Function
    given: tuple[Origin | None, ...]
    call: CallOp | None = None
    caller: Context | None = None

    def runs(self, name: str) -> bool:
        """Whether a function is one of the chain."""
        return self.function.name == name or (self.caller is not None and self.caller.runs(name))


class Provenance:
    """The windows of a program, followed from its HOST orchestrator through its calls.

    Attributes:
        lineage: of the program.
    """

    def __init__(self, program: Program) -> None:
        self.lineage = Lineage(program)
        self._hosts = [f for f in program.functions if f.is_host and f.has_body]
        self._spans: dict[SSAValue, Span | None] = {}
        self._calls: dict[str, list[CallOp]] = {}
        self._coverage: dict[str, dict[AllocWindowOp, Devices]] = {}

    def contexts(self) -> Iterator[Context]:
        """Each function with each choice of windows that it is given, once, callers first."""
        todo = [Context(host, (None,) * len(host.params)) for host in reversed(self._hosts)]
        seen = set[tuple[str, tuple[Origin | None, ...]]]()
        while todo:
            context = todo.pop()
            yield context
            for call in reversed(self._calls_of(context.function)):
                given = tuple(self.origin(argument, context) for argument in call.arguments)
                if any(given) and (call.function, given) not in seen and not context.runs(call.function):
                    seen.add((call.function, given))
                    todo.append(Context(self.lineage.functions[call.function], given, call, context))

    def _calls_of(self, function: Function) -> list[CallOp]:
        """The calls of functions whose statements there are."""
        if function.name not in self._calls:
            ops = [op for op in function.op.walk() if isinstance(op, CallOp)]
            callees = [self.lineage.functions.get(op.function) for op in ops]
            self._calls[function.name] = [
                op
                for op, f in zip(ops, callees, strict=True)
                if f and f.has_body and len(f.params) == len(op.arguments)
            ]
        return self._calls[function.name]

    def origin(self, value: SSAValue, context: Context) -> Origin | None:
        """Where a tensor lies in a context; None where it is no window, or one of several."""
        root = self.lineage.root(value) if isinstance(value.type, ShapedType) else None
        if isinstance(root, OpResult) and isinstance(root.op, AllocWindowOp):
            return Origin(root.op, self._span(value))
        given = context.given[root.index] if isinstance(root, BlockArgument) and _is_parameter(root) else None
        if given is None:
            return None
        span = self._span(value)
        if span is None or given.span is None:
            return Origin(given.allocation, None)
        begin, end = given.span
        return Origin(given.allocation, (begin + span[0], min(end, begin + span[1])))

    def _span(self, value: SSAValue) -> Span | None:
        """The bytes of a parameter, or of a buffer, that a value is."""
        for v in postorder(value, self._viewed, self._spans):
            self._spans[v] = self._find_span(v)
        return self._spans[value]

    def _viewed(self, value: SSAValue) -> list[SSAValue]:
        """The one tensor that a value is, or views; none where it begins, or a loop or a branch decides."""
        origins = self.lineage.origins(value)
        return list(origins) if len(origins) == 1 and not isinstance(value.owner, WindowOp) else []

    def _find_span(self, value: SSAValue) -> Span | None:
        viewed = self._viewed(value)
        if not viewed:
            return (0, _size(value)) if self._is_whole(value) else None
        span = self._spans[viewed[0]]
        if span is None or isinstance(value.owner, TransposeOp):
            return None
        if not isinstance(value.owner, SliceOp):
            return span
        part = _part(value.owner)
        return None if part is None else (span[0] + part[0], min(span[1], span[0] + part[1]))

    def _is_whole(self, value: SSAValue) -> bool:
        """Whether a tensor is all of what it is of; of one that a loop or a branch gives, its extents say so."""
        (root,) = self.lineage.roots(value)
        of: list[SSAValue] = [use.operation.result for use in root.uses if isinstance(use.operation, WindowOp)]
        return value in (root, *of) or _form(value) in [_form(v) for v in of or [root]]

    def covered(self, context: Context) -> dict[AllocWindowOp, Devices]:
        """The devices that use each allocation of the host that a context begins with; none where that is an error,
        which `materialize-comm-domain-scopes` tells."""
        while context.caller is not None:
            context = context.caller
        host = context.function
        if host.name not in self._coverage:
            try:
                self._coverage[host.name] = coverage(host, self.lineage)
            except InputError:
                self._coverage[host.name] = {}
        return self._coverage[host.name]


def check_operands(program: Program, whose: Callable[[Function], bool]) -> None:
    """Look at the collectives of some functions, in every context.

    On the HOST two operands are never views of one allocation; elsewhere they are refused if they surely share a byte.

    Raises:
        InputError: two operands are one allocation, or of different domains; with the collective's line, and where the
            two meet.
    """
    if not any(whose(f) and _collectives(f) for f in program.functions):
        return
    provenance = Provenance(program)
    for context in provenance.contexts():
        for op in _collectives(context.function) if whose(context.function) else ():
            _check(op, context, provenance)


def _collectives(function: Function) -> list[CollectiveOp]:
    return [op for op in function.op.walk() if isinstance(op, CollectiveOp)]


def _check(op: CollectiveOp, context: Context, provenance: Provenance) -> None:
    operands = {role(op, name): value for name, value in operands_of(op).items() if value is not None}
    found = {role: provenance.origin(value, context) for role, value in operands.items()}
    placed = {role: origin for role, origin in found.items() if origin is not None}
    for (one, mine), (other, theirs) in combinations(placed.items(), 2):
        same = mine.allocation is theirs.allocation
        if mine.surely_meets(theirs) or (same and context.call is None):
            met = _meeting(operands[one], operands[other], context, provenance.lineage)
            raise InputError(
                f"{where(op)}{op.title} {one} and {other} must be different window allocations (two pld.window views "
                "over the same alloc_window_buffer are a cross-process data race under in-kernel TPUT/notify)",
                f"both are in '{mine.allocation.window}', allocated at {place(mine.allocation)}{met}: allocate a "
                "buffer for each",
            )
    devices = provenance.covered(context)
    known = [(role, o.allocation) for role, o in placed.items() if o.allocation in devices]
    for (one, first), (other, second) in combinations(known, 2):
        if devices[first] != devices[second]:
            met = _meeting(operands[one], operands[other], context, provenance.lineage)
            raise InputError(
                f"{where(op)}{op.title} window buffers must resolve to the same comm-domain scope",
                f"{one} is in '{first.window}' (allocated at {place(first)}), which devices {listed(devices[first])} "
                f"use, and {other} in '{second.window}' (at {place(second)}), which devices "
                f"{listed(devices[second])} use{met}: give both to the same devices",
            )


def _meeting(one: SSAValue, other: SSAValue, context: Context, lineage: Lineage) -> str:
    """The call through which two tensors come together, in words; nothing where no call does it."""
    call = None
    while context.caller is not None and context.call is not None:
        roots = lineage.root(one), lineage.root(other)
        if roots[0] is roots[1]:
            break
        call = context.call
        one, other = (call.arguments[root.index] for root in roots if isinstance(root, BlockArgument))
        context = context.caller
    return "" if call is None else f", as {call.function} is called at {place(call)}"


def _is_parameter(value: BlockArgument) -> bool:
    """Whether it is a function's."""
    return isinstance(value.block.parent_op(), FuncOp)


def _form(value: SSAValue) -> object:
    """The extents and the element type of a tensor."""
    return (value.type.shape, value.type.dtype) if isinstance(value.type, ShapedType) else None


def _size(value: SSAValue) -> float:
    """The bytes of a packed tensor."""
    type = shaped(value)
    return math.prod(type.extents) * type.dtype.itemsize if type.is_static else math.inf


def _part(op: SliceOp) -> Span | None:
    """The bytes of its packed source that a view has; None where they are not known, or there are gaps between them."""
    source = shaped(op.source)
    begin, length, stride = 0, source.dtype.itemsize, source.dtype.itemsize
    for offset, extent, there in reversed(list(zip(op.offsets, op.extents, source.shape, strict=True))):
        first, count = constant(offset), constant(extent)
        if first is None or count is None or stride < 0 or (count != 1 and length != stride):
            return None
        begin, length = begin + first * stride, length * count
        stride = stride * there if isinstance(there, int) else -1  # of the next dimension: not known
    return begin, begin + length
