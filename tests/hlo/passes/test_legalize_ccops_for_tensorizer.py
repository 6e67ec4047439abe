"""`legalize-ccops-for-tensorizer`: a variadic collective of several types works in the widest of them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from ...support import apply, find, parse, reducer, reread, run_values
from .rewrites import FLAGS, Lines, array, data, data_text, declined, pick_groups

NAME = "legalize-ccops-for-tensorizer"
ANYWAY = NAME + "{allow_inexact=true}"
TWO_OPS = """
two_ops {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] add(a, b)
  ROOT d = f32[] add(c, b)
}"""


def reduced(types: tuple[str, ...], op: str = "add", body: str = "", more: str = ""):
    lines = Lines()
    given = [lines.parameter(array(t, (8, n + 1))) for n, t in enumerate(types)]
    shapes = [array(t, (8, n + 1)) for n, t in enumerate(types)]
    body_type = types[0]
    lines.lines.append(f"  n = {shapes[0]} negate({given[0]})" if body_type != "pred" else "  n = u8[] constant(0)")
    lines.lines.append(
        f"  r = ({', '.join(shapes)}) all-reduce({', '.join(given)}), replica_groups={{}}, {FLAGS}, "
        f"to_apply={body or f'{op}_{body_type}'}{more}"
    )
    lines.lines.append(f"  ROOT x = {shapes[0]} get-tuple-element(r), index=0")
    return parse("\n".join(lines.lines), reducer(op, body_type), *([TWO_OPS] if body else []))


def test_it_works_in_the_widest_type() -> None:
    file = reduced(("bf16", "f32", "f16"), more=", control-predecessors={n}")
    result = apply(file.module, NAME)
    assert [str(r).partition(": ")[2] for r in result.remarks] == [
        "done: %r: works in f32 now, not in bf16, f32, f16",
        "done: test: warning: collectives that were widened give 64 bytes more on each rank",
    ]
    module = reread(file).module
    (r,) = (i for i in module.entry if i.opcode == "all-reduce")
    assert r.shape.without_layout() == "(f32[8,1], f32[8,2], f32[8,3])"
    assert [o.opcode for o in r.operands] == ["convert", "parameter", "convert"]
    assert (r.called[0].root.shape.dtype.name, int(r.proto.channel_id)) == ("f32", 1)
    assert [p.name for p in r.control_predecessors] == ["n"]
    whole = find(module, "x").operands[0]
    assert (whole.opcode, whole.shape.without_layout()) == ("tuple", "(bf16[8,1], f32[8,2], f16[8,3])")
    assert [o.opcode for o in whole.operands] == ["convert", "get-tuple-element", "convert"]
    assert not apply(module, NAME).changed


def test_one_warning_for_all() -> None:
    result = apply(data(NAME).module, NAME)
    assert [r.reason.startswith("warning") for r in result.remarks] == [False, False, False, True]


@pytest.mark.parametrize(
    ("types", "op", "reason"),
    [
        (("s32", "f32"), "add", "none of s32, f32 has every value of the others"),
        (("bf16", "f16"), "add", "none of bf16, f16 has every value of the others"),
        (("s32", "u32"), "maximum", "none of s32, u32 has every value of the others"),
        (("s8", "f32"), "add", "add of s8 means something else in f32"),
        (("pred", "s32"), "add", "add of pred means something else in s32"),
        (("s8", "f32"), "and", "and cannot reduce f32"),
        (("f32", "c64"), "add", "nothing converts c64 back to f32"),
    ],
)
def test_guards(types: tuple[str, ...], op: str, reason: str) -> None:
    assert declined(reduced(types, op).module, NAME) == [reason]


def test_bodies_that_do_more() -> None:
    reason = "reduction body is not a binary op over its two parameters"
    assert declined(reduced(("f32", "bf16"), body="two_ops").module, NAME) == [reason]


def test_one_type_and_single_ones_are_no_candidates() -> None:
    assert declined(reduced(("f32", "f32")).module, NAME) == []


@pytest.mark.parametrize(
    ("types", "wide"),
    [(("s32", "f32"), "f32"), (("bf16", "s64"), "s64"), (("f16", "bf16"), "f16"), (("s8", "f32"), "f32")],
)
def test_the_widest_anyway(types: tuple[str, ...], wide: str) -> None:
    file = reduced(types)
    assert apply(file.module, ANYWAY).changed
    (r,) = (i for i in reread(file).module.entry if i.opcode == "all-reduce")
    assert {e.dtype.name for e in r.shape.elements} == {wide}


GATHERED = [("bf16", "f32"), ("u8", "f32", "s8"), ("s16", "s32", "pred"), ("f32", "f64", "s32"), ("u8", "s16")]


@pytest.mark.parametrize("seed", range(2))
def test_values_of_gathers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lines = Lines()
    for types in GATHERED:
        groups, size = pick_groups(rng)
        given, made = [], []
        dim = int(rng.integers(2))
        for dtype in types:
            dims = [int(n) for n in rng.integers(1, 4, 2)]
            given.append(lines.parameter(array(dtype, dims)))
            made.append(array(dtype, [n * size if d == dim else n for d, n in enumerate(dims)]))
        whole = lines.add(
            f"({', '.join(made)})",
            f"all-gather({', '.join(given)}), replica_groups={groups}, dimensions={{{dim}}}, {FLAGS}",
        )
        for k, shape in enumerate(made):
            lines.add(shape, f"get-tuple-element({whole}), index={k}", output=True)
    report = run_values(lines.text(), NAME)
    assert report.result["exact"]
    assert len(report.passes[0].remarks) == len(GATHERED) + 1


def test_values_of_reductions() -> None:
    """XLA:CPU runs a reduction of several types only where StableHLO can say it, so that the split form is compared."""
    rng = np.random.default_rng(0)
    cases = [*product((("s8", "s32"), ("u8", "s16")), ("add", "maximum", "multiply")), (("bf16", "f32"), "minimum")]
    lines, bodies = Lines(), {}
    for types, op in cases:
        groups, _ = pick_groups(rng)
        shapes = [array(t, (4, n + 2)) for n, t in enumerate(types)]
        given = [lines.parameter(s) for s in shapes]
        bodies[op, types[0]] = reducer(op, types[0])
        whole = lines.add(
            f"({', '.join(shapes)})",
            f"all-reduce({', '.join(given)}), replica_groups={groups}, {FLAGS}, to_apply={op}_{types[0]}",
        )
        for k, shape in enumerate(shapes):
            lines.add(shape, f"get-tuple-element({whole}), index={k}", output=True)
    report = run_values(lines.text(*bodies.values()), NAME)
    assert report.result["exact"]
    assert len(report.passes[0].remarks) == len(cases) + 1


def test_gradients_of_several_types() -> None:
    assert run_values(data_text(NAME), NAME).equal
