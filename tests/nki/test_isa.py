"""Instructions through their public names: what they compute, and the limits that refuse them."""

from __future__ import annotations

import numpy as np
import pytest

from crossrank import nki
from crossrank.errors import InputError, RunError
from crossrank.nki import collectives as ncc
from crossrank.nki import isa as nisa
from crossrank.nki import language as nl

X = np.random.default_rng(0).standard_normal((32, 16)).astype(np.float32)
Y = np.random.default_rng(1).standard_normal((32, 16)).astype(np.float32)
COLUMN = np.arange(32, dtype=np.float32).reshape(32, 1)


def tile(*shape, dtype=nl.float32, space=nl.sbuf):
    return nl.ndarray(shape or X.shape, dtype, buffer=space)


def kept(view):
    """A result of the kernel with what a tile holds."""
    result = nl.ndarray(view.shape, view.dtype, buffer=nl.shared_hbm)
    nl.store(result, view)
    return result


def values(body, *arrays):
    """What a kernel returns that is ``body`` of tiles with these arrays."""

    def kernel(*args):
        return kept(body(*(nl.load(a) for a in args)))

    return nki.simulate(kernel)(*arrays)


def written(insert, *shape, dtype=nl.float32, space=nl.sbuf):
    """A new tile that ``insert`` writes."""
    dst = tile(*shape, dtype=dtype, space=space)
    insert(dst)
    return dst


HEAD = np.arange(16, dtype=np.float32)[None, :]
COMPUTED = {
    "tensor_scalar_cumulative": (
        lambda d, x, y, c: nisa.tensor_scalar_cumulative(d, x, nl.multiply, nl.add, 2.0),
        np.cumsum(2 * X, axis=1),
    ),
    "cumulative from a tile": (
        lambda d, x, y, c: nisa.tensor_scalar_cumulative(
            d, x, nl.add, nl.subtract, c, imm1=c, reduce_cmd=nisa.reduce_cmd.load_reduce
        ),
        np.stack(
            [(X + COLUMN)[:, i::-1] @ (-1.0) ** np.arange(i + 1) + (-1) ** (i + 1) * COLUMN[:, 0] for i in range(16)], 1
        ),
    ),
    "tensor_copy": (lambda d, x, y, c: nisa.tensor_copy(d, x), X),
    "memset": (lambda d, x, y, c: nisa.memset(d, 2.5), np.full_like(X, 2.5)),
    "tensor_tensor": (lambda d, x, y, c: nisa.tensor_tensor(d, x, y, nl.multiply), X * Y),
    "by a NumPy function": (lambda d, x, y, c: nisa.tensor_tensor(d, x, y, np.maximum), np.maximum(X, Y)),
    "tensor_scalar": (
        lambda d, x, y, c: nisa.tensor_scalar(d, x, nl.multiply, 2, False, nl.add, c),
        X * 2 + COLUMN,
    ),
    "reversed": (lambda d, x, y, c: nisa.tensor_scalar(d, x, nl.subtract, 1.0, True), 1 - X),
    "scalar_tensor_tensor": (
        lambda d, x, y, c: nisa.scalar_tensor_tensor(d, x, nl.add, c, nl.multiply, y),
        (X + COLUMN) * Y,
    ),
    "tensor_tensor_scan": (
        lambda d, x, y, c: nisa.tensor_tensor_scan(d, x, y, 0.0, nl.bypass, nl.add),
        X + Y,
    ),
    "tensor_reduce": (lambda d, x, y, c: nisa.tensor_reduce(d, nl.maximum, x, axis=1), X.max(1, keepdims=True)),
    "tensor_partition_reduce": (
        lambda d, x, y, c: nisa.tensor_partition_reduce(d, nl.maximum, x),
        X.max(0, keepdims=True),
    ),
    "activation": (lambda d, x, y, c: nisa.activation(d, nl.square, x, bias=c, scale=2.0), (X * 2 + COLUMN) ** 2),
    "reciprocal": (lambda d, x, y, c: nisa.reciprocal(d, x), 1 / X),
    "iota": (lambda d, x, y, c: nisa.iota(d, [[2, 16]], 5, 100), 5 + 100 * COLUMN + 2 * HEAD),
    "affine_select": (
        lambda d, x, y, c: nisa.affine_select(d, [[1, 16]], -1, x, -1.0, nl.greater_equal),
        np.where(HEAD >= COLUMN, X, -1),
    ),
    "max8": (lambda d, x, y, c: nisa.max8(d, x), np.sort(X, axis=1)[:, :-9:-1]),
    "select_reduce": (lambda d, x, y, c: nisa.select_reduce(d, x, y, 3.0), Y),
    "range_select": (
        lambda d, x, y, c: nisa.range_select(d, x, nl.less_equal, nl.less, c, c, on_false_value=9.0),
        np.where(HEAD < COLUMN, X, 9),
    ),
    "nc_stream_shuffle": (lambda d, x, y, c: nisa.nc_stream_shuffle(d, x, list(range(31, -1, -1))), X[::-1]),
    "nc_transpose": (lambda d, x, y, c: nisa.nc_transpose(d, x), X.T),
    "by the vector engine": (lambda d, x, y, c: nisa.nc_transpose(d, x, nisa.engine.vector), X.T),
    "dma_transpose": (lambda d, x, y, c: nisa.dma_transpose(d, x), X.T),
    "dma_copy": (lambda d, x, y, c: nisa.dma_copy(d, x.ap([[16, 32], [1, 16]])), X.astype(np.float16)),
    "dma_compute": (lambda d, x, y, c: nisa.dma_compute(d, [x, y], nl.add, [1.0, 2.0]), X + 2 * Y),
    "of older kernels": (lambda d, x, y, c: nisa.dma_compute(d, [x, y], [1.0, 2.0], nl.add), X + 2 * Y),
    "nc_matmul": (lambda d, x, y, c: nisa.nc_matmul(d, x, y), X.T @ Y),
    "bn_aggr": (
        lambda d, x, y, c: nisa.bn_aggr(d, written(lambda s: nisa.bn_stats(s, x), 32, 6)),
        np.stack([X.mean(1), X.var(1)], 1),
    ),
}
IN_PSUM = ("nc_transpose", "nc_matmul")


@pytest.mark.parametrize("case", COMPUTED)
def test_computed(case):
    insert, wanted = COMPUTED[case]

    def body(*tiles):
        space = nl.psum if case in IN_PSUM else nl.sbuf
        return written(lambda d: insert(d, *tiles), *wanted.shape, dtype=wanted.dtype, space=space)

    np.testing.assert_allclose(values(body, X, Y, COLUMN), wanted, rtol=2e-5, atol=2e-5)


def test_reductions_beside_the_result():
    def kernel(x, y):
        x, y, c = nl.load(x), nl.load(y), nl.full((32, 1), 3.0, nl.float32)
        sums = [tile(32, 1) for _ in range(3)]
        nisa.activation_reduce(tile(), nl.copy, x, nl.add, sums[0])
        nisa.tensor_scalar_reduce(tile(), x, nl.add, c, nl.add, sums[1])
        nisa.activation(tile(), nl.copy, y, 0.0, 1.0, nl.maximum, sums[2], nisa.reduce_cmd.reset_reduce)
        return [kept(s) for s in sums]

    found = nki.simulate(kernel)(X, Y)
    for own, wanted in zip(found, (X.sum(1), (X + 3).sum(1), Y.max(1)), strict=True):
        np.testing.assert_allclose(own[:, 0], wanted, rtol=1e-4, atol=1e-5)


def test_search_and_gather():
    data = np.tile(np.arange(16, dtype=np.float32) % 4, (32, 1))
    sought = np.tile(np.float32([3, 3, 0, 7, 1, 1, 1, 1]), (32, 1))

    def kernel(data, sought, indices):
        data, sought, indices = nl.load(data), nl.load(sought), nl.load(indices)
        found = written(lambda d: nisa.nc_find_index8(d, data, sought), 32, 8, dtype=nl.uint32)
        replaced = written(lambda d: nisa.nc_match_replace8(d, data, sought, imm=-1.0))
        gathered = written(lambda d: nisa.nc_n_gather(d, data, indices), 32, 2)
        predicated = nl.zeros((32, 16), nl.float32)
        nisa.tensor_copy_predicated(predicated, 5.0, data, reverse_pred=True)
        return [kept(t) for t in (found, replaced, gathered, predicated)]

    indices = np.tile(np.uint32([5, 2]), (32, 1))
    found, replaced, gathered, predicated = nki.simulate(kernel)(data, sought, indices)
    assert found[0].tolist() == [3, 7, 0, 2**32 - 1, 1, 5, 9, 13]
    assert replaced[0].tolist() == [-1, -1, 2, -1, 0, -1, 2, -1, 0, -1, 2, 3, 0, -1, 2, 3]
    assert gathered[3].tolist() == [1, 2]
    np.testing.assert_array_equal(predicated, np.where(data == 0, 5.0, 0.0))


class TestAccumulation:
    """The first write to elements of a PSUM tensor overwrites, later ones accumulate."""

    def test_each_tensor_begins_anew(self):
        def body(x, y, c):
            total = tile(16, 16)
            for _ in range(2):
                product = tile(16, 16, space=nl.psum)
                for _ in range(3):
                    nisa.nc_matmul(product, x, y)
                nisa.tensor_copy(total, product)
            return total

        np.testing.assert_allclose(values(body, X, Y, COLUMN), 3 * X.T @ Y, rtol=1e-4, atol=1e-4)

    def test_each_region_for_itself(self):
        def body(x, y, c):
            product = tile(16, 16, space=nl.psum)
            nisa.nc_matmul(product[:, 0:8], x, y[:, 0:8])
            nisa.nc_matmul(product[:, 8:16], x, y[:, 8:16])
            nisa.nc_matmul(product[:, 0:8], x, y[:, 0:8])
            return product

        wanted = (X.T @ Y) * np.repeat([2, 1], 8)
        np.testing.assert_allclose(values(body, X, Y, COLUMN), wanted, rtol=1e-4, atol=1e-4)

    def test_on_top_of_zeros(self):
        def body(x, y, c):
            product = nl.zeros((16, 16), nl.float32, buffer=nl.psum)
            nisa.nc_matmul(product, x, y)
            return product

        np.testing.assert_allclose(values(body, X, Y, COLUMN), X.T @ Y, rtol=1e-4, atol=1e-4)

    def test_as_told(self):
        def body(x, y, c):
            product = nl.ones((16, 16), nl.float32, buffer=nl.psum)
            nisa.nc_matmul(product, x, y, accumulate=False)
            nisa.nc_matmul(product, x, y, accumulate=True)
            return product

        np.testing.assert_allclose(values(body, X, Y, COLUMN), 2 * X.T @ Y, rtol=1e-4, atol=1e-4)

    def test_what_cannot_be_known(self):
        def half(x, y, c):
            product = tile(16, 16, space=nl.psum)
            nisa.nc_matmul(product[:, 0:8], x, y[:, 0:8])
            nisa.nc_matmul(product, x, y)

        def moving(x, y, c, accumulate=None):
            product = tile(16, 2, 16, space=nl.psum)
            nisa.nc_matmul(product[:, ncc.rank_id()], x, y, accumulate=accumulate)
            nisa.nc_matmul(product[:, 0], x, y)

        with pytest.raises(InputError, match=r"a part of .* was written before and a part was not"):
            values(half, X, Y, COLUMN)
        for accumulate in (None, False):
            with pytest.raises(InputError, match="are written is known only when it runs"):
                values(lambda *tiles, accumulate=accumulate: moving(*tiles, accumulate), X, Y, COLUMN)


class TestIndirect:
    table = np.arange(20, dtype=np.float32).reshape(5, 4)

    def rows(self, table, indices):
        return table.ap([[4, 3], [1, 4]], vector_offset=indices, indirect_dim=0)

    def test_gather_scatter_and_add(self):
        def kernel(table, indices):
            indices = nl.load(indices)
            got = written(lambda d: nisa.dma_copy(d, self.rows(table, indices)), 3, 4)
            result = nl.zeros((5, 4), nl.float32, buffer=nl.shared_hbm)
            nisa.dma_copy(self.rows(result, indices), got)
            nisa.dma_compute(self.rows(result, indices), [got, self.rows(result, indices)], nl.add)
            nisa.dma_copy(result[0:1], got[0:1], nl.add)
            return result

        wanted = np.zeros_like(self.table)
        wanted[[4, 1, 3]] = 2 * self.table[[4, 1, 3]]
        wanted[0] = self.table[4]
        found = nki.simulate(kernel)(self.table, np.int32([[4], [1], [3]]))
        np.testing.assert_array_equal(found, wanted)

    @pytest.mark.parametrize("first", [0, 1])
    def test_outside(self, first):
        """Rows that are skipped keep what they hold, whatever the order of the operands."""

        def kernel(table, indices, mode):
            indices, dst = nl.load(indices), nl.full((3, 4), 100.0, nl.float32)
            srcs = [self.rows(table, indices), dst]
            nisa.dma_compute(dst, [srcs[first], srcs[1 - first]], nl.add, oob_mode=mode)
            nisa.dma_copy(dst, self.rows(table, indices), oob_mode=mode)
            return kept(dst)

        indices = np.uint32([[4], [2**32 - 1], [0]])
        found = nki.simulate(kernel)(self.table, indices, nisa.oob_mode.skip)
        assert found.tolist() == [[16, 17, 18, 19], [100] * 4, [0, 1, 2, 3]]
        with pytest.raises(RunError, match="row 1 has an index outside of tensor table"):
            nki.simulate(kernel)(self.table, indices, nisa.oob_mode.error)


def test_an_index_leaves_one_partition():
    """What ``tile[0, 1:]`` is to an engine."""

    def kernel(x):
        tile_of_all, row = nl.load(x), nl.zeros((1, 16), nl.float32)
        nisa.tensor_tensor_scan(row[0, 1:], nl.ones((1, 15), nl.float32), tile_of_all[3, :15], 0.0, nl.multiply, nl.add)
        nisa.tensor_copy(tile_of_all[3], row)
        column = tile(32, 1)
        nisa.tensor_copy(column, tile_of_all[:, 5])
        return kept(row), kept(column)

    row, column = nki.simulate(kernel)(X)
    np.testing.assert_allclose(row[0, 1:], np.cumsum(X[3, :15]), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(column[[0, 31], 0], X[[0, 31], 5])


def test_registers():
    def kernel(start, table):
        register = nisa.register_alloc(1)
        out = nl.ndarray((4, 1), nl.int32, buffer=nl.shared_hbm)
        nisa.register_store(out[0:1], register)
        nisa.register_load(register, start)
        nisa.register_store(out[1:2], register)
        nisa.register_move(register, register * 2 - 1)
        nisa.register_store(out[2:3], register)
        nisa.dma_copy(out[3:4], table.ap([[1, 1], [1, 1]], scalar_offset=register))
        return out

    found = nki.simulate(kernel)(np.int32([3]), np.int32([[10], [11], [12], [13], [14], [15]]))
    assert found[:, 0].tolist() == [1, 3, 5, 15]


class TestCores:
    def exchanged(self, **options):
        def kernel(x):
            core = nl.program_id(0)
            mine, theirs = nl.load(x[core]), tile(32, 16)
            nisa.sendrecv(mine, theirs, 1 - core, 1 - core, 0, **options)
            result = nl.ndarray((2, 32, 16), nl.float32, buffer=nl.shared_hbm, name="result")
            nisa.dma_copy(result[core], theirs)
            nisa.core_barrier(result, (0, 1))
            return result

        return kernel

    @pytest.mark.parametrize("dma_engine", [nisa.dma_engine.dma, nisa.dma_engine.gpsimd_dma])
    def test_sendrecv(self, dma_engine):
        found = nki.simulate(self.exchanged(dma_engine=dma_engine), grid=2, as_documented=True)(np.stack([X, Y]))
        np.testing.assert_array_equal(found, np.stack([Y, X]))

    def test_refused(self):
        def wide(x):
            nisa.sendrecv(tile(2, 300), tile(2, 300), 1, 1, 0, nisa.dma_engine.gpsimd_dma)

        with pytest.raises(InputError, match="sendrecv by GPSIMD takes 1024 bytes a partition, not 1200"):
            nki.simulate(wide, grid=2, as_documented=True)(X)
        with pytest.raises(InputError, match="sendrecv src must lie in sbuf, not in private_hbm"):
            nki.simulate(lambda x: nisa.sendrecv(x, tile(), 1, 1, 0))(X)
        with pytest.raises(InputError, match=r"core_barrier can only wait for HBM Tensor\."):
            nki.simulate(lambda x: nisa.core_barrier(tile(), (0, 1)), grid=2)(X)


@pytest.mark.parametrize(
    ("target", "version"), [("trn1", 2), ("trn2", nisa.nc_version.gen3), ("trn3", nisa.nc_version.gen4)]
)
def test_version(target, version, monkeypatch):
    @nki.jit(platform_target=target)
    def kernel():
        assert nisa.get_nc_version() == version

    kernel()
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
    assert nisa.get_nc_version() == version


def hbm(*shape, dtype=nl.float32):
    return tile(*shape, dtype=dtype, space=nl.hbm)


def psum(*shape, dtype=nl.float32):
    return tile(*shape, dtype=dtype, space=nl.psum)


LIMITS = [
    (lambda: tile(256, 4), "partition dimension 256 exceeds maximum 128"),
    (lambda: psum(128, 5000), "20000 bytes a partition exceed the 16384 that psum has"),
    (lambda: nisa.tensor_copy(tile(), hbm(32, 16)), "tensor_copy src lies in private_hbm, and the engines reach SBUF"),
    (lambda: nisa.dma_copy(hbm(4, 4), psum(4, 4)), "dma_copy src lies in psum, which DMA does not reach"),
    (lambda: nisa.dma_copy(tile(4, 4), tile(4, 5)), "they have 20 and 16 elements"),
    (lambda: nisa.nc_matmul(tile(4, 4), tile(8, 4), tile(8, 4)), "nc_matmul dst must lie in psum, not in sbuf"),
    (lambda: nisa.nc_matmul(psum(4, 4), psum(8, 4), tile(8, 4)), "nc_matmul stationary must lie in sbuf, not in psum"),
    (
        lambda: nisa.nc_matmul(psum(128, 4), tile(8, 130), tile(8, 4)),
        "nc_matmul stationary free dimension 130 exceeds maximum 128",
    ),
    (
        lambda: nisa.nc_matmul(psum(4, 600), tile(8, 4), tile(8, 600)),
        "nc_matmul moving free dimension 600 exceeds maximum 512",
    ),
    (
        lambda: nisa.nc_matmul(psum(4, 4), tile(8, 4), tile(8, 4, dtype=nl.bfloat16)),
        "stationary of f32 and moving of bf16: float32 goes with float32 only",
    ),
    (lambda: nisa.nc_transpose(psum(128, 8), tile(8, 200)), r"data of shape \[8, 200\] exceeds 128 x 128"),
    (lambda: nisa.nc_transpose(tile(40, 8), tile(8, 40)), r"data of shape \[8, 40\] exceeds 32 x 32"),
    (
        lambda: nisa.nc_transpose(psum(8, 8, dtype=nl.float16), tile(8, 8)),
        "nc_transpose: dst and data must have one element type, not f16 and f32",
    ),
    (
        lambda: nisa.tensor_tensor(tile(4, 4), psum(4, 4), psum(4, 4), nl.add),
        "data1 and data2 may not both lie in psum",
    ),
    (lambda: nisa.max8(tile(4, 8), tile(4, 4)), "max8 src has 4 elements a partition, and takes 8 to 16384"),
    (
        lambda: nisa.nc_find_index8(tile(4, 8), tile(4, 8), tile(4, 8)),
        "nc_find_index8 dst must be of uint16 or uint32, not f32",
    ),
    (lambda: nisa.dma_compute(tile(4), [tile(4)] * 17, nl.add), "dma_compute has 17 srcs, and takes 16"),
    (lambda: nisa.tensor_tensor(tile(4), tile(4), tile(4), nl.exp), "tensor_tensor: op may not be 'exp'"),
    (lambda: nisa.memset(tile(4), ncc.rank_id()), "memset value is a register"),
    (lambda: nisa.tensor_copy(tile(4), 3.0), "tensor_copy src must be a tensor, not float"),
    (lambda: nisa.dma_copy(dst=X, src=tile(4)), "dma_copy dst must be a tensor, not ndarray"),
    (lambda: nisa.dma_compute(tile(4), [X], nl.add), "dma_compute srcs must be a list of tensors"),
    (
        lambda: nisa.nc_matmul(psum(4, 4), tile(8, 4), tile(7, 4)),
        "nc_matmul contracts the partitions, and stationary has 8 and moving 7",
    ),
]


@pytest.mark.parametrize(("body", "text"), LIMITS)
def test_limits(body, text):
    def kernel():
        body()

    with pytest.raises(InputError, match=rf"^test_isa.py:\d+: .*{text}"):
        nki.simulate(kernel, arch=30)()


def test_limits_are_validation_errors():
    def kernel():
        with pytest.raises(nisa.NkiValidationError):
            tile(129)

    nki.simulate(kernel)()


def test_places_that_are_not_zero():
    flags = (X > 0).astype(np.float32)

    def body(x):
        places = nl.full((32, 17), -5, nl.int32)
        nisa.nonzero_with_count(places, x, index_offset=10, padding_val=-1)
        return places

    found = values(body, flags)
    for partition in range(32):
        places = np.flatnonzero(flags[partition]) + 10
        wanted = np.full(17, -1 if partition % 16 == 0 else -5)
        if partition % 16 == 0:
            wanted[: len(places)], wanted[-1] = places, len(places)
        np.testing.assert_array_equal(found[partition], wanted)


def test_a_barrier_of_one_core_as_a_number():
    def kernel(x):
        shared = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(shared, x)
        nisa.core_barrier(shared, (0), engine=nisa.engine.dma)
        return shared

    np.testing.assert_array_equal(nki.simulate(kernel)(X), X)
