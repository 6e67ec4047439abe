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

from crossrank.program.dialect.tensors import ask, number, shaped
from crossrank.program.kinds import ReduceOp
from crossrank.program.types import DistTensorType, ShapedType

MODES = ("mesh", "ring")


class CollectiveOp(IRDLOperation):
    """What all collectives are: they have a title that messages begin with, and they give their target."""

    @property
    def title(self) -> str:
        """What an author calls it."""
        return self.name.replace("program.", "pld.tensor.")

    def ask(self, holds: object, what: str) -> None:
        """Raise a VerifyException that begins with the collective's name where something does not hold."""
        ask(holds, f"{self.title} {what}")

    def ask_signal(self, signal: SSAValue | None) -> None:
        """A signal is a distributed tensor of s32."""
        if signal is None:
            return
        self.ask(
            isinstance(signal.type, DistTensorType),
            f"signal must be a DistributedTensor (window-bound), got {signal.type}",
        )
        self.ask(
            shaped(signal).dtype.name == "s32", f"signal must have INT32 element type, got dtype {shaped(signal).dtype}"
        )

    @property
    @abstractmethod
    def returned(self) -> SSAValue:
        """The operand that it gives back."""


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
        """There is such a mode; a ring has a signal."""
        self.ask(self.mode.data in MODES, f'mode must be "mesh" or "ring", got "{self.mode.data}"')
        self.ask_signal(self.signal)


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
        element = shaped(self.signal).dtype
        self.ask(
            element.name == "s32",
            f"signal must have INT32 element type (the barrier slot is an int counter), got dtype {element}",
        )


@irdl_op_definition
class BroadcastOp(CollectiveOp):
    """Every rank's data becomes that of one, in place."""

    name = "program.broadcast"
    T: ClassVar = VarConstraint("T", base(DistTensorType))
    target = operand_def(T)
    signal = operand_def(ShapedType)
    root = prop_def(IntegerAttr[I64])
    result = result_def(T)
    assembly_format = "$target `signal` $signal `root` $root attr-dict `:` type($target) `,` type($signal)"

    def __init__(self, target: SSAValue, signal: SSAValue, root: int) -> None:
        super().__init__(operands=[target, signal], properties={"root": number(root)}, result_types=[target.type])

    @property
    def returned(self) -> SSAValue:
        """The target."""
        return self.target

    def verify_(self) -> None:
        """A root that can be."""
        self.ask_signal(self.signal)
        self.ask(self.root.value.data >= 0, f"root rank must be non-negative, got {self.root.value.data}")


@irdl_op_definition
class AllGatherOp(CollectiveOp):
    """Row r of every rank's target becomes what rank r had."""

    name = "program.allgather"
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
class ReduceScatterOp(CollectiveOp):
    """Row r of rank r's target becomes the reduction of all ranks' rows r."""

    name = "program.reduce_scatter"
    T: ClassVar = VarConstraint("T", base(DistTensorType))
    target = operand_def(T)
    signal = operand_def(ShapedType)
    op = prop_def(StringAttr)
    result = result_def(T)
    assembly_format = "$target `signal` $signal `op` $op attr-dict `:` type($target) `,` type($signal)"

    def __init__(self, target: SSAValue, signal: SSAValue, op: ReduceOp = ReduceOp.Sum) -> None:
        super().__init__(operands=[target, signal], properties={"op": StringAttr(op.name)}, result_types=[target.type])

    @property
    def returned(self) -> SSAValue:
        """The target."""
        return self.target


@irdl_op_definition
class AllToAllOp(CollectiveOp):
    """Row d of the source goes to row r of rank d's target, r the sender."""

    name = "program.all_to_all"
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


OPS = (
    AllReduceOp,
    BarrierOp,
    BroadcastOp,
    AllGatherOp,
    ReduceScatterOp,
    AllToAllOp,
    AllToAllVOp,
)
