"""Functions of ``nki.language`` that make a new tile of tiles, each by a few instructions of ``nki.isa``.

``dtype`` is the new tile's element type, by default that of the first tile; what is in between is float32. An axis is a
free dimension, and several are the last ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from crossrank.errors import InputError
from crossrank.instr.kinds import Space
from crossrank.instr.tensors import View, element_type
from crossrank.instr.trace import current
from crossrank.nki import isa

Axes = int | Sequence[int]


def sum(x: View, axis: Axes, dtype: Any = None, keepdims: bool = False) -> View:
    """The sum along axes."""
    return reduced("add", x, axis, dtype, keepdims)


def prod(x: View, axis: Axes, dtype: Any = None, keepdims: bool = False) -> View:
    """The product along axes."""
    return reduced("multiply", x, axis, dtype, keepdims)


def all(x: View, axis: Axes, dtype: Any = None) -> View:
    """1 where no element along axes is 0, else 0."""
    return reduced("logical_and", x, axis, dtype)


def mean(x: View, axis: Axes, dtype: Any = None, keepdims: bool = False) -> View:
    """The mean along axes."""
    total = reduced("add", x, axis, np.float32, keepdims)
    result = _tile(total.shape, x.element if dtype is None else dtype)
    isa.tensor_scalar(result, total, "multiply", 1 / _count(x, axis))
    return result


def var(x: View, axis: Axes, dtype: Any = None, keepdims: bool = False) -> View:
    """The variance along axes, which stay as dimensions of 1 in any case."""
    deviation = _combined("subtract", x, mean(x, axis, np.float32, keepdims=True))
    squares = _tile(x.shape, np.float32)
    isa.activation(squares, "square", deviation)
    return mean(squares, axis, x.element if dtype is None else dtype, keepdims=True)


def softmax(x: View, axis: Axes = -1, dtype: Any = None) -> View:
    """``exp(x)`` over its sum along axes, computed from differences to the maximum."""
    powers = _tile(x.shape, np.float32)
    isa.activation(powers, "exp", _combined("subtract", x, reduced("max", x, axis, np.float32, keepdims=True)))
    total = reduced("add", powers, axis, np.float32, keepdims=True)
    return _combined("divide", powers, total, x.element if dtype is None else dtype)


def rms_norm(
    x: View, w: View, axis: Axes, n: int, epsilon: float = 1e-6, dtype: Any = None, compute_dtype: Any = None
) -> View:
    """``x / sqrt(sum(x * x) / n + epsilon) * w``; ``compute_dtype`` is of what is in between."""
    between = np.float32 if compute_dtype is None else compute_dtype
    squares = _tile(x.shape, between)
    isa.activation(squares, "square", x)
    total = reduced("add", squares, axis, between, keepdims=True)
    root = _tile(total.shape, between)
    isa.tensor_scalar(root, total, "multiply", 1 / n, op1="add", operand1=epsilon)
    isa.activation(root, "rsqrt", root)
    return _combined("multiply", _combined("multiply", x, root, between), w, x.element if dtype is None else dtype)


def where(condition: View, x: Any, y: Any, dtype: Any = None) -> View:
    """``x`` where the condition is not 0, else ``y``; each is a tile or a number."""
    shape = np.broadcast_shapes(*(v.shape for v in (condition, x, y) if isinstance(v, View)))
    like = next((v for v in (x, y) if isinstance(v, View)), condition)
    result = _tile(shape, like.element if dtype is None else dtype)
    if isinstance(y, View):
        isa.tensor_copy(result, _spread(y, shape))
    else:
        isa.memset(result, y)
    isa.tensor_copy_predicated(result, _spread(x, shape) if isinstance(x, View) else x, _spread(condition, shape))
    return result


def expand_dims(x: View, axis: int) -> View:
    """A view with a new dimension of extent 1 at ``axis``."""
    return x.expand_dim(axis % (x.ndim + 1))


def broadcast_to(x: View, shape: Sequence[int], dtype: Any = None) -> View:
    """A tile with dimensions of extent 1 repeated; ``x`` itself where nothing changes."""
    extents, element = tuple(int(n) for n in shape), x.element if dtype is None else element_type(dtype)
    if extents == x.shape and element is x.element:
        return x
    result = _tile(extents, element)
    isa.tensor_copy(result, _spread(x, extents))
    return result


def transpose(x: View, dtype: Any = None) -> View:
    """A tile of two dimensions, exchanged, in PSUM."""
    if x.ndim != 2:
        raise InputError(f"transpose takes a tile of 2 dimensions, and {x} has {x.ndim}")
    if dtype is not None and element_type(dtype) is not x.element:
        cast = _tile(x.shape, dtype)
        isa.tensor_copy(cast, x)
        x = cast
    result = _tile(x.shape[::-1], x.element, Space.PSUM)
    isa.nc_transpose(result, x)
    return result


def matmul(x: View, y: View, transpose_x: bool = False) -> View:
    """``x @ y``, or ``x.T @ y``, of float32 in PSUM; ``x.T`` is what the tensor engine takes."""
    if not transpose_x:
        turned = _tile(x.shape[::-1], x.element)
        isa.tensor_copy(turned, transpose(x))
        x = turned
    result = _tile((x.shape[1], *y.shape[1:]), np.float32, Space.PSUM)
    isa.nc_matmul(result, x, y)
    return result


def load_transpose2d(src: View, dtype: Any = None) -> View:
    """A new tile in SBUF with what a tensor of two dimensions holds, exchanged."""
    tile = _tile(src.shape[::-1], src.element)
    isa.dma_transpose(tile, src)
    return broadcast_to(tile, tile.shape, dtype)


def gather_flattened(data: View, indices: View, axis: int = 0, dtype: Any = None) -> View:
    """In each partition the elements at ``indices``, counted over the free dimensions."""
    result = _tile(indices.shape, data.element if dtype is None else dtype)
    isa.nc_n_gather(result, data, indices)
    return result


def reduced(op: Any, x: View, axis: Axes, dtype: Any = None, keepdims: bool = False) -> View:
    """A tile reduced along axes."""
    axes = _axes(x, axis)
    shape = [1 if n in axes else extent for n, extent in enumerate(x.shape) if keepdims or n not in axes]
    result = _tile(shape, x.element if dtype is None else dtype)
    isa.tensor_reduce(result, op, x, axes, keepdims=keepdims)
    return result


def _axes(x: View, axis: Axes) -> tuple[int, ...]:
    return tuple(sorted(a % x.ndim for a in ((axis,) if isinstance(axis, int) else axis)))


def _count(x: View, axis: Axes) -> int:
    """How many elements are reduced to one."""
    return math.prod(x.shape[a] for a in _axes(x, axis))


def _combined(op: str, x: View, y: View, dtype: Any = np.float32) -> View:
    """``x op y``, where dimensions of ``y`` of extent 1 are repeated."""
    result = _tile(x.shape, dtype)
    isa.tensor_tensor(result, x, _spread(y, x.shape), op)
    return result


def _spread(x: View, shape: Sequence[int]) -> View:
    """A view with dimensions of extent 1 repeated."""
    for dim, (own, wanted) in enumerate(zip(x.shape, shape, strict=False)):
        x = x if own == wanted else x.broadcast(dim, wanted)
    return x


def _tile(shape: Sequence[int], dtype: Any, space: Space = Space.SBUF) -> View:
    return current().tensor(shape, element_type(dtype), space)
