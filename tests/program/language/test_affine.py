"""How long a slice is whose ends are computed: a number, or what is there already, where that is seen."""

from __future__ import annotations

import pytest

from crossrank.program.dialect.tensors import SliceOp
from crossrank.program.types import UNKNOWN, Dim, ShapedType
from tests.program.language.sources import parse

TABLE: dict[str, Dim] = {
    "w[i:i + 1]": 1,
    "w[i + 1:i + 3]": 2,
    "w[i * 4:(i + 1) * 4]": 4,
    "w[2 * i - 1:i + 7 + i]": 8,
    "w[(i + 3) // 2:(3 + i) // 2 + 5]": 5,
    "w[min(n, i) * 2:2 + 2 * min(n, i)]": 2,
    "w[i % 3:i % 3 + 2 - 1]": 1,
    "w[n - n:3]": 3,
    "w[i:i + NR]": "NR",
    "w[i + 2:NR + i + 2]": "NR",
    "w[0:NR]": "NR",
    "w[NR - 2:NR]": 2,
    "w[NR // 2:NR // 2 + NR]": "NR",
    "w[NR - 2:2 * NR - 2]": "NR",
    "w[w.shape[0] - 1:]": 1,
    "w[i:2 * i + 1]": UNKNOWN,
    "w[i // 2:(i + 2) // 2]": UNKNOWN,
    "w[i * n:i * n + i * i]": UNKNOWN,
}


@pytest.mark.parametrize("part", TABLE)
def test_extents(part: str) -> None:
    program = parse(kernel=f"for i in pl.range(4):\n    end = {part}\n    w[0, 0] = n")
    (op,) = [op for op in program.function("kernel").op.walk() if isinstance(op, SliceOp)]
    assert isinstance(op.result.type, ShapedType)
    assert op.result.type.shape[0] == TABLE[part]
