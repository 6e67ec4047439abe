"""`crossrank`: the commands, their exit status, and plain words for what goes wrong.

0 right · 1 a difference or a finding · 2 bad usage or bad input · 3 the run itself failed · 130 interrupted
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence

# XLA tells its own story on standard error otherwise, stack traces included; must be set before jaxlib loads
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from crossrank import __version__
from crossrank.cli import check, inspect, opt, passes, run
from crossrank.errors import InputError, RunError
from crossrank.report import terminal

COMMANDS = (run, opt, inspect, check, passes)
INTERRUPTED = 130


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(prog="crossrank", description="A compiler and runtime for collective communication.")
    top.add_argument("--version", action="version", version=f"crossrank {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status."""
    parsed = parser().parse_args(arguments)
    gc.disable()  # what a command makes lives as long as it does, and large modules are many objects
    try:
        status: int = parsed.main(parsed)
        sys.stdout.flush()
    except InputError as error:
        return _complain(str(error), 2)
    except RunError as error:
        return _complain(str(error), 3)
    except KeyboardInterrupt:
        return _complain("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # whoever read our output has seen enough; Python would complain at exit otherwise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


def _complain(message: str, status: int) -> int:
    first, *rest = message.splitlines()
    terminal.error(first)
    for line in rest:
        terminal.hint(line)
    return status


if __name__ == "__main__":
    sys.exit(main())
