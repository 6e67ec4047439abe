"""The command `crossrank`, and `python -m crossrank`: little enough that nobody interrupts it before it can say so."""

import os
import signal
import sys

INTERRUPTED = 130


def main() -> int:
    """Import the command line and run it; returns its exit status."""
    usual = signal.getsignal(signal.SIGINT)
    try:
        if usual is signal.default_int_handler:  # else somebody wants it ignored
            # an exception in the middle of an import becomes another one, or crashes a native module
            signal.signal(signal.SIGINT, _end_at_once)
        from crossrank.cli.main import main as command_line

        signal.signal(signal.SIGINT, usual)
        return command_line()
    except KeyboardInterrupt:
        print("crossrank: interrupted", file=sys.stderr)
        return INTERRUPTED


def _end_at_once(_number: int, _frame: object) -> None:
    os.write(2, b"crossrank: interrupted\n")
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
