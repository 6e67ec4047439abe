"""`aws_neuron_flip_reduce_convert_add`: gradients are reduced in the type in which they accumulate."""

from __future__ import annotations

import pytest

from crossrank.hlo.io import to_text

from ...support import find, parse, reducer, run_values
from .rewrites import FLAGS, data, data_text, declined, rewritten

NAME = "aws_neuron_flip_reduce_convert_add"
ALL = f"replica_groups={{}}, {FLAGS}"


def step(
    op: str = "add",
    narrow: str = "bf16",
    wide: str = "f32",
    body: str = "",
    more: str = "",
    add: str = "add(c, acc)",
    kind: str = "reduce-scatter",
):
    """A loop body that adds a converted reduction to an element of its parameter."""
    size = "1" if kind == "reduce-scatter" else "8"
    dims = ", dimensions={0}" if kind == "reduce-scatter" else ""
    state = f"(s32[], {narrow}[8,4], {wide}[{size},4])"
    return parse(
        f"  p = {state} parameter(0)\n  ROOT w = {state} while(p), condition=cond, body=turn",
        body or reducer(op, narrow, "body"),
        f"""
turn {{
  x = {state} parameter(0)
  n = s32[] get-tuple-element(x), index=0
  g = {narrow}[8,4] get-tuple-element(x), index=1
  acc = {wide}[{size},4] get-tuple-element(x), index=2
  r = {narrow}[{size},4] {kind}(g), {ALL}{dims}, to_apply=body
  c = {wide}[{size},4] convert(r){more}
  s = {wide}[{size},4] {add}
  ROOT t = {state} tuple(n, g, s)
}}
cond {{
  x = {state} parameter(0)
  ROOT c = pred[] constant(false)
}}""",
    )


@pytest.mark.parametrize("add", ["add(c, acc)", "add(acc, c)"])
@pytest.mark.parametrize("kind", ["reduce-scatter", "all-reduce"])
def test_the_reduction_works_in_the_wide_type(add: str, kind: str) -> None:
    file = step(add=add, kind=kind)
    r = find(file.module, "r").origin
    module = rewritten(file, NAME)
    (new,) = (i for i in module.instructions() if i.opcode == kind)
    assert (new.shape.dtype.name, new.operands[0].opcode, int(new.proto.channel_id)) == ("f32", "convert", 2)
    assert {p.shape.dtype.name for p in new.called[0].parameters} == {"f32"}
    assert new.called[0].root.opcode == "add"
    assert [u.opcode for u in new.users] == ["add"]
    assert {i.origin for i in file.module.instructions() if i.opcode == kind} == {r}
    assert "body" not in [c.name for c in module.computations]  # the narrow body is dead


def test_no_channel_id_is_invented() -> None:
    file = step()
    find(file.module, "r").edit().channel_id = 0
    find(file.module, "r").edit().use_global_device_ids = False
    module = rewritten(file, NAME)
    assert not any(i.proto.channel_id for i in module.instructions())


@pytest.mark.parametrize(
    ("op", "narrow", "wide"),
    [("maximum", "s8", "s32"), ("and", "u8", "s16"), ("minimum", "f16", "f32"), ("multiply", "f32", "f64")],
)
def test_other_reductions(op: str, narrow: str, wide: str) -> None:
    rewritten(step(op, narrow, wide), NAME)


TWO = """
body {
  a = bf16[] parameter(0)
  b = bf16[] parameter(1)
  m = bf16[] add(a, b)
  ROOT n = bf16[] add(m, b)
}"""


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (lambda: step(narrow="f32", wide="bf16"), "bf16 does not have every value of f32"),
        (lambda: step(narrow="f16", wide="bf16"), "bf16 does not have every value of f16"),
        (lambda: step(narrow="s8", wide="s32"), "add wraps elsewhere in s8 than in s32"),
        (lambda: step(narrow="s8", wide="f32"), "add means something else in s8 than in f32"),
        (lambda: step("or", narrow="pred", wide="s32"), "or means something else in pred than in s32"),
        (lambda: step(body=TWO), "reduction body is not a binary op over its two parameters"),
        (lambda: step(more=", control-predecessors={g}"), "%c has control dependencies"),
        (lambda: step(more="\n  d = f32[1,4] negate(c)"), "%c has other users"),
        (lambda: step(more="\n  d = bf16[1,4] negate(r)"), "%r has other users"),
        (lambda: step(more="\n  d = f32[1,4] negate(acc), control-predecessors={r}"), "%r has control dependencies"),
        (
            lambda: step(more="\n  d = f32[1,4] negate(acc)", add="add(d, c)"),
            "its other operand is no element of a parameter",
        ),
    ],
)
def test_guards(file, reason: str) -> None:
    assert declined(file().module, NAME) == [reason]


def test_no_candidates() -> None:
    assert declined(step(add="subtract(acc, c)").module, NAME) == []
    assert declined(step(add="add(acc, acc)").module, NAME) == []


def test_gradients_of_jax_accumulated_over_micro_batches() -> None:
    module = rewritten(data(NAME), NAME)
    assert {i.shape.dtype.name for i in module.instructions() if i.opcode in ("all-reduce", "reduce-scatter")} == {
        "f32"
    }
    report = run_values(data_text(NAME), NAME)
    assert report.equal
    assert not report.result["exact"]


LOOP = """
turn {{
  x = (s32[], {narrow}[8,4], {wide}[2,4]) parameter(0)
  n = s32[] get-tuple-element(x), index=0
  g = {narrow}[8,4] get-tuple-element(x), index=1
  acc = {wide}[2,4] get-tuple-element(x), index=2
  r = {narrow}[2,4] reduce-scatter(g), dimensions={{0}}, to_apply=body, {groups}
  c = {wide}[2,4] convert(r)
  s = {wide}[2,4] add(c, acc)
  one = s32[] constant(1)
  next = s32[] add(n, one)
  ROOT t = (s32[], {narrow}[8,4], {wide}[2,4]) tuple(next, g, s)
}}
cond {{
  x = (s32[], {narrow}[8,4], {wide}[2,4]) parameter(0)
  n = s32[] get-tuple-element(x), index=0
  three = s32[] constant(3)
  ROOT c = pred[] compare(n, three), direction=LT
}}"""


@pytest.mark.parametrize(
    ("op", "narrow", "wide", "exact"),
    [("maximum", "bf16", "f32", True), ("minimum", "s8", "s32", True), ("add", "f16", "f32", False)],
)
def test_values(op: str, narrow: str, wide: str, exact: bool) -> None:
    state = f"(s32[], {narrow}[8,4], {wide}[2,4])"
    file = parse(
        f"  p = {narrow}[8,4] parameter(0)\n  q = {wide}[2,4] parameter(1)\n  z = s32[] constant(0)\n"
        f"  i = {state} tuple(z, p, q)\n  w = {state} while(i), condition=cond, body=turn\n"
        f"  ROOT o = {wide}[2,4] get-tuple-element(w), index=2",
        reducer(op, narrow, "body"),
        LOOP.format(narrow=narrow, wide=wide, groups="replica_groups={{3,1,0,2},{5,4,6,7}}, " + FLAGS),
    )
    report = run_values(to_text(file), NAME)
    assert report.passes[0].changed
    assert report.equal
    assert report.result["exact"] or not exact
