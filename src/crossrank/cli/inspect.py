"""`crossrank inspect`: every collective of a module, a kernel or a program."""

from __future__ import annotations

import argparse
import json
import sys

from crossrank.cli.doors import other_door
from crossrank.cli.options import Commands, add_file, add_json, add_ranks, check_options, only
from crossrank.doors import Door, read_source
from crossrank.hlo.inventory import inventory, totals
from crossrank.hlo.io import parse_module
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
    via = p.add_argument("--via", choices=["instr"], help="show the instructions that each collective becomes")
    only(Door.HLO, p, via)
    add_json(p)
    p.set_defaults(main=main)


def main(arguments: argparse.Namespace) -> int:
    """Inspect; 0."""
    source = read_source(arguments.file)
    check_options(arguments, source)
    if source.door is not Door.HLO:
        return other_door(source.door).inspect(arguments, source)
    file = parse_module(source.data, source.path)
    set_world(file, arguments.ranks)
    entries = inventory(file.module)
    instructions = []
    if arguments.via:
        from crossrank.cli import kernels  # a door of its own: loaded when it is asked for

        instructions = kernels.instructions_of(file.module)
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
        if arguments.via:
            found["instructions"] = instructions
        print(json.dumps(found, indent=2))
    elif arguments.via:
        sys.stdout.write("\n".join(f"// %{i['collective']}\n{i['text']}" for i in instructions))
    else:
        show_inventory(file, entries)
    return 0
