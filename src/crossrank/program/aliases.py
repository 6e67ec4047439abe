"""Answers ``import pypto`` with this package."""

from __future__ import annotations

import sys
from types import ModuleType

from crossrank.errors import InputError


def install() -> None:
    """Make ``import pypto.language as pl``, ``from pypto import ir`` and so on give this package; again has no effect.

    Raises:
        InputError: another ``pypto`` is imported already.
    """
    from crossrank import program
    from crossrank.program import language
    from crossrank.program.language import distributed

    root = sys.modules.get("pypto", ModuleType("pypto"))
    if getattr(root, "language", language) is not language or getattr(root, "__file__", None):
        raise InputError(
            f"another pypto is imported already, from {getattr(root, '__file__', None) or 'somewhere'}",
            "call crossrank.program.aliases.install() before anything imports it",
        )
    root.__dict__.update(language=language, ir=program, runtime=program)
    sys.modules["pypto"] = root
    sys.modules["pypto.language"] = language
    sys.modules["pypto.language.distributed"] = distributed
    for name in ("ir", "ir.distributed_compiled_program", "runtime"):
        sys.modules[f"pypto.{name}"] = program
