import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from crossrank.errors import InputError
from crossrank.instr import KernelBuilder, run_kernel
from crossrank.instr.access import AccessPattern
from crossrank.instr.tensors import DynamicSlice
from tests.instr.kernels import kernel

shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)


def elements(pattern: AccessPattern) -> np.ndarray:
    """The positions that a pattern names, by NumPy's own strides."""
    flat = np.arange(2000)
    return as_strided(flat[pattern.offset :], pattern.shape, [s * flat.itemsize for s in pattern.strides])


@st.composite
def indexed(draw):
    """An array and a pattern of the same elements, after some steps of indexing and permuting."""
    shape = draw(shapes)
    array, pattern = np.arange(int(np.prod(shape))).reshape(shape), AccessPattern.row_major(shape)
    for _ in range(draw(st.integers(0, 3))):
        if draw(st.booleans()):
            order = draw(st.permutations(range(array.ndim)))
            array, pattern = array.transpose(order), pattern.permuted(order)
            continue
        index = [draw(one_index(extent)) for extent in array.shape[: draw(st.integers(0, array.ndim))]]
        if draw(st.booleans()):
            index.insert(len(index), Ellipsis)
        array, pattern = array[tuple(index)], pattern.indexed(index)
    return array, pattern


def one_index(extent: int):
    bounds = st.none() | st.integers(-extent, extent)
    slices = st.builds(slice, bounds, bounds, st.none() | st.integers(1, 3))
    return slices | st.integers(-extent, extent - 1) if extent else slices


@given(indexed())
@settings(max_examples=200, deadline=None)
def test_patterns_are_what_numpy_says(pair):
    array, pattern = pair
    assert pattern.shape == array.shape
    assert np.array_equal(elements(pattern), array)
    if array.size:
        assert pattern.bounds == (array.min(), array.max() + 1)
        assert pattern.is_contiguous == np.array_equal(array.ravel(), np.arange(array.size) + array.min())


@given(indexed(), st.data())
@settings(max_examples=200, deadline=None)
def test_reshaping_copies_nothing(pair, data):
    array, pattern = pair
    factors = [n for n in range(1, array.size + 1) if array.size % n == 0] or [0]
    first = data.draw(st.sampled_from(factors))
    shape = data.draw(st.sampled_from([(-1,), (first, -1), (first, 1, array.size // first if first else 3)]))
    if -1 in shape and not array.size:
        return
    array = np.asarray(array)
    wanted = array.reshape(shape)
    if array.size and not np.shares_memory(array, wanted):
        with pytest.raises(ValueError, match="copy it"):
            pattern.reshaped(shape)
    else:
        assert np.array_equal(elements(pattern.reshaped(shape)), wanted)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: x[4], "tensor x: index 4 is outside of dimension 0, which has 4"),
        (lambda x: x[0, -7], "tensor x: index -7 is outside of dimension 1, which has 6"),
        (lambda x: x[0:5], "tensor x: slice 0:5 is outside of dimension 0, which has 4"),
        (lambda x: x[::-1], "tensor x: slice : is outside of dimension 0"),
        (lambda x: x[0, 0, 0], "tensor x: 3 indices for 2 dimensions"),
        (lambda x: x[..., ...], "tensor x: 0 indices for 2 dimensions"),
        (lambda x: x.reshape(5, 5), "tensor x: 24 elements of shape [4, 6] cannot have the shape [5, 5]"),
        (lambda x: x[:, 1:3].reshape(8), "has no view of shape [8]: copy it"),
        (lambda x: x.permute([0, 0]), "tensor x: [0, 0] is no order of 2 dimensions"),
        (lambda x: x[DynamicSlice(-2, 3)], "3 elements from -2 on are no slice of x[4, 6]: ds counts from 0"),
        (
            lambda x: x.builder.dma_copy(x.builder.tensor((5, 6), "f32"), x.ap([[6, 5], [1, 6]])),
            "reaches elements 0 to 29 of tensor x, which has 24",
        ),
        (lambda x: x.ap([[6, 2]], dtype="nonsense"), "is no element type"),
        (lambda x: bool(x.builder.rank_id()), "a register has no value while the kernel is traced"),
        (lambda x: bool(x.builder.rank_id() == 0), "a register has no value while the kernel is traced"),
        (lambda x: bool(x.builder.rank_id() != x.builder.rank_id()), "a register has no value while the kernel is"),
        (lambda x: range(x.builder.rank_id()), "a register has no value while the kernel is traced"),
    ],
)
def test_errors(call, text):
    b = KernelBuilder()
    with pytest.raises(InputError) as caught:
        call(b.input("x", (4, 6), "f32"))
    assert text in caught.value.what


VIEWS = [
    (lambda x, r: x[-1], lambda a, r: a[-1]),
    (lambda x, r: x[1:-1, ::2], lambda a, r: a[1:-1, ::2]),
    (lambda x, r: x[..., -3:], lambda a, r: a[..., -3:]),
    (lambda x, r: x[r], lambda a, r: a[r]),
    (lambda x, r: x[r, r + 1], lambda a, r: a[r, r + 1]),
    (lambda x, r: x[1:, 1:][r, ..., r], lambda a, r: a[1:, 1:][r, ..., r]),
    (lambda x, r: x[DynamicSlice(r, 2), DynamicSlice(2, 3)], lambda a, r: a[r : r + 2, 2:5]),
    (lambda x, r: x[DynamicSlice(0, 0)], lambda a, r: a[0:0]),
    (lambda x, r: x[DynamicSlice(r * 2 - 1, 1)], lambda a, r: a[max(2 * r - 1, 0) :][:1]),
    (lambda x, r: x.permute([1, 0])[r], lambda a, r: a.T[r]),
    (lambda x, r: x.reshape(2, 2, 6)[:, r, 1::2], lambda a, r: a.reshape(2, 2, 6)[:, r, 1::2]),
    (lambda x, r: x.ap([[1, 3], [7, 2]], offset=4), lambda a, r: a.ravel()[[[4, 11], [5, 12], [6, 13]]]),
    (lambda x, r: x.ap([[0, 2], [1, 6]], scalar_offset=r), lambda a, r: a[[r, r]]),
]


@pytest.mark.parametrize("case", range(len(VIEWS)))
def test_views_are_what_numpy_says(case):
    """Three ranks, each of which takes other elements where a register says which."""
    view, meaning = VIEWS[case]
    array = np.arange(24, dtype=np.int32).reshape(4, 6)
    wanted = [meaning(array, rank) for rank in range(2)]
    b = KernelBuilder(world_size=3)
    x, register = b.input("x", array.shape, "s32"), b.rank_id() % 2
    taken = view(x, b.register_alu("max", register, 1) if case == 8 else register)
    out = b.tensor(wanted[0].shape, "s32", "private_hbm")
    b.dma_copy(out, taken)
    b.output(out)
    results = [r[0] for r in run_kernel(kernel(b), [[array]] * 3)]
    if case == 8:
        wanted = [meaning(array, 1)] * 2
    for rank, result in enumerate(results):
        assert np.array_equal(result, wanted[rank % 2])
