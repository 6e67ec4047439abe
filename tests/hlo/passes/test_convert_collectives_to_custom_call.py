"""`convert-collectives-to-custom-call`: what becomes of each collective, and what is left alone."""

from __future__ import annotations

import pytest

from crossrank.hlo.io import to_text

from ...support import apply, find, opcodes, parse, reducer, reread

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
