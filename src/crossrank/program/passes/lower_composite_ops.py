"""`lower-composite-ops`: collectives within a kernel become what ranks put, get, notify and wait for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crossrank.errors import InputError
from crossrank.passes import option, register
from crossrank.program.analysis.provenance import check_operands
from crossrank.program.dialect.collectives import (
    AllReduceOp,
    CollectiveOp,
    IndexedAllToAllVOp,
    ReduceScatterOp,
)
from crossrank.program.dialect.tensors import shaped
from crossrank.program.kinds import ReduceOp
from crossrank.program.passes.lowering.emitter import Emitter
from crossrank.program.passes.lowering.recipes import RECIPES, Settings
from crossrank.program.program import Program, place
from crossrank.program.program_pass import ProgramPass
from crossrank.program.types import spelled
from crossrank.remarks import Remarks

PROTOCOLS = ("newest", "full_capacity")


@register
@dataclass(frozen=True)
class LowerCompositeOps(ProgramPass):
    """Lowers collectives within kernels to remote loads, puts and gets, and barriers on their signals.

    Matches `allreduce` (`mesh` and `ring`), `barrier`, `broadcast`, `allgather`, `reduce_scatter`, `all_to_all`,
    `all_to_all_v` and `indexed_all_to_all_v` in the body of a kernel (InCore, AIV, AIC), in loops and branches too.

    Makes of each what its recipe says: loops over the ranks of the target's domain, tiles of at most 16 KiB, and credit
    barriers, which leave the signal all zero, so that it serves the next collective. What used the result uses the
    target. Sums are those of the kernels of all doors, bit for bit.

    Declines collectives of HOST and CHIP functions, which are lowered by passes of their own. A signal of a shape that
    its collective cannot have is an error, and so is a core_num other than 1; and, where a host calls the kernel, two
    operands that surely share memory, or whose windows different devices use.
    """

    name: ClassVar[str] = "lower-composite-ops"
    produces: ClassVar[tuple[str, ...]] = ("CompositesLowered",)
    protocol: str = option(
        "newest", "of all_to_all_v: newest (the rows that it counts, 2 barriers) or full_capacity (all rows, 1 barrier)"
    )
    as_source: bool = option(False, "as the source has it: its limits hold, and operands are the caller's obligation")

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise InputError(
                f"pass {self.name}: there is no protocol {self.protocol}", f"it is {' or '.join(PROTOCOLS)}"
            )

    def rewrite(self, program: Program, remarks: Remarks) -> bool:
        """Lower, function by function."""
        settings = Settings(full_capacity=self.protocol == "full_capacity")
        if not self.as_source:
            check_operands(program, lambda function: function.is_kernel)
        changed = False
        for function in program.functions:
            for op in [op for op in function.op.walk() if isinstance(op, CollectiveOp)]:
                at = place(op)
                if not function.is_kernel:
                    remarks.declined(op.title, f"{function.name} is no kernel", at)
                    continue
                e = Emitter(op.location)
                if self.as_source:
                    _ask_source(e, op)
                words = RECIPES[type(op)](op, e, settings)
                e.replace(op, op.returned)
                remarks.done(op.title, f"in {function.name}: {words}", at)
                changed = True
        return changed


def _ask_source(e: Emitter, op: CollectiveOp) -> None:
    """What the source cannot lower yet."""
    match op:
        case AllReduceOp():
            dtype = shaped(op.target).dtype
            e.ask(dtype.name in ("f16", "f32"), f"{op.title} target dtype must be FP16 or FP32, got {spelled(dtype)}")
        case ReduceScatterOp():
            how = ReduceOp[op.op.data]
            e.ask(
                how is ReduceOp.Sum,
                f"{op.title} op must be ReduceOp.Sum (got int {how.value}); Max / Min / Prod lowerings are not yet "
                "implemented",
            )
        case IndexedAllToAllVOp():
            e.fail(f"{op.title} {op.SOURCE_RAIL}", "call it from a CHIP orchestration")
