"""`crossrank opt`: rewrite a module."""

from __future__ import annotations

import argparse
import json
import sys

from crossrank.cli.options import Commands, add_file, add_json, add_passes, add_ranks, chosen_passes
from crossrank.hlo.io import read_module, to_text, write_module
from crossrank.hlo.module import Module
from crossrank.hlo.statistics import Statistics
from crossrank.hlo.world import set_world
from crossrank.passes import PassResult, run_passes
from crossrank.report import terminal
from crossrank.report.statistics import show_statistics


def add(commands: Commands) -> None:
    """Add the command."""
    p = commands.add_parser(
        "opt",
        help="rewrite a module",
        description="Run passes over FILE and write the result: text to standard output, or to OUT by its suffix.",
    )
    add_file(p)
    add_passes(p, default="none")
    add_ranks(p)
    p.add_argument(
        "-o", "--output", metavar="OUT", help=".pb: protobuf, else text; .gz on top of either; - is standard output"
    )
    p.add_argument("--print-after-all", action="store_true", help="print the module after each pass (standard error)")
    p.add_argument("--stats", action="store_true", help="collectives and bytes before and after each pass")
    add_json(p)
    p.set_defaults(main=main)


def main(arguments: argparse.Namespace) -> int:
    """Rewrite; 0."""
    passes = chosen_passes(arguments)
    file = read_module(arguments.file)
    set_world(file, arguments.ranks)
    output = None if arguments.output == "-" else arguments.output
    statistics = Statistics(file.module)

    def after(result: PassResult, module: Module) -> None:
        statistics.add(result, module)
        if arguments.print_after_all:
            print(f"// after {result.spec}\n{to_text(file)}", file=sys.stderr)

    run_passes(file.module, passes, after)
    if arguments.remarks:
        terminal.remarks(statistics.remarks)
    if output is not None:
        write_module(file, output)
    if arguments.json:
        found = {"file": file.path, "output": output, **statistics.as_dict()}
        if output is None:
            found["module"] = to_text(file)
        print(json.dumps(found, indent=2))
        return 0
    if arguments.stats:
        show_statistics(statistics)
    if output is None:
        sys.stdout.write(to_text(file))
    return 0
