"""Collectives as a module writes them: native, asynchronous or converted to a custom-call, read in one way.

`describe` gives what an instruction says; what that means for ranks (`rank_groups`, `rank_pairs`) needs the module's
configuration as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from crossrank.collective.dtypes import DType
from crossrank.collective.groups import (
    AxisRef,
    ExplicitGroups,
    GroupMode,
    IotaGroups,
    IotaIds,
    MeshGroups,
    ReplicaGroups,
    group_mode,
    parse_groups,
    rank_groups,
)
from crossrank.collective.kinds import Kind, ReduceOp
from crossrank.collective.pairs import SourceTargetPairs, parse_pairs
from crossrank.errors import InputError
from crossrank.hlo.backend_config import BINARY_OPS, CollectiveConfig, parse_config
from crossrank.hlo.config import ModuleConfig
from crossrank.hlo.module import Computation, Instruction, Module
from crossrank.hlo.schema import InstructionProto
from crossrank.hlo.shape import Shape
from crossrank.hlo.targets import element_type, parse_target

ROUTES = "_xla_send_recv_source_target_pairs"
GROUPS_ATTRIBUTE = "replica_groups"
PAIRS_ATTRIBUTE = "source_target_pairs"
# the backend's own config of a native collective (compiled modules have one), while ours stands in its place
NATIVE_CONFIG_ATTRIBUTE = "native_backend_config"

GROUP_FIELDS = (
    "replica_groups",
    "collective_device_list",
    "iota_collective_device_list",
    "mesh_axes_replica_group_list",
)

_REDUCE_OPS = {str(op): op for op in ReduceOp}
_KINDS = {str(k): k for k in Kind if k is not Kind.SEND_RECV}
_STARTS = {f"{k}-start": k for k in (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.COLLECTIVE_PERMUTE)}
_DIMENSIONED = (Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL)
_MANY = 1 << 20
# those whose use_global_device_ids is always engaged; on the others a channel id alone means partitions
_GLOBAL_IDS = (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER)


@dataclass(frozen=True)
class CollectiveInfo:
    """What one instruction says about its collective.

    Attributes:
        kind: which collective.
        converted: it is a custom-call of the naming contract.
        asynchronous: it is the start of a start/done pair.
        groups: as written; None where the kind has none (permutes, send, recv).
        pairs: source-target pairs of a permute, of a send or a receive; None where those two do not say.
        mode: what the ids of groups or pairs are; None where the combination is none.
        channel_id: None where there is none.
        use_global_device_ids: None where it is not set.
        constrain_layout: whether layouts are pinned.
        dim: gather, scatter or split dimension; None for a kind or form without one.
        reduction: HLO opcode of the reduction body's root, or None; ``reduce_op`` is the same where it is one of ours.
        trivial_body: the body combines its two parameters directly.
        dtype: the one element type of all results, None where they differ.
        nbytes: bytes of the results on one rank.
    """

    kind: Kind
    converted: bool = False
    asynchronous: bool = False
    groups: ReplicaGroups | None = None
    pairs: SourceTargetPairs | None = None
    mode: GroupMode | None = None
    channel_id: int | None = None
    use_global_device_ids: bool | None = None
    constrain_layout: bool = False
    dim: int | None = None
    reduction: str | None = None
    trivial_body: bool = True
    dtype: DType | None = None
    nbytes: int = 0

    @property
    def reduce_op(self) -> ReduceOp | None:
        """The reduction, where it is one of ours."""
        return _REDUCE_OPS.get(self.reduction or "") if self.trivial_body else None


def kind_of(i: Instruction) -> Kind | None:
    """The collective that an instruction is (converted and asynchronous ones too), or None."""
    if i.opcode == "custom-call":
        target = parse_target(i.proto.custom_call_target)
        return target.kind if target else None
    return _KINDS.get(i.opcode) or _STARTS.get(i.opcode)


def collectives(module: Module) -> Iterator[tuple[Instruction, CollectiveInfo]]:
    """Every collective of a module with what it says, in order."""
    for i in module.instructions():
        info = describe(i)
        if info is not None:
            yield i, info


def describe(i: Instruction) -> CollectiveInfo | None:
    """What an instruction says about its collective; None where it is none.

    Raises:
        InputError: its groups, its pairs or its config cannot be read.
    """
    kind = kind_of(i)
    if kind is None:
        return None
    try:
        return _describe_converted(i, kind) if i.opcode == "custom-call" else _describe_native(i, kind)
    except ValueError as error:
        raise InputError(f"%{i.name}: {error}") from None


def result_shape(i: Instruction) -> Shape:
    """The shape of what the collective gives, also where an asynchronous start wraps it."""
    shape = i.shape
    if i.opcode in ("all-gather-start", "collective-permute-start"):
        return shape.elements[1]
    if i.opcode in ("send", "recv"):
        return shape.elements[0]
    return shape


def named_shape(i: Instruction) -> Shape:
    """The shape whose elements name a converted collective: its result's, or, of a send, what it sends."""
    sends = kind_of(i) is Kind.SEND
    return Shape.tuple_of([o.shape for o in i.operands]) if sends else i.shape


def _describe_native(i: Instruction, kind: Kind) -> CollectiveInfo:
    proto, shape = i.proto, result_shape(i)
    channel = int(proto.channel_id) or None
    if channel is not None and channel < 0:
        raise ValueError(f"a channel id is above zero, not {channel}")
    use_global = bool(proto.use_global_device_ids) or None
    reduction, trivial = reduction_of(i.called[0]) if kind.reduces and i.called else (None, True)
    pairs = None
    if kind.has_tokens:
        pairs = _routes(proto)
    elif kind is Kind.COLLECTIVE_PERMUTE:
        pairs = SourceTargetPairs(tuple((p.source, p.target) for p in proto.source_target_pairs))
    return CollectiveInfo(
        kind=kind,
        asynchronous=i.opcode in _STARTS,
        groups=None if kind.has_pairs else read_groups(proto),
        pairs=pairs,
        mode=_mode(kind, channel, use_global),
        channel_id=channel,
        use_global_device_ids=use_global,
        constrain_layout=bool(proto.constrain_layout),
        dim=int(proto.dimensions[0]) if kind in _DIMENSIONED and proto.dimensions else None,
        reduction=reduction,
        trivial_body=trivial,
        dtype=element_type(shape),
        nbytes=shape.nbytes,
    )


def _describe_converted(i: Instruction, kind: Kind) -> CollectiveInfo:
    target = parse_target(i.proto.custom_call_target)
    assert target is not None
    config = parse_config(i.proto.backend_config.decode(errors="replace"))
    groups, pairs = None, None
    if kind.has_tokens:
        pairs = _routes(i.proto)
    elif kind.has_pairs:
        pairs = parse_pairs(i.proto.frontend_attributes.map.get(PAIRS_ATTRIBUTE, "{}"))
    else:
        groups = parse_groups(i.proto.frontend_attributes.map.get(GROUPS_ATTRIBUTE, "{}"))
    shape = named_shape(i)
    reduction = str(target.reduce_op) if target.reduce_op else config.reduce
    return CollectiveInfo(
        kind=kind,
        converted=True,
        groups=groups,
        pairs=pairs,
        mode=_mode(kind, config.channel_id, config.use_global_device_ids),
        channel_id=config.channel_id,
        use_global_device_ids=config.use_global_device_ids,
        constrain_layout=bool(config.constrain_layout),
        dim=config.dimension,
        reduction=reduction if kind.reduces else None,
        dtype=element_type(shape),
        nbytes=shape.nbytes,
    )


def _routes(proto: Any) -> SourceTargetPairs | None:
    routes = proto.frontend_attributes.map.get(ROUTES)
    return parse_pairs(routes) if routes else None


def config_of(info: CollectiveInfo, reduce: str | None) -> CollectiveConfig:
    """The ``backend_config`` that carries what a native collective says."""
    constrain = None if info.kind.has_pairs else info.constrain_layout
    return CollectiveConfig(info.channel_id, info.dim, info.use_global_device_ids, constrain, reduce)


def _mode(kind: Kind, channel: int | None, use_global: bool | None) -> GroupMode | None:
    try:
        return group_mode(channel is not None, bool(use_global) if kind in _GLOBAL_IDS else None)
    except ValueError:
        return None


def reduction_of(body: Computation) -> tuple[str, bool]:
    """The opcode of a reduction body's root, and whether it combines the two parameters directly.

    A copy is nobody's work: shard_map leaves one behind the root where only some axes of the mesh are manual.
    """
    root = _uncopied(body.root)
    parameters = {id(p) for o in root.operands if (p := _uncopied(o)).opcode == "parameter"}
    return root.opcode, root.opcode in BINARY_OPS and len(root.operands) == 2 and len(parameters) == 2


def _uncopied(value: Instruction) -> Instruction:
    while value.opcode == "copy":
        value = value.operands[0]
    return value


# -- groups ------------------------------------------------------------------------------------------------------------
def read_groups(proto: Any) -> ReplicaGroups:
    """The groups of an instruction in the form in which they are written."""
    for field in GROUP_FIELDS[1:]:
        if proto.HasField(field):
            return _read_groups(field, getattr(proto, field).SerializeToString())
    return ExplicitGroups(tuple(tuple(g.replica_ids) for g in proto.replica_groups))


@lru_cache(maxsize=1024)  # a module writes the same few groups over and over
def _read_groups(field: str, data: bytes) -> ReplicaGroups:
    proto = InstructionProto()
    getattr(proto, field).ParseFromString(data)
    if proto.HasField("iota_collective_device_list"):
        iota = proto.iota_collective_device_list
        return IotaGroups(
            iota.num_replica_groups,
            iota.num_devices_per_group,
            tuple(iota.iota_reshape_dims),
            tuple(iota.iota_transpose_perm),
        )
    if proto.HasField("mesh_axes_replica_group_list"):
        written = proto.mesh_axes_replica_group_list
        mesh = written.mesh
        devices: tuple[int, ...] | IotaIds | None = tuple(mesh.device_ids) or None
        if mesh.HasField("iota_transform"):
            transform = mesh.iota_transform
            devices = IotaIds(tuple(transform.reshape_dims), tuple(transform.transpose_perm))
        refs = [
            AxisRef(r.mesh_axis_index, r.sub_axis_info.pre_size, r.sub_axis_info.size)
            if r.HasField("sub_axis_info")
            else AxisRef(r.mesh_axis_index, None, None)
            for r in written.axes
        ]
        return MeshGroups(tuple((a.name, a.size) for a in mesh.axes), devices, tuple(refs))
    return ExplicitGroups(tuple(tuple(g.replica_ids) for g in proto.collective_device_list.replica_groups))


def write_groups(proto: Any, groups: ReplicaGroups) -> None:
    """Write groups into an instruction in their own form, in place of what was there."""
    for field in GROUP_FIELDS:
        proto.ClearField(field)
    if isinstance(groups, IotaGroups):
        iota = proto.iota_collective_device_list
        iota.num_replica_groups, iota.num_devices_per_group = groups.num_groups, groups.group_size
        iota.iota_reshape_dims.extend(groups.reshape_dims)
        iota.iota_transpose_perm.extend(groups.transpose_perm)
    elif isinstance(groups, MeshGroups):
        written = proto.mesh_axes_replica_group_list
        for name, size in groups.axes:
            written.mesh.axes.add(name=name, size=size)
        if isinstance(groups.device_ids, IotaIds):
            written.mesh.iota_transform.reshape_dims.extend(groups.device_ids.reshape_dims)
            written.mesh.iota_transform.transpose_perm.extend(groups.device_ids.transpose_perm)
        elif groups.device_ids is not None:
            written.mesh.device_ids.extend(groups.device_ids)
        for ref in groups.refs:
            axis = written.axes.add(mesh_axis_index=ref.axis)
            if ref.size is not None:
                axis.sub_axis_info.pre_size, axis.sub_axis_info.size = ref.pre_size, ref.size
    else:
        proto.collective_device_list.SetInParent()
        for group in groups.expand():
            proto.collective_device_list.replica_groups.add(replica_ids=group)


def ranks_of(info: CollectiveInfo, config: ModuleConfig) -> tuple[tuple[int, ...], ...]:
    """The groups as flattened ranks, in group order."""
    return _ranks(*_grouping(info, config))


def comparable_groups(info: CollectiveInfo, config: ModuleConfig) -> object:
    """What two collectives of one mode have equal where they speak within the same groups, in the same orders.

    However the groups are written, and in whatever order they are listed. Of a module that does not say how many ranks
    it has, groups are compared as written.

    Raises:
        ValueError: the groups or the mode cannot be.
    """
    grouping = _grouping(info, config)
    return _sorted_ranks(*grouping) if config.says_ranks else info.groups


def _grouping(info: CollectiveInfo, config: ModuleConfig) -> tuple[ReplicaGroups, GroupMode, int, int]:
    assert info.groups is not None
    if info.mode is None:
        raise ValueError("Invalid combination of has_channel_id and use_global_device_ids")
    return info.groups, info.mode, config.replica_count, config.num_partitions


@lru_cache(maxsize=256)
def _ranks(groups: ReplicaGroups, mode: GroupMode, replicas: int, partitions: int) -> tuple[tuple[int, ...], ...]:
    world = replicas * partitions
    ids = groups.num_groups * (groups.group_size or 0)
    if ids > max(world, _MANY):  # said before they are written out: few characters may stand for many ids
        raise ValueError(f"its groups hold {ids} ids, and there are {world} ranks")
    return rank_groups(groups, mode, replicas, partitions)


@lru_cache(maxsize=256)
def _sorted_ranks(groups: ReplicaGroups, mode: GroupMode, replicas: int, partitions: int) -> object:
    return tuple(sorted(_ranks(groups, mode, replicas, partitions)))


def pairs_of(info: CollectiveInfo, config: ModuleConfig) -> tuple[tuple[int, int], ...]:
    """The source-target pairs as flattened ranks."""
    pairs = info.pairs or SourceTargetPairs(())
    replicas = info.channel_id is None
    if info.kind.has_tokens and config.num_partitions == 1:
        replicas = True  # a channel id is mandatory there, so that it cannot tell replicas from partitions
    mode = GroupMode.CROSS_REPLICA if replicas else GroupMode.CROSS_PARTITION
    return pairs.expand(mode, config.replica_count, config.num_partitions).pairs
