"""`crossrank check`: what is wrong or risky in a module, before it runs."""

from __future__ import annotations

import argparse
import json

from crossrank.check.modules import check_module
from crossrank.cli.options import Commands, add_file, add_json, add_ranks
from crossrank.hlo.io import read_module
from crossrank.hlo.world import set_world
from crossrank.report.findings import show_findings


def add(commands: Commands) -> None:
    """Add the command."""
    p = commands.add_parser(
        "check",
        help="find what is wrong or risky, before running",
        description="Check FILE: shapes, groups and pairs of collectives, channels without a partner, constants "
        "without their numbers. Exit status 1 where there is a finding.",
    )
    add_file(p)
    add_ranks(p)
    add_json(p)
    p.set_defaults(main=main)


def main(arguments: argparse.Namespace) -> int:
    """Check; 0 where nothing was found, else 1."""
    file = read_module(arguments.file)
    set_world(file, arguments.ranks)
    findings = check_module(file)
    if arguments.json:
        print(json.dumps({"file": file.path, "findings": [f.as_dict() for f in findings]}, indent=2))
    else:
        show_findings(file.path, findings)
    return 1 if findings else 0
