"""The types of the dialect: tensors (and accesses to them), and registers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.ir import Data, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from crossrank.collective.dtypes import DType, dtype
from crossrank.instr.kinds import Space


@irdl_attr_definition
class TensorType(Data[tuple[tuple[int, ...], DType, Space]], TypeAttribute):
    """The shape, element type and space of a tensor, or of an access to one."""

    name = "instr.tensor"

    @staticmethod
    def of(shape: Sequence[int], dtype: DType, space: Space) -> TensorType:
        """The type of those three."""
        return TensorType.new((tuple(shape), dtype, space))

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        return self.data[0]

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.data[1]

    @property
    def space(self) -> Space:
        """Where it lies."""
        return self.data[2]

    @property
    def described(self) -> str:
        """Type and shape, as messages write them."""
        return f"{self.dtype}{list(self.shape)}"

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[tuple[int, ...], DType, Space]:
        """Read ``<[128, 512], f32, sbuf>``."""
        with parser.in_angle_brackets():
            shape = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
            parser.parse_punctuation(",")
            name = parser.parse_identifier()
            parser.parse_punctuation(",")
            space = parser.parse_identifier()
        try:
            return tuple(shape), dtype(name), Space(space)
        except ValueError as error:
            parser.raise_error(str(error))

    def print_parameter(self, printer: Printer) -> None:
        """Write it so."""
        shape, element, space = self.data
        printer.print_string(f"<[{', '.join(map(str, shape))}], {element.name}, {space}>")


@irdl_attr_definition
class RegisterType(ParametrizedAttribute, TypeAttribute):
    """A scalar register of 32 bits. Arithmetic takes it as signed."""

    name = "instr.register"
