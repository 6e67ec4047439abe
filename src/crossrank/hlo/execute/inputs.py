"""The arguments of a run: read from an ``.npz``, or drawn from a seed so that the program makes sense of them."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from crossrank.collective.dtypes import DType
from crossrank.errors import InputError
from crossrank.hlo.collectives import describe, ranks_of
from crossrank.hlo.module import Instruction, Module
from crossrank.hlo.shape import Shape

Array = npt.NDArray[Any]
ByRank = list[Array]
"""One array for each rank."""

FLOAT_SCALE = 0.1
INTEGERS_BELOW = 8


def load_arrays(path: str) -> dict[str, Array]:
    """All arrays of an ``.npz``; InputError where it is none."""
    try:
        with np.load(Path(path), allow_pickle=False) as data:
            return {k: data[k] for k in data.files}
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile, AttributeError):
        raise InputError(f"{path} is no .npz of arrays", "save it with numpy.savez(path, p0=…, p1=…)") from None


def save_arrays(path: str | Path, arrays: dict[str, Array]) -> None:
    """Write an ``.npz``; types that NumPy has no word for go as their bits."""
    builtin = 1
    plain = {k: a if a.dtype.isbuiltin == builtin else a.view(f"u{a.dtype.itemsize}") for k, a in arrays.items()}
    with open(path, "wb") as file:  # under exactly that name: NumPy would add a suffix
        np.savez(file, **plain)  # type: ignore[arg-type]


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
    given = [_by_rank(arrays, f"p{n}", p.shape, ranks, path) for n, p in enumerate(parameters)]
    outputs = {}
    results = list(module.entry.root.shape.leaves())
    for n, shape in enumerate(results):
        if f"o{n}" in arrays and shape.is_array:
            outputs[n] = _by_rank(arrays, f"o{n}", shape, ranks, path)
    for letter, count, has in (
        ("p", len(parameters), f"takes {len(parameters)} parameters"),
        ("o", len(results), f"gives {len(results)} outputs"),
    ):
        if stray := sorted(k for k in arrays if k[:1] == letter and k[1:].isdecimal() and int(k[1:]) >= count):
            raise InputError(f"{path} has {stray[0]}, but the module {has}")
    return given, outputs


def _by_rank(arrays: dict[str, Array], key: str, shape: Shape, world: int, path: str) -> ByRank:
    if key not in arrays:
        raise InputError(
            f"{path} has no {key}, a {shape}", "the keys are p0, p1, …, each [ranks, …] or the same for all"
        )
    array = _as_dtype(arrays[key], shape.dtype)
    wanted = f"{shape.dtype.name}[{','.join(map(str, shape.dims))}]"
    if array is None:
        raise InputError(f"{path}: {key} is {arrays[key].dtype}, not {wanted}")
    if array.shape == (world, *shape.dims):
        return [np.ascontiguousarray(array[r]).reshape(shape.dims) for r in range(world)]
    if array.shape == shape.dims:
        return [np.ascontiguousarray(array).reshape(shape.dims)] * world
    raise InputError(
        f"{path}: {key} has shape {list(array.shape)}, not {[world, *shape.dims]} or {list(shape.dims)} ({wanted})"
    )


def _as_dtype(array: Array, dtype: DType) -> Array | None:
    """The array as that type, its bits read anew where numpy has no word for it; None where it is another type."""
    if dtype.numpy is None:
        return None
    if array.dtype == dtype.numpy:
        return array
    bits = array.dtype.kind in "uV" and array.dtype.itemsize == dtype.numpy.itemsize
    if bits and dtype.numpy.type.__module__.startswith(ml_dtypes.__name__):
        return array.view(dtype.numpy)
    return None


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
            drawn.append([_draw(rng, shape, bound)] * module.world)
        else:
            drawn.append([_draw(rng, shape, bound) for _ in range(module.world)])
    _settle_ragged(module, parameters, drawn, rng)
    return drawn


def _draw(rng: np.random.Generator, shape: Shape, below: int) -> Array:
    dtype = shape.dtype
    if dtype.numpy is None:
        raise InputError(f"there are no values of type {dtype.name} here")
    if dtype.name == "pred":
        values: Array = rng.random(shape.dims) < 0.5
    elif dtype.is_complex:
        values = rng.normal(0, FLOAT_SCALE, shape.dims) + 1j * rng.normal(0, FLOAT_SCALE, shape.dims)
    elif dtype.is_float:
        values = rng.normal(0, FLOAT_SCALE, shape.dims)
    else:
        limit = min(below, 1 << (dtype.bits - (1 if dtype.is_signed else 0)))
        values = rng.integers(0, max(1, limit), shape.dims)
    return np.asarray(values).astype(dtype.numpy)


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
