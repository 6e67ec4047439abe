"""`crossrank passes`: the list of passes and pipelines, or one pass in full."""

from __future__ import annotations

import argparse
import json

from crossrank.cli.options import Commands, add_json
from crossrank.passes import all_passes, all_pipelines, describe_pass, find_pass
from crossrank.report.passes import show_pass, show_passes


def add(commands: Commands) -> None:
    """Add the command."""
    p = commands.add_parser(
        "passes",
        help="list the passes and pipelines, or explain one pass",
        description="The list of passes and pipelines; or, with NAME, what that pass matches, makes and declines.",
    )
    p.add_argument("name", metavar="NAME", nargs="?", help="one pass")
    add_json(p)
    p.set_defaults(main=main)


def main(arguments: argparse.Namespace) -> int:
    """List or explain; 0."""
    if arguments.name:
        described = describe_pass(find_pass(arguments.name))
        if arguments.json:
            print(json.dumps(described, indent=2))
        else:
            show_pass(described)
        return 0
    listed = [describe_pass(cls) for cls in all_passes().values()]
    if arguments.json:
        print(json.dumps({"passes": listed, "pipelines": all_pipelines()}, indent=2))
    else:
        show_passes(listed, all_pipelines())
    return 0
