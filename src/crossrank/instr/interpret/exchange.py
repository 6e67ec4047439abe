"""What the members of a collective do when all have come: read, compute by a kernel, write."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from crossrank.collective.kinds import Kind
from crossrank.collective.pairs import SourceTargetPairs
from crossrank.collective.semantics import Collective
from crossrank.instr.compute.reduction import average_type, divided
from crossrank.instr.fields import CollectiveFields
from crossrank.instr.kinds import AluOp, CollectiveKind

if TYPE_CHECKING:
    from crossrank.instr.interpret.code import Step
    from crossrank.instr.interpret.core import Core

Array = npt.NDArray[Any]
Evaluate = Callable[[Collective, Sequence[Sequence[Array]]], list[list[Array]]]
"""Computes a collective of one group from all members' operands."""

_KINDS = {
    CollectiveKind.ALL_REDUCE: Kind.ALL_REDUCE,
    CollectiveKind.REDUCE_SCATTER: Kind.REDUCE_SCATTER,
    CollectiveKind.ALL_GATHER: Kind.ALL_GATHER,
    CollectiveKind.ALL_TO_ALL: Kind.ALL_TO_ALL,
    CollectiveKind.BROADCAST: Kind.COLLECTIVE_BROADCAST,
}


@dataclass(frozen=True)
class Member:
    """One member of a collective, with the instruction at which it waits."""

    core: Core
    step: Step
    title: str

    @property
    def fields(self) -> CollectiveFields:
        """The fields of its instruction."""
        fields: CollectiveFields = self.step.inst.fields
        return fields

    def read(self) -> list[Array]:
        """Its operands, copied: what others write must not change them."""
        return [np.array(self.core.read(o)) for o in self.step.ins]

    def write(self, results: Sequence[Array]) -> None:
        """Store its results."""
        for operand, values in zip(self.step.outs, results, strict=True):
            self.core.write(operand, values)

    @property
    def id(self) -> int:
        """Its number in the groups: its core where the collective is local, else its rank."""
        return self.core.place[1] if self.fields.is_local else self.core.place[0]


class FaultOf(ValueError):
    """What one of the members did that cannot be, whoever came last."""

    def __init__(self, member: Member, what: str) -> None:
        super().__init__(what)
        self.member = member


class Exchange:
    """Computes collectives.

    Args:
        evaluate: computes one that `collective/` knows.
    """

    def __init__(self, evaluate: Evaluate) -> None:
        self._evaluate = evaluate

    def run(self, members: Sequence[Member]) -> None:
        """Do the collective of these members, in group order (of those with pairs and pipes: in order of their ids)."""
        fields = members[0].fields
        kind = fields.kind
        if kind.is_point_to_point:
            self._send_recv(members)
            return
        for member in members:
            if member.step.inst is not members[0].step.inst and _meaning(member.fields) != _meaning(fields):
                raise ValueError(f"{members[0].title} asks for {kind.title} otherwise than {member.title}")
        if kind is CollectiveKind.ALL_TO_ALL_V:
            self._all_to_all_v(members)
        elif kind.has_pairs or kind.is_ring:
            self._permute(members)
        else:
            self._grouped(members)

    def _grouped(self, members: Sequence[Member]) -> None:
        fields = members[0].fields
        operands = [m.read() for m in members]
        collective = Collective(
            _KINDS[fields.kind],
            reduce_op=fields.op.reduce_op if fields.op is not None else None,
            dim=None if fields.cc_dim is None else int(fields.cc_dim),
            concat_dim=None if fields.concat_dim is None else int(fields.concat_dim),
        )
        for member, results in zip(members, self._reduced(collective, operands, fields.op), strict=True):
            member.write(results)

    def _reduced(
        self, collective: Collective, operands: Sequence[Sequence[Array]], op: AluOp | None
    ) -> list[list[Array]]:
        """A collective; an average is a sum in f32 (or wider) or 64 bits, divided and rounded once (integers: down)."""
        if op is not AluOp.AVERAGE:
            return self._evaluate(collective, operands)
        types = [a.dtype for a in operands[0]]
        wide = [[a.astype(average_type(a.dtype)) for a in m] for m in operands]
        return [
            [divided(a, len(operands)).astype(t) for a, t in zip(member, types, strict=True)]
            for member in self._evaluate(collective, wide)
        ]

    def _permute(self, members: Sequence[Member]) -> None:
        """Sends to the next in the ring, or along pairs; of two operands their reduction is sent."""
        fields = members[0].fields
        pairs = _routes(fields, [m.id for m in members])
        sent = []
        for member in members:
            operands = member.read()
            if len(operands) == 2:
                assert fields.op is not None
                both = Collective(Kind.ALL_REDUCE, reduce_op=fields.op.reduce_op)
                operands = [self._reduced(both, [[operands[0]], [operands[1]]], fields.op)[0][0]]
            sent.append(operands)
        results = self._evaluate(Collective(Kind.COLLECTIVE_PERMUTE, pairs=pairs), sent)
        targets = {t for _, t in pairs}
        for position, member in enumerate(members):
            if position in targets:  # who gets nothing keeps what it has
                member.write(results[position])

    def _send_recv(self, members: Sequence[Member]) -> None:
        """Cores on one pipe: each gets what one sends, or the reduction of what several do."""
        _check_routes({m.id: m.fields for m in members})
        values = {m.id: m.read() for m in members}
        for member in members:
            operands = [_alike(member, values[s]) for s in member.fields.recv_from_ranks]
            op = member.fields.op
            if op is not None:
                operands = self._reduced(Collective(Kind.ALL_REDUCE, reduce_op=op.reduce_op), operands, op)
            member.write(operands[0])

    def _all_to_all_v(self, members: Sequence[Member]) -> None:
        """Each sends as much as its metadata says; elements are counted flat.

        What a member receives from each is written into the third row of its metadata, unless it is known.
        """
        fields, count = members[0].fields, len(members)
        tables = []
        for member in members:
            metadata = _prepared(member) if fields.phase == "trigger" else member.core.read(member.step.ins[1])
            tables.append(np.array(metadata).reshape(-1, count).astype(np.int64))
        columns = np.zeros(count, int) if fields.uniform_send else np.arange(count)
        sends = np.array([t[0][columns] for t in tables])
        starts = np.array([t[1][columns] for t in tables])
        sources = [np.array(m.core.read(m.step.ins[0])) for m in members]
        targets = [np.array(m.core.read(m.step.outs[0])) for m in members]
        if fields.has_rdispls:
            places = np.array([t[3] for t in tables]).T
        else:
            places = np.array([[t.size // count * s for t in targets] for s in range(count)])
        for s, source in enumerate(sources):
            for t, target in enumerate(targets):
                size, room = int(sends[s, t]), target.size - int(places[s, t])
                if not fields.has_rdispls:
                    room = target.size // count
                start, place = int(starts[s, t]), int(places[s, t])
                if min(size, start, place) < 0 or size > room or start + size > source.size:
                    raise FaultOf(
                        members[s],
                        f"{members[s].title} sends {size} elements from {start} on of {source.size} to "
                        f"{members[t].title}, which has room for {room}",
                    )
        operands = [
            [sources[n].reshape(-1), targets[n].reshape(-1), starts[n], sends[n], places[n], sends[:, n].copy()]
            for n in range(count)
        ]
        results = self._evaluate(Collective(Kind.RAGGED_ALL_TO_ALL), operands)
        for n, member in enumerate(members):
            member.core.write(member.step.outs[0], results[n][0])
            if not fields.recv_counts_known:
                operand = member.step.outs[1]
                table = np.array(member.core.read(operand)).reshape(-1, count)
                table[2] = sends[:, n]
                member.core.write(operand, table)


def _prepared(member: Member) -> Array:
    """The metadata that was prepared for what a member triggers."""
    prepared = member.core.prepared
    if prepared is None:
        raise ValueError("nothing was prepared that could be triggered")
    if any(getattr(prepared.fields, name) != getattr(member.fields, name) for name in _PREPARED):
        raise ValueError("another exchange was prepared than is triggered")
    return prepared.table


_PREPARED = ("replica_groups", "has_rdispls", "recv_counts_known", "uniform_send")
"""What an exchange is, whichever half of it says so."""


def _routes(fields: CollectiveFields, ids: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Who sends to whom, by position among the members."""
    if fields.kind.has_pairs:
        return SourceTargetPairs(fields.src_target_pairs).within(ids).pairs  # type: ignore[arg-type]
    step = -1 if fields.channel_id > 0 and fields.channel_id % 2 else 1
    return tuple((n, (n + step) % len(ids)) for n in range(len(ids)))


def _check_routes(pipe: Mapping[int, CollectiveFields]) -> None:
    """Whoever receives is sent to, and whoever sends is received from.

    One that reduces takes the tile of each core that it names, wherever else that core sends it.
    """
    for core, fields in pipe.items():
        for source in fields.recv_from_ranks:
            if source not in pipe:
                raise ValueError(f"core {core} receives from core {source}, which sends nothing on this pipe")
            if fields.kind is CollectiveKind.SEND_RECV and pipe[source].send_to_rank != core:
                raise ValueError(
                    f"core {core} receives from core {source}, which sends to core {pipe[source].send_to_rank}"
                )
        if fields.send_to_rank not in pipe or core not in pipe[fields.send_to_rank].recv_from_ranks:
            raise ValueError(f"core {core} sends to core {fields.send_to_rank}, which does not receive from it")


def _meaning(fields: CollectiveFields) -> tuple[object, ...]:
    """What all members must say alike."""
    table = fields.has_rdispls, fields.recv_counts_known, fields.uniform_send
    return fields.op, fields.cc_dim, fields.concat_dim, fields.broadcast_sizes, fields.src_target_pairs, table


def _alike(member: Member, values: list[Array]) -> list[Array]:
    wanted = [(o.shape, o.dtype) for o in member.step.outs]
    if [(v.shape, v.dtype) for v in values] != wanted:
        raise ValueError(
            f"core {member.id} expects {wanted[0][1]}{list(wanted[0][0])} and is sent {values[0].dtype}"
            f"{list(values[0].shape)}"
        )
    return values
