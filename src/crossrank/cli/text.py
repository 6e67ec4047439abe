"""`crossrank opt` on what is written as text: kernels and programs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from crossrank.doors import Source
from crossrank.errors import InputError
from crossrank.files import write_bytes
from crossrank.passes import Pass, PassResult, run_passes
from crossrank.report import terminal
from crossrank.report.statistics import show_statistics
from crossrank.statistics import Statistics, Totals


class Verified(Protocol):
    """What can say whether it can be."""

    def verify(self) -> None:
        """InputError where it cannot."""


IR = TypeVar("IR", bound=Verified)


def rewrite_text(
    arguments: argparse.Namespace,
    source: Source,
    ir: IR,
    passes: list[Pass[IR]],
    *,
    measure: Callable[[IR], Totals],
    key: str,
    example: str,
    written: Callable[[IR], str] = str,
) -> int:
    """Run passes and write the result; 0.

    Args:
        arguments: of the command.
        source: the file.
        ir: what it holds, which is changed.
        passes: what to run.
        measure: its collectives.
        key: what its text is called in JSON.
        example: a name for it that is right.
        written: its text for a file; standard output gets the short one.
    """
    output = None if arguments.output == "-" else arguments.output
    _check_output(output, source, example)
    statistics = Statistics(ir, measure)

    def after(result: PassResult, ir: IR) -> None:
        statistics.add(result, ir)
        if arguments.print_after_all:
            print(f"// after {result.spec}\n{ir}", file=sys.stderr)

    run_passes(ir, passes, after)
    ir.verify()
    if arguments.remarks:
        terminal.remarks(statistics.remarks)
    if output is not None:
        write_bytes(output, written(ir).encode())
    if arguments.json:
        found = {"file": source.path, "output": output, **statistics.as_dict()}
        print(json.dumps(found | ({key: str(ir)} if output is None else {}), indent=2))
        return 0
    if arguments.stats:
        show_statistics(statistics)
    if output is None:
        sys.stdout.write(str(ir))
    return 0


def _check_output(output: str | None, source: Source, example: str) -> None:
    """It is written under no name of an HLO module, and not over its own Python."""
    suffix = Path((output or "").removesuffix(".gz")).suffix
    if suffix in (".pb", ".hlo", ".mlir") and suffix != Path(example).suffix:
        raise InputError(
            f"{output} is a name for an HLO module, and {source.path} is {source.door}", f"name it {example}"
        )
    if output is not None and (suffix == ".py" or (source.python and _is_same(output, source.path))):
        raise InputError(f"{output} is a name for Python, and {source.door} is written as text", f"name it {example}")


def _is_same(one: str, other: str) -> bool:
    return Path(one).exists() and Path(other).exists() and Path(one).samefile(other)
