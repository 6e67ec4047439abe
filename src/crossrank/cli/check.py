"""`crossrank check`: what is wrong or risky in a module or a kernel, before it runs."""

from __future__ import annotations

import argparse
import json

from crossrank.check.modules import check_module
from crossrank.cli.doors import other_door
from crossrank.cli.options import Commands, add_file, add_json, add_ranks, check_options
from crossrank.doors import Door, read_source
from crossrank.hlo.io import parse_module
from crossrank.hlo.world import set_world
from crossrank.report.findings import show_findings


def add(commands: Commands) -> None:
    """Add the command."""
    p = commands.add_parser(
        "check",
        help="find what is wrong or risky, before running",
        description="Check FILE: shapes, groups and pairs of collectives, channels without a partner, constants "
        "without their numbers; of a kernel, what no core can do; of a program, what its parser and passes refuse, "
        "and tensors that are written where nobody says so, or read under a name that a call took over. "
        "Exit status 1 where there is a finding.",
    )
    add_file(p)
    add_ranks(p)
    add_json(p)
    p.set_defaults(main=main)


def main(arguments: argparse.Namespace) -> int:
    """Check; 0 where nothing was found, else 1."""
    source = read_source(arguments.file)
    check_options(arguments, source)
    if source.door is not Door.HLO:
        findings = other_door(source.door).check(arguments, source)
    else:
        file = parse_module(source.data, source.path)
        set_world(file, arguments.ranks)
        findings = check_module(file)
    if arguments.json:
        print(json.dumps({"file": source.path, "findings": [f.as_dict() for f in findings]}, indent=2))
    else:
        show_findings(source.path, findings)
    return 1 if findings else 0
