"""`raise-custom-call-collectives`: back to what was converted."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossrank.errors import InputError
from crossrank.hlo.collectives import collectives
from crossrank.hlo.io import ModuleFile, to_text
from crossrank.hlo.module import Instruction
from crossrank.hlo.verifier import verify

from ...collective.strategies import any_groups
from ...support import (
    apply,
    corpus_file,
    each_corpus_module,
    find,
    hlo,
    needs_corpus,
    parse,
    reducer,
    reread,
    run_values,
)

CONVERT, RAISE = "convert-collectives-to-custom-call", "raise-custom-call-collectives"


REDUCTION_BODY = re.compile(
    r"[^\n]*\{(\n[^\n]* = \w+\[\]\S* parameter\([01]\)[^\n]*){2}\n  ROOT [^\n]* = \w+\[\]\S* [^\n]*$"
)


def normal(file: ModuleFile) -> list[list[str]]:
    """The instructions in XLA's text by computation, without reduction bodies.

    Names of computations go, and so do the numbers of stack frames, which XLA counts anew when a frame is in no use.
    """
    text = re.sub(r"\b(to_apply|calls)=%[\w.\-]+|\bstack_frame_id=\d+", r"\1", to_text(file))
    computations = [c.strip().rsplit("\n\n", 1)[-1] for c in re.split(r"\n\}[^\n]*\n*", text)]
    kept = [c.splitlines() for c in computations if c.count("\n") != 3 or not REDUCTION_BODY.search(c)]
    return sorted(sorted(line for line in c if line.startswith("  ") and " = " in line) for c in kept)


def places(file: ModuleFile) -> dict[str, str]:
    """The source line of each instruction that is in the entry computation."""
    return {i.name: i.where for i in file.module.entry}


@given(
    st.sampled_from(["all-reduce", "all-gather", "reduce-scatter"]),
    st.sampled_from(["f32", "bf16", "s8", "f64", "u32"]),
    st.sampled_from(["add", "maximum", "minimum", "multiply"]),
    st.sampled_from(["", ", channel_id=9", ", channel_id=9, use_global_device_ids=true"]),
    st.booleans(),
    any_groups(),
)
def test_there_and_back(opcode, dtype, op, flags, constrain, groups) -> None:
    body = "" if opcode == "all-gather" else f", to_apply={op}_{dtype}"
    dims = "" if opcode == "all-reduce" else ", dimensions={1}"
    pinned = ", constrain_layout=true" if constrain else ""
    file = parse(
        f"  p = {dtype}[8,4] parameter(0)\n"
        f"  ROOT r = {dtype}[8,4] {opcode}(p), replica_groups={groups}{dims}{flags}{pinned}{body}",
        *([reducer(op, dtype)] if body else []),
    )
    before = normal(file)
    assert apply(file.module, CONVERT).changed
    assert apply(file.module, RAISE).changed
    assert normal(file) == before
    assert not apply(file.module, RAISE).changed


def test_bodies_are_shared_by_op_and_type() -> None:
    lines = [
        f"  r{n} = f32[8] all-reduce(p), replica_groups={{}}, to_apply={op}_f32"
        for n, op in enumerate(("add", "add", "maximum"))
    ]
    file = parse(
        "  p = f32[8] parameter(0)\n" + "\n".join(lines) + "\n  ROOT t = f32[8] add(r0, r2)",
        reducer(),
        reducer("maximum"),
    )
    apply(file.module, CONVERT)
    apply(file.module, RAISE)
    assert [c.name for c in file.module.computations] == ["add_f32", "maximum_f32", "main"]
    assert find(file.module, "r0").called == find(file.module, "r1").called


def call(target: str, config: str = "constrain_layout=false", groups: str = "{}") -> ModuleFile:
    return parse(
        f'  p = f32[8] parameter(0)\n  ROOT r = f32[8] custom-call(p), custom_call_target="{target}", '
        f'backend_config="{config}", frontend_attributes={{replica_groups="{groups}"}}'
    )


def test_a_lost_reduction_is_declined() -> None:
    file = call("AwsNeuronAllReduceUNKNOWNOP_f32")
    result = apply(file.module, RAISE)
    assert not result.changed
    assert [r.reason for r in result.remarks] == ["its name says UNKNOWNOP and its config has no reduce="]


def test_a_kept_reduction_comes_back() -> None:
    file = call("AwsNeuronAllReduceUNKNOWNOP_f32", "constrain_layout=false;reduce=multiply")
    assert apply(file.module, RAISE).changed
    assert find(file.module, "r").called[0].root.opcode == "multiply"


@pytest.mark.parametrize(
    ("config", "groups", "complaint"),
    [
        ("colour=red", "{}", "%r: unknown key 'colour'"),
        ("channel_id=x", "{}", "%r: channel_id is a whole number"),
        ("channel_id=1", "{{0,1}", "%r: cannot read the replica groups"),
        ("channel_id=1;reduce=fish", "{}", "%r: .*fish"),
    ],
)
def test_what_cannot_be_read_is_an_input_error(config: str, groups: str, complaint: str) -> None:
    target = "AwsNeuronAllReduceUNKNOWNOP_f32" if "reduce" in config else "AwsNeuronAllReduceAdd_f32"
    with pytest.raises(InputError, match=complaint):
        apply(call(target, config, groups).module, RAISE)


def test_foreign_calls_are_untouched() -> None:
    assert not apply(call("TopK").module, RAISE).changed


@pytest.mark.parametrize(
    ("target", "config", "complaint"),
    [
        ("AwsNeuronAllToAll_f32", "", "%r: its config has no dimension, and its result 1 dimensions"),
        ("AwsNeuronAllToAll_f32", "dimension=1", "%r: its config has dimension=1, and its result 1 dimensions"),
        ("AwsNeuronSend_f32", "", "%r: Send and Recv must have channel_id"),
        ("AwsNeuronSend_f32", "channel_id=1", r"%r: a send is no f32\[8\]\S* of f32\[8\]"),
        ("AwsNeuronRecv_f32", "channel_id=1", "%r: a recv is no"),
        ("AwsNeuronSendRecv_f32", "channel_id=1", "%r: a send-recv is no"),
    ],
)
def test_what_no_native_collective_could_be(target: str, config: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        apply(call(target, config).module, RAISE)


def test_an_all_to_all_of_a_tuple_has_no_dimension() -> None:
    file = parse(
        '  p = f32[8] parameter(0)\n  ROOT r = (f32[8], f32[8]) custom-call(p, p), backend_config="dimension=0", '
        'custom_call_target="AwsNeuronAllToAll_f32", frontend_attributes={replica_groups="{{0,1}}"}'
    )
    with pytest.raises(InputError, match="its config has dimension=0, and its result is a tuple"):
        apply(file.module, RAISE)


ROUTES = '_xla_send_recv_source_target_pairs="{{0,1},{1,2},{2,3},{5,4},{7,7}}"'


def send_recv(kind: str, result: str, operands: str, channel: int = 7) -> str:
    t = "UNKNOWNDTYPE" if "s32" in result and "f32" in result else "f32"
    return (
        f'{result} custom-call({operands}), custom_call_target="AwsNeuron{kind}_{t}", '
        f'backend_config="channel_id={channel}", frontend_attributes={{{ROUTES}}}, metadata={{source_file="f.py"}}'
    )


PARAMETERS = (
    "  p = f32[8,3] parameter(0)\n  q = s32[5] parameter(1)\n  n = f32[8,3] negate(p)\n  t = token[] after-all()\n"
)
FUSED = (
    PARAMETERS
    + f"""  a = {send_recv("SendRecv", "(f32[8,3], token[])", "n, t, t")}
  a0 = f32[8,3] get-tuple-element(a), index=0
  a1 = token[] get-tuple-element(a), index=1
  b = {send_recv("SendRecv", "(f32[8,3], s32[5], token[])", "a0, q, a1, t")}, control-predecessors={{n}}
  b0 = f32[8,3]{{0,1}} get-tuple-element(b), index=0
  b1 = s32[5] get-tuple-element(b), index=1
  b2 = token[] get-tuple-element(b), index=2
  m = f32[8,3] multiply(a0, p), control-predecessors={{b}}
  ROOT r = (f32[8,3], f32[8,3]{{0,1}}, s32[5], f32[8,3]) tuple(a0, b0, b1, m)"""
)


def test_a_fused_send_and_recv_becomes_four() -> None:
    file = parse(FUSED)
    result = apply(file.module, RAISE)
    assert [r.reason for r in result.remarks if r.outcome == "done"] == [
        "AwsNeuronSendRecv_f32 → send-recv",
        "AwsNeuronSendRecv_UNKNOWNDTYPE → send-recv",
    ]
    again = reread(file)
    by_opcode: dict[str, list[Instruction]] = {}
    for i in again.module.entry:
        by_opcode.setdefault(i.opcode, []).append(i)
    assert "custom-call" not in by_opcode
    for opcode in ("send", "recv", "send-done", "recv-done"):
        assert len(by_opcode[opcode]) == 2
        for i in by_opcode[opcode]:
            assert (i.proto.channel_id, i.proto.metadata.source_file) == (7, "f.py")
            assert i.frontend_attributes["_xla_send_recv_source_target_pairs"] == "{{0,1},{1,2},{2,3},{5,4},{7,7}}"
    first, second = by_opcode["send"]
    assert first.operands[0].name == "n"
    assert second.operands[0].opcode == "tuple"
    assert [str(s.without_layout()) for s in second.shape.elements] == ["(f32[8,3], s32[5])", "u32[]", "token[]"]
    # a recv waits for its send, the second send for both halves of the first pair, whose token it had
    assert [r.operands[0].opcode for r in by_opcode["recv"]] == ["send-done", "send-done"]
    assert (first.operands[1].name, second.operands[1].opcode) == ("t", "after-all")
    token = next(o for o in second.operands[1].operands if o.name != "t")
    assert (token.opcode, token.operands[0].opcode) == ("get-tuple-element", "recv-done")
    for half in (second, by_opcode["recv"][1]):
        assert [p.name for p in half.control_predecessors] == ["n"]
    (before_m,) = find(again.module, "m").control_predecessors
    assert before_m.opcode == "tuple"
    assert not apply(file.module, RAISE).changed


def test_halves_alone() -> None:
    file = parse(
        PARAMETERS
        + f"  s = {send_recv('Send', 'token[]', 'n, t')}\n  u = {send_recv('Recv', '(f32[8,3], token[])', 't')}\n"
        "  ROOT r = f32[8,3] get-tuple-element(u), index=0"
    )
    assert [f.message for f in verify(file.module)] == []
    assert {i.name: (str(info.kind), str(info.dtype), info.nbytes) for i, info in collectives(file.module)} == {
        "s": ("send", "f32", 96),
        "u": ("recv", "f32", 96),
    }
    assert apply(file.module, RAISE).changed
    entry = [i.opcode for i in reread(file).module.entry if i.opcode not in ("parameter", "negate")]
    assert sorted(entry) == sorted(["after-all", "send", "send-done", "recv", "recv-done", "get-tuple-element"])


def test_values_of_sends_and_receives() -> None:
    """What is converted runs on the kernels, what it was raised to on the oracle; halves too, once they meet."""
    report = run_values(hlo(FUSED), "inline-calls")
    assert report.result["exact"], report.result["first_difference"]
    assert report.raised_for_original == 2
    halves = (
        PARAMETERS
        + f"  s = {send_recv('Send', 'token[]', 'n, q, t')}\n".replace("Send_f32", "Send_UNKNOWNDTYPE")
        + f"  u = {send_recv('Recv', '(f32[8,3], s32[5], token[])', 't')}\n"
        "  x = f32[8,3] get-tuple-element(u), index=0\n  y = s32[5] get-tuple-element(u), index=1\n"
        "  ROOT r = (f32[8,3], s32[5]) tuple(x, y)"
    )
    report = run_values(hlo(halves), "inline-calls")
    assert report.result["exact"], report.result["first_difference"]
    lost = hlo(FUSED).replace(ROUTES, 'x="1"', 1)
    with pytest.raises(InputError, match="nothing says which ranks it sends to"):
        run_values(lost, "inline-calls")


@needs_corpus
@each_corpus_module
def test_every_corpus_module_comes_back(name: str) -> None:
    file = corpus_file(name)
    before, where = normal(file), places(file)
    converted = apply(file.module, CONVERT + "{all_computations=true kinds=all}")
    raised = apply(file.module, RAISE)
    done = [r for r in converted.remarks if r.outcome == "done"]
    assert len(raised.remarks) == len(done)
    assert normal(file) == before
    assert places(file) == where
