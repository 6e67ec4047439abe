"""The FFI handlers, in child processes: the number of devices is fixed before JAX is loaded; a crash stays there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCENARIOS = Path(__file__).with_name("native_scenarios.py")


@pytest.mark.parametrize(
    ("ranks", "scenarios"),
    [
        (8, ("independent_and_native_ones_mixed", "a_loop_comes_back", "eight_runs_in_flight")),
        (8, ("groups_of_all_kinds", "in_place", "subnormals", "pins_copy_and_look_for_nan")),
        (8, ("data_is_moved", "who_is_not_connected_does_not_wait", "rows_that_are_not_there_fail_the_run")),
        (8, ("oracles_are_called_once_all_have_come", "an_absent_rank_ends_the_run_in_time")),
        (8, ("misuse_is_an_error_not_a_crash", "eight_runs_in_flight")),
        (64, ("independent_and_native_ones_mixed", "a_loop_comes_back", "an_absent_rank_ends_the_run_in_time")),
    ],
    ids=lambda x: str(x) if isinstance(x, int) else x[0],
)
def test_scenarios(ranks: int, scenarios: tuple[str, ...]) -> None:
    command = [sys.executable, str(SCENARIOS), str(ranks), *scenarios]
    child = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert child.returncode == 0, child.stdout + child.stderr[-6000:]
    assert child.stdout.split() == [word for name in scenarios for word in ("done", name)]
