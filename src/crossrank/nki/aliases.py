"""Answers ``import nki`` with this package."""

from __future__ import annotations

import sys
from types import ModuleType

from crossrank.errors import InputError

ROOTS = ("nki", "neuronxcc.nki")
"""The names that it answers: today's, and the one of older kernels."""


def install() -> None:
    """Make ``import nki``, ``import nki.language as nl`` and the like give this package; again has no effect.

    Raises:
        InputError: another ``nki`` is imported already.
    """
    from crossrank import nki
    from crossrank.nki import collectives, isa, language, typing

    for root in ROOTS:
        _check_free(root, nki)
    parent = sys.modules.setdefault("neuronxcc", ModuleType("neuronxcc"))
    parent.nki = nki  # type: ignore[attr-defined]
    for root in ROOTS:
        sys.modules[root] = nki
        for module in (collectives, isa, language, typing):
            sys.modules[f"{root}.{module.__name__.rpartition('.')[2]}"] = module
        sys.modules[f"{root}.isa.constants"] = isa.constants


def _check_free(root: str, ours: ModuleType) -> None:
    found = sys.modules.get(root, ours)
    if found is not ours:
        raise InputError(
            f"another {root} is imported already, from {getattr(found, '__file__', None) or 'somewhere'}",
            "call crossrank.nki.install() before anything imports it",
        )
