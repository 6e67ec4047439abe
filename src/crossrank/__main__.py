"""The command `crossrank`, and `python -m crossrank`: little enough that nobody interrupts it before it can say so."""

import sys


def main() -> int:
    """Import the command line and run it; returns its exit status."""
    try:
        from crossrank.cli.main import main as command_line

        return command_line()
    except KeyboardInterrupt:
        print("crossrank: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
