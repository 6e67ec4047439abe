"""``import pypto`` is answered by this package."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

import crossrank.program as program
import crossrank.program.language as language
from crossrank.errors import InputError
from crossrank.program.aliases import install


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test leaves an alias behind."""
    for name in [n for n in sys.modules if n.partition(".")[0] == "pypto"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "modules", sys.modules.copy())


def test_aliases() -> None:
    names: dict[str, object] = {}
    install()
    install()
    exec(
        "import pypto.language as pl\n"
        "import pypto.language.distributed as pld\n"
        "from pypto import ir\n"
        "from pypto.ir.distributed_compiled_program import DistributedConfig\n"
        "from pypto.runtime import RunConfig\n",
        names,
    )
    assert names["pl"] is language
    assert names["pld"] is language.distributed
    assert names["ir"].compile is program.compile  # type: ignore[attr-defined]
    assert names["DistributedConfig"] is program.DistributedConfig


def test_another_is_left_alone() -> None:
    other = ModuleType("pypto")
    other.__file__ = "elsewhere/pypto.py"
    sys.modules["pypto"] = other
    with pytest.raises(InputError, match=r"another pypto is imported already, from elsewhere/pypto.py"):
        install()
