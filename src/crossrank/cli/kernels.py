"""What the commands do with a kernel; loaded when one comes."""

from __future__ import annotations

import argparse
import json
from typing import Any

from crossrank.bridge.instructions import extensions_of, kernels_of
from crossrank.check.kernels import check_kernel
from crossrank.cli.run import tell
from crossrank.cli.text import rewrite_text
from crossrank.doors import Source
from crossrank.errors import InputError
from crossrank.findings import Finding
from crossrank.hlo.module import Module
from crossrank.instr.execute import KernelOptions, run_kernel_file
from crossrank.instr.interpret.machine import BACKENDS
from crossrank.instr.inventory import inventory, measure, totals
from crossrank.nki.files import read_kernel_file
from crossrank.passes import Pass
from crossrank.report import terminal
from crossrank.report.kernel import show_kernel_inventory, show_kernel_run


def run(arguments: argparse.Namespace, source: Source, passes: list[Pass[Any]]) -> int:
    """Run a kernel; 0 where all is equal, 1 where something differs."""
    if arguments.via not in BACKENDS:
        raise InputError(
            f"--via {arguments.via} is for an HLO module: a kernel is interpreted anyway",
            f"its collectives are computed via {' or '.join(BACKENDS)}",
        )
    options = KernelOptions(
        backend=arguments.via,
        inputs=arguments.inputs,
        seed=arguments.seed,
        limit_s=arguments.limit,
        tolerance=arguments.tol,
        outputs=arguments.outputs,
    )
    with terminal.progress() as progress:
        file = read_kernel_file(source, arguments.ranks, arguments.lnc, arguments.seed)
        report = run_kernel_file(file, passes, options, progress)
    return tell(arguments, report, show_kernel_run)


def opt(arguments: argparse.Namespace, source: Source, passes: list[Pass[Any]]) -> int:
    """Rewrite a kernel; 0."""
    kernel = read_kernel_file(source, arguments.ranks, arguments.lnc).kernel
    return rewrite_text(arguments, source, kernel, passes, measure=measure, key="kernel", example="KERNEL.instr")


def inspect(arguments: argparse.Namespace, source: Source) -> int:
    """Inspect a kernel; 0."""
    file = read_kernel_file(source, arguments.ranks, arguments.lnc)
    entries = inventory(file.kernel)
    if arguments.json:
        found = {
            "file": file.path,
            "kernel": file.kernel.name,
            "ranks": file.kernel.world_size,
            "lnc": file.kernel.lnc,
            "collectives": [e.as_dict() for e in entries],
            "totals": totals(entries),
        }
        print(json.dumps(found, indent=2))
    else:
        show_kernel_inventory(file, entries)
    return 0


def instructions_of(module: Module) -> list[dict[str, Any]]:
    """What each collective of an HLO module becomes: ``collective, instructions, extensions, text``."""
    return [
        {
            "collective": name,
            "instructions": [e.as_dict() for e in inventory(kernel)],
            "extensions": extensions_of(kernel),
            "text": str(kernel),
        }
        for name, kernel in kernels_of(module)
    ]


def check(arguments: argparse.Namespace, source: Source) -> list[Finding]:
    """What is wrong with a kernel."""
    return check_kernel(source, arguments.ranks, arguments.lnc)
