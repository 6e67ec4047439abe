"""Every collective of a module as data: what `inspect` shows, and what statistics are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from crossrank.hlo.collectives import CollectiveInfo, collectives
from crossrank.hlo.module import Instruction, Module
from crossrank.hlo.targets import parse_target


@dataclass(frozen=True)
class Entry:
    """One collective.

    Attributes:
        name: the instruction, without ``%``.
        computation: where it stands.
        kind: which collective.
        opcode: as written (``all-gather-start``, ``custom-call``, …).
        target: of a converted one, else None.
        dtype: element type of the results; None where they differ.
        shape: of the result, as HLO writes it without layouts.
        bytes: of the results on one rank.
        groups: as written (pairs for a permute, a send or a receive).
        group_size: ranks in a group; None where groups differ, or are everyone the module does not count.
        mode: what the ids in the groups are.
        channel_id: None where there is none.
        dim: gather, scatter or split dimension.
        reduce: opcode of the reduction.
        where: the author's source line, or the empty string.
    """

    name: str
    computation: str
    kind: str
    opcode: str
    target: str | None
    dtype: str | None
    shape: str
    bytes: int
    groups: str
    group_size: int | None
    mode: str
    channel_id: int | None
    dim: int | None
    reduce: str | None
    where: str

    def as_dict(self) -> dict[str, Any]:
        """With stable keys, for JSON."""
        return asdict(self)


def inventory(module: Module) -> list[Entry]:
    """All collectives of all computations, in order."""
    return [_entry(i, info) for i, info in collectives(module)]


def _entry(i: Instruction, info: CollectiveInfo) -> Entry:
    groups = info.groups if info.groups is not None else info.pairs
    return Entry(
        name=i.name,
        computation=i.computation.name,
        kind=str(info.kind),
        opcode=i.opcode,
        target=i.proto.custom_call_target if info.converted else None,
        dtype=info.dtype.name if info.dtype else None,
        shape=i.shape.without_layout(),
        bytes=info.nbytes,
        groups="" if groups is None else str(groups),
        group_size=_group_size(info, i.module),
        mode="" if info.mode is None or groups is None else str(info.mode),
        channel_id=info.channel_id,
        dim=info.dim,
        reduce=info.reduction,
        where=i.where,
    )


def _group_size(info: CollectiveInfo, module: Module) -> int | None:
    if info.groups is None:
        return None
    if info.groups.is_empty:
        return module.world
    return info.groups.group_size


def totals(entries: Sequence[Entry]) -> dict[str, dict[str, int]]:
    """``{kind: {count, bytes, converted}}``; bytes are those of the results on one rank."""
    found: dict[str, dict[str, int]] = {}
    for e in entries:
        total = found.setdefault(e.kind, {"count": 0, "bytes": 0, "converted": 0})
        total["count"] += 1
        total["bytes"] += e.bytes
        total["converted"] += e.target is not None
    return dict(sorted(found.items()))


def count_native(module: Module) -> dict[str, int]:
    """Native collectives by opcode, in all computations."""
    return dict(sorted(Counter(i.opcode for i, info in collectives(module) if not info.converted).items()))


def count_converted(module: Module) -> dict[str, int]:
    """Custom-calls of the naming contract by target."""
    targets = (i.proto.custom_call_target for i in module.instructions() if i.opcode == "custom-call")
    return dict(sorted(Counter(t for t in targets if parse_target(t)).items()))
