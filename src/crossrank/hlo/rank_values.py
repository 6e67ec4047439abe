"""What an integer or predicate expression is on each rank, where only the rank decides it.

Partitioned programs tell ranks apart by ids: an offset comes from `partition-id` through tables, products and clamps.
Here such an expression is evaluated as HLO defines it, for every rank at once and exactly: integers wrap, slices clamp
their starts, a division by zero gives all ones. What depends on anything else (a parameter, a float) is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from crossrank.collective.dtypes import PRED
from crossrank.hlo.literals import has_literal, read_literal
from crossrank.hlo.module import Instruction, Module
from crossrank.hlo.shape import Shape

Array = npt.NDArray[Any]
Value = Array | list["Value"] | None
"""An array ``[ranks, *dims]`` (``[1, *dims]`` where all ranks agree), the values of a tuple, or None for unknown."""

_MOST_ELEMENTS = 1 << 20
"""Of one value over all ranks; what is larger is no table of offsets."""


class RankValues:
    """The values of one module's instructions on all ranks, each evaluated once.

    Args:
        module: its configuration says how many replicas and partitions there are.
    """

    def __init__(self, module: Module) -> None:
        self._partitions = module.config.num_partitions
        self._ranks = np.arange(module.world)
        self._known: dict[Instruction, Value] = {}

    def of(self, i: Instruction) -> Array | None:
        """The value on each rank, ``[ranks, *dims]``; None where it depends on more than the rank."""
        work = [i]
        while work:  # operands first; not recursive, for chains may be long
            node = work[-1]
            if node in self._known:
                work.pop()
                continue
            missing = [o for o in node.operands if o not in self._known] if _could_be_known(node) else []
            if missing:
                work += missing
            else:
                self._known[node] = self._evaluate(node)
                work.pop()
        value = self._known[i]
        return _on_all(value, len(self._ranks)) if isinstance(value, np.ndarray) else None

    def _evaluate(self, i: Instruction) -> Value:
        if not _could_be_known(i):
            return None
        operands = [self._known[o] for o in i.operands]
        if i.opcode == "tuple":
            return operands
        if i.opcode == "get-tuple-element":
            return operands[0][int(i.proto.tuple_index)] if isinstance(operands[0], list) else None
        if i.opcode == "opt-barrier":
            return operands[0]
        if i.opcode == "partition-id":
            return (self._ranks % self._partitions).astype(i.shape.dtype.numpy)
        if i.opcode == "replica-id":
            return (self._ranks // self._partitions).astype(i.shape.dtype.numpy)
        arrays = [v for v in operands if isinstance(v, np.ndarray)]
        if len(arrays) != len(operands) or _too_large(i.shape, max(map(len, arrays), default=1)):
            return None
        with np.errstate(all="ignore"):  # integers wrap
            return _RULES[i.opcode](i, arrays)


def _could_be_known(i: Instruction) -> bool:
    if i.opcode in ("tuple", "get-tuple-element", "opt-barrier"):
        return True
    dtype = i.shape.dtype
    exact = dtype == PRED or (dtype.is_integer and has_literal(dtype))
    return exact and (i.opcode in _RULES or i.opcode in ("partition-id", "replica-id"))


def _too_large(shape: Shape, ranks: int) -> bool:
    return shape.count * ranks > _MOST_ELEMENTS


def _on_all(x: Array, ranks: int) -> Array:
    return np.broadcast_to(x, (ranks, *x.shape[1:]))


def _together(arrays: Iterable[Array]) -> list[Array]:
    """The same number of ranks in each."""
    arrays = list(arrays)
    ranks = max(map(len, arrays))
    return [_on_all(x, ranks) for x in arrays]


# -- the operations ----------------------------------------------------------------------------------------------------
Rule = Callable[[Instruction, list[Array]], Array | None]


def _constant(i: Instruction, _: list[Array]) -> Array | None:
    values = read_literal(i.proto.literal)
    return None if values is None else values[None]


def _elementwise(f: Callable[..., Array]) -> Rule:
    return lambda _, x: f(*x).astype(x[0].dtype)


def _arithmetic(f: Callable[..., Array]) -> Rule:
    """Of integers only: HLO has no such operation on predicates."""
    return lambda _, x: None if x[0].dtype == np.bool_ else f(*x).astype(x[0].dtype)


def _divide(a: Array, b: Array) -> Array:
    """Rounds towards zero; all ones where the divisor is zero."""
    zero = b == 0
    safe = np.where(zero, b.dtype.type(1), b)
    quotient = a // safe
    quotient = quotient + ((quotient * safe != a) & ((a < 0) != (safe < 0))).astype(a.dtype)
    return np.where(zero, ~np.zeros_like(a), quotient)


def _remainder(a: Array, b: Array) -> Array:
    """Has the sign of the dividend; the dividend where the divisor is zero."""
    zero = b == 0
    return np.where(zero, a, np.fmod(a, np.where(zero, b.dtype.type(1), b)))


def _shift(f: Callable[[Array, Array], Array], *, keeps_sign: bool = False, unsigned: bool = False) -> Rule:
    def rule(_: Instruction, x: list[Array]) -> Array | None:
        if x[0].dtype == np.bool_:
            return None
        a, by = x[0], x[1].astype(np.uint64)  # a negative distance is a very long one
        bits = a.dtype.itemsize * 8
        work = a.view(f"u{a.dtype.itemsize}") if unsigned else a
        within = f(work, np.minimum(by, bits - 1).astype(work.dtype)).astype(a.dtype)
        beyond = np.where(a < 0, a.dtype.type(-1), a.dtype.type(0)) if keeps_sign else np.zeros_like(a)
        return np.where(by < bits, within, beyond)

    return rule


def _scalars_along(x: Array, like: Array) -> Array:
    """A scalar of each rank, brought to where it meets every element."""
    return x if x.ndim == like.ndim else x.reshape(len(x), *(1 for _ in like.shape[1:]))


def _clamp(_: Instruction, x: list[Array]) -> Array:
    low, value, high = x
    return np.minimum(np.maximum(value, _scalars_along(low, value)), _scalars_along(high, value))


def _select(_: Instruction, x: list[Array]) -> Array:
    predicate, yes, no = x
    return np.where(_scalars_along(predicate, yes), yes, no)


_COMPARISONS: dict[str, Callable[..., Array]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def _compare(i: Instruction, x: list[Array]) -> Array:
    return _COMPARISONS[i.proto.comparison_direction](*x)


def _convert(i: Instruction, x: list[Array]) -> Array:
    return x[0].astype(i.shape.dtype.numpy)


def _copy(_: Instruction, x: list[Array]) -> Array:
    return x[0]


def _reshape(i: Instruction, x: list[Array]) -> Array:
    return x[0].reshape(len(x[0]), *i.shape.dims)


def _bitcast(i: Instruction, x: list[Array]) -> Array | None:
    before = i.operands[0].shape
    plain = before.dtype == i.shape.dtype and before.row_major and i.shape.row_major
    return _reshape(i, x) if plain else None


def _broadcast(i: Instruction, x: list[Array]) -> Array:
    dims = list(i.proto.dimensions)
    spread = [1] * len(i.shape.dims)
    for extent, dim in zip(x[0].shape[1:], dims, strict=True):
        spread[dim] = extent
    order = np.argsort(dims, kind="stable")  # the dimensions need not come in order
    moved = x[0].transpose(0, *(int(d) + 1 for d in order))
    return np.broadcast_to(moved.reshape(len(moved), *spread), (len(moved), *i.shape.dims))


def _transpose(i: Instruction, x: list[Array]) -> Array:
    return x[0].transpose(0, *(d + 1 for d in i.proto.dimensions))


def _concatenate(i: Instruction, x: list[Array]) -> Array:
    return np.concatenate(_together(x), axis=int(i.proto.dimensions[0]) + 1)


def _iota(i: Instruction, _: list[Array]) -> Array:
    along = int(i.proto.dimensions[0])
    extent = [n if d == along else 1 for d, n in enumerate(i.shape.dims)]
    numbers = np.arange(i.shape.dims[along]).astype(i.shape.dtype.numpy).reshape(extent)
    return np.broadcast_to(numbers, i.shape.dims)[None]


def _slice(i: Instruction, x: list[Array]) -> Array:
    return x[0][(slice(None), *(slice(s.start, s.limit, s.stride) for s in i.proto.slice_dimensions))]


def _dynamic_slice(i: Instruction, x: list[Array]) -> Array | None:
    table, starts = x[0], x[1:]
    sizes = i.shape.dims
    if len(starts) != len(sizes):
        return None  # the old form, with all starts in one array
    ranks = max(map(len, x))
    rank = np.arange(ranks) if len(table) > 1 else np.zeros(ranks, np.int64)
    index = [rank.reshape(ranks, *(1 for _ in sizes))]
    for d, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        first = clamped_start(_on_all(start, ranks), table.shape[d + 1], size)
        along = [size if e == d else 1 for e in range(len(sizes))]
        index.append(first.reshape(ranks, *(1 for _ in sizes)) + np.arange(size).reshape(1, *along))
    return table[tuple(index)]


def clamped_start(start: Array, extent: int, size: int) -> npt.NDArray[np.int64]:
    """Where a dynamic slice of ``size`` elements out of ``extent`` really starts."""
    last = extent - size
    return np.where(start < 0, 0, np.minimum(start, min(last, np.iinfo(start.dtype).max))).astype(np.int64)


_RULES: dict[str, Rule] = {
    "constant": _constant,
    "iota": _iota,
    "convert": _convert,
    "copy": _copy,
    "reshape": _reshape,
    "bitcast": _bitcast,
    "broadcast": _broadcast,
    "transpose": _transpose,
    "concatenate": _concatenate,
    "slice": _slice,
    "dynamic-slice": _dynamic_slice,
    "add": _elementwise(np.add),
    "subtract": _arithmetic(np.subtract),
    "multiply": _elementwise(np.multiply),
    "divide": _arithmetic(_divide),
    "remainder": _arithmetic(_remainder),
    "maximum": _elementwise(np.maximum),
    "minimum": _elementwise(np.minimum),
    "negate": _arithmetic(np.negative),
    "abs": _arithmetic(np.abs),
    "and": _elementwise(np.bitwise_and),
    "or": _elementwise(np.bitwise_or),
    "xor": _elementwise(np.bitwise_xor),
    "not": _elementwise(np.invert),
    "shift-left": _shift(np.left_shift),
    "shift-right-arithmetic": _shift(np.right_shift, keeps_sign=True),
    "shift-right-logical": _shift(np.right_shift, unsigned=True),
    "clamp": _clamp,
    "compare": _compare,
    "select": _select,
}
