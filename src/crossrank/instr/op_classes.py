"""The ops that the builder makes: each class implies the kind of its instruction, which the builder never writes.

`KIND_OF` is the table; an op with two routings (the tiled permute) has the kind of the one that it was given. Two more
classes of the source, ``ShardOp`` and ``CollectiveComputeOp``, have no builder method there, and are not here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from crossrank.errors import InputError
from crossrank.instr.fields import (
    BarrierFields,
    CollectiveFields,
    Fields,
    Pairs,
    PeerFields,
    RankFields,
    RingFields,
)
from crossrank.instr.instructions import (
    InstCollectiveCompute,
    InstCoreBarrier,
    InstGetCurProcessingRankID,
    InstGetGlobalRankId,
    InstRecv,
    Instruction,
    InstSend,
)
from crossrank.instr.kinds import AluOp, CollectiveDimension, CollectiveKind
from crossrank.instr.tensors import View


@dataclass(frozen=True, kw_only=True)
class Op(ABC):
    """What the builder inserts: operands and routing, checked as it is made.

    Attributes:
        name: the instruction's name where its author gave one.
        deps: names of instructions that must have ended before.
    """

    INSTRUCTION: ClassVar[type[Instruction]]
    name: str | None = None
    deps: tuple[str, ...] = ()

    @property
    def outs(self) -> Sequence[View]:
        """What it writes."""
        return ()

    @property
    def ins(self) -> Sequence[View]:
        """What it reads."""
        return ()

    @property
    @abstractmethod
    def fields(self) -> Fields:
        """The fields of its instruction."""

    @property
    def title(self) -> str:
        """What names of such instructions begin with."""
        return self.INSTRUCTION.__name__.removeprefix("Inst")

    @property
    def gives_register(self) -> bool:
        """Whether its instruction gives a register."""
        return False


def _qos(dma_qos: int | None) -> int:
    return -1 if dma_qos is None else dma_qos


@dataclass(frozen=True, kw_only=True)
class CollectiveOp(Op):
    """A collective among ranks; among the cores of a rank where it is local."""

    INSTRUCTION: ClassVar[type[Instruction]] = InstCollectiveCompute
    KIND: ClassVar[CollectiveKind | None] = None
    srcs: Sequence[View]
    dsts: Sequence[View]
    replica_groups: Pairs = ()
    op: AluOp | None = None
    dma_qos: int | None = None
    is_local: bool = False

    @property
    def kind(self) -> CollectiveKind:
        """The kind that the class implies."""
        assert self.KIND is not None
        return self.KIND

    @property
    def outs(self) -> Sequence[View]:
        """The destinations."""
        return self.dsts

    @property
    def ins(self) -> Sequence[View]:
        """The sources."""
        return self.srcs

    @property
    def title(self) -> str:
        """The kind's name; a local one says so."""
        return ("Local" if self.is_local else "") + self.kind.label

    def routing(self) -> dict[str, object]:
        """The fields that are its class's own."""
        return {}

    @property
    def fields(self) -> CollectiveFields:
        """The fields of its instruction."""
        return CollectiveFields(
            kind=self.kind,
            op_class=type(self).__name__,
            replica_groups=self.replica_groups,
            op=self.op,
            dma_qos=_qos(self.dma_qos),
            is_local=self.is_local,
            **self.routing(),  # type: ignore[arg-type]
        )


def _single(op: CollectiveOp, text: str) -> None:
    if len(op.srcs) != 1 or len(op.dsts) != 1:
        raise InputError(text, f"give one source and one destination, not {len(op.srcs)} and {len(op.dsts)}")


def _two_in_one_out(op: CollectiveOp) -> None:
    if len(op.srcs) != 2 or len(op.dsts) != 1:
        raise InputError("Expect 2 input buffers and 1 output buffer")


def _dimension(dim: int | None) -> CollectiveDimension | None:
    if dim is None:
        return None
    if dim not in (0, 1):
        raise InputError(
            f"a collective's dimension is 0 (partition) or 1 (free), not {dim}", "reshape the tensors first"
        )
    return CollectiveDimension(dim)


@dataclass(frozen=True, kw_only=True)
class AllReduceOp(CollectiveOp):
    """Every member gets the reduction of all."""

    KIND: ClassVar[CollectiveKind | None] = CollectiveKind.ALL_REDUCE


@dataclass(frozen=True, kw_only=True)
class TiledAllReduceOp(AllReduceOp):
    """The same, tile by tile."""


@dataclass(frozen=True, kw_only=True)
class ReduceScatterOp(CollectiveOp):
    """Every member gets its slice of the reduction of all."""

    KIND: ClassVar[CollectiveKind | None] = CollectiveKind.REDUCE_SCATTER
    reduce_scatter_dim: int

    def routing(self) -> dict[str, object]:
        """The dimension."""
        return {"cc_dim": _dimension(self.reduce_scatter_dim)}


@dataclass(frozen=True, kw_only=True)
class AllGatherOp(CollectiveOp):
    """Every member gets what all have, joined."""

    KIND: ClassVar[CollectiveKind | None] = CollectiveKind.ALL_GATHER
    all_gather_dim: int

    def routing(self) -> dict[str, object]:
        """The dimension."""
        return {"cc_dim": _dimension(self.all_gather_dim)}


@dataclass(frozen=True, kw_only=True)
class AlltoAllOp(CollectiveOp):
    """Member i gets the i-th slice of every member."""

    KIND: ClassVar[CollectiveKind | None] = CollectiveKind.ALL_TO_ALL
    split_dimension: int | None
    concat_dimension: int | None

    def __post_init__(self) -> None:
        if self.split_dimension is None:
            raise InputError("Illegal AlltoAll without split_dimension")
        if self.concat_dimension is None:
            raise InputError("Illegal AlltoAll without concat_dimension")
        _single(self, "Expect single alltoall buffer")

    def routing(self) -> dict[str, object]:
        """Both dimensions, and into how many parts."""
        parts = len(self.replica_groups[0]) if self.replica_groups else 0
        return {
            "cc_dim": _dimension(self.split_dimension),
            "concat_dim": _dimension(self.concat_dimension),
            "split_count": parts,
        }


@dataclass(frozen=True, kw_only=True)
class AlltoAllVOp(CollectiveOp):
    """Members send each other as much as their metadata says (an extension: the source has no builder of it)."""

    KIND: ClassVar[CollectiveKind | None] = CollectiveKind.ALL_TO_ALL_V
    metadata: View
    recv_counts_known: bool = False
    has_rdispls: bool = False
    uniform_send: bool = False
    phase: str = ""

    def __post_init__(self) -> None:
        _single(self, "Expect single alltoall buffer")

    @property
    def ins(self) -> Sequence[View]:
        """The source and the metadata."""
        return (*self.srcs, self.metadata)

    @property
    def outs(self) -> Sequence[View]:
        """The destination, and the metadata where the receive counts are written."""
        return self.dsts if self.recv_counts_known else (*self.dsts, self.metadata)

    def routing(self) -> dict[str, object]:
        """How the metadata is read, and which half of the exchange it is."""
        names = ("recv_counts_known", "has_rdispls", "uniform_send", "phase")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class BroadcastOp(CollectiveOp):
    """Every member gets what the first one has (an extension: the source has no kind for it)."""

    KIND: ClassVar[CollectiveKind | None] = CollectiveKind.BROADCAST
    broadcast_sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _single(self, "Expect single broadcast buffer")
        shape = self.srcs[0].shape
        if self.broadcast_sizes and (
            len(self.broadcast_sizes) != len(shape)
            or any(not 0 <= n <= e for n, e in zip(self.broadcast_sizes, shape, strict=False))
        ):
            raise InputError(f"broadcast_sizes {list(self.broadcast_sizes)} are no extents within {list(shape)}")

    def _sent(self, views: Sequence[View]) -> Sequence[View]:
        if not self.broadcast_sizes:
            return views
        return [view[tuple(slice(0, n) for n in self.broadcast_sizes)] for view in views]

    @property
    def ins(self) -> Sequence[View]:
        """The part of the source that is sent."""
        return self._sent(self.srcs)

    @property
    def outs(self) -> Sequence[View]:
        """The part of the destination that is written."""
        return self._sent(self.dsts)

    def routing(self) -> dict[str, object]:
        """The extents."""
        return {"broadcast_sizes": self.broadcast_sizes}


@dataclass(frozen=True, kw_only=True)
class CollectivePermuteOp(CollectiveOp):
    """Each member sends to the next in its group."""

    KIND: ClassVar[CollectiveKind | None] = CollectiveKind.PERMUTE_IMPLICIT

    def __post_init__(self) -> None:
        _single(self, "Expect single CollectivePermute")


@dataclass(frozen=True, kw_only=True)
class CollectivePermuteReduceOp(CollectiveOp):
    """Each source sends the reduction of its two tensors to its target: refused in the source.

    ``extension=True`` makes it all the same.
    """

    KIND: ClassVar[CollectiveKind | None] = CollectiveKind.PERMUTE_REDUCE
    src_tgt_pairs: Pairs
    extension: bool = False

    def __post_init__(self) -> None:
        if not self.extension:
            raise InputError("Collective PermuteReduce is not supported for now")
        _two_in_one_out(self)

    def routing(self) -> dict[str, object]:
        """The pairs."""
        return {"src_target_pairs": self.src_tgt_pairs}


@dataclass(frozen=True, kw_only=True)
class TiledCollectivePermuteOp(CollectiveOp):
    """A permute of a tile: along pairs, or to the next in the group on one of several channels."""

    src_tgt_pairs: Pairs = ()
    channel_id: int = -1
    num_channels: int = 1

    def __post_init__(self) -> None:
        _single(self, "Expect single CollectivePermute")

    @property
    def kind(self) -> CollectiveKind:
        """Explicit where it has pairs, implicit where it has groups."""
        return CollectiveKind.PERMUTE_IMPLICIT if self.replica_groups else CollectiveKind.PERMUTE

    def routing(self) -> dict[str, object]:
        """Pairs, or the channel."""
        return {
            "src_target_pairs": self.src_tgt_pairs,
            "channel_id": self.channel_id,
            "num_channels": self.num_channels,
        }


@dataclass(frozen=True, kw_only=True)
class TiledCollectivePermuteReduceOp(CollectiveOp):
    """Each member sends the reduction of its two tiles to the next in its group, on one of several channels."""

    KIND: ClassVar[CollectiveKind | None] = CollectiveKind.PERMUTE_REDUCE_IMPLICIT
    channel_id: int
    num_channels: int

    def __post_init__(self) -> None:
        _two_in_one_out(self)

    def routing(self) -> dict[str, object]:
        """The channel."""
        return {"channel_id": self.channel_id, "num_channels": self.num_channels}


@dataclass(frozen=True, kw_only=True)
class SendRecvOp(CollectiveOp):
    """The cores of a rank exchange tiles."""

    KIND: ClassVar[CollectiveKind | None] = CollectiveKind.SEND_RECV
    send_to_rank: int
    recv_from_rank: int
    pipe_id: int
    use_gpsimd_dma: bool = False
    is_local: bool = True

    @property
    def recv_from(self) -> tuple[int, ...]:
        """The cores that it receives from."""
        return (self.recv_from_rank,)

    def routing(self) -> dict[str, object]:
        """The cores, the pipe and the engine that was asked for."""
        return {
            "send_to_rank": self.send_to_rank,
            "recv_from_ranks": self.recv_from,
            "pipe_id": self.pipe_id,
            "use_gpsimd_dma": self.use_gpsimd_dma,
            "initial_core_barrier": True,
        }


@dataclass(frozen=True, kw_only=True)
class SendRecvCCEOp(CollectiveOp):
    """A core sends to one core of its rank, and gets the reduction of what several send."""

    KIND: ClassVar[CollectiveKind | None] = CollectiveKind.SEND_RECV_CCE
    send_to_rank: int
    recv_from_ranks: tuple[int, ...]
    pipe_id: int
    is_local: bool = True

    def routing(self) -> dict[str, object]:
        """The cores and the pipe."""
        return {
            "send_to_rank": self.send_to_rank,
            "recv_from_ranks": self.recv_from_ranks,
            "pipe_id": self.pipe_id,
            "initial_core_barrier": True,
        }


@dataclass(frozen=True, kw_only=True)
class SendOp(Op):
    """Sends to a rank, and does not wait."""

    INSTRUCTION: ClassVar[type[Instruction]] = InstSend
    srcs: Sequence[View]
    peer_id: int
    dma_qos: int | None = None

    @property
    def ins(self) -> Sequence[View]:
        """What is sent."""
        return self.srcs

    @property
    def fields(self) -> PeerFields:
        """The peer."""
        return PeerFields(self.peer_id, _qos(self.dma_qos))


@dataclass(frozen=True, kw_only=True)
class RecvOp(Op):
    """Receives from a rank."""

    INSTRUCTION: ClassVar[type[Instruction]] = InstRecv
    dsts: Sequence[View]
    peer_id: int
    dma_qos: int | None = None

    @property
    def outs(self) -> Sequence[View]:
        """What is received."""
        return self.dsts

    @property
    def fields(self) -> PeerFields:
        """The peer."""
        return PeerFields(self.peer_id, _qos(self.dma_qos))


@dataclass(frozen=True, kw_only=True)
class CoreBarrierOp(Op):
    """Cores of a rank meet; the semaphore is read and written."""

    INSTRUCTION: ClassVar[type[Instruction]] = InstCoreBarrier
    data: View
    cores: tuple[int, ...]
    engine: str = "gpsimd"

    @property
    def ins(self) -> Sequence[View]:
        """The semaphore."""
        return (self.data,)

    @property
    def outs(self) -> Sequence[View]:
        """The semaphore."""
        return (self.data,)

    @property
    def fields(self) -> BarrierFields:
        """Who meets."""
        return BarrierFields(self.cores, self.engine)


@dataclass(frozen=True, kw_only=True)
class GetGlobalRankId(Op):
    """The number of this rank: that of the physical core, divided by the cores of a rank."""

    INSTRUCTION: ClassVar[type[Instruction]] = InstGetGlobalRankId
    world_size: int

    @property
    def fields(self) -> RankFields:
        """Of how many."""
        return RankFields(self.world_size)

    @property
    def gives_register(self) -> bool:
        """It does."""
        return True


@dataclass(frozen=True, kw_only=True)
class GetCurProcessingRankID(Op):
    """The rank whose data this member of a ring holds after some steps."""

    INSTRUCTION: ClassVar[type[Instruction]] = InstGetCurProcessingRankID
    iteration_id: int
    replica_groups: Pairs = field(default=())
    channel_id: int = 0
    num_channels: int = 1

    @property
    def fields(self) -> RingFields:
        """The ring and the step."""
        return RingFields(self.iteration_id, self.replica_groups, self.channel_id, self.num_channels)

    @property
    def gives_register(self) -> bool:
        """It does."""
        return True


KIND_OF: dict[str, CollectiveKind | None] = {
    cls.__name__: cls.KIND
    for cls in (
        AllReduceOp,
        TiledAllReduceOp,
        ReduceScatterOp,
        AllGatherOp,
        AlltoAllOp,
        AlltoAllVOp,
        BroadcastOp,
        CollectivePermuteOp,
        CollectivePermuteReduceOp,
        TiledCollectivePermuteOp,
        TiledCollectivePermuteReduceOp,
        SendRecvOp,
        SendRecvCCEOp,
    )
}
"""The kind of each class of collective op; None for the tiled permute, whose routing decides."""
