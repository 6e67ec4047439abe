"""`collective-token-removal`: collectives without the token behind their results."""

from __future__ import annotations

from crossrank.hlo.module import Module

from ...support import apply, find, opcodes, parse, reducer, reread
from .rewrites import FLAGS, data, declined, rewritten

NAME = "collective-token-removal"


def parts(module: Module) -> list[str]:
    return [f"{i.opcode} {i.shape.without_layout()}" for i in module.entry]


def test_tokens_go_and_what_was_threaded_through_is_gone() -> None:
    module = rewritten(data(NAME), NAME)
    assert parts(module) == [
        "parameter f32[8,4]",
        "parameter f32[3]",
        "all-reduce (f32[8,4], f32[3])",
        "get-tuple-element f32[8,4]",
        "reduce-scatter f32[1,4]",
        "get-tuple-element f32[3]",
        "tuple (f32[1,4], f32[3])",
    ]


def test_who_used_the_token_takes_the_one_that_was_given() -> None:
    file = parse(
        "  p = f32[8] parameter(0)\n  k = token[] after-all()\n  n = f32[8] negate(p)\n"
        f"  r = (f32[8], token[]) all-reduce(p, k), replica_groups={{}}, to_apply=add_f32, {FLAGS}, "
        "control-predecessors={n}\n"
        "  x = f32[8] get-tuple-element(r), index=0\n  j = token[] get-tuple-element(r), index=1\n"
        "  o = token[] outfeed(x, j)\n  m = f32[8] negate(p), control-predecessors={r}\n"
        "  ROOT t = (f32[8], f32[8]) tuple(x, m)",
        reducer(),
    )
    module = rewritten(file, NAME)
    (r,) = (i for i in module.entry if i.opcode == "all-reduce")
    assert [o.name for o in find(module, "o").operands] == [r.name, "k"]
    assert (r.shape.is_array, int(r.proto.channel_id), r.called[0].name) == (True, 1, "add_f32")
    assert [p.name for p in r.control_predecessors] == ["n"]
    assert find(module, "m").control_predecessors == (r,)


def test_a_token_that_nobody_gave_is_made() -> None:
    file = parse(
        "  p = f32[8] parameter(0)\n"
        '  r = (f32[8], token[]) custom-call(p), custom_call_target="AwsNeuronAllReduceAdd_f32"\n'
        "  ROOT t = (f32[8], token[]) tuple(x, j)\n".replace("  ROOT", "  x = f32[8] get-tuple-element(r), index=0\n"
        "  j = token[] get-tuple-element(r), index=1\n  ROOT")
    )  # fmt: skip
    module = rewritten(file, NAME)
    assert [o.opcode for o in module.entry.root.operands] == ["custom-call", "after-all"]


def test_the_whole_tuple_in_use() -> None:
    file = parse(
        "  p = f32[8] parameter(0)\n  k = token[] after-all()\n"
        f"  ROOT r = (f32[8], f32[8], token[]) all-reduce(p, p, k), replica_groups={{}}, to_apply=add_f32, {FLAGS}",
        reducer(),
    )
    apply(file.module, NAME)
    module = reread(file).module
    assert module.entry.root.opcode == "tuple"
    assert module.entry.root.shape.without_layout() == "(f32[8], f32[8], token[])"


def test_nothing_but_a_token() -> None:
    file = parse(
        '  k = token[] after-all()\n  ROOT r = (token[]) custom-call(k), custom_call_target="AwsNeuronAllGather_f32"'
    )
    assert declined(file.module, NAME) == ["it gives nothing but a token"]


def test_sends_and_ordinary_scalars_are_no_candidates() -> None:
    file = parse(
        "  p = f32[8] parameter(0)\n  one = f32[] constant(1)\n  k = token[] after-all()\n"
        "  s = (f32[8], u32[], token[]) send(p, k), channel_id=1\n  d = token[] send-done(s), channel_id=1\n"
        "  f = (f32[8], token[]) custom-call(p, k, k), "
        'custom_call_target="AwsNeuronSendRecv_f32", backend_config="channel_id=1"\n'
        "  ROOT r = (f32[8], f32[]) all-reduce(p, one), replica_groups={}, to_apply=add_f32",
        reducer(),
        header="replica_count=8",
    )
    assert declined(file.module, NAME) == []
    assert "all-reduce" in opcodes(file.module)
