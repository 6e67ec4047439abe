"""`fuse-create-assemble-to-slice`: what is made apart and copied into a tensor is made there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType, IntegerAttr
from xdsl.ir import Block, Operation, OpResult, SSAValue
from xdsl.rewriter import Rewriter
from xdsl.traits import Pure

from crossrank.passes import register
from crossrank.program.analysis.bounds import Bounds
from crossrank.program.analysis.contiguity import loose_step
from crossrank.program.analysis.fills import fills
from crossrank.program.analysis.lineage import Lineage, is_tensor
from crossrank.program.analysis.regions import given_twice, may_meet
from crossrank.program.dialect.calls import CallOp
from crossrank.program.dialect.collectives import CollectiveOp
from crossrank.program.dialect.tensors import AssembleOp, CreateTensorOp, ReshapeOp, SliceOp, TransposeOp, shaped
from crossrank.program.program import Function, Program, place
from crossrank.program.program_pass import ProgramPass
from crossrank.program.types import DistTensorType
from crossrank.remarks import Remarks

TITLE = "pl.create_tensor"


@register
@dataclass(frozen=True)
class FuseCreateAssembleToSlice(ProgramPass):
    """Makes what a chip function creates and then assembles into a tensor in that tensor to begin with.

    Matches, in functions that orchestrate a chip (Orchestration and Graph), a `create_tensor` whose memory is assembled
    into a target exactly once, in the same block, whole.

    Makes of it a slice of the target, and the assemble goes, with its copy and with the wait before it.

    Declines, with a remark, where the values might differ: a target that is a window, or that is read or written
    between the two; a kernel that does not write all of the new tensor first; a use of it after the assemble; offsets
    that are not known where it is created; tasks that their author orders; a part that is not packed, where somebody
    counts on that.
    """

    name: ClassVar[str] = "fuse-create-assemble-to-slice"

    def rewrite(self, program: Program, remarks: Remarks) -> bool:
        """One after another: each changes what the next one finds."""
        changed = False
        for function in program.functions:
            if not function.is_chip:
                continue
            known = _Known(function, Lineage(program))
            for made in [op for op in function.op.walk() if isinstance(op, CreateTensorOp)]:
                changed |= _fuse(made, known, remarks)
        return changed


class _Known:
    """What is known of a function.

    Attributes:
        function: which.
        lineage: of its values, as they were.
        uses: of each tensor that begins somewhere, what reads or writes it, in order.
        became: of each that was fused, the slice that it is now.
    """

    def __init__(self, function: Function, lineage: Lineage) -> None:
        self.function = function
        self.lineage = lineage
        self.uses: dict[SSAValue, list[Operation]] = {}
        self.became: dict[SSAValue, SSAValue] = {}
        for op in function.op.walk():
            for root in dict.fromkeys(r for v in _touched(op) for r in lineage.roots(v)):
                self.uses.setdefault(root, []).append(op)

    def meet(self, value: SSAValue, view: SSAValue) -> bool:
        """Whether a tensor, or a slice that it has become since, may share an element with another."""
        slices = [self.became[r] for r in self.lineage.roots(value) if r in self.became]
        return any(may_meet(v, view, self.lineage) for v in (value, *slices))


def _touched(op: Operation) -> list[SSAValue]:
    """The tensors that an op itself reads or writes; views do not, nor does what hands them on."""
    passes_on = op.has_trait(Pure) or isinstance(op, (scf.ForOp, scf.IfOp, scf.YieldOp))
    return [] if passes_on else [v for v in op.operands if is_tensor(v)]


class _Unsafe(Exception):
    """Values might differ, and why."""


def _fuse(made: CreateTensorOp, known: _Known, remarks: Remarks) -> bool:
    function, lineage = known.function, known.lineage
    uses = known.uses.get(made.result, [])
    assembles = [op for op in uses if isinstance(op, AssembleOp) and made.result in lineage.roots(op.source)]
    if not assembles:
        return False
    at = place(made)
    view: SliceOp | None = None
    try:
        if len(assembles) > 1:
            raise _Unsafe(f"it is assembled {len(assembles)} times")
        (into,) = assembles
        _check_uses(made, into, uses, lineage)
        _check_first(uses[0], made, lineage)
        target, moved = _handle(into.target, made, lineage), _before(into.offsets, made)
        new, view = _view(made, into, target)
        _check_target(made, into, view, known)
        _check_packed(made, view, function, uses, lineage)
    except _Unsafe as unsafe:
        if view is not None:
            view.erase()
        remarks.declined(TITLE, str(unsafe), at)
        return False
    block = made.parent_block()
    assert block is not None
    for op in moved:
        block.detach_op(op)
    for op in (*new, view):
        op.location = made.location
    block.insert_ops_before([*moved, *new, view], made)
    known.became[made.result] = view.result
    Rewriter.replace_op(made, [], [view.result])
    Rewriter.replace_op(into, [], [into.target])
    remarks.done(TITLE, f"in {function.name}: a slice of what it is assembled into", at)
    return True


def _check_uses(made: CreateTensorOp, into: AssembleOp, uses: Sequence[Operation], lineage: Lineage) -> None:
    """It is assembled whole, where it was made, and nobody has it then; its author orders nothing."""
    if into.parent is not made.parent:
        raise _Unsafe("it is assembled in another loop or branch than it is made in")
    if not shaped(made.result).is_static:
        raise _Unsafe("its extents are not all numbers")
    value = into.source
    while value is not made.result:
        origins = lineage.origins(value)
        if len(origins) != 1 or isinstance(value.owner, (SliceOp, ReshapeOp, TransposeOp)):
            raise _Unsafe("not all of it, or not it alone, is assembled")
        (value,) = origins
    between = set(_between(made, into))
    for op in uses:
        if op is not into and op not in between:
            raise _Unsafe("it is used after it was assembled")
        if isinstance(op, CallOp) and (op.manual is not None or op.no_dep is not None):
            raise _Unsafe(f"the author orders the task of {op.function}")
    last = into.parent_block()
    assert last is not None
    assert last.last_op is not None
    if any(made.result in lineage.roots(v) for v in last.last_op.operands if is_tensor(v)):
        raise _Unsafe("it is used after it was assembled")


def _between(made: CreateTensorOp, into: AssembleOp) -> Iterator[Operation]:
    """The ops between the two, and those within them."""
    op = made.next_op
    while op is not None and op is not into:
        yield from op.walk()
        op = op.next_op


def _check_first(first: Operation, made: CreateTensorOp, lineage: Lineage) -> None:
    """The first use writes all of it, so that nobody sees the zeros that it began with."""
    call = first
    if not isinstance(call, CallOp) or call.parent is not made.parent:
        raise _Unsafe("its zeros may be seen: no kernel that is always launched writes all of it first")
    kernel = lineage.callee(call)
    given = [n for n, a in enumerate(call.arguments) if is_tensor(a) and made.result in lineage.roots(a)]
    launched = call.core_num is None or Bounds().of(call.core_num, call)[0] >= 1
    whole = len(given) == 1 and kernel.params[given[0]].type == shaped(made.result)
    if not whole or not launched or not fills(kernel, given[0], lineage):
        raise _Unsafe(f"its zeros may be seen: {kernel.name} may not write all of it before it reads")


def _handle(target: SSAValue, made: CreateTensorOp, lineage: Lineage) -> SSAValue:
    """The target as it is called where the new tensor is made."""
    if isinstance(target.type, DistTensorType):
        raise _Unsafe("the target is a window, which peers may look into before")
    while not _is_there(target, made):
        origins = lineage.origins(target)
        if len(origins) != 1 or isinstance(target.owner, (SliceOp, ReshapeOp, TransposeOp)):
            raise _Unsafe("the target is made after it")
        (target,) = origins
    return target


def _is_there(value: SSAValue, at: Operation) -> bool:
    """Whether a value can be used where an op stands: it is made before, in this block or in one around it."""
    block: Block | None = at.parent
    if isinstance(value, OpResult) and value.op.parent is block:
        return value.op.is_before_in_block(at)
    return True  # what an op of the same block uses is made there, or around it


def _before(offsets: Sequence[SSAValue], made: CreateTensorOp) -> list[Operation]:
    """What computes offsets and stands behind the new tensor, in its order; it can stand before it as well."""
    needed, todo = set[Operation](), list(offsets)
    while todo:
        value = todo.pop()
        if _is_there(value, made) or not isinstance(value, OpResult) or value.op in needed:
            continue
        if value.op is made or value.op.regions or not value.op.has_trait(Pure):
            raise _Unsafe("its place in the target is computed after it")
        needed.add(value.op)
        todo += value.op.operands
    block = made.parent_block()
    return [] if block is None else [op for op in block.ops if op in needed]


def _view(made: CreateTensorOp, into: AssembleOp, target: SSAValue) -> tuple[list[Operation], SliceOp]:
    """The part of the target that it becomes, with what it needs; they stand nowhere yet.

    Where the target has more dimensions, leading ones, they are dropped.
    """
    missing = len(into.offsets) - len(made.extents)
    one = arith.ConstantOp(IntegerAttr(1, IndexType()))
    extents = [one.result] * missing + list(made.extents)
    view = SliceOp(target, into.offsets, extents, shaped(made.result), range(missing))
    return [one] if missing else [], view


def _check_target(made: CreateTensorOp, into: AssembleOp, view: SliceOp, known: _Known) -> None:
    """Nobody looks at that part of the target, or writes there, before it was assembled."""
    touched = [v for op in _between(made, into) for v in _touched(op) if known.lineage.root(v) is not made.result]
    if any(known.meet(value, view.result) for value in touched):
        raise _Unsafe("the target is read or written before it is assembled")
    if next(given_twice(known.function, known.lineage), None) is not None:
        raise _Unsafe("a caller may give the function the same memory twice")


def _check_packed(
    made: CreateTensorOp, view: SliceOp, function: Function, uses: Sequence[Operation], lineage: Lineage
) -> None:
    """Who counts on packed elements gets them: a reshape, and a collective, which wants that to be plain."""
    collective = any(isinstance(op, CollectiveOp) for op in uses)
    if collective and (step := loose_step(view.result, lineage)) is not None:
        raise _Unsafe(f"a collective uses it, and it would not be provably packed: {step}")
    extents = [1] * len(view.dropped) + list(shaped(made.result).extents)
    wide = next((axis for axis, extent in enumerate(extents) if extent != 1), 0)  # those before it have one element
    behind = zip(extents[wide + 1 :], shaped(view.source).shape[wide + 1 :], strict=True)
    if all(extent == there for extent, there in behind) and loose_step(view.source, lineage) is None:
        return
    asked: list[tuple[Function, SSAValue]] = [(function, made.result)]
    for call in uses:
        if isinstance(call, CallOp):
            kernel = lineage.callee(call)
            given = [n for n, a in enumerate(call.arguments) if is_tensor(a) and made.result in lineage.roots(a)]
            asked += [(kernel, kernel.body.args[n]) for n in given if kernel.has_body]
    for asking, tensor in asked:
        for op in asking.op.walk():
            if isinstance(op, (ReshapeOp, CollectiveOp)) and any(tensor in lineage.roots(v) for v in op.operands):
                raise _Unsafe(f"it would not be packed, and {asking.name} counts on that")
