"""One collective of a run, as those see it who compute it: what a backend is given."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from crossrank.collective.dtypes import PRED
from crossrank.collective.kinds import Kind
from crossrank.collective.pairs import SourceTargetPairs
from crossrank.collective.semantics import Collective
from crossrank.hlo.collectives import CollectiveInfo, pairs_of, ranks_of
from crossrank.hlo.config import ModuleConfig
from crossrank.hlo.module import Instruction
from crossrank.hlo.shape import Shape


@dataclass(frozen=True)
class Call:
    """One collective as a backend sees it.

    Attributes:
        label: for people: kind, instruction, source line.
        world: number of ranks.
        collective: what it means; its groups are flattened ranks, and for kinds with pairs those that these connect.
        operands: shapes on one rank, row-major.
        results: likewise.
    """

    label: str
    world: int
    collective: Collective
    operands: tuple[Shape, ...]
    results: tuple[Shape, ...]

    @property
    def fills_bytes(self) -> bool:
        """Whether NumPy can see its buffers: elements below a byte (but for pred) lie packed in XLA's."""
        dtypes = {s.dtype for s in (*self.operands, *self.results)}
        return all(t.numpy is not None and (t.bits >= 8 or t is PRED) for t in dtypes)


def call_of(i: Instruction, info: CollectiveInfo, config: ModuleConfig) -> Call:
    """The call of a collective whose reduction is one of ours. Tokens are no part of it."""
    pairs = pairs_of(info, config) if info.kind.has_pairs else ()
    groups = SourceTargetPairs(pairs).components() if info.kind.has_pairs else ranks_of(info, config)
    results = i.shape.elements if i.shape.is_tuple else (i.shape,)
    return Call(
        label=label_of(i, info.kind),
        world=config.replica_count * config.num_partitions,
        collective=Collective(info.kind, groups, info.reduce_op, info.dim, pairs),
        operands=tuple(o.shape.as_row_major() for o in i.operands if o.shape.is_array),
        results=tuple(r.as_row_major() for r in results if r.is_array),
    )


def label_of(i: Instruction, kind: Kind) -> str:
    """What messages call a collective: kind, name, source line."""
    where = i.where
    return f"{kind} %{i.name}{f' ({where})' if where else ''}"


def roles(call: Call) -> Call:
    """The call of a send and a recv that are two instructions: rank r sends as r, and receives as ``world + r``."""
    pairs = tuple((source, call.world + target) for source, target in call.collective.pairs)
    collective = Collective(Kind.RECV, SourceTargetPairs(pairs).components(), None, None, pairs)
    label = f"{call.label}, ranks from {call.world} on as receivers"
    return replace(call, label=label, world=2 * call.world, collective=collective)


@runtime_checkable
class Backend(Protocol):
    """Who computes a collective once all its ranks have arrived."""

    name: str
    """What a report calls it."""

    def serves(self, call: Call) -> bool:
        """Whether it can."""
        ...

    def register(self, call: Call) -> int:
        """Make the call known natively; returns the id that its custom-call carries."""
        ...
