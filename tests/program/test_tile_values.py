"""Tiles are values: what changes one changes no other, and what is not valid stays so, in whatever form."""

from __future__ import annotations

import numpy as np
import pytest

import crossrank.program.language as pl
from crossrank.errors import InputError
from crossrank.program import compile

X = pl.Tensor[[3, 4], pl.FP32]
OUT = pl.InOut[pl.Tensor[[16, 4], pl.FP32]]
LIMIT = pl.Scalar[pl.BF16]


@pl.program
class Tiles:
    @pl.function(type=pl.FunctionType.InCore)
    def kernel(self, x: X, out: OUT, limit: LIMIT):
        tile = pl.load(x, [0, 0], [3, 4])
        row = pl.reshape(tile, [1, 12])
        part = pl.set_validshape(tile, 1, 3)
        tile = pl.write(tile, [0, 0], 99.0)
        out = pl.store(pl.reshape(row, [3, 4]), [0, 0], out)
        out = pl.store(part, [3, 0], out)
        # a row that is not valid has nothing that is
        out = pl.store(part[1], [4, 0], out)
        out = pl.store(pl.reshape(pl.set_validshape(part[0:1, :], 0, 4), [4]), [5, 0], out)
        # a column, whose elements do not lie side by side, with another dimension
        column = pl.load(x[:, 1], [0, 0], [1, 3])
        out = pl.store(column, [6, 0], out)
        # sums in another memory than what they begin from
        total = pl.full([3, 3], pl.FP32, 0.0)
        for _ in pl.range(2):
            total = pl.add(pl.matmul(part[0:3, 0:2], part[0:2, 0:3]), total)
        if limit > 2.0:
            total = pl.matmul(tile, tile, b_trans=True)
        out = pl.store(total, [7, 0], out)
        out[10, 0] = -pl.const(-0.5, pl.FP32)
        out[10, 1] = pl.cast(limit, pl.FP32)
        return out

    @pl.function(type=pl.FunctionType.Orchestration)
    def chip(self, x: X, out: OUT, limit: LIMIT):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[11, 0] = 7.0
        with pl.at(level=pl.Level.CORE_GROUP):
            if limit > 2.0:
                out[12, 0] = 1.0
            else:
                out = pl.store(pl.load(x, [1, 0], [1, 4]), [12, 0], out)
            for n in pl.range(3):
                out[13, n] = 1.0
        return self.kernel(x, out, limit)


def test_tiles_are_values() -> None:
    x = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    out = np.zeros((16, 4), np.float32)
    wanted = out.copy()
    compiled = compile(Tiles)
    compiled(x, out, 1 + 1 / 512)
    wanted[0:3] = x
    wanted[3, :3] = x[0, :3]
    wanted[6, :3] = x[:, 1]
    wanted[7, :3] = 2 * x[0, 0] * x[0, :3]
    wanted[10, :2] = 0.5, 1
    wanted[11, 0] = 7
    wanted[12] = x[1]
    wanted[13, :3] = 1
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("number", [2.5, 1 << 31, "x", None])
def test_a_number_is_one_of_its_type(number: object) -> None:
    @pl.program
    class Number:
        @pl.function(type=pl.FunctionType.Orchestration)
        def chip(self, x: X, n: pl.Scalar[pl.INT32]):
            pass

    with pytest.raises(InputError, match=r"parameter n is a .*, and gets"):
        compile(Number)(np.zeros((3, 4), np.float32), number)
