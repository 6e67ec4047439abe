"""`aws_neuron_flip_all_gathers_binary`: combine first, gather once."""

from __future__ import annotations

import numpy as np
import pytest

from ...support import apply, opcodes, parse, run_values
from .rewrites import FLAGS, SIZES, Lines, array, data, data_text, declined, gather, pick_groups, rewritten

NAME = "aws_neuron_flip_all_gathers_binary"
OPS = ("add", "and", "divide", "maximum", "minimum", "multiply", "or", "remainder", "subtract")
ALL = f"replica_groups={{}}, dimensions={{0}}, {FLAGS}"


def two(
    first: str = ALL, second: str = ALL, tail: str = "  ROOT r = f32[64] add(g, h)", header: str = "num_partitions=8"
):
    return parse(
        "  p = f32[8] parameter(0)\n  q = f32[8] parameter(1)\n"
        f"  g = f32[64] all-gather(p), {first}\n  h = f32[64] all-gather(q), {second}\n{tail}",
        header=header,
    )


def test_one_gather_in_the_place_of_two() -> None:
    file = two(second=ALL.replace("channel_id=1", "channel_id=4"))
    module = rewritten(file, NAME)
    assert opcodes(module) == ["parameter", "parameter", "add", "all-gather"]
    g = module.entry.root
    assert (int(g.proto.channel_id), g.proto.use_global_device_ids) == (5, True)
    assert [o.name for o in g.operands[0].operands] == ["p", "q"]


def test_no_channel_id_is_invented() -> None:
    plain = "replica_groups={}, dimensions={0}"
    module = rewritten(two(plain, plain, header="replica_count=8"), NAME)
    assert int(module.entry.root.proto.channel_id) == 0


def test_fresh_ids_differ() -> None:
    tail = (
        "  s = f32[64] add(g, h)\n  k = f32[64] all-gather(p), " + ALL + "\n  m = f32[64] all-gather(q), " + ALL + "\n"
        "  t = f32[64] multiply(k, m)\n  ROOT r = (f32[64], f32[64]) tuple(s, t)"
    )
    module = rewritten(two(tail=tail), NAME)
    assert [int(i.proto.channel_id) for i in module.instructions() if i.opcode == "all-gather"] == [2, 3]


def test_a_tree_of_them_becomes_one() -> None:
    tail = (
        f"  k = f32[64] all-gather(p), {ALL}\n  s = f32[64] add(g, h)\n  t = f32[64] maximum(k, s)\n"
        "  ROOT r = f32[64] negate(t)"
    )
    module = rewritten(two(tail=tail), NAME)
    assert opcodes(module).count("all-gather") == 1


def test_one_gather_used_twice() -> None:
    file = parse(f"  p = f32[8] parameter(0)\n  g = f32[64] all-gather(p), {ALL}\n  ROOT r = f32[64] multiply(g, g)")
    g = rewritten(file, NAME).entry.root
    assert g.operands[0].opcode == "multiply"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("{{0,1,2,3,4,5,6,7}}", "{}"),
        ("{{0,4},{1,5},{2,6},{3,7}}", "[4,2]<=[2,4]T(1,0)"),
        ("{{1,5},{0,4},{2,6},{3,7}}", "mesh['a'=2,'b'=4] {'a'}"),
        ("[2,4]<=[8]", "mesh['a'=2,'b'=4] {'b'}"),
    ],
)
def test_groups_are_compared_by_what_they_mean(first: str, second: str) -> None:
    size = SIZES.get(second, 2)
    file = parse(
        f"  p = f32[8] parameter(0)\n  q = f32[8] parameter(1)\n"
        f"  g = f32[{8 * size}] all-gather(p), replica_groups={first}, dimensions={{0}}, {FLAGS}\n"
        f"  h = f32[{8 * size}] all-gather(q), replica_groups={second}, dimensions={{0}}, {FLAGS}\n"
        f"  ROOT r = f32[{8 * size}] add(g, h)"
    )
    rewritten(file, NAME)


@pytest.mark.parametrize(
    ("first", "second", "tail", "reason"),
    [
        (ALL, "replica_groups={{1,0,2,3,4,5,6,7}}, dimensions={0}, " + FLAGS, "", "%g and %h have different groups"),
        (ALL, "replica_groups={{0,1,2,3,4,5,6,9}}, dimensions={0}, " + FLAGS, "", "%g and %h have different groups"),
        (ALL, "replica_groups={}, dimensions={0}", "", "%g and %h have different group modes"),
        (ALL, ALL + ", constrain_layout=true", "", "%g and %h differ in constrain_layout"),
        (ALL, ALL, "  s = f32[64] add(g, h)\n  ROOT r = f32[64] subtract(s, h)", "%h has other users"),
        (ALL, ALL, "  ROOT r = f32[64] add(g, h), control-predecessors={g}", "%g has control dependencies"),
    ],
)
def test_guards(first: str, second: str, tail: str, reason: str) -> None:
    file = two(first, second, tail) if tail else two(first, second)
    assert declined(file.module, NAME) == [reason]


def test_different_dimensions() -> None:
    file = parse(
        "  p = f32[8,64] parameter(0)\n  q = f32[64,8] parameter(1)\n"
        f"  g = f32[64,64] all-gather(p), replica_groups={{}}, dimensions={{0}}, {FLAGS}\n"
        f"  h = f32[64,64] all-gather(q), replica_groups={{}}, dimensions={{1}}, {FLAGS}\n"
        "  ROOT r = f32[64,64] add(g, h)"
    )
    assert declined(file.module, NAME) == ["%g and %h gather on different dimensions"]


def test_other_operations_are_no_candidates() -> None:
    file = two(tail="  c = pred[64] compare(g, h), direction=LT\n  ROOT r = f32[64] power(g, h)")
    assert declined(file.module, NAME) == []


@pytest.mark.parametrize("seed", range(2))
def test_values(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lines = Lines()
    cases = [(op, dtype) for op in OPS for dtype in ("f32", "s32", "bf16") if op not in ("and", "or") or dtype == "s32"]
    for op, dtype in cases:
        dims = [int(n) for n in rng.integers(1, 5, rng.integers(1, 4))]
        groups, size = pick_groups(rng)
        dim = int(rng.integers(len(dims)))
        shape = array(dtype, dims, rng.permutation(len(dims)))
        g, h = (gather(lines, lines.parameter(shape), dtype, dims, dim, groups) for _ in range(2))
        dims[dim] *= size
        lines.add(array(dtype, dims), f"{op}({g}, {h})", output=True)
    report = run_values(lines.text(), NAME)
    assert report.result["exact"]
    assert sum(r.outcome == "done" for r in report.passes[0].remarks) == len(cases)


def test_adapters_beside_weights_of_jax() -> None:
    assert sum(r.outcome == "done" for r in apply(data(NAME).module, NAME).remarks) == 2
    report = run_values(data_text(NAME), NAME)
    assert report.result["exact"]
    assert (report.before, report.after) == ({"all-gather": 4}, {"all-gather": 2})
