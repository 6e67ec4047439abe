"""`aws_neuron_collective_stream_id_injector` and `collective-stream-id-checker`: which queue serves a collective."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from crossrank.collective.kinds import is_collective_class, is_neuron_collective
from crossrank.errors import InputError
from crossrank.hlo.collectives import CollectiveInfo, comparable_groups, describe, kind_of, result_shape
from crossrank.hlo.hlo_pass import HloPass
from crossrank.hlo.module import Computation, Instruction, Module
from crossrank.passes import register
from crossrank.remarks import Remarks

STREAM_ID = "stream_id"
COLLECTIVE_TYPE = "collective_type"
"""Frontend attribute in which a framework says what a collective is for."""

# the collective types whose groups are served by streams 0 and 1
_STREAMS = (("tp_reduce_scatter", "tp_all_gather"), ("fsdp_reduce_scatter", "fsdp_all_gather"))


@register
@dataclass(frozen=True)
class CollectiveStreamIdInjector(HloPass):
    """Marks each collective with the stream that serves it: 1 for the groups of sharded data parallelism, else 0.

    Matches collectives with replica groups in all computations, converted ones and the starts of asynchronous ones
    too; permutes, sends and recvs have none.

    Finds the groups of stream 0 on a collective whose frontend attribute `collective_type` is `tp_reduce_scatter` or
    `tp_all_gather`, those of stream 1 on one of type `fsdp_reduce_scatter` or `fsdp_all_gather`; the first in a
    computation counts, the last computation that has one wins, and collectives of integers only do not count. Then sets
    `stream_id` on every collective: "0" where its groups are those of stream 0, else "1" where they are those of
    stream 1, else "0".
    """

    name: ClassVar[str] = "aws_neuron_collective_stream_id_injector"

    def run(self, module: Module, remarks: Remarks) -> bool:
        """Mark; returns whether an attribute changed."""
        by_computation = [list(_grouped(c)) for c in self.computations(module, wrapped=True)]
        exemplars = [_exemplar(by_computation, types) for types in _STREAMS]
        changed = False
        for i, info in (found for some in by_computation for found in some):
            groups = _groups(i, info)
            stream = str(exemplars.index(groups)) if groups in exemplars else "0"
            before = i.frontend_attributes.get(STREAM_ID)
            if before == stream:
                continue
            i.set_frontend_attribute(STREAM_ID, stream)
            remarks.done(f"%{i.name}", f"{STREAM_ID} {'none' if before is None else before} → {stream}", i.where)
            changed = True
        return changed


@register
@dataclass(frozen=True)
class CollectiveStreamIdChecker(HloPass):
    """Tells which collectives have a stream already; the module is not changed.

    Looks at what the Neuron compiler takes for a collective (all-gather, all-reduce, all-to-all, collective-permute,
    reduce-scatter, send and recv) and at what carries replica groups, in all computations, converted ones and the
    starts of asynchronous ones too.
    """

    name: ClassVar[str] = "collective-stream-id-checker"

    def run(self, module: Module, remarks: Remarks) -> bool:
        """Report; returns False: nothing changes."""
        for c in self.computations(module, wrapped=True):
            for i in c.post_order():
                kind = kind_of(i)
                if kind is None or not (is_neuron_collective(kind) or is_collective_class(kind)):
                    continue
                stream = i.frontend_attributes.get(STREAM_ID)
                if stream is None:
                    remarks.declined(f"%{i.name}", f"it has no {STREAM_ID}", i.where)
                else:
                    remarks.done(f"%{i.name}", f"it has {STREAM_ID} {stream}", i.where)
        return False


def _grouped(c: Computation) -> Iterator[tuple[Instruction, CollectiveInfo]]:
    for i in c.post_order():
        kind = kind_of(i)
        if kind is not None and is_collective_class(kind):
            info = describe(i)
            assert info is not None
            yield i, info


def _exemplar(by_computation: Sequence[Sequence[tuple[Instruction, CollectiveInfo]]], types: tuple[str, ...]) -> object:
    """The groups of the first collective of one of the types, in the last computation that has one; else None."""
    for some in reversed(by_computation):
        for i, info in some:
            if i.frontend_attributes.get(COLLECTIVE_TYPE) not in types:
                continue
            if not all(leaf.dtype.is_integer for leaf in result_shape(i).leaves()):
                return _groups(i, info)
    return None


def _groups(i: Instruction, info: CollectiveInfo) -> object:
    try:
        return comparable_groups(info, i.module.config)
    except ValueError as error:
        raise InputError(f"%{i.name}: {error}") from None
