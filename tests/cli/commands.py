"""Commands run within the test's own process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from crossrank.cli.main import main


def crossrank(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run a command: its exit status, and what it wrote on either stream."""
    status = main(arguments)
    out, err = capsys.readouterr()
    return status, out, err


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """The JSON of a command that did not fail."""
    status, out, err = crossrank(capsys, *arguments, "--json")
    assert status in (0, 1), err
    found: dict[str, Any] = json.loads(out)
    return found
