"""The methods by which a kernel takes another view of a tensor, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from crossrank import nki
from crossrank.errors import InputError
from crossrank.nki import isa as nisa
from crossrank.nki import language as nl

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def register(value):
    return nisa.register_alloc(value)


def indices(*values):
    return nl.load(nl.shared_constant(np.array(values, np.uint32).reshape(-1, 1)))


VIEWS = [
    (lambda x: x.expand_dim(1), X[:, None]),
    (lambda x: x[0:1].broadcast(0, 3), np.broadcast_to(X[0:1], (3, 3, 4))),
    (lambda x: x.expand_dim(3).squeeze_dim(3), X),
    (lambda x: x.flatten_dims(1, 2), X.reshape(2, 12)),
    (lambda x: x.reshape_dim(2, (2, -1)), X.reshape(2, 3, 2, 2)),
    (lambda x: x.permute((2, 0, 1)), X.transpose(2, 0, 1)),
    (lambda x: x.permute((2, 0, 1)).reshape_dim(0, (2, 2)), X.transpose(2, 0, 1).reshape(2, 2, 2, 3)),
    (
        lambda x: x.rearrange(("a", "b", ("c", "d")), ("d", "a", ("b", "c")), {"c": 2}),
        X.reshape(2, 3, 2, 2).transpose(3, 0, 1, 2).reshape(2, 2, 6),
    ),
    (lambda x: x[:, :, 1:3].rearrange(("a", "b", "c"), ("a", "c", "b")), X[:, :, 1:3].transpose(0, 2, 1)),
    (lambda x: x.reinterpret_cast(nl.int32), X.view(np.int32)),
    (lambda x: x.slice(1, 1, 3), X[:, 1:3]),
    (lambda x: x.slice(2, 0, 4, 2), X[:, :, ::2]),
    (lambda x: x.select(1, 2), X[:, 2]),
    (lambda x: x.select(1, register(1)), X[:, 1]),
    (lambda x: x.select(0, indices(1)), X[1]),
    (lambda x: x[:, nl.ds(register(1), 2)], X[:, 1:3]),
    (lambda x: x[register(1)][register(2)], X[1, 2]),
    (lambda x: x[..., -1], X[..., -1]),
    (lambda x: x.reshape((6, 4)).vector_select(0, indices(5, 0, 2)), X.reshape(6, 4)[[5, 0, 2]]),
    (lambda x: x.ap([[4, 2], [1, 3]], offset=13), X.reshape(6, 4)[3:5, 1:4]),
    (lambda x: x.ap([[1, 4]], offset=None, scalar_offset=register(1), indirect_dim=0), X[1, 0]),
    (lambda x: x.ap([[1, 4]], scalar_offset=register(2), indirect_dim=1), X[0, 2]),
    (lambda x: x.reshape((6, 4)).ap([[1, 4]], scalar_offset=register(5), indirect_dim=0), X[1, 2]),
    (lambda x: x[1].ap([[4, 2], [2, 2]]), X[1, :2, ::2]),
    (lambda x: x.ap([[-1, 6]], offset=10), X.reshape(-1)[10:4:-1]),
    (lambda x: x.view(nl.bfloat16), X.view(ml_dtypes.bfloat16)),
    (lambda x: x.view(nl.int32), X.view(np.int32)),
    (lambda x: x.view(nl.int16)[:, 1:2].view(nl.float32), X[:, 1:2]),
    (lambda x: x[register(1)].view(nl.int16), X[1].view(np.int16)),
    (lambda x: x[register(1)].ap([[1, 8]], dtype=nl.int16), X[1, 0].view(np.int16)),
    (lambda x: x.ap([[2, 3]], offset=8, dtype=nl.int16), X.reshape(-1).view(np.int16)[8:14:2]),
]


@pytest.mark.parametrize(("view", "wanted"), VIEWS)
def test_views(view, wanted):
    def kernel(x):
        result = nl.ndarray(wanted.shape, wanted.dtype, buffer=nl.shared_hbm)
        source = view(x)
        assert source.shape == wanted.shape
        assert source.dtype == wanted.dtype
        nisa.dma_copy(result, source)
        return result

    np.testing.assert_array_equal(nki.simulate(kernel)(X).view(np.uint8), np.ascontiguousarray(wanted).view(np.uint8))


def test_writes_through_views():
    def kernel(x):
        result = nl.zeros((3, 2, 4), x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(result.permute((1, 0, 2)), x)
        return result

    np.testing.assert_array_equal(nki.simulate(kernel)(X), X.transpose(1, 0, 2))


def test_what_a_view_says_of_itself():
    def kernel(x):
        assert x.get_pattern() == [[12, 2], [4, 3], [1, 4]]
        assert x.is_contiguous()
        assert x[1].is_contiguous()
        assert not x[:, 0:2].is_contiguous()
        assert x[register(1)].is_indirect()
        assert not x.is_indirect()

    nki.simulate(kernel)(X)


REFUSED = [
    (lambda x: x.broadcast(0, 2), "cannot broadcast dimension 0 of x.*: its extent is not 1"),
    (lambda x: x.squeeze_dim(1), "cannot squeeze dimension 1 of x.*: its extent is not 1"),
    (lambda x: x.expand_dim(4), "has no place 4 for a dimension"),
    (lambda x: x.select(3, 0), "cannot select from dimension 3 of x.*, which has 3"),
    (lambda x: x.flatten_dims(0, 3), "cannot flatten dimension 3"),
    (lambda x: x.permute((2, 1, 0)).flatten_dims(0, 1), "has no view of shape"),
    (lambda x: x.reshape_dim(2, (3, -1)), r"dimension 2 of x.* cannot have the shape \[3, -1\]"),
    (lambda x: x.vector_select(1, indices(0)), "are selected along dimension 0"),
    (lambda x: x.vector_select(0, indices(0)).permute((1, 0, 2)), "whose rows are found by a vector of indices"),
    (lambda x: x[:, :, 0:3].view(np.int64), "they do not lie side by side"),
    (lambda x: x[:, :, ::2].view(nl.int16), "they do not lie side by side"),
    (lambda x: x.view(nl.int16)[:, :, 1:].ap([[1, 2]], dtype=nl.int32), "begins within an element of s32"),
    (lambda x: x.ap([[4, 3], [1, 4]], vector_offset=indices(0, 1)), "vector_offset has 2 indices for 3 rows"),
]


@pytest.mark.parametrize(("view", "text"), REFUSED)
def test_refused(view, text):
    with pytest.raises(InputError, match=rf"^test_tensor.py:\d+: .*{text}"):
        nki.simulate(view)(X)
