"""`aws_neuron_flip_all_gather_convert`: convert first, gather then."""

from __future__ import annotations

import numpy as np
import pytest

from crossrank.hlo.io import parse_module

from ...support import apply, find, opcodes, parse, reducer, run_values
from .rewrites import FLAGS, Lines, array, data, data_text, declined, gather, pick_groups, rewritten

NAME = "aws_neuron_flip_all_gather_convert"


def one(tail: str = "  ROOT c = bf16[64,4] convert(g)", dtype: str = "f32", attributes: str = "", dims: str = "8,4"):
    return parse(
        f"  p = {dtype}[{dims}] parameter(0)\n"
        f"  g = {dtype}[64,4] all-gather(p), replica_groups={{}}, dimensions={{0}}, {FLAGS}{attributes}\n{tail}",
        reducer(),
    )


def test_the_convert_goes_before_the_gather() -> None:
    file = one(
        '  ROOT c = bf16[64,4]{0,1} convert(g), metadata={op_name="narrow"}, frontend_attributes={k="c"}',
        attributes=', frontend_attributes={stream="1"}, metadata={op_name="gather"}',
    )
    module = rewritten(file, NAME)
    assert opcodes(module) == ["parameter", "convert", "all-gather"]
    g = module.entry.root
    assert (str(g.shape), int(g.proto.channel_id), g.proto.use_global_device_ids) == ("bf16[64,4]{0,1}", 1, True)
    assert (g.frontend_attributes, g.proto.metadata.op_name) == ({"stream": "1"}, "gather")
    c = g.operands[0]
    assert (str(c.shape), c.frontend_attributes, c.proto.metadata.op_name) == ("bf16[8,4]{1,0}", {"k": "c"}, "narrow")


def test_it_stands_for_the_gather_that_was_there() -> None:
    file = one()
    origin = find(file.module, "g").origin
    apply(file.module, NAME)
    assert file.module.entry.root.origin == origin


@pytest.mark.parametrize(
    ("tail", "attributes", "reason"),
    [
        ("  ROOT c = f64[64,4] convert(g)", "", "f64 is wider than f32, so that %g would move more bytes"),
        ("  c = bf16[64,4] convert(g)\n  ROOT t = (bf16[64,4], f32[64,4]) tuple(c, g)", "", "%g has other users"),
        ("  ROOT c = bf16[64,4] convert(g), control-predecessors={g}", "", "%g has control dependencies"),
    ],
)
def test_guards(tail: str, attributes: str, reason: str) -> None:
    assert declined(one(tail, attributes=attributes).module, NAME) == [reason]


def test_a_gather_that_is_the_result_stays() -> None:
    file = parse(
        "  p = f32[8] parameter(0)\n"
        f"  ROOT g = f32[64] all-gather(p), replica_groups={{}}, dimensions={{0}}, {FLAGS}\n  c = s32[64] convert(g)"
    )
    assert declined(file.module, NAME) == ["%g has other users"]


def test_layouts_of_devices_are_left_alone() -> None:
    file = parse(
        "  p = f32[8,4]{1,0:T(8,128)} parameter(0)\n"
        f"  g = f32[64,4]{{1,0:T(8,128)}} all-gather(p), replica_groups={{}}, dimensions={{0}}, {FLAGS}\n"
        "  ROOT c = bf16[64,4]{1,0:T(8,128)} convert(g)"
    )
    assert declined(file.module, NAME) == ["%g has a layout or an extent that is a device's own"]


def test_nothing_else_is_a_candidate() -> None:
    file = parse("  p = f32[8] parameter(0)\n  c = bf16[8] convert(p)\n  ROOT d = f32[8] convert(c)")
    assert declined(file.module, NAME) == []


def test_wider_types_on_demand() -> None:
    module = rewritten(one("  ROOT c = f64[64,4] convert(g)"), NAME + "{widen=true}")
    assert module.entry.root.operands[0].shape.dtype.name == "f64"


def test_loops_have_theirs_flipped_too() -> None:
    body = f"""
body {{
  x = (s32[], f32[8], bf16[64]) parameter(0)
  n = s32[] get-tuple-element(x), index=0
  v = f32[8] get-tuple-element(x), index=1
  g = f32[64] all-gather(v), replica_groups={{}}, dimensions={{0}}, {FLAGS}
  c = bf16[64] convert(g)
  ROOT t = (s32[], f32[8], bf16[64]) tuple(n, v, c)
}}
cond {{
  x = (s32[], f32[8], bf16[64]) parameter(0)
  ROOT c = pred[] constant(false)
}}"""
    file = parse(
        "  p = (s32[], f32[8], bf16[64]) parameter(0)\n"
        "  ROOT w = (s32[], f32[8], bf16[64]) while(p), condition=cond, body=body",
        body,
    )
    rewritten(file, NAME)


def test_two_gathers_in_a_row() -> None:
    lines = Lines()
    g = gather(lines, lines.parameter("f32[2,3]"), "f32", (2, 3), 0, "{}")
    h = gather(lines, g, "f32", (16, 3), 1, "[2,4]<=[8]")
    lines.add("bf16[16,12]", f"convert({h})", output=True)
    module = rewritten(parse_module(lines.text().encode(), "two"), NAME)
    assert [i.opcode for i in module.entry] == ["parameter", "convert", "all-gather", "all-gather", "tuple"]


@pytest.mark.parametrize("seed", range(2))
def test_values(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lines = Lines()
    pairs = [
        ("f32", "bf16"),
        ("f32", "f16"),
        ("f64", "f32"),
        ("s32", "u8"),
        ("f32", "s32"),
        ("bf16", "s8"),
        ("u8", "f64"),
    ]
    for before, after in pairs:
        dims = [int(n) for n in rng.integers(1, 6, rng.integers(1, 4))]
        groups, size = pick_groups(rng)
        dim = int(rng.integers(len(dims)))
        g = gather(lines, lines.parameter(array(before, dims)), before, dims, dim, groups)
        dims[dim] *= size
        layout = rng.permutation(len(dims)) if seed else None
        lines.add(array(after, dims, layout), f"convert({g})", output=True)
    text = lines.text()
    report = run_values(text, NAME + "{widen=true}")
    assert report.result["exact"]
    assert len(report.passes[0].remarks) == len(pairs)


def test_a_mixed_precision_step_of_jax() -> None:
    assert sum(r.outcome == "done" for r in apply(data(NAME).module, NAME).remarks) == 2
    assert run_values(data_text(NAME), NAME).result["exact"]
