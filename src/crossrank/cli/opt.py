"""`crossrank opt`: rewrite a module, a kernel or a program."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from crossrank.cli.doors import other_door
from crossrank.cli.options import (
    Commands,
    add_files,
    add_json,
    add_passes,
    add_ranks,
    check_options,
    chosen_passes,
    only,
)
from crossrank.doors import Door, Source, read_sources
from crossrank.errors import InputError
from crossrank.hlo.execute.failure import extract_failure
from crossrank.hlo.execute.run import RunOptions
from crossrank.hlo.extract import extract, find_instruction
from crossrank.hlo.io import ModuleFile, parse_module, to_text, write_module, write_program
from crossrank.hlo.module import Module
from crossrank.hlo.program import Program, merged_results, run_passes_on_program
from crossrank.hlo.statistics import ModuleStatistics
from crossrank.hlo.world import check_program_world, set_world
from crossrank.passes import Pass, PassResult, all_passes, run_passes
from crossrank.report import terminal
from crossrank.report.statistics import show_statistics


def add(commands: Commands) -> None:
    """Add the command."""
    p = commands.add_parser(
        "opt",
        help="rewrite a module, a kernel or a program",
        description="Run passes over FILE and write the result: text to standard output, or to OUT by its suffix. "
        "Of a kernel or a program that is its text, which the commands read too. Several FILEs are the modules of "
        "several ranks, which passes may look at together.",
    )
    add_files(p)
    add_passes(p, default="none")
    add_ranks(p)
    p.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        help=".pb: protobuf, else text; .gz on top of either; - is standard output; of several FILEs: a folder",
    )
    p.add_argument("--print-after-all", action="store_true", help="print the module after each pass (standard error)")
    p.add_argument("--stats", action="store_true", help="collectives and bytes before and after each pass")
    extract = p.add_argument(
        "--extract",
        metavar="NAME",
        help="cut out a small module that runs by itself: instruction NAME as the passes leave it, or what pass NAME "
        "fails on",
    )
    only(Door.HLO, p, extract)
    add_json(p)
    p.set_defaults(main=main)


def main(arguments: argparse.Namespace) -> int:
    """Rewrite; 0."""
    passes = chosen_passes(arguments)
    sources = read_sources(arguments.files)
    check_options(arguments, sources[0])
    if sources[0].door is not Door.HLO:
        return other_door(sources[0].door).opt(arguments, sources[0], passes)
    if len(sources) > 1:
        return _several(arguments, sources, passes)
    file = parse_module(sources[0].data, sources[0].path)
    set_world(file, arguments.ranks)
    output = None if arguments.output == "-" else arguments.output
    if arguments.extract in all_passes():
        passes = _cut_failure(file, passes, arguments.extract)
    statistics = ModuleStatistics(file.module)

    def after(result: PassResult, module: Module) -> None:
        statistics.add(result, module)
        if arguments.print_after_all:
            print(f"// after {result.spec}\n{to_text(file)}", file=sys.stderr)

    run_passes(file.module, passes, after)
    if arguments.extract is not None and arguments.extract not in all_passes():
        file.module = extract(file.module, [find_instruction(file.module, arguments.extract)])
    if arguments.remarks:
        terminal.remarks(statistics.remarks)
    if output is not None:
        if file.form == "mlir" and Path(output).exists() and Path(output).samefile(file.path):
            raise InputError(f"{output} is StableHLO, and would become HLO", "give another name: -o OUT.hlo")
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


def _several(arguments: argparse.Namespace, sources: list[Source], passes: list[Pass[Any]]) -> int:
    """Rewrite the modules of several ranks; 0."""
    for option, given in (("--ranks", arguments.ranks), ("--extract", arguments.extract)):
        if given is not None:
            raise InputError(f"{option} takes one file, and there are {len(arguments.files)}", "leave it away")
    if arguments.output in (None, "-"):
        raise InputError("several files are written into a folder", "name it: -o DIR")
    files = [parse_module(s.data, s.path) for s in sources]
    check_program_world(files)
    program = Program(tuple(f.module for f in files), tuple(f.path for f in files))
    statistics = [ModuleStatistics(f.module) for f in files]

    def after(rank: int, result: PassResult) -> None:
        statistics[rank].add(result, files[rank].module)
        if arguments.print_after_all:
            print(f"// {program.title(rank)} after {result.spec}\n{to_text(files[rank])}", file=sys.stderr)

    results = merged_results(program, run_passes_on_program(program, passes, after))
    if arguments.remarks:
        terminal.remarks(r for p in results for r in p.remarks)
    written = write_program(files, arguments.output)
    if arguments.json:
        modules = [
            {"file": f.path, "output": path, **s.as_dict()}
            for f, path, s in zip(files, written, statistics, strict=True)
        ]
        print(json.dumps({"files": arguments.files, "output": arguments.output, "modules": modules}, indent=2))
    elif arguments.stats:
        for rank, s in enumerate(statistics):
            show_statistics(s, title=program.title(rank))
    return 0


def _cut_failure(file: ModuleFile, passes: list[Pass[Any]], name: str) -> list[Pass[Any]]:
    """Put what the pass of that name fails on into ``file``; returns the passes that are left to run: none."""
    with terminal.progress() as progress:
        options = RunOptions(ranks=None, iters=0)
        file.module, said = extract_failure(file, passes, name, options, lambda what: progress({"stage": what}))
    terminal.warn(f"{said}; `crossrank run --passes {name}` on the extracted module shows it")
    return []
