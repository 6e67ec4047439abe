"""What counts as the same, and what is said of what is not."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from crossrank.collective.dtypes import ALL, dtype
from crossrank.compare import Tolerance, compare_output

BF16, F8 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
FLOATS = [t for t in ALL if t.is_float and t.numpy is not None and t.bits >= 8]


def compare(a, b, tolerance: float | None = None, kind=np.float32):
    """One output on one rank."""
    within = None if tolerance is None else Tolerance(tolerance)
    return compare_output(0, [np.asarray(a).astype(kind)], [np.asarray(b).astype(kind)], within)


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16, BF16, np.int32, np.bool_, np.complex64, F8])
def test_the_same(kind) -> None:
    result, first = compare([1, 0, 1], [1, 0, 1], kind=kind)
    assert result.exact
    assert result.equal
    assert result.finite
    assert not result.all_nan
    assert (result.max_abs_err, result.max_rel_err, first) == (0, 0, None)


@pytest.mark.parametrize(
    "t", [t for t in FLOATS if np.isnan(np.asarray(np.nan).astype(t.numpy).astype(np.float64))], ids=str
)
def test_nan_equals_nan_of_any_sign(t) -> None:
    nans = np.array([np.nan, 1.0]).astype(t.numpy)
    other = nans.copy()
    bits = other.view(f"u{t.itemsize}")
    if t.is_signed and not t.name.endswith("fnuz"):
        bits[0] ^= 1 << (t.bits - 1)
    result, first = compare_output(3, [nans], [other], None)
    assert result.exact
    assert first is None
    assert not result.finite
    assert not result.all_nan


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.float64, BF16])
def test_zeros_of_two_signs_are_not_the_same(kind) -> None:
    result, first = compare([0.0, 1.0], [-0.0, 1.0], kind=kind)
    assert not result.exact
    assert not result.equal
    assert result.max_ulp == 0
    assert first is not None
    assert first.element == (0,)
    assert (first.expected[:1], first.actual[:2]) == ("0", "-0")
    assert compare([0.0, 1.0], [-0.0, 1.0], 1e-5, kind)[0].equal


@pytest.mark.parametrize(
    ("kind", "steps"), [(np.float32, 1), (np.float32, 7), (np.float64, 3), (np.float16, 2), (BF16, 1)]
)
def test_ulp(kind, steps: int) -> None:
    a = np.array([1.0, -1.0]).astype(kind)
    b = a.copy()
    b.view(f"u{a.dtype.itemsize}")[:] += steps
    result, _ = compare_output(0, [a], [b], None)
    assert result.max_ulp == steps
    assert not result.equal


def test_ulp_across_zero() -> None:
    tiny = np.float32(1e-45)
    assert compare([tiny], [-tiny])[0].max_ulp == 2


@pytest.mark.parametrize("kind", [np.int32, np.bool_, np.complex64])
def test_types_without_ulp(kind) -> None:
    assert compare([1], [0], kind=kind)[0].max_ulp is None


@pytest.mark.parametrize(
    ("a", "b", "tolerance", "equal"),
    [
        ([100.0, 1.0], [100.0, 1.0005], 1e-5, True),  # relative to the largest
        ([100.0, 1.0], [100.0, 1.0020], 1e-5, False),
        ([100.0, np.inf], [100.0005, np.inf], 1e-5, True),
        ([100.0, np.inf], [100.0, -np.inf], 1.0, False),
        ([100.0, np.nan], [100.0, 1.0], 1.0, False),
        ([100.0, 1.0], [100.0, np.nan], 1.0, False),
        ([0.0], [1e-30], 1e-5, False),
        ([1.0], [1.0 + 1e-6], 0.0, False),
    ],
)
def test_tolerance(a, b, tolerance: float, equal: bool) -> None:
    result, first = compare(a, b, tolerance)
    assert result.equal is equal
    assert not result.exact
    assert first is not None


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [("f64", 1e-12), ("f32", 1e-5), ("bf16", 2e-2), ("f16", 2e-2), ("s32", 0.0), ("pred", 0.0), ("c64", 1e-5)],
)
def test_tolerance_of_a_type(name: str, tolerance: float) -> None:
    assert Tolerance().of(dtype(name)) == tolerance
    assert Tolerance(0.5).of(dtype(name)) == (0.5 if tolerance else 0.0)


def test_the_narrowest_type_that_was_touched_decides() -> None:
    assert Tolerance(changed=("f64", "s32")).of(dtype("f32")) == 1e-5
    assert Tolerance(changed=("bf16",)).of(dtype("f32")) == 2e-2
    assert Tolerance(changed=("bf16",)).of(dtype("s32")) == 0.0


@pytest.mark.parametrize("kind", [np.float32, BF16, F8, np.complex64])
def test_all_nan(kind) -> None:
    result, _ = compare([np.nan, np.nan], [np.nan, np.nan], kind=kind)
    assert result.all_nan
    assert not compare([np.nan, 1], [np.nan, 1], kind=kind)[0].all_nan
    assert not compare_output(0, [np.full(2, np.nan), np.ones(2)], [np.full(2, np.nan), np.ones(2)], None)[0].all_nan


def test_complex_numbers_part_by_part() -> None:
    a = np.array([complex(np.nan, 1), complex(1, 2)], np.complex64)
    b = np.array([complex(np.nan, 2), complex(1, 2)], np.complex64)
    assert compare_output(0, [a], [a.copy()], None)[0].exact
    result, first = compare_output(0, [a], [b], None)
    assert not result.equal
    assert first is not None
    assert first.element == (0,)
    assert compare_output(0, [np.array([3 + 4j])], [np.array([3 + 4j + 1e-13])], Tolerance())[0].equal


@pytest.mark.parametrize("kind", [np.float32, BF16, np.int32, np.complex64])
def test_nothing_is_equal_to_nothing(kind) -> None:
    result, first = compare_output(0, [np.zeros((0, 3), kind)], [np.zeros((0, 3), kind)], None)
    assert result.exact
    assert result.finite
    assert not result.all_nan
    assert result.shape == (0, 3)
    assert first is None


def test_integers_and_predicates_are_compared_by_their_bits() -> None:
    result, first = compare([5, 7], [5, 9], 1e9, np.int32)
    assert not result.equal
    assert result.max_abs_err == 2
    assert first is not None
    assert str(first) == "output 0, rank 0, element [1]: 9 instead of 7"
    assert not compare([True], [False], 1.0, np.bool_)[0].equal


def test_the_first_difference_names_rank_and_element() -> None:
    a = [np.zeros((2, 3), np.float32) for _ in range(3)]
    b = [x.copy() for x in a]
    b[1][1, 2] = 1
    b[2][0, 0] = 5
    result, first = compare_output(4, a, b, None)
    assert first is not None
    assert (first.output, first.rank, first.element) == (4, 1, (1, 2))
    assert (result.index, result.max_abs_err) == (4, 5.0)
    assert first.as_dict()["rank"] == 1
    assert set(result.as_dict()) >= {"index", "shape", "dtype", "max_abs_err", "max_ulp", "equal", "finite"}


def test_scalars() -> None:
    result, first = compare(1.0, 2.0)
    assert (result.shape, result.max_abs_err) == ((), 1.0)
    assert first is not None
    assert first.element == ()


@pytest.mark.parametrize("other", [np.zeros(3, np.float32), np.zeros(2, np.float64)], ids=["shape", "type"])
def test_another_shape_or_type_is_no_match(other) -> None:
    result, first = compare_output(0, [np.zeros(2, np.float32)], [other], Tolerance(1.0))
    assert not result.equal
    assert first is not None
    assert first.expected == "float32[2]"
