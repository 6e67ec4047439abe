"""`legalize-spmd-launches`: a launch whose number of blocks may be zero is made only where it is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.builder import Builder
from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType, IntegerAttr
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint

from crossrank.errors import InputError
from crossrank.passes import register
from crossrank.program.analysis.launches import unproven
from crossrank.program.analysis.lineage import Lineage, is_tensor
from crossrank.program.dialect.calls import CallOp, JoinOp
from crossrank.program.dialect.tensors import DimOp, SliceOp, shaped
from crossrank.program.program import Program, place, where
from crossrank.program.program_pass import ProgramPass
from crossrank.remarks import Remarks


@register
@dataclass(frozen=True)
class LegalizeSpmdLaunches(ProgramPass):
    """Makes a launch of blocks only where there is at least one.

    Matches calls with a `core_num` that is not provably positive. Constants, sums and positive products, quotients,
    remainders, minima and maxima, bounds of loops, carried values, and conditions of the branches around are followed.

    Makes `if core_num > 0` of it: the launch in one arm, and in the other the caller's own buffers, and a task that is
    over when what the launch would have come after is.

    Declines calls that are provably positive, so that it changes nothing when it is run again.

    Fails where an Out or InOut tensor is not passed by the caller, or a result is no parameter of the callee: there
    would be nothing to go on with.
    """

    name: ClassVar[str] = "legalize-spmd-launches"
    produces: ClassVar[tuple[str, ...]] = ("SpmdLaunchesLegal",)

    def rewrite(self, program: Program, remarks: Remarks) -> bool:
        """Guard each launch that needs it."""
        lineage = Lineage(program)
        launches = unproven(program)
        for call, count in launches:
            _check(call, lineage)
            _guard(call, count, lineage.returned(call.function))
            remarks.done(call.function, "launched only where core_num > 0, which cannot be proved", place(call))
        return bool(launches)


def _check(call: CallOp, lineage: Lineage) -> None:
    """What the launch would give must be the caller's without it."""
    what = f"{where(call)}launch '{call.function}'"
    missing = [
        f"'{p.name}' (parameter {n})"
        for n, p in enumerate(lineage.named(call).params)
        if p.direction.writes and n >= len(call.arguments)
    ]
    if missing:
        raise InputError(
            f"{what} may have a non-positive core_num; output tensors {', '.join(missing)} are not preallocated",
            "Allocate and pass every Out/InOut tensor before this launch.",
        )
    lineage.callee(call)
    returned = lineage.returned(call.function)
    for n, result in enumerate(call.returned):
        parameter = returned[n] if n < len(returned) else None
        if parameter is None or not is_tensor(result):
            raise InputError(
                f"{what} return {n} cannot be mapped to a caller-provided Tensor parameter",
                "Return a preallocated Out/InOut parameter for a potentially empty launch.",
            )


def _guard(call: CallOp, count: SSAValue, returned: Sequence[int | None]) -> None:
    """Move a call into a branch."""
    builder = Builder(InsertPoint.before(call))

    def insert(op: Operation) -> SSAValue:
        op.location = call.location
        builder.insert(op)
        return op.results[0]

    zero = insert(arith.ConstantOp(IntegerAttr(0, IndexType())))
    some = insert(arith.CmpiOp(count, zero, "sgt"))
    launched, skipped = Block(), Block()
    guard = scf.IfOp(some, [r.type for r in call.results], Region(launched), Region(skipped))
    insert(guard)
    for result, given in zip(call.results, guard.results, strict=True):
        given.name_hint = result.name_hint
        result.replace_all_uses_with(given)
    call.detach()  # type: ignore[no-untyped-call]
    launched.add_ops([call, scf.YieldOp(*call.results)])

    builder.insertion_point = InsertPoint.at_end(skipped)
    handles = [call.arguments[p] for p in returned if p is not None]
    kept = []
    for handle, result in zip(handles, call.returned, strict=True):
        if handle.type != result.type:  # the same extents, said otherwise
            axes = range(len(shaped(handle).shape))
            extents = [insert(DimOp(handle, axis)) for axis in axes]
            handle = insert(SliceOp(handle, [zero for _ in axes], extents, shaped(result)))
        kept.append(handle)
    kept.append(insert(JoinOp([*call.deps, *call.auto_deps])))
    builder.insert(scf.YieldOp(*kept))
    for block in (launched, skipped):
        assert block.last_op is not None
        block.last_op.location = call.location
