"""`crossrank passes`: the list of passes and pipelines, or one of them in full."""

from __future__ import annotations

import argparse
import json

from crossrank.cli.options import Commands, add_json
from crossrank.passes import all_passes, all_pipelines, describe_pass, find_pass, pipeline
from crossrank.report.passes import show_pass, show_passes, show_pipeline


def add(commands: Commands) -> None:
    """Add the command."""
    p = commands.add_parser(
        "passes",
        help="list the passes and pipelines, or explain one",
        description="The list of passes and pipelines; or, with NAME, what that pass matches, makes and declines, "
        "or the passes of that pipeline.",
    )
    p.add_argument("name", metavar="NAME", nargs="?", help="a pass or a pipeline")
    add_json(p)
    p.set_defaults(main=main)


def main(arguments: argparse.Namespace) -> int:
    """List or explain; 0."""
    pipelines = all_pipelines()
    if arguments.name in pipelines:
        passes = [{"name": p.name, "spec": str(p)} for p in pipeline(arguments.name)]
        if arguments.json:
            print(json.dumps({"name": arguments.name, "passes": passes}, indent=2))
        else:
            show_pipeline(arguments.name, passes)
        return 0
    if arguments.name:
        described = describe_pass(find_pass(arguments.name))
        if arguments.json:
            print(json.dumps(described, indent=2))
        else:
            show_pass(described)
        return 0
    listed = [describe_pass(cls) for cls in all_passes().values()]
    if arguments.json:
        print(json.dumps({"passes": listed, "pipelines": pipelines}, indent=2))
    else:
        show_passes(listed, {name: [str(p) for p in pipeline(name)] for name in pipelines})
    return 0
