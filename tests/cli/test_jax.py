"""`crossrank jax`: a script stays what it is, and its collectives are on our kernels."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

SUM = """
import jax, numpy as np
from jax.sharding import Mesh, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()), ("x",))
def total(x):
    return jax.lax.psum(x, "x")
f = jax.jit(jax.shard_map(total, mesh=mesh, in_specs=P("x"), out_specs=P()))
print(jax.device_count(), float(f(np.ones(jax.device_count(), np.float32))[0]))
"""


def run(command: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES")} | environment
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False
    )


def crossrank_jax(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run(["-m", "crossrank", "jax", *arguments], folder, **environment)


def script(folder: Path, text: str) -> str:
    (folder / "script.py").write_text(text)
    return "script.py"


def said(child: subprocess.CompletedProcess[str]) -> list[str]:
    """What we say, without the script's own."""
    return [x.removeprefix("crossrank: ") for x in child.stderr.splitlines() if x.startswith("crossrank: ")]


def test_the_report_says_what_ran(tmp_path: Path) -> None:
    child = crossrank_jax(tmp_path, "--report", "report.json", script(tmp_path, SUM))
    assert (child.returncode, child.stdout) == (0, "8 8.0\n")
    (line,) = said(child)
    assert line.startswith("on our kernels: 1 all-reduce in 1 of ")
    report: dict[str, Any] = json.loads((tmp_path / "report.json").read_text())
    assert report["executables"] == 1
    assert report["converted"] == {"all-reduce": 1}
    assert report["left"] == {}
    assert report["ran"]["all-reduce"]["calls"] == 1
    assert [report["error"], report["errors"], report["failure"]] == [None, {}, None]
    (module,) = report["modules"]
    assert (module["name"], module["ranks"]) == ("jit_total", 8)
    assert "script.py:6)" in module["calls"][0]


@pytest.mark.parametrize(
    ("options", "environment", "before", "ranks"),
    [
        ([], {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}, "", 2),
        (["--ranks", "3"], {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}, "", 3),
        (["--ranks", "3"], {}, "import os; os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=4'", 4),
        ([], {}, "import jax; jax.config.update('jax_num_cpu_devices', 5)", 5),
    ],
    ids=["environment", "option over environment", "script", "script's config"],
)
def test_the_number_of_ranks(
    tmp_path: Path, options: list[str], environment: dict[str, str], before: str, ranks: int
) -> None:
    child = crossrank_jax(tmp_path, *options, script(tmp_path, f"{before}\n{SUM}"), **environment)
    assert child.stdout == f"{ranks} {float(ranks)}\n"
    assert said(child)[0].startswith("on our kernels: 1 all-reduce")


WHO = """
import os, sys
import beside
assert "jax" not in sys.modules
print(sys.argv, sys.path[0], __name__, __file__, __spec__, sys.modules["__main__"].WHO, os.getcwd())
"""


def test_arguments_path_and_main_are_the_scripts_own(tmp_path: Path) -> None:
    folder = tmp_path / "sub"
    folder.mkdir()
    (folder / "beside.py").write_text("")
    (folder / "who.py").write_text("WHO = 1\n" + WHO)
    arguments = ["sub/who.py", "--report", "x", "--", "-h"]
    assert crossrank_jax(tmp_path, *arguments).stdout == run(arguments, tmp_path).stdout


ENDINGS = {
    "sys.exit": "import sys; sys.exit(7)",
    "a message": "raise SystemExit('enough')",
    "an exception": "def f():\n    1 / 0\ntry:\n    f()\nexcept ArithmeticError as e:\n    raise KeyError(1) from e",
    "a syntax error": "x = = 1",
    "its own hook": "import sys\nsys.excepthook = lambda *e: print('mine', e[0].__name__)\n1 / 0",
    "an interrupt": "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(5)",
    "a signal": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)",
    "parts of crossrank, and no jax": "import crossrank.program.language\nprint(crossrank.__name__)",
    "at exit": "import atexit\natexit.register(print, 'last')\nprint('first')",
}


@pytest.mark.parametrize("text", ENDINGS.values(), ids=ENDINGS)
def test_it_ends_as_the_script_does(tmp_path: Path, text: str) -> None:
    name = script(tmp_path, text)
    ours, own = crossrank_jax(tmp_path, name), run([name], tmp_path)
    assert (ours.returncode, ours.stdout) == (own.returncode, own.stdout)
    theirs = [x for x in ours.stderr.splitlines() if not x.startswith("crossrank: ")]
    assert theirs == own.stderr.splitlines()
    if own.returncode != -signal.SIGTERM:
        assert said(ours) == ["nothing ran on our kernels: the script did not import jax"]


def test_without_a_compiler_the_script_runs_all_the_same(tmp_path: Path) -> None:
    options = ["--report", "report.json", script(tmp_path, SUM)]
    child = crossrank_jax(tmp_path, *options, CXX="no-such-compiler", CROSSRANK_CACHE=str(tmp_path / "cache"))
    assert (child.returncode, child.stdout) == (0, "8 8.0\n")
    assert "no-such-compiler" in said(child)[0]
    assert "no-such-compiler" in json.loads((tmp_path / "report.json").read_text())["error"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "crossrank jax needs a script"),
        (["missing.py"], "missing.py: there is no such file"),
        (["."], ". is a folder"),
        (["--passes", "no-such-pass", "script.py"], "unknown pass no-such-pass"),
        (["--ranks", "0", "script.py"], "--ranks 0: there is no run on fewer than one rank"),
        (["--report", "no/such/folder.json", "script.py"], "cannot write no/such/folder.json: there is no such folder"),
    ],
    ids=["nothing", "no file", "folder", "no pass", "no ranks", "no folder"],
)
def test_bad_usage_is_said_before_anything_runs(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    script(tmp_path, "print('ran')")
    child = crossrank_jax(tmp_path, *arguments)
    assert (child.returncode, child.stdout) == (2, "")
    assert child.stderr.splitlines()[0] == f"crossrank: {complaint}"


def test_passes_and_their_remarks(tmp_path: Path) -> None:
    passes = "convert-collectives-to-custom-call{all_computations=true}"
    child = crossrank_jax(tmp_path, "--passes", passes, "--remarks", script(tmp_path, SUM))
    assert child.stdout == "8 8.0\n"
    assert said(child)[0].startswith("convert-collectives-to-custom-call: done: ")
    assert said(child)[-1].startswith("on our kernels: 1 all-reduce")


@pytest.mark.parametrize(
    ("arguments", "kinds"),
    [
        (["dp_train.py", "--steps", "3"], {"all-reduce"}),
        (["tp_transformer.py", "--steps", "2"], {"all-reduce"}),
        (["moe_all_to_all.py"], {"all-reduce", "all-to-all"}),
    ],
    ids=lambda x: x[0] if isinstance(x, list) else "",
)
def test_examples_print_the_same(tmp_path: Path, arguments: list[str], kinds: set[str]) -> None:
    command = [str(EXAMPLES / arguments[0]), *arguments[1:]]
    plain, hooked = run(command, tmp_path), crossrank_jax(tmp_path, "--report", "report.json", *command)
    assert (plain.returncode, hooked.returncode) == (0, 0), plain.stderr + hooked.stderr
    assert plain.stdout == hooked.stdout
    report = json.loads((tmp_path / "report.json").read_text())
    assert set(report["converted"]) == kinds
    assert report["left"] == {}
