"""`lower-composite-ops`: collectives within a kernel become what ranks put, get, notify and wait for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crossrank.errors import InputError
from crossrank.passes import option, register
from crossrank.program.dialect.collectives import CollectiveOp
from crossrank.program.passes.lowering.emitter import Emitter
from crossrank.program.passes.lowering.recipes import RECIPES, Settings
from crossrank.program.program import Program, place
from crossrank.program.program_pass import ProgramPass
from crossrank.remarks import Remarks

PROTOCOLS = ("newest", "full_capacity")


@register
@dataclass(frozen=True)
class LowerCompositeOps(ProgramPass):
    """Lowers collectives within kernels to remote loads, puts and gets, and barriers on their signals.

    Matches `allreduce` (`mesh` and `ring`), `barrier`, `broadcast`, `allgather`, `reduce_scatter`, `all_to_all` and
    `all_to_all_v` in the body of a kernel (InCore, AIV, AIC), in loops and branches too.

    Makes of each what its recipe says: loops over the ranks of the target's domain, tiles of at most 16 KiB, and credit
    barriers, which leave the signal all zero, so that it serves the next collective. What used the result uses the
    target. Sums are those of the kernels of all doors, bit for bit.

    Declines collectives of HOST and CHIP functions, which are lowered by passes of their own. A signal of a shape that
    its collective cannot have is an error, and so is a core_num other than 1.
    """

    name: ClassVar[str] = "lower-composite-ops"
    produces: ClassVar[tuple[str, ...]] = ("CompositesLowered",)
    protocol: str = option(
        "newest", "of all_to_all_v: newest (the rows that it counts, 2 barriers) or full_capacity (all rows, 1 barrier)"
    )

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise InputError(
                f"pass {self.name}: there is no protocol {self.protocol}", f"it is {' or '.join(PROTOCOLS)}"
            )

    def rewrite(self, program: Program, remarks: Remarks) -> bool:
        """Lower, function by function."""
        settings = Settings(full_capacity=self.protocol == "full_capacity")
        changed = False
        for function in program.functions:
            for op in [op for op in function.op.walk() if isinstance(op, CollectiveOp)]:
                at = place(op)
                if not function.is_kernel:
                    remarks.declined(op.title, f"{function.name} is no kernel", at)
                    continue
                e = Emitter(op.location)
                words = RECIPES[type(op)](op, e, settings)
                e.replace(op, op.returned)
                remarks.done(op.title, f"in {function.name}: {words}", at)
                changed = True
        return changed
