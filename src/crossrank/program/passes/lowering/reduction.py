"""How tiles of several ranks become one, bit for bit as the kernels of all doors do it."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import SSAValue

from crossrank.collective.dtypes import F32, PRED, DType
from crossrank.program.dialect.remote import RemoteLoadOp
from crossrank.program.dialect.tensors import shaped
from crossrank.program.dialect.tiles import BinaryOp, CastOp
from crossrank.program.kinds import ReduceOp
from crossrank.program.passes.lowering.credit_barrier import Domain
from crossrank.program.passes.lowering.emitter import Emitter, Index
from crossrank.program.types import TileType, scalar_type

_BINARY = {ReduceOp.Sum: "add", ReduceOp.Max: "max", ReduceOp.Min: "min", ReduceOp.Prod: "mul"}
_ON_PRED = {ReduceOp.Sum: "or", ReduceOp.Max: "or", ReduceOp.Min: "and", ReduceOp.Prod: "and"}


@dataclass(frozen=True)
class Reduction:
    """A reduce op on elements of a type.

    Sums start from +0. Where it sums or multiplies, f16 and bf16 are computed in f32.
    """

    op: ReduceOp
    element: DType

    @property
    def _sums(self) -> bool:
        return self.op is ReduceOp.Sum and self.element.is_float

    @property
    def _computed(self) -> DType:
        """The type that it is computed in."""
        exact = self.op in (ReduceOp.Max, ReduceOp.Min)
        return F32 if self.element.is_float and self.element.bits < 32 and not exact else self.element

    def _cast(self, e: Emitter, tile: SSAValue, element: DType) -> SSAValue:
        type = shaped(tile)
        if type.dtype is element:
            return tile
        return e.insert(CastOp(tile, TileType.of(type.extents, element), "rint")).result

    def begin(self, e: Emitter, tile: SSAValue) -> SSAValue:
        """What a reduction is after its first tile."""
        tile = self._cast(e, tile, self._computed)
        if self._sums:  # +0 and -0 is +0
            tile = e.insert(BinaryOp("add", tile, e.constant(0.0, scalar_type(self._computed)))).result
        return tile

    def join(self, e: Emitter, so_far: SSAValue, tile: SSAValue) -> SSAValue:
        """What it is after another tile."""
        name = (_ON_PRED if self.element is PRED else _BINARY)[self.op]
        return e.insert(BinaryOp(name, so_far, self._cast(e, tile, self._computed))).result

    def end(self, e: Emitter, so_far: SSAValue) -> SSAValue:
        """What it is, in the type of its elements."""
        return self._cast(e, so_far, self.element)

    def over_ranks(
        self, e: Emitter, domain: Domain, tensor: SSAValue, at: list[Index], columns: int, valid: Index
    ) -> SSAValue:
        """One tile ``[1, columns]`` of every rank, ``valid`` of its elements, in the order of the ranks."""
        type = TileType.of([1, columns], self.element)
        offsets, shape = e.indices(at), e.indices([1, valid])

        def of(inner: Emitter, peer: SSAValue) -> SSAValue:
            return inner.insert(RemoteLoadOp(tensor, peer, offsets, type, shape)).result

        first = self.begin(e, of(e, e.index(0)))
        with e.loop("peer", domain.size, start=1, carry=[first]) as peers:
            (so_far,) = peers.carried
            peers.carried = [self.join(peers, so_far, of(peers, peers.number))]
        return self.end(e, peers.carried[0])
