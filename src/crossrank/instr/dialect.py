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

import re
from abc import ABC
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, cast

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, Builtin, IntAttr, StringAttr
from xdsl.ir import Attribute, Block, Data, Dialect, Region, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    opt_result_def,
    prop_def,
    region_def,
    result_def,
    successor_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, IsTerminator
from xdsl.utils.exceptions import VerifyException

from crossrank.collective.dtypes import dtype
from crossrank.instr.access import AccessPattern
from crossrank.instr.compute import check as check_computation
from crossrank.instr.fields import (
    AccessFields,
    AluFields,
    BarrierFields,
    CollectiveFields,
    ComputeFields,
    CopyFields,
    Fields,
    PeerFields,
    RankFields,
    RingFields,
    TensorFields,
    parse_fields,
    parse_string,
    print_fields,
    quoted,
)
from crossrank.instr.kinds import PARTITIONS
from crossrank.instr.registers import OPS as REGISTER_OPS
from crossrank.instr.types import RegisterType, TensorType
from crossrank.instr.verify import check_barrier, check_collective, check_not_self, check_ring


@irdl_attr_definition
class FieldsAttr(Data[Fields]):
    """The fields of an instruction (see `fields`)."""

    name = "instr.fields"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Fields:
        """Read ``<CopyFields {dma_qos = 1}>``, the form inside the generic form of an instruction."""
        with parser.in_angle_brackets():
            ops: tuple[type[Named], ...] = (TensorOp, AccessOp, *INSTRUCTIONS)
            known = {op.FIELDS.__name__: op.FIELDS for op in ops}
            name = parser.parse_identifier()
            if name not in known:
                parser.raise_error(f"there are no fields {name}")
            return parse_fields(parser, known[name])

    def print_parameter(self, printer: Printer) -> None:
        """Write it so."""
        printer.print_string(f"<{type(self.data).__name__} ")
        print_fields(printer, self.data)
        printer.print_string(">")


def _operand(parser: Parser) -> SSAValue:
    """A value that was made before; its type is that of its making, which the text does not repeat."""
    named = parser.parse_unresolved_operand()
    values = parser.ssa_values.get(named.operand_name, ())
    if named.index >= len(values):
        parser.raise_error(f"%{named.operand_name} is used before it is made", named.span)
    return values[named.index]


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
        condition = _operand(parser)
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


class Named(IRDLOperation, ABC):
    """An op with fields, of its class ``FIELDS``.

    Fields never change; ``op.fields = dataclasses.replace(op.fields, stream_id=1)`` gives an op others, and
    `Kernel.verify` says whether they can be.
    """

    FIELDS: ClassVar[type[Fields]] = Fields
    packed = prop_def(FieldsAttr, prop_name="fields")

    @property
    def fields(self) -> Any:
        """Its fields, a ``FIELDS``."""
        return self.packed.data

    @fields.setter
    def fields(self, fields: Fields) -> None:
        self.packed = FieldsAttr(fields)

    def verify_(self) -> None:
        """The fields are its own; what an op asks beyond that is said in `check`."""
        if type(self.packed.data) is not self.FIELDS:
            raise VerifyException(f"{self.name} has the fields {self.FIELDS.__name__}, not {self.packed.data}")
        self.check()

    def check(self) -> None:
        """Raise a VerifyException where fields and operands do not fit."""


@irdl_op_definition
class TensorOp(Named):
    """A tensor; with ``core`` and ``of`` an alias of a tensor of another core of the same rank."""

    name = "instr.tensor"
    FIELDS: ClassVar[type[Fields]] = TensorFields
    result = result_def(TensorType)

    def __init__(self, fields: TensorFields, type: TensorType) -> None:
        super().__init__(properties={"fields": FieldsAttr(fields)}, result_types=[type])
        self.result.name_hint = _hint(fields.name)

    @property
    def type(self) -> TensorType:
        """Its shape, element type and space."""
        return self.result.type

    def check(self) -> None:
        """It has extents, at most 128 partitions; an alias says of what."""
        if any(extent < 0 for extent in self.type.shape):
            raise VerifyException(f"tensor {self.fields.name} has a negative extent: {list(self.type.shape)}")
        if self.type.dtype.numpy is None:
            raise VerifyException(f"tensor {self.fields.name}: no array has elements of {self.type.dtype}")
        if self.type.space.has_partitions and (not self.type.shape or self.type.shape[0] > PARTITIONS):
            raise VerifyException(
                f"tensor {self.fields.name} of shape {list(self.type.shape)} lies in {self.type.space}, whose first "
                f"dimension runs over at most {PARTITIONS} partitions"
            )
        if (self.fields.core < 0) != (not self.fields.of):
            raise VerifyException(f"tensor {self.fields.name}: an alias names a core and a tensor there")

    def print(self, printer: Printer) -> None:
        """``instr.tensor {name = "x"} : !instr.tensor<[4], f32, sbuf>``."""
        printer.print_string(" ")
        print_fields(printer, self.fields)
        printer.print_string(" : ")
        printer.print_attribute(self.result.type)

    @classmethod
    def parse(cls, parser: Parser) -> TensorOp:
        """Read it."""
        fields = cast(TensorFields, parse_fields(parser, TensorFields))
        parser.parse_punctuation(":")
        type = parser.parse_type()
        if not isinstance(type, TensorType):
            parser.raise_error("a tensor has a type !instr.tensor<…>")
        return cls(fields, type)


@irdl_op_definition
class AccessOp(Named):
    """Elements of a tensor; which of them may depend on registers, and on a tensor of indices.

    Element ``(i, j, …)`` is the tensor's element ``offset + Σ pattern + Σ register·scale + index[i_dim]·index_scale``.
    """

    name = "instr.access"
    FIELDS: ClassVar[type[Fields]] = AccessFields
    tensor = operand_def(TensorType)
    index = opt_operand_def(TensorType)
    registers = var_operand_def(RegisterType)
    result = result_def(TensorType)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    def __init__(
        self,
        tensor: SSAValue,
        fields: AccessFields,
        registers: Sequence[SSAValue] = (),
        index: SSAValue | None = None,
    ) -> None:
        super().__init__(
            operands=[tensor, index, list(registers)],
            properties={"fields": FieldsAttr(fields)},
            result_types=[_accessed(cast(TensorType, tensor.type), fields)],
        )

    @property
    def of(self) -> TensorOp:
        """The tensor."""
        assert isinstance(self.tensor.owner, TensorOp)
        return self.tensor.owner

    @property
    def type(self) -> TensorType:
        """Shape, element type and space of what it gives."""
        return self.result.type

    @property
    def pattern(self) -> AccessPattern:
        """The pattern, without what registers and indices add."""
        return AccessPattern(self.fields.offset, cast(Any, self.fields.pattern))

    @property
    def is_static(self) -> bool:
        """Whether neither registers nor indices add to it."""
        return not self.registers and self.index is None

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole tensor, in order."""
        return self.is_static and not self.fields.dtype and self.pattern.covers(self.of.type.size)

    def check(self) -> None:
        """What is known of it lies inside of its tensor."""
        if not isinstance(self.tensor.owner, TensorOp):
            raise VerifyException("an access is to a tensor")
        if self.type != _accessed(self.of.type, self.fields):
            raise VerifyException(
                f"an access of tensor {self.of.fields.name} gives {_accessed(self.of.type, self.fields)}"
            )
        base = self.of.type
        elements = base.size * base.dtype.itemsize // self.type.dtype.itemsize
        low, high = self.pattern.bounds
        if self.is_static and (low < 0 or high > elements):
            raise VerifyException(
                f"an access reaches elements {low} to {high - 1} of tensor {self.of.fields.name}, which has {elements}"
            )
        if len(self.registers) != len(self.fields.scale):
            raise VerifyException("an access has a scale for each register")
        if self.index is not None:
            rows = cast(TensorType, self.index.type)
            if not isinstance(self.index.owner, AccessOp) or not rows.dtype.is_integer:
                raise VerifyException("the indices of an access are an access to a tensor of integers")
            if not self.type.shape or rows.size != self.type.shape[0]:
                raise VerifyException(f"{rows.size} indices for an access of shape {list(self.type.shape)}")

    def print(self, printer: Printer) -> None:
        """``instr.access %x[%r, …] index %i {offset = 0, pattern = [[4, 2], [1, 4]]}``."""
        printer.print_string(" ")
        printer.print_operand(self.tensor)
        if self.registers:
            printer.print_string("[")
            printer.print_list(self.registers, printer.print_operand)
            printer.print_string("]")
        if self.index is not None:
            printer.print_string(" index ")
            printer.print_operand(self.index)
        printer.print_string(" ")
        print_fields(printer, self.fields)

    @classmethod
    def parse(cls, parser: Parser) -> AccessOp:
        """Read it."""
        tensor = _operand(parser)
        if not isinstance(tensor.type, TensorType):
            parser.raise_error("an access is to a tensor")
        registers = parser.parse_optional_comma_separated_list(parser.Delimiter.SQUARE, partial(_operand, parser))
        index = _operand(parser) if parser.parse_optional_keyword("index") else None
        fields = cast(AccessFields, parse_fields(parser, AccessFields))
        try:
            return cls(tensor, fields, registers or (), index)
        except ValueError as error:
            parser.raise_error(str(error))


def _accessed(tensor: TensorType, fields: AccessFields) -> TensorType:
    """The type of an access to a tensor."""
    element = dtype(fields.dtype) if fields.dtype else tensor.dtype
    return TensorType.of([n for _, n in fields.pattern], element, tensor.space)


class Instruction(Named, ABC):
    """What a core executes: it reads accesses and registers, and writes accesses or one register.

    Attributes:
        label: its name, ``<what>-<counter>``, unique in its program.
        where: the author's source line, or empty.
        deps: names of instructions that must have ended before.
    """

    NUMBER: ClassVar[int] = -1
    """Its number in the source's instruction set; -1 where it has none."""
    COUNTS: ClassVar[Mapping[str, int]] = {}
    """How many ``outs``, ``ins``, ``registers`` and results it has, where that is the same for all."""
    label_attr = prop_def(StringAttr, prop_name="label")
    where_attr = opt_prop_def(StringAttr, prop_name="where")
    deps_attr = opt_prop_def(ArrayAttr[StringAttr], prop_name="deps")
    outs = var_operand_def(TensorType)
    ins = var_operand_def(TensorType)
    registers = var_operand_def(RegisterType)
    result = opt_result_def(RegisterType)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    def __init__(
        self,
        label: str,
        fields: Fields,
        outs: Sequence[SSAValue] = (),
        ins: Sequence[SSAValue] = (),
        registers: Sequence[SSAValue] = (),
        *,
        result: bool = False,
        where: str = "",
        deps: Sequence[str] = (),
    ) -> None:
        properties: dict[str, Attribute] = {"label": StringAttr(label), "fields": FieldsAttr(fields)}
        if where:
            properties["where"] = StringAttr(where)
        if deps:
            properties["deps"] = ArrayAttr(map(StringAttr, deps))
        super().__init__(
            operands=[list(outs), list(ins), list(registers)],
            properties=properties,
            result_types=[[RegisterType()] if result else []],
        )

    @property
    def label(self) -> str:
        """Its name."""
        return self.label_attr.data

    @property
    def where(self) -> str:
        """The author's source line, or empty."""
        return self.where_attr.data if self.where_attr else ""

    @property
    def deps(self) -> tuple[str, ...]:
        """Names of instructions that must have ended before."""
        return tuple(name.data for name in self.deps_attr) if self.deps_attr else ()

    @deps.setter
    def deps(self, names: Sequence[str]) -> None:
        self.deps_attr = ArrayAttr(map(StringAttr, names)) if names else None

    @property
    def program(self) -> ProgramOp | None:
        """The core's program that it stands in, if any."""
        parent = self.parent_op()
        return parent if isinstance(parent, ProgramOp) else None

    @property
    def out_accesses(self) -> list[AccessOp]:
        """What it writes."""
        return [_access(v) for v in self.outs]

    @property
    def in_accesses(self) -> list[AccessOp]:
        """What it reads."""
        return [_access(v) for v in self.ins]

    def verify_(self) -> None:
        """Operands are accesses, as many as there must be."""
        for value in (*self.outs, *self.ins):
            if not isinstance(value.owner, AccessOp):
                raise VerifyException(f"{self.label}: an operand is an access, made by instr.access")
        for what, count in ({"result": 0} | dict(self.COUNTS)).items():
            given = int(self.result is not None) if what == "result" else len(getattr(self, what))
            if given != count:
                raise VerifyException(f"{self.label}: {self.name} has {count} {what}, not {given}")
        super().verify_()
        if self.program is not None:
            self.check_core(self.program.index)

    def check_core(self, core: int) -> None:
        """Raise a VerifyException where it cannot be an instruction of that core."""

    def print(self, printer: Printer) -> None:
        """``instr.x "name" out(…) in(…) reg(…) {…} after("…") at "file:line"``; what is empty is left out."""
        printer.print_string(f" {quoted(self.label)}")
        for word, values in (("out", self.outs), ("in", self.ins), ("reg", self.registers)):
            if values:
                printer.print_string(f" {word}(")
                printer.print_list(values, printer.print_operand)
                printer.print_string(")")
        if self.fields.given():
            printer.print_string(" ")
            print_fields(printer, self.fields)
        if self.deps:
            printer.print_string(f" after({', '.join(map(quoted, self.deps))})")
        if self.where:
            printer.print_string(f" at {quoted(self.where)}")
        if self.result is not None:
            printer.print_string(" : ")
            printer.print_attribute(self.result.type)

    @classmethod
    def parse(cls, parser: Parser) -> Instruction:
        """Read it."""
        label = parse_string(parser)
        operands: list[list[SSAValue]] = []
        for word in ("out", "in", "reg"):
            given = parser.parse_optional_keyword(word)
            operands.append(
                parser.parse_comma_separated_list(parser.Delimiter.PAREN, partial(_operand, parser)) if given else []
            )
        fields = parse_fields(parser, cls.FIELDS)
        deps: list[str] = []
        if parser.parse_optional_keyword("after"):
            deps = parser.parse_comma_separated_list(parser.Delimiter.PAREN, lambda: parse_string(parser))
        where = parse_string(parser) if parser.parse_optional_keyword("at") else ""
        has_result = parser.parse_optional_punctuation(":") is not None
        if has_result and not isinstance(parser.parse_type(), RegisterType):
            parser.raise_error("an instruction gives a register or nothing")
        return cls(label, fields, *operands, result=has_result, where=where, deps=deps)


def _access(value: SSAValue) -> AccessOp:
    assert isinstance(value.owner, AccessOp)
    return value.owner


def _hint(name: str) -> str | None:
    """A name for a value in the text, which numbers those that are alike; None where the text cannot have it."""
    word = "".join(c if c.isalnum() or c in "_$." else "_" for c in name)
    word = re.sub(r"(_[0-9]+)+$", "", word)
    return word if SSAValue.is_valid_name(word) else None


@irdl_op_definition
class InstCollectiveCompute(Instruction):
    """A collective among ranks, or among the cores of a rank where it is local."""

    name = "instr.collective_compute"
    NUMBER: ClassVar[int] = 48
    FIELDS: ClassVar[type[Fields]] = CollectiveFields

    def check(self) -> None:
        """What each kind asks of its fields and operands."""
        check_collective(
            self.label, self.fields, [a.type for a in self.out_accesses], [a.type for a in self.in_accesses]
        )

    def check_core(self, core: int) -> None:
        """A core does not exchange with itself."""
        check_not_self(self.fields, core)


@irdl_op_definition
class InstSend(Instruction):
    """Sends what it reads to another rank, and does not wait for it."""

    name = "instr.send"
    NUMBER: ClassVar[int] = 49
    FIELDS: ClassVar[type[Fields]] = PeerFields
    COUNTS: ClassVar[Mapping[str, int]] = {"outs": 0, "registers": 0}


@irdl_op_definition
class InstRecv(Instruction):
    """Waits for what another rank sends, and writes it."""

    name = "instr.recv"
    NUMBER: ClassVar[int] = 50
    FIELDS: ClassVar[type[Fields]] = PeerFields
    COUNTS: ClassVar[Mapping[str, int]] = {"ins": 0, "registers": 0}


@irdl_op_definition
class InstCoreBarrier(Instruction):
    """Cores of a rank meet; its semaphore is read and written."""

    name = "instr.core_barrier"
    NUMBER: ClassVar[int] = 87
    FIELDS: ClassVar[type[Fields]] = BarrierFields

    def check_core(self, core: int) -> None:
        """A core waits where it is waited for."""
        check_barrier(self.label, self.fields, core)


@irdl_op_definition
class InstDMACopy(Instruction):
    """A copy by a DMA queue, in the tensors' types."""

    name = "instr.dma_copy"
    NUMBER: ClassVar[int] = 32
    FIELDS: ClassVar[type[Fields]] = CopyFields
    COUNTS: ClassVar[Mapping[str, int]] = {"outs": 1, "ins": 1, "registers": 0}


@irdl_op_definition
class InstGPSIMDSB2SB(Instruction):
    """A copy from the SBUF of a core to that of the other core of its rank, by the GPSIMD engine."""

    name = "instr.gpsimd_sb2sb"
    NUMBER: ClassVar[int] = 33
    FIELDS: ClassVar[type[Fields]] = CopyFields
    COUNTS: ClassVar[Mapping[str, int]] = {"outs": 1, "ins": 1, "registers": 0}


@irdl_op_definition
class InstTensorCompletion(Instruction):
    """The point at which a tensor is complete: who waits for it waits for its writer only."""

    name = "instr.tensor_completion"
    NUMBER: ClassVar[int] = 94


@irdl_op_definition
class InstGetGlobalRankId(Instruction):
    """The number of this rank, in a register."""

    name = "instr.get_global_rank_id"
    NUMBER: ClassVar[int] = 11
    FIELDS: ClassVar[type[Fields]] = RankFields
    COUNTS: ClassVar[Mapping[str, int]] = {"outs": 0, "ins": 0, "registers": 0, "result": 1}


@irdl_op_definition
class InstGetCurProcessingRankID(Instruction):
    """The rank whose data this member of a ring holds after some steps, in a register."""

    name = "instr.get_cur_processing_rank_id"
    NUMBER: ClassVar[int] = 66
    FIELDS: ClassVar[type[Fields]] = RingFields
    COUNTS: ClassVar[Mapping[str, int]] = {"outs": 0, "ins": 0, "registers": 0, "result": 1}

    def check(self) -> None:
        """Its ring is made of groups."""
        check_ring(self.label, self.fields)


@irdl_op_definition
class InstCompute(Instruction):
    """A computation of one engine; its meaning is in `compute`."""

    name = "instr.compute"
    FIELDS: ClassVar[type[Fields]] = ComputeFields

    def check(self) -> None:
        """The function is one of `compute`, and its parameters are its own."""
        try:
            check_computation(self.fields.function, dict(self.fields.params))
        except ValueError as error:
            raise VerifyException(str(error)) from None


@irdl_op_definition
class InstRegisterAlu(Instruction):
    """Arithmetic on registers and numbers."""

    name = "instr.register_alu"
    FIELDS: ClassVar[type[Fields]] = AluFields
    COUNTS: ClassVar[Mapping[str, int]] = {"outs": 0, "ins": 0, "result": 1}

    def check(self) -> None:
        """The op is known, and each operand is a register or a number."""
        fields = self.fields
        if fields.op not in REGISTER_OPS:
            raise VerifyException(f"{self.label}: there is no op {fields.op!r} on registers")
        numbers = [n for n in (fields.left, fields.right) if n is not None]
        if len(self.registers) + len(numbers) != (1 if fields.op == "move" else 2):
            raise VerifyException(f"{self.label}: {fields.op} has another number of operands")
        outside = next((n for n in numbers if not -(1 << 31) <= n < 1 << 32), None)
        if outside is not None:
            raise VerifyException(f"{self.label}: {outside} does not fit into the 32 bits of a register")
        if fields.op.startswith("shift") and fields.right is not None and fields.right not in range(32):
            raise VerifyException(f"{self.label}: a register has 32 bits, and cannot be shifted by {fields.right}")


@irdl_op_definition
class InstRegisterLoad(Instruction):
    """Reads a register from an access of one element."""

    name = "instr.register_load"
    COUNTS: ClassVar[Mapping[str, int]] = {"outs": 0, "ins": 1, "registers": 0, "result": 1}

    def check(self) -> None:
        """One element."""
        _check_one(self.label, self.in_accesses[0])


@irdl_op_definition
class InstRegisterStore(Instruction):
    """Writes a register to an access of one element."""

    name = "instr.register_store"
    COUNTS: ClassVar[Mapping[str, int]] = {"outs": 1, "ins": 0, "registers": 1}

    def check(self) -> None:
        """One element."""
        _check_one(self.label, self.out_accesses[0])


def _check_one(label: str, access: AccessOp) -> None:
    if access.type.size != 1:
        raise VerifyException(f"{label}: a register holds one element, and the access has {access.type.size}")


INSTRUCTIONS: tuple[type[Instruction], ...] = (
    InstCollectiveCompute,
    InstSend,
    InstRecv,
    InstCoreBarrier,
    InstDMACopy,
    InstGPSIMDSB2SB,
    InstTensorCompletion,
    InstGetGlobalRankId,
    InstGetCurProcessingRankID,
    InstCompute,
    InstRegisterAlu,
    InstRegisterLoad,
    InstRegisterStore,
)

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
