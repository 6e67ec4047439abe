"""`trivial-cc-removal`: a collective in which every rank is alone gives what it was given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crossrank.collective.groups import GroupMode
from crossrank.collective.kinds import Kind
from crossrank.hlo.build import tuple_of
from crossrank.hlo.collectives import CollectiveInfo, describe, pairs_of, ranks_of
from crossrank.hlo.config import ModuleConfig
from crossrank.hlo.module import Instruction
from crossrank.hlo.rewrite import Declined, Expander, Fresh, check_free, forward
from crossrank.passes import register

TALKS = "it talks to other ranks"


@register
@dataclass(frozen=True)
class TrivialCcRemoval(Expander):
    """Takes away collectives in which every rank is alone.

    Matches all-gather, all-reduce, reduce-scatter, all-to-all and collective-broadcast, native or converted, whose
    groups have one rank each, and permutes in which every rank sends to itself. Whoever used the collective takes its
    operand; elements of a variadic one take the operand of the same position.

    Declines a collective that does more although nobody talks: a ragged all-to-all places its rows by offsets, and a
    broadcast or permute gives zeros to ranks that it leaves out. Declines halves of asynchronous pairs and whatever has
    control dependencies. Groups that mean everyone are left alone in a module that does not say how many ranks it has.
    """

    name: ClassVar[str] = "trivial-cc-removal"
    opcodes: ClassVar[frozenset[str]] = frozenset(
        {
            *(str(k) for k in Kind if not k.has_tokens),
            *(f"{k}-start" for k in (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.COLLECTIVE_PERMUTE)),
            "custom-call",
        }
    )

    def expand(self, i: Instruction, fresh: Fresh) -> str | None:
        """Take one collective away."""
        info = describe(i)
        if info is None or info.kind.has_tokens:
            return None
        reason = why_needed(info, i.module.config)
        if reason == TALKS:
            return None
        if reason:
            raise Declined(reason)
        return take_operands(i)


def why_needed(info: CollectiveInfo, config: ModuleConfig) -> str:
    """Why a collective is more than its operands; the empty string where it is not, ``TALKS`` where that is plain."""
    try:
        if info.kind.has_pairs:
            sets: tuple[tuple[int, ...], ...] = pairs_of(info, config)
        elif config.says_ranks:
            sets = ranks_of(info, config)
        else:
            # nothing tells who everyone is, but a group of one is a group of one
            spread = info.mode in (None, GroupMode.CROSS_REPLICA_AND_PARTITION)
            return TALKS if info.groups is None or info.groups.group_size != 1 or spread else _why_more(info)
    except ValueError as error:
        return str(error)
    if any(len(set(ranks)) > 1 for ranks in sets):
        return TALKS
    if len({ranks[-1] for ranks in sets if ranks}) != config.replica_count * config.num_partitions:
        return "ranks that it leaves out do not get what they gave"
    return _why_more(info)


def _why_more(info: CollectiveInfo) -> str:
    if info.kind is Kind.RAGGED_ALL_TO_ALL:
        return "it places its rows by offsets"
    return "it is one half of an asynchronous pair" if info.asynchronous else ""


def take_operands(i: Instruction) -> str:
    """Let the operands of a collective stand for its results; returns what was done."""
    check_free(i)
    results = i.shape.elements if i.shape.is_tuple else (i.shape,)
    if len(results) != len(i.operands) or not all(
        o.shape.same_extents(r) for o, r in zip(i.operands, results, strict=True)
    ):
        raise Declined("its results are not shaped like its operands")
    # users were promised the layout of the result
    values = [
        o if o.shape == r else i.computation.add("copy", r, [o], like=i)
        for o, r in zip(i.operands, results, strict=True)
    ]
    forward(i, tuple_of(i.computation, values, like=i) if i.shape.is_tuple else values[0])
    return "every rank is alone: its operands go straight to its users"
