"""`crossrank inspect`: every collective of a module or a kernel."""

from __future__ import annotations

import argparse
import json
import sys

from crossrank.bridge.instructions import extensions_of, kernels_of
from crossrank.cli.options import Commands, add_file, add_json, add_ranks, check_options, only
from crossrank.doors import Door, Source, read_source
from crossrank.hlo.inventory import inventory, totals
from crossrank.hlo.io import parse_module
from crossrank.hlo.world import set_world
from crossrank.instr import inventory as instructions
from crossrank.nki.files import read_kernel_file
from crossrank.report.inventory import show_inventory
from crossrank.report.kernel import show_kernel_inventory


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
    if source.door is Door.INSTR:
        return _kernel(arguments, source)
    file = parse_module(source.data, source.path)
    set_world(file, arguments.ranks)
    entries = inventory(file.module)
    kernels = kernels_of(file.module) if arguments.via else []
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
            found["instructions"] = [
                {
                    "collective": name,
                    "instructions": [e.as_dict() for e in instructions.inventory(kernel)],
                    "extensions": extensions_of(kernel),
                    "text": str(kernel),
                }
                for name, kernel in kernels
            ]
        print(json.dumps(found, indent=2))
    elif arguments.via:
        sys.stdout.write("\n".join(f"// %{name}\n{kernel}" for name, kernel in kernels))
    else:
        show_inventory(file, entries)
    return 0


def _kernel(arguments: argparse.Namespace, source: Source) -> int:
    """Inspect a kernel; 0."""
    file = read_kernel_file(source, arguments.ranks, arguments.lnc)
    entries = instructions.inventory(file.kernel)
    if arguments.json:
        found = {
            "file": file.path,
            "kernel": file.kernel.name,
            "ranks": file.kernel.world_size,
            "lnc": file.kernel.lnc,
            "collectives": [e.as_dict() for e in entries],
            "totals": instructions.totals(entries),
        }
        print(json.dumps(found, indent=2))
    else:
        show_kernel_inventory(file, entries)
    return 0
