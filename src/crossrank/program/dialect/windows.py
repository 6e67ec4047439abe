"""Windows and who shares them."""

from __future__ import annotations

import math

from xdsl.dialects.builtin import IndexType, StringAttr, UnitAttr
from xdsl.ir import SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import Pure

from crossrank.program.dialect.tensors import Values, ask, known, shaped
from crossrank.program.types import CommCtxType, DistTensorType, WindowBufferType


class NumberOp(IRDLOperation):
    """A number that is known where an op stands."""

    result = result_def(IndexType)
    traits = traits_def(Pure())
    assembly_format = "attr-dict"

    def __init__(self) -> None:
        super().__init__(result_types=[IndexType()])


class DomainNumberOp(IRDLOperation):
    """A number of a domain."""

    ctx = operand_def(CommCtxType)
    result = result_def(IndexType)
    traits = traits_def(Pure())
    assembly_format = "$ctx attr-dict"

    def __init__(self, ctx: SSAValue) -> None:
        super().__init__(operands=[ctx], result_types=[IndexType()])


@irdl_op_definition
class WorldSizeOp(NumberOp):
    """How many devices the program runs on (HOST only)."""

    name = "program.world_size"


@irdl_op_definition
class AllocWindowOp(IRDLOperation):
    """A buffer of so many bytes on each device that uses it, zero-filled (HOST only); its name is the author's."""

    name = "program.alloc_window_buffer"
    sym_name = prop_def(StringAttr)
    size = operand_def(IndexType)
    result = result_def(WindowBufferType)
    assembly_format = "$sym_name `,` $size attr-dict"

    def __init__(self, name: str, size: SSAValue) -> None:
        super().__init__(operands=[size], properties={"sym_name": StringAttr(name)}, result_types=[WindowBufferType()])

    @property
    def window(self) -> str:
        """The buffer's name."""
        return self.sym_name.data

    def verify_(self) -> None:
        """It has a name."""
        ask(self.window, "pld.tensor.alloc_window_buffer requires a non-empty 'name' kwarg")


@irdl_op_definition
class WindowOp(IRDLOperation):
    """A buffer as a distributed tensor, from the buffer's start (HOST only)."""

    name = "program.window"
    buffer = operand_def(WindowBufferType)
    extents = var_operand_def(IndexType)
    result = result_def(DistTensorType)
    assembly_format = "$buffer `[` $extents `]` attr-dict `:` type($result)"

    def __init__(self, buffer: SSAValue, extents: Values, type: DistTensorType) -> None:
        super().__init__(operands=[buffer, extents], result_types=[type])

    def verify_(self) -> None:
        """An extent for each dimension; no more bytes than the buffer has, where both are known."""
        type, buffer = shaped(self.result), self.buffer.owner
        size = known(buffer.size) if isinstance(buffer, AllocWindowOp) else None
        if size is not None and type.is_static:
            needed = math.prod(type.extents) * type.dtype.itemsize
            ask(needed <= size, f"pld.tensor.window: {type.described} takes {needed} bytes, and the buffer has {size}")
        ask(len(self.extents) == len(shaped(self.result).shape), "pld.tensor.window: one extent for each dimension")


@irdl_op_definition
class GetCommCtxOp(IRDLOperation):
    """The context of a distributed tensor's domain."""

    name = "program.get_comm_ctx"
    source = operand_def(DistTensorType)
    result = result_def(CommCtxType)
    traits = traits_def(Pure())
    assembly_format = "$source attr-dict `:` type($source)"

    def __init__(self, source: SSAValue) -> None:
        super().__init__(operands=[source], result_types=[CommCtxType()])


@irdl_op_definition
class RankOp(DomainNumberOp):
    """This rank's number within a domain (CHIP and InCore only)."""

    name = "program.rank"


@irdl_op_definition
class NumRanksOp(DomainNumberOp):
    """How many ranks a domain has (CHIP and InCore only)."""

    name = "program.nranks"


@irdl_op_definition
class BlockIndexOp(NumberOp):
    """Which block of its launch this is (InCore only)."""

    name = "program.block_idx"


@irdl_op_definition
class NumBlocksOp(NumberOp):
    """How many blocks its launch has (InCore only)."""

    name = "program.block_num"


@irdl_op_definition
class SymbolOp(IRDLOperation):
    """The value of a symbolic extent, bound by the arguments of the function that has it among its parameters."""

    name = "program.symbol"
    symbol = prop_def(StringAttr)
    result = result_def(IndexType)
    traits = traits_def(Pure())
    assembly_format = "$symbol attr-dict"

    def __init__(self, symbol: str) -> None:
        super().__init__(properties={"symbol": StringAttr(symbol)}, result_types=[IndexType()])


@irdl_op_definition
class LaunchWidthOp(IRDLOperation):
    """In how many blocks a managed collective is launched, of at most ``core_num`` (HOST and CHIP only).

    ``folds``: so many that each peer of the signal's domain has as many as any other, once there are enough. It fails
    where there could be none, and where the signal, ``[ranks, stride]``, has not a column for each.
    """

    name = "program.launch_width"
    core_num = operand_def(IndexType)
    signal = operand_def(DistTensorType)
    folds = opt_prop_def(UnitAttr)
    result = result_def(IndexType)
    assembly_format = "$core_num `signal` $signal (`folds` $folds^)? attr-dict `:` type($signal)"

    def __init__(self, core_num: SSAValue, signal: SSAValue, *, folds: bool = False) -> None:
        super().__init__(
            operands=[core_num, signal],
            properties={"folds": UnitAttr() if folds else None},
            result_types=[IndexType()],
        )


OPS = (
    WorldSizeOp,
    AllocWindowOp,
    WindowOp,
    GetCommCtxOp,
    RankOp,
    NumRanksOp,
    BlockIndexOp,
    NumBlocksOp,
    SymbolOp,
    LaunchWidthOp,
)
