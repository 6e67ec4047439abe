"""Tensors, loops, the launch grid and operators."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from crossrank import nki
from crossrank.errors import InputError, RunError
from crossrank.nki import collectives as ncc
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
    (lambda x, y, c: nl.abs_max(x, y), np.where(abs(X) > abs(Y), X, Y)),
    (lambda x, y, c: nl.floor(x), np.floor(X)),
    (lambda x, y, c: nl.mod(x, 0.75), np.mod(X, np.float32(0.75))),
    (lambda x, y, c: nl.fmod(x, 0.75), np.fmod(X, np.float32(0.75))),
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


def number(view):
    register = nisa.register_alloc()
    nisa.register_load(register, nl.load(view))
    return register


def counted(x, start, stop):
    """What is added up in a loop of registers, and in one within it."""
    total, lower, upper = nl.zeros((1, 6), nl.float32), number(start), number(stop)

    def body(turn):
        nisa.tensor_tensor(total, total, nl.load(x[nl.ds(turn, 1)]), nl.add)
        for _ in nl.dynamic_range(lower):
            nisa.tensor_scalar(total, total, nl.add, 100.0)

    nl.fori_loop(lower, upper, body, step=2)
    return kept(total)


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (0, 8), (1, 2), (2, 7), (5, 3)])
def test_registers_bound_a_loop_that_is_traced_once(start, stop):
    found = nki.simulate(counted)(X, *(np.int32([[n]]) for n in (start, stop)))
    turns = range(start, stop, 2)
    np.testing.assert_allclose(found[0], X[list(turns)].sum(axis=0) + 100 * start * len(turns), atol=1e-5)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_loop_as_long_as_a_register_is_not_zero(count):
    def kernel(x, count):
        left, tile = nl.load(count), nl.load(x)

        def body(register):
            nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)
            nisa.tensor_scalar(left, left, nl.subtract, 1)
            nisa.register_load(register, left)
            return register

        nl.while_loop(number(count), body)
        return kept(tile)

    np.testing.assert_array_equal(nki.simulate(kernel)(X, np.int32([[count]])), X * 2**count)


@pytest.mark.parametrize("lnc", [1, 2])
def test_ranks_and_cores_meet_in_each_turn(lnc):
    def kernel(x, count, ranks):
        old = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name="old")
        new = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name="new")
        group, cores = ncc.ReplicaGroup([list(range(ranks))]), list(range(nl.num_programs()))
        nisa.dma_copy(old, x)

        def body(_):
            nisa.core_barrier(old, cores)
            ncc.all_reduce([old], [new], group, nl.add)
            nisa.core_barrier(new, cores)
            if nl.program_id() == 0:
                nisa.dma_copy(old, new)

        nl.fori_loop(0, number(count), body)
        return old

    inputs = [(X + rank, np.int32([[3]]), 2) for rank in range(2)]
    for found in nki.simulate(kernel, ranks=2, grid=lnc)(inputs):
        np.testing.assert_allclose(found, 4 * (2 * X + 1), rtol=1e-5)


def outer_register(x, count):
    outer = nisa.register_alloc(1)
    nl.fori_loop(0, number(count), lambda turn: nisa.register_move(outer, turn))


def broken_off(x, count):
    for _ in nl.dynamic_range(number(count)):
        break


def product_from_before(x, count):
    tile, product = nl.load(x), nl.ndarray((6, 6), nl.float32, buffer=nl.psum)
    nl.fori_loop(0, number(count), lambda _: nisa.nc_matmul(product, tile, tile))


WRONG_LOOPS = [
    (lambda x, count: nl.affine_range(number(count)), "a register bounds a loop that is unrolled"),
    (lambda x, count: nl.fori_loop(0, number(count), print, step=0), "the step of a loop is a positive number, not 0"),
    (lambda x, count: nl.while_loop(number(count), lambda r: None), "the body of a while_loop returns a register"),
    (outer_register, "a register made before a loop is written in it"),
    (product_from_before, "whether psum-0 was written before depends on the turn"),
    (broken_off, "a loop that runs on the device was left before its end"),
]


@pytest.mark.parametrize(("kernel", "text"), WRONG_LOOPS)
def test_loops_of_registers_refuse(kernel, text):
    with pytest.raises(InputError, match=text):
        nki.simulate(kernel)(X, np.int32([[2]]))


def test_a_loop_without_end():
    with pytest.raises(RunError, match="a loop without end"):
        nki.simulate(lambda x: nl.while_loop(nisa.register_alloc(1), lambda register: register), limit=0.5)(X)


SHIFTED = np.exp(X - X.max(axis=1, keepdims=True))
CUBE = X.reshape(8, 2, 3)
TILES = {
    "sum": (lambda x, y, c: nl.sum(x, axis=1), X.sum(axis=1)),
    "sum of two axes": (
        lambda x, y, c: nl.sum(x.reshape((8, 2, 3)), [1, 2], keepdims=True),
        X.sum(axis=1)[:, None, None],
    ),
    "prod": (lambda x, y, c: nl.prod(x, [1]), X.prod(axis=1)),
    "max": (lambda x, y, c: nl.max(x, 1, keepdims=True), X.max(axis=1, keepdims=True)),
    "min": (lambda x, y, c: nl.min(x, axis=-1, dtype=nl.float16), X.min(axis=1).astype(np.float16)),
    "all": (lambda x, y, c: nl.all(c, 1), (COLUMN[:, 0] != 0).astype(np.float32)),
    "mean": (lambda x, y, c: nl.mean(x.reshape((8, 2, 3)), 2), CUBE.mean(axis=2)),
    "var": (lambda x, y, c: nl.var(x, 1), X.var(axis=1, keepdims=True)),
    "softmax": (lambda x, y, c: nl.softmax(x), SHIFTED / SHIFTED.sum(axis=1, keepdims=True)),
    "rms_norm": (
        lambda x, y, c: nl.rms_norm(x, y, axis=1, n=6, epsilon=0.5),
        X / np.sqrt((X * X).mean(axis=1, keepdims=True) + 0.5) * Y,
    ),
    "where": (lambda x, y, c: nl.where(nl.greater(x, y), x, c), np.where(X > Y, X, COLUMN)),
    "where a number": (lambda x, y, c: nl.where(c, 2.0, x), np.where(COLUMN > 0, 2, X)),
    "expand_dims": (lambda x, y, c: nl.expand_dims(x, -1), X[:, :, None]),
    "broadcast_to": (lambda x, y, c: nl.broadcast_to(c, (8, 3)), np.broadcast_to(COLUMN, (8, 3))),
    "transpose": (lambda x, y, c: nl.transpose(x, dtype=nl.float16), X.T.astype(np.float16)),
    "matmul": (lambda x, y, c: nl.matmul(x, y[:6]), X @ Y[:6]),
    "matmul of a transposed one": (lambda x, y, c: nl.matmul(x, y, transpose_x=True), X.T @ Y),
    "gather_flattened": (
        lambda x, y, c: nl.gather_flattened(x, nl.load(nl.shared_constant([[5, 0]] * 8, nl.uint32))),
        X[:, [5, 0]],
    ),
}


@pytest.mark.parametrize(("body", "wanted"), TILES.values(), ids=TILES)
def test_functions_of_tiles(body, wanted):
    found = values(body, X, Y, COLUMN)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-2 if found.dtype == np.float16 else 1e-4, atol=1e-5)


def test_load_transposed():
    found = nki.simulate(lambda x: kept(nl.load_transpose2d(x, dtype=nl.bfloat16)))(X)
    np.testing.assert_array_equal(found, X.T.astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize(("arch", "most"), [(20, 192), (30, 224), (40, 256)])
def test_sbuf_is_as_large_as_the_architecture_has_it(arch, most):
    def kernel(x, size):
        assert nl.tile_size.sbuf_fmax_bytes == (most - 16) * 1024 == 4 * nl.tile_size.sbuf_fmax
        nl.ndarray((128, size), nl.uint8)

    nki.simulate(kernel, arch=arch)(X, most * 1024)
    with pytest.raises(nisa.NkiValidationError, match=f"bytes a partition exceed the {most * 1024} that sbuf has"):
        nki.simulate(kernel, arch=arch)(X, most * 1024 + 1)


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
