"""`insert-ptcom`: tensors that cores share say when they are complete."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Block
from xdsl.rewriter import InsertPoint, Rewriter

from crossrank.instr.dialect import ProgramOp
from crossrank.instr.fields import Fields
from crossrank.instr.instructions import Instruction, InstTensorCompletion
from crossrank.instr.kernel_pass import KernelPass
from crossrank.instr.lowering.flow import Flow
from crossrank.instr.lowering.operations import flow_of, same_flow
from crossrank.instr.lowering.places import Part
from crossrank.instr.operands import AccessOp, TensorOp
from crossrank.instr.program import Kernel
from crossrank.passes import option, register
from crossrank.remarks import Remarks

SUFFIX = "-PTCOM"


@register
@dataclass(frozen=True)
class InsertPtcom(KernelPass):
    """Marks the point at which a tensor that cores share is complete, so that a consumer waits for one producer.

    Matches, in a kernel with several programs, the tensors in shared HBM and those that other cores write, by the names
    that core 0 has for them, where some core writes them.

    Makes a point-to-point completion `<tensor>-PTCOM`, which reads the whole tensor and depends on the last writers of
    its core, in each program that has the tensor: at the end of the first block, outside of loops, to which all paths
    from all writers lead. Writes by an alias count for the tensor.

    Declines a tensor for which there is no such block, and kernels whose cores do not all have the same blocks.
    """

    name: ClassVar[str] = "insert-ptcom"
    enable: bool = option(True, "false: do nothing (the flag enablePTCOM)")

    def run(self, kernel: Kernel, remarks: Remarks) -> bool:
        """Insert them; one walk over the instructions, one over the tensors."""
        programs = kernel.programs
        if not self.enable or len(programs) < 2:
            return False
        if not same_flow(programs):
            remarks.declined(kernel.name, "its cores do not all have the same blocks")
            return False
        blocks: dict[str, set[int]] = defaultdict(set)
        last: dict[tuple[int, str, int], str] = {}
        afar: dict[str, None] = {}
        for program in programs:
            for number, inst, tensor in _writes(program):
                name = tensor.fields.of or tensor.fields.name
                blocks[name].add(number)
                last[program.index, name, number] = inst.label
                if tensor.fields.of and program is programs[0]:
                    afar[name] = None
        tensors = {program: program.tensors() for program in programs}
        labels = {program: {i.label for i in program.instructions()} for program in programs}
        flow = Flow(flow_of(programs[0]))
        changed = False
        for name in dict.fromkeys([*_shared(tensors[programs[0]]), *afar]):
            if not blocks[name]:
                continue
            place = flow.meeting_point(sorted(blocks[name]))
            if place is None:
                remarks.declined(name, "no block outside of loops comes after all of its writers")
                continue
            for program in programs:
                own = tensors[program].get(name)
                if own is None or own.fields.of or f"{name}{SUFFIX}" in labels[program]:
                    continue
                before = [n for n in sorted(blocks[name]) if n <= place]  # a name stands before those who depend on it
                writers = [w for n in before if (w := last.get((program.index, name, n)))]
                _complete(own, program.body.blocks[place], writers)
                remarks.done(f"core {program.index}: {name}", f"complete at the end of block {place}")
                changed = True
        return changed


def _writes(program: ProgramOp) -> Iterator[tuple[int, Instruction, TensorOp]]:
    """Every write of a program: the number of its block, the instruction, the tensor."""
    for number, block in enumerate(program.body.blocks):
        for inst in block.ops:
            if isinstance(inst, Instruction):
                for access in inst.out_accesses:
                    yield number, inst, access.of


def _shared(tensors: Mapping[str, TensorOp]) -> list[str]:
    """The tensors of a core that others see in shared HBM, or write."""
    return [
        name
        for name, tensor in tensors.items()
        if not tensor.fields.of and (tensor.fields.written_by_peer or tensor.type.space.is_shared)
    ]


def _complete(tensor: TensorOp, block: Block, writers: Sequence[str]) -> None:
    """Insert the completion of a tensor before the last op of a block."""
    assert block.last_op is not None
    whole = AccessOp(tensor.result, Part.whole(tensor).fields)
    completion = InstTensorCompletion(f"{tensor.fields.name}{SUFFIX}", Fields(), ins=[whole.result], deps=writers)
    Rewriter.insert_op([whole, completion], InsertPoint.before(block.last_op))
