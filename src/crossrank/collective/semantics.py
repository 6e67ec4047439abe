"""What each collective computes, in NumPy: the oracle that everything else is compared with.

The functions take the arrays of one group's members in group order (permutes: of all ranks), leave them untouched and
give fresh arrays. Members' arrays of one operand have one shape and dtype; what is inconsistent is a ``ValueError``.

A reduction has one result, bit for bit, which the kernels share (NaN is equal to NaN):

* one member after the other in group order; a sum starts from +0, a product from 1;
* bf16, f16 and all narrower floats accumulate in f32 and are rounded once at the end; f32 and f64 accumulate in
  themselves, each operation rounded on its own; integers wrap in their own width;
* on pred add and maximum are or, multiply and minimum are and;
* maximum and minimum give NaN if any member has it, and of equal values (+0 and -0) the first one's;
* complex add goes by components; complex multiply is ``(ac - bd) + (ad + bc)i``, each real operation rounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crossrank.collective.dtypes import PRED, DType, dtype_of
from crossrank.collective.groups import IdGroups
from crossrank.collective.kinds import Kind, ReduceOp

Array = npt.NDArray[Any]


def all_reduce(inputs: Sequence[Array], op: ReduceOp) -> list[Array]:
    """Every member gets the reduction of all inputs, element by element."""
    total = _reduce(inputs, op)
    return [total.copy() for _ in inputs]


def reduce_scatter(inputs: Sequence[Array], op: ReduceOp, dim: int) -> list[Array]:
    """Member i gets the i-th equal slice along ``dim`` of the reduction of all inputs."""
    return [part.copy() for part in _split(_reduce(inputs, op), dim, len(inputs))]


def all_gather(inputs: Sequence[Array], dim: int) -> list[Array]:
    """Every member gets all inputs, joined along ``dim``."""
    _check_dim(_alike(inputs)[0], dim)
    return [np.concatenate(inputs, axis=dim) for _ in inputs]


def all_to_all(inputs: Sequence[Array], dim: int, concat_dim: int | None = None) -> list[Array]:
    """Member i gets the i-th equal slice along ``dim`` of every input, joined along ``concat_dim`` (else ``dim``)."""
    concat_dim = dim if concat_dim is None else concat_dim
    parts = [_split(array, dim, len(inputs)) for array in _alike(inputs)]
    _check_dim(inputs[0], concat_dim)
    return [np.concatenate(mine, axis=concat_dim) for mine in zip(*parts, strict=True)]


def all_to_all_tuple(inputs: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """Operand i of member s becomes output s of member i; each member has as many operands as the group has members."""
    if any(len(operands) != len(inputs) for operands in inputs):
        raise ValueError(f"an all-to-all of {len(inputs)} members needs {len(inputs)} operands on each")
    return [[operands[i].copy() for operands in inputs] for i in range(len(inputs))]


def ragged_all_to_all(members: Sequence[Sequence[Array]]) -> list[Array]:
    """Members send each other rows (slices along the first dim) of any number; where none arrive, ``output`` stays.

    Args:
        members: for each ``input, output, input_offsets, send_sizes, output_offsets, recv_sizes``. The last four
            count rows and have one entry a peer, or k entries a peer, peer by peer. Entry j of member i: rows
            ``input[input_offsets[j] :][: send_sizes[j]]`` go to peer j, into its ``output`` from
            ``output_offsets[j]`` on. Where sends overlap, the later member wins.

    Returns:
        What becomes of each member's ``output``.

    Raises:
        ValueError: rows outside an array, or a size that its sender and its receiver see differently.
    """
    count = len(members)
    for operands in members:
        if len(operands) != 6:
            raise ValueError(f"a ragged all-to-all has six operands, not {len(operands)}")
    _alike([operands[0] for operands in members])
    results = [array.copy() for array in _alike([operands[1] for operands in members])]
    tables = [_alike([operands[k] for operands in members]) for k in range(2, 6)]
    entries = tables[0][0].size
    if entries % count or any(table[0].shape != (entries,) for table in tables):
        raise ValueError(f"offsets and sizes of a ragged all-to-all among {count} need entries for each peer")
    starts, sends, places, receives = ([table.reshape(count, -1).tolist() for table in kind] for kind in tables)
    for i, operands in enumerate(members):
        for j, result in enumerate(results):
            for start, size, place, expected in zip(
                starts[i][j], sends[i][j], places[i][j], receives[j][i], strict=True
            ):
                if size != expected:
                    raise ValueError(f"member {i} sends {size} rows to member {j}, which expects {expected}")
                if size < 0 or start < 0 or start + size > len(operands[0]):
                    raise ValueError(f"member {i} sends rows {start}..{start + size} of {len(operands[0])}")
                if place < 0 or place + size > len(result):
                    raise ValueError(f"member {i} writes rows {place}..{place + size} of {len(result)} on member {j}")
                result[place : place + size] = operands[0][start : start + size]
    return results


def collective_permute(inputs_by_rank: Sequence[Array], pairs: Iterable[tuple[int, int]]) -> list[Array]:
    """Each target gets its source's array, every other rank zeros."""
    results = [np.zeros_like(array) for array in _alike(inputs_by_rank)]
    world, reached = range(len(results)), set()
    for source, target in pairs:
        if source not in world or target not in world:
            raise ValueError(f"pair {source},{target} is outside the {len(world)} ranks")
        if target in reached:
            raise ValueError(f"rank {target} is the target of two pairs")
        reached.add(target)
        results[target][...] = inputs_by_rank[source]
    return results


def collective_broadcast(inputs: Sequence[Array]) -> list[Array]:
    """Every member gets the array of the first one."""
    source = _alike(inputs)[0]
    return [source.copy() for _ in inputs]


def send_recv(inputs_by_rank: Sequence[Array], pairs: Iterable[tuple[int, int]]) -> list[Array]:
    """What a recv gives with its send: the same as a permute, given what each rank would send."""
    return collective_permute(inputs_by_rank, pairs)


@dataclass(frozen=True)
class Collective:
    """One collective among all ranks, whatever program it stands in.

    Attributes:
        kind: what it is.
        groups: groups of ranks (see ``rank_groups``); none means all ranks in one group. Unused by kinds with pairs.
        reduce_op: of the kinds that reduce.
        dim: along which it scatters, gathers or splits; None for the tuple form of an all-to-all.
        pairs: pairs of ranks, for the kinds with pairs.
        concat_dim: along which an all-to-all joins, where that is not ``dim``.

    Raises:
        ValueError: a field that the kind needs and that is None.
    """

    kind: Kind
    groups: IdGroups = ()
    reduce_op: ReduceOp | None = None
    dim: int | None = None
    pairs: tuple[tuple[int, int], ...] = ()
    concat_dim: int | None = None

    def __post_init__(self) -> None:
        if self.kind.reduces and self.reduce_op is None:
            raise ValueError(f"{self.kind} needs a reduce op")
        if self.kind in (Kind.REDUCE_SCATTER, Kind.ALL_GATHER) and self.dim is None:
            raise ValueError(f"{self.kind} needs a dim")


def evaluate(collective: Collective, operands: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """The results of all ranks of the world, rank by rank; a rank in no group gets zeros.

    Args:
        collective: what to compute.
        operands: for each rank its operands; each operand is a collective of its own, but for the tuple form of
            all-to-all and ragged-all-to-all, which take them together.
    """
    if collective.kind.has_pairs:
        return evaluate_group(collective, operands)
    groups = collective.groups or (tuple(range(len(operands))),)
    ranks = [rank for group in groups for rank in group]
    if len(set(ranks)) != len(ranks) or not set(ranks) <= set(range(len(operands))):
        raise ValueError(f"groups must hold each of the {len(operands)} ranks at most once")
    results: dict[int, list[Array]] = {}
    for group in groups:
        members = evaluate_group(collective, [operands[rank] for rank in group])
        results.update(zip(group, members, strict=True))
    some = next(iter(results.values()), [])
    return [results[rank] if rank in results else list(map(np.zeros_like, some)) for rank in range(len(operands))]


def evaluate_group(collective: Collective, members: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """The results of one group, given its members' operands in group order; of all ranks for the kinds with pairs."""
    if collective.kind is Kind.RAGGED_ALL_TO_ALL:
        return [[output] for output in ragged_all_to_all(members)]
    if collective.kind is Kind.ALL_TO_ALL and collective.dim is None:
        return all_to_all_tuple(members)
    if len({len(operands) for operands in members}) > 1:
        raise ValueError("the members have different numbers of operands")
    by_operand = [_evaluate_one(collective, inputs) for inputs in zip(*members, strict=True)]
    return [[results[i] for results in by_operand] for i in range(len(members))]


def _evaluate_one(collective: Collective, inputs: Sequence[Array]) -> list[Array]:
    kind, op, dim = collective.kind, collective.reduce_op, collective.dim
    if kind is Kind.ALL_REDUCE and op is not None:
        return all_reduce(inputs, op)
    if kind is Kind.REDUCE_SCATTER and op is not None and dim is not None:
        return reduce_scatter(inputs, op, dim)
    if kind is Kind.ALL_GATHER and dim is not None:
        return all_gather(inputs, dim)
    if kind is Kind.ALL_TO_ALL and dim is not None:
        return all_to_all(inputs, dim, collective.concat_dim)
    if kind is Kind.COLLECTIVE_BROADCAST:
        return collective_broadcast(inputs)
    return collective_permute(inputs, collective.pairs)


def _alike(inputs: Sequence[Array]) -> Sequence[Array]:
    """The inputs; ValueError where there is none, or where one differs from the first in shape or dtype."""
    if not inputs:
        raise ValueError("a collective needs at least one member")
    first = inputs[0]
    for i, array in enumerate(inputs):
        if (array.shape, array.dtype) != (first.shape, first.dtype):
            raise ValueError(f"member {i} has {_shape_text(array)}, member 0 has {_shape_text(first)}")
    return inputs


def _shape_text(array: Array) -> str:
    return f"{dtype_of(array.dtype)}[{','.join(map(str, array.shape))}]"


def _check_dim(array: Array, dim: int) -> None:
    if not 0 <= dim < array.ndim:
        raise ValueError(f"{_shape_text(array)} has no dim {dim}")


def _split(array: Array, dim: int, parts: int) -> list[Array]:
    _check_dim(array, dim)
    if array.shape[dim] % parts:
        raise ValueError(f"dim {dim} of {_shape_text(array)} cannot be split among {parts}")
    return np.split(array, parts, axis=dim)


def _reduce(inputs: Sequence[Array], op: ReduceOp) -> Array:
    dtype = _alike(inputs)[0].dtype
    kind = dtype_of(dtype)
    if not op.valid_for(kind):
        raise ValueError(f"{op} is not defined on {kind}")
    with np.errstate(all="ignore"):
        if kind.is_complex:
            return _sum(inputs) if op is ReduceOp.ADD else _complex_product(inputs)
        values = [array.astype(_accumulator(kind)) for array in inputs]
        return _real(values, _ON_PRED.get(op, op) if kind == PRED else op, kind).astype(dtype)


def _accumulator(kind: DType) -> np.dtype[Any]:
    """The dtype in which a reduction of ``kind`` computes."""
    if kind.is_float and kind.bits < 32:
        return np.dtype(np.float32)
    if kind.is_integer and kind.bits < 8:  # NumPy has no ufuncs for them all; the low bits of a byte are the same
        return np.dtype(np.int8 if kind.is_signed else np.uint8)
    assert kind.numpy is not None
    return kind.numpy


_ON_PRED = {
    ReduceOp.ADD: ReduceOp.OR,
    ReduceOp.MAXIMUM: ReduceOp.OR,
    ReduceOp.MULTIPLY: ReduceOp.AND,
    ReduceOp.MINIMUM: ReduceOp.AND,
}

_UFUNCS = {
    ReduceOp.MULTIPLY: np.multiply,
    ReduceOp.AND: np.bitwise_and,
    ReduceOp.OR: np.bitwise_or,
    ReduceOp.XOR: np.bitwise_xor,
}


def _real(values: Sequence[Array], op: ReduceOp, kind: DType) -> Array:
    if op in (ReduceOp.MAXIMUM, ReduceOp.MINIMUM):
        return _extreme(values, op, kind)
    if op is ReduceOp.ADD:
        return _sum(values)
    # A product that starts from 1 is one that starts from its first factor.
    total = values[0].copy()
    for value in values[1:]:
        _UFUNCS[op](total, value, out=total)
    return total


def _sum(values: Sequence[Array]) -> Array:
    total = np.zeros(values[0].shape, values[0].dtype)
    for value in values:
        np.add(total, value, out=total)
    return total


def _extreme(values: Sequence[Array], op: ReduceOp, kind: DType) -> Array:
    total = values[0].copy()
    for value in values[1:]:
        better = value > total if op is ReduceOp.MAXIMUM else value < total
        if kind.is_float:
            better = better | np.isnan(value)  # and nothing is better than a NaN
        np.copyto(total, value, where=better)
    return total


def _complex_product(values: Sequence[Array]) -> Array:
    total = np.ones(values[0].shape, values[0].dtype)
    for value in values:
        # By components: NumPy's own product may fuse a multiplication with an addition.
        a, b, c, d = total.real.copy(), total.imag.copy(), value.real, value.imag
        np.subtract(a * c, b * d, out=total.real)
        np.add(a * d, b * c, out=total.imag)
    return total
