"""The all-reduce that goes round a ring: every rank takes data from its left neighbour only.

The data is one row in as many segments as there are ranks. In each of ``ranks - 1`` rounds a rank takes a segment that
its neighbour has reduced so far and joins its own to it, until it has one that is complete; in as many more rounds the
complete ones go round. Segment i is so reduced in the order of the ranks i + 1, i + 2, … i, and rounded to its element
type in every round. Each round has a row of cells of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import SSAValue

from crossrank.program.dialect.collectives import AllReduceOp
from crossrank.program.dialect.remote import GetOp, RemoteLoadOp
from crossrank.program.dialect.tensors import SliceOp, shaped
from crossrank.program.dialect.tiles import LoadOp, StoreOp
from crossrank.program.passes.lowering.chunks import aligned, flat, pieces, width
from crossrank.program.passes.lowering.credit_barrier import CreditBarrier, Domain
from crossrank.program.passes.lowering.emitter import Emitter, Index, Loop
from crossrank.program.passes.lowering.reduction import Reduction
from crossrank.program.types import UNKNOWN, DistTensorType, TileType


def ring(e: Emitter, op: AllReduceOp, signal: SSAValue, reduction: Reduction) -> str:
    """Emit it; InputError where the signal has another shape than ``[2 * (ranks - 1), ranks]``."""
    shape = shaped(signal).shape
    e.ask(len(shape) == 2, "mode=ring signal must be 2D [2*(NR-1), NR]")
    rows, ranks = shape
    if isinstance(ranks, int):
        e.ask(
            not isinstance(rows, int) or rows == 2 * (ranks - 1),
            f"{op.title} mode=ring signal shape[0] ({rows}) must equal 2*(NR-1) = {2 * (ranks - 1)} for NR = {ranks}",
        )
        e.ask(
            isinstance(rows, int) or ranks > 1,
            f"{op.title} mode=ring signal shape[1] must be NR (one cell per rank), got 1 — a signal shaped for other "
            f'collectives ([NR, 1]) cannot be shared with mode="ring"; give it its own [2*(NR-1), NR] signal window',
        )
    barrier = CreditBarrier(signal, Domain.of(e, op.target))
    if ranks == 1:
        return _alone(e, barrier)
    tensor, size = flat(e, op.target)
    step = aligned(reduction.element) if reduction.element.itemsize < 4 else 1
    longest = _widest(e, size, ranks, step) if isinstance(size, int) and isinstance(ranks, int) else size
    columns = width(reduction.element, longest)
    made = _Ring(barrier, tensor, size, step, columns, reduction)
    made.emit(e)
    return f"ring, 2 barriers for each chunk of {columns} elements in each of its rounds"


def _alone(e: Emitter, barrier: CreditBarrier) -> str:
    """A ring of one rank has nothing to do; a domain of more finds no cells, and says so."""
    size = barrier.domain.size
    rows, type = e.mul(e.sub(size, 1), 2), DistTensorType.of([UNKNOWN, UNKNOWN], shaped(barrier.signal).dtype)
    e.insert(SliceOp(barrier.signal, e.indices([0, 0]), e.indices([rows, size]), type))
    return "ring of 1 rank: nothing is to be done"


def _widest(e: Emitter, size: Index, ranks: Index, step: int) -> Index:
    """The elements of the widest segment, whose bounds were rounded up to ``step``."""
    return e.min(e.add(e.ceildiv(size, ranks), step - 1), size)


@dataclass(frozen=True)
class _Ring:
    barrier: CreditBarrier
    tensor: SSAValue
    size: Index
    step: int
    columns: int
    reduction: Reduction

    def emit(self, e: Emitter) -> None:
        me, ranks = self.barrier.domain.me, self.barrier.domain.size
        left, rounds = e.index(e.named("left", e.mod(e.sub(me, 1), ranks))), e.named("rounds", e.sub(ranks, 1))
        widest = e.named("widest", _widest(e, self.size, ranks, self.step))
        with e.loop("step", rounds) as steps:
            segment = steps.mod(steps.sub(steps.sub(me, steps.number), 2), ranks)
            self._round(steps, steps.number, segment, widest, left, reduces=True)
        with e.loop("step", rounds) as steps:
            segment = steps.mod(steps.sub(steps.sub(me, steps.number), 1), ranks)
            self._round(steps, steps.add(steps.number, rounds), segment, widest, left, reduces=False)
        barriers = e.mul(e.ceildiv(widest, self.columns), 2)
        with e.loop("row", e.mul(rounds, 2)) as rows:
            self.barrier.reset(rows, barriers, rows.number)

    def _bound(self, e: Emitter, segment: Index) -> Index:
        """Where a segment begins: elements of fewer than 4 bytes on 32 bytes each."""
        ranks, scaled = self.barrier.domain.size, e.mul(segment, self.size)
        if self.step == 1:
            return e.div(scaled, ranks)
        return e.min(e.mul(e.ceildiv(scaled, e.mul(ranks, self.step)), self.step), self.size)

    def _round(self, e: Emitter, row: Index, segment: Index, widest: Index, left: SSAValue, *, reduces: bool) -> None:
        """Take a segment of the left neighbour, to join one's own to it, or as it is.

        All ranks have as many chunks, and so as many barriers; the last ones of a shorter segment are empty.
        """
        begin = e.named("begin", self._bound(e, e.named("segment", segment)))
        extent = e.named("extent", e.sub(self._bound(e, e.add(segment, 1)), begin))
        type = TileType.of([1, self.columns], self.reduction.element)
        with e.loop("col", widest, step=self.columns) as chunks:
            chunk = chunks.named("chunk", chunks.div(chunks.number, self.columns))
            ready = chunks.named("ready", chunks.add(chunks.mul(chunk, 2), 1))
            valid = chunks.named("valid", chunks.max(chunks.min(chunks.sub(extent, chunks.number), self.columns), 0))
            at = chunks.indices([0, chunks.named("at", chunks.min(chunks.add(begin, chunks.number), self.size))])
            shape = chunks.indices([1, valid])
            self.barrier.meet(chunks, ready, row)
            total = self._joined(chunks, left, at, shape, type) if reduces else None
            if not reduces:
                piece = pieces(self.reduction.element, self.columns)
                chunks.insert(GetOp(self.tensor, left, self.tensor, (at, at, shape), chunk=piece))
            self.barrier.meet(chunks, chunks.add(ready, 1), row)
            if total is not None:
                chunks.insert(StoreOp(total, self.tensor, at))

    def _joined(self, e: Loop, left: SSAValue, at: list[SSAValue], shape: list[SSAValue], type: TileType) -> SSAValue:
        theirs = e.insert(RemoteLoadOp(self.tensor, left, at, type, shape)).result
        own = e.insert(LoadOp(self.tensor, at, type, shape)).result
        return self.reduction.end(e, self.reduction.join(e, self.reduction.begin(e, theirs), own))
