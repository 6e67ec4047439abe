"""What instructions work on, in the dialect: tensors, and accesses to their elements."""

from __future__ import annotations

import re
from abc import ABC
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, cast

from xdsl.ir import Data, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    prop_def,
    result_def,
    var_operand_def,
)
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from crossrank.collective.dtypes import dtype
from crossrank.instr.access import AccessPattern
from crossrank.instr.fields import (
    AccessFields,
    Fields,
    TensorFields,
    parse_fields,
    print_fields,
)
from crossrank.instr.kinds import PARTITIONS
from crossrank.instr.types import RegisterType, TensorType


@irdl_attr_definition
class FieldsAttr(Data[Fields]):
    """The fields of an instruction (see `fields`)."""

    name = "instr.fields"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Fields:
        """Read ``<CopyFields {dma_qos = 1}>``, the form inside the generic form of an instruction."""
        with parser.in_angle_brackets():
            kinds: list[type[Fields]] = [Fields, *Fields.__subclasses__()]
            known = {kind.__name__: kind for kind in kinds}
            name = parser.parse_identifier()
            if name not in known:
                parser.raise_error(f"there are no fields {name}")
            return parse_fields(parser, known[name])

    def print_parameter(self, printer: Printer) -> None:
        """Write it so."""
        printer.print_string(f"<{type(self.data).__name__} ")
        print_fields(printer, self.data)
        printer.print_string(">")


def operand(parser: Parser) -> SSAValue:
    """A value that was made before; its type is that of its making, which the text does not repeat."""
    named = parser.parse_unresolved_operand()
    values = parser.ssa_values.get(named.operand_name, ())
    if named.index >= len(values):
        parser.raise_error(f"%{named.operand_name} is used before it is made", named.span)
    return values[named.index]


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
        tensor = operand(parser)
        if not isinstance(tensor.type, TensorType):
            parser.raise_error("an access is to a tensor")
        registers = parser.parse_optional_comma_separated_list(parser.Delimiter.SQUARE, partial(operand, parser))
        index = operand(parser) if parser.parse_optional_keyword("index") else None
        fields = cast(AccessFields, parse_fields(parser, AccessFields))
        try:
            return cls(tensor, fields, registers or (), index)
        except ValueError as error:
            parser.raise_error(str(error))


def _accessed(tensor: TensorType, fields: AccessFields) -> TensorType:
    """The type of an access to a tensor."""
    element = dtype(fields.dtype) if fields.dtype else tensor.dtype
    return TensorType.of([n for _, n in fields.pattern], element, tensor.space)


def _hint(name: str) -> str | None:
    """A name for a value in the text, which numbers those that are alike; None where the text cannot have it."""
    word = "".join(c if c.isalnum() or c in "_$." else "_" for c in name)
    word = re.sub(r"(_[0-9]+)+$", "", word)
    return word if SSAValue.is_valid_name(word) else None
