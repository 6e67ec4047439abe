"""`aws_neuron_flip_all_gather_dynamic_slice`: cut first, gather then."""

from __future__ import annotations

import numpy as np
import pytest

from ...support import apply, opcodes, parse, run_values
from .rewrites import FLAGS, Lines, array, data, data_text, declined, gather, pick_groups, rewritten

NAME = "aws_neuron_flip_all_gather_dynamic_slice"
ANY = NAME + "{any_shape=true}"
CUT = "  ROOT r = f32[2,4,16] dynamic-slice(g, a, b, z), dynamic_slice_sizes={2,4,16}"


def one(
    a: str = "s32[] constant(1)", tail: str = CUT, groups: str = "{}", header: str = "num_partitions=8", size: int = 8
):
    return parse(
        f"  p = f32[6,9,2] parameter(0)\n  z = s32[] constant(0)\n  b = s32[] constant(3)\n  a = {a}\n"
        f"  g = f32[6,9,{2 * size}] all-gather(p), replica_groups={groups}, dimensions={{2}}, {FLAGS}\n{tail}",
        header=header,
    )


def test_the_cut_goes_before_the_gather() -> None:
    module = rewritten(one(), NAME)
    g = module.entry.root
    assert (g.opcode, str(g.shape), int(g.proto.channel_id)) == ("all-gather", "f32[2,4,16]{2,1,0}", 1)
    cut = g.operands[0]
    assert (cut.opcode, cut.shape.without_layout()) == ("dynamic-slice", "f32[2,4,2]")
    assert list(cut.proto.dynamic_slice_sizes) == [2, 4, 2]
    assert [o.name for o in cut.operands[1:]] == ["a", "b", "z"]


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        (CUT.replace("16", "8"), "it cuts the gathered dimension 2"),
        (CUT.replace("2,4,16", "2,9,16"), "it cuts 1 dimensions, not more than one"),
        (CUT + ", control-predecessors={g}", "%g has control dependencies"),
        (CUT.replace("ROOT ", "") + "\n  ROOT t = (f32[2,4,16], f32[6,9,16]) tuple(r, g)", "%g has other users"),
    ],
)
def test_guards(tail: str, reason: str) -> None:
    assert declined(one(tail=tail).module, NAME) == [reason]


def test_two_dimensions() -> None:
    file = parse(
        "  p = f32[6,2] parameter(0)\n  z = s32[] constant(0)\n"
        f"  g = f32[6,16] all-gather(p), replica_groups={{}}, dimensions={{1}}, {FLAGS}\n"
        "  ROOT r = f32[2,16] dynamic-slice(g, z, z), dynamic_slice_sizes={2,16}"
    )
    assert declined(file.module, NAME) == ["it has 2 dimensions, fewer than three"]
    rewritten(file, ANY)


@pytest.mark.parametrize(
    "offset",
    [
        "s32[] parameter(1)",
        "s32[] add(b, z)",
        "s32[] convert(n)\n  n = u32[] divide(i, e)\n  i = u32[] partition-id()\n  e = u32[] constant(8)",
    ],
)
def test_offsets_that_all_ranks_share(offset: str) -> None:
    first, *others = offset.split("\n")
    rewritten(one(first) if not others else parse_with(first, others), NAME)


def parse_with(a: str, before: list[str], groups: str = "{}", size: int = 8, header: str = "num_partitions=8"):
    lines = "\n".join(reversed(before))
    return parse(
        f"  p = f32[6,9,2] parameter(0)\n  z = s32[] constant(0)\n  b = s32[] constant(3)\n{lines}\n  a = {a}\n"
        f"  g = f32[6,9,{2 * size}] all-gather(p), replica_groups={groups}, dimensions={{2}}, {FLAGS}\n"
        + CUT.replace("16", str(2 * size)),
        header=header,
    )


ID = ["  i = u32[] partition-id()"]


@pytest.mark.parametrize(
    ("a", "before", "culprit"),
    [
        ("s32[] convert(i)", ID, "a"),
        ("s32[] add(b, x)", ["  x = s32[] reshape(y)", "  y = s32[1] parameter(1)"], "y"),
        ("s32[] get-tuple-element(t), index=0", ["  t = (s32[]) parameter(1)"], "t"),
    ],
)
def test_offsets_that_differ(a: str, before: list[str], culprit: str) -> None:
    reason = f"its offset on dimension 0 may differ between ranks, by %{culprit}"
    assert declined(parse_with(a, before).module, NAME) == [reason]


def test_offsets_that_only_groups_share() -> None:
    halves = ["  c = u32[] constant(4)", "  i = u32[] partition-id()"]
    halves = ["  n = u32[] divide(i, c)", *halves]
    rewritten(parse_with("s32[] convert(n)", halves, "[2,4]<=[8]", 4), NAME)
    (reason,) = declined(parse_with("s32[] convert(n)", halves, "[4,2]<=[2,4]T(1,0)", 2).module, NAME)
    assert "may differ" in reason


def test_scalar_parameters_of_replicas_may_differ() -> None:
    plain = "replica_groups={}, dimensions={2}"
    file = parse(
        "  p = f32[6,9,2] parameter(0)\n  z = s32[] constant(0)\n  b = s32[] constant(3)\n  a = s32[] parameter(1)\n"
        f"  g = f32[6,9,16] all-gather(p), {plain}\n{CUT}",
        header="replica_count=8",
    )
    assert declined(file.module, NAME) == ["its offset on dimension 0 may differ between ranks, by %a"]


def test_a_module_that_does_not_say_its_ranks() -> None:
    rewritten(one(header="is_scheduled=false"), NAME)
    (reason,) = declined(parse_with("s32[] convert(i)", ID, header="is_scheduled=false").module, NAME)
    assert "may differ" in reason
    (reason,) = declined(one(groups="{{0,1,2,3,4,5,6,9}}").module, NAME)
    assert "outside the 8 ranks" in reason


LOOP = """
body {{
  x = (s32[], f32[6,9,2], f32[2,4,16]) parameter(0)
  n = s32[] get-tuple-element(x), index=0
  v = f32[6,9,2] get-tuple-element(x), index=1
  old = f32[2,4,16] get-tuple-element(x), index=2
  z = s32[] constant(0)
  one = s32[] {step}
  g = f32[6,9,16] all-gather(v), replica_groups={{}}, dimensions={{2}}, channel_id=1, use_global_device_ids=true
  r = f32[2,4,16] dynamic-slice(g, n, one, z), dynamic_slice_sizes={{2,4,16}}
  s = f32[2,4,16] add(r, old)
  next = s32[] add(n, one)
  ROOT t = (s32[], f32[6,9,2], f32[2,4,16]) tuple(next, v, s)
}}
cond {{
  x = (s32[], f32[6,9,2], f32[2,4,16]) parameter(0)
  n = s32[] get-tuple-element(x), index=0
  three = s32[] constant(3)
  ROOT c = pred[] compare(n, three), direction=LT
}}"""


@pytest.mark.parametrize(
    ("step", "alike"), [("constant(1)", True), ("convert(rank)\n  rank = u32[] partition-id()", False)]
)
def test_counters_of_loops(step: str, alike: bool) -> None:
    text, *more = step.split("\n")
    loop = LOOP.format(step=text).replace("  one = ", "\n".join([*more, "  one = "]))
    file = parse(
        "  p = f32[6,9,2] parameter(0)\n  z = s32[] constant(0)\n  o = f32[] constant(0)\n"
        "  b = f32[2,4,16] broadcast(o), dimensions={}\n  t = (s32[], f32[6,9,2], f32[2,4,16]) tuple(z, p, b)\n"
        "  ROOT w = (s32[], f32[6,9,2], f32[2,4,16]) while(t), condition=cond, body=body",
        loop,
    )
    if alike:
        rewritten(file, NAME)
    else:
        assert "by %one" in declined(file.module, NAME)[0]


@pytest.mark.parametrize("seed", range(2))
def test_values(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lines = Lines()
    position = lines.parameter("s32[]")
    zero = lines.add("s32[]", "constant(0)")
    for _ in range(8):
        dims = [int(n) for n in rng.integers(2, 6, rng.integers(3, 5))]
        groups, size = pick_groups(rng)
        dim = int(rng.integers(len(dims)))
        g = gather(lines, lines.parameter(array("f32", dims)), "f32", dims, dim, groups)
        dims[dim] *= size
        sizes = [n if d == dim else int(rng.integers(1, n)) for d, n in enumerate(dims)]
        # starts beyond the end are clamped, on the gathered dimension too
        starts = [
            str(rng.choice([position, zero, lines.add("s32[]", f"constant({rng.integers(-2, 9)})")])) for _ in dims
        ]
        text = f"dynamic-slice({', '.join([g, *starts])}), dynamic_slice_sizes={{{','.join(map(str, sizes))}}}"
        lines.add(array("f32", sizes), text, output=True)
    report = run_values(lines.text(), NAME)
    assert report.result["exact"]
    assert [r.outcome for r in report.passes[0].remarks] == ["done"] * 8


def test_a_window_of_a_cache_of_jax() -> None:
    module = data(NAME).module
    assert apply(module, NAME).changed
    assert opcodes(module).count("all-gather") == 1
    assert run_values(data_text(NAME), NAME).result["exact"]
