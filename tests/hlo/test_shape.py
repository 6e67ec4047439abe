"""Shapes as data, and through their messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossrank.collective.dtypes import ALL, F32, S32, TOKEN, dtype
from crossrank.hlo.shape import Shape, row_major_strides

from ..support import find, parse


@st.composite
def arrays(draw):
    dims = tuple(draw(st.lists(st.integers(0, 9), max_size=4)))
    layout = tuple(draw(st.permutations(range(len(dims)))))
    return Shape(draw(st.sampled_from([t for t in ALL if t.bits])), dims, layout)


SHAPES = st.recursive(arrays(), lambda s: st.lists(s, max_size=3).map(Shape.tuple_of), max_leaves=6)


@given(SHAPES)
def test_write_and_read(shape: Shape) -> None:
    assert Shape.read(shape.proto()) == shape


@given(SHAPES)
def test_leaves_and_bytes(shape: Shape) -> None:
    leaves = list(shape.leaves())
    assert not any(leaf.is_tuple for leaf in leaves)
    assert shape.nbytes == sum(leaf.nbytes for leaf in leaves)
    assert shape.same_extents(shape.as_row_major())
    assert all(leaf.row_major for leaf in shape.as_row_major().leaves())


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        (Shape(F32, (8, 4), (0, 1)), "f32[8,4]{0,1}"),
        (Shape(S32), "s32[]"),
        (Shape.tuple_of([Shape(F32, (2,)), Shape.tuple_of([])]), "(f32[2], ())"),
    ],
)
def test_text(shape: Shape, text: str) -> None:
    assert str(shape) == text


def test_kinds_of_shape() -> None:
    assert Shape(F32, (2, 3)).is_array
    assert not Shape(TOKEN).is_array
    assert Shape(TOKEN).nbytes == 0
    assert not Shape.tuple_of([]).is_array
    assert Shape(F32, (2, 0)).count == 0
    assert Shape(F32, (2, 3)).row_major
    assert not Shape(F32, (2, 3), (0, 1)).row_major


def test_bytes_of_small_and_large_elements() -> None:
    assert Shape(dtype("bf16"), (3, 5)).nbytes == 30
    assert Shape(dtype("c128"), (2,)).nbytes == 32
    assert Shape(dtype("pred"), (7,)).nbytes == 7


def test_device_layouts_and_bounds_are_seen() -> None:
    module = parse(
        "  p = f32[8,128]{1,0:T(8,128)S(1)} parameter(0)\n  q = s32[<=4] parameter(1)\n  ROOT r = s32[] constant(0)"
    ).module
    assert find(module, "p").shape.tiled
    assert find(module, "q").shape.dynamic
    assert not find(module, "r").shape.tiled


def test_strides() -> None:
    assert row_major_strides((2, 3, 4)) == (12, 4, 1)
    assert row_major_strides(()) == ()
