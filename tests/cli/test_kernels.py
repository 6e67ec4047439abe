"""The commands on kernels: Python that defines one, and their text."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossrank.cli.main import main
from tests.support import hlo, reducer

HEAD = """\
import numpy as np
import nki
import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
"""
SUM = (
    HEAD
    + """
@nki.jit
def kernel(x, ranks):
    print("traced")
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm)
    ncc.all_reduce([x], [y], ncc.ReplicaGroup([list(range(ranks))]), nl.add)
    return y


def inputs(ranks, seed):
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=(4, 8)).astype(np.float32), ranks) for _ in range(ranks)]


def expected(ranks, inputs):
    return [(sum(x for x, _ in inputs),)] * ranks
"""
)
SWAP = (
    HEAD
    + """
@nki.jit
def swap(x, y):
    core = int(nl.program_id(0))
    mine, other = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf) for _ in range(2))
    nisa.dma_copy(mine, x)
    nisa.sendrecv(mine, other, 1 - core, 1 - core, 0)
    if core == 0:
        nisa.dma_copy(y, other)


kernel = swap[2]


def inputs(ranks, seed):
    return [(np.full((128, 4), r, np.float32), np.zeros((128, 4), np.float32)) for r in range(ranks)]


def expected(ranks, inputs):
    return [(x,) for x, _ in inputs]
"""
)
LONELY = SWAP.replace("nisa.sendrecv(mine, other, 1 - core, 1 - core, 0)", "core or nisa.core_barrier(y, (0, 1))")
RECV = """\
builtin.module attributes {instr.kernel = "k", instr.world_size = #builtin.int<2>, instr.lnc = #builtin.int<1>} {
  instr.program @core0 on 0 {
    %x = instr.tensor {name = "x", input = 0, outputs = [0]} : !instr.tensor<[4], f32, private_hbm>
    %a = instr.access %x {offset = 0, pattern = [[1, 4]]}
    instr.recv "Recv-0" out(%a) {peer_id = 1} at "ring.py:3"
    instr.end
  }
}
"""


def crossrank(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(arguments)
    out, err = capsys.readouterr()
    return status, out, err


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    status, out, err = crossrank(capsys, *arguments, "--json")
    assert status in (0, 1), err
    found: dict[str, Any] = json.loads(out)
    return found


def saved(folder: Path, text: str, name: str = "kernel.py") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_run_compares_with_the_original_and_with_what_is_expected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = crossrank(capsys, "run", saved(tmp_path, SUM), "--ranks", "4")
    assert status == 0, err
    assert "kernel on 4 ranks: none of 2 passes changes it" in out
    assert "equal: the output of all 4 ranks, bit for bit, to the original" in out
    assert "expected: the given output, the largest difference 0.0e+00" in out
    assert "traced" in err
    assert "traced" not in out


def test_run_json_has_its_stable_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = saved(tmp_path, SUM)
    found = as_json(capsys, "run", file, "--ranks", "2", "--seed", "3", "--via", "oracle", "--pipeline", "none")
    assert (found["file"], found["kernel"], found["ranks"], found["lnc"]) == (file, "kernel", 2, 1)
    assert (found["via"], found["seed"], found["passes"]) == ("oracle", 3, [])
    assert found["equal"] is found["exact"] is True
    assert found["collectives"] == {"before": {"AllReduce": 1}, "after": {"AllReduce": 1}}
    assert found["first_difference"] is None
    assert found["expected"] == {"equal": True, "max_rel_err": 0.0, "outputs": 1, "first_difference": None}
    assert set(found["time_ms"]) == {"original", "rewritten"}
    assert (found["warnings"], found["remarks"]) == ([], [])
    assert {"index", "shape", "dtype", "max_abs_err", "max_ulp", "equal", "finite"} <= set(found["outputs"][0])


def test_cores_of_a_rank_are_lowered_and_written_inputs_are_outputs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = as_json(capsys, "run", saved(tmp_path, SWAP), "--ranks", "2")
    assert (found["lnc"], found["kernel"]) == (2, "swap")
    assert found["equal"] is found["exact"] is found["expected"]["equal"] is True
    assert found["collectives"]["before"] == {"LocalSendRecv": 2}
    assert "LocalSendRecv" not in found["collectives"]["after"]
    assert "CoreBarrier" in found["collectives"]["after"]
    assert any(r["pass_name"] == "lower-local-collectives" for r in found["remarks"])


def test_what_is_expected_and_not_given_is_a_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = saved(tmp_path, SUM.replace("return [(sum(x for x, _ in inputs),)]", "return [(inputs[0][0],)]"))
    status, out, _ = crossrank(capsys, "run", wrong, "--ranks", "2")
    assert status == 1
    assert "equal: the output of all 2 ranks" in out
    assert "first at output 0, rank 0, element [0, 0]" in out
    assert crossrank(capsys, "run", wrong, "--ranks", "2", "--tol", "1e9")[0] == 0


def test_inputs_are_taken_and_outputs_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, given, kept = saved(tmp_path, SUM), str(tmp_path / "in.npz"), str(tmp_path / "out.npz")
    x = np.arange(64, dtype=np.float32).reshape(2, 4, 8)
    np.savez(given, p0=x)
    found = as_json(capsys, "run", file, "--ranks", "2", "--inputs", given, "--outputs", kept)
    assert found["expected"]["equal"] is True  # expected() is asked about these inputs
    assert found["seed"] is None
    with np.load(kept) as data:
        assert np.array_equal(data["o0"], [x.sum(0)] * 2)
    np.savez(given, p0=x, o0=x)
    assert as_json(capsys, "run", file, "--ranks", "2", "--inputs", given)["expected"]["equal"] is False
    np.savez(given, p0=x[:, :3])
    status, _, err = crossrank(capsys, "run", file, "--ranks", "2", "--inputs", given)
    assert status == 2
    assert "p0 has shape [2, 3, 8], not [2, 4, 8] or [4, 8] (f32[4,8])" in err


def test_text_says_what_python_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`opt` writes what all commands read, gzipped or on standard input."""
    python, packed = saved(tmp_path, SWAP), str(tmp_path / "swap.instr.gz")
    assert crossrank(capsys, "opt", python, "--ranks", "2", "-o", packed)[:2] == (0, "")
    status, text, _ = crossrank(capsys, "opt", packed)
    assert status == 0
    assert gzip.decompress(Path(packed).read_bytes()).decode() == text
    assert "instr.program @core1" in text
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    found = as_json(capsys, "run", "-", "--ranks", "2", "--lnc", "2")
    assert (found["file"], found["exact"], found["expected"]) == ("-", True, None)
    kinds = [e["kind"] for e in as_json(capsys, "inspect", packed)["collectives"]]
    assert kinds == [e["kind"] for e in as_json(capsys, "inspect", python, "--ranks", "2")["collectives"]]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(SWAP.encode()))))
    assert as_json(capsys, "run", "-", "--ranks", "1")["lnc"] == 2


def test_opt_rewrites_and_says_what_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = saved(tmp_path, SWAP)
    lowering = ("--ranks", "2", "--passes", "lower-local-collectives", "--remarks", "--stats", "--print-after-all")
    status, out, err = crossrank(capsys, "opt", file, *lowering)
    assert status == 0
    assert "send_recv" not in out
    assert "lower-local-collectives: done" in err
    assert "// after lower-local-collectives" in err
    assert "2 → 0" in err
    found = as_json(capsys, "opt", file, "--ranks", "2", "--passes", "lower-local-collectives")
    assert found["kernel"] == out
    assert found["collectives"]["before"] == {"LocalSendRecv": 2}
    assert found["passes"][0]["changed"] is True


def test_inspect_shows_each_instruction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = saved(tmp_path, SWAP)
    status, out, _ = crossrank(capsys, "inspect", file, "--ranks", "2")
    assert status == 0
    assert "2 ranks of 2 cores" in out
    assert "to core 1, from core 1" in out
    assert "kernel.py:12" in out
    found = as_json(capsys, "inspect", saved(tmp_path, SUM, "sum.py"), "--ranks", "2")
    assert found["totals"] == {"AllReduce": {"count": 1, "bytes": 128}}
    (entry,) = found["collectives"]
    assert (entry["number"], entry["reduce"], entry["groups"], entry["dtype"]) == (2, "add", "{{0,1}}", "f32")
    assert (entry["shapes"], entry["spaces"]) == ("f32[4,8]", "private_hbm → private_hbm")
    assert (entry["where"], entry["core"], entry["extension"]) == ("sum.py:11", 0, False)


@pytest.mark.parametrize(("columns", "kind"), [(4, "GPSIMDSB2SB"), (400, "DMACopy")])
def test_inspect_shows_what_cores_write_into_each_other(
    columns: int, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, lowered = saved(tmp_path, SWAP.replace("(128, 4)", f"(128, {columns})")), str(tmp_path / "lowered.instr")
    assert crossrank(capsys, "opt", file, "--ranks", "1", "--pipeline", "local", "-o", lowered)[0] == 0
    found = as_json(capsys, "inspect", lowered)["collectives"]
    copies = [(e["core"], e["groups"], e["bytes"]) for e in found if e["kind"] == kind]
    assert copies == [(0, "to core 1", 512 * columns), (1, "to core 0", 512 * columns)]


def test_the_collectives_of_a_module_are_shown_as_instructions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = "  x = f32[8,4] parameter(0)\n  ROOT r = f32[8,4] all-reduce(x), replica_groups={}, to_apply=add_f32"
    file = saved(tmp_path, hlo(body, reducer()), "m.hlo")
    status, out, _ = crossrank(capsys, "inspect", file, "--via", "instr")
    assert status == 0
    assert out.startswith("// %r\n")
    (shown,) = as_json(capsys, "inspect", file, "--via", "instr")["instructions"]
    assert (shown["collective"], shown["extensions"]) == ("r", [])
    assert [e["kind"] for e in shown["instructions"]] == ["AllReduce"]
    found = as_json(capsys, "inspect", saved(tmp_path, shown["text"], "k.instr"))
    assert found["collectives"] == shown["instructions"]


def test_what_a_file_is_its_content_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    note = '''"""\ninstr.program is what it becomes\nHloModule is what it is not\n"""\n'''
    assert as_json(capsys, "inspect", saved(tmp_path, note + SUM, "x.hlo"), "--ranks", "2")["kernel"] == "kernel"
    found = "try:\n    1 / 0\nexcept ZeroDivisionError:\n" + "".join(f"    {line}\n" for line in SUM.splitlines())
    assert as_json(capsys, "inspect", saved(tmp_path, found, "y"), "--ranks", "2")["kernel"] == "kernel"


def test_check_finds_what_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert crossrank(capsys, "check", saved(tmp_path, SUM), "--ranks", "2")[0] == 0
    assert crossrank(capsys, "check", saved(tmp_path, RECV, "k.instr"))[0] == 0
    found = as_json(capsys, "check", saved(tmp_path, RECV.replace("peer_id = 1", "peer_id = 2"), "k.instr"))
    (finding,) = found["findings"]
    assert finding["kind"] == "verifier"
    assert "Recv-0" in finding["message"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "kernel.py",
            LONELY,
            ["rank 0 core 0 waits in CoreBarrier-0 (kernel.py:12)", "rank 0 core 1 (which has ended)"],
        ),
        ("k.instr", RECV, ["rank 1 waits in Recv-0 (ring.py:3) for rank 1", "and 1 more wait"]),
    ],
    ids=["barrier", "recv"],
)
def test_a_deadlock_is_named(
    name: str, text: str, said: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = crossrank(capsys, "run", saved(tmp_path, text, name), "--ranks", "2", "--pipeline", "none")
    assert (status, out) == (3, "")
    assert "deadlock: 2 of " in err
    assert all(words in err for words in said)


INPUTS = "def inputs(ranks, seed):\n    "
BAD = {
    "no ranks": (SUM, "", "kernel.py does not say how many ranks it runs on"),
    "no rank": (SUM, "--ranks 0", "--ranks 0: there is no run on fewer than one rank"),
    "no inputs": (SUM.replace("def inputs", "def no_inputs"), "", "define inputs(ranks, seed)"),
    "no kernel": (SUM.replace("def kernel", "def colonel"), "", "a Python program that defines no kernel"),
    "no function": (SUM + "\nkernel = 3\n", "", "kernel is 3, not a function"),
    "no kernel after all": (SUM + "\nkernel = None\n", "", "kernel is None, not a function"),
    "a class for a kernel": ("kernel = int\n", "", "kernel.py: "),
    "no Python": (SUM.replace("(ranks, seed):", "(ranks, seed)"), "", "kernel.py:15: expected ':'"),
    "an error in the file": (SUM + "1 / 0\n", "", "kernel.py:22: ZeroDivisionError: division by zero"),
    "an error in inputs": (SUM.replace("(4, 8)", "(-1, 8)"), "", "kernel.py:17: ValueError: negative dimensions"),
    "an error in the kernel": (SUM.replace("[x]", "[x.z]"), "", "kernel.py:11: AttributeError"),
    "a rule of the builder": (SUM.replace("[list(range(ranks))]", "[[0, 1], [1]]"), "", "kernel.py:11: rank 1"),
    "an error in expected": (SUM.replace("x for x, _", "x for x"), "", "kernel.py:21: TypeError"),
    "another import": ("import nothing_there\n" + SUM, "", "kernel.py:1: ModuleNotFoundError"),
    "an end": ("import sys\nsys.exit(0)\n" + SUM, "", "kernel.py ends Python"),
    "inputs of one rank": (SUM.replace("in range(ranks)]\n\n\ndef e", "in range(1)]\n\n\ndef e"), "", "for 1 ranks"),
    "inputs that are none": (SUM.replace("return [(rng", "return 1 #"), "", "inputs() gives a int, not a list"),
    "an array for a tuple": (SUM.replace(", ranks) for", "[None])[0] for"), "", "rank 0 a ndarray, not a tuple"),
    "ranks that differ": (SUM.replace(", ranks) for _", ", r) for r"), "", "the argument ranks is 1, and on rank 0 0"),
    "too much expected": (SUM.replace("inputs),)]", "inputs), 1)]"), "", "gives 2 arrays for rank 0, and the kernel"),
    "another shape": (SUM.replace("inputs),)]", "inputs)[:3],)]"), "", "float32[3, 8] for output 0 of rank 0"),
    "an odd grid": (SUM + "grid = 'x'\n", "", "kernel.py: a launch grid is a number of programs, or several"),
    "an odd lnc": (SUM + "lnc = 'x'\n", "", "kernel.py: lnc is 'x', not a number of cores"),
    "fewer cores than programs": (SWAP, "--lnc 1", "a rank has 1 cores"),
    "a pass of modules": (SUM, "--passes inline-calls", "pass inline-calls works on HLO modules, not on kernels"),
    "iters": (SUM, "--iters 3", "--iters is for an HLO module, and"),
    "verify-each": (SUM, "--verify-each", "--verify-each is for an HLO module, and"),
    "via instr": (SUM, "--via instr", "a kernel is interpreted anyway"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_plain_line_says_what_is_wrong(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, options, said = BAD[case]
    ranks = () if case == "no ranks" or "--ranks" in options else ("--ranks", "2")
    status, out, err = crossrank(capsys, "run", saved(tmp_path, text), *ranks, *options.split())
    lines = [line for line in err.splitlines() if line != "traced"]
    assert (status, out) == (2, ""), err
    assert said in " ".join(lines)
    assert len(lines) <= 2


BAD_TEXT = {
    "other ranks": (RECV, "--ranks 3", "k.instr is a kernel for 2 ranks, not 3"),
    "other cores": (RECV, "--lnc 2", "k.instr is a kernel for 1 cores, not 2"),
    "no such field": (RECV.replace("peer_id", "pear_id"), "", "k.instr:5"),
    "a rank that is not there": (RECV.replace("peer_id = 1", "peer_id = 2"), "", "k.instr: core 0: Recv-0"),
    "half a file": (RECV[:200], "", "k.instr:"),
}


@pytest.mark.parametrize("case", BAD_TEXT)
def test_a_plain_line_says_what_is_wrong_in_text(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, options, said = BAD_TEXT[case]
    status, out, err = crossrank(capsys, "run", saved(tmp_path, text, "k.instr"), *options.split())
    assert (status, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) <= 2


def test_options_of_the_other_door_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = saved(tmp_path, "HloModule m\nENTRY e {\n  ROOT x = f32[] parameter(0)\n}\n", "m.hlo")
    kernel = saved(tmp_path, SUM)
    for arguments, said in (
        (("run", module, "--lnc", "2"), "--lnc is for a kernel, and"),
        (("opt", kernel, "--ranks", "2", "--extract", "x"), "--extract is for an HLO module, and"),
        (("run", module, module, kernel), "only HLO modules come as several files"),
        (("run", module, "--passes", "lower-local-collectives"), "works on kernels, not on HLO modules"),
    ):
        status, _, err = crossrank(capsys, *arguments)
        assert status == 2
        assert said in err


@pytest.mark.parametrize("status", [0, 3])
def test_as_a_user_runs_it(status: int, tmp_path: Path) -> None:
    """In a process of its own: imports beside the file are found, results and complaints go their own ways."""
    saved(tmp_path, "SIZE = 128\n", "beside.py")
    text = (SWAP if status == 0 else LONELY).replace("(128, 4)", "(SIZE, 4)") + "\nfrom beside import SIZE\n"
    ran = subprocess.run(
        [sys.executable, "-m", "crossrank", "run", saved(tmp_path, text), "--ranks", "2", "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path.parent,
    )
    assert ran.returncode == status, ran.stderr
    if status == 0:
        assert json.loads(ran.stdout)["equal"] is True
        assert ran.stderr == ""
    else:
        assert ran.stdout == ""
        assert "Traceback" not in ran.stderr
