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
from crossrank.program.files import read_program_file
from crossrank.program.inventory import functions, inventory, measure, totals, windows
from crossrank.program.run import ProgramOptions, run_program_file
from crossrank.report import terminal
from crossrank.report.program import show_program_inventory, show_program_run


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
        file = read_program_file(source, arguments.ranks, arguments.rail)
        report = run_program_file(file, passes, options, progress)
    return tell(arguments, report, show_program_run)


def opt(arguments: argparse.Namespace, source: Source, passes: list[Pass[Any]]) -> int:
    """Rewrite a program; 0."""
    program = read_program_file(source, arguments.ranks, arguments.rail).program.clone()
    return rewrite_text(
        arguments,
        source,
        program,
        passes,
        measure=measure,
        key="program",
        example="PROGRAM.mlir",
        written=lambda rewritten: rewritten.text(locations=True),
    )


def inspect(arguments: argparse.Namespace, source: Source) -> int:
    """Inspect a program; 0."""
    file = read_program_file(source, arguments.ranks, arguments.rail)
    entries = inventory(file.program)
    if arguments.json:
        found = {
            "file": file.path,
            "program": file.program.name,
            "rail": file.rail,
            "ranks": file.ranks,
            "functions": functions(file.program),
            "windows": windows(file.program),
            "collectives": [e.as_dict() for e in entries],
            "totals": totals(entries),
        }
        print(json.dumps(found, indent=2))
    else:
        show_program_inventory(file, entries)
    return 0


def check(arguments: argparse.Namespace, source: Source) -> list[Finding]:
    """What is wrong with a program."""
    return check_program(source, arguments.ranks, arguments.rail)
