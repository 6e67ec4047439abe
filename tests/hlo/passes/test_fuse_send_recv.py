"""`fuse-send-recv`: which halves meet, what becomes of them, and what is left alone."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from crossrank.errors import InputError
from crossrank.hlo.io import ModuleFile, to_text
from crossrank.hlo.module import Instruction, Module
from crossrank.passes import PassResult

from ...support import (
    apply,
    corpus_file,
    corpus_text,
    find,
    hlo,
    lines_run,
    needs_corpus,
    opcodes,
    parse,
    reread,
    run_values,
)

FUSE = "fuse-send-recv"
ROUTES = "_xla_send_recv_source_target_pairs"
RING = "{{0,1},{1,2},{2,3},{3,0}}"


def attributes(channel: int | None, routes: str = "", extra: str = "") -> str:
    found = [f"{ROUTES}={routes}"] if routes else []
    found += [extra] if extra else []
    text = f", channel_id={channel}" if channel else ""
    return text + (f", frontend_attributes={{{','.join(found)}}}" if found else "")


def send(
    n: str, data: str, token: str, channel: int | None = 7, routes: str = RING, of: str = "f32[4]", extra: str = ""
) -> str:
    return (
        f"  s{n} = ({of}, u32[], token[]) send({data}, {token}){attributes(channel, routes, extra)}\n"
        f"  sd{n} = token[] send-done(s{n}){attributes(channel, routes)}\n"
    )


def recv(n: str, token: str, channel: int | None = 7, routes: str = RING, of: str = "f32[4]", extra: str = "") -> str:
    return (
        f"  r{n} = ({of}, u32[], token[]) recv({token}){attributes(channel, routes, extra)}\n"
        f"  rd{n} = ({of}, token[]) recv-done(r{n}){attributes(channel, routes)}\n"
        + (f"  v{n} = {of} get-tuple-element(rd{n}), index=0\n")
    )


HEAD = "  x = f32[4] parameter(0)\n  t = token[] after-all()\n"
QUAD = HEAD + send("", "x", "t") + recv("", "sd") + "  ROOT y = f32[4] add(v, x)"


def fused(file: ModuleFile) -> list[Instruction]:
    return [i for i in file.module.instructions() if i.opcode == "custom-call"]


def reasons(result: PassResult, outcome: str = "declined") -> list[str]:
    return [f"{r.instruction}: {r.reason}" for r in result.remarks if r.outcome == outcome]


def wont(entry: str, *computations: str, passes: str = FUSE) -> list[str]:
    """The remarks of the pass on a module in which it changes nothing."""
    file = parse(entry, *computations)
    before = to_text(file)
    result = apply(file.module, passes)
    assert not result.changed
    assert to_text(file) == before
    return reasons(result)


def fault(entry: str, *computations: str, passes: str = FUSE) -> str:
    """The complaint of the pass, which must leave the module as it was."""
    file = parse(entry, *computations)
    before = to_text(file)
    with pytest.raises(InputError) as raised:
        apply(file.module, passes)
    assert to_text(file) == before
    return raised.value.what


# -- what becomes of a pair --------------------------------------------------------------------------------------------
def test_a_quad_becomes_one_call() -> None:
    file = parse(QUAD)
    result = apply(file.module, FUSE)
    assert result.changed
    assert reasons(result, "done") == ["%s: fused with %r → AwsNeuronSendRecv_f32 on channel 7"]
    module = reread(file).module
    call = next(i for i in module.instructions() if i.opcode == "custom-call")
    assert call.proto.custom_call_target == "AwsNeuronSendRecv_f32"
    assert call.proto.backend_config == b"channel_id=7"
    assert call.proto.custom_call_api_version == 1
    assert call.frontend_attributes == {ROUTES: RING}
    assert call.shape.without_layout() == "(f32[4], token[])"
    assert [o.name for o in call.operands] == ["x", "t", "t"]  # not the send-done that is no more
    result_tuple = find(module, "v").operands[0]
    assert result_tuple.opcode == "tuple"
    assert [(o.opcode, o.proto.tuple_index, o.operands[0]) for o in result_tuple.operands] == [
        ("get-tuple-element", 0, call),
        ("get-tuple-element", 1, call),
    ]
    assert not {"send", "send-done", "recv", "recv-done"} & set(opcodes(module))
    assert not apply(module, FUSE).changed


def test_tokens_of_others_stay_and_the_send_done_becomes_the_token() -> None:
    file = parse(
        HEAD + "  u = token[] after-all()\n" + send("", "x", "t") + recv("", "u") + "  w = token[] after-all(sd)\n"
        "  ROOT out = (f32[4], token[], token[]) tuple(v, sd, w)"
    )
    apply(file.module, FUSE)
    module = reread(file).module
    call = next(i for i in module.instructions() if i.opcode == "custom-call")
    assert [o.name for o in call.operands] == ["x", "t", "u"]
    token = module.entry.root.operands[1]
    assert (token.opcode, token.proto.tuple_index, token.operands) == ("get-tuple-element", 1, [call])
    assert find(module, "w").operands == [token]


def test_done_halves_may_be_the_result() -> None:
    file = parse(HEAD + send("", "x", "t") + recv("", "sd").replace("  rd", "  ROOT rd").split("  v")[0])
    apply(file.module, FUSE)
    assert reread(file).module.entry.root.opcode == "tuple"


@pytest.mark.parametrize(
    ("data", "operands"),
    [("p", ["x", "n"]), ("given", ["get-tuple-element", "get-tuple-element"])],
)
def test_a_flat_tuple_is_sent_leaf_by_leaf(data: str, operands: list[str]) -> None:
    kind = "(f32[4], s32[2]{0})"
    file = parse(
        HEAD + "  n = s32[2] parameter(1)\n  given = (f32[4], s32[2]) parameter(2)\n"
        "  p = (f32[4], s32[2]) tuple(x, n)\n"
        + send("", data, "t", of=kind)
        + recv("", "sd", of=kind)
        + "  ROOT y = f32[4] get-tuple-element(v), index=0"
    )
    apply(file.module, FUSE)
    module = reread(file).module
    call = next(i for i in module.instructions() if i.opcode == "custom-call")
    assert call.shape.without_layout() == "(f32[4], s32[2], token[])"
    assert [re.sub(r"\.\d+", "", o.name) for o in call.operands] == [*operands, "t", "t"]
    assert call.proto.custom_call_target == "AwsNeuronSendRecv_UNKNOWNDTYPE"
    assert find(module, "v").operands[0].shape.without_layout() == "((f32[4], s32[2]), token[])"


def test_control_dependencies_go_over() -> None:
    """As XLA's decomposer of permutes leaves them: recv, send, recv-done, send-done in this order."""
    lines = """
  first = f32[4] negate(x)
  r = (f32[4], u32[], token[]) recv(t), channel_id=7, control-predecessors={first}
  s = (f32[4], u32[], token[]) send(x, t), channel_id=7, control-predecessors={r}
  rd = (f32[4], token[]) recv-done(r), channel_id=7, control-predecessors={s}
  sd = token[] send-done(s), channel_id=7, control-predecessors={rd}
  v = f32[4] get-tuple-element(rd), index=0
  last = f32[4] add(x, x), control-predecessors={sd, r}
  ROOT y = (f32[4], f32[4], f32[4]) tuple(v, first, last)"""
    file = parse(HEAD + lines)
    assert apply(file.module, FUSE).changed
    module = reread(file).module
    call = next(i for i in module.instructions() if i.opcode == "custom-call")
    assert call.control_predecessors == (find(module, "first"),)
    assert find(module, "last").control_predecessors == (call,)


def test_metadata_sharding_and_attributes_stay() -> None:
    manual = ', sharding={{manual}, {manual}}, metadata={op_name="recv" source_file="a.py" source_line=3}'
    text = QUAD.replace("recv-done(r), channel_id=7", "recv-done(r), channel_id=7" + manual)
    text = text.replace("recv(sd), channel_id=7", 'recv(sd), channel_id=7, metadata={op_name="r" source_file="b.py"}')
    file = parse(text.replace(f"{ROUTES}={RING}", f'{ROUTES}={RING},stage="1"', 1))
    apply(file.module, FUSE)
    module = reread(file).module
    call = next(i for i in module.instructions() if i.opcode == "custom-call")
    assert call.frontend_attributes == {ROUTES: RING, "stage": "1"}
    assert call.proto.metadata.source_file == "b.py"
    assert "sharding={{manual}, {manual}}" in to_text(file)
    assert find(module, "v").operands[0].proto.metadata.source_file == "a.py"


# -- names -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("sender", "receiver", "option", "name"),
    [
        ("", "", "", "AwsNeuronSendRecv_f32"),
        ("", "", "{target=Mine}", "Mine"),
        ("", "", '{target="Mine_<dtype>"}', "Mine_f32"),
        ("A", "", "", "A"),
        ("", "B", "{target=Mine}", "B"),
        ("A", "A", "", "A"),
    ],
)
def test_the_target_is_inherited_or_made(sender: str, receiver: str, option: str, name: str) -> None:
    said = [f'custom_call_target="{n}"' if n else "" for n in (sender, receiver)]
    file = parse(HEAD + send("", "x", "t", extra=said[0]) + recv("", "sd", extra=said[1]) + "  ROOT y = f32[4] copy(v)")
    apply(file.module, FUSE + option)
    (call,) = fused(reread(file))
    assert call.proto.custom_call_target == name
    assert call.frontend_attributes == {ROUTES: RING}


def test_a_call_in_the_place_of_a_send_gives_its_name() -> None:
    call = '(f32[4], u32[], token[]) custom-call(x, t), custom_call_target="Theirs"'
    file = parse(re.sub(r"\(f32\[4\], u32\[\], token\[\]\) send.*", call, QUAD))
    apply(file.module, FUSE)
    (call_made,) = fused(reread(file))
    assert call_made.proto.custom_call_target == "Theirs"
    assert [o.name for o in call_made.operands] == ["x", "t", "t"]


def test_targets_must_agree() -> None:
    said = [f'custom_call_target="{n}"' for n in "AB"]
    entry = HEAD + send("", "x", "t", extra=said[0]) + recv("", "sd", extra=said[1]) + "  ROOT y = f32[4] copy(v)"
    assert fault(entry) == "%s asks for the target A, and %r for B"
    assert fault(QUAD, passes=FUSE + '{target=""}') == "pass fuse-send-recv: target is empty"


# -- who meets whom ----------------------------------------------------------------------------------------------------
CHAIN = HEAD + send("_1", "x", "t") + recv("_1", "sd_1") + send("_2", "v_1", "sd_1") + recv("_2", "sd_2")


def test_several_pairs_on_one_channel_are_paired_in_order() -> None:
    file = parse(CHAIN + "  ROOT y = f32[4] copy(v_2)")
    result = apply(file.module, FUSE)
    assert [r.split(" → ")[0] for r in reasons(result, "done")] == ["%s_1: fused with %r_1", "%s_2: fused with %r_2"]
    one, two = fused(reread(file))
    assert two.operands[1].operands[0] is one


def test_pairs_with_other_routes_need_no_order() -> None:
    there, back = "{{0,1}}", "{{1,0}}"
    entry = (
        HEAD
        + send("_1", "x", "t", routes=there)
        + send("_2", "x", "t", routes=back)
        + recv("_2", "t", routes=back)
        + recv("_1", "t", routes=there)
        + "  ROOT y = f32[4] add(v_1, v_2)"
    )
    result = apply(parse(entry).module, FUSE)
    assert [r.split(" → ")[0] for r in reasons(result, "done")] == ["%s_1: fused with %r_1", "%s_2: fused with %r_2"]


def test_routes_may_stand_on_one_half_only() -> None:
    file = parse(HEAD + send("", "x", "t") + recv("", "sd", routes="") + "  ROOT y = f32[4] copy(v)")
    apply(file.module, FUSE)
    assert fused(reread(file))[0].frontend_attributes == {ROUTES: RING}


def test_two_sends_without_order_are_an_error() -> None:
    recvs = recv("_1", "t") + recv("_2", "rd_1t").replace(
        "  r_2", "  rd_1t = token[] get-tuple-element(rd_1), index=1\n  r_2", 1
    )
    entry = HEAD + send("_1", "x", "t") + send("_2", "x", "t") + recvs + "  ROOT y = f32[4] add(v_1, v_2)"
    assert fault(entry) == "%s_1 and %s_2: channel_id 7 is used by more than one Send"
    entry = HEAD + send("_1", "x", "t") + send("_2", "x", "sd_1") + recv("_1", "t") + recv("_2", "t")
    assert (
        fault(entry + "  ROOT y = f32[4] add(v_1, v_2)") == "%r_1 and %r_2: channel_id 7 is used by more than one Recv"
    )


@pytest.mark.parametrize("half", ["Send", "Recv"])
def test_a_half_without_channel_is_an_error(half: str) -> None:
    channels = [None if half == h else 7 for h in ("Send", "Recv")]
    entry = HEAD + send("", "x", "t", channels[0]) + recv("", "sd", channels[1]) + "  ROOT y = f32[4] copy(v)"
    assert fault(entry) == f"%{half[0].lower()}: Send and Recv must have channel_id"


@pytest.mark.parametrize("other", ["f32[5]", "s32[4]", "(f32[4], f32[4])"])
def test_shapes_must_agree(other: str) -> None:
    entry = HEAD + send("", "x", "t") + recv("", "sd", of=other) + "  ROOT y = f32[4] copy(x)"
    assert fault(entry) == f"%s sends f32[4], but %r receives {other}"


def test_layouts_need_not_agree() -> None:
    entry = QUAD.replace("f32[4]", "f32[4,2]").replace("r = (f32[4,2]", "r = (f32[4,2]{0,1}")
    file = parse(entry.replace("rd = (f32[4,2]", "rd = (f32[4,2]{0,1}").replace("v = f32[4,2]", "v = f32[4,2]{0,1}"))
    apply(file.module, FUSE)
    assert fused(reread(file))[0].shape.elements[0].layout == (0, 1)


def test_routes_must_be_readable() -> None:
    assert fault(QUAD.replace(RING, '"{{0,1}"')).startswith("%s: cannot read the source-target pairs")


# -- what is left alone ------------------------------------------------------------------------------------------------
def test_a_ping_pong_is_left_alone() -> None:
    entry = HEAD + recv("", "t") + send("", "v", "t") + "  ROOT y = f32[4] copy(v)"
    (reason, partner) = wont(entry)
    assert reason.startswith("%s: fused with %r it would wait for itself")
    assert partner.startswith("%r: fused with %s it would wait for itself")


def test_pairs_that_wait_for_each_other_are_left_alone() -> None:
    """Each alone could be fused; a third one that needs both still can."""
    entry = (
        HEAD
        + recv("_1", "t", 1)
        + recv("_2", "t", 2)
        + send("_1", "v_2", "t", 1)
        + send("_2", "v_1", "t", 2)
        + send("_3", "v_1", "sd_2", 3)
        + recv("_3", "sd_3", 3)
        + "  ROOT y = f32[4] add(v_3, v_2)"
    )
    file = parse(entry)
    result = apply(file.module, FUSE)
    assert sorted(r[:4] for r in reasons(result)) == ["%r_1", "%r_2", "%s_1", "%s_2"]
    assert [r[:4] for r in reasons(result, "done")] == ["%s_3"]
    reread(file)


def test_halves_without_a_partner_are_left_alone() -> None:
    entry = HEAD + send("", "x", "t", 5) + recv("", "t", 6) + "  ROOT y = f32[4] copy(v)"
    assert wont(entry) == ["%s: no recv meets it on channel 5 in %main", "%r: no send meets it on channel 6 in %main"]


def test_halves_without_a_partner_can_be_converted() -> None:
    entry = HEAD + send("", "x", "t", 5) + recv("", "sd", 6) + "  ROOT y = f32[4] copy(v)"
    file = parse(entry)
    result = apply(file.module, FUSE + "{convert_unpaired=true}")
    assert reasons(result, "done") == [
        "%s: send → AwsNeuronSend_f32 on channel 5",
        "%r: recv → AwsNeuronRecv_f32 on channel 6",
    ]
    module = reread(file).module
    one, two = (i for i in module.instructions() if i.opcode == "custom-call")
    assert (one.shape.without_layout(), one.proto.backend_config) == ("token[]", b"channel_id=5")
    assert [o.name for o in one.operands] == ["x", "t"]
    assert (two.shape.without_layout(), two.proto.backend_config) == ("(f32[4], token[])", b"channel_id=6")
    assert two.operands == [one]
    assert all(i.proto.custom_call_has_side_effect and i.frontend_attributes == {ROUTES: RING} for i in (one, two))


def test_unordered_halves_without_a_partner_are_an_error_once_converted() -> None:
    entry = HEAD + send("_1", "x", "t") + send("_2", "x", "t") + "  ROOT y = f32[4] copy(x)"
    assert len(wont(entry)) == 2
    assert "more than one Send" in fault(entry, passes=FUSE + "{convert_unpaired=true}")


def test_a_spare_half_is_left_alone() -> None:
    file = parse(CHAIN + send("_3", "v_2", "sd_2") + "  ROOT y = f32[4] copy(v_2)")
    result = apply(file.module, FUSE)
    assert len(fused(file)) == 2
    assert reasons(result) == ["%s_3: no recv meets it on channel 7 in %main"]


def test_transfers_to_the_host_are_left_alone() -> None:
    host = QUAD.replace("channel_id=7", "channel_id=7, is_host_transfer=true")
    assert wont(host) == ["%sd: it is a transfer to the host", "%rd: it is a transfer from the host"]


def test_what_something_else_uses_is_left_alone() -> None:
    entry = QUAD.replace("  ROOT", "  g = u32[] get-tuple-element(s), index=1\n  ROOT")
    assert wont(entry) == ["%sd: something else than it uses %s", "%r: no send meets it on channel 7 in %main"]


def test_a_done_of_something_else_is_left_alone() -> None:
    entry = """
  p = ((f32[4], u32[], token[]), f32[4]) parameter(0)
  s = (f32[4], u32[], token[]) get-tuple-element(p), index=0
  ROOT sd = token[] send-done(s), channel_id=1"""
    result = apply(parse(entry).module, FUSE)  # which XLA reads, and does not print
    assert not result.changed
    assert reasons(result) == ["%sd: its operand %s is no send"]


def loop(body: str) -> str:
    return f"step {{\n{body}\n}}\ncond {{\n  c = f32[4] parameter(0)\n  ROOT no = pred[] constant(false)\n}}\n"


def test_other_computations_only_where_asked_for() -> None:
    entry = "  a = f32[4] parameter(0)\n  ROOT w = f32[4] while(a), condition=cond, body=step"
    assert wont(entry, loop(QUAD)) == []
    file = parse(entry, loop(QUAD))
    assert apply(file.module, FUSE + "{all_computations=true}").changed
    assert len(fused(reread(file))) == 1


def test_other_threads_are_left_alone() -> None:
    file = parse(QUAD)
    assert not apply(file.module, FUSE + '{execution_threads="other"}').changed


# -- tokens ------------------------------------------------------------------------------------------------------------
TOKEN_FAULTS = {
    "a tuple in the midst": (
        QUAD.replace("  ROOT", "  z = (f32[4], token[]) tuple(x, sd)\n  ROOT"),
        "%s: Unexpected non-root tuple uses token",
    ),
    "a tuple of what was received": (
        QUAD.replace("  ROOT", "  z = ((f32[4], token[])) tuple(rd)\n  ROOT"),
        "%r: Unexpected non-root tuple uses token",
    ),
    "a barrier behind a recv": (
        QUAD.replace("  ROOT", "  z = (f32[4], token[]) opt-barrier(rd)\n  ROOT"),
        "%r: Unexpected instruction type uses token",
    ),
    "an outfeed behind a token": (
        QUAD.replace(
            "  ROOT",
            "  g = token[] get-tuple-element(rd), index=1\n"
            "  z = token[] outfeed(x, g), outfeed_shape=f32[4]\n  ROOT",
        ),
        "%r: Unexpected instruction type uses token",
    ),
    "a token from an infeed": (
        QUAD.replace("  s = ", "  i = (f32[4], token[]) infeed(t)\n  u = token[] get-tuple-element(i), index=1\n  s = ")
        .replace("send(x, t)", "send(x, u)"),
        "%s: Unexpected non-CustomCall op returns token",
    ),
    "a nested tuple": (
        (HEAD + "  p = (f32[4]) tuple(x)\n  q = ((f32[4])) tuple(p)\n" + send("", "q", "t", of="((f32[4]))")
         + recv("", "sd", of="((f32[4]))") + "  ROOT y = f32[4] copy(x)"),
        "%s: Cannot handle nested tuple shape",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TOKEN_FAULTS)
def test_tokens_are_where_they_may_be(name: str) -> None:
    entry, complaint = TOKEN_FAULTS[name]
    assert fault(entry) == complaint


def test_a_payload_may_go_into_a_tuple() -> None:
    kind = "(f32[4], f32[4])"
    entry = HEAD + "  p = (f32[4], f32[4]) tuple(x, x)\n" + send("", "p", "t", of=kind) + recv("", "sd", of=kind)
    entry += "  z = ((f32[4], f32[4]), f32[4]) tuple(v, x)\n  ROOT y = f32[4] get-tuple-element(z), index=1"
    assert apply(parse(entry).module, FUSE).changed


def test_a_token_may_come_through_a_tuple() -> None:
    """As the pass itself leaves them: a second run with another option must take its own output."""
    entry = HEAD + send("_1", "x", "t", 1) + recv("_1", "sd_1", 1)
    entry += (
        "  g = token[] get-tuple-element(rd_1), index=1\n" + send("_2", "v_1", "g", 2) + "  ROOT y = f32[4] copy(v_1)"
    )
    file = parse(entry)
    apply(file.module, FUSE)
    assert apply(file.module, FUSE + "{convert_unpaired=true}").changed
    assert len(fused(reread(file))) == 2


# -- values ------------------------------------------------------------------------------------------------------------
VALUES = {
    "all forms": (
        """
  x = f32[4,3] parameter(0)
  h = bf16[5] parameter(1)
  n = s32[2] parameter(2)
  t = token[] after-all()
"""
        + send("_1", "x", "t", 1, "{{0,1},{1,2},{2,3},{3,0},{5,5}}", "f32[4,3]")
        + recv("_1", "sd_1", 1, "{{0,1},{1,2},{2,3},{3,0},{5,5}}", "f32[4,3]")
        + "  p = (bf16[5], s32[2]) tuple(h, n)\n"
        + send("_2", "p", "t", 2, "{{7,0},{0,7}}", "(bf16[5], s32[2])")
        + recv("_2", "t", 2, "{{7,0},{0,7}}", "(bf16[5], s32[2])")
        + "  e_0 = bf16[5] get-tuple-element(v_2), index=0\n  e_1 = s32[2] get-tuple-element(v_2), index=1\n"
        + recv("_3", "sd_2", 3, "{{1,4}}", "f32[4,3]")
        + "  w = f32[4,3] add(v_3, x)\n"
        + send("_3", "w", "t", 3, "{{1,4}}", "f32[4,3]")
        + "  ROOT out = (f32[4,3], bf16[5], s32[2], f32[4,3]) tuple(v_1, e_0, e_1, v_3)",
        {"AwsNeuronSendRecv_f32": 1, "AwsNeuronSendRecv_UNKNOWNDTYPE": 1},
    ),
    "a chain on one channel": (
        CHAIN + "  ROOT y = f32[4] subtract(v_2, x)",
        {"AwsNeuronSendRecv_f32": 2},
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_stay(name: str) -> None:
    entry, calls = VALUES[name]
    report = run_values(hlo(entry), FUSE)
    assert report.result["exact"], report.result["first_difference"]
    assert report.custom_calls == calls
    assert not report.result["raised"]


def test_what_moves_is_what_was_sent(tmp_path: Path) -> None:
    """Against NumPy, the pairs left native included: rank 4 gets what rank 1 has added to nothing."""
    x = np.arange(96, dtype=np.float32).reshape(8, 4, 3)
    h = np.zeros((8, 5), np.uint16)
    n = np.arange(16, dtype=np.int32).reshape(8, 2)
    np.savez(tmp_path / "in.npz", p0=x, p1=h, p2=n)
    text = hlo(VALUES["all forms"][0])
    run_values(text, FUSE, inputs=str(tmp_path / "in.npz"), outputs=str(tmp_path / "out.npz"))
    with np.load(tmp_path / "out.npz") as out:
        moved = np.zeros_like(x)
        for source, target in ((0, 1), (1, 2), (2, 3), (3, 0), (5, 5)):
            moved[target] = x[source]
        assert np.array_equal(out["o0"], moved)
        assert np.array_equal(out["o2"], np.where(np.arange(8)[:, None] % 7 == 0, n[::-1], 0))
        echoed = np.zeros_like(x)
        echoed[4] = x[1]
        assert np.array_equal(out["o3"], echoed)


def random_module(rng: np.random.Generator) -> str:
    """Transfers along random routes, in random order, some waiting for others by data or by tokens."""
    lines, values, tokens = [HEAD], ["x"], ["t"]
    for n in range(6):
        sources, targets = rng.permutation(8), rng.permutation(8)
        count = int(rng.integers(1, 9))
        routes = "{" + ",".join(f"{{{s},{t}}}" for s, t in zip(sources[:count], targets[:count], strict=True)) + "}"
        data, token = str(rng.choice(values)), str(rng.choice(tokens))
        first = send(f"_{n}", data, token, n + 1, routes)
        second = recv(f"_{n}", str(rng.choice([f"sd_{n}", *tokens])), n + 1, routes)
        lines += [first, second, f"  g_{n} = token[] get-tuple-element(rd_{n}), index=1\n"]
        lines.append(f"  u_{n} = f32[4] add(v_{n}, {rng.choice(values)})\n")
        values += [f"v_{n}", f"u_{n}"]
        tokens += [f"sd_{n}", f"g_{n}"]
    return hlo("".join(lines) + f"  ROOT out = ({', '.join(['f32[4]'] * 6)}) tuple({', '.join(values[2::2])})")


@pytest.mark.parametrize("seed", range(4))
def test_random_modules(seed: int) -> None:
    report = run_values(random_module(np.random.default_rng(seed)), FUSE)
    assert report.result["exact"], report.result["first_difference"]
    assert sum(report.custom_calls.values()) == 6


# -- real modules, and large ones --------------------------------------------------------------------------------------
@needs_corpus
@pytest.mark.parametrize("passes", ["inline-calls", "none"])
def test_the_pipeline_of_the_corpus(passes: str) -> None:
    file = corpus_file("send_recv_pipeline.hlo")
    if passes == "inline-calls":
        apply(file.module, passes)
        result = apply(file.module, FUSE)
    else:
        assert not apply(file.module, FUSE).changed
        result = apply(file.module, FUSE + "{all_computations=true}")
    assert len(reasons(result, "done")) == 3
    assert not reasons(result)
    assert not {"send", "recv"} & set(opcodes(reread(file).module))


@needs_corpus
def test_the_pipeline_of_the_corpus_runs() -> None:
    report = run_values(corpus_text("send_recv_pipeline.hlo").decode(), f"inline-calls,{FUSE}")
    assert report.result["exact"]
    assert report.custom_calls == {"AwsNeuronSendRecv_f32": 3}


def _many_pairs(count: int) -> Module:
    """Pairs on three channels, each waiting for the one before."""
    lines = [HEAD, "  v_0 = f32[4] copy(x)\n  sd_0 = token[] after-all()\n"]
    for n in range(1, count + 1):
        lines.append(send(f"_{n}", f"v_{n - 1}", f"sd_{n - 1}", n % 3 + 1) + recv(f"_{n}", f"sd_{n}", n % 3 + 1))
    return parse("".join(lines) + f"  ROOT y = f32[4] copy(v_{count})").module


def test_the_work_grows_with_the_pairs_and_no_faster() -> None:
    work = {}
    for count in (750, 3000):
        module = _many_pairs(count)
        results: list[PassResult] = []
        work[count] = lines_run(lambda module=module, results=results: results.append(apply(module, FUSE)))
        assert len(reasons(results[0], "done")) == count
    assert work[3000] < 5 * work[750]
