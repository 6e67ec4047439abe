"""A collective over arrays by the kernels: bit for bit its NumPy meaning, at every rank count, size and dimension."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from crossrank.collective.kinds import Kind, ReduceOp
from crossrank.collective.semantics import Collective, evaluate_group
from crossrank.runtime.collectives import run_collective

COUNTS = (1, 2, 3, 4, 8)
FORMS = {
    "all-reduce": Collective(Kind.ALL_REDUCE, reduce_op=ReduceOp.ADD),
    "all-reduce min": Collective(Kind.ALL_REDUCE, reduce_op=ReduceOp.MINIMUM),
    "reduce-scatter 0": Collective(Kind.REDUCE_SCATTER, reduce_op=ReduceOp.ADD, dim=0),
    "reduce-scatter 1": Collective(Kind.REDUCE_SCATTER, reduce_op=ReduceOp.MAXIMUM, dim=1),
    "all-gather 0": Collective(Kind.ALL_GATHER, dim=0),
    "all-gather 1": Collective(Kind.ALL_GATHER, dim=1),
    "all-to-all 0": Collective(Kind.ALL_TO_ALL, dim=0),
    "all-to-all 1 to 0": Collective(Kind.ALL_TO_ALL, dim=1, concat_dim=0),
    "all-to-all 0 to 1": Collective(Kind.ALL_TO_ALL, dim=0, concat_dim=1),
    "broadcast": Collective(Kind.COLLECTIVE_BROADCAST),
}


def drawn(shape: tuple[int, ...], dtype: Any, seed: int) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(seed)
    return (random.standard_normal(shape) * 10).astype(dtype)


def same(mine: list[list[Any]], theirs: list[list[Any]]) -> bool:
    pairs = [(a, b) for m, t in zip(mine, theirs, strict=True) for a, b in zip(m, t, strict=True)]
    return all(a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in pairs)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int16], ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("form", FORMS)
def test_equals_the_meaning(form: str, count: int, dtype: Any) -> None:
    operands = [[drawn((24, 48), dtype, 2 * n), drawn((48, 24, 3), dtype, 2 * n + 1)[:, :, ::-1]] for n in range(count)]
    assert same(run_collective(FORMS[form], operands), evaluate_group(FORMS[form], operands))


@pytest.mark.parametrize("form", FORMS)
def test_something_large_is_cut_into_blocks(form: str) -> None:
    operands = [[drawn((512, 1024), np.float32, n)] for n in range(4)]
    assert same(run_collective(FORMS[form], operands), evaluate_group(FORMS[form], operands))


@pytest.mark.parametrize("pairs", [(), ((0, 1),), ((0, 1), (1, 2), (2, 0)), ((3, 0), (0, 3))])
def test_permutes(pairs: tuple[tuple[int, int], ...]) -> None:
    operands = [[drawn((5, 7), np.float16, n), drawn((3,), np.int64, n)] for n in range(4)]
    permute = Collective(Kind.COLLECTIVE_PERMUTE, pairs=pairs)
    assert same(run_collective(permute, operands), evaluate_group(permute, operands))


def test_ragged() -> None:
    sizes = np.array([[1, 2, 0], [0, 3, 1], [2, 0, 4]])
    operands = []
    for n in range(3):
        starts, places = np.cumsum(sizes[n]) - sizes[n], np.cumsum(sizes, axis=0)[n] - sizes[n]
        tables = [t.astype(np.int64) for t in (starts, sizes[n], places, sizes[:, n])]
        operands.append([drawn((9, 2), np.float32, n), drawn((9, 2), np.float32, n + 5), *tables])
    ragged = Collective(Kind.RAGGED_ALL_TO_ALL)
    assert same(run_collective(ragged, operands), evaluate_group(ragged, operands))


@pytest.mark.parametrize(
    "operands",
    [
        [[np.zeros((0, 4), np.float32)]] * 2,  # no element
        [[np.zeros(4, ml_dtypes.float8_e5m2)]] * 2,  # no kernel
        [[np.zeros(4, np.float32), np.ones(4, ml_dtypes.float8_e5m2)]] * 2,  # none for the second
        [[np.ones(4, np.float32), np.zeros(0, np.float32)]] * 2,
        [[np.zeros((4, 4), np.complex64)[:, 0]]] * 2,  # far apart
    ],
)
def test_what_kernels_do_not_serve_has_its_meaning(operands: list[list[Any]]) -> None:
    form = FORMS["all-reduce"]
    assert same(run_collective(form, operands), evaluate_group(form, operands))


def test_operands_stay_and_do_not_fit() -> None:
    given = [[np.arange(4.0)], [np.ones(4)]]
    run_collective(FORMS["all-reduce"], given)
    np.testing.assert_array_equal(given[0][0], np.arange(4.0))
    with pytest.raises(ValueError, match="member 1 has f32"):
        run_collective(FORMS["all-reduce"], [[np.ones(4)], [np.ones(4, np.float32)]])
    with pytest.raises(ValueError, match="cannot be split among 3"):
        run_collective(FORMS["reduce-scatter 0"], [[np.ones((4, 3))]] * 3)


def test_subnormals_are_kept_or_taken_for_zero() -> None:
    form = FORMS["all-reduce"]
    tiny = np.full(5, 1e-40, np.float32)
    assert run_collective(form, [[tiny], [tiny]])[0][0].tobytes() == (tiny + tiny).tobytes()
    assert not run_collective(form, [[tiny], [tiny]], flush_subnormals=True)[0][0].any()
