"""Several FILEs: the modules of several ranks, rewritten and run together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crossrank.hlo.io import read_module
from tests.cli.commands import crossrank

FIRST = """HloModule first
ENTRY main {
  x = f32[4] parameter(0)
  t = token[] after-all()
  s = (f32[4], u32[], token[]) send(x, t), channel_id=1
  sd = token[] send-done(s), channel_id=1
  ROOT y = f32[4] negate(x)
}
"""
SECOND = """HloModule second
ENTRY main {
  t = token[] after-all()
  r = (f32[4], u32[], token[]) recv(t), channel_id=1
  rd = (f32[4], token[]) recv-done(r), channel_id=1
  ROOT v = f32[4] get-tuple-element(rd), index=0
}
"""
FUSE = ("--passes", "fuse-send-recv")


@pytest.fixture
def two(tmp_path: Path) -> tuple[str, str]:
    paths = (tmp_path / "first.hlo", tmp_path / "second.hlo")
    for path, text in zip(paths, (FIRST, SECOND), strict=True):
        path.write_text(text)
    return str(paths[0]), str(paths[1])


def test_opt_writes_a_folder(two: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "out"
    status, out, err = crossrank(capsys, "opt", *two, *FUSE, "-o", str(folder), "--remarks", "--stats")
    assert status == 0
    assert sorted(p.name for p in folder.iterdir()) == ["first.hlo", "second.hlo"]
    assert "AwsNeuronSend_f32" in (folder / "first.hlo").read_text()
    assert "AwsNeuronRecv_f32" in (folder / "second.hlo").read_text()
    assert "first.hlo: %s: send → AwsNeuronSend_f32 on channel 1" in err
    assert out == ""
    assert err.count("0 → 1") == 2
    status, _, _ = crossrank(capsys, "run", *(str(folder / n) for n in ("first.hlo", "second.hlo")), *FUSE, "--iters=0")
    assert status == 0  # converted already: raised for the original, and fused again


def test_opt_says_what_it_did(two: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "out")
    status, out, _ = crossrank(capsys, "opt", *two, two[0], "-o", folder, "--json", "--print-after-all")
    found = json.loads(out)
    assert status == 0
    assert found["files"] == [*two, two[0]]
    assert found["output"] == folder
    written = [m["output"] for m in found["modules"]]
    assert [Path(p).name for p in written] == ["rank0-first.hlo", "second.hlo", "rank2-first.hlo"]
    assert all(read_module(p).module.name in ("first", "second") for p in written)


def test_run_tells_as_of_one_module(two: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = crossrank(capsys, "run", *two, *FUSE, "--iters", "1", "--json")
    assert status == 0
    found = json.loads(out)
    assert found["files"] == list(two)
    assert found["ranks"] == 2
    assert found["exact"]
    assert found["collectives"] == {"before": {"recv": 1, "send": 1}, "after": {}}
    assert found["custom_calls"] == {"AwsNeuronRecv_f32": 1, "AwsNeuronSend_f32": 1}
    assert [(o["rank"], o["index"], o["exact"]) for o in found["outputs"]] == [(0, 0, True), (1, 0, True)]
    assert set(found["time_ms"]) == {"original", "rewritten"}
    status, out, _ = crossrank(capsys, "run", *two, *FUSE, "--iters", "0")
    assert "all 2 outputs of all 2 ranks, bit for bit" in out


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (("opt",), "several files are written into a folder"),
        (("opt", "-o", "-"), "several files are written into a folder"),
        (("opt", "-o", "DIR", "--ranks", "2"), "--ranks takes one file, and there are 2"),
        (("opt", "-o", "DIR", "--extract", "s"), "--extract takes one file, and there are 2"),
        (("opt", "-o", "FILE"), "cannot make the folder"),
        (("run", "--ranks", "2"), "--ranks says how many ranks one file has"),
        (("run", "--verify-each"), "--verify-each takes one file"),
    ],
)
def test_what_several_files_cannot_have(
    command: tuple[str, ...], complaint: str, two: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"DIR": str(tmp_path / "out"), "FILE": two[0]}
    name, *options = command
    status, out, err = crossrank(capsys, name, *two, *(places.get(o, o) for o in options))
    assert (status, out) == (2, "")
    assert complaint in err


def test_rank_counts_that_do_not_fit(two: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "wide.hlo").write_text(FIRST.replace("first", "first, num_partitions=8"))
    wide = str(tmp_path / "wide.hlo")
    for command in (("run", wide, two[1]), ("opt", two[0], wide, "-o", str(tmp_path / "out"))):
        status, _, err = crossrank(capsys, *command)
        assert status == 2
        assert f"{wide} is a module for 8 ranks, and there are 2 files" in err
