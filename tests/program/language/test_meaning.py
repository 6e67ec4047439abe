"""What a body means when it is parsed and run is what Python makes of the same source."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import crossrank.program.language as pl
from crossrank.program import compile
from crossrank.program.program import read_program

SIZE = 8
X = pl.Tensor[[SIZE], pl.INT64]
F = pl.Tensor[[SIZE], pl.FP64]
OUT = pl.Out[pl.Tensor[[SIZE], pl.INT64]]
FOUT = pl.Out[pl.Tensor[[SIZE], pl.FP64]]
WEIGHTS = (3, 5, 7)


def operators(self, x: X, f: F, out: OUT, fout: FOUT):
    a, b = x[0], x[1]
    out[0] = a + b * 2 - 3
    out[1] = a // b
    out[2] = a % b
    out[3] = -a % b + abs(a) + max(a, b, 4) * min(a, 2)
    out[4] = (a & b) | (a ^ 5) | (b << 2) | (a >> 1)
    out[5] = ~a + +b
    out[6] = 2**3 + 7 // 2 + 7 % -4
    fout[0] = f[0] / f[1] + 1
    fout[1] = -f[0] * 2.5 - abs(f[1])
    fout[2] = max(f[0], f[1]) + min(f[0], 0.0)


def comparisons(self, x: X, f: F, out: OUT, fout: FOUT):
    a, b = x[0], x[1]
    if (a < b and b < 100) or a == 77:
        out[0] = 1
    if not (a < b) or f[0] >= f[1]:
        out[1] = 1
    if -50 < a <= b != 3:
        out[2] = 1
    if a != 0 and True:
        out[3] = 1
    out[4] = a if a > b else b
    out[5] = 1 if a > b else 2
    flag = a > b
    if flag:
        out[6] = 1
    if a:
        out[7] = 1


def arms(self, x: X, f: F, out: OUT, fout: FOUT):
    kind = 0
    y = x[1]
    if x[0] > 0:
        kind = 1
        y = y * 2
    elif x[0] < -5:
        kind = 2
    else:
        kind = x[2]
        y = 5
    out[0] = kind
    out[1] = y
    if SIZE > 4:  # known here: one arm is all there is
        known = 1
    else:
        known = x
        out[3] = known
    out[2] = known


def loops(self, x: X, f: F, out: OUT, fout: FOUT):
    total = 0
    most = x[0]
    unchanged = x[3]
    for i in pl.range(SIZE):
        total = total + x[i] * unchanged
        if x[i] > most:
            most = x[i]
    out[0] = total
    out[1] = most
    low, high = 0, 1
    for i in pl.range(2, SIZE - 1, 2):
        low, high = high, low + high
        for j in pl.parallel(i):
            total -= j
    out[2] = low
    out[3] = high
    out[4] = total
    count = 0
    for i in pl.range(x[5] % 4, x[5] % 4):
        count = 100 + i
    out[5] = count


def temporaries(self, x: X, f: F, out: OUT, fout: FOUT):
    t = x[0]
    out[0] = t
    for i in pl.range(1, 4):
        t = x[i]
        u = t * 2
        if u > 3:
            v = u - 1
            out[i] = v
        else:
            v = f[i]
            fout[i] = v
    for i in pl.range(4, SIZE):
        t = f[i] * 2
        fout[i] = t


def unrolled(self, x: X, f: F, out: OUT, fout: FOUT):
    for n in pl.unroll(3):
        out[n] = x[n] * WEIGHTS[n]
        for i in pl.range(n):
            out[n] += i
    for _ in pl.unroll(1, 4, 2):
        out[4] += 1


def views(self, x: X, f: F, out: OUT, fout: FOUT):
    half = SIZE // 2
    back = x[half:]
    out[0] = back[1] + back[half - 1]
    for i in pl.range(2):
        pair = out[2 * i + 1 : 2 * i + 3]
        pair[1] = x[i]
        out[6] += pair.shape[0]
    n = x.shape[0]
    out[7] = n + len(WEIGHTS)


def literals(self, x: X, f: F, out: OUT, fout: FOUT):
    """A docstring."""
    indices = [1, *(2, 4)]
    (first, second), third = indices[:2], indices[-1]
    out[first] = second + third
    assert SIZE == 8, "known here"
    scale: pl.Scalar[pl.INT64] = 3
    out[3] = scale * x[0]
    text = "" or f"{SIZE}"
    if text == "8" and "8" in text and indices is not None:
        out[4] = 1


def returns(self, x: X, f: F, out: OUT, fout: FOUT):
    out[0] = x[0]
    if x[0] < -5:
        out[4] = 1
    elif x[0] > 5:
        return out
    if x[1] < 0:
        if x[2] == 1:
            out[1] = 1
            return out
        out[2] = 2
    out[3] = 3
    if SIZE == 8:
        return out
    return x


CASES = [operators, comparisons, arms, loops, temporaries, unrolled, views, literals, returns]
VALUES = [[7, 3, -9, 4, 0, 5, -6, 2], [-7, 3, 11, -4, 1, 6, 6, 2], [2, -3, 1, 8, -2, 7, 3, 3]]
PYTHON = SimpleNamespace(range=range, parallel=range, unroll=range)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_as_python(case: Callable[..., Any]) -> None:
    declared = pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)(case)
    program = pl.program(type("Case", (), {"main": declared}))
    assert str(read_program(program.text())) == str(program)
    compiled = compile(program, passes=[])
    plain = FunctionType(case.__code__, {**globals(), "pl": PYTHON})
    for values in VALUES:
        x, f = np.array(values), np.array(values[::-1]) / 4
        wanted, found = ((np.zeros(SIZE, np.int64), np.zeros(SIZE)) for _ in range(2))
        assert (plain(None, x, f, *wanted) is wanted[0]) == (compiled(x, f, *found) is found[0])
        np.testing.assert_array_equal(found[0], wanted[0])
        np.testing.assert_array_equal(found[1], wanted[1])
