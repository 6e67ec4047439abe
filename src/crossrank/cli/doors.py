"""The commands' code for kernels and for programs; loaded when one comes."""

from __future__ import annotations

import argparse
from typing import Any, Protocol

from crossrank.doors import Door, Source
from crossrank.findings import Finding
from crossrank.passes import Pass


class DoorCommands(Protocol):
    """What the commands do with files of one door; the numbers are exit statuses."""

    def run(self, arguments: argparse.Namespace, source: Source, passes: list[Pass[Any]]) -> int:
        """Run it."""

    def opt(self, arguments: argparse.Namespace, source: Source, passes: list[Pass[Any]]) -> int:
        """Rewrite it."""

    def inspect(self, arguments: argparse.Namespace, source: Source) -> int:
        """Show what it says between ranks."""

    def check(self, arguments: argparse.Namespace, source: Source) -> list[Finding]:
        """What is wrong with it."""


def other_door(door: Door) -> DoorCommands:
    """The commands for files of a door that is not HLO's."""
    if door is Door.INSTR:
        from crossrank.cli import kernels  # so that an HLO module does not load what it has no use for

        return kernels
    from crossrank.cli import programs

    return programs
