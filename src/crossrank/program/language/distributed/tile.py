"""``pld.tile``: tiles of a peer's elements, read and written."""

from __future__ import annotations

from typing import Any

from crossrank.program.dialect.remote import RemoteLoadOp, RemoteStoreOp
from crossrank.program.dialect.tensors import shaped
from crossrank.program.kinds import AtomicType
from crossrank.program.language.builder import Builder
from crossrank.program.language.memory import clipped
from crossrank.program.language.op import KERNEL, op
from crossrank.program.language.operands import expected_window, fixed, is_tile, listed, member, said
from crossrank.program.language.operands import peer as rank_of
from crossrank.program.types import TileType


@op(
    "pld.tile.remote_load",
    KERNEL,
    takes="4 or 5 positional arguments (target, peer, offsets, shape[, valid_shape])",
)
def remote_load(b: Builder, target: Any, peer: Any, offsets: Any, shape: Any, valid_shape: Any = None) -> Any:
    """A tile of a peer's elements from ``offsets`` on; ``valid_shape`` limits what is read, and what is valid."""
    title = "pld.tile.remote_load"
    source = expected_window(b, title, "target", target)
    rank, start = rank_of(b, title, peer), listed(b, title, "offsets", offsets)
    extents = fixed(b, title, "shape", shape)
    wanted = extents if valid_shape is None else listed(b, title, "valid_shape", valid_shape)
    valid = clipped(b, source, start, wanted)
    type = TileType.of(extents, shaped(source).dtype)
    partial = b.indices(valid) if valid != extents else ()
    return b.insert(RemoteLoadOp(source, rank, b.indices(start), type, partial)).result


@op("pld.tile.remote_store", KERNEL, takes="4 positional arguments (src, target, peer, offsets)")
def remote_store(
    b: Builder, src_tile: Any, target: Any, peer: Any, offsets: Any, *, atomic: Any = AtomicType.None_
) -> Any:
    """The valid part of a tile to a peer's elements from ``offsets`` on, replacing them or added to them.

    The tile has two dimensions, and leading ones of 1; the target two or more.
    """
    title = "pld.tile.remote_store"
    b.ask(
        is_tile(src_tile),
        f"{title} src_tile must be a TileType, got {said(src_tile)}. In a tensor-level kernel (@pl.jit) call "
        "pld.tensor.remote_store instead (pld.remote_store dispatches between the two).",
    )
    return pushed(b, title, src_tile, target, peer, offsets, atomic)


def pushed(b: Builder, title: str, tile: Any, target: Any, peer: Any, offsets: Any, atomic: Any) -> Any:
    """A tile to a peer's elements."""
    into = expected_window(b, title, "target", target)
    rank, start = rank_of(b, title, peer), listed(b, title, "offsets", offsets)
    how = member(b, title, "atomic", AtomicType, atomic)
    return b.insert(RemoteStoreOp(tile, into, rank, b.indices(start), how)).result
