"""Registers compute what Python computes with the numbers that they hold."""

from __future__ import annotations

import numpy as np
import pytest

from crossrank import nki
from crossrank.nki import collectives as ncc
from crossrank.nki import isa as nisa
from crossrank.nki import language as nl

EXPRESSIONS = [
    lambda r: 7 // (r + 1),
    lambda r: -7 % (r + 2),
    lambda r: 6 & r,
    lambda r: 5 | r,
    lambda r: 5 ^ r,
    lambda r: 1 << r,
    lambda r: 100 >> r,
    lambda r: ~r,
    lambda r: +r,
    lambda r: abs(r - 2),
    lambda r: (r == 1) + 2 * (r != 2),
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_registers_compute_as_python_does(expression):
    def kernel():
        tile = nl.ndarray((1, 1), nl.int32, buffer=nl.private_hbm)
        nisa.register_store(tile, expression(ncc.rank_id()))
        return tile

    found = nki.simulate(kernel, ranks=4)([()] * 4)
    assert np.reshape(found, -1).tolist() == [expression(r) for r in range(4)]
