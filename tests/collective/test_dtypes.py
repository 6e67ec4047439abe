import numpy as np
import pytest

from crossrank.collective import dtypes
from crossrank.collective.dtypes import ALL, BF16, C64, F32, PRED, TOKEN, TUPLE, U8, dtype, dtype_by_number, dtype_of


def test_numbers_are_the_ones_of_the_enum():
    from jaxlib.xla_client import PrimitiveType

    seen = 0
    for name, value in PrimitiveType.__members__.items():
        if name != "PRIMITIVE_TYPE_INVALID":
            assert dtype_by_number(int(value)).name.upper() == name.removesuffix("_TYPE")
            seen += 1
    assert seen >= 27


def test_every_type_is_found_by_name_number_and_dtype():
    assert len({t.number for t in ALL}) == len({t.name for t in ALL}) == len(ALL) == 36
    for t in ALL:
        assert dtype(t.name) is t
        assert dtype_by_number(t.number) is t
        assert str(t) == t.name
        if t.numpy is not None:
            assert dtype_of(t.numpy) is t
            assert t.itemsize == t.numpy.itemsize


def test_classes_of_types():
    assert {t.name for t in ALL if t.is_integer} == {f"{s}{bits}" for s in "su" for bits in (1, 2, 4, 8, 16, 32, 64)}
    assert {t.name for t in ALL if t.is_complex} == {"c64", "c128"}
    assert len([t for t in ALL if t.is_float]) == 15
    assert {t.name for t in ALL if t.numpy is None} == {"tuple", "opaque", "token", "buffer"}
    assert not any(t.is_float or t.is_integer or t.is_complex or t.is_signed for t in (PRED, TOKEN, TUPLE))
    assert {t.name for t in ALL if (t.is_float or t.is_integer) and not t.is_signed} == {
        *(f"u{bits}" for bits in (1, 2, 4, 8, 16, 32, 64)),
        "f8e8m0fnu",
    }
    assert C64.is_signed


@pytest.mark.parametrize(("name", "bits", "itemsize"), [("pred", 1, 1), ("s4", 4, 1), ("bf16", 16, 2), ("c64", 64, 8)])
def test_sizes(name, bits, itemsize):
    assert (dtype(name).bits, dtype(name).itemsize) == (bits, itemsize)


def test_constants():
    assert (F32.name, BF16.name, U8.name) == ("f32", "bf16", "u8")
    assert all(getattr(dtypes, name.upper()) is dtype(name) for name in ("s8", "s64", "u16", "f64", "c128", "opaque"))
    assert TOKEN.itemsize == 0


def test_what_there_is_not():
    with pytest.raises(ValueError, match="no element type is named 'f33'"):
        dtype("f33")
    with pytest.raises(ValueError, match="no element type has the number 0"):
        dtype_by_number(0)
    with pytest.raises(ValueError, match="no element type is NumPy's object"):
        dtype_of(np.dtype(object))
