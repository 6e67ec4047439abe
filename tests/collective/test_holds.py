"""Which element types hold the values of which others."""

from __future__ import annotations

import numpy as np
import pytest

from crossrank.collective.dtypes import ALL, DType, dtype

NUMBERS = [t for t in ALL if t.numpy is not None and not t.is_complex]
SMALL = [t for t in NUMBERS if t.bits in (8, 16) and t.name != "f8e8m0fnu"]


@pytest.mark.parametrize("narrow", SMALL, ids=str)
def test_every_value_comes_back(narrow: DType) -> None:
    bits = np.arange(1 << narrow.bits, dtype=np.uint8 if narrow.bits == 8 else np.uint16)
    values = bits.view(narrow.numpy)
    for wide in NUMBERS:
        if wide.holds(narrow):
            with np.errstate(invalid="ignore"):
                back = values.astype(wide.numpy).astype(narrow.numpy)
                same = (back == values) | ((back != back) & (values != values))
            assert same.all(), f"{narrow} in {wide}"


@pytest.mark.parametrize(
    ("wide", "narrow", "held"),
    [
        ("f32", "bf16", True),
        ("f32", "s16", True),
        ("f32", "s32", False),
        ("f64", "s32", True),
        ("f64", "s64", False),
        ("bf16", "f16", False),
        ("f16", "bf16", False),
        ("s32", "u16", True),
        ("s32", "u32", False),
        ("u32", "s8", False),
        ("s64", "u32", True),
        ("s8", "pred", True),
        ("f32", "pred", True),
        ("pred", "s8", False),
        ("s32", "f16", False),
        ("c64", "f32", True),
        ("c128", "c64", True),
        ("c64", "c128", False),
        ("f32", "c64", False),
    ],
)
def test_holds(wide: str, narrow: str, held: bool) -> None:
    assert dtype(wide).holds(dtype(narrow)) is held
