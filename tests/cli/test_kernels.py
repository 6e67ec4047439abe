"""The commands on kernels: Python that defines one, and their text."""

from __future__ import annotations

import gzip
import io
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cli.commands import as_json, crossrank
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

BARE = "".join(line + "\n" for line in RECV.splitlines()[1:-1])
"""A program without a module around it."""
INT = (
    SUM.replace("rng.normal(size=(4, 8)).astype(np.float32)", "np.ones((4, 8), np.{type})")
    .replace("return [(sum(x for x, _ in inputs),)]", "return [(np.full((4, 8), {value}),)]")
    .replace("y = nl.ndarray", "return x\n    y = nl.ndarray")
)


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


@pytest.mark.parametrize(
    ("type", "value", "status", "said"),
    [
        ("int32", "1.0", 0, ""),
        ("int32", "1.9", 2, "float64[4, 8] for output 0 of rank 0, and in it 1.9, which int32 cannot be"),
        ("uint8", "257", 2, "and in it 257, which uint8 cannot be"),
        ("int32", "2**32 + 1", 2, "which int32 cannot be"),
        ("int32", "True", 0, ""),
        ("int32", "2", 1, ""),
        ("float32", "1 + 1e-9", 0, ""),
        ("float32", "1 + 1e-3", 1, ""),
        ("float32", "1e39", 1, ""),
        ("float32", "1", 0, ""),
    ],
)
def test_nothing_of_what_is_expected_is_lost(
    type: str, value: str, status: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = saved(tmp_path, INT.replace("{type}", type).replace("{value}", value))
    found, _, err = crossrank(capsys, "run", file, "--ranks", "2")
    assert found == status, err
    assert said in err


def test_what_is_expected_has_the_shape_that_is_returned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flat = SUM.replace("return y", "return y.reshape(32)").replace("inputs),)]", "inputs).ravel(),)]")
    assert as_json(capsys, "run", saved(tmp_path, flat), "--ranks", "2")["expected"]["equal"] is True


def test_inputs_may_come_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In any order; what is expected gets them so."""
    text = SUM.replace("[((rng", "[((rng").replace("(rng.normal", "dict(ranks=ranks, x=rng.normal")
    text = text.replace("np.float32), ranks) for", "np.float32)) for").replace("x for x, _ in", 'i["x"] for i in')
    given = str(tmp_path / "in.npz")
    np.savez(given, p0=np.ones((2, 4, 8), np.float32))
    for more in ((), ("--inputs", given)):
        assert as_json(capsys, "run", saved(tmp_path, text), "--ranks", "2", *more)["expected"]["equal"] is True


@pytest.mark.parametrize(
    ("text", "warnings"),
    [
        (SUM.replace("return y", "return 3"), ["the kernel returns an int (no tensor) and writes none of its inputs"]),
        (SUM + "grid = 2\n", ["output 0 is each core's own, on cores 0,1: that of core 0 counts"]),
        (
            SUM.replace("[list(range(ranks))]", "[[0, 2]]"),
            ["output 0, rank 1: every element is NaN, which proves nothing; memory that nobody wrote holds NaN"],
        ),
    ],
)
def test_a_reader_is_told_what_is_odd(
    text: str, warnings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = saved(tmp_path, text.replace("def expected", "def no_expected"))
    found = as_json(capsys, "run", file, "--ranks", "3")["warnings"]
    assert [w.startswith(said) for w, said in zip(found, warnings, strict=True)] == [True]


def test_memory_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    big = "big = nl.ndarray((1 << 40, 8), x.dtype, buffer=nl.private_hbm, name='big')"
    file = saved(tmp_path, SUM.replace("    ncc.all", f"    {big}\n    nisa.dma_copy(big[:4], x)\n    ncc.all"))
    status, _, err = crossrank(capsys, "run", file, "--ranks", "2")
    assert status == 3
    assert "rank 0: DMACopy-0 (kernel.py:12): the tensor big takes 32768.0 GiB of memory" in err
    text = RECV.replace("[4], f32", f"[{1 << 42}], f32").replace("[[1, 4]]", f"[[1, {1 << 42}]]")
    status, _, err = crossrank(capsys, "run", saved(tmp_path, text, "k.instr"))
    assert status == 3
    assert "input x of 2 ranks takes" in err


@pytest.mark.parametrize("name", ["kernel.py", "other.py", "o.pb", "o.hlo.gz", "o.mlir"])
def test_a_kernel_is_written_as_text_only(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = saved(tmp_path, SUM)
    status, _, err = crossrank(capsys, "opt", file, "--ranks", "2", "-o", str(tmp_path / name))
    assert status == 2
    assert "name it KERNEL.instr" in err
    assert Path(file).read_text() == SUM
    assert [p.name for p in tmp_path.iterdir()] == ["kernel.py"]


def test_python_is_loaded_as_a_module_of_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Imports by dots where that is a package; no `__main__`; other encodings."""
    package = tmp_path / "odd_package"
    package.mkdir()
    saved(package, "", "__init__.py")
    saved(package, "def twice(x):\n    return x.nothing\n", "helper.py")
    main = 'assert __name__ != "__main__"\nfrom .helper import twice\n' + SUM
    assert crossrank(capsys, "run", saved(package, main, "main.py"), "--ranks", "2")[0] == 0
    called = saved(package, main.replace("return y", "return twice(y)"), "main.py")
    status, _, err = crossrank(capsys, "run", called, "--ranks", "2")
    assert status == 2
    assert "helper.py:2: AttributeError: " in err
    assert "(called from main.py:14)" in err
    latin = tmp_path / "latin.py"
    latin.write_bytes(("# -*- coding: latin-1 -*-\n# é\n" + SUM).encode("latin-1"))
    assert crossrank(capsys, "run", str(latin), "--ranks", "2")[0] == 0


def test_text_without_a_module_takes_its_ranks_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = as_json(capsys, "inspect", saved(tmp_path, BARE, "k.instr"), "--ranks", "3", "--lnc", "2")
    assert (found["ranks"], found["lnc"]) == (3, 2)


def test_tables_stay_readable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No spaces at the ends of lines in a pipe; names and numbers whole on a narrow terminal."""
    file = saved(tmp_path, SWAP)
    out = crossrank(capsys, "inspect", file, "--ranks", "2")[1]
    assert [line for line in out.splitlines() if line != line.rstrip()] == []
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    lines = re.sub(r"\x1b\[[\d;]*m", "", crossrank(capsys, "inspect", file, "--ranks", "2")[1]).splitlines()
    assert max(map(len, lines[1:])) <= 60
    assert sum("LocalSendRecv" in line for line in lines) == 3


def test_a_signal_ends_a_kernel_that_does_not(tmp_path: Path) -> None:
    endless = SUM.replace('print("traced")', 'print("traced", flush=True)\n    while True: pass')
    arguments = [sys.executable, "-m", "crossrank", "run", saved(tmp_path, endless), "--ranks", "2"]
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert running.stderr.readline() == "traced\n"
        running.terminate()
        assert running.stderr.read() == ""
    assert running.returncode == 128 + signal.SIGTERM


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
    "inputs by name only": (
        SUM + "\ndef inputs(ranks, seed): return {'x': 1}",
        "",
        "inputs() gives a dict, not a list",
    ),
    "rows differ": (
        SUM + "\ndef expected(ranks, inputs): return [([[1.0], [1.0, 2.0]],)] * ranks",
        "",
        "expected() gives rank 0 a list that is no array: its rows differ",
    ),
    "byte order": (
        SUM + "\ndef inputs(ranks, seed): return [(np.ones((4, 4), '>f4'), ranks)] * ranks",
        "",
        ">f4 has another byte order than this machine",
    ),
    "no rank": (SUM, "--ranks 0", "--ranks 0: there is no run on fewer than one rank"),
    "too many": (SUM, "--ranks 99999999", "99999999 ranks have 99999999 cores, and one process here takes 65536 at"),
    "no inputs": (SUM.replace("def inputs", "def no_inputs"), "", "define inputs(ranks, seed)"),
    "no kernel": (SUM.replace("def kernel", "def colonel"), "", "a Python file that defines neither a kernel nor"),
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
    "an end": ("import sys\nsys.exit(0)\n" + SUM, "", "kernel.py:2 ends Python"),
    "inputs of one rank": (
        SUM.replace("in range(ranks)]\n\n\ndef e", "in range(1)]\n\n\ndef e"),
        "",
        "for 1 rank, and 2 run",
    ),
    "inputs that are none": (SUM.replace("return [(rng", "return 1 #"), "", "inputs() gives an int, not a list"),
    "an array for a tuple": (SUM.replace(", ranks) for", "[None])[0] for"), "", "rank 0 a ndarray, not a tuple"),
    "ranks that differ": (SUM.replace(", ranks) for _", ", r) for r"), "", "the argument ranks is 1, and on rank 0 0"),
    "too much expected": (SUM.replace("inputs),)]", "inputs), 1)]"), "", "gives 2 arrays for rank 0, and the kernel"),
    "another shape": (SUM.replace("inputs),)]", "inputs)[:3],)]"), "", "float32[3, 8] for output 0 of rank 0"),
    "text expected": (SUM.replace("(sum(x for x, _ in inputs),)", "(np.full((4, 8), 'a'),)"), "", "not numbers"),
    "objects expected": (SUM.replace("(sum(x for x, _ in inputs),)", "(np.full((4, 8), None),)"), "", "not numbers"),
    "complex expected": (SUM.replace("inputs),)]", "inputs) + 1j,)]"), "", "give real numbers"),
    "flat expected": (SUM.replace("inputs),)]", "inputs).ravel(),)]"), "", "float32[32] for output 0 of rank 0"),
    "inputs no function": (SUM + "inputs = [1]\n", "", "inputs is a list, not a function"),
    "expected no function": (SUM + "expected = 3\n", "", "expected is an int, not a function"),
    "a bare assert": (
        SUM.replace("return y", "assert ranks == 99"),
        "",
        "kernel.py:12: this does not hold: assert ranks",
    ),
    "no end": (SUM.replace("return y", "return kernel(x, ranks)"), "", "kernel.py:12: it calls itself without end"),
    "no exception": (SUM.replace("return y", "raise BaseException('x')"), "", "kernel.py:12: BaseException: x"),
    "NumPy on tensors": (SUM.replace("return y", "return np.sum(x)"), "", "kernel.py:12: NumPy's functions do not"),
    "async": (SUM.replace("def kernel", "async def kernel"), "", "the kernel kernel is an async function"),
    "a generator": (SUM.replace("return y", "yield y"), "", "the kernel kernel is a generator: it yields"),
    "jitted alone": (SUM.replace("kernel", "mine"), "", "it has mine: rename it, or say kernel = mine"),
    "comments alone": ("# nothing\n", "", "a Python file that defines neither a kernel nor a program"),
    "dots alone": ("from . import other\n" + SUM, "", "kernel.py:1: ImportError"),
    "an end in the kernel": (SUM.replace("return y", "raise SystemExit(0)"), "", "kernel.py:12 ends Python"),
    "objects that differ": (
        "class Config: pass\n" + SUM.replace(", ranks) for", ", Config()) for"),
        "",
        "give all ranks the same object, or Config an __eq__",
    ),
    "a negative size": (
        SUM,
        "--passes lower-local-collectives{sendrecv-to-gpsimd-max-bpp=-1}",
        "sendrecv_to_gpsimd_max_bpp=-1 is below zero",
    ),
    "an odd grid": (SUM + "grid = 'x'\n", "", "kernel.py: a launch grid is a number of programs, or several"),
    "an odd lnc": (SUM + "lnc = 'x'\n", "", "kernel.py: lnc is 'x', not a number of cores"),
    "fewer cores than programs": (SWAP, "--lnc 1", "a rank has 1 core"),
    "a pass of modules": (SUM, "--passes inline-calls", "pass inline-calls works on HLO modules, not on kernels"),
    "iters": (SUM, "--iters 3", "--iters is for an HLO module or a program, and"),
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
    "other cores": (RECV, "--lnc 2", "k.instr is a kernel for 1 core, not 2"),
    "no such field": (RECV.replace("peer_id", "pear_id"), "", "k.instr:5"),
    "a rank that is not there": (RECV.replace("peer_id = 1", "peer_id = 2"), "", "k.instr:5: core 0: Recv-0"),
    "half a file": (RECV[:200], "", "k.instr:"),
    "no last brace": (RECV[:-2], "", "the text ends too early: a } is missing"),
    "no end": (RECV.replace("    instr.end\n", ""), "", "k.instr:5: core 0: Recv-0: nothing says where it goes on"),
    "two kernels": (RECV + RECV, "", "k.instr has 2 kernels"),
    "no ranks": (BARE, "", "k.instr does not say how many ranks it runs on"),
    "bare, too few": (BARE, "--ranks 1", "k.instr:4: core 0: Recv-0: rank 1 is none of the 1 rank"),
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
        told = json.loads(ran.stdout)
        assert (told["status"], told["error"].splitlines()[0]) == (3, "deadlock: 2 of 4 cores wait and none can go on")
        assert "Traceback" not in ran.stderr
