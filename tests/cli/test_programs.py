"""The commands on programs of the program level: files, options, exit status, plain lines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cli.commands import as_json, crossrank

SHIFT = """
import numpy as np
import crossrank.program.language as pl
import crossrank.program.language.distributed as pld

NR = pl.dynamic("NR")
ROW = pl.Tensor[[1, 8], pl.FP32]


@pl.program
class Shift:
    @pl.function(type=pl.FunctionType.InCore)
    def step(
        self,
        x: ROW,
        y: pl.Out[ROW],
        inbox: pl.InOut[pld.DistributedTensor[[1, 8], pl.FP32]],
        signal: pl.InOut[pld.DistributedTensor[[1, 1], pl.INT32]],
        right: pl.Scalar[pl.INT32],
    ) -> ROW:
        inbox = pld.tile.remote_store(pl.load(x, [0, 0], [1, 8]), target=inbox, peer=right, offsets=[0, 0])
        pld.system.notify(target=signal, peer=right, offsets=[0, 0], value=1, op=pld.NotifyOp.AtomicAdd)
        pld.system.wait(signal=signal, offsets=[0, 0], expected=1, cmp=pld.WaitCmp.Ge)
        return pl.store(pl.load(inbox, [0, 0], [1, 8]), [0, 0], y)

    @pl.function(type=pl.FunctionType.Orchestration)
    def chip(
        self,
        x: ROW,
        y: pl.Out[ROW],
        inbox: pl.InOut[pld.DistributedTensor[[1, 8], pl.FP32]],
        signal: pl.InOut[pld.DistributedTensor[[1, 1], pl.INT32]],
        right: pl.Scalar[pl.INT32],
    ) -> ROW:
        return self.step(x, y, inbox, signal, right)

    @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
    def host(self, x: pl.Tensor[[NR, 1, 8], pl.FP32], y: pl.Out[pl.Tensor[[NR, 1, 8], pl.FP32]]):
        inboxes = pld.alloc_window_buffer(8 * pl.FP32.get_byte())
        signals = pld.alloc_window_buffer(pl.INT32.get_byte())
        for r in pl.range(pld.world_size()):
            inbox = pld.window(inboxes, [1, 8], dtype=pl.FP32)
            signal = pld.window(signals, [1, 1], dtype=pl.INT32)
            self.chip(x[r], y[r], inbox, signal, (r + 1) % pld.world_size(), device=r)
        return y


program = Shift


def inputs(ranks, seed):
    x = np.random.default_rng(seed).normal(size=(ranks, 1, 8)).astype(np.float32)
    return {"x": x, "y": np.zeros_like(x)}


def expected(ranks, inputs):
    return {"y": np.roll(inputs["x"], 1, axis=0)}
"""


@pytest.fixture
def shift(tmp_path: Path) -> Path:
    path = tmp_path / "shift.py"
    path.write_text(SHIFT)
    return path


def changed(path: Path, *pairs: tuple[str, str]) -> Path:
    text = path.read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    return path


def line_of(text: str) -> int:
    return SHIFT[: SHIFT.index(text)].count("\n") + 1


def test_run_says_what_was_run_and_compares(capsys: pytest.CaptureFixture[str], shift: Path, tmp_path: Path) -> None:
    saved, build = tmp_path / "out.npz", tmp_path / "build"
    options = ("--ranks", "3", "--seed", "5", "--outputs", str(saved), "--build", str(build))
    found = as_json(capsys, "run", str(shift), *options)
    assert found["equal"]
    assert found["exact"]
    assert (found["program"], found["ranks"], found["seed"], found["repeats"]) == ("Shift", 3, 5, 5)
    assert [(o["name"], o["shape"], o["dtype"]) for o in found["outputs"]] == [("y", [3, 1, 8], "f32")]
    assert found["expected"] == {"equal": True, "max_rel_err": 0.0, "outputs": 1, "first_difference": None}
    assert found["collectives"]["before"] == {"notify": 1, "remote_store": 1, "wait": 1}
    assert found["dispatches"] == found["tasks"] == {"0": 1, "1": 1, "2": 1}
    assert found["launched"] == {"step": 3}
    given = np.random.default_rng(5).normal(size=(3, 1, 8)).astype(np.float32)
    assert np.array_equal(np.load(saved)["y"], np.roll(given, 1, axis=0))
    (kernel,) = build.rglob("kernels/aiv/step.cpp")
    assert (kernel.parents[2] / "kernel_config.py").exists()
    status, out, _ = crossrank(capsys, "run", str(shift), "--ranks", "2")
    assert status == 0
    assert "1 dispatch a rank, 1 task a rank (step ×2)" in out
    assert "equal: y in 5 runs, bit for bit" in out


def test_what_is_not_as_expected_is_told(capsys: pytest.CaptureFixture[str], shift: Path) -> None:
    changed(shift, ('np.roll(inputs["x"], 1, axis=0)', 'np.roll(inputs["x"], 1, axis=0) + (np.arange(8) == 3)'))
    status, out, _ = crossrank(capsys, "run", str(shift), "--ranks", "2")
    assert status == 1
    assert "not as expected" in out
    assert "first at y[0, 0, 3]: " in out


def test_different_values_in_two_runs_are_a_race(capsys: pytest.CaptureFixture[str], shift: Path) -> None:
    """A sub-worker that counts its calls stands for whatever differs from run to run."""
    worker = (
        "    @pl.function(level=pl.Level.HOST, role=pl.Role.SubWorker)\n"
        "    def count(y: pl.InOut[pl.Tensor[[NR, 1, 8], pl.FP32]]):\n"
        "        CALLS.append(0)\n        y[0, 0, 2] = len(CALLS)\n\n"
        "    @pl.function(level=pl.Level.HOST,"
    )
    changed(
        shift,
        ("NR = pl", "CALLS = []\nNR = pl"),
        ("    @pl.function(level=pl.Level.HOST,", worker),
        ("        return y\n\n\nprogram", "        self.count(y)\n        return y\n\n\nprogram"),
    )
    status, out, _ = crossrank(capsys, "run", str(shift), "--ranks", "2")
    assert status == 1
    assert "a race: two runs on the same arguments give different values" in out
    assert "first at y[0, 0, 2]: 2.0 instead of 1.0" in out


def test_inputs_from_a_file(capsys: pytest.CaptureFixture[str], shift: Path, tmp_path: Path) -> None:
    x = np.arange(16, dtype=np.float32).reshape(2, 1, 8)
    y = np.zeros_like(x)
    good, bad, less = (tmp_path / f"{n}.npz" for n in ("good", "bad", "less"))
    np.savez(good, x=x, y=y, expected_y=x[::-1])
    np.savez(bad, x=x, y=y, expected_y=x)
    np.savez(less, y=y)
    assert crossrank(capsys, "run", str(shift), "--ranks", "2", "--inputs", str(good))[0] == 0
    assert crossrank(capsys, "run", str(shift), "--ranks", "2", "--inputs", str(bad))[0] == 1
    status, _, err = crossrank(capsys, "run", str(shift), "--ranks", "2", "--inputs", str(less))
    assert status == 2
    assert "does not give x, a parameter of host" in err


def test_an_output_whose_extent_is_computed(capsys: pytest.CaptureFixture[str], shift: Path) -> None:
    changed(
        shift,
        ("y: pl.Out[pl.Tensor[[NR, 1, 8], pl.FP32]]):", "y: pl.Out[pl.Tensor[[NR * 2 - NR, 1, 8], pl.FP32]]):"),
        ('{"x": x, "y": np.zeros_like(x)}', '{"x": x}'),
    )
    assert as_json(capsys, "run", str(shift), "--ranks", "3")["expected"]["equal"]


def test_opt_writes_what_run_reads(capsys: pytest.CaptureFixture[str], shift: Path, tmp_path: Path) -> None:
    text, given = tmp_path / "shift.mlir", tmp_path / "x.npz"
    options = ("--ranks", "2", "--pipeline", "program", "--print-after-all", "--stats", "-o", str(text))
    status, _, err = crossrank(capsys, "opt", str(shift), *options)
    assert status == 0
    assert [line for line in err.splitlines() if line.startswith("// after ")] == [
        f"// after {p}"
        for p in (
            "lower-composite-ops",
            "fuse-create-assemble-to-slice",
            "lower-l2-tensor-collectives",
            "legalize-spmd-launches",
            "derive-call-directions",
            "synthesize-allreduce-signals",
            "materialize-comm-domain-scopes",
            "lower-host-tensor-collectives",
            "materialize-dist-tensor-ctx",
            "insert-comm-fence",
        )
    ]
    x = np.arange(16, dtype=np.float32).reshape(2, 1, 8)
    np.savez(given, x=x, y=np.zeros_like(x), expected_y=x[::-1])
    status, out, err = crossrank(capsys, "run", str(text), "--ranks", "2", "--inputs", str(given), "--passes", "")
    assert (status, err) == (0, "")
    assert "no passes" in out
    status, out, _ = crossrank(capsys, "opt", str(text), "--ranks", "2")
    assert (status, out.startswith("builtin.module attributes {program.name")) == (0, True)


def test_inspect_shows_functions_windows_and_what_ranks_say(capsys: pytest.CaptureFixture[str], shift: Path) -> None:
    found = as_json(capsys, "inspect", str(shift), "--ranks", "2")
    assert [(f["name"], f["kind"], f["calls"]) for f in found["functions"]] == [
        ("step", "InCore", []),
        ("chip", "CHIP", ["step"]),
        ("host", "HOST", ["chip"]),
    ]
    assert [(w["name"], w["views"]) for w in found["windows"]] == [
        ("inboxes", ["DistributedTensor[[1, 8], FP32]"]),
        ("signals", ["DistributedTensor[[1, 1], INT32]"]),
    ]
    assert [(e["op"], e["detail"], e["operands"][-1], e["bytes"]) for e in found["collectives"]] == [
        ("remote_store", "", "inbox", 32),
        ("notify", "AtomicAdd", "signal", 4),
        ("wait", "Ge", "signal", 4),
    ]
    line = line_of("pld.system.notify(")
    assert [e["where"].split(":")[1] for e in found["collectives"]] == [str(line - 1), str(line), str(line + 1)]
    status, out, _ = crossrank(capsys, "inspect", str(shift), "--ranks", "2")
    assert status == 0
    assert "inboxes" in out


EXCHANGE = str(Path(__file__).parents[2] / "examples" / "exchange_pipeline.py")


@pytest.mark.parametrize(
    ("rail", "said"),
    [("host", ("HOST", 1, 1)), ("chip", ("CHIP", 0, 1)), ("incore", ("InCore", 0, 0))],
)
def test_inspect_shows_what_becomes_of_a_collective(
    capsys: pytest.CaptureFixture[str], rail: str, said: tuple[str, int, int]
) -> None:
    found = as_json(capsys, "inspect", EXCHANGE, "--ranks", "2", "--rail", rail)
    (entry,) = found["collectives"]
    assert (entry["rail"], entry["dispatches"], entry["tasks"]) == said
    assert (entry["blocks"], entry["core_num"], entry["domain"]) == ([1], None, "comm_d0 (all)")
    assert set(entry["windows"]) == {"stage_buf", "data_buf", "signal_buf", "counts_buf", "recv_buf"}
    assert found["cost"]["total"]["dispatches"] == 2 * (3 if rail == "host" else 1)
    assert (found["warnings"], found["rails"]) == ([], [])


def test_inspect_shows_what_a_pass_refuses(capsys: pytest.CaptureFixture[str], shift: Path) -> None:
    changed(shift, ("(r + 1) % pld.world_size(), device=r", "(r + 1) % pld.world_size(), device=r + 1"))
    found = as_json(capsys, "inspect", str(shift), "--ranks", "2")
    assert [e["op"] for e in found["collectives"]] == ["remote_store", "notify", "wait"]
    (warning,) = found["warnings"]
    assert "dispatch of chip: device= expression must be ConstInt" in warning
    assert found["cost"] is None
    status, out, err = crossrank(capsys, "inspect", str(shift), "--ranks", "2")
    assert (status, "remote_store" in out, "device= expression" in " ".join(err.split())) == (0, True, True)


def test_the_cheapest_rail_is_picked(capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, "run", EXCHANGE, "--ranks", "2", "--rail", "auto", "--iters", "1")
    costs = {rail["rail"]: rail["cost"]["estimated_ms"] for rail in found["rails"]}
    assert found["rail"] == min(costs, key=lambda rail: costs[rail]) == "incore"
    assert found["cost"]["estimated_ms"] == costs["incore"]
    assert (found["blocks"], found["launched"]) == ({"exchange": [1]}, {"exchange": 2})
    _, out, _ = crossrank(capsys, "run", EXCHANGE, "--ranks", "2", "--rail", "auto", "--iters", "1")
    (line,) = [line for line in out.splitlines() if line.startswith("rail ")]
    assert line.startswith("rail incore: ")
    assert line.replace(f"{costs['host']:.1f} ms", "X").endswith(
        f"(1 dispatch, 1 task a rank); host X, chip {costs['chip']:.2f} ms"
    )
    _, out, _ = crossrank(capsys, "inspect", EXCHANGE, "--ranks", "2", "--rail", "auto")
    assert [line.split()[0] for line in out.split("a run")[1].splitlines()[1:]] == ["host", "chip", "incore"]


WIDE = """
from functools import partial
import crossrank.program.language as pl
import crossrank.program.language.distributed as pld


def sums(ranks, rail, cores):
    Data, Cells = pld.DistributedTensor[[1, 64], pl.FP32], pld.DistributedTensor[[ranks, 64], pl.INT32]

    @pl.program
    class Sums:
        @pl.function(type=pl.FunctionType.Orchestration)
        def chip(self, data: pl.InOut[Data], cells: pl.InOut[Cells]):
            if rail == "chip":
                data = pld.tensor.allreduce(data, cells, core_num=cores)

        @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
        def host(self):
            data_buf = pld.alloc_window_buffer(256)
            cells_buf = pld.alloc_window_buffer(ranks * 256)
            data = pld.window(data_buf, [1, 64], dtype=pl.FP32)
            cells = pld.window(cells_buf, [ranks, 64], dtype=pl.INT32)
            for r in pl.range(pld.world_size()):
                self.chip(data, cells, device=r)
            if rail == "host":
                pld.tensor.allreduce(data, cells, core_num=cores)

    return Sums


programs = {
    "host": partial(sums, rail="host", cores=60),
    "chip": partial(sums, rail="chip", cores=60),
    "narrow": partial(sums, rail="chip", cores=6),
}
"""


def test_more_blocks_than_cores(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What could never run is told before it does, and is no rail to pick."""
    wide = tmp_path / "wide.py"
    wide.write_text(WIDE)
    reasons = {
        "host": "pld.tensor.allreduce core_num (60) exceeds the backend AIV core count (48)",
        "chip": "require_sync_start block_num=60 > limit=48 (deadlock guaranteed)",
    }
    for rail, reason in reasons.items():
        findings = as_json(capsys, "check", str(wide), "--ranks", "2", "--rail", rail)["findings"]
        assert [f["message"] for f in findings if f["severity"] == "error"] == [reason]
        status, _, err = crossrank(capsys, "run", str(wide), "--ranks", "2", "--rail", rail)
        assert (status, reason in " ".join(err.split())) == (2 if rail == "host" else 3, True)
    found = as_json(capsys, "inspect", str(wide), "--ranks", "2", "--rail", "auto")
    assert found["rail"] == "narrow"
    assert [reasons.get(rail["rail"], "None") in str(rail["reason"]) for rail in found["rails"]] == [True] * 3


def test_fewer_blocks_than_were_asked_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """An exchange among four ranks has four blocks, where six are asked for."""
    text = Path(EXCHANGE).read_text().replace("signal, counts, recv)\n", "signal, counts, recv, core_num=6)\n")
    text = text.replace(
        "signal: pl.InOut[CellsWindow]", "signal: pl.InOut[pld.DistributedTensor[[ranks, 6], pl.INT32]]"
    )
    text = text.replace("signal_buf, [ranks, 1]", "signal_buf, [ranks, 6]")
    asks = tmp_path / "asks.py"
    asks.write_text(text.replace("signal_buf = pld.alloc_window_buffer(", "signal_buf = pld.alloc_window_buffer(6 * "))
    (entry,) = as_json(capsys, "inspect", str(asks), "--ranks", "4", "--rail", "chip")["collectives"]
    assert (entry["core_num"], entry["blocks"]) == (6, [4])
    status, out, _ = crossrank(capsys, "inspect", str(asks), "--ranks", "4", "--rail", "chip")
    assert (status, "4 of 6" in out) == (0, True)


def test_check_looks_at_all_rails(capsys: pytest.CaptureFixture[str], shift: Path) -> None:
    changed(shift, ("program = Shift", "programs = {'good': Shift, 'bad': lambda ranks: 1 / 0}"))
    (found,) = as_json(capsys, "check", str(shift), "--ranks", "2", "--rail", "auto")["findings"]
    assert found["message"].endswith("ZeroDivisionError: division by zero (rail bad)")


HANGS = {
    "nobody notifies": (
        ("value=1, op", "value=0, op"),
        "ranks 0-1 wait in step (shift.py:{line}) for signal[0, 0] >= 1, which is 0",
    ),
    "too few": (("expected=1", "expected=2"), "for signal[0, 0] >= 2, which is 1"),
    "another peer": (("(r + 1) % pld.world_size()", "0"), "rank 1 waits in step"),
}


@pytest.mark.parametrize("case", HANGS)
def test_a_hang_is_told_at_once(capsys: pytest.CaptureFixture[str], shift: Path, case: str) -> None:
    change, message = HANGS[case]
    status, _, err = crossrank(capsys, "run", str(changed(shift, change)), "--ranks", "2", "--limit", "600")
    assert status == 3
    assert err.startswith("crossrank: nothing can go on: ")
    assert message.format(line=line_of("pld.system.wait")) in err


def test_check_finds_what_cannot_be(capsys: pytest.CaptureFixture[str], shift: Path) -> None:
    assert crossrank(capsys, "check", str(shift), "--ranks", "2")[0] == 0
    changed(shift, ("[0, 0], [1, 8]), target", "[0], [1, 8]), target"), ("(r + 1) % pld", "(r + 1) % plt"))
    found = as_json(capsys, "check", str(shift), "--ranks", "2")["findings"]
    lines = [line_of("inbox = pld.tile"), line_of("self.chip(x[r]")]
    assert [int(f["where"].split(":")[-2]) for f in found] == lines


def test_check_finds_a_collective_that_cannot_be_lowered(capsys: pytest.CaptureFixture[str], shift: Path) -> None:
    changed(
        shift,
        (
            "        return self.step(",
            "        pld.tensor.allreduce(inbox[0:1, 0:4], signal)\n        return self.step(",
        ),
    )
    found = as_json(capsys, "check", str(shift), "--ranks", "2")["findings"]
    assert [(f["kind"], f["message"].partition(":")[0]) for f in found] == [
        ("execute", "signal rows 1 differ from the domain's size 2"),
        ("lower-l2-tensor-collectives", "operand target is not provably packed"),
    ]


def test_check_finds_devices_that_are_not_there(capsys: pytest.CaptureFixture[str], shift: Path) -> None:
    changed(shift, ("pl.range(pld.world_size())", "pl.range(3)"))
    assert as_json(capsys, "check", str(shift), "--ranks", "3")["findings"] == []
    (found,) = as_json(capsys, "check", str(shift), "--ranks", "2")["findings"]
    assert found["where"].endswith(f":{line_of('self.chip(x[r]')}:13")
    assert found["message"] == "device 2 is not there: the program runs on 2, counted from 0"


def test_check_warns_of_an_old_name(capsys: pytest.CaptureFixture[str], shift: Path) -> None:
    call = "self.step(x, y, inbox, signal, right)"
    changed(shift, (f"return {call}", f"{call}\n        return y"))
    (found,) = as_json(capsys, "check", str(shift), "--ranks", "2")["findings"]
    assert (found["kind"], found["severity"]) == ("discipline", "warning")
    assert found["message"] == f"y is read here, and was given to step as Out in line {line_of(call)}"
    assert found["remedy"] == "go on with what the call gives: y = self.step(…)"
    assert crossrank(capsys, "check", str(shift), "--ranks", "2")[0] == 1


FAILS = {
    "no memory": (
        (("8 * pl.FP32.get_byte()", "2**50"),),
        f"shift.py:{line_of('pld.alloc_window_buffer(8')}:19: window buffer inboxes on 2 devices takes 2097152.0 GiB",
    ),
    "a sub-worker that ends Python": (
        (
            (
                "    @pl.function(level=pl.Level.HOST,",
                "    @pl.function(level=pl.Level.HOST, role=pl.Role.SubWorker)\n"
                "    def ends(y: pl.InOut[pl.Tensor[[NR, 1, 8], pl.FP32]]):\n"
                "        print('hello')\n        raise SystemExit(0)\n\n"
                "    @pl.function(level=pl.Level.HOST,",
            ),
            ("        return y\n\n\nprogram", "        self.ends(y)\n        return y\n\n\nprogram"),
        ),
        "sub-worker ends ends Python, and should only return",
    ),
}


@pytest.mark.parametrize("case", FAILS)
def test_a_run_that_fails(capsys: pytest.CaptureFixture[str], shift: Path, case: str) -> None:
    changes, message = FAILS[case]
    status, out, err = crossrank(capsys, "run", str(changed(shift, *changes)), "--ranks", "2")
    assert (status, out) == (3, "")
    assert message in err


def test_ranks_that_do_nothing_are_told(capsys: pytest.CaptureFixture[str], shift: Path) -> None:
    changed(
        shift,
        ("        pld.system.wait(signal=signal, offsets=[0, 0], expected=1, cmp=pld.WaitCmp.Ge)\n", ""),
        (
            "return self.step(x, y, inbox, signal, right)",
            "if right > 0:\n            y = self.step(x, y, inbox, signal, right)\n        return y",
        ),
        ("pl.range(pld.world_size())", "pl.range(2)"),
        ("(r + 1) % pld.world_size()", "(r + 1) % 2"),
        ('np.roll(inputs["x"], 1, axis=0)', 'np.zeros_like(inputs["x"])'),
    )
    assert as_json(capsys, "run", str(shift), "--ranks", "4")["warnings"] == [
        "ranks 2-3: nothing was dispatched to them",
        "rank 1: what was dispatched there launched no kernel",
    ]


REFUSED = {
    "no ranks": ((), (), "shift.py does not say how many ranks it runs on"),
    "no rail here": ((), ("--ranks", "2", "--rail", "host"), "defines one program"),
    "no lnc": ((), ("--ranks", "2", "--lnc", "2"), "--lnc is for a kernel, and"),
    "no oracle": ((), ("--ranks", "2", "--via", "oracle"), "--via is for an HLO module or a kernel, and"),
    "no device": (
        (("device=r", "device=99"),),
        ("--ranks", "2"),
        "device 99 is not there: the program runs on 2, counted from 0 run it on more, or dispatch to one of these",
    ),
    "no program": ((("program = Shift", "one = Shift"),), ("--ranks", "2"), "say program = Shift"),
    "not a program": ((("program = Shift", "program = 3"),), ("--ranks", "2"), "the program is an int"),
    "no decorator": ((("@pl.program\n", ""),), ("--ranks", "2"), "the program is the class Shift as Python has it"),
    "no rails": ((("program = Shift", "programs = {}"),), ("--ranks", "2"), "shift.py: programs is empty"),
    "several": ((("program = Shift", 'programs = {"a": Shift, "b": Shift}'),), ("--ranks", "2"), "pick one: --rail"),
    "no such rail": (
        (("program = Shift", 'programs = {"a": Shift}'),),
        ("--ranks", "2", "--rail", "b"),
        "--rail b: ",
    ),
    "wrong pass": ((), ("--ranks", "2", "--passes", "insert-ptcom"), "works on kernels, not on programs"),
    "no passes": ((), ("--ranks", "2", "--passes", ""), "run materialize-dist-tensor-ctx before"),
    "wrong order": (
        (),
        ("--ranks", "2", "--passes", "materialize-dist-tensor-ctx"),
        "pass materialize-dist-tensor-ctx requires CommDomainScopesMaterialized",
    ),
    "another shape": (
        (("np.zeros_like(x)", "np.zeros((ranks, 2, 8), np.float32)"),),
        ("--ranks", "2"),
        "inputs() gives float32[2, 2, 8] for y, which is Tensor[[NR, 1, 8], FP32] with NR = 2",
    ),
    "no such argument": ((('"y": np', '"z": np'),), ("--ranks", "2"), "z is no parameter of host"),
    "raises": ((("    x = np", "    raise ValueError('no')\n    x = np"),), ("--ranks", "2"), "ValueError: no"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_plain_line_says_what_is_wrong(capsys: pytest.CaptureFixture[str], shift: Path, case: str) -> None:
    changes, options, message = REFUSED[case]
    status, out, err = crossrank(capsys, "run", str(changed(shift, *changes)), *options)
    assert (status, out) == (2, "")
    assert message in " ".join(err.split())
    assert len(err.splitlines()) <= 2
