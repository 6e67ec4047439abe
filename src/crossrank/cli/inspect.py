"""`crossrank inspect`: every collective of a module."""

from __future__ import annotations

import argparse
import json

from crossrank.cli.options import Commands, add_file, add_json, add_ranks
from crossrank.hlo.inventory import inventory, totals
from crossrank.hlo.io import read_module
from crossrank.hlo.world import set_world
from crossrank.report.inventory import show_inventory


def add(commands: Commands) -> None:
    """Add the command."""
    p = commands.add_parser(
        "inspect",
        help="list every collective: kind, type, bytes, groups, mode, source line",
        description="List every collective of FILE, in all computations, and their totals.",
    )
    add_file(p)
    add_ranks(p)
    add_json(p)
    p.set_defaults(main=main)


def main(arguments: argparse.Namespace) -> int:
    """Inspect; 0."""
    file = read_module(arguments.file)
    set_world(file, arguments.ranks)
    entries = inventory(file.module)
    if arguments.json:
        config = file.module.config
        found = {
            "file": file.path,
            "module": file.module.name,
            "ranks": file.module.world,
            "replica_count": config.replica_count,
            "num_partitions": config.num_partitions,
            "collectives": [e.as_dict() for e in entries],
            "totals": totals(entries),
        }
        print(json.dumps(found, indent=2))
    else:
        show_inventory(file, entries)
    return 0
