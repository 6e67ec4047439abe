"""`inline-calls`: every call is opened, and order stays."""

from __future__ import annotations

from crossrank.hlo.xla import proto_to_text

from ...support import apply, find, hlo, opcodes, parse, reducer, reread, run_values

BODY = """
body {
  x = f32[8] parameter(0)
  y = f32[8] negate(x)
  ROOT z = f32[8] add(y, x), control-predecessors={y}
}
"""
IDENTITY = "id {\n  ROOT i = f32[8] parameter(0)\n}"


def test_the_body_takes_the_place_of_the_call() -> None:
    file = parse("  p = f32[8] parameter(0)\n  c = f32[8] call(p), to_apply=body\n  ROOT r = f32[8] negate(c)", BODY)
    result = apply(file.module, "inline-calls")
    assert result.changed
    assert [r.reason for r in result.remarks] == ["opened %body in %main"]
    assert [c.name for c in file.module.computations] == ["main"]
    module = reread(file).module
    assert opcodes(module) == ["parameter", "negate", "add", "negate"]
    assert module.entry.root.operands[0].opcode == "add"
    assert not apply(module, "inline-calls").changed


def test_nested_and_repeated_calls() -> None:
    outer = (
        "outer {\n  x = f32[8] parameter(0)\n"
        "  m = f32[8] call(x), to_apply=body\n  ROOT n = f32[8] call(m), to_apply=body\n}"
    )
    file = parse(
        "  p = f32[8] parameter(0)\n  c = f32[8] call(p), to_apply=outer\n  ROOT d = f32[8] call(c), to_apply=outer",
        BODY,
        outer,
    )
    apply(file.module, "inline-calls")
    module = reread(file).module
    assert [c.name for c in module.computations] == ["main"]
    assert opcodes(module) == ["parameter"] + ["negate", "add"] * 4


def test_calls_in_loops_are_opened_too() -> None:
    loop = """
step {
  x = f32[8] parameter(0)
  ROOT n = f32[8] call(x), to_apply=body
}
cond {
  x = f32[8] parameter(0)
  ROOT c = pred[] constant(false)
}"""
    file = parse("  p = f32[8] parameter(0)\n  ROOT w = f32[8] while(p), condition=cond, body=step", BODY, loop)
    apply(file.module, "inline-calls")
    assert "call" not in opcodes(reread(file).module)
    assert len(file.module.computations) == 3


def test_control_dependencies_hold_for_the_whole_body() -> None:
    file = parse(
        "  p = f32[8] parameter(0)\n  before = f32[8] negate(p)\n"
        "  c = f32[8] call(p), to_apply=body, control-predecessors={before}\n"
        "  after = f32[8] negate(p), control-predecessors={c}\n"
        "  ROOT r = (f32[8], f32[8], f32[8]) tuple(c, after, before)",
        BODY,
    )
    apply(file.module, "inline-calls")
    module = reread(file).module
    y, z = find(module, "y"), find(module, "z")
    assert [p.name for p in y.control_predecessors] == ["before"]
    assert [p.name for p in z.control_predecessors] == ["y"]
    assert [p.name for p in find(module, "after").control_predecessors] == ["z"]


def test_a_call_of_nothing_hands_order_on() -> None:
    file = parse(
        "  p = f32[8] parameter(0)\n  before = f32[8] negate(p)\n"
        "  c = f32[8] call(p), to_apply=id, control-predecessors={before}\n"
        "  after = f32[8] negate(c), control-predecessors={c}\n  ROOT r = f32[8] add(after, before)",
        IDENTITY,
    )
    apply(file.module, "inline-calls")
    module = reread(file).module
    assert [p.name for p in find(module, "after").control_predecessors] == ["before"]
    assert [o.name for o in find(module, "after").operands] == ["p"]


def test_a_call_that_is_the_result() -> None:
    file = parse("  p = f32[8] parameter(0)\n  ROOT c = f32[8] call(p), to_apply=id", IDENTITY)
    apply(file.module, "inline-calls")
    assert file.module.entry.root.opcode == "parameter"
    reread(file)


def test_a_call_to_another_place_is_declined() -> None:
    file = parse(
        "  p = f32[8] parameter(0)\n"
        '  ROOT c = f32[8] call(p), to_apply=id, frontend_attributes={_xla_compute_type="host"}',
        IDENTITY,
    )
    result = apply(file.module, "inline-calls")
    assert not result.changed
    assert [r.reason for r in result.remarks] == ["it runs elsewhere (_xla_compute_type=host)"]


def test_bodies_of_collectives_are_shared() -> None:
    body = "body {\n  x = f32[8] parameter(0)\n  ROOT a = f32[8] all-reduce(x), replica_groups={}, to_apply=add_f32\n}"
    file = parse(
        "  p = f32[8] parameter(0)\n  c = f32[8] call(p), to_apply=body\n  ROOT d = f32[8] call(c), to_apply=body",
        reducer(),
        body,
    )
    apply(file.module, "inline-calls")
    assert [c.name for c in file.module.computations] == ["add_f32", "main"]
    assert len({i.origin for i in file.module.entry if i.opcode == "all-reduce"}) == 1
    assert proto_to_text(file.module.serialize()).count("to_apply=%add_f32") == 2


def test_sends_and_recvs_of_several_calls_come_in_their_order() -> None:
    route = 'channel_id=3, frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,0}}"}'
    shift = f"""
shift {{
  x = f32[8] parameter(0)
  k = token[] after-all()
  s = (f32[8], u32[], token[]) send(x, k), {route}
  sd = token[] send-done(s), channel_id=3
  r = (f32[8], u32[], token[]) recv(sd), {route}
  rd = (f32[8], token[]) recv-done(r), channel_id=3
  ROOT y = f32[8] get-tuple-element(rd), index=0
}}"""
    entry = (
        "  p = f32[8] parameter(0)\n  q = f32[8] parameter(1)\n  a = f32[8] call(p), to_apply=shift\n"
        "  b = f32[8] call(q), to_apply=shift\n  c = f32[8] call(a), to_apply=shift\n"
        "  ROOT t = (f32[8], f32[8]) tuple(b, c)"
    )
    module = parse(entry, shift).module
    apply(module, "inline-calls")
    for opcode in ("send", "recv"):
        first, second, third = (i for i in module.entry if i.opcode == opcode)
        assert second.control_predecessors == (first,)
        assert third.control_predecessors == (second,)
    # without the order nobody knows who meets whom
    report = run_values(hlo(entry, shift), "inline-calls,fuse-send-recv")
    assert report.result["exact"]
    assert report.passes[1].changed
