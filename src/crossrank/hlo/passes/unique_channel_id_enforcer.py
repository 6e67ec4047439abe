"""`neuron_unique_channel_id_enforcer`: no two operations share a channel id."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from crossrank.collective.kinds import Kind
from crossrank.hlo.backend_config import parse_config
from crossrank.hlo.collectives import ROUTES, describe, kind_of
from crossrank.hlo.hlo_pass import HloPass
from crossrank.hlo.module import Computation, Instruction, Module
from crossrank.hlo.order import in_a_row
from crossrank.passes import option, register
from crossrank.remarks import Remarks

_HALVES = (Kind.SEND, Kind.RECV)
_DONES = ("send-done", "recv-done")
# on these, replica ids with a channel id mean all partitions of the replicas: the same where there is one partition
_BOTH = (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER)

_Operation = tuple[Instruction, ...]
"""The instructions that have a channel id in common by right."""


@register
@dataclass(frozen=True)
class UniqueChannelIdEnforcer(HloPass):
    """Gives each operation that has a channel id one that no other operation has.

    Matches everything with a channel id, in all computations in their order, converted collectives too. The first
    operation with an id keeps it, each later one gets the next number above all ids of the module. A send, its recv and
    their done halves are one operation: they keep an id in common.

    Declines sends and recvs of which it is not certain who meets whom: without a partner in their computation, or
    several on one channel that nothing orders. What has no id gets none, since an id changes what the groups of a
    collective mean; `assign_missing` gives one to all but the first of them, where the groups mean the same with it.
    """

    name: ClassVar[str] = "neuron_unique_channel_id_enforcer"

    assign_missing: bool = option(False, "also number collectives without an id but the first, if they mean the same")

    def run(self, module: Module, remarks: Remarks) -> bool:
        """Renumber; returns whether an id changed."""
        operations, held = _operations(self.computations(module, wrapped=True))
        channels = [_channel_of(operation[0]) for operation in operations]
        following = max(filter(None, [*channels, *map(_channel_of, held)]), default=0) + 1
        seen: set[int | None] = set(map(_channel_of, held))
        changed = False
        for operation, channel in zip(operations, channels, strict=True):
            first = operation[0]
            if channel not in seen:
                seen.add(channel)
                continue
            if channel is None:
                if not self.assign_missing:
                    continue
                if reason := _why_not_assign(first):
                    remarks.declined(f"%{first.name}", reason, first.where)
                    continue
            for i in operation:
                _set_channel(i, following)
            remarks.done(f"%{first.name}", f"channel id {channel or 'none'} → {following}", first.where)
            following += 1
            changed = True
        for i in _still_shared(held):
            reason = f"other {i.opcode}s have channel id {_channel_of(i)} too, and it is not certain who meets whom"
            remarks.declined(f"%{i.name}", reason, i.where)
        return changed


def _operations(computations: Sequence[Computation]) -> tuple[list[_Operation], list[Instruction]]:
    """What has or could have a channel id, in order; and the sends and recvs that must keep theirs."""
    place: dict[Instruction, int] = {}
    alone: list[Instruction] = []
    halves: list[Instruction] = []
    dones: dict[Instruction, list[Instruction]] = defaultdict(list)
    loose: set[int | None] = set()  # channels of which a done half does not stand beside its start
    for c in computations:
        for i in c.post_order():
            kind = kind_of(i)
            if kind in _HALVES:
                halves.append(i)
            elif kind is not None:
                alone.append(i)
            elif i.opcode in _DONES:
                if kind_of(i.operands[0]) in _HALVES:
                    dones[i.operands[0]].append(i)
                else:
                    loose.add(_channel_of(i))
            else:
                continue
            place[i] = len(place)
    pairs, held = _pair([i for i in halves if _channel_of(i)], loose)
    found = [(i,) for i in alone] + [(send, *dones[send], recv, *dones[recv]) for send, recv in pairs]
    return sorted(found, key=lambda operation: min(place[i] for i in operation)), held


def _pair(
    halves: Sequence[Instruction], loose: set[int | None]
) -> tuple[list[tuple[Instruction, Instruction]], list[Instruction]]:
    """Each send with the recv that it meets, and the halves of which that is not certain."""
    rows: dict[tuple[object, ...], dict[Kind | None, list[Instruction]]] = {}
    for i in halves:
        key = (i.computation, _channel_of(i), i.proto.frontend_attributes.map.get(ROUTES))
        rows.setdefault(key, {kind: [] for kind in _HALVES})[kind_of(i)].append(i)
    pairs: list[tuple[Instruction, Instruction]] = []
    held: list[Instruction] = []
    long: dict[Computation, list[list[Instruction]]] = defaultdict(list)
    for by_kind in rows.values():
        sends, recvs = by_kind[Kind.SEND], by_kind[Kind.RECV]
        some = sends + recvs
        to_host = any(i.proto.is_host_transfer for i in some)
        if to_host or _channel_of(some[0]) in loose or len(sends) != len(recvs):
            held += some
        elif len(sends) == 1:
            pairs.append((sends[0], recvs[0]))
        else:
            long[some[0].computation] += [sends, recvs]
    for several in long.values():
        ordered = in_a_row(several)
        for n in range(0, len(several), 2):
            if ordered[n] and ordered[n + 1]:
                pairs += zip(several[n], several[n + 1], strict=True)
            else:
                held += several[n] + several[n + 1]
    return pairs, held


def _still_shared(held: Sequence[Instruction]) -> list[Instruction]:
    """Those that have their channel in common with another one of their kind."""
    times = Counter((kind_of(i), _channel_of(i)) for i in held)
    return [i for i in held if times[kind_of(i), _channel_of(i)] > 1]


def _why_not_assign(i: Instruction) -> str:
    """Why a channel id would change what a collective without one means; the empty string where it would not."""
    config = i.module.config
    if not config.says_ranks:
        return "the module does not say how many ranks it has"
    if kind_of(i) not in _BOTH:
        return "with a channel id its replica ids would be partition ids"
    if config.num_partitions > 1:
        return "with a channel id its replica ids would mean all partitions of these replicas"
    return ""


def _channel_of(i: Instruction) -> int | None:
    if i.opcode in _DONES:
        return int(i.proto.channel_id) or None
    info = describe(i)
    assert info is not None
    return info.channel_id


def _set_channel(i: Instruction, channel: int) -> None:
    proto = i.edit()
    if i.opcode == "custom-call":
        config = parse_config(proto.backend_config.decode())
        proto.backend_config = str(replace(config, channel_id=channel)).encode()
    else:
        proto.channel_id = channel
