"""Modules of several ranks, run side by side: who meets whom, values, and what cannot be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crossrank.errors import InputError, RunError
from crossrank.hlo.execute.run import RunOptions
from crossrank.hlo.execute.several import ProgramReport, run_program
from crossrank.hlo.io import ModuleFile, parse_module
from crossrank.hlo.program import Program, run_passes_on_program
from crossrank.passes import parse_passes
from tests.support import corpus_file, corpus_text, hlo, needs_corpus, opcodes, reducer, reread, run_values

FUSE = "fuse-send-recv"
OURS = "inline-calls,fuse-send-recv,convert-collectives-to-custom-call{all_computations=true}"


def files(*texts: str) -> list[ModuleFile]:
    return [parse_module(text.encode(), f"{'abcdefgh'[n]}.hlo") for n, text in enumerate(texts)]


def run(*texts: str, passes: str = FUSE, **options: object) -> ProgramReport:
    chosen = RunOptions(**{"iters": 0, "limit_s": 20.0, **options})  # type: ignore[arg-type]
    return run_program(files(*texts), parse_passes(passes), chosen)


def fused(*texts: str, passes: str = FUSE) -> tuple[list[ModuleFile], list[list[str]]]:
    """The modules as the passes leave them, and the remarks by rank."""
    made = files(*texts)
    program = Program(tuple(f.module for f in made), tuple(f.path for f in made))
    results = run_passes_on_program(program, parse_passes(passes))
    return made, [[f"{m.instruction}: {m.reason}" for r in by_rank for m in r.remarks] for by_rank in results]


class Writer:
    """The text of one rank's module, line by line."""

    def __init__(self, shape: str = "f32[4]") -> None:
        self.shape = shape
        self.lines = [f"  x = {shape} parameter(0)", "  t = token[] after-all()"]
        self.token = "t"
        self.count = 0

    def send(self, data: str, channel: int, token: str = "", routes: str = "") -> Writer:
        n = self.count = self.count + 1
        of = self.shape
        self.lines.append(f"  s_{n} = ({of}, u32[], token[]) send({data}, {token or self.token}){_at(channel, routes)}")
        self.lines.append(f"  sd_{n} = token[] send-done(s_{n}), channel_id={channel}")
        self.token = f"sd_{n}"
        return self

    def recv(self, name: str, channel: int, token: str = "", routes: str = "") -> Writer:
        n = self.count = self.count + 1
        of = self.shape
        self.lines.append(f"  r_{n} = ({of}, u32[], token[]) recv({token or self.token}){_at(channel, routes)}")
        self.lines.append(f"  rd_{n} = ({of}, token[]) recv-done(r_{n}), channel_id={channel}")
        self.lines.append(f"  {name} = {of} get-tuple-element(rd_{n}), index=0")
        self.lines.append(f"  k_{n} = token[] get-tuple-element(rd_{n}), index=1")
        self.token = f"k_{n}"
        return self

    def add(self, *lines: str) -> Writer:
        self.lines += [f"  {line}" for line in lines]
        return self

    def text(self, root: str, *computations: str, header: str = "entry_computation_layout={}") -> str:
        return hlo("\n".join([*self.lines, f"  ROOT out = {root}"]), *computations, header=header).replace(
            ", entry_computation_layout={}", ""
        )


def _at(channel: int, routes: str) -> str:
    said = f", frontend_attributes={{_xla_send_recv_source_target_pairs={routes}}}" if routes else ""
    return f", channel_id={channel}{said}"


def stages() -> tuple[str, str, str]:
    """A pipeline of three ranks, and the last answers the first."""
    return (
        Writer().send("x", 1).recv("v", 3).text("f32[4] subtract(v, x)"),
        Writer().recv("v", 1).add("w = f32[4] add(v, x)").send("w", 2).text("f32[4] negate(w)"),
        Writer().recv("v", 2).add("w = f32[4] multiply(v, x)").send("w", 3).text("f32[4] copy(v)"),
    )


# -- the pass ----------------------------------------------------------------------------------------------------------
def test_each_module_gets_its_half() -> None:
    made, remarks = fused(*stages())
    assert remarks[0] == [
        "%s_1: send → AwsNeuronSend_f32 on channel 1",
        "%r_2: recv → AwsNeuronRecv_f32 on channel 3",
    ]
    for file in made:
        module = reread(file).module
        assert not {"send", "recv", "send-done", "recv-done"} & set(opcodes(module))
        calls = [i for i in module.instructions() if i.opcode == "custom-call"]
        assert len(calls) == 2
        assert all(i.proto.custom_call_has_side_effect for i in calls)
    calls = [i for i in made[1].module.instructions() if i.opcode == "custom-call"]
    assert [(i.proto.custom_call_target, i.proto.backend_config) for i in calls] == [
        ("AwsNeuronRecv_f32", b"channel_id=1"),
        ("AwsNeuronSend_f32", b"channel_id=2"),
    ]


def test_a_half_whose_partner_would_wait_for_itself_stays() -> None:
    """The control dependency that makes rank 1's recv wait for its own send, as an asynchronous pair may."""
    one = Writer().send("x", 1).recv("v", 2).text("f32[4] add(v, x)")
    other = """
  x = f32[4] parameter(0)
  t = token[] after-all()
  r = (f32[4], u32[], token[]) recv(t), channel_id=1
  s = (f32[4], u32[], token[]) send(x, t), channel_id=2, control-predecessors={r}
  sd = token[] send-done(s), channel_id=2
  rd = (f32[4], token[]) recv-done(r), channel_id=1, control-predecessors={sd}
  ROOT v = f32[4] get-tuple-element(rd), index=0"""
    made, remarks = fused(one, hlo(other, header="replica_count=2"))
    assert all(len(said) == 2 and "wait for itself" in said[0] for said in remarks)
    assert not any(i.opcode == "custom-call" for f in made for i in f.module.instructions())


def test_spare_halves_stay_or_are_converted() -> None:
    texts = (Writer().send("x", 1).send("x", 9).text("f32[4] copy(x)"), Writer().recv("v", 1).text("f32[4] copy(v)"))
    _, remarks = fused(*texts)
    assert remarks[0][0] == "%s_2: no recv meets it on channel 9 in any module"
    made, _ = fused(*texts, passes=FUSE + "{convert_unpaired=true}")
    assert "send" not in opcodes(made[0].module)


def test_a_program_of_one_module_fuses_its_pairs() -> None:
    text = Writer().send("x", 1, routes="{{0,1}}").recv("v", 1, routes="{{0,1}}").text("f32[4] copy(v)")
    _, remarks = fused(text, text)
    assert [said[0].split(" → ")[1] for said in remarks] == ["AwsNeuronSendRecv_f32 on channel 1"] * 2


FAULTS = {
    "two senders": (
        [Writer().send("x", 1), Writer().send("x", 1), Writer().recv("v", 1)],
        "a.hlo: %s_1 and b.hlo: %s_1: channel_id 1 is used by more than one Send",
    ),
    "two receivers": (
        [Writer().send("x", 1), Writer().recv("v", 1), Writer().recv("v", 1)],
        "b.hlo: %r_1 and c.hlo: %r_1: channel_id 1 is used by more than one Recv",
    ),
    "no order": (
        [Writer().send("x", 1).send("x", 1, token="t"), Writer().recv("v", 1).recv("w", 1)],
        "a.hlo: %s_1 and %s_2: channel_id 1 is used by more than one Send",
    ),
    "other shapes": (
        [Writer().send("x", 1), Writer("f32[2,2]").recv("v", 1)],
        "a.hlo: %s_1 sends f32[4], but b.hlo: %r_1 receives f32[2,2]",
    ),
    "other types": (
        [Writer().send("x", 1), Writer("s32[4]").recv("v", 1)],
        "a.hlo: %s_1 sends f32[4], but b.hlo: %r_1 receives s32[4]",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_cannot_meet_is_an_error(name: str) -> None:
    writers, complaint = FAULTS[name]
    texts = [w.text(f"{w.shape} copy(x)") for w in writers]
    for apply in (lambda: fused(*texts), lambda: run(*texts, passes="")):
        with pytest.raises(InputError) as raised:
            apply()
        assert raised.value.what == complaint


def test_faults_of_one_module_name_its_file() -> None:
    bad = (
        Writer()
        .text("f32[4] copy(x)")
        .replace("  ROOT", '  c = f32[4] custom-call(x), custom_call_target="AwsNeuronNothing_f32"\n  ROOT')
    )
    with pytest.raises(InputError, match=r"^b\.hlo: %c: AwsNeuronNothing_f32"):
        fused(Writer().text("f32[4] copy(x)"), bad, passes="verify-collective-targets")


# -- runs --------------------------------------------------------------------------------------------------------------
def test_a_pipeline_gives_what_it_should(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    np.savez(tmp_path / "in.npz", **{f"r{rank}.p0": x[rank] for rank in range(3)}, **{"r2.o0": x[0] + x[1]})
    report = run(*stages(), inputs=str(tmp_path / "in.npz"), outputs=str(tmp_path / "out.npz"), iters=2)
    assert report.equal
    assert report.result["exact"]
    assert report.result["golden"] == {
        "equal": True,
        "max_rel_err": 0.0,
        "first_difference": None,
        "original": {"equal": True, "max_rel_err": 0.0},
        "outputs": 1,
    }
    assert report.custom_calls == {"AwsNeuronRecv_f32": 3, "AwsNeuronSend_f32": 3}
    assert report.before == {"recv": 3, "send": 3}
    assert [(o["rank"], o["index"]) for o in report.result["outputs"]] == [(0, 0), (1, 0), (2, 0)]
    found = report.as_dict()
    assert found["files"] == ["a.hlo", "b.hlo", "c.hlo"]
    assert found["time_ms"]["rewritten"] > 0
    with np.load(tmp_path / "out.npz") as out:
        passed = x[0] + x[1]
        assert np.array_equal(out["r0.o0"], passed * x[2] - x[0])
        assert np.array_equal(out["r1.o0"], -passed)
        assert np.array_equal(out["r2.o0"], passed)


def random_program(rng: np.random.Generator, ranks: int) -> tuple[list[str], list[int]]:
    """Transfers between random ranks, in one order for all, over few channels; and what each rank ends with."""
    writers = [Writer("s32[3]") for _ in range(ranks)]
    names, values = ["x"] * ranks, list(range(1, ranks + 1))
    channels: dict[tuple[int, int], int] = {}
    for n in range(10):
        source, target = (int(k) for k in rng.choice(ranks, 2, replace=False))
        channel = channels.setdefault((source, target), len(channels) + 1)
        writers[source].send(names[source], channel)
        writers[target].recv(f"v_{n}", channel).add(
            f"w_{n} = s32[3] add(v_{n}, {names[target]})", f"u_{n} = s32[3] add(w_{n}, v_{n})"
        )
        names[target] = f"u_{n}"
        values[target] += 2 * values[source]
    return [w.text(f"s32[3] copy({name})") for w, name in zip(writers, names, strict=True)], values


@pytest.mark.parametrize("seed", range(4))
def test_random_programs(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    texts, values = random_program(rng, 2 + seed)
    given = {f"r{rank}.p0": np.full(3, rank + 1, np.int32) for rank in range(len(texts))}
    np.savez(tmp_path / "in.npz", **given)
    report = run(*texts, inputs=str(tmp_path / "in.npz"), outputs=str(tmp_path / "out.npz"))
    assert report.result["exact"]
    assert sum(report.custom_calls.values()) == 20
    with np.load(tmp_path / "out.npz") as out:
        assert [int(out[f"r{rank}.o0"][0]) for rank in range(len(texts))] == values


def test_both_may_send_first_and_loops_go_round() -> None:
    """A send waits for nobody, even where it is sent again before it was received for the first time."""
    body = """
step_{me} {{
  p_{me} = (s32[], f32[4]) parameter(0)
  i_{me} = s32[] get-tuple-element(p_{me}), index=0
  a_{me} = f32[4] get-tuple-element(p_{me}), index=1
  t_{me} = token[] after-all()
  s_{me}x = (f32[4], u32[], token[]) send(a_{me}, t_{me}), channel_id={out}
  sd_{me} = token[] send-done(s_{me}x), channel_id={out}
  r_{me} = (f32[4], u32[], token[]) recv(sd_{me}), channel_id={back}
  rd_{me} = (f32[4], token[]) recv-done(r_{me}), channel_id={back}
  v_{me} = f32[4] get-tuple-element(rd_{me}), index=0
  b_{me} = f32[4] add(v_{me}, a_{me})
  c_{me} = s32[] constant(1)
  j_{me} = s32[] add(i_{me}, c_{me})
  ROOT q_{me} = (s32[], f32[4]) tuple(j_{me}, b_{me})
}}
cond {{
  p = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)
  ROOT l = pred[] compare(i, n), direction=LT
}}"""
    texts = [
        Writer()
        .add("z = s32[] constant(0)", "w = (s32[], f32[4]) tuple(z, x)")
        .add(f"l = (s32[], f32[4]) while(w), condition=cond, body=step_{me}")
        .text("f32[4] get-tuple-element(l), index=1", body.format(me=me, out=out, back=back))
        for me, out, back in (("a", 1, 2), ("b", 2, 1))
    ]
    report = run(*texts, passes=FUSE + "{all_computations=true}", iters=3)
    assert report.result["exact"]
    assert report.custom_calls == {"AwsNeuronRecv_f32": 2, "AwsNeuronSend_f32": 2}
    assert not report.warnings


def test_other_collectives_meet_across_modules() -> None:
    """Two programs that say the same collectives around different arithmetic."""
    entry = """
  x = f32[8] parameter(0)
  n = s32[8] parameter(1)
  y = f32[8] {op}(x)
  a = f32[8] all-reduce(y), replica_groups={{}}, channel_id=1, use_global_device_ids=true, to_apply=add_f32
  g = f32[16] all-gather(y), replica_groups={{{{1,0}}}}, dimensions={{0}}, channel_id=1, use_global_device_ids=true
  p = f32[8] collective-permute(a), source_target_pairs={{{{0,1}}}}, channel_id=2
  e = f32[8] all-to-all(p), replica_groups={{{{0,1}}}}, dimensions={{0}}, channel_id=3
  o = s32[8] all-reduce(n), replica_groups={{}}, channel_id=4, use_global_device_ids=true, to_apply=xor_s32
  i = u32[] partition-id()
  ROOT out = (f32[8], f32[16], f32[8], s32[8], u32[]) tuple(a, g, e, o, i)"""
    bodies = (reducer(), reducer("xor", "s32"))
    texts = [hlo(entry.format(op=op), *bodies, header="num_partitions=2") for op in ("negate", "cosine")]
    report = run(*texts, passes=OURS)
    assert report.result["exact"]
    assert report.custom_calls["AwsNeuronAllReduceAdd_f32"] == 2
    assert report.custom_calls["AwsNeuronAllGather_f32"] == 2


@needs_corpus
def test_one_program_on_all_ranks_gives_what_it_gives_as_one_module(tmp_path: Path) -> None:
    name = "send_recv_pipeline.hlo"
    one, several = tmp_path / "one.npz", tmp_path / "several.npz"
    run_values(corpus_text(name).decode(), OURS, outputs=str(one))
    options = RunOptions(iters=0, limit_s=20.0, outputs=str(several))
    report = run_program([corpus_file(name) for _ in range(8)], parse_passes(OURS), options)
    assert report.result["exact"]
    assert report.file == name
    assert report.files == [name] * 8
    with np.load(one) as a, np.load(several) as b:
        assert np.array_equal(a["o0"], np.stack([b[f"r{rank}.o0"] for rank in range(8)]))


def test_an_echo_runs_in_one_module_and_in_several(tmp_path: Path) -> None:
    """What is sent needs what is received: left native, and run as two calls."""
    route = "{{0,1},{1,2}}"
    echo = Writer().recv("v", 1, routes=route).add("w = f32[4] add(v, x)").send("w", 1, routes=route, token="t")
    text = echo.text("f32[4] copy(v)", header="replica_count=3")
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.savez(tmp_path / "one.npz", p0=x)
    np.savez(tmp_path / "three.npz", **{f"r{rank}.p0": x[rank] for rank in range(3)})
    expected = [0 * x[0], x[0], x[0] + x[1]]
    assert run_values(text, FUSE, inputs=str(tmp_path / "one.npz"), outputs=str(tmp_path / "out.npz")).result["exact"]
    with np.load(tmp_path / "out.npz") as out:
        assert np.array_equal(out["o0"], expected)
    report = run(text, text, text, inputs=str(tmp_path / "three.npz"), outputs=str(tmp_path / "out.npz"))
    assert report.result["exact"]
    with np.load(tmp_path / "out.npz") as out:
        assert np.array_equal([out[f"r{rank}.o0"] for rank in range(3)], expected)


# -- order -------------------------------------------------------------------------------------------------------------
def all_reduce(operand: str, more: str = "") -> str:
    ids = "replica_groups={{0,1}}, channel_id=9, use_global_device_ids=true"
    return f"f32[4] all-reduce({operand}), {ids}, to_apply=add_f32{more}"


@pytest.mark.parametrize(("control", "passes"), [("", FUSE), (", control-predecessors={sd_1}", "")])
def test_a_send_is_not_kept_waiting_by_a_collective(control: str, passes: str) -> None:
    """Its receiver comes to the collective only once it has what is sent."""
    first = Writer().send("x", 1).text(all_reduce("x", control), reducer())
    second = Writer().recv("v", 1).text(all_reduce("v"), reducer())
    assert run(first, second, passes=passes, limit_s=30.0).result["exact"]


def test_loops_and_conditionals_wait_like_what_is_in_them() -> None:
    """Rank 0 sends before its loop, between it and the conditional by control only, and behind that for a loop."""
    bodies = """
body { p = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  a = f32[4] get-tuple-element(p), index=1
  b = SUM(a)
  c = s32[] constant(1)
  j = s32[] add(i, c)
  ROOT q = (s32[], f32[4]) tuple(j, b) }
cond { p = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT l = pred[] compare(i, n), direction=LT }
yes { a = f32[4] parameter(0)
  ROOT b = SUM(a) }
no { a = f32[4] parameter(0)
  ROOT b = f32[4] negate(a) }""".replace("SUM(a)", all_reduce("a"))
    loop = "l = (s32[], f32[4]) while(w), condition=cond, body=body"
    choice = "k = f32[4] conditional(p, {0}, {0}), true_computation=yes, false_computation=no"
    start = ("z = s32[] constant(0)", "p = pred[] constant(true)")
    first = (
        Writer()
        .add(*start, "w = (s32[], f32[4]) tuple(z, x)", loop, choice.format("x"))
        .send("x", 1)
        .send("x", 2, token="t")
        .text("(s32[], f32[4], f32[4]) tuple(i, y, k)", reducer(), bodies)
        .replace(
            "ROOT out",
            "i = s32[] get-tuple-element(l), index=0\n  y = f32[4] get-tuple-element(l), index=1\n  ROOT out",
        )
        .replace("send(x, t), channel_id=2", "send(x, t), channel_id=2, control-predecessors={l}")
    )
    second = (
        Writer()
        .recv("v", 1)
        .add(*start, "w = (s32[], f32[4]) tuple(z, v)", loop)
        .recv("u", 2)
        .add(choice.format("u"))
        .text("(f32[4], (s32[], f32[4])) tuple(k, l)", reducer(), bodies)
    )
    assert run(first, second, passes="", limit_s=30.0).result["exact"]


def test_what_stands_between_a_recv_and_its_echo_waits(tmp_path: Path) -> None:
    """In one module, where all ranks wait for the all-reduce, and one of them for the send of another before."""
    echo = Writer().recv("v", 1, routes="{{0,1},{1,2}}").add("w = f32[4] add(v, x)")
    echo.send("w", 1, routes="{{0,1},{1,2}}", token="t")
    echo.add("y = f32[4] negate(v)", "a = f32[4] all-reduce(y), replica_groups={}, to_apply=add_f32")
    text = echo.text("f32[4] negate(a)", reducer(), header="replica_count=3")
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.savez(tmp_path / "in.npz", p0=x)
    report = run_values(text, "", inputs=str(tmp_path / "in.npz"), outputs=str(tmp_path / "out.npz"), limit_s=30.0)
    assert report.result["exact"]
    with np.load(tmp_path / "out.npz") as out:
        assert np.array_equal(out["o0"], [2 * x[0] + x[1]] * 3)


# -- what goes wrong ---------------------------------------------------------------------------------------------------
def test_who_waits_for_whom_is_said() -> None:
    first = Writer().recv("v", 2).send("x", 1).text("f32[4] add(v, x)")
    second = Writer().recv("v", 1).send("x", 2).text("f32[4] add(v, x)")
    for passes in ("", FUSE):
        with pytest.raises(RunError) as raised:
            run(first, second, passes=passes, limit_s=1.0)
        said = str(raised.value)
        assert "waited 1 s: rank" in said
        assert "b.hlo: %s_2" in said
        assert "a.hlo: %s_2" in said
        one, other = ("0", "1") if "rank 0 arrived, rank 1 did not" in said else ("1", "0")
        assert f"rank {other} waits in" in said
        assert said.endswith(f"for rank {one}")


def test_a_collective_that_only_one_module_has_is_waited_for() -> None:
    lone = "a = f32[4] all-reduce(x), replica_groups={}, to_apply=add_f32"
    texts = [Writer().add(lone).text("f32[4] copy(a)", reducer()), Writer().text("f32[4] copy(x)")]
    with pytest.raises(RunError, match=r"all-reduce a\.hlo: %a waited 1 s: rank 0 arrived, rank 1 did not"):
        run(*texts, passes=OURS, limit_s=1.0)


@pytest.mark.parametrize(
    ("old", "new", "has"),
    [
        ("channel_id=9", "channel_id=4", ("channel 9", "channel 4")),
        ("add_f32", "multiply_f32", ("reduction add", "reduction multiply")),
        ("{{0,1}}", "{{1,0}}", ("groups {{0,1}}", "groups {{1,0}}")),
    ],
)
def test_in_what_collectives_differ_that_do_not_meet(old: str, new: str, has: tuple[str, str]) -> None:
    bodies = (reducer(), reducer("multiply"))
    text = Writer().add("a = " + all_reduce("x")).text("f32[4] copy(a)", *bodies)
    other = Writer().add("b = " + all_reduce("x").replace(old, new)).text("f32[4] copy(b)", *bodies)
    with pytest.raises(InputError) as raised:
        run(text, other, passes="")
    assert raised.value.what == f"a.hlo: %a has {has[0]}, but b.hlo: %b {has[1]}: they never meet"


def test_in_a_branch_it_is_said_once_somebody_waits() -> None:
    branches = (
        "yes { a = f32[4] parameter(0)\n  ROOT b = SUM }\nno { a = f32[4] parameter(0)\n  ROOT b = f32[4] copy(a) }"
    )
    texts = [
        Writer()
        .add(f"p = pred[] constant({taken})")
        .text(
            "f32[4] conditional(p, x, x), true_computation=yes, false_computation=no",
            reducer(),
            branches.replace("SUM", all_reduce("a").replace("channel_id=9", f"channel_id={channel}")),
        )
        for taken, channel in (("true", 3), ("false", 4))
    ]
    with pytest.raises(
        RunError, match=r"a\.hlo: %b.* \(a\.hlo: %b.* has channel 3, but b\.hlo: %b.* channel 4\) waited 1 s"
    ):
        run(*texts, passes="", limit_s=1.0)
    assert run(*(t.replace("constant(true)", "constant(false)") for t in texts), passes="").result["exact"]


def test_a_half_alone_cannot_run() -> None:
    with pytest.raises(InputError, match=r"a\.hlo: %s_1: no recv meets it on channel 5 in any module"):
        run(Writer().send("x", 5).text("f32[4] copy(x)"), Writer().text("f32[4] copy(x)"))


def test_rank_counts_must_agree() -> None:
    plain = Writer().text("f32[4] copy(x)")
    with pytest.raises(InputError, match=r"b\.hlo is a module for 3 ranks, and there are 2 files"):
        run(plain, Writer().text("f32[4] copy(x)", header="num_partitions=3"))
    with pytest.raises(InputError, match="--ranks"):
        run(plain, plain, ranks=2)
    with pytest.raises(InputError, match="--verify-each"):
        run(plain, plain, verify_each=True)


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        (["r0.p0"], r"has no r1\.p0, a f32\[4\]"),
        (["r0.p0", "r1.p0", "r2.p0"], r"has r2\.p0, which is no rank's"),
        (["p0"], r"has p0, which is no rank's"),
    ],
)
def test_inputs_are_given_by_rank(keys: list[str], complaint: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", **{key: np.zeros(4, np.float32) for key in keys})
    plain = Writer().text("f32[4] copy(x)")
    with pytest.raises(InputError, match=complaint):
        run(plain, plain, inputs=str(tmp_path / "in.npz"))
