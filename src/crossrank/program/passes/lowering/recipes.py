"""The recipe of each collective within a kernel, but for the ring's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from xdsl.ir import SSAValue

from crossrank.errors import counted
from crossrank.program.dialect.collectives import (
    AllGatherOp,
    AllReduceOp,
    AllToAllOp,
    AllToAllVOp,
    BarrierOp,
    BroadcastOp,
    CollectiveOp,
    IndexedAllToAllVOp,
    ReduceScatterOp,
)
from crossrank.program.dialect.remote import GetOp, NotifySignalOp, PutOp, RemoteLoadOp
from crossrank.program.dialect.tensors import ReadOp, WriteOp, known, shaped
from crossrank.program.dialect.tiles import StoreOp
from crossrank.program.kinds import NotifyOp, ReduceOp
from crossrank.program.passes.lowering.chunks import flat, pieces, width
from crossrank.program.passes.lowering.credit_barrier import CreditBarrier, Domain
from crossrank.program.passes.lowering.emitter import Emitter, Index
from crossrank.program.passes.lowering.reduction import Reduction
from crossrank.program.passes.lowering.ring import ring
from crossrank.program.types import DistTensorType, TileType


@dataclass(frozen=True)
class Settings:
    """What the author of a pipeline chooses.

    Attributes:
        full_capacity: an all-to-all-v moves all rows that there is room for, and has one barrier.
    """

    full_capacity: bool = False


Recipe = Callable[[Any, Emitter, Settings], str]
"""Emits what stands for a collective; returns that in words."""


def _mesh(e: Emitter, op: CollectiveOp, signal: SSAValue) -> CreditBarrier:
    """Barriers on a signal ``[ranks, 1]``; InputError where it has another shape."""
    shape = shaped(signal).shape
    e.ask(len(shape) == 2, f"{op.title} signal must be 2D [NR, 1], got rank {len(shape)}")
    e.ask(
        not isinstance(shape[1], int) or shape[1] == 1,
        f"{op.title} signal shape[1] must be 1 (one cell per rank), got {shape[1]} — a signal shaped for "
        'mode="ring" allreduce ([2*(NR-1), NR]) cannot be shared with this collective; give it its own [NR, 1] '
        "signal window",
    )
    return CreditBarrier(signal, Domain.of(e, op.returned))


def _barrier(op: BarrierOp, e: Emitter, settings: Settings) -> str:
    barrier = _mesh(e, op, op.signal)
    barrier.meet(e, 1)
    barrier.reset(e, 1)
    return "1 barrier"


def _broadcast(op: BroadcastOp, e: Emitter, settings: Settings) -> str:
    barrier, root, type = _mesh(e, op, op.signal), op.root.value.data, shaped(op.target)
    ranks = shaped(op.signal).shape[0]
    e.ask(
        not isinstance(ranks, int) or root < ranks,
        f"{op.title} root ({root}) must be a valid rank in [0, {ranks})",
    )
    barrier.meet(e, 1)
    barrier.reset(e, 1)
    with e.unless(barrier.domain.me, root) as others:
        chunk = pieces(type.dtype, type.shape[-1])
        others.insert(GetOp(op.target, others.index(root), op.target, chunk=chunk))
    return f"1 barrier, then each rank gets what rank {root} has"


def _all_gather(op: AllGatherOp, e: Emitter, settings: Settings) -> str:
    barrier, size = _mesh(e, op, op.signal), e.dim(op.source, 1)
    region = e.indices([barrier.domain.me, 0]), e.indices([0, 0]), e.indices([1, size])
    with e.loop("peer", barrier.domain.size) as peers:
        chunk = pieces(shaped(op.source).dtype, size)
        peers.insert(PutOp(op.target, peers.number, op.source, region, chunk=chunk))
    barrier.meet(e, 1)
    barrier.reset(e, 1)
    return "each rank puts its row to all, then 1 barrier"


def _all_to_all(op: AllToAllOp, e: Emitter, settings: Settings) -> str:
    barrier, size = _mesh(e, op, op.signal), e.dim(op.source, 1)
    to, shape = e.indices([barrier.domain.me, 0]), e.indices([1, size])
    with e.loop("dest", barrier.domain.size) as peers:
        region = to, peers.indices([peers.number, 0]), shape
        chunk = pieces(shaped(op.source).dtype, size)
        peers.insert(PutOp(op.target, peers.number, op.source, region, chunk=chunk))
    barrier.meet(e, 1)
    barrier.reset(e, 1)
    return "each rank puts a row to each, then 1 barrier"


@dataclass(frozen=True)
class _Rows:
    """An all-to-all-v, with an index or without.

    Attributes:
        op: the collective.
        barrier: on its signal.
        capacity: the rows of the target for each rank.
    """

    op: AllToAllVOp | IndexedAllToAllVOp
    barrier: CreditBarrier
    capacity: Index

    @staticmethod
    def of(e: Emitter, op: AllToAllVOp | IndexedAllToAllVOp) -> _Rows:
        """InputError where it is asked to be launched in several blocks."""
        cores = 1 if op.core_num is None else known(op.core_num)
        e.ask(
            cores == 1,
            f"InCore {op.title} requires a compile-time core_num=1, got "
            f"{'a dynamic value' if cores is None else cores}; call it from a CHIP Orchestration function to use the "
            "managed multi-AIV path",
        )
        barrier, ranks = _mesh(e, op, op.signal), shaped(op.signal).shape[0]
        capacity = e.div(e.dim(op.target, 0), ranks if isinstance(ranks, int) else barrier.domain.size)
        return _Rows(op, barrier, capacity)

    def clamped(self, e: Emitter, count: SSAValue) -> Index:
        """As many rows as a count says, as far as there is room."""
        return e.named("rows", e.max(e.min(e.index(count), self.capacity), 0))

    def sent(self, e: Emitter, rank: SSAValue) -> Index:
        """The rows that this rank sends another one."""
        return self.clamped(e, e.insert(ReadOp(self.op.send_counts, _cell(e, self.op.send_counts, rank))).result)

    def pull(self, e: Emitter) -> None:
        """Load from each rank how many rows it sends."""
        counts = shaped(self.op.send_counts)
        one = TileType.of([1] * len(counts.shape), counts.dtype)
        mine = _cell(e, self.op.send_counts, self.barrier.domain.me)
        with e.loop("src", self.barrier.domain.size) as peers:
            tile = peers.insert(RemoteLoadOp(self.op.send_counts, peers.number, mine, one)).result
            count = peers.insert(ReadOp(tile, peers.indices([0] * len(counts.shape)))).result
            cell = _cell(peers, self.op.recv_counts, peers.number)
            peers.insert(WriteOp(self.op.recv_counts, cell, peers.s32(self.clamped(peers, count))))


def _cell(e: Emitter, column: SSAValue, row: Index) -> list[SSAValue]:
    """The indices of a row of ``[NR]`` or ``[NR, 1]``."""
    return e.indices([row, *[0] * (len(shaped(column).shape) - 1)])


def _all_to_all_v(op: AllToAllVOp, e: Emitter, settings: Settings) -> str:
    rows = _Rows.of(e, op)
    barrier, capacity, me = rows.barrier, rows.capacity, rows.barrier.domain.me
    size, element = e.dim(op.target, 1), shaped(op.target).dtype
    pulls = isinstance(op.send_counts.type, DistTensorType) and not settings.full_capacity
    if not settings.full_capacity:
        barrier.meet(e, 1)
    to = e.indices([e.mul(me, capacity), 0])
    with e.loop("dest", barrier.domain.size) as peers:
        dest = peers.number
        count = rows.sent(peers, dest)
        moved = peers.indices([capacity if settings.full_capacity else count, size])
        region = to, peers.indices([peers.mul(dest, capacity), 0]), moved
        peers.insert(PutOp(op.target, dest, op.source, region, chunk=pieces(element, size)))
        if not pulls:
            cell = peers.indices([me, 0])
            peers.insert(NotifySignalOp(op.recv_counts, dest, cell, peers.s32(count), NotifyOp.Set))
    if pulls:
        rows.pull(e)
    barriers = 1 if settings.full_capacity else 2
    barrier.meet(e, barriers)
    barrier.reset(e, barriers)
    moved_rows = "all rows that there is room for" if settings.full_capacity else "the rows that it counts"
    return f"each rank puts {moved_rows} to each, {counted(barriers, 'barrier')}"


def _indexed_all_to_all_v(op: IndexedAllToAllVOp, e: Emitter, settings: Settings) -> str:
    rows = _Rows.of(e, op)
    barrier, capacity = rows.barrier, rows.capacity
    size, element = e.dim(op.target, 1), shaped(op.target).dtype
    barrier.meet(e, 1)
    first, shape = e.mul(barrier.domain.me, capacity), e.indices([1, size])
    with e.loop("dest", barrier.domain.size) as peers:
        block = peers.mul(peers.number, capacity)
        with peers.loop("k", rows.sent(peers, peers.number)) as each:
            entry = _cell(each, op.index, each.add(block, each.number))
            row = each.insert(ReadOp(op.index, entry)).result
            region = each.indices([each.add(first, each.number), 0]), each.indices([row, 0]), shape
            each.insert(PutOp(op.target, peers.number, op.source, region, chunk=pieces(element, size)))
    rows.pull(e)
    barrier.meet(e, 2)
    barrier.reset(e, 2)
    return "each rank puts the rows that it counts, one by one as the index says, 2 barriers"


def _reduce_scatter(op: ReduceScatterOp, e: Emitter, settings: Settings) -> str:
    barrier, type = _mesh(e, op, op.signal), shaped(op.target)
    me, size = barrier.domain.me, e.dim(op.target, 1)
    reduction, columns = Reduction(ReduceOp[op.op.data], type.dtype), width(type.dtype, size)
    barrier.meet(e, 1)
    with e.loop("col", size, step=columns) as chunks:
        col = chunks.number
        valid = chunks.named("valid", chunks.min(columns, chunks.sub(size, col)))
        total = reduction.over_ranks(chunks, barrier.domain, op.target, [me, col], columns, valid)
        chunks.insert(StoreOp(total, op.target, chunks.indices([me, col])))
    barrier.meet(e, 2)
    barrier.reset(e, 2)
    return f"each rank reduces its row of all, in chunks of {columns} elements, between 2 barriers"


def _all_reduce(op: AllReduceOp, e: Emitter, settings: Settings) -> str:
    e.ask(
        op.signal is not None,
        f"{op.title} requires an explicit signal outside host orchestrator functions. Use {op.title}(target, signal, "
        "op=...) for InCore/lowered composite paths.",
    )
    assert op.signal is not None
    e.ask(
        op.core_num is None or known(op.core_num) == 1,
        f"{op.title} core_num > 1 is supported only in a HOST orchestrator; use an enclosing pl.spmd(...) for "
        "multi-core InCore execution",
    )
    reduction = Reduction(ReduceOp[op.op.data], shaped(op.target).dtype)
    if op.mode.data == "ring":
        return ring(e, op, op.signal, reduction)
    barrier = _mesh(e, op, op.signal)
    row, size = flat(e, op.target)
    columns = width(reduction.element, size)
    barrier.meet(e, 1)
    with e.loop("col", size, step=columns) as chunks:
        col = chunks.number
        valid = chunks.named("valid", chunks.min(columns, chunks.sub(size, col)))
        total = reduction.over_ranks(chunks, barrier.domain, row, [0, col], columns, valid)
        chunk = chunks.named("chunk", chunks.div(col, columns))
        barrier.meet(chunks, chunks.add(chunk, 2))
        chunks.insert(StoreOp(total, row, chunks.indices([0, col])))
    barrier.reset(e, e.add(e.ceildiv(size, columns), 1))
    return f"mesh, 1 barrier and 1 for each chunk of {columns} elements"


RECIPES: Mapping[type[CollectiveOp], Recipe] = {
    AllReduceOp: _all_reduce,
    BarrierOp: _barrier,
    BroadcastOp: _broadcast,
    AllGatherOp: _all_gather,
    ReduceScatterOp: _reduce_scatter,
    AllToAllOp: _all_to_all,
    AllToAllVOp: _all_to_all_v,
    IndexedAllToAllVOp: _indexed_all_to_all_v,
}
