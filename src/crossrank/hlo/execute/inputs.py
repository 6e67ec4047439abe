"""The arguments of a run: read from an ``.npz``, or drawn from a seed so that the program makes sense of them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from crossrank.arrays import INTEGERS_BELOW, Array, by_rank, draw, load_arrays
from crossrank.errors import InputError
from crossrank.hlo.collectives import describe, ranks_of
from crossrank.hlo.module import Instruction, Module

ByRank = list[Array]
"""One array for each rank."""


def read_inputs(module: Module, path: str) -> tuple[list[ByRank], dict[int, ByRank]]:
    """Parameters ``p0, p1, …`` and, where they are there, outputs ``o0, o1, …`` of a file.

    Returns:
        parameters by number, and outputs by index; each a list over ranks. bf16 may come as its bits in uint16; an
        array without the leading rank dimension is the same on all ranks.

    Raises:
        InputError: a parameter is missing, or has another shape or type.
    """
    return take_inputs(module, load_arrays(path), path, module.world)


def take_inputs(
    module: Module, arrays: dict[str, Array], path: str, ranks: int
) -> tuple[list[ByRank], dict[int, ByRank]]:
    """As `read_inputs`, for a given number of ranks, from the arrays that the file ``path`` holds."""
    parameters = module.entry.parameters
    given = [by_rank(arrays, f"p{n}", p.shape.dims, p.shape.dtype, ranks, path) for n, p in enumerate(parameters)]
    outputs = {}
    results = list(module.entry.root.shape.leaves())
    for n, shape in enumerate(results):
        if f"o{n}" in arrays and shape.is_array:
            outputs[n] = by_rank(arrays, f"o{n}", shape.dims, shape.dtype, ranks, path)
    for letter, count, has in (
        ("p", len(parameters), f"takes {len(parameters)} parameters"),
        ("o", len(results), f"gives {len(results)} outputs"),
    ):
        if stray := sorted(k for k in arrays if k[:1] == letter and k[1:].isdecimal() and int(k[1:]) >= count):
            raise InputError(f"{path} has {stray[0]}, but the module {has}")
    return given, outputs


def draw_inputs(module: Module, seed: int) -> list[ByRank]:
    """Arguments by parameter and rank.

    Floats are normal with deviation 0.1, each rank its own. Scalar integers and predicates are the same on all ranks,
    for they decide loops and branches. Integers that index something stay below the smallest extent that they index,
    others below 8. The offsets and sizes of a ragged exchange fit one another.
    """
    rng = np.random.default_rng(seed)
    parameters = module.entry.parameters
    bounds = _index_bounds(module)
    drawn = []
    for p in parameters:
        shape, bound = p.shape, bounds.get(p, INTEGERS_BELOW)
        if not shape.dims and not (shape.dtype.is_float or shape.dtype.is_complex):
            drawn.append([draw(rng, shape.dims, shape.dtype, bound)] * module.world)
        else:
            drawn.append([draw(rng, shape.dims, shape.dtype, bound) for _ in range(module.world)])
    _settle_ragged(module, parameters, drawn, rng)
    return drawn


# -- what integers index -----------------------------------------------------------------------------------------------
_CARRY = {
    "all-gather",
    "bitcast",
    "broadcast",
    "clamp",
    "collective-permute",
    "concatenate",
    "convert",
    "copy",
    "dynamic-slice",
    "maximum",
    "minimum",
    "opt-barrier",
    "reshape",
    "reverse",
    "select",
    "slice",
    "sort",
    "transpose",
}


def _index_bounds(module: Module) -> dict[Instruction, int]:
    """For each integer parameter that ends as an index, the smallest extent that it indexes."""
    bounds = {}
    for p in module.entry.parameters:
        if p.shape.is_array and p.shape.dtype.is_integer:
            found = list(_extents_indexed(p))
            if found:
                bounds[p] = max(1, min(found))
    return bounds


def _extents_indexed(start: Instruction) -> Iterable[int]:
    seen = {start}
    work = [start]
    while work:
        value = work.pop()
        for user in value.users:
            yield from _indexed_by(user, value)
            following = [user] if user.opcode in _CARRY else []
            if user.opcode in ("call", "while", "tuple", "conditional"):
                following = _inside(user, value)
            for f in following:
                if f not in seen:
                    seen.add(f)
                    work.append(f)


def _indexed_by(user: Instruction, value: Instruction) -> Iterable[int]:
    """Extents that ``user`` addresses with ``value``; windows must fit too."""
    operands = user.operands
    if user.opcode == "gather" and len(operands) > 1 and operands[1] is value:
        for d in user.proto.gather_dimension_numbers.start_index_map:
            yield operands[0].shape.dims[d] - user.proto.gather_slice_sizes[d] + 1
    elif user.opcode == "scatter" and len(operands) > 1 and operands[len(operands) // 2] is value:
        for d in user.proto.scatter_dimension_numbers.scatter_dims_to_operand_dims:
            yield operands[0].shape.dims[d]
    elif user.opcode == "dynamic-slice" and value in operands[1:]:
        for n, o in enumerate(operands[1:]):
            if o is value:
                yield operands[0].shape.dims[n] - user.shape.dims[n] + 1
    elif user.opcode == "dynamic-update-slice" and value in operands[2:]:
        for n, o in enumerate(operands[2:]):
            if o is value:
                yield operands[0].shape.dims[n] - operands[1].shape.dims[n] + 1


def _inside(user: Instruction, value: Instruction) -> list[Instruction]:
    """Where a value goes on inside of a call, a tuple or a loop."""
    if user.opcode == "call":
        return [p for n, p in enumerate(user.called[0].parameters) if user.operands[n] is value]
    if user.opcode == "tuple":
        index = [n for n, o in enumerate(user.operands) if o is value]
        holders = [user]
        for u in user.users:
            if u.opcode == "opt-barrier":
                holders.append(u)
            elif u.opcode == "while":
                holders += [p for body in u.called for p in body.parameters]
        taken = (g for h in holders for g in h.users if g.opcode == "get-tuple-element")
        return [g for g in taken if g.proto.tuple_index in index]
    return []


# -- ragged exchanges --------------------------------------------------------------------------------------------------
def _settle_ragged(
    module: Module, parameters: list[Instruction], drawn: list[ByRank], rng: np.random.Generator
) -> None:
    """Make offsets and sizes that are parameters of a ragged-all-to-all fit one another."""
    numbers = {p: n for n, p in enumerate(parameters)}
    for i in module.instructions():
        if i.opcode != "ragged-all-to-all":
            continue
        info = describe(i)
        tables = [_origin(t) for t in i.operands[2:6]]
        if info is None or len(set(tables)) < len(tables) or not numbers.keys() >= set(tables):
            continue
        input_offsets, send_sizes, output_offsets, recv_sizes = (drawn[numbers[t]] for t in tables)
        for group in ranks_of(info, module.config):
            n = len(group)
            if any(t.shape.count != n for t in tables):
                continue
            room = min(i.operands[0].shape.dims[0], i.operands[1].shape.dims[0]) // n
            sizes = rng.integers(0, room + 1, (n, n))
            for position, rank in enumerate(group):
                for table, values in (
                    (input_offsets, np.arange(n) * room),
                    (send_sizes, sizes[position]),
                    (output_offsets, np.full(n, position * room)),
                    (recv_sizes, sizes[:, position]),
                ):
                    table[rank] = values.astype(table[rank].dtype).reshape(table[rank].shape)


def _origin(value: Instruction) -> Instruction:
    """Where the numbers of a value come from, in their order: through copies, reshapes and calls."""
    while True:
        if value.opcode in ("bitcast", "convert", "copy", "reshape"):
            value = value.operands[0]
        elif value.opcode == "parameter" and [c.opcode for c in value.computation.callers] == ["call"]:
            value = value.computation.callers[0].operands[value.computation.parameters.index(value)]
        else:
            return value
