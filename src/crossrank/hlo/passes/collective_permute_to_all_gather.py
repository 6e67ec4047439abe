"""`collective-permute-to-all-gather`: a permute that is no full permutation becomes a gather and a slice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from crossrank.collective.dtypes import F32, S32, U32, DType
from crossrank.collective.groups import IotaGroups
from crossrank.errors import InputError
from crossrank.hlo.build import (
    binary,
    broadcast,
    compare,
    constant,
    convert,
    dynamic_slice,
    reshape,
    scalar,
    select,
    tuple_of,
)
from crossrank.hlo.collectives import CollectiveInfo, describe, pairs_of, write_groups
from crossrank.hlo.literals import has_literal
from crossrank.hlo.module import Computation, Instruction
from crossrank.hlo.rewrite import Declined, Expander, Fresh, hand_over_control
from crossrank.hlo.shape import Shape
from crossrank.passes import option, register

_UNTARGETED = ("zeros", "identity")
_S32_MAX = 2**31 - 1
_NOBODY = -1


@register
@dataclass(frozen=True)
class CollectivePermuteToAllGather(Expander):
    """Turns collective-permutes that are no full permutation into an all-gather of everyone and a slice of it.

    Matches every collective-permute, in every computation that is no body of a fusion or of an asynchronous wrapper,
    of which some id is not the source of one pair and the target of one; with `always` all.

    Makes an all-gather of each operand along dimension 0 in one group of all ranks (flattened ids, a fresh channel id),
    a table that gives each rank its source, and a dynamic-slice at the place that the table has for this rank. A rank
    that is no target gets zeros, as HLO says, or with `untargeted=identity` its own data.

    Declines full permutations, permutes in place, pairs outside the ranks of the module, arrays in layouts of a device,
    and what an s32 index cannot reach.
    """

    name: ClassVar[str] = "collective-permute-to-all-gather"
    opcodes: ClassVar[frozenset[str]] = frozenset({"collective-permute"})

    always: bool = option(False, "also full permutations, which a native collective-permute can express")
    untargeted: str = option("zeros", "what a rank gets that is no target: `zeros`, or `identity` for its own data")

    def __post_init__(self) -> None:
        if self.untargeted not in _UNTARGETED:
            raise InputError(f"pass {self.name}: untargeted is {' or '.join(_UNTARGETED)}, not {self.untargeted}")

    def expand(self, i: Instruction, fresh: Fresh) -> str | None:
        """Rewrite one permute."""
        info = describe(i)
        assert info is not None
        pairs = self._pairs(i, info)
        world = i.module.world
        shapes = i.shape.elements if i.shape.is_tuple else (i.shape,)
        _check(i, shapes, world)
        sources = np.full(world, _NOBODY, np.int32)
        for s, t in pairs:
            sources[t] = s
        if self.untargeted == "identity":
            sources = np.where(sources == _NOBODY, np.arange(world, dtype=np.int32), sources)

        c = i.computation
        gathers = [_all_gather(i, operand, fresh) for operand in i.operands]
        source, holds = _source(i, sources)
        parts = [_part(i, gather, shape, source, holds) for gather, shape in zip(gathers, shapes, strict=True)]
        new = tuple_of(c, parts, like=i) if i.shape.is_tuple else parts[0]
        if i.proto.HasField("sharding"):
            new.edit().sharding.CopyFrom(i.proto.sharding)
        hand_over_control(i, gathers)
        new.take_place_of(i)
        before = info.nbytes if any(s != t for s, t in pairs) else 0
        return (
            f"{len(pairs)} pairs → all-gather of {world} ranks and a slice: a rank receives "
            f"{(world - 1) * info.nbytes} bytes, before at most {before}"
        )

    def _pairs(self, i: Instruction, info: CollectiveInfo) -> tuple[tuple[int, int], ...]:
        """The pairs of flattened ranks; Declined where they stay as they are."""
        config = i.module.config
        if not config.says_ranks:
            raise Declined("the module does not say how many ranks it has")
        try:
            pairs = pairs_of(info, config)
        except ValueError as error:
            raise Declined(str(error)) from None
        assert info.pairs is not None
        ids = config.replica_count if info.channel_id is None else config.num_partitions
        if not self.always and _is_permutation(info.pairs.pairs, ids):
            raise Declined("it is a full permutation, which is what a native permute is for (always=true rewrites it)")
        return pairs


def _is_permutation(pairs: Sequence[tuple[int, int]], ids: int) -> bool:
    """Whether every id is the source of one pair, and the target of one."""
    everyone = list(range(ids))
    return sorted(s for s, _ in pairs) == everyone and sorted(t for _, t in pairs) == everyone


def _check(i: Instruction, shapes: Sequence[Shape], world: int) -> None:
    """Declined where a gather and a slice cannot stand for the permute."""
    if len(i.operands) != len(shapes) or any(o.shape.dims != s.dims for o, s in zip(i.operands, shapes, strict=True)):
        raise Declined("it permutes in place, at offsets of larger buffers")
    if any(s.tiled or s.dynamic for s in shapes):
        raise Declined("it has a layout or an extent that is a device's own")
    if not all(s.count for s in shapes):
        raise Declined("it moves no elements")
    if world * max(_rows(s) for s in shapes) > _S32_MAX:
        raise Declined("an s32 index does not reach the end of what would be gathered")


def _rows(shape: Shape) -> int:
    """The extent of dimension 0; a scalar is gathered as one row."""
    return shape.dims[0] if shape.dims else 1


def _all_gather(i: Instruction, operand: Instruction, fresh: Fresh) -> Instruction:
    """What all ranks have, one behind the other along dimension 0."""
    world = i.module.world
    if not operand.shape.dims:
        operand = reshape(operand, [1], like=i)
    shape = replace(operand.shape, dims=(world * _rows(operand.shape), *operand.shape.dims[1:]))
    new = i.computation.add("all-gather", shape, [operand], like=i)
    proto = new.edit()
    proto.dimensions.append(0)
    # flattened ids: right whether the ranks are replicas, partitions or both
    write_groups(proto, IotaGroups(1, world, (world,)))
    proto.channel_id, proto.use_global_device_ids = fresh.channel(), True
    if i.proto.HasField("frontend_attributes"):
        proto.frontend_attributes.CopyFrom(i.proto.frontend_attributes)
    return new


def _source(i: Instruction, sources: npt.NDArray[np.int32]) -> tuple[Instruction, Instruction | None]:
    """Whose data this rank gets, ``s32[]``, and whether it gets any, ``pred[]`` (None: every rank does)."""
    c = i.computation
    table = constant(c, sources, name="sources")
    source = reshape(dynamic_slice(table, [_rank(c)], [1], like=i), (), like=i)
    if (sources != _NOBODY).all():
        return source, None
    zero = scalar(c, 0, S32)
    return binary("maximum", source, zero, like=i), compare("GE", source, zero, like=i)


def _rank(c: Computation) -> Instruction:
    """The flattened rank, ``s32[]``: `replica-id` × partitions + `partition-id`, without what is always 0."""
    config = c.module.config
    replica, partition = (
        convert(c.add(opcode, Shape(U32, (), ())), S32) if count > 1 else None
        for opcode, count in (("replica-id", config.replica_count), ("partition-id", config.num_partitions))
    )
    if replica is None or partition is None:
        return replica or partition or scalar(c, 0, S32)
    return binary("add", binary("multiply", replica, scalar(c, config.num_partitions, S32)), partition)


def _part(
    i: Instruction, gathered: Instruction, shape: Shape, source: Instruction, holds: Instruction | None
) -> Instruction:
    """The rows of rank ``source``, in the shape of the permute's result; zeros where nothing ``holds``."""
    c = i.computation
    window = (_rows(shape), *shape.dims[1:])
    start = binary("multiply", source, scalar(c, window[0], S32), like=i)
    rest = [scalar(c, 0, S32) for _ in window[1:]]
    part = reshape(dynamic_slice(gathered, [start, *rest], window, like=i), shape.dims, like=i)
    part.set_shape(shape)
    if holds is None:
        return part
    zeros = broadcast(_zero(c, shape.dtype), shape.dims, like=i)
    zeros.set_shape(shape)
    return select(broadcast(holds, shape.dims, like=i), part, zeros, like=i)


def _zero(c: Computation, dtype: DType) -> Instruction:
    return scalar(c, 0, dtype) if has_literal(dtype) else convert(scalar(c, 0, F32), dtype)
