"""The kernels among the examples give what they say, on several ranks and as the vendor's tools would have them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from crossrank import nki

EXAMPLES = Path(__file__).parents[2] / "examples"
CASES = [
    (name, ranks)
    for name, counts in {"ring_all_gather_matmul": (2, 4, 8), "token_exchange": (1, 3, 4, 8)}.items()
    for ranks in counts
]


def module_of(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("name", "ranks"), CASES)
@pytest.mark.parametrize(("grid", "as_documented"), [(None, False), (None, True), (2, False)])
def test_example(name, ranks, grid, as_documented):
    module = module_of(name)
    inputs = module.inputs(ranks, seed=ranks)
    found = nki.simulate(module.kernel, ranks, grid=grid, as_documented=as_documented)(inputs)
    for own, (wanted,) in zip(found, module.expected(ranks, inputs), strict=True):
        assert own.dtype == wanted.dtype
        np.testing.assert_allclose(own, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
