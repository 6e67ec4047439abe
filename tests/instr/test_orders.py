"""A kernel whose values depend on which core goes first is told so, and one that has its barrier is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crossrank.cli.main import main

KERNEL = """
import numpy as np
from crossrank import nki
from crossrank.nki import isa as nisa, language as nl

@nki.jit
def hand_over(x):
    core = nl.program_id(0)
    shared = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name="shared")
    y = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name="y")
    if core == {writer}:
        nisa.dma_copy(shared, x)
    {barrier}
    if core == {reader}:
        nisa.dma_copy(y, shared)
    return y

kernel = hand_over[2]

def inputs(ranks, seed):
    return [(np.full((4, 4), rank, np.float32),) for rank in range(ranks)]

def expected(ranks, inputs):
    return inputs
"""
BARRIER = "nisa.core_barrier(shared, (0, 1))"


@pytest.mark.parametrize(("writer", "reader"), [(0, 1), (1, 0)])
@pytest.mark.parametrize("barrier", ["pass", BARRIER])
def test_a_missing_barrier(
    barrier: str, writer: int, reader: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(KERNEL.format(writer=writer, reader=reader, barrier=barrier))
    status = main(["run", str(path), "--ranks", "2", "--json"])
    found = json.loads(capsys.readouterr().out)
    if barrier == BARRIER:
        assert (status, found["unordered"], found["expected"]["equal"]) == (0, None, True)
        return
    assert status == 1
    assert found["exact"] is True  # the kernel and its rewrite agree, in the same order
    assert found["unordered"]["kernel"] == "the original"
    main(["run", str(path), "--ranks", "2"])
    assert "a race: the original gives other values" in " ".join(capsys.readouterr().out.split())
