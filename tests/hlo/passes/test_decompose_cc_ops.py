"""`decompose-cc-ops`: a variadic collective becomes one for each of its elements."""

from __future__ import annotations

import numpy as np
import pytest

from ...support import apply, find, parse, reducer, reread, run_values
from .rewrites import FLAGS, Lines, array, declined, pick_groups, rewritten

NAME = "decompose-cc-ops"
BODY3 = """
three {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] add(a, b)
  ROOT d = f32[] add(c, b)
}"""


def reduced(body: str = "add_f32", types: tuple[str, str] = ("f32", "f32"), more: str = ""):
    a, b = types
    return parse(
        f"  p = {a}[8] parameter(0)\n  q = {b}[3,2] parameter(1)\n  n = {a}[8] negate(p)\n"
        f"  r = ({a}[8], {b}[3,2]) all-reduce(p, q), replica_groups=[2,4]<=[8], {FLAGS}, to_apply={body}, "
        f'frontend_attributes={{stream="1"}}{more}\n'
        f"  x = {a}[8] get-tuple-element(r), index=0\n  y = {b}[3,2] get-tuple-element(r), index=1\n"
        f"  ROOT t = ({b}[3,2], {a}[8]) tuple(y, x)",
        reducer(),
        BODY3,
    )


def test_one_collective_for_each_element() -> None:
    file = reduced()
    origin = find(file.module, "r").origin
    apply(file.module, NAME)
    assert {i.origin for i in file.module.entry if i.opcode == "all-reduce"} == {origin}
    module = reread(file).module
    one, two, whole = (find(module, n) for n in ("r-clone", "r-clone.1", "cc-tuple0"))
    assert [o.name for o in whole.operands] == [one.name, two.name]
    assert [u.opcode for u in whole.users] == ["get-tuple-element"] * 2
    assert (one.shape.without_layout(), two.shape.without_layout()) == ("f32[8]", "f32[3,2]")
    for copy in (one, two):
        assert (copy.opcode, len(copy.operands), int(copy.proto.channel_id)) == ("all-reduce", 1, 1)
        assert (copy.frontend_attributes, copy.called[0].name) == ({"stream": "1"}, "add_f32")
    assert not apply(module, NAME).changed


def test_tuples_are_numbered() -> None:
    lines = Lines()
    for dim in (0, 1):
        p, q = lines.parameter("f32[8,8]"), lines.parameter("f32[8,2]")
        shape = "(f32[64,8], f32[64,2])" if dim == 0 else "(f32[8,64], f32[8,16])"
        text = f"all-gather({p}, {q}), replica_groups={{}}, dimensions={{{dim}}}, {FLAGS}"
        lines.add(shape, text, output=True)
    file = parse("\n".join(lines.lines) + '\n  ROOT t = (f32[64,8]) custom-call(), custom_call_target="x"')
    assert apply(file.module, NAME).changed
    assert {i.name for i in reread(file).module.entry if i.opcode == "tuple"} == {"cc-tuple0", "cc-tuple1"}


def test_control_dependencies_hold_for_every_copy() -> None:
    file = reduced(more=", control-predecessors={n}")
    find(file.module, "t").set_control_predecessors([find(file.module, "r")])
    module = rewritten(file, NAME)
    copies = [i for i in module.entry if i.opcode == "all-reduce"]
    assert all([p.name for p in c.control_predecessors] == ["n"] for c in copies)
    assert set(find(module, "t").control_predecessors) == set(copies)


def test_a_body_for_each_type() -> None:
    module = rewritten(reduced(types=("f32", "bf16")), NAME)
    bodies = [i.called[0] for i in module.entry if i.opcode == "all-reduce"]
    assert [b.root.shape.dtype.name for b in bodies] == ["f32", "bf16"]


def test_bodies_of_any_form_serve_their_own_type_only() -> None:
    rewritten(reduced("three"), NAME)
    reason = "reduction body is not a binary op over its two parameters"
    assert declined(reduced("three", ("f32", "bf16")).module, NAME) == [reason]


def test_single_ones_and_other_computations_stay() -> None:
    inner = (
        "inner {\n  p = f32[8] parameter(0)\n"
        "  ROOT r = (f32[8], f32[8]) all-reduce(p, p), replica_groups={}, to_apply=add_f32\n}"
    )
    file = parse(
        "  p = f32[8] parameter(0)\n  a = f32[8] all-reduce(p), replica_groups={}, to_apply=add_f32\n"
        "  b = (f32[8], f32[8]) all-to-all(p, p), replica_groups={{0,1},{2,3},{4,5},{6,7}}\n"
        "  ROOT c = (f32[8], f32[8]) call(a), to_apply=inner",
        reducer(),
        inner,
    )
    assert declined(file.module, NAME) == []


@pytest.mark.parametrize("seed", range(2))
def test_values(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lines = Lines()
    for kind in ("all-gather", "all-reduce", "reduce-scatter", "all-reduce"):
        groups, size = pick_groups(rng)
        dim = int(rng.integers(2))
        types = [str(t) for t in rng.choice(["f32", "s32", "bf16"], 3 if kind != "reduce-scatter" else 2)]
        if kind != "all-gather":
            types = [types[0]] * len(types)  # what XLA:CPU can run before
        given, made = [], []
        for dtype in types:
            dims = [int(n) for n in rng.integers(1, 4, 2)]
            full = [n * size if d == dim else n for d, n in enumerate(dims)]
            a, b = {"all-gather": (dims, full), "reduce-scatter": (full, dims)}.get(kind, (dims, dims))
            given.append(lines.parameter(array(dtype, a)))
            made.append(array(dtype, b))
        where = "" if kind == "all-reduce" else f", dimensions={{{dim}}}"
        body = "" if kind == "all-gather" else f", to_apply=add_{types[0]}"
        flags = f", {FLAGS}"
        whole = lines.add(
            f"({', '.join(made)})", f"{kind}({', '.join(given)}), replica_groups={groups}{where}{flags}{body}"
        )
        for k, shape in enumerate(made):
            lines.add(shape, f"get-tuple-element({whole}), index={k}", output=True)
    report = run_values(lines.text(*(reducer("add", t) for t in ("f32", "s32", "bf16"))), NAME)
    assert report.result["exact"]
    assert [r.outcome for r in report.passes[0].remarks] == ["done"] * 4
