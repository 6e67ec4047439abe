"""Backends by name: a plug-in computes what it serves, and whatever it does wrong is told in plain lines."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from crossrank.errors import InputError, RunError
from crossrank.hlo.execute.backends import KernelBackend, OracleBackend, make_backend
from crossrank.hlo.execute.run import RunOptions, RunReport, run_module
from crossrank.hlo.execute.several import run_program
from crossrank.hlo.ffi.native import Native
from crossrank.hlo.io import ModuleFile
from crossrank.passes import parse_passes
from tests.support import parse, reducer

PLUG_INS = "tests.hlo.execute.plug_ins"
NOWHERE = cast(Native, None)  # where nothing is registered
CONVERT = 'convert-collectives-to-custom-call{kinds="all"}'
BOTH = """
  x = s32[{n}] parameter(0)
  r = s32[{n}] all-reduce(x), replica_groups={{{{0,1}}}}, to_apply=add_s32
  ROOT p = s32[{n}] collective-permute(r), source_target_pairs={{{{0,1}},{{1,0}}}}"""


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))  # in the process that runs the module, too


def options(backend: str) -> RunOptions:
    return RunOptions(iters=0, limit_s=20.0, backend=backend)


def module(n: int) -> ModuleFile:
    return parse(BOTH.format(n=n), reducer(dtype="s32"), header="replica_count=2")


def run(n: int, backend: str) -> RunReport:
    return run_module(module(n), parse_passes(CONVERT), options(backend))


def test_names() -> None:
    assert isinstance(make_backend("kernels", NOWHERE), KernelBackend)
    assert isinstance(make_backend("oracle", NOWHERE), OracleBackend)
    assert make_backend(f"{PLUG_INS}:Sums", NOWHERE).name == "sums"


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("kernel", "no backend is named kernel"),
        (f"{PLUG_INS}:", "no backend is named tests"),
        ("tests.nowhere:Sums", "cannot be imported: No module named 'tests.nowhere'"),
        (".plug_ins:Sums", "cannot be imported: "),
        (f"{PLUG_INS}:Products", "tests.hlo.execute.plug_ins has no Products to call"),
        (f"{PLUG_INS}:nothing", "gives a str, which is none"),
    ],
)
def test_names_of_nothing(name: str, complaint: str) -> None:
    with pytest.raises(InputError) as raised:
        make_backend(name, NOWHERE)
    assert complaint in raised.value.what
    assert raised.value.remedy == "a backend is kernels, oracle or the package.module:attribute that makes one"


def test_a_plug_in_computes_what_it_serves() -> None:
    report = run(6, f"{PLUG_INS}:Sums")
    assert report.result["exact"], report.result["first_difference"]
    assert (report.via, report.as_dict()["via"], report.result["calls"]) == ("sums", "sums", 1)
    assert report.warnings == ["%p: no backend serves AwsNeuronCollectivePermute_s32; it ran as a native collective"]


def test_a_plug_in_among_several_modules() -> None:
    report = run_program([module(6), module(6)], parse_passes(CONVERT), options(f"{PLUG_INS}:Sums"))
    assert (report.via, report.result["exact"]) == ("sums", True)
    assert all("is nothing that sums serves: it ran on the oracle" in w for w in report.warnings)
    assert len(report.warnings) == 1


def test_a_name_of_nothing_ends_the_run() -> None:
    with pytest.raises(InputError, match="no backend is named kernel"):
        run(6, "kernel")


@pytest.mark.parametrize(
    ("n", "complaint"),
    [
        (1, "no queue is left\ntake fewer"),
        (2, "the ring is broken"),
        (3, "a table is empty"),
        (4, "bad gives something to 1 of 2 ranks"),
        (5, "bad gives rank 0 float64 (5,) instead of int32 (5,)"),
        (6, "bad gives rank 0 nothing instead of int32 (6,)"),
    ],
)
def test_what_a_plug_in_does_wrong_fails_the_run(n: int, complaint: str) -> None:
    with pytest.raises(RunError) as raised:
        run(n, f"{PLUG_INS}:Bad")
    assert str(raised.value) == f"all-reduce %r: {complaint}"
