"""Windows: memory that each device of a domain has for its peers, and who they are."""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from crossrank.program.dialect.windows import (
    AllocWindowOp,
    GetCommCtxOp,
    NumRanksOp,
    RankOp,
    WindowOp,
    WorldSizeOp,
)
from crossrank.program.language import scalars
from crossrank.program.language.builder import Builder, Scalar
from crossrank.program.language.op import CHIP, HOST, KERNEL, op
from crossrank.program.language.operands import dim_of, element, is_number, listed, said
from crossrank.program.language.operands import window as checked
from crossrank.program.types import CommCtxType, DistTensorType, WindowBufferType


@op(
    "pld.tensor.alloc_window_buffer", HOST, takes="exactly 1 positional argument (size: ScalarType expression in bytes)"
)
def alloc_window_buffer(b: Builder, size: Any, *, dtype: Any = None, name: str = "") -> Any:
    """A buffer of ``size`` bytes on each device that uses it, all zero; with a ``dtype``, of that shape.

    Its name is that of the variable that it is assigned to.
    """
    title = "pld.tensor.alloc_window_buffer"
    b.ask(
        name,
        f"{title} must appear as the RHS of a simple assignment (its result must be bound to a named variable)",
    )
    count: Scalar = size
    if dtype is not None:
        count = element(b, title, dtype).itemsize
        for extent in listed(b, title, "shape", size):
            count = scalars.binary(b, "mul", extent, count)
    b.ask(
        is_number(count),
        f"{title} size must be a scalar (int / Expr in bytes), not a list/tuple"
        if isinstance(count, (list, tuple))
        else f"{title} size must be a scalar (int / Expr in bytes), got {said(count)}",
    )
    return b.insert(AllocWindowOp(name, b.index(count))).result


@op("pld.tensor.window", HOST, takes="2 positional args (buf, shape)")
def window(b: Builder, buf: Any, shape: Any, *, dtype: Any) -> Any:
    """A buffer as a distributed tensor of that shape and element type, from the buffer's start."""
    title = "pld.tensor.window"
    b.ask(isinstance(buf, SSAValue), f"{title} first argument must be an IR expression, got {said(buf)}")
    b.ask(
        isinstance(buf.type, WindowBufferType),
        f"{title} 'buf' must have type Ptr (output of pld.tensor.alloc_window_buffer), got {said(buf)}",
    )
    b.ask(
        isinstance(shape, (list, tuple)),
        f"{title} second argument must be a shape tuple (MakeTuple of ints / Exprs), got {said(shape)}",
    )
    extents = listed(b, title, "shape", shape)
    name = buf.owner.window if isinstance(buf.owner, AllocWindowOp) else ""
    type = DistTensorType.of([dim_of(e) for e in extents], element(b, title, dtype), name)
    return b.insert(WindowOp(buf, b.indices(extents), type)).result


@op("pld.world_size", HOST)
def world_size(b: Builder) -> Any:
    """How many devices the program runs on."""
    return b.insert(WorldSizeOp()).result


@op("pld.get_comm_ctx")
def get_comm_ctx(b: Builder, dist_tensor: Any) -> Any:
    """The domain of a distributed tensor: who is in it, and which of them one is."""
    return b.insert(GetCommCtxOp(checked(b, "pld.get_comm_ctx", "argument", dist_tensor))).result


def _ctx(b: Builder, title: str, value: Any) -> SSAValue:
    if not isinstance(value, SSAValue) or not isinstance(value.type, CommCtxType):
        b.fail(f"{title} takes a CommCtx, got {said(value)}", "it is what pld.get_comm_ctx(window) gives")
    return value


@op("pld.rank", CHIP, KERNEL)
def rank(b: Builder, ctx: Any) -> Any:
    """This rank's number in the domain."""
    return b.insert(RankOp(_ctx(b, "pld.rank", ctx))).result


@op("pld.nranks", CHIP, KERNEL)
def nranks(b: Builder, ctx: Any) -> Any:
    """How many ranks the domain has."""
    return b.insert(NumRanksOp(_ctx(b, "pld.nranks", ctx))).result
