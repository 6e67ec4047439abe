"""Options that several commands share."""

from __future__ import annotations

import argparse
import math
from typing import Any

from crossrank.passes import Pass, parse_passes, pipeline, skip

FILE_HELP = "HLO text, an HLO .pb, or StableHLO/MHLO (.mlir); .gz works; - is standard input"


def add_file(parser: argparse.ArgumentParser) -> None:
    """The module to work on."""
    parser.add_argument("file", metavar="FILE", help=FILE_HELP)


def add_files(parser: argparse.ArgumentParser) -> None:
    """The module to work on, or those of all ranks."""
    parser.add_argument(
        "files", metavar="FILE", nargs="+", help=FILE_HELP + "; several are the modules of several ranks, in this order"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Output for programs."""
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else on standard output")


def add_ranks(parser: argparse.ArgumentParser) -> None:
    """The number of ranks, for files that do not say."""
    parser.add_argument("--ranks", type=count, metavar="N", help="number of ranks, for a file that does not say")


VIA = {"kernels": "kernels", "oracle": "oracle", "instr": "crossrank.bridge.instructions:InstructionBackend"}
"""What may compute converted collectives → the name of the backend."""


def add_via(parser: argparse.ArgumentParser) -> None:
    """Who computes converted collectives; ``--backend`` is the same option."""
    parser.add_argument(
        "--via",
        "--backend",
        dest="via",
        choices=VIA,
        default="kernels",
        help="who computes converted collectives: compiled kernels (the default), their NumPy meaning, or the "
        "interpreter of instructions",
    )


def add_passes(parser: argparse.ArgumentParser, default: str) -> None:
    """Which passes run."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--passes", metavar="A,B{K=V}", help="exactly these passes, in this order")
    which.add_argument("--pipeline", metavar="NAME", help=f"a named pipeline (default: {default})")
    parser.add_argument("--skip-pass", action="append", default=[], metavar="NAME", help="leave this pass out")
    parser.add_argument("--remarks", action="store_true", help="say what each pass did and declined (standard error)")
    parser.set_defaults(default_pipeline=default)


def chosen_passes(arguments: argparse.Namespace) -> list[Pass[Any]]:
    """The passes that the command line asks for."""
    if arguments.passes is not None:
        passes = parse_passes(arguments.passes)
    else:
        passes = pipeline(arguments.pipeline or arguments.default_pipeline)
    return skip(passes, arguments.skip_pass)


def positive(text: str) -> float:
    """An argument that is a number above zero."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not above zero")
    return value


LONGEST_S = 86_400.0


def seconds(text: str) -> float:
    """An argument that is a time in seconds, a day at the most."""
    value = float(text)
    if not 0 < value <= LONGEST_S:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and {LONGEST_S:.0f} seconds")
    return value


def count(text: str) -> int:
    """An argument that is a whole number, zero or more."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is below zero")
    return value


Commands = Any  # argparse does not export the type of its subparsers
