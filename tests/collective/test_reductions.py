"""The bits of a reduction: order, accumulation, rounding, NaN, signed zeros."""

import warnings

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossrank.collective.dtypes import ALL
from crossrank.collective.kinds import ReduceOp
from crossrank.collective.semantics import all_reduce

BF16 = ml_dtypes.bfloat16


def one(values, op, dtype):
    """The reduction of one element of each member."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        results = all_reduce([np.array([v]).astype(dtype) for v in values], op)
    assert all(r.dtype == dtype and r.shape == (1,) for r in results)
    assert len({r.tobytes() for r in results}) == 1
    return results[0][0]


def bits(x):
    return np.asarray(x).tobytes().hex()


@pytest.mark.parametrize(
    ("op", "dtype", "values", "want"),
    [
        ("add", np.int8, [100, 100], -56),
        ("add", np.uint8, [200, 100], 44),
        ("multiply", np.int8, [100, 3], 44),
        ("add", np.int64, [2**62, 2**62], -(2**63)),
        ("multiply", np.uint64, [2**63, 3], 2**63),
        ("maximum", np.uint8, [200, 100], 200),
        ("minimum", np.int32, [3, -4, 3], -4),
        ("and", np.int32, [-1, 12, 10], 8),
        ("or", np.uint16, [1, 4], 5),
        ("xor", np.int64, [7, 2, 1], 4),
        ("add", ml_dtypes.int4, [5, 5], -6),
        ("add", ml_dtypes.uint4, [9, 9], 2),
        ("multiply", ml_dtypes.int4, [7, 7, 7], 7),
        ("minimum", ml_dtypes.int4, [5, -3], -3),
        ("and", ml_dtypes.int4, [-1, 5], 5),
        ("xor", ml_dtypes.uint2, [3, 1], 2),
        ("add", ml_dtypes.int1, [-1, -1], 0),
    ],
)
def test_integers_wrap(op, dtype, values, want):
    assert int(one(values, ReduceOp(op), dtype)) == want


@pytest.mark.parametrize(
    ("ops", "want"),
    [
        ("add maximum or", [False, True, True, True]),
        ("multiply minimum and", [False, False, False, True]),
        ("xor", [False, True, True, False]),
    ],
)
def test_pred(ops, want):
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    for op in ops.split():
        for result in all_reduce([a, b], ReduceOp(op)):
            assert result.dtype == np.bool_
            assert result.tolist() == want


@given(st.lists(st.floats(width=32), min_size=1, max_size=9), st.booleans())
def test_f32_is_a_loop_in_f32(values, product):
    with np.errstate(all="ignore"):
        want = np.float32(1 if product else 0)
        for value in values:
            want = np.float32(want * np.float32(value)) if product else np.float32(want + np.float32(value))
    got = one(values, ReduceOp.MULTIPLY if product else ReduceOp.ADD, np.float32)
    assert bits(got) == bits(want) or (np.isnan(got) and np.isnan(want))


def test_the_order_of_the_group_counts():
    values = [1e8, -1e8, 1.0]
    assert one(values, ReduceOp.ADD, np.float32) == 1
    assert one([1.0, 1e8, -1e8], ReduceOp.ADD, np.float32) == 0
    assert one([1.0, 1e8, -1e8], ReduceOp.ADD, np.float64) == 1


def test_there_is_no_contraction_and_no_extra_precision():
    f = np.float32
    big, tiny = f(1), f(2**-24)  # a tie in f32, which goes to even; two of them would not be lost in f64
    assert one([big, tiny, tiny], ReduceOp.ADD, np.float32) == big


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, BF16], ids=str)
def test_a_sum_starts_from_plus_zero(dtype):
    assert bits(one([-0.0, -0.0], ReduceOp.ADD, dtype)) == bits(np.array(0.0).astype(dtype))
    assert bits(one([-0.0], ReduceOp.ADD, dtype)) == bits(np.array(0.0).astype(dtype))
    assert bits(one([-0.0], ReduceOp.MULTIPLY, dtype)) == bits(np.array(-0.0).astype(dtype))


@pytest.mark.parametrize(
    ("dtype", "big", "small"),
    [(BF16, 256, 1), (np.float16, 2048, 1), (ml_dtypes.float8_e4m3fn, 16, 1), (ml_dtypes.float8_e5m2, 8, 1)],
    ids=str,
)
def test_narrow_floats_are_rounded_once(dtype, big, small):
    """``big + small`` is a tie that goes back to ``big``: rounding after each step would never leave it."""
    assert float(np.array(big + small).astype(dtype)) == big
    assert float(one([big, small, small], ReduceOp.ADD, dtype)) == big + 2 * small


@given(st.lists(st.floats(-1e3, 1e3, width=16), min_size=1, max_size=9), st.sampled_from([BF16, np.float16]))
def test_narrow_sums_are_f32_sums(values, dtype):
    members = np.array(values).astype(dtype)
    total = np.float32(0)
    for member in members:
        total = np.float32(total + np.float32(member))
    assert bits(one(values, ReduceOp.ADD, dtype)) == bits(np.array(total).astype(dtype))


@pytest.mark.parametrize("op", [ReduceOp.MAXIMUM, ReduceOp.MINIMUM])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, BF16, ml_dtypes.float8_e5m2], ids=str)
def test_extremes_keep_nan_and_the_first_zero(op, dtype):
    nan = float("nan")
    for values in ([nan, 1, 2], [1, nan, 2], [1, 2, nan], [nan], [nan, nan], [nan, -np.inf, np.inf]):
        assert np.isnan(np.float64(one(values, op, dtype)))
    for first in (0.0, -0.0):
        for values in ([first, -first], [first, -first, first]):
            assert bits(one(values, op, dtype)) == bits(np.array(first).astype(dtype))
    extreme = 3 if op is ReduceOp.MAXIMUM else -2
    assert float(one([1, 3, -2], op, dtype)) == extreme
    assert float(one([-np.inf, np.inf], op, dtype)) == (np.inf if op is ReduceOp.MAXIMUM else -np.inf)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex(dtype):
    assert one([1 + 2j, 3 - 5j], ReduceOp.ADD, dtype) == 4 - 3j
    assert one([1 + 2j, 3 - 5j], ReduceOp.MULTIPLY, dtype) == 13 + 1j
    assert one([1j, 1j, 1j], ReduceOp.MULTIPLY, dtype) == -1j


@given(st.lists(st.complex_numbers(max_magnitude=1e6, width=64), min_size=1, max_size=5))
def test_a_complex_product_rounds_each_operation(values):
    f = np.float32
    re, im = f(1), f(0)
    for value in values:
        c, d = f(value.real), f(value.imag)
        with np.errstate(all="ignore"):
            re, im = f(f(re * c) - f(im * d)), f(f(re * d) + f(im * c))
    got = one(values, ReduceOp.MULTIPLY, np.complex64)
    for a, b in ((got.real, re), (got.imag, im)):
        assert bits(a) == bits(b) or (np.isnan(a) and np.isnan(b))


@pytest.mark.parametrize("dtype", [t for t in ALL if t.numpy is not None], ids=str)
def test_every_type_reduces_as_it_should(dtype):
    """Or says that it does not; scalars and empty arrays too."""
    ones = np.ones((2, 3)).astype(dtype.numpy)
    for op in ReduceOp:
        for array in (ones, ones[0, 0:1].reshape(()), np.zeros((0, 2), dtype.numpy)):
            if not op.valid_for(dtype):
                with pytest.raises(ValueError, match=f"^{op} is not defined on {dtype}$"):
                    all_reduce([array] * 3, op)
                continue
            results = all_reduce([array] * 3, op)
            assert all(type(r) is np.ndarray and r.dtype == array.dtype and r.shape == array.shape for r in results)
            if op is not ReduceOp.ADD:  # of three equal members, all of them 0 or 1, everything else gives the member
                assert results[0].tobytes() == array.tobytes()


def test_overflow_is_silent():
    assert one([3e38, 3e38], ReduceOp.ADD, np.float32) == np.inf
    assert one([60000, 60000], ReduceOp.ADD, np.float16) == np.inf
    assert np.isnan(one([np.inf, -np.inf], ReduceOp.ADD, np.float32))
