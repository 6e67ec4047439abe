"""`aws_neuron_flip_reduce_scatter_transpose`: transpose first, reduce and scatter then."""

from __future__ import annotations

import numpy as np
import pytest

from crossrank.errors import InputError

from ...support import apply, find, parse, reducer, run_values
from .rewrites import FLAGS, Lines, array, data, data_text, declined, pick_groups, rewritten

NAME = "aws_neuron_flip_reduce_scatter_transpose"
ANY = NAME + "{any_operand=true}"
SCATTER = f"replica_groups={{}}, dimensions={{1}}, {FLAGS}, to_apply=add_f32"
TURN = "  ROOT t = f32[2,5,3] transpose(s), dimensions={1,2,0}"


STACK = "  f = f32[15,16] dynamic-update-slice(u, v, z, z)\n  x = f32[3,16,5] reshape(f)"


def one(x: str = STACK, tail: str = TURN, dtype: str = "f32"):
    return parse(
        f"  a = (f32[3,16,5], f32[]) parameter(0)\n  u = {dtype}[15,16] parameter(1)\n"
        f"  v = {dtype}[1,16] parameter(2)\n  z = s32[] constant(0)\n{x.replace('f32', dtype)}\n"
        f"  s = {dtype}[3,2,5] reduce-scatter(x), {SCATTER.replace('f32', dtype)}\n{tail}",
        reducer("add", dtype),
    )


ADD = "  g = f32[3,16,5] get-tuple-element(a), index=0\n  n = f32[3,16,5] negate(g)\n  x = f32[3,16,5] add(n, g)"


@pytest.mark.parametrize("x", [STACK, ADD, ADD.replace("add(n, g)", "add(g, n)")])
def test_the_transpose_goes_before_the_reduction(x: str) -> None:
    file = one(x)
    module = rewritten(file, NAME)
    s = module.entry.root
    assert (s.opcode, list(s.proto.dimensions), int(s.proto.channel_id)) == ("reduce-scatter", [0], 1)
    t = s.operands[0]
    assert (t.opcode, list(t.proto.dimensions), str(t.shape)) == ("transpose", [1, 2, 0], "f32[16,5,3]{2,1,0}")
    assert t.operands[0].name == "x"
    assert s.called[0].name == "add_f32"


def test_a_convert_to_a_wider_type_goes_too() -> None:
    tail = "  c = f32[3,2,5] convert(s)\n  ROOT t = f32[2,5,3]{0,2,1} transpose(c), dimensions={1,2,0}"
    module = rewritten(one(tail=tail, dtype="bf16"), NAME)
    s = module.entry.root
    assert (s.opcode, str(s.shape)) == ("reduce-scatter", "f32[2,5,3]{0,2,1}")
    assert [i.opcode for i in (s.operands[0], s.operands[0].operands[0])] == ["transpose", "convert"]
    assert {p.shape.dtype.name for p in s.called[0].parameters} == {"f32"}


@pytest.mark.parametrize(("dtype", "to"), [("f32", "bf16"), ("s32", "s64"), ("s32", "f64"), ("f16", "bf16")])
def test_a_convert_that_must_not_stays_behind(dtype: str, to: str) -> None:
    tail = f"  c = {to}[3,2,5] convert(s)\n  ROOT t = {to}[2,5,3] transpose(c), dimensions={{1,2,0}}"
    c = rewritten(one(tail=tail, dtype=dtype), NAME).entry.root
    s = c.operands[0]
    assert (c.opcode, s.opcode, s.shape.without_layout()) == ("convert", "reduce-scatter", f"{dtype}[2,5,3]")


def test_several_operands_are_rejected() -> None:
    tail = f"  e = f32[3,2,5] get-tuple-element(pair), index=1\n{TURN.replace('transpose(s)', 'transpose(e)')}"
    text = f"  pair = (f32[3,2,5], f32[3,2,5]) reduce-scatter(x, x), {SCATTER}\n"
    assert declined(one(tail=text + tail).module, NAME) == [
        "Reject Reduce Scatter (Convert) Transpose Pair because Reduce Scatter has operand count 2 more than 1 "
        "supported by this pass"
    ]


@pytest.mark.parametrize(
    ("x", "tail", "reason"),
    [
        ("  x = f32[3,16,5] reshape(u)", TURN, "neither a reshape of a dynamic-update-slice nor an add"),
        ("  y = f32[3,16,5] reshape(u)\n  x = f32[3,16,5] add(y, y)", TURN, "neither a reshape of"),
        (STACK, TURN + ", control-predecessors={s}", "%s has control dependencies"),
        (STACK, TURN.replace("ROOT ", "") + "\n  ROOT r = (f32[3,2,5], f32[2,5,3]) tuple(s, t)", "%s has other users"),
        (
            STACK,
            "  c = bf16[3,2,5] convert(s)\n  t = bf16[2,5,3] transpose(c), dimensions={1,2,0}\n"
            "  ROOT r = (bf16[3,2,5], bf16[2,5,3]) tuple(c, t)",
            "%c has other users",
        ),
    ],
)
def test_guards(x: str, tail: str, reason: str) -> None:
    (found,) = declined(one(x, tail).module, NAME)
    assert reason in found


def test_any_operand_on_demand() -> None:
    rewritten(one("  x = f32[3,16,5] reshape(u)"), ANY)


def test_a_permutation_without_the_scattered_dimension() -> None:
    file = one()
    find(file.module, "t").edit().dimensions[:] = [0, 2, 2]
    with pytest.raises(InputError, match="%t: Failed to find new scatter dim in pass FlipReduceScatterTranspose"):
        apply(file.module, NAME)


@pytest.mark.parametrize("seed", range(2))
def test_values(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lines = Lines()
    kinds = [("f32", ""), ("s32", ""), ("f32", "bf16"), ("s32", "f32"), ("f16", ""), ("u8", "")]
    for dtype, to in kinds:
        dims = [int(n) for n in rng.integers(1, 5, rng.integers(1, 5))]
        groups, size = pick_groups(rng)
        dim = int(rng.integers(len(dims)))
        part = array(dtype, dims)
        dims[dim] *= size
        x = lines.parameter(array(dtype, dims, rng.permutation(len(dims))))
        dims[dim] //= size
        y = lines.add(
            part, f"reduce-scatter({x}), replica_groups={groups}, dimensions={{{dim}}}, {FLAGS}, to_apply=add_{dtype}"
        )
        if to:
            y = lines.add(array(to, dims), f"convert({y})")
        order = [int(d) for d in rng.permutation(len(dims))]
        turned = array(to or dtype, [dims[d] for d in order], rng.permutation(len(dims)))
        lines.add(turned, f"transpose({y}), dimensions={{{','.join(map(str, order))}}}", output=True)
    text = lines.text(*(reducer("add", dtype) for dtype in ("f32", "s32", "f16", "u8")))
    report = run_values(text, ANY)
    assert report.result["exact"]
    assert [r.outcome for r in report.passes[0].remarks] == ["done"] * len(kinds)


def test_gradients_of_jax_accumulated_and_stacked() -> None:
    module = rewritten(data(NAME), NAME)
    assert sum(i.opcode == "reduce-scatter" for i in module.instructions()) == 3
    report = run_values(data_text(NAME), NAME)
    assert report.equal
    # only the one with a convert from bf16 is rounded elsewhere
    assert [o["exact"] for o in report.result["outputs"]] == [True, True, False]
