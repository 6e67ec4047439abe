"""Input and surroundings that nobody wishes for: no traceback, a plain line or two, the right exit status."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crossrank.cli.main import main
from tests.support import hlo, reducer

BASE = hlo(
    "  x = f32[8] parameter(0)\n  ROOT ar = f32[8] all-reduce(x), replica_groups={{0,1},{2,3}}, to_apply=add_f32",
    reducer(),
    header="replica_count=4",
)


def call(attributes: str, target: str = "AwsNeuronAllGather_f32") -> str:
    entry = f'  x = f32[8] parameter(0)\n  ROOT g = f32[32] custom-call(x), custom_call_target="{target}", {attributes}'
    return hlo(entry, header="replica_count=4")


def config(text: str) -> str:
    return call(f'frontend_attributes={{replica_groups="{{}}"}}, backend_config="{text}"')


BAD_EVERYWHERE = {
    "iota that does not fit": BASE.replace("{{0,1},{2,3}}", "[2,2]<=[5]"),
    "iota with a doubled axis": BASE.replace("{{0,1},{2,3}}", "[2,2]<=[2,2]T(1,1)"),
    "negative channel": BASE.replace(", to_apply", ", channel_id=-5, to_apply"),
    "config without pairs": config("foo"),
    "config with an unknown key": config("foo=1"),
    "config with a doubled key": config("channel_id=1;channel_id=2"),
    "config with a word": config("dimension=abc"),
    "config of a compiler": config('{\\"a\\":1}'),
    "groups that are none": call('frontend_attributes={replica_groups="hello"}, backend_config="dimension=0"'),
    "no replicas": BASE.replace("replica_count=4", "replica_count=0"),
    "a nest of tuples": hlo(f"  ROOT t = {'(' * 400}f32[]{')' * 400} parameter(0)"),
}


@pytest.mark.parametrize("case", BAD_EVERYWHERE)
@pytest.mark.parametrize("command", ["run", "inspect", "opt --passes raise-custom-call-collectives", "check"])
def test_no_command_has_a_traceback(
    case: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.hlo"
    path.write_text(BAD_EVERYWHERE[case])
    name, *options = command.split()
    status = main([name, str(path), *options])
    out, err = capsys.readouterr()
    if name == "opt" and "custom-call" not in BAD_EVERYWHERE[case] and status == 0:
        return  # it has nothing to raise, and need not look at the native ones
    assert status == (1 if name == "check" and not err else 2)
    said = err if status == 2 else out
    assert "bad.hlo" in said
    assert len(err.splitlines()) <= 2


CHECKED = {
    "a rank that sends twice": hlo(
        "  x = f32[8] parameter(0)\n  ROOT p = f32[8] collective-permute(x), source_target_pairs={{0,1},{0,2}}",
        header="replica_count=4",
    ),
    "a body over arrays": BASE.replace("add_f32.b = f32[] parameter", "add_f32.b = f32[2] parameter")
    .replace("f32[] add(", "f32[2] add(")
    .replace("add_f32.a = f32[] parameter", "add_f32.a = f32[2] parameter"),
    "a target that nobody knows": call('backend_config=""', "AwsNeuronAllGatherer_f32"),
    "a suffix that contradicts": config("dimension=0").replace("Gather_f32", "Gather_bf16"),
    "a reduction without its name": call('backend_config=""', "AwsNeuronAllReduceUNKNOWNOP_f32"),
    "more ids than memory": BASE.replace("{{0,1},{2,3}}", "[1000000,1000000]<=[1000000000000]"),
}


@pytest.mark.parametrize("case", CHECKED)
def test_what_check_finds_run_refuses(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.hlo"
    path.write_text(CHECKED[case])
    assert main(["check", str(path)]) == 1
    assert main(["run", str(path), "--iters", "0"]) == 2
    assert len(capsys.readouterr().err.splitlines()) <= 2


def test_huge_arguments_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "huge.hlo"
    path.write_text(BASE.replace("f32[8]", "f32[4000000000000]"))
    assert main(["run", str(path)]) == 2
    assert "GiB on 4 ranks" in capsys.readouterr().err


def test_an_unsupported_reduction_names_the_collective(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "subtract.hlo"
    path.write_text(BASE.replace("f32[] add(", "f32[] subtract("))
    assert main(["run", str(path), "--pipeline", "none"]) == 2
    assert "%ar" in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--seed", "-1"], ["--limit", "inf"], ["--limit", "1e300"], ["--ranks", "-2"]])
def test_numbers_out_of_range_are_bad_usage(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["run", "x.hlo", *options])
    assert left.value.code == 2
    capsys.readouterr()


def test_opt_takes_ranks_and_writes_to_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "silent.hlo"
    path.write_text(BASE.replace(", replica_count=4", ""))
    assert main(["run", str(path)]) == 2
    assert "give --ranks N" in capsys.readouterr().err
    assert main(["opt", str(path), "--ranks", "4", "-o", "-"]) == 0
    assert "replica_count=4" in capsys.readouterr().out.splitlines()[0]
    assert not (tmp_path / "-").exists()


def shell(command: str, **kwargs: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CROSSRANK": f"{sys.executable} -m crossrank"}
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        ["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False, env=environment, **kwargs
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(BASE)
    for command in (f"opt {path}", f"inspect {path} --json", "passes"):
        done = shell(f"$CROSSRANK {command} > /dev/full")
        assert done.returncode == 3, done.stderr
        assert done.stderr.startswith("crossrank: cannot write the output")
        assert len(done.stderr.splitlines()) == 1
    failed = shell("$CROSSRANK inspect nowhere --json > /dev/full")
    assert (failed.returncode, failed.stderr) == (2, "crossrank: there is no file nowhere\n")
    assert shell(f"$CROSSRANK inspect {path} >&-").returncode == 0
    closed = shell("$CROSSRANK inspect - <&-")
    assert (closed.returncode, "Traceback" in closed.stderr) == (2, False)
    for command in ("passes", f"inspect {path}"):
        assert shell(f"$CROSSRANK {command} | head -c 1; exit ${{PIPESTATUS[0]}}").returncode == 0
    failed = shell("$CROSSRANK inspect nowhere --json | true; exit ${PIPESTATUS[0]}")
    assert (failed.returncode, failed.stderr) == (2, "crossrank: there is no file nowhere\n")


def test_outputs_go_under_their_own_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(BASE)
    assert main(["run", str(path), "--iters", "0", "--outputs", str(tmp_path / "o.txt")]) == 0
    assert (tmp_path / "o.txt").exists()
    assert not (tmp_path / "o.txt.npz").exists()
    assert main(["run", str(path), "--iters", "0", "--outputs", str(tmp_path)]) == 2
    assert "cannot write" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_an_ended_run_leaves_nothing_behind(number: signal.Signals, tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(BASE)
    kept = tmp_path / "tmp"
    kept.mkdir()
    with subprocess.Popen(
        [sys.executable, "-m", "crossrank", "run", str(path), "--test-absent-rank", "0"],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(kept)},
    ) as child:
        _wait(lambda: any(kept.glob("crossrank-*/request.json")))
        time.sleep(1.0)
        child.send_signal(number)
    assert child.returncode in (-number, 128 + number)
    _wait(lambda: not any(kept.iterdir()))
    assert not any(kept.iterdir()), list(kept.rglob("*"))


def _wait(until: object, limit: float = 20.0) -> None:
    deadline = time.monotonic() + limit
    while not until() and time.monotonic() < deadline:  # type: ignore[operator]
        time.sleep(0.05)


def test_shapes_that_only_xla_compares_are_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.hlo"
    branch = "{name} {{\n  v = f32[6] parameter(0)\n  ROOT r = f32[6] negate(v)\n}}"
    entry = (
        "  p = pred[] parameter(0)\n  x = f32[4] parameter(1)\n"
        "  ROOT e = f32[4] conditional(p, x, x), true_computation=left, false_computation=right"
    )
    path.write_text(hlo(entry, branch.format(name="left"), branch.format(name="right"), header="replica_count=2"))
    assert main(["run", str(path), "--iters", "0"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"crossrank: {path}: XLA does not accept")
    assert len(said.splitlines()) <= 2
