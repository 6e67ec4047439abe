"""``pl.system``: blocks of a launch, fences, and tasks that do nothing."""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from crossrank.program.dialect.calls import JoinOp
from crossrank.program.dialect.remote import FenceOp, InvalidateOp
from crossrank.program.dialect.windows import BlockIndexOp, NumBlocksOp
from crossrank.program.language.builder import Builder
from crossrank.program.language.op import CHIP, HOST, KERNEL, op
from crossrank.program.language.operands import said, view
from crossrank.program.language.operands import tensor as checked
from crossrank.program.types import TaskType


@op("pl.get_block_idx", KERNEL)
def get_block_idx(b: Builder) -> Any:
    """Which block of its launch this is."""
    return b.insert(BlockIndexOp()).result


@op("pl.get_block_num", KERNEL)
def get_block_num(b: Builder) -> Any:
    """How many blocks the launch has."""
    return b.insert(NumBlocksOp()).result


@op("pl.system.fence", KERNEL)
def fence(b: Builder) -> None:
    """What was written before is visible to whoever sees what is notified after."""
    b.insert(FenceOp())


@op("pl.system.cacheinvalid", KERNEL)
def cacheinvalid(b: Builder, tensor: Any = None, shapes: Any = None, offsets: Any = None) -> None:
    """What is read after it is not stale: of all memory, of a tensor, or of ``shapes`` elements from ``offsets`` on."""
    title = "pl.system.cacheinvalid"
    if tensor is None:
        b.insert(InvalidateOp())
        return
    region = checked(b, title, "tensor", tensor)
    b.ask((shapes is None) == (offsets is None), f"{title} shapes and offsets must be provided together")
    b.insert(InvalidateOp(region if shapes is None else view(b, region, offsets, shapes)))


@op("pl.system.task_dummy", HOST, CHIP)
def task_dummy(b: Builder, *, deps: Any) -> Any:
    """A task that does nothing, and is over when others are."""
    for task in deps:
        b.ask(
            isinstance(task, SSAValue) and isinstance(task.type, TaskType),
            f"pl.system.task_dummy deps must be task ids, got {said(task)}",
        )
    return b.insert(JoinOp(deps)).task
