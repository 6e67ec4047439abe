"""What is computed of tiles, each op and element type, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from xdsl.ir import SSAValue

from crossrank.collective.dtypes import BF16, F16, F32, F64, PRED, S8, S16, S32, S64, U8, U16, U32, U64, DType
from crossrank.program.codegen.build import CompiledKernel, build_kernels
from crossrank.program.codegen.words import BINARY, COMPARISONS, REDUCE, ROUNDING, UNARY, is_there
from crossrank.program.dialect.tiles import BinaryOp, CastOp, ReduceOp, SelectOp, StoreOp, UnaryOp
from crossrank.program.language.builder import Builder
from crossrank.program.program import Function
from crossrank.program.types import TensorType, TileType, scalar_type
from tests.program.codegen.kernels import Array, assert_same, draw, kernel, launch, load, program

ALL = (F32, F16, BF16, F64, S8, S16, S32, S64, U8, U16, U32, U64, PRED)
TYPES = (F32, F16, BF16, F64, S8, S32, U8, U64, PRED)  # integers of other widths are the same templates
ROWS, COLUMNS = 5, 37
INEXACT = ("exp", "log")
COMPARED = {t: list(COMPARISONS) if t in (F32, S8, U64) else ["lt", "ne"] for t in TYPES}


def wide(x: Array) -> Array:
    """What 16-bit floats are computed in."""
    return x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind not in "iu" else x


def divided(x: Array, y: Array) -> Array:
    """Integers toward zero."""
    return x / y if x.dtype.kind not in "iu" else (x - np.fmod(x, y)) // y


def shifted(shift: Callable[[Array, Array], Array], x: Array, y: Array) -> Array:
    """By more bits than there are: all gone."""
    bits = x.dtype.itemsize * 8
    gone = (y < 0) | (y >= bits)
    none = np.where(x < 0, x.dtype.type(0) - x.dtype.type(1), x.dtype.type(0) * x)
    none = none if shift is np.right_shift else none * x.dtype.type(0)
    return np.where(gone, none, shift(x, np.where(gone, 0, y).astype(x.dtype))).astype(x.dtype)


NUMPY: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": divided,
    "max": lambda x, y: np.where((x >= y) | (x != x), x, y),
    "min": lambda x, y: np.where((x <= y) | (x != x), x, y),
    "rem": np.fmod,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": lambda x, y: shifted(np.left_shift, x, y),
    "shr": lambda x, y: shifted(np.right_shift, x, y),
    "abs": np.abs,
    "exp": np.exp,
    "log": np.log,
    "neg": np.negative,
    "not": np.invert,
    "recip": lambda x: x.dtype.type(1) / x,
    "relu": lambda x: np.where(x < 0, x.dtype.type(0), x),
    "rsqrt": lambda x: x.dtype.type(1) / np.sqrt(x),
    "sqrt": np.sqrt,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}


def words(table: dict[str, str], t: DType) -> list[str]:
    return [word for word in table if is_there(word, t)]


CASTS: dict[DType, list[tuple[DType, str]]] = {
    t: [(to, "rint") for to in (F32, F16, BF16, S16, S64, U32, PRED)] for t in TYPES
} | {F32: [*((to, "none") for to in ALL), *((to, rounding) for to in (S32, U8) for rounding in ROUNDING)]}


def computing(t: DType) -> Function:
    """All that is computed of tiles of one type, one result after the other in `out`; casts in a tensor each."""

    def body(b: Builder, x: SSAValue, y: SSAValue, s: SSAValue, out: SSAValue, *casts: SSAValue) -> None:
        one, other = load(b, x), load(b, y)
        column, row = load(b, y, (0, 0), (ROWS, 1)), load(b, y, (0, 0), (1, COLUMNS))
        results = [b.insert(UnaryOp(word, one)).result for word in words(UNARY, t)]
        for word in words(BINARY, t):
            results += [b.insert(BinaryOp(word, one, rhs)).result for rhs in (other, s, column, row)]
        results += [b.insert(BinaryOp("max", column, one)).result]
        for word in COMPARED[t]:
            results += [b.insert(SelectOp(word, one, rhs, one, other)).result for rhs in (other, s)]
        for axis in ("row", "col"):
            results += [b.insert(ReduceOp(word, one, axis)).result for word in REDUCE]
        for n, result in enumerate(results):
            b.insert(StoreOp(result, out, b.indices((n, 0, 0))))
        for to, (type, rounding) in zip(casts, CASTS[t], strict=True):
            result = b.insert(CastOp(one, TileType.of((ROWS, COLUMNS), type), rounding)).result
            b.insert(StoreOp(result, to, b.indices((0, 0))))

    tensor = TensorType.of((ROWS, COLUMNS), t)
    casts = {f"cast{n}": TensorType.of((ROWS, COLUMNS), type) for n, (type, _) in enumerate(CASTS[t])}
    params = {"x": tensor, "y": tensor, "s": scalar_type(t), "out": TensorType.of(("K", ROWS, COLUMNS), t)}
    return kernel(f"compute_{t}", params | casts, body)


def expected(t: DType, x: Array, y: Array, s: Any) -> list[tuple[str, Array]]:
    a, b, c = wide(x), wide(y), wide(np.array(s, t.numpy))
    column, row = b[:, :1], b[:1, :]
    found = [(word, NUMPY[word](a)) for word in words(UNARY, t)]
    for word in words(BINARY, t):
        found += [(word, NUMPY[word](a, rhs)) for rhs in (b, np.full_like(a, c), column, row)]
    found += [("column max", NUMPY["max"](column, a))]
    for word in COMPARED[t]:
        found += [(word, np.where(NUMPY[word](a, rhs), x, y)) for rhs in (b, c)]
    for axis in (1, 0):
        for word in REDUCE:
            parts = np.moveaxis(a, axis, 0)
            total = np.zeros_like(parts[0]) if word == "sum" else parts[0]
            for part in parts if word == "sum" else parts[1:]:
                total = NUMPY["add" if word == "sum" else word](total, part)
            found.append((f"{word} along {axis}", np.expand_dims(total, axis)))
    return [(what, np.asarray(value).astype(t.numpy)) for what, value in found]


def converted(x: Array, to: DType, rounding: str) -> Array:
    a = wide(x)
    assert to.numpy is not None
    if to.is_integer and a.dtype.kind == "f":
        whole = {
            "rint": np.rint,
            "round": lambda v: np.trunc(v + np.copysign(np.nextafter(v.dtype.type(0.5), 0), v)),
            "floor": np.floor,
            "ceil": np.ceil,
        }.get(rounding, np.trunc)(a)
        info = np.iinfo(to.numpy)
        exact = [
            0 if v != v else info.max if v > info.max else info.min if v < info.min else int(v) for v in whole.flat
        ]
        return np.array(exact, to.numpy).reshape(x.shape)
    if to in (F16, BF16) and a.dtype.kind in "iuf" and a.dtype != np.float32:
        a = a.astype(np.float64)
    return (x != 0) if to is PRED else a.astype(to.numpy)


@pytest.fixture(scope="module")
def made() -> tuple[dict[DType, Function], dict[str, CompiledKernel]]:
    functions = {t: computing(t) for t in TYPES}
    return functions, build_kernels(program(*functions.values()))


def drawn(t: DType, rng: np.random.Generator) -> tuple[Array, Array, Any]:
    """Two operands and a scalar; no integer of the second is zero, since it divides."""
    x, y = (draw((ROWS, COLUMNS), t, rng) for _ in range(2))
    if t.is_float:
        x[0, :12] = [0.5, 1.5, 2.5, -0.5, -1.5, 6e4, -6e4, 126.7, 300, -0.49999997, 3e4, 3e-9]
    if t.is_integer:
        y[:2, :20] = rng.integers(1, 12, (2, 20))
        y[y == 0] = 1
        x[3, 0], y[3, 0] = np.iinfo(t.numpy).min, np.array(-1).astype(t.numpy)
    return x, y, y[2, 3]


@pytest.mark.parametrize("t", TYPES, ids=str)
def test_every_op(t: DType, made: tuple[dict[DType, Function], dict[str, CompiledKernel]]) -> None:
    functions, kernels = made
    x, y, s = drawn(t, np.random.default_rng(5))
    with np.errstate(all="ignore"):
        wanted = expected(t, x, y, s)
    out = np.zeros((len(wanted), ROWS, COLUMNS), t.numpy)
    casts = [np.zeros((ROWS, COLUMNS), type.numpy) for type, _ in CASTS[t]]
    scalar = float(s) if t.is_float else int(s)
    launch(kernels[functions[t].name], functions[t], (x, y, scalar, out, *casts))
    for n, (what, value) in enumerate(wanted):
        got = out[n][tuple(slice(e) for e in value.shape)]
        if what in INEXACT:
            tolerance = {2: 2.0**-7, 4: 1e-6, 8: 1e-14}[t.itemsize]
            np.testing.assert_allclose(wide(got), wide(value), rtol=tolerance, err_msg=what)
        else:
            assert_same(got, value, (what, t))
    for cast, (type, rounding) in zip(casts, CASTS[t], strict=True):
        with np.errstate(all="ignore"):
            assert_same(cast, converted(x, type, rounding), (t, type, rounding))
