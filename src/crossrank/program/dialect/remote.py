"""What a kernel says to its peers: remote reads and writes, signals, and the fences that order them.

A peer is a rank of the domain of the distributed tensor; offsets count elements of the peer's own view, which is where
this rank's is.
"""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import I64, IndexType, IntegerAttr, StringAttr, UnitAttr, i32
from xdsl.ir import SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    VarConstraint,
    base,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    var_operand_def,
)

from crossrank.program.dialect.tensors import Values, ask, ask_indices, number, shaped
from crossrank.program.kinds import AtomicType, NotifyOp, WaitCmp
from crossrank.program.types import DistTensorType, ShapedType, TileType

MOST_DEFERRED = 64
"""Completion conditions that one task may register."""


@irdl_op_definition
class RemoteLoadOp(IRDLOperation):
    """A tile of a peer's elements; ``valid_shape`` limits what is read."""

    name = "program.remote_load"
    target = operand_def(DistTensorType)
    peer = operand_def(IndexType)
    offsets = var_operand_def(IndexType)
    valid_shape = var_operand_def(IndexType)
    result = result_def(TileType)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    assembly_format = (
        "$target `at` $peer `[` $offsets `]` `valid` `[` $valid_shape `]` attr-dict `:` type($target) "
        "`->` type($result)"
    )

    def __init__(
        self, target: SSAValue, peer: SSAValue, offsets: Values, type: TileType, valid_shape: Values = ()
    ) -> None:
        super().__init__(operands=[target, peer, offsets, valid_shape], result_types=[type])

    def verify_(self) -> None:
        """As a load."""
        name = "pld.tile.remote_load"
        ask_indices(name, "offsets", self.offsets, self.target)
        of, tile = shaped(self.target), shaped(self.result)
        ask(len(tile.shape) == len(of.shape), f"{name}: shape must have {len(of.shape)} entries, got {len(tile.shape)}")
        ask(tile.dtype is of.dtype, f"{name}: the tile is of {tile.dtype}, the target of {of.dtype}")
        ask(
            len(self.valid_shape) in (0, len(tile.shape)),
            f"{name}: valid_shape must have {len(tile.shape)} entries, got {len(self.valid_shape)}",
        )


@irdl_op_definition
class RemoteStoreOp(IRDLOperation):
    """A tile into a peer's elements, replacing them or added to them; the result is the target."""

    name = "program.remote_store"
    T: ClassVar = VarConstraint("T", base(DistTensorType))
    source = operand_def(TileType)
    target = operand_def(T)
    peer = operand_def(IndexType)
    offsets = var_operand_def(IndexType)
    atomic = prop_def(StringAttr)
    result = result_def(T)
    assembly_format = (
        "$source `,` $target `at` $peer `[` $offsets `]` `atomic` $atomic attr-dict `:` type($source) `,` type($target)"
    )

    def __init__(self, source: SSAValue, target: SSAValue, peer: SSAValue, offsets: Values, atomic: AtomicType) -> None:
        super().__init__(
            operands=[source, target, peer, offsets],
            properties={"atomic": StringAttr(atomic.name)},
            result_types=[target.type],
        )


class TransferOp(IRDLOperation):
    """What `PutOp` and `GetOp` share: a region of ``src`` to one of ``dst``, one of them a peer's.

    Without ``shape`` it is the whole of both. ``chunk`` says in which pieces rows and columns go (0: at once).
    """

    T: ClassVar = VarConstraint("T", base(ShapedType))
    dst = operand_def(T)
    peer = operand_def(IndexType)
    src = operand_def(ShapedType)
    dst_offsets = var_operand_def(IndexType)
    src_offsets = var_operand_def(IndexType)
    shape = var_operand_def(IndexType)
    atomic = prop_def(StringAttr)
    chunk_rows = prop_def(IntegerAttr[I64])
    chunk_cols = prop_def(IntegerAttr[I64])
    pipeline = opt_prop_def(UnitAttr)
    result = result_def(T)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    assembly_format = (
        "$dst `at` $peer `from` $src `[` $dst_offsets `]` `[` $src_offsets `]` `[` $shape `]` `atomic` $atomic "
        "`chunks` $chunk_rows $chunk_cols (`pipeline` $pipeline^)? attr-dict `:` type($dst) `,` type($src)"
    )

    def __init__(
        self,
        dst: SSAValue,
        peer: SSAValue,
        src: SSAValue,
        region: tuple[Values, Values, Values] | None = None,
        *,
        atomic: AtomicType = AtomicType.None_,
        chunk: tuple[int, int] = (0, 0),
        pipeline: bool = False,
    ) -> None:
        super().__init__(
            operands=[dst, peer, src, *(region or ((), (), ()))],
            properties={
                "atomic": StringAttr(atomic.name),
                "chunk_rows": number(chunk[0]),
                "chunk_cols": number(chunk[1]),
                "pipeline": UnitAttr() if pipeline else None,
            },
            result_types=[dst.type],
        )


@irdl_op_definition
class PutOp(TransferOp):
    """Own elements to a peer's; the result is ``dst``."""

    name = "program.put"


@irdl_op_definition
class GetOp(TransferOp):
    """A peer's elements to own ones; the result is ``dst``."""

    name = "program.get"


@irdl_op_definition
class NotifySignalOp(IRDLOperation):
    """Adds to a cell of a peer's signal, or sets it; a peer may be oneself."""

    name = "program.notify"
    target = operand_def(DistTensorType)
    peer = operand_def(IndexType)
    offsets = var_operand_def(IndexType)
    value = operand_def(i32)
    op = prop_def(StringAttr)
    assembly_format = "$target `at` $peer `[` $offsets `]` `,` $value `op` $op attr-dict `:` type($target)"

    def __init__(self, target: SSAValue, peer: SSAValue, offsets: Values, value: SSAValue, op: NotifyOp) -> None:
        super().__init__(operands=[target, peer, offsets, value], properties={"op": StringAttr(op.name)})


@irdl_op_definition
class WaitOp(IRDLOperation):
    """Waits until an own cell of a signal is what is expected, or at least that."""

    name = "program.wait"
    signal = operand_def(DistTensorType)
    offsets = var_operand_def(IndexType)
    expected = operand_def(i32)
    cmp = prop_def(StringAttr)
    assembly_format = "$signal `[` $offsets `]` `,` $expected `cmp` $cmp attr-dict `:` type($signal)"

    def __init__(self, signal: SSAValue, offsets: Values, expected: SSAValue, cmp: WaitCmp) -> None:
        super().__init__(operands=[signal, offsets, expected], properties={"cmp": StringAttr(cmp.name)})


@irdl_op_definition
class DeferWaitOp(IRDLOperation):
    """Lets the task be over only when an own cell of a signal is at least what is expected; returns at once."""

    name = "program.defer_wait"
    signal = operand_def(DistTensorType)
    offsets = var_operand_def(IndexType)
    expected = operand_def(i32)
    cmp = prop_def(StringAttr)
    assembly_format = "$signal `[` $offsets `]` `,` $expected `cmp` $cmp attr-dict `:` type($signal)"

    def __init__(self, signal: SSAValue, offsets: Values, expected: SSAValue, cmp: WaitCmp) -> None:
        super().__init__(operands=[signal, offsets, expected], properties={"cmp": StringAttr(cmp.name)})


@irdl_op_definition
class FenceOp(IRDLOperation):
    """What was written before is visible to whoever sees what is notified after."""

    name = "program.comm_fence"
    assembly_format = "attr-dict"


@irdl_op_definition
class InvalidateOp(IRDLOperation):
    """What is read after it is not stale: of a tensor, or of all memory."""

    name = "program.cache_invalidate"
    region = opt_operand_def(ShapedType)
    assembly_format = "($region^ `:` type($region))? attr-dict"

    def __init__(self, region: SSAValue | None = None) -> None:
        super().__init__(operands=[region])


OPS = (
    RemoteLoadOp,
    RemoteStoreOp,
    PutOp,
    GetOp,
    NotifySignalOp,
    WaitOp,
    DeferWaitOp,
    FenceOp,
    InvalidateOp,
)
