"""Collectives on distributed tensors. Each gives its target back: ``data = pld.tensor.allreduce(data, signal)``.

The same op stands in a HOST orchestrator, in a CHIP orchestration, or in a kernel, and each rail lowers its own. The
texts of the verifiers are the language's.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from xdsl.dialects.builtin import I64, IndexType, IntegerAttr, StringAttr
from xdsl.ir import SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    VarConstraint,
    base,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    prop_def,
    result_def,
)

from crossrank.program.dialect.remote import ask_window
from crossrank.program.dialect.tensors import ask, known, number, shaped
from crossrank.program.kinds import ReduceOp
from crossrank.program.types import ANY_TENSOR, Dim, DistTensorType, ShapedType, spelled

MODES = ("mesh", "ring")
BARRIER_SLOT = " (the barrier slot is an int counter)"


def _differ(a: Dim, b: Dim) -> bool:
    """Whether two extents are known to be different."""
    return isinstance(a, int) and isinstance(b, int) and a != b


class CollectiveOp(IRDLOperation):
    """What all collectives are: they have a title that messages begin with, and they give their target."""

    @property
    def title(self) -> str:
        """What an author calls it."""
        return self.name.replace("program.", "pld.tensor.")

    def ask(self, holds: object, what: str) -> None:
        """Raise a VerifyException that begins with the collective's name where something does not hold."""
        ask(holds, f"{self.title} {what}")

    def ask_cells(self, what: str, cells: SSAValue, why: str = "") -> None:
        """A distributed tensor of s32, as signals are, and counts that peers write."""
        ask_window(self.title, what, cells)
        self.ask_int32(what, cells, why)

    def ask_int32(self, what: str, of: SSAValue, why: str = "") -> None:
        """Elements of s32."""
        element = shaped(of).dtype
        self.ask(element.name == "s32", f"{what} must have INT32 element type{why}, got dtype {spelled(element)}")

    def ask_local(self, what: str, value: SSAValue) -> None:
        """What only its own rank reads: a tensor, of a window or not."""
        self.ask(
            isinstance(value.type, ANY_TENSOR),
            f"{what} must be a Tensor or DistributedTensor, got {spelled(value.type)}",
        )

    def ask_2d(self, what: str, value: SSAValue, form: str) -> None:
        """Two dimensions."""
        rank = len(shaped(value).shape)
        self.ask(rank == 2, f"{what} must be 2D {form}, got {rank} dims")

    def ask_apart(self, source: SSAValue, target: SSAValue, what: str) -> None:
        """What is sent and where it arrives are not the same value."""
        self.ask(
            source is not target,
            f"input and target must be different {what}, but the same expression was passed for both",
        )

    def ask_two(self, source: SSAValue, target: SSAValue) -> None:
        """The same of what is sent while peers send."""
        self.ask(
            source is not target,
            "input and target must be two distinct buffers; in-place reuse races this rank's outgoing reads against "
            "incoming peer pushes",
        )

    def ask_same_elements(self, source: SSAValue, target: SSAValue) -> None:
        """Elements of one type."""
        mine, theirs = shaped(target).dtype, shaped(source).dtype
        self.ask(mine is theirs, f"target dtype {spelled(mine)} must match input dtype {spelled(theirs)}")

    def ask_column(self, what: str, value: SSAValue) -> None:
        """One cell for each rank: ``[NR]`` or ``[NR, 1]``."""
        shape = shaped(value).shape
        self.ask(len(shape) in (1, 2), f"{what} must be 1D [NR] or 2D [NR, 1], got {len(shape)} dims")
        if len(shape) == 2:
            self.ask(not _differ(shape[1], 1), f"{what} second dimension must be 1, got {shape[1]}")

    def ask_blocks(self, source: SSAValue, target: SSAValue, signal: SSAValue) -> None:
        """A target with as many rows for each rank as for any other, of the source's extent and type."""
        self.ask_2d("target", target, "[NR*MAX_RECV, SIZE]")
        size, (rows, extent) = shaped(source).shape[1], shaped(target).shape
        self.ask(not _differ(extent, size), "target SIZE must equal input SIZE")
        self.ask_same_elements(source, target)
        self.ask_full(input=source, target=target)
        self.ask_cells("signal", signal)
        self.ask_2d("signal", signal, "[NR, 1]")
        ranks = shaped(signal).shape[0]
        if isinstance(ranks, int):
            self.ask(ranks > 0, f"signal dim 0 (NR) must be positive, got {ranks}")
            self.ask(
                not isinstance(rows, int) or rows % ranks == 0,
                f"signal dim 0 ({ranks}) must divide target dim 0 ({rows})",
            )

    def ask_counts(self, what: str, counts: SSAValue, signal: SSAValue) -> None:
        """An INT32 for each rank."""
        self.ask_int32(what, counts)
        self.ask_column(what, counts)
        entries, ranks = shaped(counts).shape[0], shaped(signal).shape[0]
        self.ask(
            not _differ(entries, ranks),
            f"{what} dim 0 ({entries}) must equal signal dim 0 (NR = {ranks})",
        )

    def ask_full(self, **operands: SSAValue) -> None:
        """All of each is valid: no gap where nothing means anything."""
        for role, value in operands.items():
            of = shaped(value)
            for axis, (valid, extent) in enumerate(zip(of.valid, of.shape, strict=False)):
                self.ask(
                    valid == extent,
                    f"{role} must be a full, packed view; dim {axis} has valid_shape {valid} < shape {extent}, so the "
                    "payload is not contiguous",
                )

    def ask_op(self, op: StringAttr) -> None:
        """There is such a `ReduceOp`."""
        self.ask(op.data in ReduceOp.__members__, f"op must be ReduceOp.Sum, Max, Min, or Prod (got {op.data})")

    def ask_core_num(self, core_num: SSAValue | None) -> None:
        """At least one core."""
        number = None if core_num is None else known(core_num)
        self.ask(number is None or number > 0, f"core_num must be positive, got {number}")

    @property
    @abstractmethod
    def returned(self) -> SSAValue:
        """The operand that it gives back."""


class InPlaceOp(CollectiveOp):
    """A collective whose target is what it takes, too."""

    T: ClassVar = VarConstraint("T", base(DistTensorType))
    target = operand_def(T)
    signal = operand_def(ShapedType)
    result = result_def(T)

    @property
    def returned(self) -> SSAValue:
        """The target."""
        return self.target


class ExchangeOp(CollectiveOp):
    """A collective from a source to a target, and nothing else: xDSL puts operands of a class before its base's."""

    T: ClassVar = VarConstraint("T", base(DistTensorType))
    source = operand_def(ShapedType)
    target = operand_def(T)
    signal = operand_def(ShapedType)
    result = result_def(T)
    assembly_format = (
        "$source `,` $target `signal` $signal attr-dict `:` type($source) `,` type($target) `,` type($signal)"
    )

    def __init__(self, source: SSAValue, target: SSAValue, signal: SSAValue) -> None:
        super().__init__(operands=[source, target, signal], result_types=[target.type])

    @property
    def returned(self) -> SSAValue:
        """The target."""
        return self.target


@irdl_op_definition
class AllReduceOp(CollectiveOp):
    """Every rank's data becomes the reduction of all, in place.

    Without a signal (HOST only) one is made for it.
    """

    name = "program.allreduce"
    T: ClassVar = VarConstraint("T", base(DistTensorType))
    target = operand_def(T)
    signal = opt_operand_def(ShapedType)
    core_num = opt_operand_def(IndexType)
    op = prop_def(StringAttr)
    mode = prop_def(StringAttr)
    result = result_def(T)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    assembly_format = (
        "$target (`signal` $signal^ `:` type($signal))? (`core_num` $core_num^)? `op` $op `mode` $mode attr-dict `:` "
        "type($target)"
    )

    def __init__(
        self,
        target: SSAValue,
        signal: SSAValue | None,
        *,
        op: ReduceOp = ReduceOp.Sum,
        mode: str = "mesh",
        core_num: SSAValue | None = None,
    ) -> None:
        super().__init__(
            operands=[target, signal, core_num],
            properties={"op": StringAttr(op.name), "mode": StringAttr(mode)},
            result_types=[target.type],
        )

    @property
    def returned(self) -> SSAValue:
        """The target."""
        return self.target

    def verify_(self) -> None:
        """There is such an op, and such a mode; a ring has a signal."""
        self.ask_op(self.op)
        self.ask(self.mode.data in MODES, f'mode must be "mesh" or "ring", got "{self.mode.data}"')
        if self.signal is not None:
            self.ask_cells("signal", self.signal, BARRIER_SLOT)
        self.ask(
            self.signal is not None or self.mode.data == "mesh",
            'mode="ring" requires an explicit signal; host signal synthesis only supports mesh mode. Pass a '
            'window-bound signal, e.g. pld.tensor.allreduce(target, signal, mode="ring").',
        )
        self.ask_core_num(self.core_num)


@irdl_op_definition
class BarrierOp(CollectiveOp):
    """Nobody goes on before all have come; gives the signal."""

    name = "program.barrier"
    T: ClassVar = VarConstraint("T", base(DistTensorType))
    signal = operand_def(T)
    result = result_def(T)
    assembly_format = "$signal attr-dict `:` type($signal)"

    def __init__(self, signal: SSAValue) -> None:
        super().__init__(operands=[signal], result_types=[signal.type])

    @property
    def returned(self) -> SSAValue:
        """The signal."""
        return self.signal

    def verify_(self) -> None:
        """A signal of s32."""
        self.ask_cells("signal", self.signal, BARRIER_SLOT)


@irdl_op_definition
class BroadcastOp(InPlaceOp):
    """Every rank's data becomes that of one, in place."""

    name = "program.broadcast"
    root = prop_def(IntegerAttr[I64])
    assembly_format = "$target `signal` $signal `root` $root attr-dict `:` type($target) `,` type($signal)"

    def __init__(self, target: SSAValue, signal: SSAValue, root: int) -> None:
        super().__init__(operands=[target, signal], properties={"root": number(root)}, result_types=[target.type])

    def verify_(self) -> None:
        """A root that can be."""
        self.ask_cells("signal", self.signal)
        self.ask(self.root.value.data >= 0, f"root rank must be non-negative, got {self.root.value.data}")


@irdl_op_definition
class AllGatherOp(ExchangeOp):
    """Row r of every rank's target becomes what rank r had."""

    name = "program.allgather"

    def verify_(self) -> None:
        """A chunk, a row of the target for each rank, a cell of the signal for each rank."""
        self.ask_apart(self.source, self.target, "buffers")
        self.ask_local("input", self.source)
        self.ask_2d("input", self.source, "[1, SIZE] (this rank's single chunk)")
        chunk, rows, cells = (shaped(v).shape for v in (self.source, self.target, self.signal))
        self.ask(
            not _differ(chunk[0], 1),
            f"input must be [1, SIZE] (this rank's single chunk), got first dim {chunk[0]}",
        )
        self.ask_2d("target", self.target, "[NR, SIZE]")
        self.ask_same_elements(self.source, self.target)
        self.ask(not _differ(rows[1], chunk[1]), "target SIZE must equal input SIZE")
        self.ask_cells("signal", self.signal)
        self.ask_column("signal", self.signal)
        self.ask(
            not _differ(cells[0], rows[0]),
            f"signal first dimension ({cells[0]}) must equal target first dimension ({rows[0]})",
        )


@irdl_op_definition
class ReduceScatterOp(InPlaceOp):
    """Row r of rank r's target becomes the reduction of all ranks' rows r."""

    name = "program.reduce_scatter"
    op = prop_def(StringAttr)
    assembly_format = "$target `signal` $signal `op` $op attr-dict `:` type($target) `,` type($signal)"

    def __init__(self, target: SSAValue, signal: SSAValue, op: ReduceOp = ReduceOp.Sum) -> None:
        super().__init__(operands=[target, signal], properties={"op": StringAttr(op.name)}, result_types=[target.type])

    def verify_(self) -> None:
        """A row of the target for each rank; there is such an op."""
        self.ask_2d("target", self.target, "[NR, SIZE]")
        self.ask_cells("signal", self.signal)
        self.ask_op(self.op)


@irdl_op_definition
class AllToAllOp(ExchangeOp):
    """Row d of the source goes to row r of rank d's target, r the sender."""

    name = "program.all_to_all"

    def verify_(self) -> None:
        """A row of source and target for each rank, a cell of the signal for each rank."""
        self.ask_apart(self.source, self.target, "windows")
        self.ask_local("input", self.source)
        self.ask_2d("input", self.source, "[NR, SIZE]")
        self.ask_2d("target", self.target, "[NR, SIZE]")
        source, target, cells = (shaped(v).shape for v in (self.source, self.target, self.signal))
        self.ask(
            not _differ(target[0], source[0]),
            f"target first dimension ({target[0]}) must equal input first dimension ({source[0]})",
        )
        self.ask(not _differ(target[1], source[1]), "target shape must equal input shape")
        self.ask_same_elements(self.source, self.target)
        self.ask_cells("signal", self.signal)
        self.ask_column("signal", self.signal)
        self.ask(
            not _differ(cells[0], source[0]),
            f"signal first dimension ({cells[0]}) must equal input first dimension ({source[0]})",
        )


@irdl_op_definition
class AllToAllVOp(CollectiveOp):
    """As many rows of block d of the source as ``send_counts[d]`` says go to block r of rank d's target.

    ``recv_counts[r]`` says how many rows came from rank r; rows behind them are undefined.
    """

    name = "program.all_to_all_v"
    T: ClassVar = VarConstraint("T", base(DistTensorType))
    source = operand_def(ShapedType)
    target = operand_def(T)
    signal = operand_def(ShapedType)
    send_counts = operand_def(ShapedType)
    recv_counts = operand_def(ShapedType)
    core_num = opt_operand_def(IndexType)
    result = result_def(T)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    assembly_format = (
        "$source `,` $target `signal` $signal `counts` $send_counts `,` $recv_counts (`core_num` $core_num^)? "
        "attr-dict `:` type($source) `,` type($target) `,` type($signal) `,` type($send_counts) `,` type($recv_counts)"
    )

    def __init__(
        self,
        source: SSAValue,
        target: SSAValue,
        signal: SSAValue,
        send_counts: SSAValue,
        recv_counts: SSAValue,
        core_num: SSAValue | None = None,
    ) -> None:
        super().__init__(
            operands=[source, target, signal, send_counts, recv_counts, core_num], result_types=[target.type]
        )

    @property
    def returned(self) -> SSAValue:
        """The target."""
        return self.target

    def verify_(self) -> None:
        """Blocks of as many rows for each rank; a row of cells of the signal, and two counts for each rank."""
        self.ask_two(self.source, self.target)
        self.ask_local("input", self.source)
        self.ask_2d("input", self.source, "[NR*MAX_RECV, SIZE]")
        self.ask_blocks(self.source, self.target, self.signal)
        given, rows = shaped(self.source).shape[0], shaped(self.target).shape[0]
        self.ask(
            not _differ(rows, given),
            f"target first dimension ({rows}) must equal input first dimension ({given})",
        )
        self.ask_local("send_counts", self.send_counts)
        self.ask_counts("send_counts", self.send_counts, self.signal)
        self.ask_cells("recv_counts", self.recv_counts)
        self.ask_2d("recv_counts", self.recv_counts, "[NR, 1]")
        self.ask_counts("recv_counts", self.recv_counts, self.signal)
        self.ask_full(signal=self.signal, send_counts=self.send_counts, recv_counts=self.recv_counts)
        self.ask_core_num(self.core_num)


@irdl_op_definition
class IndexedAllToAllVOp(CollectiveOp):
    """An all-to-all-v that picks its rows: the k-th row for rank d is row ``index[d * M + k]`` of the source.

    M is the capacity, the rows of the target for each rank. A row may be sent any number of times.
    """

    name = "program.indexed_all_to_all_v"
    SOURCE_RAIL: ClassVar = "is lowered in CHIP orchestration only; HOST and InCore calls are unsupported"
    T: ClassVar = VarConstraint("T", base(DistTensorType))
    source = operand_def(ShapedType)
    target = operand_def(T)
    signal = operand_def(ShapedType)
    send_counts = operand_def(ShapedType)
    recv_counts = operand_def(ShapedType)
    index = operand_def(ShapedType)
    core_num = opt_operand_def(IndexType)
    result = result_def(T)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    assembly_format = (
        "$source `,` $target `signal` $signal `counts` $send_counts `,` $recv_counts `index` $index "
        "(`core_num` $core_num^)? attr-dict `:` type($source) `,` type($target) `,` type($signal) `,` "
        "type($send_counts) `,` type($recv_counts) `,` type($index)"
    )

    def __init__(
        self,
        source: SSAValue,
        target: SSAValue,
        signal: SSAValue,
        send_counts: SSAValue,
        recv_counts: SSAValue,
        index: SSAValue,
        core_num: SSAValue | None = None,
    ) -> None:
        super().__init__(
            operands=[source, target, signal, send_counts, recv_counts, index, core_num], result_types=[target.type]
        )

    @property
    def returned(self) -> SSAValue:
        """The target."""
        return self.target

    def verify_(self) -> None:
        """As of an all-to-all-v, but that it has any number of source rows, and an index for each row of the target."""
        self.ask_two(self.source, self.target)
        self.ask_local("input", self.source)
        self.ask_2d("input", self.source, "[ROWS, SIZE]")
        self.ask_blocks(self.source, self.target, self.signal)
        self.ask_cells("send_counts", self.send_counts)
        self.ask_counts("send_counts", self.send_counts, self.signal)
        self.ask_local("recv_counts", self.recv_counts)
        self.ask_counts("recv_counts", self.recv_counts, self.signal)
        self.ask_local("index", self.index)
        self.ask_int32("index", self.index)
        self.ask_column("index", self.index)
        entries, rows = shaped(self.index).shape[0], shaped(self.target).shape[0]
        self.ask(
            not _differ(entries, rows),
            f"index dim 0 ({entries}) must equal target dim 0 (NR*MAX_RECV = {rows})",
        )
        counts = {"send_counts": self.send_counts, "recv_counts": self.recv_counts}
        self.ask_full(signal=self.signal, **counts, index=self.index)
        self.ask_core_num(self.core_num)


OPS = (
    AllReduceOp,
    BarrierOp,
    BroadcastOp,
    AllGatherOp,
    ReduceScatterOp,
    AllToAllOp,
    AllToAllVOp,
    IndexedAllToAllVOp,
)
