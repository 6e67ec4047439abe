"""Options that several commands share."""

from __future__ import annotations

import argparse
import math
from typing import Any

from crossrank.doors import Door, Source
from crossrank.errors import InputError
from crossrank.passes import Pass, parse_passes, pipeline, skip

FILE_HELP = (
    "HLO text, an HLO .pb, or StableHLO/MHLO (.mlir); a Python file that defines a kernel or a program, or the text of "
    "one; .gz works; - is standard input"
)
DEFAULT_PIPELINES = {Door.HLO: "default", Door.INSTR: "local", Door.PROGRAM: "program"}
"""What `run` does to a program where the command line does not say."""


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
    """The number of ranks, for files that do not say, and of the cores of each."""
    parser.add_argument("--ranks", type=count, metavar="N", help="number of ranks, for a file that does not say")
    lnc = parser.add_argument("--lnc", type=positive_count, metavar="L", help="cores of a rank, of a kernel")
    only(Door.INSTR, parser, lnc)
    rail = parser.add_argument(
        "--rail",
        metavar="NAME",
        help="which program, of a file that defines several; auto: the cheapest, or all (check)",
    )
    only(Door.PROGRAM, parser, rail)


def only(doors: Door | tuple[Door, ...], parser: argparse.ArgumentParser, option: argparse.Action) -> None:
    """An option of files of some kinds; given with another kind `check_options` refuses it."""
    of = doors if isinstance(doors, tuple) else (doors,)
    parser.set_defaults(only=(*(parser.get_default("only") or ()), (of, option)))


def check_options(arguments: argparse.Namespace, source: Source) -> None:
    """InputError where an option is given that is of no use to such a file."""
    for doors, option in arguments.only:
        if source.door not in doors and getattr(arguments, option.dest) != option.default:
            kinds = " or ".join(doors)
            raise InputError(f"{option.option_strings[0]} is for {kinds}, and {source.path} is {source.door}")


VIA = {"kernels": "kernels", "oracle": "oracle", "instr": "crossrank.bridge.instruction_backend:InstructionBackend"}
"""What may compute converted collectives → the name of the backend."""


def add_via(parser: argparse.ArgumentParser) -> argparse.Action:
    """Who computes converted collectives; ``--backend`` is the same option."""
    return parser.add_argument(
        "--via",
        "--backend",
        dest="via",
        choices=VIA,
        default="kernels",
        help="who computes converted collectives: compiled kernels (the default), their NumPy meaning, or the "
        "interpreter of instructions",
    )


def add_passes(parser: argparse.ArgumentParser, default: str) -> None:
    """Which passes run; ``default`` says in words which do where nothing is said."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--passes", metavar="A,B{K=V}", help="exactly these passes, in this order")
    which.add_argument("--pipeline", metavar="NAME", help=f"a named pipeline (default: {default})")
    parser.add_argument("--skip-pass", action="append", default=[], metavar="NAME", help="leave this pass out")
    parser.add_argument("--remarks", action="store_true", help="say what each pass did and declined (standard error)")


def chosen_passes(arguments: argparse.Namespace, default: str = "none") -> list[Pass[Any]]:
    """The passes that the command line asks for; those of the pipeline ``default`` where it does not."""
    given = arguments.passes
    passes = pipeline(arguments.pipeline or default) if given is None else parse_passes(given)
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


def positive_count(text: str) -> int:
    """An argument that is a whole number above zero."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is below one")
    return value


def count(text: str) -> int:
    """An argument that is a whole number, zero or more."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is below zero")
    return value


Commands = Any  # argparse does not export the type of its subparsers
