"""The program of a file that costs least, and those that cannot be compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossrank.author import load_module
from crossrank.doors import Door, Source, read_source
from crossrank.errors import InputError
from crossrank.passes import pipeline, run_passes
from crossrank.program.cost.estimate import cost_of
from crossrank.program.cost.rails import picked, rails_of, read_rail

EXAMPLE = Path(__file__).parents[3] / "examples" / "exchange_pipeline.py"


@pytest.mark.parametrize(
    ("ranks", "rows", "size", "order"),
    [
        (4, 4, 64, ["incore", "chip", "host"]),
        (8, 64, 256, ["incore", "chip", "host"]),
        (8, 64, 4096, ["chip", "incore", "host"]),
    ],
)
def test_the_order_of_the_rails(ranks: int, rows: int, size: int, order: list[str]) -> None:
    """As they are measured on two cores: what is small has the fewest tasks, what is large the fastest kernel."""
    module = load_module(EXAMPLE.read_bytes(), str(EXAMPLE), "a program")
    costs = {}
    for rail in order:
        lowered = module.pipeline(ranks, rail, rows, size).clone()
        run_passes(lowered, pipeline("program"))
        costs[rail] = cost_of(lowered, ranks, cores=2).milliseconds
    assert sorted(costs, key=lambda name: costs[name]) == order


def test_the_dispatches_and_tasks_of_the_rails() -> None:
    found = {rail.name: rail.cost for rail in rails_of(read_source(str(EXAMPLE)), 4)}
    totals = {name: (cost.total["dispatches"], cost.total["tasks"]) for name, cost in found.items() if cost}
    assert totals == {"host": (12, 12), "chip": (4, 12), "incore": (4, 4)}


FINE = """
import crossrank.program.language as pl
import crossrank.program.language.distributed as pld

def shift(ranks, tasks):
    @pl.program
    class P:
        @pl.function(type=pl.FunctionType.InCore)
        def k(self, w: pl.InOut[pld.DistributedTensor[[1, 8], pl.FP32]]):
            return pl.store(pl.add(pl.load(w, [0, 0], [1, 8]), 1.0), [0, 0], w)

        @pl.function(type=pl.FunctionType.Orchestration)
        def chip(self, w: pl.InOut[pld.DistributedTensor[[1, 8], pl.FP32]]):
            for _ in pl.range(tasks):
                w = self.k(w)
            return w

        @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
        def host(self):
            data = pld.alloc_window_buffer(32)
            w = pld.window(data, [1, 8], dtype=pl.FP32)
            for r in pl.range(pld.world_size()):
                self.chip(w, device=r)
    return P
"""
BAD = "lambda ranks: 1 / 0"


def source(programs: str) -> Source:
    return Source("rails.py", f"{FINE}\nprograms = {programs}\n".encode(), Door.PROGRAM, python=True)


def test_what_cannot_be_compiled_is_out() -> None:
    given = source(f"{{'bad': {BAD}, 'dear': lambda n: shift(n, 9), 'cheap': lambda n: shift(n, 1)}}")
    file, rails = read_rail(given, 2, "auto")
    assert file.rail == "cheap"
    assert {rail.name: rail.cost is not None for rail in rails} == {"bad": False, "dear": True, "cheap": True}
    assert "division by zero" in str(rails[0].as_dict()["reason"])


def test_none_can_be_compiled() -> None:
    with pytest.raises(InputError, match=r"none of a, b can be compiled: rails.py:\d+: .*division by zero"):
        picked(rails_of(source(f"{{'a': {BAD}, 'b': {BAD}}}"), 2))


def test_a_rail_that_the_file_itself_calls_auto() -> None:
    given = source("{'auto': lambda n: shift(n, 9), 'cheap': lambda n: shift(n, 1)}")
    assert read_rail(given, 2, "auto")[0].rail == "auto"


def test_one_program_is_taken_as_it_is() -> None:
    given = Source("rails.py", f"{FINE}\nprogram = lambda n: shift(n, 1)\n".encode(), Door.PROGRAM, python=True)
    assert read_rail(given, 2, "auto")[1] == []
