"""The hook in JAX, in child processes: the number of devices is fixed before JAX is loaded; a crash stays there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCENARIOS = Path(__file__).with_name("hook_scenarios.py")


@pytest.mark.parametrize(
    "scenarios",
    [
        ("types_of_all_kinds", "what_xla_lacks", "a_module_for_replicas"),
        ("programs_of_all_forms",),
        (
            "only_while_it_is_there",
            "one_within_another",
            "a_failure_of_ours_is_not_the_programs",
            "what_cannot_be_leaves_nothing_behind",
            "what_xla_does_not_compile_anyway",
            "four_bits_are_bytes_by_then",
            "an_absent_rank_ends_the_run_in_time",
            "the_persistent_cache_stays_away",
            "several_processes_are_said",
        ),
    ],
    ids=lambda names: names[0],
)
def test_scenarios(scenarios: tuple[str, ...]) -> None:
    command = [sys.executable, str(SCENARIOS), *scenarios]
    child = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert child.returncode == 0, child.stdout + child.stderr[-6000:]
    assert child.stdout.split() == [word for name in scenarios for word in ("done", name)]
