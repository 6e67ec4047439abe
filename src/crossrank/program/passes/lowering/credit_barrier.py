"""The credit barrier: how the ranks of a domain meet on a signal that is all zero again after each collective.

Cell ``[src, 0]`` of a signal counts what rank ``src`` told this rank. At its k-th barrier within a collective a rank
adds 1 to its cell on every peer, and waits until each cell of its own is at least k: at least, since a fast peer may
have added the next one already. When its last barrier is over it takes what it was told off its cells again. Additions
commute, so the next collective may begin on the same signal at once, on any rank.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import SSAValue

from crossrank.program.dialect.remote import NotifySignalOp, WaitOp
from crossrank.program.dialect.windows import GetCommCtxOp, NumRanksOp, RankOp
from crossrank.program.kinds import NotifyOp, WaitCmp
from crossrank.program.passes.lowering.emitter import Emitter, Index


@dataclass(frozen=True)
class Domain:
    """Who takes part in a collective.

    Attributes:
        me: this rank.
        size: how many there are.
    """

    me: SSAValue
    size: SSAValue

    @staticmethod
    def of(e: Emitter, tensor: SSAValue) -> Domain:
        """The domain that a distributed tensor belongs to."""
        ctx = e.insert(GetCommCtxOp(tensor)).result
        me, size = e.insert(RankOp(ctx)).result, e.insert(NumRanksOp(ctx)).result
        me.name_hint, size.name_hint = "me", "nranks"
        return Domain(me, size)


@dataclass(frozen=True)
class CreditBarrier:
    """Barriers on one signal.

    Attributes:
        signal: ``[ranks, 1]``; with rows, ``[rows, ranks]``.
        domain: who meets.
    """

    signal: SSAValue
    domain: Domain

    def _cell(self, rank: Index, row: Index | None) -> list[Index]:
        return [rank, 0] if row is None else [row, rank]

    def meet(self, e: Emitter, generation: Index, row: Index | None = None) -> None:
        """Wait until all ranks have come here.

        Args:
            e: emits it.
            generation: which barrier of the collective it is, in this row of cells, from 1 on.
            row: of a signal with rows.
        """
        one, expected = e.s32(1), e.s32(generation)
        with e.loop("peer", self.domain.size) as peers, peers.unless(peers.number, self.domain.me) as other:
            cell = other.indices(self._cell(self.domain.me, row))
            other.insert(NotifySignalOp(self.signal, peers.number, cell, one, NotifyOp.AtomicAdd))
        with e.loop("src", self.domain.size) as peers, peers.unless(peers.number, self.domain.me) as other:
            cell = other.indices(self._cell(peers.number, row))
            other.insert(WaitOp(self.signal, cell, expected, WaitCmp.Ge))

    def reset(self, e: Emitter, barriers: Index, row: Index | None = None) -> None:
        """Take off what the ``barriers`` of a collective left, in this row of cells."""
        taken = e.s32(e.sub(0, barriers))
        with e.loop("src", self.domain.size) as peers, peers.unless(peers.number, self.domain.me) as other:
            cell = other.indices(self._cell(peers.number, row))
            other.insert(NotifySignalOp(self.signal, self.domain.me, cell, taken, NotifyOp.AtomicAdd))
