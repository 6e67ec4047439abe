"""`legalize-cpu-cc-ops`: collectives without channel ids, between replicas."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from crossrank.collective.groups import ExplicitGroups, GroupMode, IdGroups, ReplicaGroups, rank_groups
from crossrank.collective.kinds import Kind
from crossrank.collective.pairs import SourceTargetPairs
from crossrank.hlo.collectives import (
    ROUTES,
    CollectiveInfo,
    collectives,
    describe,
    pairs_of,
    ranks_of,
    write_groups,
)
from crossrank.hlo.config import ModuleConfig
from crossrank.hlo.module import Computation, Instruction, Module
from crossrank.hlo.ranks import Ranks
from crossrank.hlo.rewrite import Declined, Expander, Fresh
from crossrank.passes import option, register
from crossrank.remarks import Remarks


@register
@dataclass(frozen=True)
class LegalizeCpuCcOps(Expander):
    """Erases channel ids and `use_global_device_ids`, as a runtime wants it that knows replicas only.

    Matches all-gather, all-reduce, reduce-scatter, all-to-all, collective-broadcast and collective-permute that have a
    channel id, start halves of asynchronous pairs included.

    Without an id groups and pairs speak of replicas. So they are kept as written where they mean the same ranks then,
    and written out as replicas where they do not: a module of replicas only can say everything so.

    With `partitions_as_replicas` the whole module first becomes one of replicas only, a replica for each rank: ids are
    computed from the rank, the groups and pairs of every collective are written out as ranks.

    Declines a collective whose ranks no groups or pairs of replicas can mean: without that option, those between
    partitions. With it, a module that holds converted collectives.
    """

    name: ClassVar[str] = "legalize-cpu-cc-ops"

    partitions_as_replicas: bool = option(False, "make a module of replicas only of one that has partitions")

    opcodes: ClassVar[frozenset[str]] = frozenset(
        {
            *(str(k) for k in Kind if not k.has_tokens and k is not Kind.RAGGED_ALL_TO_ALL),
            *(f"{k}-start" for k in (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.COLLECTIVE_PERMUTE)),
        }
    )

    def run(self, module: Module, remarks: Remarks) -> bool:
        """Erase channel ids; returns whether there was one."""
        flattened = False
        if self.partitions_as_replicas and module.config.num_partitions > 1:
            flattened = _flatten(module, remarks)
        return super().run(module, remarks) or flattened

    def scope(self, module: Module) -> list[Computation]:
        """All computations: nothing but attributes changes, so that wrapped collectives are taken too."""
        return self.computations(module, wrapped=True)

    def expand(self, i: Instruction, fresh: Fresh) -> str | None:
        """Erase one channel id."""
        info = describe(i)
        assert info is not None
        if info.channel_id is None:
            return None
        if not i.module.config.says_ranks:
            raise Declined("the file does not say how many ranks there are")
        try:
            if info.groups is None:
                pairs = _replica_pairs(info, i.module.config)
                proto = i.edit()
                proto.ClearField("source_target_pairs")
                for source, target in pairs:
                    proto.source_target_pairs.add(source=source, target=target)
            else:
                groups = _replica_groups(info, i.module.config)
                if groups != info.groups:
                    write_groups(i.edit(), groups)
        except ValueError as error:
            raise Declined(str(error)) from None
        proto = i.edit()
        proto.channel_id, proto.use_global_device_ids = 0, False
        return f"channel id {info.channel_id} erased"


def _flatten(module: Module, remarks: Remarks) -> bool:
    """Make each rank of a module a replica; returns whether that could be."""
    config, name = module.config, f"module {module.name}"
    found = list(collectives(module))
    for i, info in found:
        if info.converted or info.mode is None:
            why = "is converted already" if info.converted else "has a use_global_device_ids that means nothing"
            remarks.declined(name, f"its partitions stay: %{i.name} {why}")
            return False
    for i, info in found:
        proto = i.edit()
        if info.groups is not None:
            groups = ExplicitGroups(ranks_of(info, config))
            if info.groups.is_empty or groups.groups != info.groups.expand():
                write_groups(proto, groups)
        elif info.kind.has_tokens:
            if info.pairs is not None:
                i.set_frontend_attribute(ROUTES, str(SourceTargetPairs(pairs_of(info, config))))
        else:
            proto.ClearField("source_target_pairs")
            for source, target in pairs_of(info, config):
                proto.source_target_pairs.add(source=source, target=target)
        if not info.kind.has_tokens:  # theirs says which halves belong together
            proto.channel_id, proto.use_global_device_ids = 0, False
    Ranks(config.num_partitions, config.replica_count).replace_ids(module)
    world = config.replica_count * config.num_partitions
    module.config = config.with_fields(replica_count=world, num_partitions=1)
    module.modified = True
    remarks.done(name, f"{config.replica_count} × {config.num_partitions} ranks are {world} replicas")
    return True


def _replica_groups(info: CollectiveInfo, config: ModuleConfig) -> ReplicaGroups:
    """Groups of replicas that mean the ranks that ``info`` means; those that are written where they do."""
    assert info.groups is not None
    groups = _as_replicas(info.groups, ranks_of(info, config), config.replica_count, config.num_partitions)
    if groups is None:
        raise ValueError("groups of replicas cannot say who takes part: it talks across partitions")
    return groups


@lru_cache(maxsize=256)  # a module writes the same few groups over and over
def _as_replicas(written: ReplicaGroups, ranks: IdGroups, replicas: int, partitions: int) -> ReplicaGroups | None:
    for groups in (written, ExplicitGroups(tuple(_replicas(ranks, partitions)))):
        try:
            if set(rank_groups(groups, GroupMode.CROSS_REPLICA, replicas, partitions)) == set(ranks):
                return groups
        except ValueError:
            continue
    return None


def _replica_pairs(info: CollectiveInfo, config: ModuleConfig) -> SourceTargetPairs:
    """Pairs of replicas that mean the ranks that ``info`` means."""
    ranks = pairs_of(info, config)
    pairs = SourceTargetPairs(tuple((s, t) for s, t in _replicas(ranks, config.num_partitions)))
    meant = pairs.expand(GroupMode.CROSS_REPLICA, config.replica_count, config.num_partitions)
    if set(meant) != set(ranks):
        raise ValueError("pairs of replicas cannot say who sends to whom: it talks across partitions")
    return pairs


def _replicas(ranks: Iterable[tuple[int, ...]], partitions: int) -> list[tuple[int, ...]]:
    """The groups (or pairs) that begin in partition 0, as replicas."""
    return [tuple(r // partitions for r in group) for group in ranks if group and group[0] % partitions == 0]
