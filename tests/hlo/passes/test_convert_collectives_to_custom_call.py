"""`convert-collectives-to-custom-call`: what becomes of each collective, and what is left alone."""

from __future__ import annotations

import pytest

from crossrank.errors import InputError, RunError
from crossrank.hlo.build import tuple_of
from crossrank.hlo.io import to_text

from ...support import apply, find, hlo, opcodes, parse, reducer, reread, run_values

NAME = "convert-collectives-to-custom-call"
FLAGS = "channel_id=7, use_global_device_ids=true"
GUARD = "reduction body is not a binary op over its two parameters"


def collective(opcode: str, dtype: str = "f32", op: str = "add", attributes: str = FLAGS, groups: str = "{}"):
    """A module of one collective over all 8 ranks, `%r`."""
    shapes = {"all-reduce": ("8,4", "8,4"), "all-gather": ("8,4", "64,4"), "reduce-scatter": ("8,4", "1,4")}
    source, result = shapes[opcode]
    dims = "" if opcode == "all-reduce" else ", dimensions={0}"
    body = "" if opcode == "all-gather" else f", to_apply={op}_{dtype}"
    return parse(
        f"  p = {dtype}[{source}] parameter(0)\n"
        f"  ROOT r = {dtype}[{result}] {opcode}(p), replica_groups={groups}{dims}{body}, {attributes}",
        reducer(op, dtype),
    )


@pytest.mark.parametrize(
    ("opcode", "op", "dtype", "target"),
    [
        (opcode, op, dtype, f"AwsNeuron{base}{infix}{'_' + dtype if named else '_UNKNOWNDTYPE'}")
        for opcode, base in (("all-reduce", "AllReduce"), ("reduce-scatter", "ReduceScatter"))
        for op, infix in (("add", "Add"), ("maximum", "Max"), ("minimum", "Min"), ("multiply", "UNKNOWNOP"))
        for dtype, named in (
            *((t, True) for t in ("f32", "bf16", "f16", "u32", "s64", "s32")),
            *((t, False) for t in ("f64", "u8", "s8", "u64")),
        )
    ]
    + [("all-gather", "", t, f"AwsNeuronAllGather_{t}") for t in ("f32", "bf16", "f16", "u32", "s64", "s32")]
    + [
        ("all-gather", "", t, "AwsNeuronAllGather_UNKNOWNDTYPE")
        for t in ("f64", "u8", "pred", "f8e4m3fn", "f8e5m2", "s8", "c64")
    ],
)
def test_targets(opcode: str, op: str, dtype: str, target: str) -> None:
    file = collective(opcode, dtype, op or "add")
    assert apply(file.module, NAME).changed
    r = find(file.module, "r")
    assert (r.opcode, r.proto.custom_call_target, r.proto.custom_call_api_version) == ("custom-call", target, 1)
    assert f'custom_call_target="{target}"' in to_text(file)


@pytest.mark.parametrize(
    ("opcode", "op", "attributes", "config"),
    [
        ("all-gather", "add", FLAGS, "channel_id=7;dimension=0;use_global_device_ids=true;constrain_layout=false"),
        ("reduce-scatter", "add", FLAGS, "channel_id=7;dimension=0;use_global_device_ids=true;constrain_layout=false"),
        ("all-reduce", "add", FLAGS, "channel_id=7;use_global_device_ids=true;constrain_layout=false"),
        ("all-reduce", "add", "channel_id=3", "channel_id=3;constrain_layout=false"),
        ("all-reduce", "add", "constrain_layout=true", "constrain_layout=true"),
        (
            "reduce-scatter",
            "multiply",
            FLAGS,
            "channel_id=7;dimension=0;use_global_device_ids=true;constrain_layout=false;reduce=multiply",
        ),
        ("all-reduce", "xor", "channel_id=3", "channel_id=3;constrain_layout=false;reduce=xor"),
    ],
)
def test_config(opcode: str, op: str, attributes: str, config: str) -> None:
    file = collective(opcode, "s32", op, attributes)
    apply(file.module, NAME)
    assert find(file.module, "r").proto.backend_config.decode() == config
    assert find(reread(file).module, "r").proto.backend_config.decode() == config


@pytest.mark.parametrize(
    "groups",
    [
        "{}",
        "{{0,1,2,3,4,5,6,7}}",
        "{{7,1,3,5},{2,0,6,4}}",
        "[2,4]<=[8]",
        "[4,2]<=[2,4]T(1,0)",
        "mesh['a'=2,'b'=4] {'b'}",
        "mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b':(1)2}",
    ],
)
def test_groups_go_verbatim_and_come_back(groups: str) -> None:
    file = collective("all-reduce", groups=groups)
    apply(file.module, NAME)
    r = find(file.module, "r")
    assert r.frontend_attributes == {"replica_groups": groups}
    assert not r.proto.HasField("collective_device_list")
    again = reread(file)
    assert find(again.module, "r").frontend_attributes == {"replica_groups": groups}
    apply(again.module, "raise-custom-call-collectives")
    assert f"replica_groups={groups}," in to_text(again)


@pytest.mark.parametrize(
    ("types", "suffix"),
    [
        (("f32", "f32"), "_f32"),
        (("bf16", "bf16"), "_bf16"),
        (("f32", "bf16"), "_UNKNOWNDTYPE"),
        (("s8", "s8"), "_UNKNOWNDTYPE"),
    ],
)
def test_tuples(types: tuple[str, str], suffix: str) -> None:
    a, b = types
    body = (
        f"body {{\n  x = {a}[] parameter(0)\n  y = {a}[] parameter(1)\n  ROOT z = {a}[] add(x, y)\n}}"
        if a == b
        else None
    )
    file = parse(
        f"  p = {a}[8] parameter(0)\n  q = {b}[8] parameter(1)\n"
        f"  ROOT r = ({a}[64], {b}[64]) all-gather(p, q), replica_groups={{}}, dimensions={{0}}, {FLAGS}"
    )
    apply(file.module, NAME)
    assert find(file.module, "r").proto.custom_call_target == f"AwsNeuronAllGather{suffix}"
    if body:
        file = parse(
            f"  p = {a}[8] parameter(0)\n  q = {b}[8] parameter(1)\n"
            f"  ROOT r = ({a}[8], {b}[8]) all-reduce(p, q), replica_groups={{}}, to_apply=body, {FLAGS}",
            body,
        )
        apply(file.module, NAME)
        r = find(reread(file).module, "r")
        assert r.proto.custom_call_target == f"AwsNeuronAllReduceAdd{suffix}"
        assert [o.name for o in r.operands] == ["p", "q"]


def test_everything_else_of_the_instruction_stays() -> None:
    file = parse(
        "  p = f32[8,4] parameter(0)\n  n = f32[8,4] negate(p)\n"
        f"  c = f32[8,4] all-reduce(p), replica_groups={{}}, to_apply=add_f32, {FLAGS}, sharding={{replicated}}, "
        'control-predecessors={n}, frontend_attributes={stream="1"}, '
        'metadata={op_name="psum" source_file="f.py" source_line=9}\n'
        "  m = f32[8,4] negate(c), control-predecessors={c}\n  ROOT r = f32[8,4] add(m, n)",
        reducer(),
    )
    before = find(file.module, "c")
    metadata, sharding, shape = (str(before.proto.metadata), before.proto.sharding.SerializeToString(), before.shape)
    result = apply(file.module, NAME)
    c = find(reread(file).module, "c")
    assert c.shape == shape
    assert c.frontend_attributes == {"stream": "1", "replica_groups": "{}"}
    assert (str(c.proto.metadata), c.proto.sharding.SerializeToString()) == (metadata, sharding)
    assert [p.name for p in c.control_predecessors] == ["n"]
    assert [s.name for s in c.control_successors] == ["m"]
    assert [c.name for c in file.module.computations] == ["main"]  # the body is dead
    (remark,) = result.remarks
    assert str(remark) == f"{NAME}: done: %c (f.py:9): all-reduce → AwsNeuronAllReduceAdd_f32"


def test_other_collectives_are_untouched() -> None:
    file = parse(
        "  p = f32[8,4] parameter(0)\n"
        "  a = f32[8,4] all-to-all(p), channel_id=1, replica_groups={}, dimensions={0}\n"
        "  b = f32[8,4] collective-permute(a), channel_id=2, source_target_pairs={{0,1}}\n"
        "  s = f32[8,4] all-reduce-start(b), replica_groups={}, to_apply=add_f32\n"
        "  ROOT d = f32[8,4] all-reduce-done(s)",
        reducer(),
    )
    before = to_text(file)
    result = apply(file.module, NAME + "{all_computations=true}")
    assert not result.changed
    assert not result.remarks
    assert not file.module.modified
    assert to_text(file) == before


DATA = "  p = {t}[8,16] parameter(0)\n"
ONE_OF_EACH = {
    "all-to-all": (
        DATA + "  ROOT r = {t}[8,16]{{0,1}} all-to-all(p), channel_id=3, replica_groups=[2,4]<=[8], dimensions={{1}}",
        "AwsNeuronAllToAll",
        "channel_id=3;dimension=1;constrain_layout=false",
        {"replica_groups": "[2,4]<=[8]"},
    ),
    "all-to-all of a tuple": (
        DATA + "  q = {t}[8,16] copy(p)\n"
        "  ROOT r = ({t}[8,16], {t}[8,16]) all-to-all(p, q), replica_groups={{{{0,5}},{{1,4}}}}, constrain_layout=true",
        "AwsNeuronAllToAll",
        "constrain_layout=true",
        {"replica_groups": "{{0,5},{1,4}}"},
    ),
    "collective-permute": (
        DATA + "  ROOT r = {t}[8,16] collective-permute(p), channel_id=1, "
        'source_target_pairs={{{{0,1}},{{3,2}},{{6,6}}}}, frontend_attributes={{stream="1"}}',
        "AwsNeuronCollectivePermute",
        "channel_id=1",
        {"source_target_pairs": "{{0,1},{3,2},{6,6}}", "stream": "1"},
    ),
    "a permute of nothing, of replicas": (
        DATA + "  ROOT r = {t}[8,16] collective-permute(p), source_target_pairs={{}}",
        "AwsNeuronCollectivePermute",
        "",
        {"source_target_pairs": "{}"},
    ),
    "a variadic permute": (
        DATA
        + "  q = {t}[3] slice(p)\n".replace("slice(p)", "parameter(1)")
        + "  ROOT r = ({t}[8,16], {t}[3]) collective-permute(p, q), channel_id=1, source_target_pairs={{{{0,1}}}}",
        "AwsNeuronCollectivePermute",
        "channel_id=1",
        {"source_target_pairs": "{{0,1}}"},
    ),
    "collective-broadcast": (
        DATA + "  ROOT r = {t}[8,16] collective-broadcast(p), channel_id=1, replica_groups={{{{3,1}},{{0,2}}}}",
        "AwsNeuronCollectiveBroadcast",
        "channel_id=1;constrain_layout=false",
        {"replica_groups": "{{3,1},{0,2}}"},
    ),
    "ragged-all-to-all": (
        DATA + "  o = {t}[9,16] parameter(1)\n  s = s64[8] parameter(2)\n"
        "  ROOT r = {t}[9,16] ragged-all-to-all(p, o, s, s, s, s), channel_id=1, replica_groups={{}}",
        "AwsNeuronRaggedAllToAll",
        "channel_id=1;constrain_layout=false",
        {"replica_groups": "{}"},
    ),
}


@pytest.mark.parametrize("form", ONE_OF_EACH)
@pytest.mark.parametrize(("t", "suffix"), [("bf16", "_bf16"), ("u8", "_UNKNOWNDTYPE")])
def test_every_kind(form: str, t: str, suffix: str) -> None:
    entry, base, config, attributes = ONE_OF_EACH[form]
    file = parse(entry.format(t=t))
    before = to_text(file)
    assert not apply(file.module, NAME).changed
    assert to_text(file) == before
    shape, operands = find(file.module, "r").shape, [o.name for o in find(file.module, "r").operands]
    result = apply(file.module, NAME + "{kinds=all}")
    assert result.changed
    assert [r.outcome for r in result.remarks] == ["done"]
    r = find(reread(file).module, "r")
    assert (r.opcode, r.proto.custom_call_target) == ("custom-call", base + suffix)
    assert (r.proto.backend_config.decode(), r.frontend_attributes) == (config, attributes)
    assert (r.shape, [o.name for o in r.operands], r.proto.custom_call_api_version) == (shape, operands, 1)
    assert not r.proto.source_target_pairs
    assert not r.proto.channel_id
    assert not apply(file.module, NAME + "{kinds=all}").changed
    apply(file.module, "raise-custom-call-collectives")
    assert to_text(file) == before


def test_a_permute_in_place_is_declined() -> None:
    file = parse(
        "  p = f32[8] parameter(0)\n  q = f32[8] parameter(1)\n  c = s32[] constant(0)\n  t = (s32[]) tuple(c)\n"
        "  ROOT r = f32[8] collective-permute(p, q, t, t), channel_id=1, source_target_pairs={{0,1}}, slice_sizes={{4}}"
    )
    result = apply(file.module, NAME + "{kinds=all}")
    assert not result.changed
    assert [(r.outcome, r.reason) for r in result.remarks] == [
        ("declined", "it permutes in place, at offsets of larger buffers")
    ]


def test_kinds_are_named_or_all() -> None:
    with pytest.raises(InputError, match=f"pass {NAME}: kinds is named or all, not some"):
        apply(parse("  ROOT p = f32[8] parameter(0)").module, NAME + "{kinds=some}")


def ragged(*tables: str) -> str:
    """A ragged exchange whose four tables are what is given."""
    return hlo(
        "  x = f32[24,2] parameter(0)\n  o = f32[20,2] parameter(1)\n  n = f32[20,2] negate(o)\n"
        + "".join(f"  t{n} = s32[4] {table}\n" for n, table in enumerate(tables))
        + "  r = f32[20,2] ragged-all-to-all(x, n, t0, t1, t2, t3), channel_id=1, "
        "replica_groups={{0,1,2,3},{7,5,6,4}}\n  ROOT m = f32[20,2] negate(r)"
    )


def test_values_of_a_ragged_exchange() -> None:
    report = run_values(ragged(*(f"parameter({n})" for n in range(2, 6))), NAME + "{kinds=all}")
    assert report.result["exact"], report.result["first_difference"]
    assert report.custom_calls == {"AwsNeuronRaggedAllToAll_f32": 1}


@pytest.mark.parametrize("kinds", ["named", "all"])
def test_rows_that_are_not_there_end_the_run_with_a_plain_message(kinds: str) -> None:
    """On the kernels as on the oracle."""
    starts, places = "constant({0, 2, 4, 6})", "constant({0, 19, 4, 6})"
    text = ragged(starts, "constant({2, 2, 2, 2})", places, "constant({2, 2, 2, 2})")
    with pytest.raises(RunError, match=r"^ragged-all-to-all %r: rank \d writes rows 19\.\.21 of 20 on rank [15]$"):
        run_values(text, NAME + f"{{kinds={kinds}}}")


WORLD = "replica_count=2, num_partitions=4"
VALUES = """
  p = f32[8,6,4] parameter(0)
  q = s32[5] parameter(1)
  b = bf16[8,3] parameter(2)
  h = f16[2,16]{0,1} parameter(3)
  k = u8[16] parameter(4)
  z = f32[0,4] parameter(5)
  i = u8[16] iota(), iota_dimension=0
  e = pred[16] compare(i, k), direction=LT
  n = bf16[8,3] negate(b)
  x0 = f32[8,6,4]{0,2,1} all-to-all(p), channel_id=1, replica_groups={}, dimensions={0}
  x1 = f32[8,6,4] all-to-all(p), replica_groups={{1,0}}, dimensions={1}
  x2 = f16[2,16] all-to-all(h), channel_id=2, replica_groups={{3,0},{1,2}}, dimensions={1}
  x3 = pred[16] all-to-all(e), channel_id=2, replica_groups=[1,4]<=[2,2]T(1,0), dimensions={0}
  x4 = (bf16[8,3]{0,1}, bf16[8,3]{0,1}) all-to-all(b, n), channel_id=3, replica_groups={{2,1},{3,0}}
  x5 = (bf16[8,3], bf16[8,3]) all-to-all(n, b), replica_groups={}
  y0 = s32[5] collective-permute(q), channel_id=1, source_target_pairs={{0,1},{1,3}}
  y1 = f32[8,6,4]{0,1,2} collective-permute(x0), source_target_pairs={{1,0}}
  y2 = (bf16[8,3], s32[5]) collective-permute(b, y0), channel_id=1, source_target_pairs={{3,0},{0,3},{2,2}}
  y3 = f32[0,4] collective-permute(z), channel_id=1, source_target_pairs={{3,0}}
  y4 = s32[5] collective-permute(q), channel_id=1, source_target_pairs={}
  c0 = f32[8,6,4] collective-broadcast(y1), channel_id=5, replica_groups={{2,0},{1,3}}
  c1 = s32[5] collective-broadcast(y0), replica_groups={{1,0}}
  c2 = (s32[5], f16[2,16]) collective-broadcast(q, x2), channel_id=5, replica_groups={{3,1}}"""


def test_values_of_every_kind() -> None:
    """Cross-partition and cross-replica, layouts, tuples, ranks that nobody sends to, nothing to move."""
    elements = [
        f"  {x}{n} = {shape} get-tuple-element({x}), index={n}"
        for x, shapes in (
            ("x4", ("bf16[8,3]{0,1}",) * 2),
            ("x5", ("bf16[8,3]",) * 2),
            ("y2", ("bf16[8,3]", "s32[5]")),
            ("c2", ("s32[5]", "f16[2,16]")),
        )
        for n, shape in enumerate(shapes)
    ]
    file = parse("\n".join([VALUES, *elements]), header=WORLD)
    whole = [i for i in file.module.entry if i.shape.is_array and i.opcode not in ("parameter", "iota")]
    file.module.entry.set_root(tuple_of(file.module.entry, whole))
    report = run_values(to_text(file), NAME + "{kinds=all}")
    assert report.result["exact"], report.result["first_difference"]
    assert report.after == {}
    assert sum(report.custom_calls.values()) == 14
    assert not report.result["raised"]


WHILE = """
body {
  x = (s32[], f32[8]) parameter(0)
  n = s32[] get-tuple-element(x), index=0
  v = f32[8] get-tuple-element(x), index=1
  inner = f32[8] all-reduce(v), replica_groups={}, to_apply=add_f32, channel_id=7, use_global_device_ids=true
  ROOT t = (s32[], f32[8]) tuple(n, inner)
}
cond {
  x = (s32[], f32[8]) parameter(0)
  ROOT c = pred[] constant(false)
}
"""


@pytest.mark.parametrize(("options", "converted"), [("", False), ("{all_computations=true}", True)])
def test_while_bodies(options: str, converted: bool) -> None:
    file = parse(
        "  p = (s32[], f32[8]) parameter(0)\n  ROOT w = (s32[], f32[8]) while(p), condition=cond, body=body",
        reducer(),
        WHILE,
    )
    assert apply(file.module, NAME + options).changed is converted
    assert find(file.module, "inner").opcode == ("custom-call" if converted else "all-reduce")
    reread(file)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("f32[8] fusion(p), kind=kLoop, calls=wrapped", "a fusion"),
        ("((f32[8]), f32[8]) async-start(p), calls=wrapped", "an asynchronous wrapper"),
    ],
)
def test_bodies_of_fusions_and_wrappers_keep_theirs(line: str, what: str) -> None:
    wrapped = (
        "wrapped {\n  x = f32[8] parameter(0)\n"
        f"  ROOT inner = f32[8] all-reduce(x), to_apply=add_f32, replica_groups={{}}, {FLAGS}\n}}"
    )
    done = "\n  ROOT d = f32[8] async-done(w)" if "async" in line else "\n  ROOT d = f32[8] copy(w)"
    file = parse(f"  p = f32[8] parameter(0)\n  w = {line}{done}", reducer(), wrapped)
    result = apply(file.module, NAME + "{all_computations=true}")
    assert not result.changed
    assert [(r.outcome, r.instruction, r.reason) for r in result.remarks] == [
        ("declined", "%inner", f"it is in the body of {what}")
    ]


BODIES = {
    "a parameter twice": "ROOT c = f32[] add(a, a)",
    "a unary root": "ROOT c = f32[] negate(a)",
    "more than one step": "d = f32[] add(a, b)\n  ROOT c = f32[] negate(d)",
    "a constant": "k = f32[] constant(1)\n  ROOT c = f32[] add(a, k)",
    "a converted parameter": "d = f32[] negate(a)\n  ROOT c = f32[] add(d, b)",
    "a call": "ROOT c = f32[] call(a, b), to_apply=add_f32",
    "a select": "d = pred[] compare(a, b), direction=GT\n  ROOT c = f32[] select(d, a, b)",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_reducer_guard(body: str) -> None:
    file = parse(
        f"  p = f32[8] parameter(0)\n  ROOT r = f32[8] all-reduce(p), replica_groups={{}}, to_apply=odd, {FLAGS}",
        reducer(),
        f"odd {{\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  {body}\n}}",
    )
    result = apply(file.module, NAME)
    assert not result.changed
    assert find(file.module, "r").opcode == "all-reduce"
    assert [(r.outcome, r.reason) for r in result.remarks] == [("declined", GUARD)]


def test_parameters_in_the_other_order_are_trivial_too() -> None:
    file = parse(
        f"  p = f32[8] parameter(0)\n  ROOT r = f32[8] all-reduce(p), replica_groups={{}}, to_apply=odd, {FLAGS}",
        "odd {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] maximum(b, a)\n}",
    )
    assert apply(file.module, NAME).changed
    assert find(file.module, "r").proto.custom_call_target == "AwsNeuronAllReduceMax_f32"


def test_copies_in_a_body_do_nothing() -> None:
    """shard_map leaves one behind the root where only some axes of the mesh are manual."""
    file = parse(
        f"  p = f32[8] parameter(0)\n  ROOT r = f32[8] all-reduce(p), replica_groups={{}}, to_apply=body, {FLAGS}",
        "body {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  c = f32[] copy(a)\n"
        "  d = f32[] minimum(c, b)\n  ROOT e = f32[] copy(d)\n}",
    )
    assert apply(file.module, NAME).changed
    assert find(file.module, "r").proto.custom_call_target == "AwsNeuronAllReduceMin_f32"


def test_a_shared_body_stays_for_those_that_are_left() -> None:
    file = parse(
        "  p = f32[8] parameter(0)\n  z = f32[] constant(0)\n"
        f"  a = f32[8] all-reduce(p), replica_groups={{}}, to_apply=add_f32, {FLAGS}\n"
        "  ROOT r = f32[] reduce(a, z), dimensions={0}, to_apply=add_f32",
        reducer(),
    )
    apply(file.module, NAME)
    assert [c.name for c in file.module.computations] == ["add_f32", "main"]
    reread(file)


def test_idempotent() -> None:
    file = collective("all-reduce")
    assert apply(file.module, NAME).changed
    once = to_text(file)
    assert not apply(file.module, NAME).changed
    assert to_text(file) == once
    assert opcodes(file.module) == ["parameter", "custom-call"]


def test_nothing_to_do_is_not_a_change() -> None:
    file = parse("  ROOT p = f32[8] parameter(0)")
    assert not apply(file.module, NAME).changed
