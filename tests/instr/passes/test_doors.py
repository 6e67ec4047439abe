"""Passes of one door are not run on what another door reads."""

from __future__ import annotations

import pytest

from crossrank.errors import InputError
from crossrank.hlo.program import Program, run_passes_on_program
from crossrank.passes import all_passes, describe_pass, parse_passes, pipeline, run_passes

from ...support import parse
from .kernels import kernel_of


def test_every_pass_says_what_it_works_on() -> None:
    found = {name: describe_pass(cls)["works_on"] for name, cls in all_passes().items()}
    assert {name for name, works_on in found.items() if works_on == "kernels"} >= {
        "lower-local-collectives",
        "insert-ptcom",
    }
    assert set(found.values()) >= {"kernels", "HLO modules"}


def test_a_pass_on_kernels_refuses_a_module() -> None:
    module = parse("  ROOT p = f32[8] parameter(0)").module
    for run in (
        lambda: run_passes(module, pipeline("local")),
        lambda: run_passes_on_program(Program((module,)), pipeline("local")),
    ):
        with pytest.raises(InputError, match=r"^pass lower-local-collectives works on kernels, not on HLO modules\n"):
            run()


def test_a_pass_on_modules_refuses_a_kernel() -> None:
    with pytest.raises(InputError, match=r"^pass inline-calls works on HLO modules, not on kernels\n"):
        run_passes(kernel_of(lambda b, core: None), parse_passes("lower-local-collectives,inline-calls"))
