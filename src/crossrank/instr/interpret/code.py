"""A core's program, made ready to run: the instructions of each block with their operands resolved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from xdsl.ir import Block, SSAValue

from crossrank.instr.dialect import BranchOp, JumpOp, ProgramOp
from crossrank.instr.instructions import Instruction
from crossrank.instr.interpret.memory import Operand
from crossrank.instr.operands import TensorOp
from crossrank.instr.program import Kernel


@dataclass(eq=False)
class Step:
    """An instruction, ready to run on any core.

    Attributes:
        inst: the instruction.
        outs: what it writes.
        ins: what it reads.
        frees: tensors that nothing touches after it.
    """

    inst: Instruction
    outs: list[Operand]
    ins: list[Operand]
    frees: tuple[str, ...] = ()

    @cached_property
    def fields(self) -> Any:
        """The instruction's fields."""
        return self.inst.fields

    @cached_property
    def registers(self) -> tuple[SSAValue, ...]:
        """The registers that it reads."""
        return tuple(self.inst.registers)

    @cached_property
    def result(self) -> SSAValue:
        """The register that it sets."""
        assert self.inst.result is not None
        return self.inst.result

    @property
    def where(self) -> str:
        """Its name, and the author's source line."""
        return f"{self.inst.label} ({self.inst.where})" if self.inst.where else self.inst.label


@dataclass(frozen=True)
class Code:
    """A block.

    Attributes:
        steps: its instructions.
        condition: the register that decides where it goes on; None where nothing decides.
        then: where it goes on if that is not zero; None: the program ends.
        otherwise: where it goes on else.
    """

    steps: list[Step]
    condition: SSAValue | None
    then: Block | None
    otherwise: Block | None

    @staticmethod
    def of(block: Block) -> Code:
        """The code of a block."""
        steps, last = [_step(op) for op in block.ops if isinstance(op, Instruction)], block.last_op
        if isinstance(last, BranchOp):
            return Code(steps, last.condition, last.then, last.otherwise)
        target = last.target if isinstance(last, JumpOp) else None
        return Code(steps, None, target, target)


def compiled(kernel: Kernel) -> dict[Block, Code]:
    """The code of each block of each program."""
    code: dict[Block, Code] = {}
    aliased = {t.fields.of for p in kernel.programs for t in p.tensors().values() if t.fields.of}
    for program in kernel.programs:
        for block in program.body.blocks:
            code[block] = Code.of(block)
        if len(program.body.blocks) == 1:
            _mark_last_uses(code[program.body.blocks[0]].steps, _temporary(program, aliased))
    return code


def _step(inst: Instruction) -> Step:
    outs, ins = ([Operand(a) for a in side] for side in (inst.out_accesses, inst.in_accesses))
    return Step(inst, outs, ins)


def _temporary(program: ProgramOp, aliased: set[str]) -> Mapping[str, TensorOp]:
    """Tensors that are a core's own, and of which nobody else hears."""

    def is_one(name: str, tensor: TensorOp) -> bool:
        fields = tensor.fields
        seen = fields.outputs or fields.input >= 0 or fields.of or fields.written_by_peer or name in aliased
        return not seen and not tensor.type.space.is_shared

    return {name: tensor for name, tensor in program.tensors().items() if is_one(name, tensor)}


def _mark_last_uses(steps: Sequence[Step], temporary: Mapping[str, TensorOp]) -> None:
    """Memory goes after its last use: unrolled loops have many tensors."""
    last: dict[str, Step] = {}
    for step in steps:
        for operand in (*step.outs, *step.ins):
            for name in operand.tensors():
                last[name] = step
    for name, step in last.items():
        if name in temporary:
            step.frees = (*step.frees, name)
