"""Each engine computation against NumPy written for the test alone; and the lines that say what does not fit."""

import math

import ml_dtypes
import numpy as np
import pytest

from crossrank.instr.compute import ACTIVATION, ALU, COMPUTATIONS, check, evaluate

BF16, F32, I32, U32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32), np.dtype(np.int32), np.dtype(np.uint32)
P, N = 4, 12
NAN, INF = math.nan, math.inf


def values(*shape, dtype=F32, seed=0):
    rng = np.random.default_rng(seed)
    if dtype.kind in "iu":
        return rng.integers(0 if dtype.kind == "u" else -50, 50, shape).astype(dtype)
    return rng.normal(size=shape).astype(dtype)


def run(name, out, *ins, **params):
    """What becomes of one out, given as an array, or as a shape or a shape and a dtype (then it holds zeros)."""
    return run_all(name, [out], *ins, **params)[0]


def run_all(name, outs, *ins, **params):
    outs = [np.zeros(*out) if isinstance(out, tuple) else out for out in outs]
    before = [array.copy() for array in (*outs, *ins)]
    results = evaluate(name, outs, ins, params)
    for array, copy in zip((*outs, *ins), before, strict=True):
        assert array.tobytes() == copy.tobytes()  # nothing given is written
    assert [(r.shape, r.dtype) for r in results] == [(o.shape, o.dtype) for o in outs]
    assert not any(np.shares_memory(r, given) for r in results for given in (*outs, *ins))
    return results


def same(got, expected):
    expected = np.asarray(expected).astype(got.dtype).reshape(got.shape)
    np.testing.assert_array_equal(got.astype(np.float64), expected.astype(np.float64))


def close(got, expected):
    np.testing.assert_allclose(got.astype(np.float64), np.asarray(expected).reshape(got.shape), rtol=1e-5, atol=1e-6)


A, B = values(P, N), values(P, N, seed=1)
IA, IB = values(P, N, dtype=I32), values(P, N, dtype=I32, seed=1)
COLUMN = values(P, 1, seed=2)


@pytest.mark.parametrize("name", ["dma_copy", "tensor_copy"])
@pytest.mark.parametrize("src", [A, A.astype(BF16), IA], ids=str)
@pytest.mark.parametrize("dtype", [F32, BF16, I32], ids=str)
def test_copies_cast_through_f32(name, src, dtype):
    same(run(name, ((P, 3, 4), dtype), src), src.astype(F32))


def test_a_copy_in_one_dtype_is_exact_and_any_other_goes_through_f32():
    large = np.array([[2**24 + 1, -(2**31)]], I32)
    same(run("tensor_copy", ((1, 2), I32), large), large)
    same(run("dma_copy", ((2, 1), U32), large), [2**24, 0])  # rounded on the way, and stopped at 0
    same(run("dma_copy", ((2,), I32), np.array([[1.9], [-1.9]], F32)), [1, -1])


def test_a_float_becomes_an_integer_by_truncation_within_the_range():
    floats = np.array([[NAN, INF, -INF, 3e9, -2.7, 2.5]], F32)
    same(run("tensor_copy", ((1, 6), I32), floats), [0, 2**31 - 1, -(2**31), 2**31 - 1, -2, 2])
    same(run("tensor_copy", ((1, 6), np.uint8), floats), [0, 255, 0, 255, 0, 2])
    same(run("tensor_copy", ((1, 6), bool), floats), [1, 1, 1, 1, 1, 1])


def test_memset():
    same(run("memset", ((P, 2), U32), value=-1), np.full((P, 2), 2**32 - 1))
    same(run("memset", ((P, 2), BF16), value=0.1), np.full((P, 2), 0.1, F32).astype(BF16))


def test_selections():
    predicate = (np.arange(P * N).reshape(P, N) % 3 == 0).astype(np.uint8)
    chosen = predicate.astype(bool)
    same(run("tensor_copy_predicated", A, B, predicate), np.where(chosen, B, A))
    same(run("tensor_copy_predicated", A, B, predicate, reverse_pred=True), np.where(chosen, A, B))
    same(run("tensor_copy_predicated", IA, predicate, src=7, tensors=("predicate",)), np.where(chosen, 7, IA))
    dst, largest = run_all(
        "select_reduce", [((P, N), BF16), ((P, 1), F32)], predicate, A, COLUMN, reduce_cmd="reset_reduce"
    )
    same(dst, np.where(chosen, A, COLUMN))
    same(largest, np.where(chosen, A, COLUMN).max(axis=1))
    only = run("select_reduce", ((P, N), F32), predicate, A, on_false=-1.5, tensors=("predicate", "on_true"))
    same(only, np.where(chosen, A, -1.5))


def test_range_select_takes_the_places_between_two_bounds():
    low, high = np.full((P, 1), 11.0, F32), np.arange(13, 13 + P, dtype=F32)[:, None]
    places = np.arange(10, 10 + N)
    expected = np.where((places >= low) & (places < high), A, -3.4028235e38)
    dst, largest = run_all(
        "range_select",
        [((P, N), F32), ((P, 1), F32)],
        *(A, low, high),
        comp_op0="greater_equal",
        comp_op1="less",
        range_start=10,
    )
    same(dst, expected)
    same(largest, expected.max(axis=1))


def test_iota_and_affine_select():
    place = 5 + 100 * np.arange(P)[:, None, None] + 10 * np.arange(3)[:, None] - np.arange(4)
    pattern = ((10, 3), (-1, 4))
    same(run("iota", ((P, N), U32), pattern=pattern, offset=5, channel_multiplier=100), place)
    params = {"pattern": pattern, "offset": -20, "channel_multiplier": 1, "cmp_op": "greater_equal"}
    kept = (np.arange(P)[:, None, None] + 10 * np.arange(3)[:, None] - np.arange(4) - 20 >= 0).reshape(P, N)
    same(run("affine_select", ((P, N), BF16), A, on_false_value=-9.5, **params), np.where(kept, A, -9.5))


def test_transposes():
    data = values(3, 2, 4, 5, dtype=BF16)
    data[0, 0, 0, 0] = NAN
    same(run("nc_transpose", ((40, 3), BF16), data), data.reshape(3, 40).T)
    for axes, source in (((1, 0), data[:, 0, 0]), ((2, 1, 0), data[:, 0]), ((3, 1, 2, 0), data)):
        expected = np.transpose(source, axes)
        same(run("dma_transpose", (expected.shape, BF16), source), expected)
        same(run("dma_transpose", (expected.shape, BF16), source, axes=axes), expected)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_nc_matmul(dtype):
    stationary, moving, dst = values(5, 3, dtype=dtype), values(5, 2, 4, dtype=dtype), values(3, 8)
    product = stationary.astype(np.float64).T @ moving.reshape(5, 8).astype(np.float64)
    close(run("nc_matmul", dst, stationary, moving), product)
    close(run("nc_matmul", dst, stationary, moving, accumulate=True, is_moving_onezero=True), dst + product)
    double = values(5, 2, 3, dtype=dtype)
    expected = np.einsum("kim,kin->mn", double.astype(np.float64), moving.astype(np.float64))
    close(run("nc_matmul", ((3, 4), F32), double, moving, perf_mode="double_row"), expected)


def test_a_matmul_that_transposes_keeps_every_bit():
    data = np.array([[NAN, 1], [INF, -0.0], [3, 4]], F32)
    same(run("nc_matmul", ((2, 3), F32), data, np.eye(3, dtype=F32), is_transpose=True), data.T)


def test_shuffle_works_in_each_quadrant():
    src = values(64, 3)
    mask = (*range(1, 32), 255)
    expected = np.concatenate([src[1:32], np.full((1, 3), 7), src[33:64], np.full((1, 3), 7)])
    same(run("nc_stream_shuffle", np.full((64, 3), 7, F32), src, shuffle_mask=mask), expected)
    same(run("nc_stream_shuffle", ((9, 3), F32), src[:1], shuffle_mask=(0,) * 32), np.tile(src[0], (9, 1)))


def test_gathers():
    indices = np.array([[3, 0, 11], [1, 1, 1], [2, 4, 6], [0, 5, 9]], U32)
    expected = [[A[p, i] for i in row] for p, row in enumerate(indices)]
    same(run("nc_n_gather", ((P, 3), F32), A.reshape(P, 3, 4), indices), expected)
    source, index = values(32, 20), values(32, 2, dtype=np.dtype(np.uint16)) % 19
    expected = np.zeros((32, 30, 2), F32)
    for p in range(32):
        for k in range(30):
            start = int(index[p // 16 * 16 + k % 16, k // 16])
            expected[p, k] = source[p, start : start + 2]
    same(run("local_gather", ((32, 60), F32), source, index, num_elem_per_idx=2, num_valid_indices=30), expected)


PLAIN = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "abs_max": lambda x, y: np.where(abs(x) > abs(y), x, y),
    "abs_min": lambda x, y: np.where(abs(x) < abs(y), x, y),
    "equal": lambda x, y: x == y,
    "not_equal": lambda x, y: x != y,
    "less": lambda x, y: x < y,
    "less_equal": lambda x, y: x <= y,
    "greater": lambda x, y: x > y,
    "greater_equal": lambda x, y: x >= y,
    "logical_and": lambda x, y: (x != 0) & (y != 0),
    "logical_or": lambda x, y: (x != 0) | (y != 0),
    "logical_xor": lambda x, y: (x != 0) ^ (y != 0),
    "bypass": lambda x, y: x,
}


@pytest.mark.parametrize("op", PLAIN)
@pytest.mark.parametrize("dtype", [F32, BF16, I32], ids=str)
def test_tensor_tensor(op, dtype):
    first, second = values(P, N, dtype=dtype), values(P, N, dtype=dtype, seed=1)
    second[:, :5] = first[:, :5]
    second[0, 7] = 0
    wide = np.int64 if dtype is I32 else F32
    expected = PLAIN[op](first.astype(wide), second.astype(wide))
    same(run("tensor_tensor", ((P, 4, 3), dtype), first, second.reshape(P, 2, 6), op=op), expected)


def test_what_is_particular_about_operators():
    def binary(op, x, y, dtype):
        return run("tensor_tensor", ((1, len(x)), dtype), np.array([x], dtype), np.array([y], dtype), op=op)

    same(binary("divide", [7, -7, 7, 5], [2, 2, -2, 0], I32), [3, -3, -3, -1])
    same(binary("divide", [7, -1], [2, 0], F32), [3.5, -INF])
    same(binary("power", [2, -1, 3], [10, -3, -1], I32), [1024, -1, 0])
    same(binary("power", [2, 4], [0.5, -1], F32), np.array([2**0.5, 0.25], F32))
    same(binary("add", [2**31 - 1], [1], I32), [-(2**31)])
    same(binary("subtract", [0], [1], U32), [2**32 - 1])
    same(binary("multiply", [100], [3], np.int8), [44])
    same(run("tensor_tensor", ((1, 1), F32), np.full((1, 1), 2**24 + 1, I32), np.ones((1, 1), I32), op="add"), 2**24)
    for op in ("max", "maximum", "min", "minimum"):
        same(binary(op, [NAN, 1, NAN], [1, NAN, NAN], F32), [NAN, NAN, NAN])
        assert list(np.signbit(binary(op, [0.0, -0.0], [-0.0, 0.0], F32)[0])) == [False, True]
    same(binary("right_shift", [-1, 8, 1], [28, 2, 40], I32), [15, 2, 0])  # logical
    same(binary("left_shift", [3, 1], [4, 32], I32), [48, 0])
    same(binary("bitwise_and", [0b1100], [0b1010], U32), [0b1000])
    same(binary("bitwise_or", [0b1100], [0b1010], U32), [0b1110])
    same(binary("bitwise_xor", [0b1100], [-1], I32), [~0b1100])


def test_tensor_scalar():
    only = {"tensors": ("data",)}
    same(run("tensor_scalar", ((P, N), F32), A, op0="subtract", operand0=2.5, reverse0=True, **only), 2.5 - A)
    two = {"op0": "multiply", "op1": "subtract", "reverse1": True}
    got = run("tensor_scalar", ((P, N), BF16), A, COLUMN, operand1=3, tensors=("data", "operand0"), **two)
    same(got, 3 - A * COLUMN)
    got = run("tensor_scalar", ((P, N), F32), A, COLUMN, operand0=0.5, tensors=("data", "operand1"), **two)
    same(got, COLUMN - A * F32.type(0.5))
    same(run("tensor_scalar", ((P, N), I32), IA, op0="bitwise_and", operand0=-4, op1="invert", **only), ~(IA & -4))
    shifted = run("tensor_scalar", ((P, N), U32), IA.astype(U32), op0="right_shift", operand0=3, **only)
    same(shifted, IA.astype(U32) >> 3)
    positive = np.abs(A)
    same(run("tensor_scalar", ((P, N), F32), A, op0="abs", **only), positive)
    close(run("tensor_scalar", ((P, N), F32), positive, op0="rsqrt", operand0=0.0, **only), 1 / np.sqrt(positive))


def test_two_tensors_and_a_scalar():
    params = {"op0": "multiply", "op1": "subtract"}
    same(run("scalar_tensor_tensor", ((P, N), F32), A, COLUMN, B, **params), A * COLUMN - B)
    got = run("scalar_tensor_tensor", A, A, B, operand0=2.0, tensors=("data", "operand1"), reverse1=True, **params)
    same(got, B - A * 2)
    dst, total = run_all(
        "tensor_scalar_reduce", [((P, N), F32), ((P, 1), F32)], A, COLUMN, op0="add", reduce_op="maximum"
    )
    same(dst, A + COLUMN)
    same(total, (A + COLUMN).max(axis=1))


def test_scan():
    got = run("tensor_tensor_scan", ((P, N), F32), A, B, COLUMN, op0="multiply", op1="add")
    last, expected = COLUMN[:, 0], []
    for i in range(N):
        last = A[:, i] * last + B[:, i]
        expected.append(last)
    same(got, np.stack(expected, axis=1))
    params = {"op0": "subtract", "op1": "maximum", "reverse0": True}
    got = run("tensor_tensor_scan", ((P, N), F32), A, B, initial=0.5, tensors=("data0", "data1"), **params)
    same(got[:, 0], np.maximum(F32.type(0.5) - A[:, 0], B[:, 0]))


def test_reductions():
    data = values(P, 3, 4)
    close(run("tensor_reduce", ((P, 1), F32), data, op="add", axis=(1, 2)), data.astype(float).sum(axis=(1, 2)))
    same(run("tensor_reduce", ((P, 3, 1), F32), data, op="maximum", axis=2, keepdims=True), data.max(axis=2))
    nearest = np.take_along_axis(data, np.abs(data).argmin(axis=2)[..., None], axis=2)[..., 0]
    same(run("tensor_reduce", ((P, 3), F32), data, op="abs_min", axis=-1, negate=True), -nearest)
    close(run("tensor_reduce", ((P, 3), F32), data, op="multiply", axis=2), data.prod(axis=2))
    same(run("tensor_reduce", ((P, 1), I32), IA, op="bitwise_xor", axis=1), np.bitwise_xor.reduce(IA, axis=1))
    same(run("tensor_reduce", ((P, 1), F32), data[:, 0] > 0, op="logical_and", axis=1), (data[:, 0] > 0).all(axis=1))
    same(run("tensor_partition_reduce", ((1, 12), F32), data, op="min"), data.min(axis=0))
    huge = np.full((2, 1), 2**30 + 1, I32)
    same(run("tensor_partition_reduce", ((1, 1), I32), huge, op="add"), [-(2**31) + 2])


def test_a_sum_goes_from_left_to_right():
    data = np.array([[1.0, 2**-24, 2**-24]], F32)  # the other way round it would be more than 1
    same(run("tensor_reduce", ((1, 1), F32), data, op="add", axis=1), [1.0])


def test_dma_compute():
    sources = [A, B.reshape(-1), IA]
    same(run("dma_compute", ((N, P), BF16), *sources, reduce_op="add", unique_indices=True), (A + B) + IA.astype(F32))
    got = run("dma_compute", ((P, N), F32), A, B, reduce_op="maximum", scales=(2.0, 1.0))
    same(got, np.maximum(2 * A, B))


def test_activation():
    close(run("activation", ((P, N), F32), A, COLUMN, COLUMN, op="tanh"), np.tanh(A * COLUMN + COLUMN))
    one = {"op": "exp", "tensors": ("data",), "scale": 0.5, "bias": -1.0}
    plain = np.exp(A.astype(float) * 0.5 - 1)
    close(run("activation", ((P, N), F32), A, **one), plain)
    sums = {"reduce_op": "add"}
    for name, more in (("activation", {"reduce_cmd": "reset_reduce"}), ("activation_reduce", {})):
        dst, total = run_all(name, [((P, N), BF16), ((P, 1), F32)], A, **one, **sums, **more)
        same(dst, plain.astype(F32))
        close(total, plain.sum(axis=1))


REAL = np.array([-INF, -40, -3, -1, -0.5, 0, 0.25, 1, 2, 7, 40, INF])
CURVES = {
    "relu": lambda x: max(x, 0.0),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "silu": lambda x: x / (1 + math.exp(-x)),
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "gelu_apprx_tanh": lambda x: x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "gelu_apprx_sigmoid": lambda x: x / (1 + math.exp(-1.702 * x)),
    "mish": lambda x: x * math.tanh(math.log1p(math.exp(x))),
    "softplus": lambda x: math.log1p(math.exp(x)),
    "erf": math.erf,
    "tanh": math.tanh,
    "arctan": math.atan,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "ceil": math.ceil,
    "floor": math.floor,
    "trunc": math.trunc,
    "negative": lambda x: -x,
    "square": lambda x: x * x,
    "copy": lambda x: x,
}
ENDS = {"relu": (0, INF), "sigmoid": (0, 1), "silu": (0, INF), "gelu": (0, INF), "mish": (0, INF), "erf": (-1, 1)}


@pytest.mark.parametrize("op", CURVES)
def test_activation_functions(op):
    data = REAL[1:-1].astype(F32)[None]
    close(run("activation", ((1, 10), F32), data, op=op, tensors=("data",)), [[CURVES[op](x) for x in REAL[1:-1]]])
    if op in ENDS:
        same(run("activation", ((1, 2), F32), REAL[[0, -1]].astype(F32)[None], op=op, tensors=("data",)), ENDS[op])


@pytest.mark.parametrize("op", ["gelu", "gelu_apprx_sigmoid", "silu", "erf"])
def test_derivatives_are_the_slopes(op):
    x = np.linspace(-3, 3, 13)[None]
    slope = (ACTIVATION[op](x + 1e-6) - ACTIVATION[op](x - 1e-6)) / 2e-6
    np.testing.assert_allclose(ACTIVATION[f"{op}_dx"](x), slope, atol=1e-7)


def test_reciprocal_and_f64():
    same(run("reciprocal", ((P, N), F32), A), F32.type(1) / A)
    third = run("reciprocal", ((1, 1), np.float64), np.full((1, 1), 3.0))
    assert third[0, 0] == 1 / 3


def test_statistics():
    data = values(P, 11)
    stats = np.concatenate([run("bn_stats", ((P, 6), F32), part) for part in (data[:, :7], data[:, 7:])], axis=1)
    close(stats[:, 3:6], np.stack([np.full(P, 3), data[:, 1:7:2].mean(1), data[:, 1:7:2].var(1) * 3], axis=1))
    close(run("bn_aggr", ((P, 2), F32), stats), np.stack([data.mean(axis=1), data.var(axis=1)], axis=1))
    close(run("bn_stats", ((P, 6), F32), data[:, :1])[:, 3:], np.zeros((P, 3)))


@pytest.mark.parametrize("dtype", [F32, BF16, I32], ids=str)
def test_max8(dtype):
    data = values(P, 4, 5, dtype=dtype)
    same(run("max8", ((P, 8), dtype), data), -np.sort(-data.reshape(P, 20).astype(F32), axis=1)[:, :8])


def test_searches():
    data = np.array([[5, 3, 5, -1, 5, 9, 0, 3], [1, 2, 3, 4, 5, 6, 7, 8]], I32)
    vals = np.array([[5, 5, 3, 5, 5, 9, 3, 77], [8, 7, 6, 5, 4, 3, 2, 1]], U32)
    none = 2**32 - 1
    expected = [[0, 2, 1, 4, none, 5, 7, none], [7, 6, 5, 4, 3, 2, 1, 0]]
    same(run("nc_find_index8", ((2, 8), U32), data, vals), expected)
    same(run("nc_find_index8", ((2, 8), np.uint16), data.astype(F32), vals), np.array(expected).astype(np.uint16))
    minus = np.full((2, 8), 2**32 - 1, U32)  # is no -1
    same(run("nc_find_index8", ((2, 8), U32), data, minus), np.full((2, 8), none))
    replaced, indices = run_all("nc_match_replace8", [((2, 8), F32), ((2, 8), U32)], data.astype(F32), vals, imm=-2.5)
    same(replaced, [[-2.5, -2.5, -2.5, -1, -2.5, -2.5, 0, -2.5], [-2.5] * 8])
    same(indices, expected)
    same(run("nc_match_replace8", ((2, 8), F32), data.astype(F32), vals, imm=-2.5), replaced)


ZEROS = np.zeros((P, N), F32)
FAULTS = [
    ("tensor_copy", (A[:, :3],), {}, "src of shape (4, 3) does not fit (4, 12): not as many elements"),
    ("tensor_copy", (A.T,), {}, "src of shape (12, 4) does not fit (4, 12): not as many partitions"),
    ("dma_copy", (A[:2],), {}, "src of shape (2, 12) does not fit (4, 12): not as many elements"),
    ("tensor_copy", (A, B), {}, "reads src, but 2 are given"),
    (
        "tensor_scalar_reduce",
        (A, COLUMN),
        {"op0": "add", "reduce_op": "add"},
        "writes dst, reduce_res, but 1 are given",
    ),
    ("tensor_tensor", (A, B), {}, "op is missing"),
    ("tensor_tensor", (A, B), {"op": "frob"}, "op may not be 'frob'"),
    ("tensor_tensor", (A, B), {"op": "exp"}, "op may not be 'exp'"),
    ("tensor_tensor", (A, B), {"op": "add", "dst": 1}, "there is no parameter 'dst'"),
    ("tensor_tensor", (A, B), {"op": "bitwise_or"}, "op bitwise_or needs integers, but operand 1 has f32"),
    (
        "tensor_scalar",
        (A, A),
        {"op0": "add", "tensors": ("data", "operand0")},
        "operand0 of shape (4, 12) does not fit (4, 12): not one element per partition",
    ),
    ("tensor_scalar", (A,), {"op0": "add", "tensors": ("data",)}, "operand0 is missing"),
    ("tensor_scalar", (A, B), {"op0": "add", "operand0": 1}, "operand0 is given twice, as a tensor and as 1"),
    (
        "tensor_scalar",
        (A,),
        {"op0": "add", "tensors": ("dta",)},
        "tensors must be some of ('data', 'operand0', 'operand1') in this order, not ('dta',)",
    ),
    ("tensor_reduce", (A,), {"op": "add", "axis": 0}, "axis 0 must be the last free dims of data of shape (4, 12)"),
    ("activation", (A,), {"op": "add", "tensors": ("data",)}, "op may not be 'add'"),
    ("activation", (A,), {"op": "exp", "reduce_cmd": "reduce", "tensors": ("data",)}, "reduce_cmd may not be 'reduce'"),
    ("nc_matmul", (A, B[:2]), {}, "stationary of shape (4, 12) does not fit moving of shape (2, 12)"),
    ("nc_matmul", (A, B), {}, "stationary.T @ moving of shape (12, 12) does not fit (4, 12): not as many partitions"),
    ("dma_compute", (A, B), {"reduce_op": "add", "scales": (1.0,)}, "2 srcs and 1 scales are not one to one"),
    ("dma_transpose", (A,), {"axes": (0, 2)}, "axes (0, 2) are no order of the dims of src of shape (4, 12)"),
    ("nc_stream_shuffle", (A,), {"shuffle_mask": (1, 2)}, "shuffle_mask must have 32 entries, each 0 to 31 or 255"),
    ("nc_n_gather", (A, np.full((P, N), 12, U32)), {}, "indices lies outside data of shape (4, 12)"),
]


@pytest.mark.parametrize(("name", "ins", "params", "line"), FAULTS)
def test_faults_are_one_line(name, ins, params, line):
    with pytest.raises(ValueError) as caught:
        evaluate(name, [ZEROS], ins, params)
    assert str(caught.value) == f"{name}: {line}"


def test_what_is_no_computation():
    with pytest.raises(ValueError, match="there is no computation 'dropout'"):
        check("dropout", {})


def test_the_tables():
    assert {known.engine for known in COMPUTATIONS.values()} == {
        "vector",
        "scalar",
        "tensor",
        "gpsimd",
        "dma",
    }
    for name, computation in COMPUTATIONS.items():
        assert computation.name == name
        assert {*computation.outs, *(key.rstrip("*") for key in computation.ins)} <= set(computation.defaults)
    assert {"add", "invert", "rsqrt", "bypass", "logical_not"} <= set(ALU)
    check("nc_matmul", {"accumulate": True, "tile_position": (0, 0)})
    check("activation", {"op": "exp", "reduce_op": None, "tensors": ("data",)})
