"""What the commands do with a program of the program level; loaded when one comes."""

from __future__ import annotations

import argparse
import json
from typing import Any

from crossrank.check.programs import check_program
from crossrank.cli.run import tell
from crossrank.cli.text import rewrite_text
from crossrank.doors import Source
from crossrank.findings import Finding
from crossrank.passes import Pass
from crossrank.program.cost.rails import read_rail
from crossrank.program.inventory import ProgramInventory, measure
from crossrank.program.run import ProgramOptions, run_program_source
from crossrank.report import terminal
from crossrank.report.program import show_choice, show_program_inventory, show_program_run


def run(arguments: argparse.Namespace, source: Source, passes: list[Pass[Any]]) -> int:
    """Run a program; 0 where all is as expected, 1 where something differs."""
    options = ProgramOptions(
        inputs=arguments.inputs,
        seed=arguments.seed,
        limit_s=arguments.limit,
        tolerance=arguments.tol,
        outputs=arguments.outputs,
        build=arguments.build,
        repeats=max(arguments.iters, 1),
    )
    with terminal.progress() as progress:
        report = run_program_source(source, arguments.ranks, arguments.rail, passes, options, progress)
    return tell(arguments, report, show_program_run)


def opt(arguments: argparse.Namespace, source: Source, passes: list[Pass[Any]]) -> int:
    """Rewrite a program; 0."""
    file, rails = read_rail(source, arguments.ranks, arguments.rail)
    if rails:
        show_choice(rails, file.rail, stderr=True)
    return rewrite_text(
        arguments,
        source,
        file.program.clone(),
        passes,
        measure=measure,
        key="program",
        example="PROGRAM.mlir",
        written=lambda rewritten: rewritten.text(locations=True),
    )


def inspect(arguments: argparse.Namespace, source: Source) -> int:
    """Inspect a program; 0."""
    file, rails = read_rail(source, arguments.ranks, arguments.rail)
    found = ProgramInventory.of(file, rails)
    if arguments.json:
        print(json.dumps(found.as_dict(), indent=2))
    else:
        show_program_inventory(found)
    return 0


def check(arguments: argparse.Namespace, source: Source) -> list[Finding]:
    """What is wrong with a program."""
    return check_program(source, arguments.ranks, arguments.rail)
