"""`fuse-reduce-scatter`: reduce-scatters that end in one concatenate become one; a mean divides once, afterwards."""

from __future__ import annotations

import numpy as np
import pytest

from crossrank.hlo.module import Instruction, Module
from crossrank.hlo.passes.fuse_reduce_scatter import FuseReduceScatter
from crossrank.passes import PassResult
from tests.support import apply, find, hlo, lines_run, opcodes, parse, reducer, reread, run_values

PASS = "fuse-reduce-scatter"
FLAT = "channel_id=1, use_global_device_ids=true"
FOURS = f"{FLAT}, replica_groups={{{{0,1,2,3}},{{4,5,6,7}}}}"
ADD = "to_apply=add_f32"


def scatter(name: str, operand: str, shape: str, dim: int = 0, form: str = FOURS, body: str = ADD) -> str:
    return f"  {name} = {shape} reduce-scatter({operand}), {form}, dimensions={{{dim}}}, {body}\n"


def pair(second: str = "", *, between: str = "", concat: str = "c = f32[2,7] concatenate(a, b), dimensions={1}") -> str:
    """Two inputs, two reduce-scatters along dimension 0 and their concatenate; the second may be another one."""
    return (
        "  x = f32[8,4] parameter(0)\n  y = f32[8,3] parameter(1)\n"
        + scatter("a", "x", "f32[2,4]")
        + (second or scatter("b", "y", "f32[2,3]"))
        + between
        + f"  ROOT {concat}\n"
    )


def scatters(module: Module) -> list[Instruction]:
    return [i for i in module.entry.post_order() if i.opcode == "reduce-scatter"]


def declined(entry: str, *bodies: str, options: str = "", header: str = "num_partitions=8") -> list[str]:
    file = parse(entry, reducer(), *bodies, header=header)
    result = apply(file.module, PASS + options)
    assert not result.changed
    assert all(r.outcome == "declined" for r in result.remarks)
    return [f"{r.instruction} {r.reason}" for r in result.remarks]


def done(result: PassResult) -> list[str]:
    return [r.reason for r in result.remarks if r.outcome == "done"]


# -- what is made ------------------------------------------------------------------------------------------------------
def test_along_another_dimension_the_inputs_are_concatenated() -> None:
    entry = pair().replace(
        "dimensions={1}", 'dimensions={1}, metadata={op_name="cat" source_file="a.py" source_line=3}'
    )
    file = parse(entry.replace("channel_id=1", "channel_id=9", 1), reducer())
    result = apply(file.module, PASS)
    assert [f"{r.instruction} {r.reason}" for r in result.remarks] == [
        "%c 2 reduce-scatters → %a.1, 56 bytes for each rank"
    ]
    module = reread(file).module
    root = module.entry.root
    assert opcodes(module)[-4:] == ["parameter", "parameter", "concatenate", "reduce-scatter"]
    assert (root.shape.dims, root.operands[0].shape.dims, list(root.proto.dimensions)) == ((2, 7), (8, 7), [0])
    assert root.proto.channel_id == 9  # of the first in post-order
    assert root.where == "a.py:3"
    assert not apply(module, PASS).changed


def test_along_the_scattered_dimension_the_inputs_are_interleaved() -> None:
    entry = (
        "  x = f32[8] parameter(0)\n  y = f32[4] parameter(1)\n  z = f32[12] parameter(2)\n"
        + scatter("a", "x", "f32[2]")
        + scatter("b", "y", "f32[1]")
        + scatter("d", "z", "f32[3]")
        + "  ROOT c = f32[6] concatenate(a, b, d), dimensions={0}\n"
    )
    file = parse(entry, reducer())
    result = apply(file.module, PASS)
    assert done(result) == ["3 reduce-scatters → %a.1, 24 bytes for each rank, the inputs interleaved"]
    root = reread(file).module.entry.root
    assert (root.opcode, root.shape.dims) == ("reduce-scatter", (6,))
    joined = root.operands[0].operands[0]
    assert (joined.opcode, joined.shape.dims, list(joined.proto.dimensions)) == ("concatenate", (4, 6), [1])
    assert declined(entry, options="{fuse_same_dim=false}") == [
        "%c it concatenates along the scattered dimension (fuse_same_dim=false)"
    ]


def test_reshaped_results_are_brought_to_the_extents_of_the_concatenate() -> None:
    entry = (
        "  x = f32[4,6] parameter(0)\n  y = f32[4,2,5] parameter(1)\n"
        + scatter("a", "x", "f32[1,6]")
        + "  ra = f32[6] reshape(a)\n"
        + scatter("b", "y", "f32[1,2,5]")
        + "  rb = f32[10] reshape(b)\n  ROOT c = f32[16] concatenate(ra, rb), dimensions={0}\n"
    )
    file = parse(entry, reducer())
    assert apply(file.module, f"{PASS}{{fuse_same_dim=false}}").changed  # nothing is interleaved
    module = reread(file).module
    (fused,) = scatters(module)
    assert (fused.shape.dims, fused.operands[0].shape.dims) == ((1, 16), (4, 16))
    assert module.entry.root.opcode == "reshape"


def test_a_row_of_neighbours_is_fused_and_the_others_stay() -> None:
    ins = "".join(f"  x{n} = f32[8] parameter({n})\n" for n in range(7))
    other = FOURS.replace("{0,1,2,3}", "{3,2,1,0}")
    forms = [FOURS, FOURS, other, other, other, FOURS]
    rows = "".join(scatter(f"r{n}", f"x{n}", "f32[2]", form=f) for n, f in enumerate(forms))
    entry = ins + rows + "  ROOT c = f32[20] concatenate(r0, r1, r2, r3, r4, x6, r5), dimensions={0}\n"
    file = parse(entry, reducer())
    result = apply(file.module, PASS)
    assert sorted(r.split(" →")[0] for r in done(result)) == ["2 reduce-scatters", "3 reduce-scatters"]
    module = reread(file).module
    assert [o.shape.dims for o in module.entry.root.operands] == [(4,), (6,), (8,), (2,)]
    assert "%r5 nothing beside it in %c can join it" in [
        f"{r.instruction} {r.reason}" for r in result.remarks if r.outcome == "declined"
    ]
    assert not apply(module, PASS).changed


BARRIER = """
  t = (f32[2,4], f32[2,3]) tuple(a, b)
  fence = (f32[2,4], f32[2,3]) opt-barrier(t)
  ga = f32[2,4] get-tuple-element(fence), index=0
  gb = f32[2,3] get-tuple-element(fence), index=1
"""
BEHIND = "c = f32[2,7] concatenate(ga, gb), dimensions={1}"


def test_one_barrier_comes_back_over_the_wide_result() -> None:
    file = parse(pair(between=BARRIER, concat=BEHIND), reducer())
    assert apply(file.module, PASS).changed
    module = reread(file).module
    root = module.entry.root
    fence = root.operands[0]
    assert (root.opcode, fence.opcode) == ("get-tuple-element", "opt-barrier")
    assert [o.opcode for o in fence.operands[0].operands] == ["reduce-scatter"]
    assert opcodes(module).count("opt-barrier") == 1


def test_other_values_stay_behind_the_barrier() -> None:
    between = (
        BARRIER.replace("(a, b)", "(a, x, b)")
        .replace("(f32[2,4], f32[2,3])", "(f32[2,4], f32[8,4], f32[2,3])")
        .replace("index=1", "index=2")
    )
    between += "  gx = f32[8,4] get-tuple-element(fence), index=1\n"
    entry = pair(between=between, concat=BEHIND).replace("ROOT c", "c")
    entry += "  ROOT out = (f32[2,7], f32[8,4]) tuple(c, gx)\n"
    file = parse(entry, reducer())
    assert apply(file.module, PASS).changed
    module = reread(file).module
    wide, gx = module.entry.root.operands
    assert wide.operands[0] is gx.operands[0]
    assert [o.opcode for o in wide.operands[0].operands[0].operands] == ["reduce-scatter", "parameter"]


def test_two_concatenates_share_a_barrier() -> None:
    ins = "".join(f"  x{n} = f32[8,2] parameter({n})\n" for n in range(4))
    rows = "".join(scatter(f"r{n}", f"x{n}", "f32[2,2]") for n in range(4))
    kind = "(f32[2,2], f32[2,2], f32[2,2], f32[2,2])"
    taken = "".join(f"  g{n} = f32[2,2] get-tuple-element(fence), index={n}\n" for n in range(4))
    entry = ins + rows + f"  t = {kind} tuple(r0, r1, r2, r3)\n  fence = {kind} opt-barrier(t)\n" + taken
    entry += "  c = f32[2,4] concatenate(g0, g2), dimensions={1}\n  d = f32[4,2] concatenate(g3, g1), dimensions={0}\n"
    entry += "  ROOT out = (f32[2,4], f32[4,2]) tuple(c, d)\n"
    file = parse(entry, reducer())
    apply(file.module, PASS)
    module = reread(file).module
    assert sorted(s.shape.dims for s in scatters(module)) == [(2, 4), (4, 2)]
    assert opcodes(module).count("opt-barrier") == 1


def test_a_tuple_without_a_barrier_is_taken_apart() -> None:
    between = BARRIER.replace("  fence = (f32[2,4], f32[2,3]) opt-barrier(t)\n", "").replace("(fence)", "(t)")
    file = parse(pair(between=between, concat=BEHIND), reducer())
    assert apply(file.module, PASS).changed
    assert opcodes(reread(file).module)[-4:] == ["parameter", "parameter", "concatenate", "reduce-scatter"]


# -- the mean ----------------------------------------------------------------------------------------------------------
def divided(dtype: str, where: str, constant: str = "4", opcode: str = "divide") -> str:
    """The three forms of a mean: after each reduce-scatter, before each, before a single one of the concatenate."""

    def by(name: str, x: str, shape: str) -> str:
        return f"  {name}.k = {shape} broadcast(k), dimensions={{}}\n  {name} = {shape} {opcode}({x}, {name}.k)\n"

    body = f"to_apply=add_{dtype}"
    lines = f"  x = {dtype}[8,2] parameter(0)\n  y = {dtype}[8,3] parameter(1)\n  k = {dtype}[] constant({constant})\n"
    if where == "single":
        lines += f"  xy = {dtype}[8,5] concatenate(x, y), dimensions={{1}}\n" + by("m", "xy", f"{dtype}[8,5]")
        return lines + "  ROOT" + scatter("a", "m", f"{dtype}[2,5]", body=body)[1:]
    for name, x, n in (("a", "x", 2), ("b", "y", 3)):
        if where == "before":
            lines += by(f"m{name}", x, f"{dtype}[8,{n}]") + scatter(name, f"m{name}", f"{dtype}[2,{n}]", body=body)
        else:
            lines += scatter(f"s{name}", x, f"{dtype}[2,{n}]", body=body) + by(name, f"s{name}", f"{dtype}[2,{n}]")
    return lines + f"  ROOT c = {dtype}[2,5] concatenate(a, b), dimensions={{1}}\n"


@pytest.mark.parametrize("opcode", ["divide", "multiply"])
@pytest.mark.parametrize("where", ["after", "before", "single"])
def test_the_mean_divides_once_after_the_reduction(where: str, opcode: str) -> None:
    file = parse(divided("f32", where, opcode=opcode), reducer())
    result = apply(file.module, PASS)
    (remark,) = done(result)
    assert where == "after" or f"{'divided' if opcode == 'divide' else 'multiplied'} afterwards" in str(remark)
    module = reread(file).module
    root = module.entry.root
    assert [root.opcode, *(o.opcode for o in root.operands)] == [opcode, "reduce-scatter", "broadcast"]
    assert opcodes(module).count(opcode) == 1
    assert [s.operands[0].opcode for s in scatters(module)] == ["concatenate"]
    assert not apply(module, PASS).changed


@pytest.mark.parametrize(
    ("dtype", "constant", "options", "reason"),
    [
        ("s32", "4", "", "integers are not divided elsewhere"),
        ("f16", "4", "", "the sum of undivided values may overflow in f16"),
        ("f32", "0", "", "its constant is zero or not finite"),
        ("f32", "inf", "", "its constant is zero or not finite"),
        ("f32", "4", "{allow_reassociate=false}", "it would be rounded otherwise (allow_reassociate=false)"),
    ],
)
def test_a_division_that_stays_inside(dtype: str, constant: str, options: str, reason: str) -> None:
    file = parse(divided(dtype, "single", constant), reducer("add", dtype))
    result = apply(file.module, PASS + options)
    assert not result.changed
    assert [(r.instruction, r.reason) for r in result.remarks] == [("%m", f"it stays inside the reduction: {reason}")]
    # the reduce-scatters themselves can be fused all the same, and exactly
    file = parse(divided(dtype, "before", constant), reducer("add", dtype))
    result = apply(file.module, PASS + options)
    assert [r.reason for r in result.remarks if r.outcome == "declined"] == [f"it stays inside the reduction: {reason}"]
    assert result.changed
    module = reread(file).module
    assert module.entry.root.opcode == "reduce-scatter"
    assert opcodes(module).count("divide") == 2


def test_only_sums_are_divided_afterwards() -> None:
    text = divided("f32", "single").replace("add_f32", "maximum_f32")
    result = apply(parse(text, reducer("maximum")).module, PASS)
    assert [r.reason for r in result.remarks] == ["it stays inside the reduction: only sums are divided afterwards"]


def test_divisions_of_results_need_no_leave_to_round() -> None:
    for dtype in ("f16", "f32"):
        file = parse(divided(dtype, "after"), reducer("add", dtype))
        assert apply(file.module, f"{PASS}{{allow_reassociate=false}}").changed
    assert declined(divided("s32", "after"), reducer("add", "s32")) == ["%c integers are not divided elsewhere"]
    assert declined(divided("f32", "after", "0")) == ["%c its constant is zero or not finite"]


def test_only_an_instance_that_may_round_says_so() -> None:
    assert FuseReduceScatter.reassociates
    assert FuseReduceScatter().reassociates
    assert not FuseReduceScatter(allow_reassociate=False).reassociates


# -- what is declined --------------------------------------------------------------------------------------------------
EVEN = FOURS.replace("{{0,1,2,3},{4,5,6,7}}", "[2,4]<=[8]")
B = "f32[2,3]"


@pytest.mark.parametrize(
    ("second", "what"),
    [
        (scatter("b", "y", B, form=FOURS.replace("{0,1,2,3}", "{1,0,2,3}")), "replica groups"),
        (scatter("b", "y", B, form=FOURS.replace(", use_global_device_ids=true", "")), "group mode"),
        (scatter("b", "y", B, body="to_apply=maximum_f32"), "reduction"),
        (scatter("b", "y", B, form=f"{FOURS}, constrain_layout=true"), "layout constraint"),
        (
            "  z = f32[2,12] parameter(2)\n" + scatter("b", "z", B, dim=1),
            "scatter dimension",
        ),
        (
            "  z = bf16[8,3] convert(y)\n"
            + scatter("bb", "z", "bf16[2,3]", body="to_apply=add_bf16")
            + "  b = f32[2,3] convert(bb)\n",
            "element type",
        ),
        (
            scatter("bb", "y", B) + "  h = bf16[2,3] convert(bb)\n  b = f32[2,3] convert(h)\n",
            "what is done with the result",
        ),
    ],
)
def test_reduce_scatters_that_differ_stay_apart(second: str, what: str) -> None:
    bodies = (reducer("maximum"), reducer("add", "bf16"))
    name = "bb" if "bb =" in second else "b"
    header = "replica_count=8, num_partitions=8" if what == "group mode" else "num_partitions=8"
    assert declined(pair(second), *bodies, header=header) == [
        f"%a it differs from %{name} in its {what}",
        f"%{name} it differs from %a in its {what}",
    ]


def test_groups_and_bodies_are_compared_by_what_they_mean() -> None:
    odd = """
other {
  q = f32[] parameter(1)
  p = f32[] parameter(0)
  ROOT r = f32[] add(q, p), metadata={op_name="sum"}
}"""
    file = parse(pair(scatter("b", "y", B, form=EVEN, body="to_apply=other")), reducer(), odd)
    assert apply(file.module, PASS).changed
    widened = """
{name} {{
  p{n} = bf16[] parameter(0)
  q{n} = bf16[] parameter(1)
  wp{n} = f32[] convert(p{n})
  wq{n} = f32[] convert(q{n})
  sum{n} = f32[] {op}(wp{n}, wq{n})
  ROOT r{n} = bf16[] convert(sum{n})
}}"""
    entry = pair(scatter("b", "y", "bf16[2,3]", body="to_apply=second")).replace("f32", "bf16")
    entry = entry.replace("add_bf16", "first")
    same = parse(entry, *(widened.format(name=m, n=n, op="add") for n, m in enumerate(("first", "second"))))
    assert apply(same.module, PASS).changed
    other = [widened.format(name=m, n=n, op=op) for n, (m, op) in enumerate((("first", "add"), ("second", "multiply")))]
    result = apply(parse(entry, *other).module, PASS)
    assert next(r.reason for r in result.remarks) == "it differs from %b in its reduction"


@pytest.mark.parametrize(
    ("entry", "reasons"),
    [
        (
            pair().replace("ROOT c", "c") + "  ROOT out = (f32[2,7], f32[2,3]) tuple(c, b)\n",
            ["%b %b has other users"],
        ),
        (
            pair(scatter("b", "y", B, body=f"{ADD}, control-predecessors={{x}}")),
            ["%b %b has control dependencies"],
        ),
        (
            pair(between=BARRIER.replace("opt-barrier(t)", "opt-barrier(t), control-predecessors={x}"), concat=BEHIND),
            ["%a %fence has control dependencies", "%b %fence has control dependencies"],
        ),
        (
            pair(concat="c = f32[2,11] concatenate(a, b, a), dimensions={1}"),
            ["%a it is in %c twice", "%a it is in %c twice"],
        ),
        (
            pair("  z = f32[8,4] broadcast(s), dimensions={}\n" + scatter("b", "z", "f32[2,4]"))
            .replace(
                "  z =",
                "  n = f32[2,1] slice(a), slice={[0:2], [0:1]}\n  m = f32[1,1] slice(n), slice={[0:1], [0:1]}\n"
                "  s = f32[] reshape(m)\n  z =",
            )
            .replace("f32[2,7]", "f32[2,8]"),
            ["%a %a has other users"],
        ),
    ],
)
def test_what_holds_one_back(entry: str, reasons: list[str]) -> None:
    said = declined(entry)
    assert all(reason in said for reason in reasons)


def test_variadic_ones_are_declined() -> None:
    entry = """
  x = f32[8,4] parameter(0)
  y = f32[8,4] parameter(1)
  v = (f32[2,4], f32[2,4]) reduce-scatter(x, y), FORM, dimensions={0}, to_apply=add_f32
  a = f32[2,4] get-tuple-element(v), index=0
  b = f32[2,4] get-tuple-element(v), index=1
  ROOT c = f32[2,8] concatenate(a, b), dimensions={1}""".replace("FORM", FOURS)
    assert declined(entry) == ["%v it is variadic", "%v it is variadic"]


def test_a_path_through_a_barrier_holds_a_row_back() -> None:
    entry = (
        "  x = f32[8,4] parameter(0)\n  y = f32[8,4] parameter(1)\n"
        + scatter("a", "x", "f32[2,4]")
        + "  t = (f32[2,4], f32[8,4]) tuple(a, y)\n  fence = (f32[2,4], f32[8,4]) opt-barrier(t)\n"
        + "  ga = f32[2,4] get-tuple-element(fence), index=0\n  gy = f32[8,4] get-tuple-element(fence), index=1\n"
        + scatter("b", "gy", "f32[2,4]")
        + "  ROOT c = f32[2,8] concatenate(ga, b), dimensions={1}\n"
    )
    assert declined(entry) == ["%c one of the reduce-scatters, or of the barriers behind them, depends on another"]


def test_of_a_row_with_a_path_the_independent_part_is_fused() -> None:
    entry = (
        "  x = f32[8,4] parameter(0)\n  y = f32[8,4] parameter(1)\n"
        + scatter("a", "x", "f32[2,4]")
        + scatter("b", "y", "f32[2,4]")
        + "  t = (f32[2,4], f32[8,4]) tuple(b, x)\n  fence = (f32[2,4], f32[8,4]) opt-barrier(t)\n"
        + "  gb = f32[2,4] get-tuple-element(fence), index=0\n  gx = f32[8,4] get-tuple-element(fence), index=1\n"
        + scatter("d", "gx", "f32[2,4]")
        + "  ROOT c = f32[2,12] concatenate(a, gb, d), dimensions={1}\n"
    )
    file = parse(entry, reducer())
    assert apply(file.module, PASS).changed
    module = reread(file).module
    assert [s.shape.dims for s in scatters(module)] == [(2, 8), (2, 4)]


def test_rows_that_stand_in_each_others_way_are_not_both_fused() -> None:
    """a1 before b1 and b2 before a2: each row alone may become one, both together would wait for each other."""
    entry = "".join(f"  x{n} = f32[8,2] parameter({n})\n" for n in range(2))
    entry += scatter("a1", "x0", "f32[2,2]") + scatter("b2", "x1", "f32[2,2]")
    for n, (made, after) in enumerate((("b1", "a1"), ("a2", "b2"))):
        entry += (
            f"  t{n} = (f32[2,2], f32[8,2]) tuple({after}, x{n})\n  f{n} = (f32[2,2], f32[8,2]) opt-barrier(t{n})\n"
            f"  g{n} = f32[2,2] get-tuple-element(f{n}), index=0\n  h{n} = f32[8,2] get-tuple-element(f{n}), index=1\n"
        ) + scatter(made, f"h{n}", "f32[2,2]")
    entry += "  c = f32[2,4] concatenate(g0, a2), dimensions={1}\n  d = f32[2,4] concatenate(b1, g1), dimensions={1}\n"
    entry += "  ROOT out = (f32[2,4], f32[2,4]) tuple(c, d)\n"
    file = parse(entry, reducer())
    result = apply(file.module, PASS)
    assert len(done(result)) == 1
    assert len(scatters(reread(file).module)) == 3


def test_what_is_no_candidate_gets_no_remark() -> None:
    entry = pair(concat="c = f32[2,8] concatenate(a, a), dimensions={1}").replace("ROOT c", "c")
    entry = "  x = f32[8,4] parameter(0)\n" + scatter("a", "x", "f32[2,4]") + "  p = f32[2,1] parameter(1)\n"
    assert declined(entry + "  ROOT c = f32[2,5] concatenate(a, p), dimensions={1}\n") == []


def test_only_the_entry_computation_is_looked_at() -> None:
    body = "inner {\n" + pair() + "}"
    entry = "  x = f32[8,4] parameter(0)\n  y = f32[8,3] parameter(1)\n  ROOT r = f32[2,7] call(x, y), to_apply=inner"
    assert declined(entry, body) == []


def test_all_computations_are_on_demand() -> None:
    body = "inner {\n" + pair() + "}"
    entry = "  x = f32[8,4] parameter(0)\n  y = f32[8,3] parameter(1)\n  ROOT r = f32[2,7] call(x, y), to_apply=inner"
    file = parse(entry, reducer(), body)
    assert apply(file.module, "fuse-reduce-scatter{all_computations=true}").changed
    assert opcodes(reread(file).module).count("reduce-scatter") == 1


# -- values ------------------------------------------------------------------------------------------------------------
PAIRS = f"{FLAT}, replica_groups=[4,2]<=[2,4]T(1,0)"
VALUES = (
    """
  x = f32[8,4] parameter(0)
  y = f32[8,3] parameter(1)
  z = f32[16,3] parameter(2)
  v = f32[3,8,2] parameter(3)
  w = f32[4] parameter(4)
  h = bf16[8,6]{0,1} parameter(5)
  g = f32[8,6] parameter(6)
"""
    + scatter("a0", "x", "f32[2,4]")
    + scatter("a1", "y", "f32[2,3]")
    + "  other = f32[2,7] concatenate(a0, a1), dimensions={1}\n"
    + scatter("b0", "y", "f32[2,3]", form=EVEN)
    + scatter("b1", "z", "f32[4,3]")
    + "  same = f32[6,3] concatenate(b0, b1), dimensions={0}\n"
    + scatter("c0", "v", "f32[3,2,2]", dim=1)
    + "  c0r = f32[12] reshape(c0)\n"
    + "  v2 = f32[3,8,2] negate(v)\n"
    + scatter("c1", "v2", "f32[3,2,2]", dim=1)
    + "  c1r = f32[12] reshape(c1)\n"
    + "  turned = f32[24] concatenate(c0r, c1r), dimensions={0}\n"
    + scatter("d0", "x", "f32[2,4]")
    + "  d0r = f32[8] reshape(d0)\n"
    + scatter("d1", "w", "f32[1]")
    + "  w1 = f32[1] slice(w), slice={[0:1]}\n  flat = f32[10] concatenate(d0r, d1, w1), dimensions={0}\n"
    + scatter("e0", "h", "bf16[4,6]{0,1}", form=PAIRS, body="to_apply=maximum_bf16")
    + "  h2 = bf16[8,6]{0,1} negate(h)\n"
    + scatter("e1", "h2", "bf16[4,6]{0,1}", form=PAIRS, body="to_apply=maximum_bf16")
    + "  e0c = f32[4,6] convert(e0)\n  e1c = f32[4,6] convert(e1)\n"
    + "  wide = f32[8,6] concatenate(e0c, e1c), dimensions={0}\n"
    + scatter("i0", "g", "f32[2,6]")
    + "  g2 = f32[8,6] negate(g)\n"
    + scatter("i1", "g2", "f32[2,6]")
    + """  three = f32[] constant(3)
  by = f32[2,6] broadcast(three), dimensions={}
  i0d = f32[2,6] divide(i0, by)
  i1d = f32[2,6] divide(i1, by)
  pairs = (f32[2,6], f32[8,6], f32[2,6]) tuple(i0d, g, i1d)
  fence = (f32[2,6], f32[8,6], f32[2,6]) opt-barrier(pairs)
  p0 = f32[2,6] get-tuple-element(fence), index=0
  p1 = f32[8,6] get-tuple-element(fence), index=1
  p2 = f32[2,6] get-tuple-element(fence), index=2
  fenced = f32[4,6] concatenate(p2, p0), dimensions={0}
  ROOT out = (f32[2,7], f32[6,3], f32[24], f32[10], f32[8,6], f32[4,6], f32[8,6])
    tuple(other, same, turned, flat, wide, fenced, p1)
"""
)


def test_values_are_the_same_bit_for_bit() -> None:
    text = hlo(VALUES, reducer(), reducer("maximum", "bf16"))
    report = run_values(text, f"{PASS}{{allow_reassociate=false}}")
    assert report.result["exact"]
    assert report.after == {"reduce-scatter": 6}


@pytest.mark.parametrize(("dtype", "where"), [("f32", "before"), ("bf16", "single")])
def test_a_mean_of_sums_is_the_mean_up_to_rounding(dtype: str, where: str) -> None:
    report = run_values(hlo(divided(dtype, where, "3"), reducer("add", dtype)), PASS)
    assert report.equal
    assert report.after == {"reduce-scatter": 1}


MODES = {
    "replica_groups={{1,0}}": 2,
    "channel_id=1, replica_groups={{0},{1}}": 4,
    "channel_id=2, replica_groups={{1,0}}": 8,
    f"{FLAT}, replica_groups=mesh['a'=2,'b'=2,'c'=2] {{'a','c'}}": 4,
}


def test_values_of_every_group_mode() -> None:
    lines, roots = "  x = f32[16,3] parameter(0)\n  y = f32[8,3] parameter(1)\n", []
    for n, (form, width) in enumerate(MODES.items()):
        lines += scatter(f"a{n}", "x", f"f32[{16 // width},3]", form=form)
        lines += scatter(f"b{n}", "y", f"f32[{8 // width},3]", form=form)
        lines += f"  c{n} = f32[{24 // width},3] concatenate(b{n}, a{n}), dimensions={{0}}\n"
        roots.append((f"f32[{24 // width},3]", f"c{n}"))
    lines += f"  ROOT out = ({', '.join(t for t, _ in roots)}) tuple({', '.join(c for _, c in roots)})\n"
    report = run_values(hlo(lines, reducer(), header="replica_count=2, num_partitions=4"), PASS)
    assert report.result["exact"]
    assert report.after == {"reduce-scatter": len(MODES)}


def _random(rng: np.random.Generator) -> str:
    """Concatenates of reduce-scatters of several shapes, groups, dims and types, some of them with plumbing."""
    lines, roots, number = "", [], 0
    for n in range(6):
        rank = int(rng.integers(1, 4))
        dim, axis = int(rng.integers(rank)), int(rng.integers(rank))
        dtype = str(rng.choice(["f32", "s32", "bf16"]))
        op = str(rng.choice(["add", "maximum"]))
        width = int(rng.choice([2, 4, 8]))
        parts = rng.integers(1, 4, size=rank)
        flat = rng.random() < 0.4
        fenced = rng.random() < 0.4
        groups = [rng.permutation(8).reshape(-1, width) for _ in range(2)]
        ends: list[tuple[str, list[int]]] = []
        for k in range(int(rng.integers(2, 6))):
            own = parts.copy()
            if flat:
                own = rng.integers(1, 4, size=rank)
            else:
                own[axis] = rng.integers(1, 4)
            whole = own.copy()
            whole[dim] *= width
            written = "{" + ",".join("{" + ",".join(map(str, g)) + "}" for g in groups[rng.random() < 0.2]) + "}"
            name = f"s{n}.{k}"
            kind = f"{dtype}[{','.join(map(str, own))}]"
            lines += f"  p{number} = {dtype}[{','.join(map(str, whole))}] parameter({number})\n"
            lines += scatter(
                name, f"p{number}", kind, dim, f"{FLAT}, replica_groups={written}", f"to_apply={op}_{dtype}"
            )
            number += 1
            extents = own.tolist()
            if flat:
                extents = [int(own.prod())]
                lines += f"  {name}.f = {dtype}[{extents[0]}] reshape({name})\n"
                name += ".f"
            ends.append((name, extents))
        if fenced:
            kinds = "(" + ", ".join(f"{dtype}[{','.join(map(str, e))}]" for _, e in ends) + ")"
            lines += (
                f"  t{n} = {kinds} tuple({', '.join(e for e, _ in ends)})\n  fence{n} = {kinds} opt-barrier(t{n})\n"
            )
            for k, (_, extents) in enumerate(ends):
                kind = f"{dtype}[{','.join(map(str, extents))}]"
                lines += f"  g{n}.{k} = {kind} get-tuple-element(fence{n}), index={k}\n"
            ends = [(f"g{n}.{k}", e) for k, (_, e) in enumerate(ends)]
        axis = 0 if flat else axis
        result = list(ends[0][1])
        result[axis] = sum(e[axis] for _, e in ends)
        kind = f"{dtype}[{','.join(map(str, result))}]"
        lines += f"  c{n} = {kind} concatenate({', '.join(e for e, _ in ends)}), dimensions={{{axis}}}\n"
        roots.append((kind, f"c{n}"))
    lines += f"  ROOT out = ({', '.join(t for t, _ in roots)}) tuple({', '.join(c for _, c in roots)})\n"
    bodies = [reducer(op, dtype) for op in ("add", "maximum") for dtype in ("f32", "s32", "bf16")]
    return hlo(lines, *bodies)


@pytest.mark.parametrize("seed", range(4))
def test_random_modules(seed: int) -> None:
    report = run_values(_random(np.random.default_rng(seed)), f"{PASS}{{allow_reassociate=false}}")
    assert report.result["exact"]
    assert report.after["reduce-scatter"] < report.before["reduce-scatter"]


def _many_rows(count: int) -> Module:
    lines, roots = "", []
    for n in range(count):
        lines += f"  x{n} = f32[8,4] parameter({2 * n})\n  y{n} = f32[8,3] parameter({2 * n + 1})\n"
        lines += scatter(f"a{n}", f"x{n}", "f32[2,4]") + scatter(f"b{n}", f"y{n}", "f32[2,3]")
        lines += f"  cat{n} = f32[2,7] concatenate(a{n}, b{n}), dimensions={{1}}\n"
        roots.append(f"cat{n}")
    lines += f"  ROOT out = ({', '.join(['f32[2,7]'] * len(roots))}) tuple({', '.join(roots)})\n"
    return parse(lines, reducer()).module


def test_the_work_grows_with_the_rows_and_no_faster() -> None:
    work = {}
    for count in (150, 600):
        module = _many_rows(count)
        results: list[PassResult] = []
        work[count] = lines_run(lambda module=module, results=results: results.append(apply(module, PASS)))
        assert results[0].changed
        assert len(scatters(module)) == count
        assert find(module, "out").is_root
    assert work[600] < 5 * work[150]
