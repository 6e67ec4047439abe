"""The instructions of the dialect: what a core executes, by the names and numbers of the source."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    irdl_op_definition,
    opt_prop_def,
    opt_result_def,
    prop_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from crossrank.instr.compute import check as check_computation
from crossrank.instr.fields import (
    AluFields,
    BarrierFields,
    CollectiveFields,
    ComputeFields,
    CopyFields,
    Fields,
    PeerFields,
    RankFields,
    RingFields,
    parse_fields,
    parse_string,
    print_fields,
    quoted,
)
from crossrank.instr.operands import AccessOp, FieldsAttr, Named, operand
from crossrank.instr.registers import OPS as REGISTER_OPS
from crossrank.instr.types import RegisterType, TensorType
from crossrank.instr.verify import check_barrier, check_collective, check_not_self, check_ring


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
                parser.parse_comma_separated_list(parser.Delimiter.PAREN, partial(operand, parser)) if given else []
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
