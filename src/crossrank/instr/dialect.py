"""The dialect ``instr``: programs of cores, tensors, access patterns, and instructions.

A module holds one `ProgramOp` for each core of a rank; every rank runs the same module. What an instruction reads and
writes are *accesses*: patterns on tensors, made by `AccessOp`. Registers are values. The instructions of a core run one
after the other; those that wait for others are `InstCollectiveCompute`, `InstRecv`, `InstCoreBarrier`, and copies with
semaphores.

    instr.program @core0 on 0 {
      %x = instr.tensor {name = "x", input = 0} : !instr.tensor<[128, 512], f32, private_hbm>
      %y = instr.tensor {name = "y", outputs = [0]} : !instr.tensor<[128, 512], f32, private_hbm>
      %a = instr.access %x {offset = 0, pattern = [[512, 128], [1, 512]]}
      %b = instr.access %y {offset = 0, pattern = [[512, 128], [1, 512]]}
      instr.collective_compute "AllReduce-0" out(%b) in(%a) {kind = all_reduce, replica_groups = [[0, 1]], op = add}
      instr.end
    }

The verifiers' texts are the source's where the source has them.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, IntAttr, StringAttr
from xdsl.ir import Block, Dialect, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    prop_def,
    region_def,
    successor_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, IsTerminator
from xdsl.utils.exceptions import VerifyException

from crossrank.instr.instructions import INSTRUCTIONS, Instruction
from crossrank.instr.operands import AccessOp, FieldsAttr, TensorOp, operand
from crossrank.instr.types import RegisterType, TensorType


@irdl_op_definition
class EndOp(IRDLOperation):
    """The end of a core's program."""

    name = "instr.end"
    traits = traits_def(IsTerminator())

    def print(self, printer: Printer) -> None:
        """Nothing follows its name."""

    @classmethod
    def parse(cls, parser: Parser) -> EndOp:
        """Read it."""
        return cls()


@irdl_op_definition
class JumpOp(IRDLOperation):
    """Goes on in another block."""

    name = "instr.jump"
    target = successor_def()
    traits = traits_def(IsTerminator())

    def __init__(self, target: Block) -> None:
        super().__init__(successors=[target])

    def print(self, printer: Printer) -> None:
        """``instr.jump ^target``."""
        printer.print_string(" ")
        printer.print_block_name(self.target)

    @classmethod
    def parse(cls, parser: Parser) -> JumpOp:
        """Read it."""
        return cls(parser.parse_successor())


@irdl_op_definition
class BranchOp(IRDLOperation):
    """Goes on in the first block where a register is not zero, else in the second."""

    name = "instr.branch"
    condition = operand_def(RegisterType)
    then = successor_def()
    otherwise = successor_def()
    traits = traits_def(IsTerminator())

    def __init__(self, condition: SSAValue, then: Block, otherwise: Block) -> None:
        super().__init__(operands=[condition], successors=[then, otherwise])

    def print(self, printer: Printer) -> None:
        """``instr.branch %register, ^then, ^otherwise``."""
        printer.print_string(" ")
        printer.print_operand(self.condition)
        for block in (self.then, self.otherwise):
            printer.print_string(", ")
            printer.print_block_name(block)

    @classmethod
    def parse(cls, parser: Parser) -> BranchOp:
        """Read it."""
        condition = operand(parser)
        parser.parse_punctuation(",")
        then = parser.parse_successor()
        parser.parse_punctuation(",")
        return cls(condition, then, parser.parse_successor())


@irdl_op_definition
class ProgramOp(IRDLOperation):
    """What one core of every rank runs.

    Blocks take no arguments; values of the first block are seen in all.
    """

    name = "instr.program"
    sym_name = prop_def(StringAttr)
    core = prop_def(IntAttr)
    body = region_def()
    traits = traits_def(IsolatedFromAbove())

    def __init__(self, name: str, core: int, body: Region) -> None:
        super().__init__(properties={"sym_name": StringAttr(name), "core": IntAttr(core)}, regions=[body])

    @property
    def index(self) -> int:
        """The core's number within its rank."""
        return int(self.core.data)

    def instructions(self) -> Iterator[Instruction]:
        """All of its instructions, block by block."""
        for block in self.body.blocks:
            for op in block.ops:
                if isinstance(op, Instruction):
                    yield op

    def tensors(self) -> dict[str, TensorOp]:
        """Its tensors by name, aliases included."""
        return {op.fields.name: op for block in self.body.blocks for op in block.ops if isinstance(op, TensorOp)}

    def verify_(self) -> None:
        """Each name is given once, before others speak of it; each block ends as a block must."""
        names: set[str] = set()
        for block in self.body.blocks:
            last = block.last_op
            if last is None or not last.has_trait(IsTerminator):
                raise VerifyException(f"core {self.index}: a block ends without instr.end, instr.jump or instr.branch")
            for op in block.ops:
                named = op.fields.name if isinstance(op, TensorOp) else op.label if isinstance(op, Instruction) else ""
                if named in names:
                    raise VerifyException(f"core {self.index}: two are named {named}")
                for other in op.deps if isinstance(op, Instruction) else ():
                    if other not in names:
                        raise VerifyException(
                            f"core {self.index}: {named} comes after {other}, which does not stand before it"
                        )
                if named:
                    names.add(named)
                if isinstance(op, Instruction):
                    op.check_core(self.index)

    def print(self, printer: Printer) -> None:
        """``instr.program @core0 on 0 { … }``."""
        printer.print_string(f" @{self.sym_name.data} on {self.index} ")
        printer.print_region(self.body, print_entry_block_args=False)

    @classmethod
    def parse(cls, parser: Parser) -> ProgramOp:
        """Read it."""
        name = parser.parse_symbol_name().data
        parser.parse_keyword("on")
        core = parser.parse_integer()
        try:
            return cls(name, core, parser.parse_region())
        except KeyError as error:  # xDSL's own, where a block follows that was named before it was there
            parser.raise_error(f"two blocks are named ^{error.args[0]}")


Instr = Dialect(
    "instr",
    [ProgramOp, TensorOp, AccessOp, EndOp, JumpOp, BranchOp, *INSTRUCTIONS],
    [TensorType, RegisterType, FieldsAttr],
)


def context() -> Context:
    """What a parser must know to read programs."""
    found = Context()
    found.load_dialect(Builtin)
    found.load_dialect(Instr)
    return found
