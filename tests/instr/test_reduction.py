"""`group_reduce` is what a collective computes, bit for bit."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from crossrank.collective.semantics import all_reduce
from crossrank.instr.compute import evaluate
from crossrank.instr.kinds import AluOp

FLOATS = (np.float32, ml_dtypes.bfloat16, np.float64)
INTEGERS = (np.int32, np.uint8)
ORDERED = (AluOp.ADD, AluOp.MULT, AluOp.MAX, AluOp.MIN)
CASES = [
    *((dtype, op) for dtype in (*FLOATS, *INTEGERS) for op in ORDERED),
    *((dtype, AluOp.XOR) for dtype in INTEGERS),
    (np.complex64, AluOp.MULT),
]


def values(dtype: type, count: int = 4) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [(rng.standard_normal((3, 5)) * 100).astype(np.int8).astype(dtype) for _ in range(count)]


@pytest.mark.parametrize(("dtype", "op"), CASES)
def test_it_is_the_meaning_of_an_all_reduce(dtype: type, op: AluOp) -> None:
    given = values(dtype)
    (found,) = evaluate("group_reduce", given[:1], given, {"op": op.name.lower()})
    assert found.dtype == dtype
    assert found.tobytes() == all_reduce(given, op.reduce_op)[0].tobytes()


@pytest.mark.parametrize(
    ("dtype", "numbers", "mean"),
    [
        (ml_dtypes.bfloat16, [256.0, 1.0, 1.0, 2.0], 65.0),  # in bf16 the sum would be 258
        (np.float32, [1.0, 2.0], 1.5),
        (np.int32, [2**31 - 1, 2**31 - 1], 2**31 - 1),
        (np.int32, [-1, -2], -2),
        (np.uint8, [255, 255, 254], 254),
    ],
)
def test_an_average_is_rounded_once(dtype: type, numbers: list[float], mean: float) -> None:
    given = [np.full((2, 2), n, dtype) for n in numbers]
    (found,) = evaluate("group_reduce", given[:1], given, {"op": "average"})
    assert (found == np.asarray(mean, dtype)).all()


def test_what_cannot_be_reduced() -> None:
    (a, b), c = values(np.float32, 2), np.zeros((3, 5), np.int32)
    for srcs, op, complaint in (
        ([a, c], "add", "srcs must be one or more, with elements of f32"),
        ([a, b[:2]], "add", "not as many elements"),
        ([a, b], "xor", "xor is not defined on f32"),
        ([a, b], "subtract", "op may not be 'subtract'"),
    ):
        with pytest.raises(ValueError, match=f"group_reduce: .*{complaint}"):
            evaluate("group_reduce", [a], srcs, {"op": op})
