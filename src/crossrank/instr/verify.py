"""What each kind of collective asks of its fields and operands; the texts are the source's where it has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.utils.exceptions import VerifyException

from crossrank.errors import counted
from crossrank.instr.fields import BarrierFields, CollectiveFields, Pairs, RingFields
from crossrank.instr.kinds import MULTI_CORE_ARCH, CollectiveKind
from crossrank.instr.types import TensorType


def check_collective(
    label: str, fields: CollectiveFields, outs: Sequence[TensorType], ins: Sequence[TensorType]
) -> None:
    """Raise a VerifyException where fields and operands of a collective do not fit its kind."""
    kind = fields.kind

    def ask(holds: object, text: str) -> None:
        if not holds:
            raise VerifyException(text)

    def ours(holds: object, text: str) -> None:
        ask(holds, f"{label}: {text}")

    if kind is CollectiveKind.PERMUTE:
        ask(not fields.replica_groups, "Permute should not contain replica_groups")
    if kind is CollectiveKind.PERMUTE_IMPLICIT:
        ask(not fields.src_target_pairs, "PermuteImplicit should not contain src_target_pairs")
    if kind in (CollectiveKind.PERMUTE_REDUCE, CollectiveKind.PERMUTE_REDUCE_IMPLICIT):
        ask(len(ins) == 2 and len(outs) == 1, f"{kind.title} must have 2 inputs and 1 output")
        ask(fields.op is not None and not fields.op.is_extension, "Unsupported OP type for Permute Reduce Implicit")
    if kind.is_point_to_point:
        _check_point_to_point(label, fields, ask)
    elif kind.has_pairs:
        ours(fields.src_target_pairs, "source-target pairs are needed")
        check_pairs(fields.src_target_pairs, ours)
        ours(not fields.replica_groups, "it has pairs, and so no replica groups")
    else:
        ours(not fields.src_target_pairs, "it has replica groups, and so no source-target pairs")
        check_groups(fields.replica_groups, ours)
    if kind.reduces:
        ours(fields.op is not None, "a reduce op is needed")
    if kind in (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL):
        ours(fields.cc_dim is not None, "a dimension is needed: 0 (partition) or 1 (free)")
    if kind is CollectiveKind.ALL_TO_ALL:
        ours(fields.concat_dim is not None, "a dimension to join is needed: 0 (partition) or 1 (free)")
    ours(ins and outs, "sources and destinations are needed")
    single = kind.is_ring or kind.has_pairs or kind.is_point_to_point
    if kind in (CollectiveKind.PERMUTE, CollectiveKind.PERMUTE_IMPLICIT, CollectiveKind.SEND_RECV):
        ours(len(ins) == len(outs) == 1, "one source and one destination are needed")
    elif kind is CollectiveKind.ALL_TO_ALL_V:
        _check_variable(fields, outs, ins, ours)
    elif not single:
        ours(len(ins) == len(outs), f"{len(ins)} sources, but {len(outs)} destinations")
    if kind is CollectiveKind.PERMUTE_REDUCE_IMPLICIT or (kind.is_ring and fields.op_class.startswith("Tiled")):
        ours(fields.channel_id >= 0, "a channel id is needed")
    _check_carried(fields, ours)
    if kind is not CollectiveKind.ALL_TO_ALL_V:
        for source, target in zip(ins, list(outs) * len(ins), strict=False):
            _check_shapes(fields, source, target, ours)


def check_groups(groups: Pairs, ask: Callable[[object, str], None]) -> None:
    """Groups are not empty, of one size, and hold each member at most once."""
    ask(groups and all(groups), "replica groups are needed, and none may be empty")
    ask(len({len(g) for g in groups}) <= 1, "replica groups must have one size")
    members = [m for g in groups for m in g]
    twice = next((m for m in sorted(set(members)) if members.count(m) > 1), None) if _repeats(members) else None
    ask(twice is None, f"rank {twice} is in more than one list of the replica groups")
    ask(all(m >= 0 for m in members), "a member of a replica group is below zero")


def check_pairs(pairs: Pairs, ask: Callable[[object, str], None]) -> None:
    """Pairs are two ranks each; nobody sends or receives twice."""
    ask(all(len(p) == 2 and min(p) >= 0 for p in pairs), "a source-target pair is two ranks")
    for column, what in ((0, "source"), (1, "target")):
        ask(not _repeats([p[column] for p in pairs]), f"a rank is the {what} of two pairs")


def _repeats(members: Sequence[int]) -> bool:
    return len(set(members)) != len(members)


def _check_carried(fields: CollectiveFields, ask: Callable[[object, str], None]) -> None:
    """What is carried through is what it can be, and stands only where it means something."""
    kind, plain = fields.kind, CollectiveFields()
    ask(fields.dma_qos in range(-1, 4), "dma_qos is 0, 1, 2, 3 or not given")
    ask(fields.stream_id >= -1, "a stream id is not below zero")
    ask(fields.channel_id >= -1 and fields.num_channels >= 1, "a channel id is not below zero")
    own = {
        "replica_groups": not kind.is_point_to_point,
        "src_target_pairs": not kind.is_point_to_point,
        "op": kind.reduces,
        "cc_dim": kind in (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL),
        "concat_dim": kind is CollectiveKind.ALL_TO_ALL,
        "channel_id": kind.is_ring,
        "num_channels": kind.is_ring,
        "cc_type_hint": kind in (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER),
        "split_count": kind is CollectiveKind.ALL_TO_ALL,
        "broadcast_sizes": kind is CollectiveKind.BROADCAST,
        "recv_counts_known": kind is CollectiveKind.ALL_TO_ALL_V,
        "has_rdispls": kind is CollectiveKind.ALL_TO_ALL_V,
        "uniform_send": kind is CollectiveKind.ALL_TO_ALL_V,
        "phase": kind is CollectiveKind.ALL_TO_ALL_V,
        "pipe_id": kind.is_point_to_point,
        "send_to_rank": kind.is_point_to_point,
        "recv_from_ranks": kind.is_point_to_point,
        "initial_core_barrier": kind.is_point_to_point,
        "use_gpsimd_dma": kind is CollectiveKind.SEND_RECV,
    }
    for name, may in own.items():
        ask(may or getattr(fields, name) == getattr(plain, name), f"{kind.title} has no {name}")


def _check_variable(
    fields: CollectiveFields,
    outs: Sequence[TensorType],
    ins: Sequence[TensorType],
    ask: Callable[[object, str], None],
) -> None:
    """One source, one destination, and metadata of a row for each thing that it says; it is an out where written."""
    ask(fields.phase in ("", "prepare", "trigger"), "the phase is prepare, trigger or empty")
    ask(len(ins) == 2, "one source and its metadata are needed")
    ask(
        len(outs) == (1 if fields.recv_counts_known else 2),
        "one destination is needed, and the metadata where receive counts are written",
    )
    rows, members = 3 + fields.has_rdispls, len(fields.replica_groups[0])
    for table in (ins[1], *outs[1:]):
        ask(
            table.dtype.name == "u32" and table.size == rows * members,
            f"the metadata is uint32 of shape {[rows, members]}, and not {table.dtype}{list(table.shape)}",
        )
    ask(ins[0].dtype is outs[0].dtype, f"the source has elements of {ins[0].dtype}, the destination of {outs[0].dtype}")


def check_ring(label: str, fields: RingFields) -> None:
    """Raise a VerifyException where a ring is none."""

    def ask(holds: object, text: str) -> None:
        if not holds:
            raise VerifyException(f"{label}: {text}")

    check_groups(fields.replica_groups, ask)
    ask(fields.channel_id >= 0, "a channel id is not below zero")


def check_barrier(label: str, fields: BarrierFields, core: int) -> None:
    """Raise a VerifyException where a core waits at a barrier of others, or of itself twice."""
    if core not in fields.cores or _repeats(fields.cores):
        raise VerifyException(f"{label}: core {core} waits at a barrier of the cores {list(fields.cores)}")


def _check_point_to_point(label: str, fields: CollectiveFields, ask: Callable[[object, str], None]) -> None:
    ask(fields.send_to_rank >= 0, "The sendToRank must be a integer")
    ask(fields.recv_from_ranks and min(fields.recv_from_ranks) >= 0, "The recvFromRank must be a integer")
    ask(not _repeats(fields.recv_from_ranks), f"{label}: it receives twice from one core")
    ask(
        fields.kind is CollectiveKind.SEND_RECV_CCE or len(fields.recv_from_ranks) == 1,
        f"{label}: it receives from one core",
    )
    ask(fields.pipe_id >= 0, "The pipeId must be a integer")
    ask(fields.is_local, f"{label}: it stays within a rank: is_local must be true")


def check_not_self(fields: CollectiveFields, core: int) -> None:
    """Raise a VerifyException where a core exchanges tiles with itself."""
    if fields.kind.is_point_to_point:
        if core in fields.recv_from_ranks:
            raise VerifyException(f"SendRecv instruction on core {core} is receiving from itself!")
        if core == fields.send_to_rank:
            raise VerifyException(f"SendRecv instruction on core {core} is sending to itself!")


def _check_shapes(
    fields: CollectiveFields, source: TensorType, target: TensorType, ask: Callable[[object, str], None]
) -> None:
    ask(
        source.dtype is target.dtype,
        f"the source has elements of {source.dtype}, the destination of {target.dtype}; copy one of them first",
    )
    kind, members = fields.kind, len(fields.replica_groups[0]) if fields.replica_groups else 1
    wanted = list(source.shape)
    for dim in (fields.cc_dim, fields.concat_dim):
        ask(dim is None or dim < len(wanted), f"the source of shape {wanted} has no dimension {dim}")
    if kind is CollectiveKind.ALL_GATHER and fields.cc_dim is not None:
        wanted[fields.cc_dim] *= members
    if kind in (CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL) and fields.cc_dim is not None:
        extent = wanted[fields.cc_dim]
        ask(extent % members == 0, f"dimension {fields.cc_dim:d} of extent {extent} cannot be split among {members}")
        wanted[fields.cc_dim] //= members
        if kind is CollectiveKind.ALL_TO_ALL and fields.concat_dim is not None:
            wanted[fields.concat_dim] *= members
    ask(
        tuple(wanted) == target.shape,
        f"from a source of shape {list(source.shape)} the destination gets {wanted}, and has {list(target.shape)}",
    )


def check_members(members: Sequence[int], count: int, is_local: bool, ask: Callable[[object, str], None]) -> None:
    """All members are ranks of the world, or cores of a rank."""
    outside = [m for m in members if not 0 <= m < count]
    what = f"core {outside[0]} is none of the {counted(count, 'core')} of a rank" if outside and is_local else ""
    ask(not outside, what or f"rank {outside[0] if outside else 0} is none of the {counted(count, 'rank')}")


def check_arch(arch: int, what: str, ask: Callable[[object, str], None]) -> None:
    """Something by which cores meet is asked of a machine whose cores can."""
    ask(arch >= MULTI_CORE_ARCH, f"{what} needs architecture level {MULTI_CORE_ARCH} or more, not {arch}")
