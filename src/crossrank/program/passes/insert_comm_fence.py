"""`insert-comm-fence`: what a kernel writes is visible before it is told, what it reads after a wait is not stale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from crossrank.passes import register
from crossrank.program.analysis.fences import missing
from crossrank.program.analysis.lineage import Lineage
from crossrank.program.dialect.remote import FenceOp, InvalidateOp
from crossrank.program.program import Program, place
from crossrank.program.program_pass import ProgramPass
from crossrank.remarks import Remarks


@register
@dataclass(frozen=True)
class InsertCommFence(ProgramPass):
    """Makes what a kernel writes visible before it is told, and what it reads after a wait new.

    Matches, in kernels, writes of own windows (store, write, assemble, the target of a get) and of peers' (put,
    remote_store), calls, and waits.

    Makes after an own write an invalidate of what was written and a fence; after a peer's a fence; after a call an
    invalidate of everything and a fence; after a wait an invalidate of everything: one for waits that follow one
    another with nothing but numbers between, and one for a loop or branch that does nothing but wait.

    Declines what has them already, so that it changes nothing when it is run again.
    """

    name: ClassVar[str] = "insert-comm-fence"
    requires: ClassVar[tuple[str, ...]] = ("CompositesLowered",)
    produces: ClassVar[tuple[str, ...]] = ("CommFencesInserted",)

    def rewrite(self, program: Program, remarks: Remarks) -> bool:
        """One kernel after another."""
        lineage = Lineage(program)
        changed = False
        for kernel in program.functions:
            for need in missing(kernel, lineage) if kernel.is_kernel and kernel.has_body else ():
                ops: list[Operation] = [InvalidateOp(need.region)] if need.whole or need.region is not None else []
                ops += [FenceOp()] if need.fence else []
                for op in ops:
                    op.location = need.after.location
                assert need.after.parent is not None
                need.after.parent.insert_ops_after(ops, need.after)
                what = " and ".join("fence" if isinstance(op, FenceOp) else "invalidate" for op in ops)
                remarks.done(kernel.name, f"{what} after a {need.why}", place(need.after))
                changed = True
        return changed
