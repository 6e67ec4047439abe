"""``pld.tensor``: regions of tensors from rank to rank, windows, and collectives."""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from crossrank.program.dialect.remote import GetOp, PutOp, TransferOp
from crossrank.program.dialect.tensors import shaped
from crossrank.program.kinds import AtomicType
from crossrank.program.language.builder import Builder, Scalar
from crossrank.program.language.distributed.collectives import *  # noqa: F403
from crossrank.program.language.distributed.tile import pushed
from crossrank.program.language.distributed.windows import alloc_window_buffer as alloc_window_buffer
from crossrank.program.language.distributed.windows import window as window
from crossrank.program.language.op import KERNEL, op
from crossrank.program.language.operands import (
    dim_of,
    expected_tensor,
    expected_window,
    is_tile,
    listed,
    member,
    said,
    tile,
    whole,
)
from crossrank.program.language.operands import peer as rank_of
from crossrank.program.types import Dim, TensorType

TRANSFERS: dict[str, type[TransferOp]] = {"pld.tensor.put": PutOp, "pld.tensor.get": GetOp}
TAKES = "3 positional arguments (dst, peer, src) or 6 (dst, peer, src, dst_offsets, src_offsets, shape)"


@op("pld.tensor.put", KERNEL, takes=TAKES)
def put(
    b: Builder,
    dst: Any,
    peer: Any,
    src: Any,
    dst_offsets: Any = None,
    src_offsets: Any = None,
    shape: Any = None,
    *,
    atomic: Any = AtomicType.None_,
    chunk_rows: Any = 0,
    chunk_cols: Any = 0,
    pipeline: bool = False,
) -> Any:
    """Own elements to a peer's, replacing them or added to them: all of ``src``, or a region of it.

    Chunks say in which pieces rows and columns go (0: at once); with ``pipeline`` one piece is under way while the next
    is fetched.
    """
    title = "pld.tensor.put"
    into, source = expected_window(b, title, "dst", dst), expected_tensor(b, title, "src", src)
    how = member(b, title, "atomic", AtomicType, atomic)
    return _transferred(
        b, title, into, peer, source, (dst_offsets, src_offsets, shape), how, (chunk_rows, chunk_cols), pipeline
    )


@op("pld.tensor.get", KERNEL, takes=TAKES)
def get(
    b: Builder,
    dst: Any,
    peer: Any,
    src: Any,
    dst_offsets: Any = None,
    src_offsets: Any = None,
    shape: Any = None,
    *,
    chunk_rows: Any = 0,
    chunk_cols: Any = 0,
    pipeline: bool = False,
) -> Any:
    """A peer's elements to own ones: all of ``src``, or a region of it; chunks as of `put`."""
    title = "pld.tensor.get"
    into, source = expected_tensor(b, title, "dst", dst), expected_window(b, title, "src", src)
    region, chunk = (dst_offsets, src_offsets, shape), (chunk_rows, chunk_cols)
    return _transferred(b, title, into, peer, source, region, AtomicType.None_, chunk, pipeline)


def _transferred(
    b: Builder,
    title: str,
    dst: SSAValue,
    peer: Any,
    src: SSAValue,
    region: tuple[Any, Any, Any],
    atomic: AtomicType,
    chunk: tuple[Any, Any],
    pipeline: bool,
) -> SSAValue:
    who = rank_of(b, title, peer)
    rows, cols = (whole(b, title, f"chunk_{what}", n) for what, n in zip(("rows", "cols"), chunk, strict=True))
    b.ask(
        len({r is None for r in region}) == 1,
        f"{title} dst_offsets, src_offsets, and shape must be provided together",
    )
    parts: list[list[Scalar]] = []
    moved: list[Dim] = list(shaped(dst).shape)
    if region[2] is not None:
        names = ("dst_offsets", "src_offsets", "shape")
        parts = [listed(b, title, what, values) for what, values in zip(names, region, strict=True)]
        moved = [dim_of(e) for e in parts[2]]
        for axis, extent in enumerate(moved):
            b.ask(
                not isinstance(extent, int) or extent > 0,
                f"{title} shape dimension {axis} must be positive, got {extent}",
            )
    for what, size, extents in (("leading", rows, moved[:-1]), ("innermost", cols, moved[-1:])):
        chunk_name = "chunk_rows" if what == "leading" else "chunk_cols"
        b.ask(
            size or all(isinstance(e, int) for e in extents),
            f"{title}: a dynamic {what} transfer dim needs a static {chunk_name} to bound the VEC staging tile",
        )
    indices = (b.indices(parts[0]), b.indices(parts[1]), b.indices(parts[2])) if parts else None
    return b.insert(
        TRANSFERS[title](dst, who, src, indices, atomic=atomic, chunk=(rows, cols), pipeline=bool(pipeline))
    ).result


@op("pld.tensor.remote_store", KERNEL, takes="4 positional arguments (src, target, peer, offsets)")
def remote_store(b: Builder, src: Any, target: Any, peer: Any, offsets: Any, *, atomic: Any = AtomicType.None_) -> Any:
    """What was computed, or a tensor of the rank's own, to a peer's elements; as `pld.tile.remote_store`."""
    title = "pld.tensor.remote_store"
    b.ask(
        is_tile(src) or (isinstance(src, SSAValue) and isinstance(src.type, TensorType)),
        f"{title} expects a Tensor src (a tensor-level value); got {said(src)}. In a tile-level kernel use "
        "pld.tile.remote_store; to push one window buffer into another use pld.tensor.put.",
    )
    return pushed(b, title, tile(b, title, src), target, peer, offsets, atomic)
