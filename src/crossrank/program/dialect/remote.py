"""What a kernel says to its peers: remote reads and writes, signals, and the fences that order them.

A peer is a rank of the domain of the distributed tensor; offsets count elements of the peer's own view, which is where
this rank's is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from xdsl.dialects import scf
from xdsl.dialects.builtin import I64, IndexType, IntegerAttr, StringAttr, UnitAttr, i32
from xdsl.ir import BlockArgument, Operation, SSAValue
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

from crossrank.program.dialect.around import around, function_around
from crossrank.program.dialect.tensors import Values, ask, ask_within, known, number, shaped
from crossrank.program.dialect.tiles import ask_region, is_whole
from crossrank.program.kinds import AtomicType, NotifyOp, WaitCmp
from crossrank.program.types import ANY_TENSOR, UNKNOWN, DistTensorType, ShapedType, TileType, spelled

MOST_DEFERRED = 64
"""Completion conditions that one task may register."""
ADDABLE = ("f32", "bf16", "f16", "s32", "s16", "s8")
"""Element types that can be added to what is there, as one step."""


def ask_rank(op: str, what: str, values: Values, of: str, rank: int) -> None:
    """As many values as something has dimensions."""
    ask(len(values) == rank, f"{op} {what} rank ({len(values)}) must match {of} rank ({rank})")


def ask_addable(op: str, atomic: str, what: str, of: ShapedType) -> None:
    """There is such an `AtomicType`, and where it adds, elements of that type can be."""
    ask(atomic in AtomicType.__members__, f"{op} atomic must be AtomicType.None_ or AtomicType.Add, got {atomic}")
    ask(
        atomic != AtomicType.Add.name or of.dtype.name in ADDABLE,
        f"{op} with atomic=AtomicType.Add requires an fp32/bf16/fp16/int32/int16/int8 {what} (hardware atomic-add "
        f"dtypes), but got {spelled(of.dtype)}",
    )


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
        of, tile = shaped(self.target), shaped(self.result)
        ask(of.shape, f"{name} requires at least one dimension on target")
        ask_rank(name, "offsets", self.offsets, "target tensor", len(of.shape))
        ask(
            len(tile.shape) == len(of.shape),
            f"{name} shape rank ({len(tile.shape)}) must match target tensor rank ({len(of.shape)})",
        )
        if self.valid_shape:
            ask_rank(name, "valid_shape", self.valid_shape, "target tensor", len(of.shape))
        ask(
            tile.dtype is of.dtype,
            f"{name}: the tile is of {spelled(tile.dtype)}, the target of {spelled(of.dtype)}",
        )
        remedy = "; pass a smaller valid_shape to describe a ragged remote-load tail"
        ask_region(name, self.offsets, self.valid_shape, tile, of, remedy)


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

    def verify_(self) -> None:
        """A 2-D region that fits; elements of one type, which can be added where they are."""
        name = "pld.tile.remote_store"
        src, target = shaped(self.source), shaped(self.target)
        ask_rank(name, "offsets", self.offsets, "target tensor", len(target.shape))
        ask(
            src.dtype is target.dtype,
            f"{name} src dtype ({spelled(src.dtype)}) must match target dtype ({spelled(target.dtype)})",
        )
        rank = len(src.shape)
        ask(rank >= 2, f"{name} src must be at least 2-D (it is pushed as a 2-D region), got rank {rank}")
        for axis, extent in enumerate(src.shape[:-2]):
            ask(
                extent == 1,
                f"{name} src leading dimension {axis} must be 1 (only the inner two dims are pushed, and larger "
                f"leading dims fold into the row extent and overrun the target), got {extent}",
            )
        rank = len(target.shape)
        ask(rank >= 2, f"{name} target rank must be >= 2 to hold a 2-D push, got {rank}")
        ask_addable(name, self.atomic.data, "tile", src)
        pushed: Sequence[int | None] = src.extents[-2:] if is_whole(self.source) else (None, None)
        region = (*(1,) * (rank - 2), *pushed)
        for axis, (offset, rows, dim) in enumerate(zip(self.offsets, region, target.shape, strict=True)):
            ask_within(name, axis, known(offset), rows, dim)


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

    @property
    def title(self) -> str:
        """What an author calls it."""
        return self.name.replace("program.", "pld.tensor.")

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

    @property
    def chunk(self) -> tuple[int, int]:
        """Rows and columns of a piece; 0: all."""
        return self.chunk_rows.value.data, self.chunk_cols.value.data

    def verify_(self) -> None:
        """Elements of one type, as many dimensions, and a region that lies within both."""
        op, dst, src = self.title, shaped(self.dst), shaped(self.src)
        ask(
            dst.dtype is src.dtype,
            f"{op} dst and src must have the same element type, got dst {spelled(dst.dtype)} vs src "
            f"{spelled(src.dtype)}",
        )
        ask(dst.shape and src.shape, f"{op} requires at least one dimension on dst/src")
        ask(
            len(dst.shape) == len(src.shape),
            f"{op} dst rank ({len(dst.shape)}) must match src rank ({len(src.shape)})",
        )
        if self.shape or self.dst_offsets or self.src_offsets:
            self._verify_region(dst, src)
        else:
            self._verify_whole(dst, src)
        for what, chunk in zip(("chunk_rows", "chunk_cols"), self.chunk, strict=True):
            ask(chunk >= 0, f"{op} {what} must be non-negative (0 = full), got {chunk}")
        ask(
            self.pipeline is None or all(self.chunk),
            f"{op} pipeline=True requires both chunk_rows>0 and chunk_cols>0 (got chunk_rows={self.chunk[0]}, "
            f"chunk_cols={self.chunk[1]})",
        )
        ask_addable(op, self.atomic.data, "tensor", dst)

    def _verify_whole(self, dst: ShapedType, src: ShapedType) -> None:
        for axis, (a, b) in enumerate(zip(dst.shape, src.shape, strict=True)):
            if a == b or UNKNOWN in (a, b):
                continue
            ask(
                isinstance(a, str) or isinstance(b, str),
                f"{self.title} dst and src must have the same static shape; dimension {axis} differs (dst={a}, "
                f"src={b})",
            )
            ask(
                False,
                f"{self.title} full-slice dst and src must have the same shape; dimension {axis} differs (dynamic "
                "dims must match structurally)",
            )

    def _verify_region(self, dst: ShapedType, src: ShapedType) -> None:
        op, rank = self.title, len(dst.shape)
        ask(len(self.dst_offsets) == rank, f"{op} dst_offsets rank must match dst rank")
        ask(len(self.src_offsets) == rank, f"{op} src_offsets rank must match src rank")
        ask(len(self.shape) == rank, f"{op} shape rank must match tensor rank")
        for side, offsets, dims in (("dst", self.dst_offsets, dst.shape), ("src", self.src_offsets, src.shape)):
            for axis, (offset, extent, dim) in enumerate(zip(offsets, self.shape, dims, strict=True)):
                o, s = known(offset), known(extent)
                ask(o is None or o >= 0, f"{op} {side}_offsets dimension {axis} must be non-negative, got {o}")
                ask(s is None or s >= 0, f"{op} shape dimension {axis} must be non-negative, got {s}")
                if isinstance(dim, int) and s is not None:
                    ask(
                        (o or 0) + s <= dim,
                        f"{op} {side} subregion dimension {axis} exceeds {side} shape (offset={o or 0}, shape={s}, "
                        f"{side}_dim={dim})",
                    )


@irdl_op_definition
class PutOp(TransferOp):
    """Own elements to a peer's; the result is ``dst``."""

    name = "program.put"

    def verify_(self) -> None:
        """The peer's side is a window."""
        ask_window(self.title, "dst", self.dst)
        ask_tensor(self.title, "src", self.src)
        super().verify_()


@irdl_op_definition
class GetOp(TransferOp):
    """A peer's elements to own ones; the result is ``dst``."""

    name = "program.get"

    def verify_(self) -> None:
        """The peer's side is a window; nothing is added."""
        ask_tensor(self.title, "dst", self.dst)
        ask_window(self.title, "src", self.src)
        super().verify_()
        ask(self.atomic.data == AtomicType.None_.name, f"{self.title} has no atomic")


def ask_window(op: str, what: str, value: SSAValue) -> None:
    """A view of a window."""
    ask(
        isinstance(value.type, DistTensorType),
        f"{op} {what} must be a DistributedTensor (window-bound), got {spelled(value.type)}",
    )


def ask_tensor(op: str, what: str, value: SSAValue) -> None:
    """A tensor, of a window or not."""
    ask(
        isinstance(value.type, ANY_TENSOR),
        f"{op} {what} must be a Tensor or DistributedTensor, got {spelled(value.type)}",
    )


def ask_cell(op: str, what: str, signal: SSAValue, offsets: Values) -> None:
    """A cell of a signal: of INT32, an offset for each dimension, none of them outside."""
    ask_window(op, what, signal)
    of = shaped(signal)
    ask(of.dtype.name == "s32", f"{op} {what} dtype must be INT32, got {spelled(of.dtype)}")
    ask(of.shape, f"{op} {what} rank must be at least 1, got 0")
    ask_rank(op, "offsets", offsets, f"{what} tensor", len(of.shape))
    for axis, (offset, dim) in enumerate(zip(offsets, of.shape, strict=True)):
        ask_within(op, axis, known(offset), 1, dim)


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

    def verify_(self) -> None:
        """A cell; there is such a `NotifyOp`."""
        ask_cell("pld.system.notify", "target", self.target, self.offsets)
        ask(
            self.op.data in NotifyOp.__members__,
            f"pld.system.notify op must be NotifyOp.AtomicAdd or NotifyOp.Set (got {self.op.data})",
        )


class ConditionOp(IRDLOperation):
    """What `WaitOp` and `DeferWaitOp` share: an own cell of a signal, and what it is to be."""

    signal = operand_def(DistTensorType)
    offsets = var_operand_def(IndexType)
    expected = operand_def(i32)
    cmp = prop_def(StringAttr)
    assembly_format = "$signal `[` $offsets `]` `,` $expected `cmp` $cmp attr-dict `:` type($signal)"

    def __init__(self, signal: SSAValue, offsets: Values, expected: SSAValue, cmp: WaitCmp) -> None:
        super().__init__(operands=[signal, offsets, expected], properties={"cmp": StringAttr(cmp.name)})


@irdl_op_definition
class WaitOp(ConditionOp):
    """Waits until an own cell of a signal is what is expected, or at least that."""

    name = "program.wait"

    def verify_(self) -> None:
        """A cell; there is such a `WaitCmp`."""
        ask_cell("pld.system.wait", "signal", self.signal, self.offsets)
        ask(
            self.cmp.data in WaitCmp.__members__,
            f"pld.system.wait cmp must be WaitCmp.Eq or WaitCmp.Ge (got {self.cmp.data})",
        )


@irdl_op_definition
class DeferWaitOp(ConditionOp):
    """Lets the task be over only when an own cell of a signal is at least what is expected; returns at once."""

    name = "program.defer_wait"

    def verify_(self) -> None:
        """A cell of a window that the function is given; no more of them than a task may register."""
        name = "pld.system.defer_wait"
        ask_cell(name, "signal", self.signal, self.offsets)
        ask(
            isinstance(self.signal, BlockArgument),
            f"{name} signal must be a window parameter itself, not a view of one",
        )
        expected = known(self.expected)
        ask(
            expected is None or expected >= 0,
            f"{name} constant expected must be in [0, INT32_MAX], got {expected}",
        )
        ask(self.cmp.data == WaitCmp.Ge.name, f"{name} only supports WaitCmp.Ge (got WaitCmp.{self.cmp.data})")
        if (count := sum(_times(op) for op in _deferred(self))) > MOST_DEFERRED:
            ask(False, f"{name}: a task may register {MOST_DEFERRED} completion conditions, and this one has {count}")


def _deferred(op: Operation) -> Iterator[DeferWaitOp]:
    """The deferred waits of the function that an op is in; of a body that has no function yet, the op itself."""
    return (o for o in (function_around(op) or op).walk() if isinstance(o, DeferWaitOp))


def _times(op: Operation) -> int:
    """How often an op runs in one run of its function, as far as loops' bounds are known."""
    times = 1
    for loop in around(op):
        if isinstance(loop, scf.ForOp):
            low, high, step = (known(v) for v in (loop.lb, loop.ub, loop.step))
            if low is not None and high is not None and step:
                times *= len(range(low, high, step))
    return times


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
    assembly_format = "(`of` $region^ `:` type($region))? attr-dict"

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
