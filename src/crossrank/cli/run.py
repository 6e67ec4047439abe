"""`crossrank run`: a module or a kernel and its rewrite, side by side on N ranks, compared value by value."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from crossrank.cli.doors import other_door
from crossrank.cli.options import (
    DEFAULT_PIPELINES,
    VIA,
    Commands,
    add_files,
    add_json,
    add_passes,
    add_ranks,
    add_via,
    check_options,
    chosen_passes,
    count,
    only,
    positive,
    seconds,
)
from crossrank.doors import Door, read_sources
from crossrank.hlo.execute.run import RunOptions, run_module
from crossrank.hlo.execute.several import run_program
from crossrank.hlo.io import parse_module
from crossrank.report import terminal
from crossrank.report.run import show_run


def add(commands: Commands) -> None:
    """Add the command."""
    p = commands.add_parser(
        "run",
        help="run a module, a kernel or a program on N ranks and compare every value",
        description="Run FILE as it is and as the passes make it, on N ranks of this machine, and compare every output "
        "of every rank bit for bit; a kernel's with what its file expects too. A program, which passes make fit to "
        "run, is run several times, and compared with what its file expects. Several FILEs are the modules of several "
        "ranks, one each.",
    )
    add_files(p)
    add_passes(p, default="default; of a kernel local, of a program program")
    add_ranks(p)
    p.add_argument(
        "--inputs",
        metavar="NPZ",
        help="parameters p0, p1, …, each [ranks, …] (of several FILEs: r0.p0, r0.p1, …, r1.p0, …; of a program by its "
        "parameters' names); outputs o0, … (expected_NAME) are compared too",
    )
    p.add_argument("--outputs", metavar="NPZ", help="save what the rewritten module gave")
    p.add_argument("--seed", type=count, default=0, help="for drawn inputs (default: 0)")
    iters = p.add_argument(
        "--iters",
        type=count,
        default=5,
        metavar="N",
        help="timed runs of each module (default: 5; 0: none), or runs of a program",
    )
    via = add_via(p)
    p.add_argument(
        "--limit",
        type=seconds,
        default=60.0,
        metavar="S",
        help="seconds a rank may wait for another; of a program, seconds in which nothing is done (60)",
    )
    p.add_argument(
        "--tol", type=positive, metavar="T", help="compare within T of an output's largest value, not by bits"
    )
    verify_each = p.add_argument(
        "--verify-each",
        action="store_true",
        help="compare all values after every pass, and every collective's operands and results with the oracle",
    )
    fresh = p.add_argument(
        "--fresh-pages", action="store_true", help="give freed memory back to the system between runs"
    )
    build = p.add_argument("--build", metavar="DIR", help="write the generated sources of a program there")
    only(Door.PROGRAM, p, build)
    only((Door.HLO, Door.PROGRAM), p, iters)
    only((Door.HLO, Door.INSTR), p, via)
    for option in (verify_each, fresh):
        only(Door.HLO, p, option)
    p.add_argument("--test-absent-rank", type=int, help=argparse.SUPPRESS)
    add_json(p)
    p.set_defaults(main=main)


def main(arguments: argparse.Namespace) -> int:
    """Run; 0 where all is equal, 1 where something differs."""
    sources = read_sources(arguments.files)
    check_options(arguments, sources[0])
    passes = chosen_passes(arguments, DEFAULT_PIPELINES[sources[0].door])
    if sources[0].door is not Door.HLO:
        return other_door(sources[0].door).run(arguments, sources[0], passes)
    files = [parse_module(s.data, s.path) for s in sources]
    options = RunOptions(
        ranks=arguments.ranks,
        backend=VIA[arguments.via],
        inputs=arguments.inputs,
        seed=arguments.seed,
        iters=arguments.iters,
        limit_s=arguments.limit,
        tolerance=arguments.tol,
        outputs=arguments.outputs,
        verify_each=arguments.verify_each,
        retain_pages=not arguments.fresh_pages,
        absent_rank=arguments.test_absent_rank,
    )
    with terminal.progress() as progress:
        one = len(files) == 1
        report = (
            run_module(files[0], passes, options, progress) if one else run_program(files, passes, options, progress)
        )
    return tell(arguments, report, show_run)


def tell(arguments: argparse.Namespace, report: Any, show: Callable[[Any], None]) -> int:
    """Say what came of a run, whichever door it went by; 0 where all is equal, else 1."""
    if arguments.remarks:
        terminal.remarks(r for p in report.passes for r in p.remarks)
    if arguments.json:
        print(json.dumps(report.as_dict(), indent=2))
    else:
        show(report)
    return 0 if report.equal else 1
