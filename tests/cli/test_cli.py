"""The commands as a user types them: output, exit status, and plain lines for whatever goes wrong."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from crossrank.cli.main import main
from crossrank.passes import pipeline
from tests.cli.commands import as_json, crossrank
from tests.support import CORPUS, hlo, needs_corpus, reducer

STEP = hlo(
    """
  x = f32[8,4] parameter(0)
  r = f32[8,4] all-reduce(x), channel_id=1, replica_groups=[2,4]<=[8], use_global_device_ids=true, to_apply=add_f32,
    metadata={source_file="step.py" source_line=7}
  g = f32[8,32] all-gather(r), channel_id=2, dimensions={1}, replica_groups={}, use_global_device_ids=true
  ROOT p = f32[8,32] collective-permute(g), channel_id=3, source_target_pairs={{0,1},{1,0}}""".replace(",\n    ", ", "),
    reducer(),
)


@pytest.fixture
def step(tmp_path: Path) -> str:
    path = tmp_path / "step.hlo"
    path.write_text(STEP)
    return str(path)


def test_run_says_what_changed_and_that_it_is_equal(step: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = crossrank(capsys, "run", step, "--iters", "2")
    assert status == 0
    assert "AwsNeuronAllReduceAdd_f32" in out
    assert "bit for bit" in out
    assert "time:" in out


def test_run_json_has_its_stable_keys(step: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, "run", step, "--iters", "1", "--seed", "3")
    assert {"file", "ranks", "passes", "equal", "exact", "outputs", "collectives", "custom_calls"} <= set(found)
    assert {"first_difference", "time_ms", "seed"} <= set(found)
    assert found["ranks"] == 8
    assert found["seed"] == 3
    assert found["equal"] is found["exact"] is True
    assert found["via"] == "kernels"
    assert found["collectives"]["before"] == {"all-gather": 1, "all-reduce": 1, "collective-permute": 1}
    assert found["collectives"]["after"] == {}
    assert found["custom_calls"] == {
        "AwsNeuronAllGather_f32": 1,
        "AwsNeuronAllReduceAdd_f32": 1,
        "AwsNeuronCollectivePermute_f32": 1,
    }
    assert set(found["time_ms"]) == {"original", "rewritten"}
    assert {"index", "shape", "dtype", "max_abs_err", "max_ulp", "equal", "finite"} <= set(found["outputs"][0])


@pytest.mark.parametrize("option", ["--via", "--backend"])
def test_run_says_who_computed(option: str, step: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, "run", step, "--iters", "0", option, "oracle")
    assert (found["via"], found["exact"]) == ("oracle", True)


def test_run_takes_inputs_and_keeps_outputs(step: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.random.default_rng(0).normal(size=(8, 8, 4)).astype(np.float32)
    np.savez(tmp_path / "in.npz", p0=x)
    outputs = str(tmp_path / "out.npz")
    run = ("run", step, "--iters", "0", "--inputs", str(tmp_path / "in.npz"))
    assert main([*run, "--outputs", outputs]) == 0
    with np.load(outputs) as data:
        given = data["o0"]
    total = np.concatenate([np.repeat(x[:4].sum(0)[None], 4, 0), np.repeat(x[4:].sum(0)[None], 4, 0)])
    gathered = np.concatenate(list(total), axis=1)
    assert np.allclose(given[0], gathered, atol=1e-6)
    assert not given[2:].any()
    capsys.readouterr()
    # a wrong output that the original would give rightly is a difference
    np.savez(tmp_path / "in.npz", p0=x, o0=given)
    assert as_json(capsys, *run)["golden"]["equal"] is True


def test_opt_prints_text_and_writes_by_suffix(step: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = crossrank(capsys, "opt", step, "--pipeline", "default")
    assert (status, err) == (0, "")
    assert out.startswith("HloModule test, num_partitions=8")
    assert 'custom_call_target="AwsNeuronAllReduceAdd_f32"' in out
    assert 'replica_groups="[2,4]<=[8]"' in out or "replica_groups=[2,4]<=[8]" in out
    for name in ("out.hlo", "out.hlo.gz", "out.pb", "out.pb.gz"):
        path = tmp_path / name
        assert crossrank(capsys, "opt", step, "--pipeline", "default", "-o", str(path)) == (0, "", "")
        data = path.read_bytes()
        assert (data[:2] == b"\x1f\x8b") == name.endswith(".gz")
        status, again, _ = crossrank(capsys, "opt", str(path), "--passes", "raise-custom-call-collectives")
        assert status == 0
        assert "custom-call" not in again
        assert "num_partitions=8" in again.splitlines()[0]


def test_opt_without_passes_changes_nothing(step: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, once, _ = crossrank(capsys, "opt", step)
    Path(step).write_text(once)
    assert crossrank(capsys, "opt", step)[1] == once


def test_opt_statistics_remarks_and_intermediate_modules(step: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = crossrank(
        capsys, "opt", step, "--pipeline", "default", "--stats", "--remarks", "--print-after-all", "-o", os.devnull
    )
    assert (status, out) == (0, "")
    assert "convert-collectives-to-custom-call: done: %r (step.py:7): all-reduce → AwsNeuronAllReduceAdd_f32" in err
    assert err.count("// after ") == len(pipeline("default"))
    found = as_json(capsys, "opt", step, "--pipeline", "default", "--skip-pass", "inline-calls")
    names = [p.name for p in pipeline("default") if p.name != "inline-calls"]
    assert [p["name"] for p in found["passes"]] == names
    assert [p["changed"] for p in found["passes"]] == [name == names[-1] for name in names]
    assert found["passes"][-1]["after"]["all-reduce"] == {"bytes": 128, "converted": 1, "count": 1}
    assert found["module"].startswith("HloModule")


def test_inspect_lists_every_collective(step: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = crossrank(capsys, "inspect", step)
    assert status == 0
    for word in ("all-reduce add", "step.py:7", "[2,4]<=[8]", "flattened", "{{0,1},{1,0}}", "cross-partition"):
        assert word in out
    found = as_json(capsys, "inspect", step)
    assert found["totals"]["all-gather"] == {"bytes": 1024, "converted": 0, "count": 1}
    assert [c["kind"] for c in found["collectives"]] == ["all-reduce", "all-gather", "collective-permute"]
    assert found["collectives"][0]["group_size"] == 4


def test_check_finds_and_says_nothing_found(step: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = crossrank(capsys, "check", step)
    assert status == 0
    assert "nothing found" in out
    bad = tmp_path / "bad.hlo"
    bad.write_text(STEP.replace("[2,4]<=[8]", "{{0,1},{1,2}}"))
    status, out, _ = crossrank(capsys, "check", str(bad))
    assert status == 1
    assert "%r (step.py:7)" in out
    kinds = {f["kind"] for f in as_json(capsys, "check", str(bad))["findings"]}
    assert "groups" in kinds
    lonely = tmp_path / "lonely.hlo"
    lonely.write_text(
        hlo(
            "  x = f32[4] parameter(0)\n  t = token[] after-all()\n"
            "  s = (f32[4], u32[], token[]) send(x, t), channel_id=5\n"
            "  d = token[] send-done(s), channel_id=5\n  ROOT y = f32[4] negate(x)"
        )
    )
    assert [f["kind"] for f in as_json(capsys, "check", str(lonely))["findings"]] == ["channel"]
    elided = tmp_path / "elided.hlo"
    elided.write_text(hlo("  c = f32[20] constant({...})\n  ROOT y = f32[20] negate(c)"))
    assert [f["kind"] for f in as_json(capsys, "check", str(elided))["findings"]] == ["elided"]


def test_passes_lists_and_explains(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = crossrank(capsys, "passes")
    assert status == 0
    for name in ("inline-calls", "convert-collectives-to-custom-call", "verify-collective-targets", "default"):
        assert name in out
    status, out, _ = crossrank(capsys, "passes", "convert-collectives-to-custom-call")
    assert "all_computations" in out
    assert "Declines" in out
    found = as_json(capsys, "passes", "convert-collectives-to-custom-call")
    assert found["options"][0]["name"] == "all_computations"


def test_passes_shows_a_pipeline(capsys: pytest.CaptureFixture[str]) -> None:
    specs = [str(p) for p in pipeline("default")]
    status, out, _ = crossrank(capsys, "passes", "default")
    assert status == 0
    assert out.splitlines()[2:] == specs
    assert [p["spec"] for p in as_json(capsys, "passes", "default")["passes"]] == specs
    listed = re.split(r"\n\w+ +", crossrank(capsys, "passes")[1].split("\ndefault ")[1])[0]
    assert [line.strip() for line in listed.split(",")] == ",".join(specs).split(",")


BAD = {
    "missing file": (["run", "nowhere.hlo"], "there is no file nowhere.hlo"),
    "folder": (["inspect", "/"], "is a folder"),
    "unknown pass": (["opt", "FILE", "--passes", "inline-call"], "unknown pass inline-call"),
    "unknown pipeline": (["opt", "FILE", "--pipeline", "defaut"], "unknown pipeline defaut"),
    "unknown skip": (["opt", "FILE", "--skip-pass", "nothing-such"], "unknown pass nothing-such"),
    "unknown option": (
        ["opt", "FILE", "--passes", "convert-collectives-to-custom-call{all_computation=true}"],
        "has no option all_computation",
    ),
    "option of a wrong type": (
        ["opt", "FILE", "--passes", "convert-collectives-to-custom-call{all_computations=7}"],
        "pass convert-collectives-to-custom-call",
    ),
    "unreadable passes": (["opt", "FILE", "--passes", "a{"], "cannot read the passes"),
    "ranks that disagree": (["run", "FILE", "--ranks", "4"], "is a module for 8 ranks, not 4"),
    "inputs that are none": (["run", "FILE", "--inputs", "FILE"], "is no .npz"),
    "output that cannot be written": (["opt", "FILE", "-o", "/nowhere/x.hlo"], "cannot write /nowhere/x.hlo"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_usage_is_one_or_two_plain_lines(case: str, step: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, message = BAD[case]
    status, out, err = crossrank(capsys, *(step if a == "FILE" else a for a in arguments))
    assert (status, out) == (2, "")
    assert message in err
    assert err.startswith("crossrank: ")
    assert 1 <= len(err.splitlines()) <= 2


CONTENT = {
    "empty": (b"", "is empty"),
    "binary": (bytes(range(256)), "is no HLO module"),
    "prose": (b"hello\n", "is no HLO"),
    "damaged gzip": (gzip.compress(b"HloModule m")[:-9], "damaged gzip"),
    "unknown opcode": (STEP.replace("all-gather(", "all-gatherer(").encode(), "all-gatherer"),
    "unknown operand": (STEP.replace("(g)", "(gg)").encode(), "gg"),
    "a program": (b"import jax\n\nprint(jax)\n", "a Python file that defines neither"),
    "fusion": (
        hlo(
            "  x = f32[4] parameter(0)\n  ROOT f = f32[4] fusion(x), kind=kLoop, calls=body",
            "body {\n  y = f32[4] parameter(0)\n  ROOT n = f32[4] negate(y)\n}",
        ).encode(),
        "fusion %f",
    ),
    "library call": (
        hlo('  x = f32[4] parameter(0)\n  ROOT f = f32[4] custom-call(x), custom_call_target="__cublas$gemm"').encode(),
        "library call %f to __cublas$gemm",
    ),
    "device layout": (
        hlo("  x = f32[8,128]{1,0:T(8,128)} parameter(0)\n  ROOT f = f32[8,128]{1,0:T(8,128)} negate(x)").encode(),
        "device layout of %x",
    ),
    "elided constant": (hlo("  c = f32[20] constant({...})\n  ROOT y = f32[20] negate(c)").encode(), "has no numbers"),
    "foreign opcode": (
        hlo(
            "  t = token[] after-all()\n  i = (f32[4], token[]) infeed(t)\n"
            "  ROOT y = f32[4] get-tuple-element(i), index=0"
        ).encode(),
        "infeed (1)",
    ),
    "rank outside": (STEP.replace("[2,4]<=[8]", "{{0,1,2,3},{4,5,6,8}}").encode(), "id 8 is outside"),
    "rank missing": (STEP.replace("[2,4]<=[8]", "{{0,1,2,3},{4,5,6}}").encode(), "id 7 is in no group"),
}


@pytest.mark.parametrize("case", CONTENT)
def test_run_refuses_what_it_cannot_run(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, message = CONTENT[case]
    path = tmp_path / "case.hlo"
    path.write_bytes(content)
    status, out, err = crossrank(capsys, "run", str(path))
    assert (status, out) == (2, "")
    assert message in err
    assert "case.hlo" in err
    assert len(err.splitlines()) <= 3
    assert "Traceback" not in err


def test_inputs_of_a_wrong_shape_or_type(step: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for array, message in (
        (np.zeros((8, 4, 8), np.float32), "p0 has shape [8, 4, 8]"),
        (np.zeros((8, 8, 4), np.float64), "p0 is float64"),
    ):
        np.savez(tmp_path / "in.npz", p0=array)
        status, _, err = crossrank(capsys, "run", step, "--inputs", str(tmp_path / "in.npz"))
        assert status == 2
        assert message in err
    np.savez(tmp_path / "in.npz", q0=np.zeros(3))
    status, _, err = crossrank(capsys, "run", step, "--inputs", str(tmp_path / "in.npz"))
    assert status == 2
    assert "has no p0" in err


def test_usage_errors_exit_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["run"], ["run", "x", "--iters", "-1"], ["run", "x", "--via", "mpi"], ["nothing"]):
        with pytest.raises(SystemExit) as left:
            main(arguments)
        assert left.value.code == 2
    capsys.readouterr()


def test_an_absent_rank_ends_with_3(step: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = crossrank(capsys, "run", step, "--limit", "1", "--test-absent-rank", "5")
    assert (status, out) == (3, "")
    assert "all-reduce %r (step.py:7) waited 1 s" in err
    assert "rank 5 did not" in err


@pytest.mark.parametrize("command", ["run", "opt", "inspect", "check"])
def test_a_failure_is_one_json_object_too(command: str, step: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = crossrank(capsys, command, "nowhere.hlo", "--json")
    assert json.loads(out) == {"error": "there is no file nowhere.hlo", "status": status}
    assert status == 2
    assert "there is no file nowhere.hlo" in err
    if command == "run":
        status, out, err = crossrank(capsys, "run", step, "--json", "--limit", "1", "--test-absent-rank", "5")
        told = json.loads(out)
        assert (status, told["status"]) == (3, 3)
        assert told["error"].splitlines()[0] in err
        assert "waited 1 s" in told["error"]


def test_standard_input_and_pipes(step: str) -> None:
    """As a process: `-` reads standard input, and whoever stops reading our output stops us without a complaint."""
    done = subprocess.run(
        [sys.executable, "-m", "crossrank", "inspect", "-", "--json"],
        input=Path(step).read_bytes(),
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout)["file"] == "-"
    assert done.stderr == b""
    with subprocess.Popen(
        [sys.executable, "-m", "crossrank", "opt", step], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode in (0, 1)


def test_interrupt_ends_with_130_and_leaves_no_process(tmp_path: Path) -> None:
    slow = tmp_path / "slow.hlo"
    slow.write_text(STEP)
    with subprocess.Popen(
        [sys.executable, "-m", "crossrank", "run", str(slow), "--limit", "60", "--test-absent-rank", "0"],
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as child:
        deadline = time.monotonic() + 30
        while not _children(child.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        grandchildren = _children(child.pid)
        assert grandchildren
        os.killpg(child.pid, signal.SIGINT)
        assert child.stderr is not None
        said = child.stderr.read().decode()
    assert child.returncode == 130
    assert said == "crossrank: interrupted\n"
    deadline = time.monotonic() + 10
    while any(map(_alive, grandchildren)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(_alive, grandchildren))


def _children(pid: int) -> list[int]:
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def _alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


@needs_corpus
@pytest.mark.parametrize("after", [0.1, 0.25, 0.4, 0.6])
def test_an_interrupt_while_it_starts(after: float) -> None:
    """It begins as soon as our first line runs: before, Python itself has the word."""
    begun = "import runpy, sys; sys.argv = ['crossrank', 'inspect', '-']; print(flush=True); "
    command = [sys.executable, "-c", f"{begun}runpy.run_module('crossrank', run_name='__main__')"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(after)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (130, b"crossrank: interrupted\n")


@pytest.mark.parametrize("encoding", [{"LC_ALL": "C", "PYTHONUTF8": "0"}, {"PYTHONIOENCODING": "ascii"}])
def test_a_locale_without_our_characters(encoding: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "é.hlo"
    path.write_text(STEP.replace("step.py", "stép.py"), encoding="utf-8")

    def ran(*arguments: str) -> tuple[str, bytes]:
        env = {**os.environ, **encoding, "CROSSRANK_CACHE": str(tmp_path / "cache")}
        command = [sys.executable, "-m", "crossrank", *arguments]
        child = subprocess.run(command, env=env, capture_output=True, timeout=120, check=False)
        assert child.returncode == 0, child.stderr
        return child.stdout.decode(errors="replace"), child.stderr

    out, err = ran("run", str(path), "--iters", "0", "--remarks")
    assert "bit for bit" in out
    assert b"all-reduce -> AwsNeuronAllReduceAdd_f32" in err
    assert "st?p.py:7" in ran("inspect", str(path))[0]
    ran("passes")


def test_compiled_modules_are_refused_and_still_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("gpu_fsdp_scheduled", "tpu_fsdp_scheduled", "cpu_scheduled_tp", "handwritten_forms"):
        path = str(CORPUS / f"{name}.hlo")
        status, _, err = crossrank(capsys, "run", path)
        assert status == 2, name
        assert "cannot run" in err or "compiled for a device" in err
        assert crossrank(capsys, "inspect", path)[0] == 0
        assert crossrank(capsys, "opt", path, "--pipeline", "default", "-o", os.devnull)[0] == 0


def test_json_is_alone_on_standard_output(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in (["inspect", step], ["check", step], ["passes"], ["opt", step], ["run", step, "--iters", "0"]):
        stream = io.StringIO()
        monkeypatch.setattr(sys, "stdout", stream)
        assert main([*arguments, "--json"]) == 0
        monkeypatch.undo()
        assert isinstance(json.loads(stream.getvalue()), dict)
