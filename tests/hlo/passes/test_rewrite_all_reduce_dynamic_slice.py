"""`aws_neuron_rewrite_all_reduce_dynamic_slice` and `…_multiple_groups`: what is proved, what is made."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support import apply, find, hlo, opcodes, parse, reducer, reread, run_values

ONE = "aws_neuron_rewrite_all_reduce_dynamic_slice"
SEVERAL = f"{ONE}_multiple_groups"
BOTH = f"{ONE},{SEVERAL}"
FLAT = "channel_id=1, use_global_device_ids=true"
ADD = "to_apply=add_f32"

PRODUCT = """
  id = u32[] partition-id()
  extent = u32[] constant(2)
  zero = u32[] constant(0)
  offset = u32[] multiply(id, extent)
"""


def table(name: str, values: list[int]) -> str:
    """An offset from a table, as the partitioner writes it."""
    numbers = ", ".join(map(str, values))
    return f"""
  {name}.t = s32[8] constant({{{numbers}}})
  {name}.i = u32[] partition-id()
  {name}.s = s32[1] dynamic-slice({name}.t, {name}.i), dynamic_slice_sizes={{1}}
  {name} = s32[] reshape({name}.s)
"""


SIMPLE = f"""
  x = f32[16,3] parameter(0)
{PRODUCT}
  ar = f32[16,3] all-reduce(x), {FLAT}, replica_groups={{{{0,1,2,3,4,5,6,7}}}}, {ADD}
  ROOT mine = f32[2,3] dynamic-slice(ar, offset, zero), dynamic_slice_sizes={{2,3}}
"""


def test_a_slice_of_ones_own_part_is_a_reduce_scatter() -> None:
    file = parse(SIMPLE, reducer())
    result = apply(file.module, ONE)
    assert result.changed
    assert [(r.instruction, r.reason) for r in result.remarks] == [("%ar", "→ %reduce-scatter along dimension 0")]
    module = reread(file).module
    root = module.entry.root
    assert (root.opcode, root.shape.dims, root.operands[0].name) == ("reduce-scatter", (2, 3), "x")
    assert root.proto.channel_id == 2
    assert root.proto.use_global_device_ids
    assert list(root.proto.dimensions) == [0]
    assert root.called[0].name == "add_f32"
    assert set(opcodes(module)) == {"parameter", "add", "reduce-scatter"}  # the offset is gone too
    assert not apply(module, ONE).changed


def test_no_channel_id_stays_none() -> None:
    text = SIMPLE.replace(f"{FLAT}, ", "").replace("partition-id", "replica-id")
    file = parse(text, reducer(), header="replica_count=8")
    assert apply(file.module, ONE).changed
    assert reread(file).module.entry.root.proto.channel_id == 0


def test_the_names_share_the_work() -> None:
    several = SIMPLE.replace("{{0,1,2,3,4,5,6,7}}", "{{0,1,2,3},{4,5,6,7}}")
    result = apply(parse(several, reducer()).module, ONE)
    assert [r.reason for r in result.remarks] == [f"it has 2 groups: the pass {SEVERAL} takes those"]
    result = apply(parse(SIMPLE, reducer()).module, SEVERAL)
    assert [r.reason for r in result.remarks] == [f"it has 1 group: the pass {ONE} takes those"]


def declined(entry: str, name: str = ONE, header: str = "num_partitions=8") -> list[str]:
    file = parse(entry, reducer(), header=header)
    result = apply(file.module, name)
    assert not result.changed
    return [r.reason for r in result.remarks]


WITHOUT_GROUP = SIMPLE.replace("{{0,1,2,3,4,5,6,7}}", "{{0,1,2,3}}")


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (
            SIMPLE.replace("f32[2,3]", "f32[2,1]").replace("={2,3}", "={2,1}"),
            "not 1D: %mine takes a part of 2 dimensions",
        ),
        (
            SIMPLE.replace("f32[2,3]", "f32[1,3]").replace("={2,3}", "={1,3}"),
            "slice size does not match: %mine takes 1 of 16, in a group of 8",
        ),
        (
            SIMPLE.replace("constant(2)", "constant(1)"),
            "the slice of rank 1 starts at 1, and its part at 2 (%mine)",
        ),
        (
            SIMPLE.replace("offset = u32[] multiply(id, extent)", "offset = u32[] parameter(1)"),
            "the offset of %mine depends on more than the rank",
        ),
        (
            SIMPLE.replace("{{0,1,2,3,4,5,6,7}}", "{{1,0,2,3,4,5,6,7}}"),
            "the slice of rank 0 starts at 0, and its part at 2 (%mine)",
        ),
        (
            SIMPLE.replace("ROOT mine", "mine") + "  ROOT out = (f32[2,3], f32[16,3]) tuple(mine, ar)\n",
            "it has other users than dynamic slices",
        ),
        (
            SIMPLE.replace("ROOT mine", "mine").replace("  ar =", "  ROOT ar ="),
            "it has other users than dynamic slices",
        ),
        (
            SIMPLE.replace("dynamic_slice_sizes={2,3}", "dynamic_slice_sizes={2,3}, control-predecessors={x}"),
            "%mine has control dependencies",
        ),
        (WITHOUT_GROUP, "ids 4, 5, 6, 7 are in no group"),
        (
            SIMPLE.replace(
                "  ar = f32[16,3] all-reduce(x)", "  both = (f32[16,3], f32[16,3]) all-reduce(x, x)"
            ).replace("  ROOT", "  ar = f32[16,3] get-tuple-element(both), index=1\n  ROOT"),
            "it is variadic",
        ),
    ],
)
def test_what_is_declined(entry: str, reason: str) -> None:
    assert declined(entry) == [reason]


def test_groups_that_cannot_be_compared_with_offsets_are_declined() -> None:
    uneven = SIMPLE.replace("{{0,1,2,3,4,5,6,7}}", "{{0,1,2},{3,4,5,6,7}}")
    assert declined(uneven, SEVERAL) == ["group sizes not consistent"]
    assert declined(SIMPLE, header="is_scheduled=false") == ["the module does not say how many ranks it has"]
    outside = SIMPLE.replace("{{0,1,2,3,4,5,6,7}}", "{{0,1,2,3,4,5,6,8}}")
    assert declined(outside) == ["id 8 is outside the 8 ranks of flattened groups"]


def test_more_parts_than_the_all_reduce_carries_are_declined() -> None:
    lines = SIMPLE[: SIMPLE.index("  ROOT")].replace("16,3", "16,16,16")
    for n, d in enumerate(("offset, zero, zero", "zero, offset, zero", "zero, zero, offset")):
        dims = ",".join("2" if e == n else "16" for e in range(3))
        lines += f"  part{n} = f32[{dims}] dynamic-slice(ar, {d}), dynamic_slice_sizes={{{dims}}}\n"
    lines += "  ROOT out = (f32[2,16,16], f32[16,2,16], f32[16,16,2]) tuple(part0, part1, part2)\n"
    assert declined(lines) == ["3 reduce-scatters would carry more than it does"]


def test_an_all_reduce_without_slices_is_no_candidate() -> None:
    entry = f"  x = f32[8] parameter(0)\n  ROOT ar = f32[8] all-reduce(x), replica_groups={{}}, {ADD}"
    assert declined(entry) == []


VALUES = f"""
  x = f32[16,6] parameter(0)
  y = s32[4,8] parameter(1)
  h = bf16[8,16]{{0,1}} parameter(2)
  nought = s32[] constant(0)
{PRODUCT}
  iota = f32[16,6] all-reduce(x), {FLAT}, replica_groups=[1,8]<=[8], {ADD}
  a = f32[2,6] dynamic-slice(iota, offset, zero), dynamic_slice_sizes={{2,6}}
  again = f32[2,6] dynamic-slice(iota, offset, zero), dynamic_slice_sizes={{2,6}}
  twice = f32[2,6] add(a, again)
{table("strided", [0, 0, 2, 2, 4, 4, 6, 6])}
  mesh = s32[4,8] all-reduce(y), {FLAT}, replica_groups=mesh['a'=4,'b'=2] {{'a'}}, to_apply=maximum_s32
  b = s32[4,2] dynamic-slice(mesh, nought, strided), dynamic_slice_sizes={{4,2}}
{table("beyond", [-7, -7, 9, 9, -1, -1, 8, 99])}
  clamped = f32[16,6] all-reduce(x), {FLAT}, replica_groups={{{{0,2}},{{1,3}},{{4,6}},{{5,7}}}}, {ADD}
  c = f32[8,6] dynamic-slice(clamped, beyond, nought), dynamic_slice_sizes={{8,6}}
{table("unordered", [12, 8, 4, 0, 0, 4, 8, 12])}
  order = bf16[8,16]{{0,1}} all-reduce(h), {FLAT}, replica_groups={{{{3,2,1,0}},{{4,5,6,7}}}}, to_apply=add_bf16
  d = bf16[8,4]{{0,1}} dynamic-slice(order, nought, unordered), dynamic_slice_sizes={{8,4}}
  moved = f32[16,6] all-reduce(x), {FLAT}, replica_groups={{{{0,1,2,3,4,5,6,7}}}}, {ADD}
  flat = f32[96] reshape(moved)
  twelve = u32[] constant(12)
  twelfth = u32[] multiply(id, twelve)
  e = f32[12] dynamic-slice(flat, twelfth), dynamic_slice_sizes={{12}}
  turned = f32[6,16] transpose(moved), dimensions={{1,0}}
  f = f32[6,2] dynamic-slice(turned, zero, offset), dynamic_slice_sizes={{6,2}}
  ROOT out = (f32[2,6], s32[4,2], f32[8,6], bf16[8,4]{{0,1}}, f32[12], f32[6,2]) tuple(twice, b, c, d, e, f)
"""
BODIES = (reducer(), reducer("maximum", "s32"), reducer("add", "bf16"))


def test_values_of_tables_strides_clamps_layouts_and_moves() -> None:
    report = run_values(hlo(VALUES, *BODIES), BOTH)
    assert report.result["exact"]
    assert report.after == {"reduce-scatter": 6}  # equal slices share one, slices along two dimensions have two
    assert [sum(r.outcome == "done" for r in p.remarks) for p in report.passes] == [3, 3]


REPLICAS_AND_PARTITIONS = f"""
  x = f32[8,4] parameter(0)
  p = u32[] partition-id()
  r = u32[] replica-id()
  one = u32[] constant(1)
  two = u32[] constant(2)
  four = u32[] constant(4)
  zero = u32[] constant(0)
  rows = u32[] multiply(r, four)
  flat = u32[] add(rows, p)
  all = f32[8,4] all-reduce(x), {FLAT}, replica_groups={{}}, {ADD}
  a = f32[1,4] dynamic-slice(all, flat, zero), dynamic_slice_sizes={{1,4}}
  across = f32[8,4] all-reduce(x), replica_groups={{{{1,0}}}}, {ADD}
  other = u32[] subtract(one, r)
  half = u32[] multiply(other, four)
  b = f32[4,4] dynamic-slice(across, half, zero), dynamic_slice_sizes={{4,4}}
  both = f32[8,4] all-reduce(x), channel_id=2, replica_groups={{{{0}},{{1}}}}, {ADD}
  c = f32[8,1] dynamic-slice(both, zero, p), dynamic_slice_sizes={{8,1}}
  wrong = f32[8,4] all-reduce(x), channel_id=3, replica_groups={{{{0,1}}}}, {ADD}
  d = f32[8,1] dynamic-slice(wrong, zero, p), dynamic_slice_sizes={{8,1}}
  ROOT out = (f32[1,4], f32[4,4], f32[8,1], f32[8,1]) tuple(a, b, c, d)
"""


def test_values_of_every_group_mode() -> None:
    text = hlo(REPLICAS_AND_PARTITIONS, reducer(), header="replica_count=2, num_partitions=4")
    report = run_values(text, BOTH)
    assert report.result["exact"]
    assert report.after == {"all-reduce": 1, "reduce-scatter": 3}
    said = [r.reason for r in report.passes[0].remarks if r.instruction == "%wrong"]
    assert said == ["slice size does not match: %d takes 1 of 4, in a group of 8"]


def test_slices_in_loops_are_rewritten_too() -> None:
    body = f"""
step {{
  s = (s32[], f32[16]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  x = f32[16] get-tuple-element(s), index=1
{PRODUCT}
  ar = f32[16] all-reduce(x), {FLAT}, replica_groups={{{{0,1,2,3,4,5,6,7}}}}, {ADD}
  mine = f32[2] dynamic-slice(ar, offset), dynamic_slice_sizes={{2}}
  eight = f32[8,2] broadcast(mine), dimensions={{1}}
  next = f32[16] reshape(eight)
  one = s32[] constant(1)
  m = s32[] add(n, one)
  ROOT r = (s32[], f32[16]) tuple(m, next)
}}
until {{
  s = (s32[], f32[16]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  two = s32[] constant(2)
  ROOT c = pred[] compare(n, two), direction=LT
}}"""
    entry = """
  x = f32[16] parameter(0)
  n = s32[] constant(0)
  s = (s32[], f32[16]) tuple(n, x)
  w = (s32[], f32[16]) while(s), condition=until, body=step
  ROOT out = f32[16] get-tuple-element(w), index=1"""
    report = run_values(hlo(entry, reducer(), body), ONE)
    assert report.result["exact"]
    assert report.after == {"reduce-scatter": 1}


def _random(rng: np.random.Generator) -> tuple[str, int]:
    """A module of slices, some of them of another part; how many are right."""
    lines, roots, right = ["  zero = s32[] constant(0)"], [], 0
    for n in range(8):
        width = int(rng.choice([2, 4, 8]))
        groups = rng.permutation(8).reshape(-1, width)
        dims = rng.integers(1, 4, size=int(rng.integers(1, 4)))
        dim = int(rng.integers(len(dims)))
        size = int(dims[dim])
        dims[dim] *= width
        offsets = np.zeros(8, int)
        for group in groups:
            offsets[group] = np.arange(width) * size
        if rng.random() < 0.3:
            offsets = rng.permutation(offsets)
        expected = all((offsets[g] == np.arange(width) * size).all() for g in groups)
        right += expected
        whole, part = ",".join(map(str, dims)), ",".join(str(size if d == dim else k) for d, k in enumerate(dims))
        written = "{" + ",".join("{" + ",".join(map(str, g)) + "}" for g in groups) + "}"
        starts = ", ".join(f"o{n}" if d == dim else "zero" for d in range(len(dims)))
        lines += [
            f"  x{n} = f32[{whole}] parameter({n})",
            table(f"o{n}", offsets.tolist()),
            f"  ar{n} = f32[{whole}] all-reduce(x{n}), {FLAT}, replica_groups={written}, {ADD}",
            f"  ds{n} = f32[{part}] dynamic-slice(ar{n}, {starts}), dynamic_slice_sizes={{{part}}}",
        ]
        roots.append((f"f32[{part}]", f"ds{n}"))
    types, names = ", ".join(t for t, _ in roots), ", ".join(n for _, n in roots)
    return hlo("\n".join([*lines, f"  ROOT out = ({types}) tuple({names})"]), reducer()), right


@pytest.mark.parametrize("seed", range(3))
def test_random_slices(seed: int) -> None:
    text, right = _random(np.random.default_rng(seed))
    report = run_values(text, BOTH)
    assert report.result["exact"]
    assert report.after.get("reduce-scatter", 0) == right


def test_metadata_and_origin_are_those_of_the_all_reduce() -> None:
    text = SIMPLE.replace(ADD, f'{ADD}, metadata={{op_name="grads" source_file="a.py" source_line=7}}')
    file = parse(text, reducer())
    origin = find(file.module, "ar").origin
    apply(file.module, ONE)
    root = file.module.entry.root
    assert root.origin == origin
    assert root.where == "a.py:7"
