"""`crossrank`: the commands, their exit status, and plain words for what goes wrong.

0 right · 1 a difference or a finding · 2 bad usage or bad input · 3 the run itself failed · 130 interrupted ·
128 + N ended by signal N
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence

# XLA tells its own story on standard error otherwise, stack traces included; must be set before jaxlib loads
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from crossrank import __version__
from crossrank.cli import check, inspect, jax, opt, passes, run
from crossrank.errors import Ended, InputError, RunError
from crossrank.report import terminal

COMMANDS = (run, opt, inspect, check, jax, passes)
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
    if sys.stdout is None:  # closed by whoever started us
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    terminal.never_fail()
    parsed = parser().parse_args(arguments)
    gc.disable()  # what a command makes lives as long as it does, and large modules are many objects
    _end_on_signals()
    try:
        status: int = parsed.main(parsed)
        sys.stdout.flush()
    except InputError as error:
        return _fail(_placed(str(error), parsed), 2, parsed)
    except RunError as error:
        return _fail(_placed(str(error), parsed), 3, parsed)
    except KeyboardInterrupt:
        return _complain("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # whoever read our output has seen enough; Python would complain at exit otherwise
        _drop_output()
        return 0
    except OSError as error:
        _drop_output()
        return _complain(f"cannot write the output: {error.strerror}", 3)
    return status


def _placed(message: str, parsed: argparse.Namespace) -> str:
    """The message; where it begins with an instruction, behind the file that has it."""
    if not message.startswith("%"):
        return message  # commands without a file have such messages only
    return f"{parsed.files[0] if hasattr(parsed, 'files') else parsed.file}: {message}"


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end_on_signals() -> None:
    """Leave in order when somebody asks us to end: what a run keeps on disk goes, and its processes with it."""

    def leave(number: int, _frame: object) -> None:
        raise Ended(128 + number)

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, leave)


def _fail(message: str, status: int, parsed: argparse.Namespace) -> int:
    """Complain, and where JSON is awaited give it there too, if somebody takes it: programs read only that."""
    _complain(message, status)
    if getattr(parsed, "json", False):
        try:
            print(json.dumps({"error": message, "status": status}, indent=2), flush=True)
        except OSError:
            _drop_output()
    return status


def _complain(message: str, status: int) -> int:
    first, *rest = message.splitlines()
    terminal.error(first)
    for line in rest:
        terminal.hint(line)
    return status


if __name__ == "__main__":
    sys.exit(main())
