"""`lower-local-collectives`: what the cores of a rank say to each other becomes copies between them, and barriers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crossrank.errors import InputError
from crossrank.instr.kernel_pass import KernelPass
from crossrank.instr.kinds import MULTI_CORE_ARCH, CollectiveKind
from crossrank.instr.lowering.barriers import number_barriers
from crossrank.instr.lowering.editor import Editor
from crossrank.instr.lowering.fences import Fences
from crossrank.instr.lowering.local import Lowering, Settings
from crossrank.instr.lowering.operations import Operation, aligned_blocks, operations, same_flow, walk
from crossrank.instr.lowering.recipes import RECIPES
from crossrank.instr.lowering.sb2sb import MAX_BYTES_PER_PARTITION
from crossrank.instr.matching import Matching
from crossrank.instr.program import Kernel
from crossrank.passes import option, register
from crossrank.remarks import Remarks

LOWERED = (CollectiveKind.SEND_RECV, CollectiveKind.SEND_RECV_CCE, CollectiveKind.ALL_REDUCE)


@register
@dataclass(frozen=True)
class LowerLocalCollectives(KernelPass):
    """Lowers collectives among the cores of a rank to copies into each other's memory, and barriers.

    Matches, in a kernel whose ranks have several cores, the k-th collective of each core as one operation: sends and
    receives between cores by their pipe, local group collectives by their kind and groups.

    Makes of a send and receive a copy into the receiver's memory, by GPSIMD (SB2SB) where it is small and lies in SBUF,
    else by DMA; of a reducing one a reduction of what the senders have; of a local all-reduce a reduction of a slice on
    each core, which it then copies to all others. Barriers stand before and after, unless they are redundant. With
    `all_kinds` the other local group collectives become copies too. All others are kept behind a barrier of the cores
    that take part. Barriers are numbered module-wide at the end. No bit changes.

    Declines operations that some core lacks or comes to in another order, whose members do not fit each other, or in
    which two cores write the same elements; and kernels whose cores do not all have the same blocks.
    """

    name: ClassVar[str] = "lower-local-collectives"
    sendrecv_to_gpsimd_max_bpp: int = option(
        MAX_BYTES_PER_PARTITION, "copies of more bytes per partition, each element padded to 4, go by DMA"
    )
    enable_remote_semaphore_dma: bool = option(
        False, "a copy raises a semaphore on the core that it writes to, in place of the barriers after it"
    )
    all_kinds: bool = option(False, "lower the other local group collectives too, and not the all-reduce alone")

    def __post_init__(self) -> None:
        if self.sendrecv_to_gpsimd_max_bpp < 0:
            given = f"sendrecv_to_gpsimd_max_bpp={self.sendrecv_to_gpsimd_max_bpp}"
            raise InputError(f"pass {self.name}: {given} is below zero", "give a number of bytes, or 0: all go by DMA")

    def run(self, kernel: Kernel, remarks: Remarks) -> bool:
        """Lower; a rank of one core has nothing to lower."""
        programs = kernel.programs
        if kernel.lnc == 1:
            return False
        if kernel.arch < MULTI_CORE_ARCH:
            reason = f"cores cannot meet at architecture level {kernel.arch}, below {MULTI_CORE_ARCH}"
            remarks.declined(kernel.name, reason)
            return False
        if not same_flow(programs):
            remarks.declined(kernel.name, "its cores do not all have the same blocks")
            return False
        settings = Settings(kernel.lnc, kernel.arch, self.sendrecv_to_gpsimd_max_bpp, self.enable_remote_semaphore_dma)
        fences: Fences
        editors = {p.index: Editor(p, lambda core, inst: fences.saw(core, inst)) for p in programs}
        tensors = {core: editor.tensors for core, editor in editors.items()}
        matching = Matching(kernel)
        changed = False

        def meet(operation: Operation) -> None:
            nonlocal changed
            if operation.is_barrier:
                fences.met(operation.members)
                return
            changed |= self._lower(operation, Lowering(operation, editors, fences, settings, remarks))

        for block in list(aligned_blocks(kernel)):
            fences = Fences(tensors)
            found = operations(block, matching)
            complete = []
            for operation in found:
                if operation.is_complete:
                    complete.append(operation)
                elif not operation.is_barrier:
                    lacking = sorted(set(operation.members) - operation.at.keys())
                    _declined(operation, f"core {lacking[0]} has none that meets it", remarks)
            for operation in walk(block, complete, fences.saw, meet):
                if not operation.is_barrier:
                    _declined(operation, "the cores come to it in different orders", remarks)
        for program in programs:
            editors[program.index].rewire(program.instructions())
        return number_barriers(kernel) or changed

    def _lower(self, operation: Operation, lowering: Lowering) -> bool:
        kind = operation.fields.kind
        if not operation.is_local:
            return lowering.keep("it goes to other ranks")
        if kind not in LOWERED and not (self.all_kinds and kind in RECIPES):
            return lowering.keep(f"{kind.title} is left to the runtime")
        if not operation.has_group:
            lowering.idle()
        elif reason := lowering.obstacle():
            return lowering.keep(reason)
        elif kind is CollectiveKind.SEND_RECV:
            lowering.sendrecv()
        elif kind is CollectiveKind.ALL_REDUCE:
            lowering.all_reduce()
        else:
            lowering.pull()
        return True


def _declined(operation: Operation, reason: str, remarks: Remarks) -> None:
    for core, inst in operation.instructions:
        remarks.declined(f"core {core}: {inst.label}", reason, inst.where)
