"""The programs in examples/ on several ranks: what their authors expect, and the same bits in every run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crossrank.doors import Door, read_source
from crossrank.passes import pipeline
from crossrank.program import compile
from crossrank.program.files import arguments_of, expected_of, read_program_file
from crossrank.program.run import ProgramOptions, ProgramReport, run_program_file

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = ("hello_rank", "ring_all_reduce", "halo_exchange", "expert_parallel")


def run(name: str, ranks: int, seed: int = 0) -> ProgramReport:
    source = read_source(str(EXAMPLES / f"{name}.py"))
    assert source.door is Door.PROGRAM
    return run_program_file(read_program_file(source, ranks), pipeline("program"), ProgramOptions(seed=seed))


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example_gives_what_its_author_expects(name: str, ranks: int) -> None:
    report = run(name, ranks)
    assert report.equal
    assert report.expected is not None
    assert report.expected["outputs"] == len(report.written) == 1
    assert report.dispatches == dict.fromkeys(range(ranks), 1)
    assert report.tasks == dict.fromkeys(range(ranks), 3 if name == "expert_parallel" else 1)
    assert report.warnings == []


@pytest.mark.parametrize("name", ["ring_all_reduce", "expert_parallel"])
def test_an_example_on_64_ranks(name: str) -> None:
    assert run(name, 64, seed=3).equal


@pytest.mark.parametrize(("rail", "dispatches", "tasks"), [("host", 3, 3), ("chip", 1, 3), ("incore", 1, 1)])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_exchange_pipeline(ranks: int, rail: str, dispatches: int, tasks: int) -> None:
    """The same values on each rail; with every seed each pair of ranks has another one of five counts."""
    file = read_program_file(read_source(str(EXAMPLES / "exchange_pipeline.py")), ranks, rail)
    compiled = compile(file.program, ranks=ranks)
    with compiled.prepare(persistent=True) as worker:
        for seed in range(5):
            arguments = arguments_of(file, seed)
            expected = expected_of(file, arguments)
            worker(*arguments.values())
            assert expected is not None
            assert {name: np.array_equal(arguments[name], e) for name, e in expected.items()} == {
                "taken": True,
                "came": True,
            }
    assert compiled.record is not None
    assert compiled.record.dispatches == dict.fromkeys(range(ranks), dispatches)
    assert compiled.record.tasks == dict.fromkeys(range(ranks), tasks)
