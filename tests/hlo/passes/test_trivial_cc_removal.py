"""`trivial-cc-removal`: a collective in which every rank is alone gives what it was given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ...support import apply, hlo, opcodes, parse, reducer, run_values
from .rewrites import FLAGS, Lines, data, data_text, declined, rewritten

NAME = "trivial-cc-removal"
SINGLE = "{{0},{1},{2},{3},{4},{5},{6},{7}}"
SELF = "{{0,0},{1,1},{2,2},{3,3},{4,4},{5,5},{6,6},{7,7}}"
ALONE = [
    f"all-reduce(p), replica_groups={SINGLE}, to_apply=add_f32, {FLAGS}",
    f"all-reduce(p), replica_groups=[8,1]<=[8], to_apply=add_f32, {FLAGS}",
    f"all-gather(p), replica_groups={SINGLE}, dimensions={{1}}, {FLAGS}",
    f"reduce-scatter(p), replica_groups={SINGLE}, dimensions={{0}}, to_apply=add_f32, {FLAGS}",
    f"all-to-all(p), replica_groups={SINGLE}, dimensions={{0}}, channel_id=1",
    f"collective-broadcast(p), replica_groups={SINGLE}, channel_id=1",
    f"collective-permute(p), source_target_pairs={SELF}, channel_id=1",
    "all-reduce(p), replica_groups={}, to_apply=add_f32",  # replicas, of which there is one
    'custom-call(p), custom_call_target="AwsNeuronAllReduceAdd_f32", '
    f'frontend_attributes={{replica_groups="{SINGLE}"}}, backend_config="channel_id=1;use_global_device_ids=true"',
]


def one(line: str, header: str = "num_partitions=8", more: str = ""):
    return parse(
        f"  p = f32[8,4] parameter(0)\n  n = f32[8,4] negate(p)\n  r = f32[8,4] {line}{more}\n"
        "  ROOT s = f32[8,4] subtract(n, r)",
        reducer(),
        header=header,
    )


@pytest.mark.parametrize("line", ALONE)
def test_the_operand_takes_its_place(line: str) -> None:
    module = rewritten(one(line), NAME)
    assert opcodes(module) == ["parameter", "negate", "subtract"]
    assert [o.name for o in module.entry.root.operands] == ["n", "p"]


@pytest.mark.parametrize(
    ("line", "header"),
    [
        (
            "all-reduce(p), replica_groups={{0},{1}}, to_apply=add_f32, channel_id=1",
            "replica_count=2, num_partitions=1",
        ),
        ("all-to-all(p), replica_groups={{0}}, dimensions={0}, channel_id=1", "replica_count=8"),
        ("collective-permute(p), source_target_pairs={{0,0}}, channel_id=1", "replica_count=8"),
        ("all-reduce(p), replica_groups={{0},{1}}, to_apply=add_f32", "is_scheduled=false"),
        ("all-reduce(p), replica_groups={}, to_apply=add_f32", "replica_count=1"),
    ],
)
def test_modes(line: str, header: str) -> None:
    rewritten(one(line, header), NAME)


@pytest.mark.parametrize(
    ("line", "header"),
    [
        (f"all-reduce(p), replica_groups=[4,2]<=[8], to_apply=add_f32, {FLAGS}", "num_partitions=8"),
        # one replica, and all of its partitions
        ("all-reduce(p), replica_groups={{0}}, to_apply=add_f32, channel_id=1", "num_partitions=8"),
        ("all-reduce(p), replica_groups={{0}}, to_apply=add_f32, channel_id=1", "is_scheduled=false"),
        ("all-reduce(p), replica_groups={}, to_apply=add_f32", "is_scheduled=false"),
        ("collective-permute(p), source_target_pairs={{0,0},{1,2}}, channel_id=1", "num_partitions=8"),
    ],
)
def test_those_who_talk_are_no_candidates(line: str, header: str) -> None:
    assert declined(one(line, header).module, NAME) == []


@pytest.mark.parametrize(
    ("line", "more", "reason"),
    [
        ("collective-permute(p), source_target_pairs={{0,0},{1,1}}, channel_id=1", "", "ranks that it leaves out"),
        ("collective-broadcast(p), replica_groups={{0},{1}}, channel_id=1", "", "ranks that it leaves out"),
        (ALONE[0].replace("{7}", "{9}"), "", "id 9 is outside the 8 ranks"),
        (ALONE[0], ", control-predecessors={n}", "%r has control dependencies"),
    ],
)
def test_guards(line: str, more: str, reason: str) -> None:
    (found,) = declined(one(line, more=more).module, NAME)
    assert reason in found


def test_ragged_exchanges_and_halves_of_pairs() -> None:
    file = parse(
        "  p = f32[8] parameter(0)\n  o = f32[8] parameter(1)\n  i = s32[1] parameter(2)\n"
        f"  r = f32[8] ragged-all-to-all(p, o, i, i, i, i), replica_groups={SINGLE}, channel_id=1\n"
        f"  s = f32[8] all-reduce-start(p), replica_groups={SINGLE}, to_apply=add_f32, {FLAGS}\n"
        "  d = f32[8] all-reduce-done(s)\n  ROOT t = (f32[8], f32[8]) tuple(r, d)",
        reducer(),
    )
    reasons = ["it places its rows by offsets", "it is one half of an asynchronous pair"]
    assert declined(file.module, NAME) == reasons


def test_variadic_ones() -> None:
    text = (
        "  p = f32[8] parameter(0)\n  q = f32[3] parameter(1)\n"
        f"  r = (f32[8], f32[3]) all-reduce(p, q), replica_groups={SINGLE}, to_apply=add_f32, {FLAGS}\n"
        "  a = f32[8] get-tuple-element(r), index=0\n  b = f32[3] get-tuple-element(r), index=1\n"
    )
    module = rewritten(parse(text + "  ROOT t = (f32[3], f32[8]) tuple(b, a)", reducer()), NAME)
    assert opcodes(module) == ["parameter", "parameter", "tuple"]
    assert [o.name for o in module.entry.root.operands] == ["q", "p"]
    whole = parse(text.replace("  r =", "  ROOT r ="), reducer())
    module = rewritten(whole, NAME)
    assert (module.entry.root.opcode, [o.name for o in module.entry.root.operands]) == ("tuple", ["p", "q"])


def test_the_layout_stays() -> None:
    file = parse(
        "  p = f32[8,4]{1,0} parameter(0)\n"
        f"  ROOT r = f32[8,4]{{0,1}} all-reduce(p), replica_groups={SINGLE}, to_apply=add_f32, {FLAGS}",
        reducer(),
    )
    root = rewritten(file, NAME).entry.root
    assert (root.opcode, str(root.shape)) == ("copy", "f32[8,4]{0,1}")


def test_the_bodies_of_asynchronous_wrappers_are_left_alone() -> None:
    body = (
        "wrapped {\n  x = f32[8] parameter(0)\n"
        f"  ROOT i = f32[8] all-reduce(x), to_apply=add_f32, replica_groups={SINGLE}, {FLAGS}\n}}"
    )
    file = parse(
        "  p = f32[8] parameter(0)\n  w = ((f32[8]), f32[8]) async-start(p), calls=wrapped\n"
        "  ROOT d = f32[8] async-done(w)",
        reducer(),
        body,
    )
    assert not apply(file.module, NAME).changed
    assert "all-reduce" in opcodes(file.module)


def test_values() -> None:
    lines = Lines()
    lines.lines.append("  p = f32[8,4] parameter(0)")
    for line in ALONE[:5] + ALONE[6:7]:
        lines.add("f32[8,4]", line, output=True)
    report = run_values(lines.text(reducer()), NAME)
    assert report.result["exact"]
    assert report.after == {}


def test_an_axis_of_one_in_jax() -> None:
    assert sum(r.outcome == "done" for r in apply(data(NAME).module, NAME).remarks) == 4
    report = run_values(data_text(NAME), NAME)
    assert report.result["exact"]
    assert report.after == {"all-reduce": 1}


def test_what_xla_makes_of_zeros_and_nan_of_a_single_rank_is_not_held_against_it(tmp_path: Path) -> None:
    single = f"replica_groups={SINGLE}, {FLAGS}"
    text = hlo(
        "  p = f32[8] parameter(0)\n"
        f"  a = f32[8] all-reduce(p), {single}, to_apply=add_f32\n"
        f"  b = (f32[8], f32[8]) all-reduce(a, p), {single}, to_apply=maximum_f32\n"
        f"  c = f32[8] reduce-scatter(p), {single}, dimensions={{0}}, to_apply=add_f32\n"
        "  ROOT t = ((f32[8], f32[8]), f32[8]) tuple(b, c)",
        reducer(),
        reducer("maximum"),
    )
    p = np.full((8, 8), -0.0, np.float32)
    p[:, 1:3] = np.nan, 2.0
    np.savez(tmp_path / "in.npz", p0=p)
    report = run_values(text, NAME, inputs=str(tmp_path / "in.npz"), outputs=str(tmp_path / "out.npz"))
    assert report.result["exact"]
    assert not report.result["untouched"]["exact"]
    with np.load(tmp_path / "out.npz") as outputs:
        assert all(outputs[f"o{n}"].tobytes() == p.tobytes() for n in range(3))
