"""The operators and the activation functions that an instruction names, and reductions by them.

``ALU`` has functions of one or two arrays of one dtype (comparisons and logical operators give 0 and 1 in it):

* maximum and minimum give NaN if either has it, and of equal values (+0 and -0) the first one;
* abs_max and abs_min give the value of larger (smaller) magnitude with its sign; of equal ones the second one;
* integers wrap; their quotient truncates toward zero and is -1 where the divisor is 0;
* the bitwise operators and the shifts take integers alone; both shifts are logical, and by the width or more give 0.

``ACTIVATION`` has functions of one array, computed in f64 and rounded once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from crossrank.instr.compute.values import Array, is_integer, rows

Unary = Callable[[Array], Array]
Binary = Callable[[Array, Array], Array]

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _gated(x: Array, weight: Array) -> Array:
    return np.where(weight == 0, 0.0, x * weight)  # the limit, where x is -inf


def _softplus(x: Array) -> Array:
    return np.logaddexp(0.0, x)


def _gelu_sigmoid_dx(x: Array) -> Array:
    weight = _sigmoid(1.702 * x)
    return weight + _gated(1.702 * x, weight * _sigmoid(-1.702 * x))


def _silu_dx(x: Array) -> Array:
    return _sigmoid(x) + _gated(x, _sigmoid(x) * _sigmoid(-x))


def _normal_cdf(x: Array) -> Array:
    return np.asarray((1 + _erf(x / math.sqrt(2))) / 2)


def _rounded(function: Unary) -> Unary:
    return lambda x: function(x.astype(np.float64)).astype(x.dtype)


_FUNCTIONS: dict[str, Unary] = {
    "abs": np.abs,
    "arctan": np.arctan,
    "ceil": np.ceil,
    "copy": np.copy,
    "cos": np.cos,
    "erf": _erf,
    "erf_dx": lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x),
    "exp": np.exp,
    "floor": np.floor,
    "gelu": lambda x: _gated(x, _normal_cdf(x)),
    "gelu_apprx_sigmoid": lambda x: _gated(x, _sigmoid(1.702 * x)),
    "gelu_apprx_sigmoid_dx": _gelu_sigmoid_dx,
    "gelu_apprx_tanh": lambda x: _gated(x, (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2),
    "gelu_dx": lambda x: _normal_cdf(x) + _gated(x, np.exp(-x * x / 2) / math.sqrt(2 * math.pi)),
    "identity": np.copy,
    "log": np.log,
    "mish": lambda x: _gated(x, np.tanh(_softplus(x))),
    "negative": np.negative,
    "reciprocal": np.reciprocal,
    "relu": lambda x: np.where(x <= 0, 0.0, x),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": _sigmoid,
    "sign": np.sign,
    "silu": lambda x: _gated(x, _sigmoid(x)),
    "silu_dx": _silu_dx,
    "sin": np.sin,
    "softplus": _softplus,
    "sqrt": np.sqrt,
    "square": np.square,
    "tan": np.tan,
    "tanh": np.tanh,
    "trunc": np.trunc,
}

ACTIVATION: dict[str, Unary] = {name: _rounded(function) for name, function in _FUNCTIONS.items()}


def _maximum(x: Array, y: Array) -> Array:
    return np.where((y > x) | np.not_equal(y, y), y, x)


def _minimum(x: Array, y: Array) -> Array:
    return np.where((y < x) | np.not_equal(y, y), y, x)


def _of_magnitude(compare: Callable[[Array, Array], Array]) -> Binary:
    return lambda x, y: np.where(compare(np.abs(x), np.abs(y)) | np.not_equal(x, x), x, y)


def _divide(x: Array, y: Array) -> Array:
    if not is_integer(x):
        return np.true_divide(x, y)
    quotient = np.floor_divide(x, y)
    quotient += (quotient < 0) & (np.multiply(quotient, y) != x)
    return np.where(y == 0, ~np.zeros_like(quotient), quotient)


def _power(x: Array, y: Array) -> Array:
    if not is_integer(x):
        return np.power(x, y)
    # A negative power of an integer is a fraction, which truncates to 0 but for 1 and -1.
    small = np.where(x == 1, 1, np.where(np.add(x, 1) == 0, np.where(y % 2 == 0, 1, -1), 0))
    return np.where(y < 0, small.astype(x.dtype), np.power(x, np.where(y < 0, 0, y)))


def _shifted(shift: Binary) -> Binary:
    def shift_bits(x: Array, y: Array) -> Array:
        unsigned = np.dtype(f"u{x.dtype.itemsize}")
        return np.asarray(shift(x.view(unsigned), y.view(unsigned))).view(x.dtype)

    return shift_bits


def _truth(function: Binary) -> Binary:
    return lambda x, y: function(x, y).astype(x.dtype)


UNARY: dict[str, Unary] = {
    **{name: ACTIVATION[name] for name in ("copy", "exp", "log", "reciprocal", "rsqrt", "sqrt", "square")},
    "abs": np.abs,
    "invert": np.invert,
    "logical_not": lambda x: (x == 0).astype(x.dtype),
}

BINARY: dict[str, Binary] = {
    "abs_max": _of_magnitude(np.greater),
    "abs_min": _of_magnitude(np.less),
    "add": np.add,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "bypass": lambda x, y: x,
    "divide": _divide,
    "equal": _truth(np.equal),
    "fmod": np.fmod,
    "greater": _truth(np.greater),
    "greater_equal": _truth(np.greater_equal),
    "left_shift": _shifted(np.left_shift),
    "less": _truth(np.less),
    "less_equal": _truth(np.less_equal),
    "logical_and": _truth(np.logical_and),
    "logical_or": _truth(np.logical_or),
    "logical_xor": _truth(np.logical_xor),
    "max": _maximum,
    "maximum": _maximum,
    "min": _minimum,
    "minimum": _minimum,
    "mod": np.mod,
    "multiply": np.multiply,
    "not_equal": _truth(np.not_equal),
    "power": _power,
    "right_shift": _shifted(np.right_shift),
    "subtract": np.subtract,
}

ALU: dict[str, Callable[..., Array]] = {**UNARY, **BINARY}
"""Every operator by its name."""

BITVEC = frozenset({"invert", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"})
"""Operators on the bits of integers; the others are arithmetic."""

COMPARISONS = frozenset({"equal", "not_equal", "greater", "greater_equal", "less", "less_equal"})

REDUCTIONS = frozenset(
    {"abs_max", "abs_min", "add", "bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or"}
    | {"logical_xor", "max", "maximum", "min", "minimum", "multiply", "subtract"}
)
"""Operators that a reduction may name."""

_START = {"add": 0, "multiply": 1, "logical_and": 1, "logical_or": 0, "logical_xor": 0}


def apply(op: str, x: Array, y: Array, reverse: bool = False) -> Array:
    """``x op y``, or ``y op x`` in reverse; of a unary ``op``, which takes no notice of ``y``, ``op x``."""
    if op in UNARY:
        return UNARY[op](x)
    x, y = np.broadcast_arrays(x, y.astype(x.dtype) if op in BITVEC else y)
    return BINARY[op](y, x) if reverse else BINARY[op](x, y)


def fold(op: str, values: Array) -> Array:
    """``[N, ...]`` reduced along its first dim, one after the other; a sum starts from +0, a product from 1."""
    steps = iter(values)
    start = np.full(values.shape[1:], _START[op], values.dtype) if op in _START else next(steps).copy()
    return functools.reduce(BINARY[op], steps, start)


def fold_free(op: str, data: Array) -> Array:
    """``[P, ...]`` reduced along all free dims: ``[P]``."""
    return fold(op, rows(data).T)
