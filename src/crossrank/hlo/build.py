"""New instructions, one function for each opcode that rewrites need.

Each appends to the computation of its operands (constants: to the one given), takes the result's shape from them, and
gives it the default layout. ``like`` is an instruction whose metadata and origin the new one takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crossrank.collective.dtypes import PRED, DType, dtype_of
from crossrank.hlo.literals import write_literal
from crossrank.hlo.module import Computation, Instruction, Module
from crossrank.hlo.shape import Shape

Array = npt.NDArray[Any]


def constant(c: Computation, values: Array, *, name: str = "constant") -> Instruction:
    """A constant with the values and the type of a NumPy array."""
    shape = Shape(dtype_of(values.dtype)).with_dims(values.shape)
    return c.add("constant", shape, name=name, edit=lambda p: write_literal(p.literal, values))


def scalar(c: Computation, value: float, dtype: DType) -> Instruction:
    """A scalar constant."""
    return constant(c, np.array(value, dtype.numpy))


def convert(x: Instruction, dtype: DType, *, like: Instruction | None = None) -> Instruction:
    """The same values in another type; ``x`` itself where it has that type."""
    if x.shape.dtype is dtype:
        return x
    return x.computation.add("convert", x.shape.with_dtype(dtype), [x], like=like)


def reshape(x: Instruction, dims: Sequence[int], *, like: Instruction | None = None) -> Instruction:
    """The same values in other extents; ``x`` itself where it has them."""
    if x.shape.dims == tuple(dims):
        return x
    return x.computation.add("reshape", x.shape.with_dims(dims), [x], like=like)


def transpose(x: Instruction, permutation: Sequence[int], *, like: Instruction | None = None) -> Instruction:
    """Dimension ``permutation[d]`` of ``x`` becomes dimension d."""
    shape = x.shape.with_dims([x.shape.dims[d] for d in permutation])
    return x.computation.add("transpose", shape, [x], like=like, edit=lambda p: p.dimensions.extend(permutation))


def broadcast(
    x: Instruction, dims: Sequence[int], dimensions: Sequence[int] = (), *, like: Instruction | None = None
) -> Instruction:
    """Dimension d of ``x`` becomes dimension ``dimensions[d]`` of the result, the others repeat."""
    shape = x.shape.with_dims(dims)
    return x.computation.add("broadcast", shape, [x], like=like, edit=lambda p: p.dimensions.extend(dimensions))


def concatenate(parts: Sequence[Instruction], dim: int, *, like: Instruction | None = None) -> Instruction:
    """Arrays behind one another along ``dim``; a single one as it is."""
    if len(parts) == 1:
        return parts[0]
    dims = list(parts[0].shape.dims)
    dims[dim] = sum(p.shape.dims[dim] for p in parts)
    shape = parts[0].shape.with_dims(dims)
    return parts[0].computation.add("concatenate", shape, parts, like=like, edit=lambda p: p.dimensions.append(dim))


def slice_(
    x: Instruction, starts: Sequence[int], limits: Sequence[int], *, like: Instruction | None = None
) -> Instruction:
    """The elements from ``starts`` up to ``limits``, without a stride."""
    shape = x.shape.with_dims([b - a for a, b in zip(starts, limits, strict=True)])

    def edit(proto: Any) -> None:
        for start, limit in zip(starts, limits, strict=True):
            proto.slice_dimensions.add(start=start, limit=limit, stride=1)

    return x.computation.add("slice", shape, [x], like=like, edit=edit)


def slice_along(x: Instruction, dim: int, start: int, limit: int, *, like: Instruction | None = None) -> Instruction:
    """The elements from ``start`` up to ``limit`` along one dimension."""
    starts, limits = [0] * len(x.shape.dims), list(x.shape.dims)
    starts[dim], limits[dim] = start, limit
    return slice_(x, starts, limits, like=like)


def dynamic_slice(
    x: Instruction, starts: Sequence[Instruction], sizes: Sequence[int], *, like: Instruction | None = None
) -> Instruction:
    """A window of ``sizes`` that begins at scalar ``starts``, one for each dimension."""
    shape = x.shape.with_dims(sizes)
    return x.computation.add(
        "dynamic-slice", shape, [x, *starts], like=like, edit=lambda p: p.dynamic_slice_sizes.extend(sizes)
    )


def element(x: Instruction, index: int, *, like: Instruction | None = None) -> Instruction:
    """Element ``index`` of a tuple."""

    def edit(proto: Any) -> None:
        proto.tuple_index = index

    return x.computation.add("get-tuple-element", x.shape.elements[index], [x], like=like, edit=edit)


def tuple_of(c: Computation, parts: Sequence[Instruction], *, like: Instruction | None = None) -> Instruction:
    """A tuple."""
    return c.add("tuple", Shape.tuple_of([p.shape for p in parts]), parts, like=like)


def binary(opcode: str, a: Instruction, b: Instruction, *, like: Instruction | None = None) -> Instruction:
    """An elementwise operation of two values of one shape."""
    return a.computation.add(opcode, a.shape, [a, b], like=like)


def compare(direction: str, a: Instruction, b: Instruction, *, like: Instruction | None = None) -> Instruction:
    """EQ, NE, GE, GT, LE or LT, element by element."""

    def edit(proto: Any) -> None:
        proto.comparison_direction = direction

    return a.computation.add("compare", a.shape.with_dtype(PRED), [a, b], like=like, edit=edit)


def select(
    predicate: Instruction, yes: Instruction, no: Instruction, *, like: Instruction | None = None
) -> Instruction:
    """``yes`` where the predicate (of the same extents) holds, else ``no``."""
    return yes.computation.add("select", yes.shape, [predicate, yes, no], like=like)


def collective_like(base: Instruction, operands: Sequence[Instruction], shape: Shape) -> Instruction:
    """A collective that says what ``base`` says (groups, channel, body, dimension, flags) over other operands."""
    new = base.computation.clone_in(base, operands)
    new.set_shape(shape)
    return new


class ReductionBodies:
    """Bodies `op(parameter 0, parameter 1)` on scalars, made on demand, one for each op and type."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._made: dict[tuple[str, DType], Computation] = {}

    def get(self, opcode: str, dtype: DType) -> Computation:
        """The body for an HLO opcode on scalars of a type."""
        key = (opcode, dtype)
        if key not in self._made:
            one = Shape(dtype, (), ())
            body = self._module.add_computation(f"{opcode}_{dtype.name}")
            a, b = (
                body.add("parameter", one, name=f"{name}_{opcode}", edit=_numbered(n)) for n, name in enumerate("ab")
            )
            body.set_root(body.add(opcode, one, [a, b], name=f"{opcode}_root"))
            shape = body.proto.program_shape
            for name in (a.name, b.name):
                one.write(shape.parameters.add())
                shape.parameter_names.append(name)
            one.write(shape.result)
            self._made[key] = body
        return self._made[key]


def _numbered(n: int) -> Callable[[Any], None]:
    def edit(proto: Any) -> None:
        proto.parameter_number = n

    return edit
