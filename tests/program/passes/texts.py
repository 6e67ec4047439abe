"""Programs as text, with short names for the types, and what passes make of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from crossrank.errors import InputError
from crossrank.passes import PassResult, parse_passes, run_passes
from crossrank.program.program import Program, read_program

SHORT = {
    "!t": "!program.tensor<[4, 64], f32>",
    "!u": "!program.tensor<[?, 64], f32>",
    "!w": "!program.dist_tensor<[4, 64], f32>",
    "!s": "!program.dist_tensor<[4, 1], s32>",
    "!tile": "!program.tile<[4, 64], f32, Vec>",
    "!c": "!program.comm_ctx",
    "!task": "!program.task",
    "HOST": 'attributes {program.level = "HOST", program.role = "Orchestrator"}',
    "CHIP": 'attributes {program.type = "Orchestration"}',
    "WORKER": 'attributes {program.level = "HOST", program.role = "SubWorker"',
    "SPMD": 'attributes {program.type = "Spmd"}',
    "KERNEL": 'attributes {program.type = "InCore"}',
    "(In)": '{program.direction = "In"}',
    "(Out)": '{program.direction = "Out"}',
    "(InOut)": '{program.direction = "InOut"}',
}


def program(*functions: str) -> Program:
    """The program of some functions; ``%x: !t (Out)`` is a parameter named x that is written."""
    return read_program("".join(f"func.func {_long(f)}\n" for f in functions))


def _long(text: str) -> str:
    named = re.sub(
        r"%(\w+): (!?[\w.]+) \((In|Out|InOut)\)", r'%\1: \2 {program.name = "\1", program.direction = "\3"}', text
    )
    return re.sub(r"![a-z]+\b(?![.<])|\b[A-Z]{4,}\b|\((?:In|Out|InOut)\)", lambda m: SHORT.get(m[0], m[0]), named)


def run(subject: Program, passes: str) -> list[PassResult]:
    """Run passes on a program, in place; what is left can be written and read back."""
    results = run_passes(subject, parse_passes(passes))
    assert read_program(subject.text(locations=True)).module.is_structurally_equivalent(subject.module)
    return results


def becomes(subject: Program, passes: str, *functions: str) -> list[PassResult]:
    """Run passes on a program; it is then the one of these functions, and running them again changes nothing."""
    results = run(subject, passes)
    found, wanted = subject.clone(), program(*functions)
    found.module.attributes.clear()
    assert found.module.is_structurally_equivalent(wanted.module), f"\n{found}\nis not\n{wanted}"
    assert not any(r.changed for r in run(subject, passes))
    return results


def refused(subject: Program, passes: str, *lines: str) -> None:
    """Running passes fails with these lines."""
    with pytest.raises(InputError) as caught:
        run_passes(subject, parse_passes(passes))
    assert str(caught.value).splitlines() == list(lines)


def reasons(results: Sequence[PassResult]) -> list[str]:
    """The remarks of all, without the pass."""
    return [str(r).partition(": ")[2] for result in results for r in result.remarks]
