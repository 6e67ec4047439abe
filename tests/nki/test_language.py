"""Tensors, loops, the launch grid and operators."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from crossrank import nki
from crossrank.errors import InputError
from crossrank.nki import isa as nisa
from crossrank.nki import language as nl

X = np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)
Y = np.random.default_rng(1).standard_normal((8, 6)).astype(np.float32)
COLUMN = np.arange(8, dtype=np.float32).reshape(8, 1)


def kept(view):
    result = nl.ndarray(view.shape, view.dtype, buffer=nl.shared_hbm)
    nl.store(result, view)
    return result


def values(body, *arrays, **options):
    def kernel(*args):
        found = body(*(nl.load(a) for a in args))
        return [kept(v) for v in found] if isinstance(found, list) else kept(found)

    return nki.simulate(kernel, **options)(*arrays)


def test_new_tensors():
    def body():
        first = nl.full((4, 2), 7, nl.int32)
        return [
            nl.zeros((4, 2), nl.bfloat16),
            nl.ones((4, 2), np.float32, buffer=nl.psum),
            first,
            nl.zeros_like(first),
            nl.full((2, 2, 2), 2.5, "float32", buffer=nl.hbm),
            nl.shared_identity_matrix(3, nl.float32),
            nl.load(nl.shared_constant(np.arange(6).reshape(2, 3), nl.bfloat16)),
            nl.load(nl.shared_constant([[0.5]])),
            nl.ndarray((1, 2), nl.float32),
            nl.load(first, nl.float16),
        ]

    found = values(body)
    wanted = [
        np.zeros((4, 2), ml_dtypes.bfloat16),
        np.ones((4, 2), np.float32),
        np.full((4, 2), 7, np.int32),
        np.zeros((4, 2), np.int32),
        np.full((2, 2, 2), 2.5, np.float32),
        np.eye(3, dtype=np.float32),
        np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16),
        np.float64([[0.5]]),
        np.full((1, 2), np.nan, np.float32),
        np.full((4, 2), 7, np.float16),
    ]
    for own, array in zip(found, wanted, strict=True):
        assert own.dtype == array.dtype
        np.testing.assert_array_equal(own, array)


def test_what_a_tensor_says_of_itself():
    def kernel(x):
        tile = nl.ndarray(x.shape, x.dtype, name="tile")
        assert (tile.shape, tile.ndim, tile.dtype, tile.buffer) == ((8, 6), 2, nl.float32, nl.sbuf)
        assert tile.dtype in [nl.bfloat16, nl.float32]
        assert (tile.name, tile.strides, tile.offset) == ("tile", (6, 1), 0)
        assert nl.empty_like(tile, dtype=nl.int8, buffer=nl.hbm).buffer is nl.private_hbm
        spaces = [nl.sbuf, nl.psum, nl.shared_hbm, nl.hbm]
        assert [nl.is_sbuf(s) for s in spaces] == [True, False, False, False]
        assert [nl.is_psum(s) for s in spaces] == [False, True, False, False]
        assert [nl.is_on_chip(s) for s in spaces] == [True, True, False, False]
        assert [nl.is_hbm(s) for s in spaces] == [False, False, True, True]

    nki.simulate(kernel)(X)


OPERATORS = [
    (lambda x, y, c: nl.add(x, y), X + Y),
    (lambda x, y, c: nl.subtract(x, 2.0), X - 2),
    (lambda x, y, c: nl.subtract(2.0, x), 2 - X),
    (lambda x, y, c: nl.multiply(x, c), X * COLUMN),
    (lambda x, y, c: nl.subtract(c, x), COLUMN - X),
    (lambda x, y, c: nl.max(x, y), np.maximum(X, Y)),
    (lambda x, y, c: nl.exp(x), np.exp(X)),
    (lambda x, y, c: nl.logical_not(nl.greater(x, 0.0)), (X <= 0).astype(np.float32)),
    (lambda x, y, c: nl.square(x, dtype=nl.float16), (X * X).astype(np.float16)),
]


@pytest.mark.parametrize(("body", "wanted"), OPERATORS)
def test_operators_make_tiles(body, wanted):
    found = values(body, X, Y, COLUMN)
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=2e-3 if found.dtype == np.float16 else 1e-5, atol=1e-6)


def test_operators_name_themselves():
    assert (nl.add.name, nl.add.__name__, str(nl.add), repr(nl.add)) == ("add", "add", "add", "nki.language.add")
    assert len({nl.add, nl.max, nl.maximum}) == 3
    with pytest.raises(InputError, match=r"nl\.exp takes one tile"):
        nl.exp(1.0)
    with pytest.raises(InputError, match=r"nl\.add takes two operands, and at least one of them is a tile"):
        nl.add(1.0, 2.0)


def test_loops():
    assert list(nl.affine_range(3)) == [0, 1, 2]
    assert list(nl.sequential_range(1, 4)) == [1, 2, 3]
    assert list(nl.static_range(1, 8, 3)) == [1, 4, 7]

    def kernel(x):
        result = nl.zeros((8, 6), x.dtype, buffer=nl.shared_hbm)
        with nl.no_reorder():
            for turn in nl.dynamic_range(2):
                nisa.dma_copy(result[turn], x[turn])
            nl.fori_loop(4, 8, lambda turn: nisa.dma_copy(result[nl.ds(turn, 1)], x[nl.ds(turn, 1)]), step=3)
        nl.device_print("x", x)
        return result

    wanted = np.zeros_like(X)
    wanted[[0, 1, 4, 7]] = X[[0, 1, 4, 7]]
    np.testing.assert_array_equal(nki.simulate(kernel)(X), wanted)


def test_a_register_bounds_no_loop():
    def kernel():
        list(nl.affine_range(nisa.register_alloc(3)))

    with pytest.raises(InputError, match=r"^test_language.py:\d+: a register bounds a loop"):
        nki.simulate(kernel)()


@pytest.mark.parametrize(
    ("grid", "seen"),
    [
        (None, [(0, 0, 1, 1)]),
        (2, [(1, 0, 2, 2), (1, 1, 2, 2)]),
        ((2, 3), [(2, i, 2, 6) for i in (0, 0, 0, 1, 1, 1)]),
    ],
)
def test_grid(grid, seen):
    found = []

    def kernel():
        found.append((nl.program_ndim(), nl.program_id(), nl.num_programs(axes=0), nl.num_programs(axes=None)))
        if nl.program_ndim() == 2:
            assert nl.num_programs(axes=(0, 1)) == 6
            assert nl.num_programs(1) == 3

    nki.simulate(kernel, grid=grid)()
    assert found == seen


def test_no_such_axis():
    with pytest.raises(InputError, match="the launch grid has 1 axes, and so no axis 1"):
        nki.simulate(lambda: nl.num_programs(1), grid=2)()
    with pytest.raises(InputError, match="the launch grid has 1 axes, and so no axis 1"):
        nki.simulate(lambda: nl.program_id(1), grid=2)()


class TestAllReduceOverPrograms:
    """``nl.all_reduce`` over axes of the launch grid."""

    def kernel(self, axes, op=nl.add, **options):
        def body(x):
            row, column = nl.program_id(0), nl.program_id(1)
            tile = nl.load(x[row, column])
            total = nl.all_reduce(tile, op, program_axes=axes(), **options)
            result = nl.ndarray(x.shape, total.dtype, buffer=nl.shared_hbm, name="result")
            nisa.dma_copy(result[row, column], total)
            return result

        return nki.simulate(body, grid=(2, 2))

    x = np.arange(32, dtype=np.float32).reshape(2, 2, 4, 2)

    def test_values(self):
        found = self.kernel(lambda: nl.program_id(0))(self.x)
        np.testing.assert_array_equal(found, np.broadcast_to(self.x.sum(0), self.x.shape))
        found = self.kernel(lambda: (nl.program_id(0), nl.program_id(1)), nl.maximum, dtype=nl.float16)(self.x)
        np.testing.assert_array_equal(found, np.broadcast_to(self.x.max((0, 1)).astype(np.float16), self.x.shape))

    def test_refused(self):
        text = "program_axes of all_reduce must be program_id! Consider use loop_reduce or reduce instead."
        with pytest.raises(InputError, match=text):
            self.kernel(lambda: 0)(self.x)
        with pytest.raises(InputError, match="takes no mask"):
            self.kernel(lambda: nl.program_id(0), mask=True)(self.x)


def test_settings_are_equal_by_their_attributes():
    class Config(nl.NKIObject):
        rows: int

    assert Config(rows=3) == Config(rows=3) != Config(rows=4)
    assert Config(rows=3).rows == 3


def test_packs_have_names_and_no_tensors():
    assert len({nl.float8_e4m3fn_x4, nl.float8_e5m2_x4, nl.float4_e2m1fn_x4}) == 3
    with pytest.raises(InputError, match="is no element type"):
        nki.simulate(lambda: nl.ndarray((2, 2), nl.float8_e5m2_x4))()


def test_outside_of_a_kernel():
    with pytest.raises(InputError, match=r"no kernel is being traced\ncall this from a kernel, .* by nki.simulate"):
        nl.ndarray((2, 2), nl.float32)
