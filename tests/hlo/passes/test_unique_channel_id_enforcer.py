"""`neuron_unique_channel_id_enforcer`: one operation, one channel."""

from __future__ import annotations

import pytest

from crossrank.hlo.collectives import describe
from crossrank.hlo.io import ModuleFile
from crossrank.passes import PassResult

from ...support import apply, corpus_file, find, hlo, needs_corpus, parse, reducer, reread, run_values

PASS = "neuron_unique_channel_id_enforcer"
CONVERT = "convert-collectives-to-custom-call{all_computations=true}"
GLOBAL = "use_global_device_ids=true"
ROUTES = "frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,2}}}"


def with_ids(*ids: int | None) -> str:
    lines = ["  p = f32[4] parameter(0)"]
    for n, k in enumerate(ids):
        channel = f", channel_id={k}, {GLOBAL}" if k else ""
        lines.append(f"  a{n}x = f32[4] all-reduce(p), replica_groups={{}}, to_apply=add_f32{channel}")
    names = ", ".join(f"a{n}x" for n in range(len(ids)))
    return "\n".join([*lines, f"  ROOT t = ({', '.join(['f32[4]'] * len(ids))}) tuple({names})"])


def ids_of(file: ModuleFile) -> list[int | None]:
    found = [describe(i) for c in file.module.computations for i in c.post_order()]
    return [info.channel_id for info in found if info is not None]


def said(result: PassResult, outcome: str = "done") -> list[tuple[str, str]]:
    return [(r.instruction, r.reason) for r in result.remarks if r.outcome == outcome]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((3, 3, 5, 3), [3, 6, 5, 7]),
        ((1, 1, 1), [1, 2, 3]),
        ((None, 4, None, 4), [None, 4, None, 5]),
        ((2, 1), [2, 1]),
    ],
)
@pytest.mark.parametrize("converted", [False, True])
def test_numbers(before: tuple[int | None, ...], after: list[int | None], converted: bool) -> None:
    file = parse(with_ids(*before), reducer())
    if converted:
        apply(file.module, CONVERT)
    result = apply(file.module, PASS)
    file = reread(file)
    assert ids_of(file) == after
    assert result.changed == (list(before) != after)
    assert not apply(file.module, PASS).changed


def test_what_is_said() -> None:
    result = apply(parse(with_ids(3, 3, 5, 3), reducer()).module, PASS)
    assert said(result) == [("%a1x", "channel id 3 → 6"), ("%a3x", "channel id 3 → 7")]


def test_the_config_of_a_converted_one_keeps_the_rest() -> None:
    file = parse(with_ids(3, 3), reducer())
    apply(file.module, CONVERT)
    apply(file.module, PASS)
    config = find(file.module, "a1x").proto.backend_config
    assert config == b"channel_id=4;use_global_device_ids=true;constrain_layout=false"


def test_bodies_and_starts_count() -> None:
    file = parse(
        "  p = f32[4] parameter(0)\n"
        f"  s = f32[4] all-reduce-start(p), replica_groups={{}}, channel_id=1, {GLOBAL}, to_apply=add_f32\n"
        "  d = f32[4] all-reduce-done(s)\n"
        "  w = ((f32[4]), f32[2]) async-start(p), calls=wrapped\n  e = f32[2] async-done(w)\n"
        "  m = f32[4] collective-permute(d), channel_id=1, source_target_pairs={{0,1}}\n"
        "  ROOT t = (f32[4], f32[2]) tuple(m, e)",
        reducer(),
        "wrapped {\n  x = f32[4] parameter(0)\n  ROOT r = f32[2] reduce-scatter(x), replica_groups=[4,2]<=[8], "
        f"channel_id=1, {GLOBAL}, dimensions={{0}}, to_apply=add_f32\n}}",
    )
    apply(file.module, PASS)
    assert sorted(filter(None, ids_of(reread(file)))) == [1, 2, 3]


# -- ids that are missing ----------------------------------------------------------------------------------------------
def test_missing_ids_stay_missing_unless_asked() -> None:
    file = parse(with_ids(None, None, None), reducer(), header="replica_count=8")
    assert not apply(file.module, PASS).changed
    result = apply(file.module, PASS + "{assign_missing=true}")
    assert said(result) == [("%a1x", "channel id none → 1"), ("%a2x", "channel id none → 2")]
    assert ids_of(reread(file)) == [None, 1, 2]


@pytest.mark.parametrize(
    ("header", "opcode", "reason"),
    [
        (
            "replica_count=4, num_partitions=2",
            "all-reduce(p), replica_groups={}, to_apply=add_f32",
            "with a channel id its replica ids would mean all partitions of these replicas",
        ),
        (
            "replica_count=8",
            "collective-permute(p), source_target_pairs={{0,1}}",
            "with a channel id its replica ids would be partition ids",
        ),
        (
            "replica_count=8",
            "all-to-all(p), replica_groups={}, dimensions={0}",
            "with a channel id its replica ids would be partition ids",
        ),
        (
            "is_scheduled=false",
            "all-reduce(p), replica_groups={}, to_apply=add_f32",
            "the module does not say how many ranks it has",
        ),
    ],
)
def test_an_id_that_would_change_the_meaning_is_refused(header: str, opcode: str, reason: str) -> None:
    file = parse(
        f"  p = f32[8] parameter(0)\n  a = f32[8] {opcode}\n  ROOT b = f32[8] {opcode.replace('(p)', '(a)')}",
        reducer(),
        header=header,
    )
    result = apply(file.module, PASS + "{assign_missing=true}")
    assert not result.changed
    assert said(result, "declined") == [("%b", reason)]


# -- sends and receives ------------------------------------------------------------------------------------------------
def pair(n: str, data: str, token: str, channel: int = 1, attributes: str = ROUTES) -> str:
    """A send, its recv and both done halves; the recv waits for the send."""
    return (
        f"  send{n} = (f32[4], u32[], token[]) send({data}, {token}), channel_id={channel}, {attributes}\n"
        f"  sent{n} = token[] send-done(send{n}), channel_id={channel}, {attributes}\n"
        f"  recv{n} = (f32[4], u32[], token[]) recv(sent{n}), channel_id={channel}, {attributes}\n"
        f"  got{n} = (f32[4], token[]) recv-done(recv{n}), channel_id={channel}, {attributes}\n"
        f"  v{n} = f32[4] get-tuple-element(got{n}), index=0\n  k{n} = token[] get-tuple-element(got{n}), index=1\n"
    )


START = "  p = f32[4] parameter(0)\n  k = token[] after-all()\n"


def channels(file: ModuleFile, n: str) -> list[int]:
    return [int(find(file.module, f"{half}{n}").proto.channel_id) for half in ("send", "sent", "recv", "got")]


def test_pairs_in_a_row_get_a_channel_each() -> None:
    file = parse(START + pair("A", "p", "k") + pair("B", "vA", "kA") + "  ROOT r = f32[4] add(vA, vB)")
    result = apply(file.module, PASS)
    file = reread(file)
    assert channels(file, "A") == [1] * 4
    assert channels(file, "B") == [2] * 4
    assert said(result) == [("%sendB", "channel id 1 → 2")]
    assert not apply(file.module, PASS).changed


def test_a_pair_is_one_operation_among_others() -> None:
    reduce = f"  a = f32[4] all-reduce(p), replica_groups={{}}, channel_id=1, {GLOBAL}, to_apply=add_f32\n"
    file = parse(START + reduce + pair("A", "a", "k") + "  ROOT r = f32[4] add(vA, a)", reducer())
    apply(file.module, PASS)
    assert channels(reread(file), "A") == [2] * 4


def test_routes_tell_pairs_apart() -> None:
    back = "frontend_attributes={_xla_send_recv_source_target_pairs={{1,0},{2,1}}}"
    file = parse(START + pair("A", "p", "k") + pair("B", "p", "k", 1, back) + "  ROOT r = f32[4] add(vA, vB)")
    apply(file.module, PASS)
    file = reread(file)
    assert sorted([channels(file, "A"), channels(file, "B")]) == [[1] * 4, [2] * 4]


def test_pairs_that_nothing_orders_are_left() -> None:
    file = parse(START + pair("A", "p", "k") + pair("B", "p", "k") + "  ROOT r = f32[4] add(vA, vB)")
    result = apply(file.module, PASS)
    assert not result.changed
    reason = "other {}s have channel id 1 too, and it is not certain who meets whom"
    assert sorted(said(result, "declined")) == [
        (f"%{half}{n}", reason.format(half)) for half in ("recv", "send") for n in "AB"
    ]


def test_a_half_keeps_the_id_that_its_partner_elsewhere_has() -> None:
    file = parse(
        START
        + f"  a = f32[4] all-reduce(p), replica_groups={{}}, channel_id=5, {GLOBAL}, to_apply=add_f32\n"
        + "  s = (f32[4], u32[], token[]) send(a, k), channel_id=5\n  d = token[] send-done(s), channel_id=5\n"
        + "  ROOT t = (f32[4], token[]) tuple(a, d)",
        reducer(),
    )
    result = apply(file.module, PASS)
    assert said(result) == [("%a", "channel id 5 → 6")]
    assert find(file.module, "s").proto.channel_id == 5
    assert find(file.module, "d").proto.channel_id == 5


def test_transfers_to_the_host_keep_theirs() -> None:
    both = pair("A", "p", "k", 1, "is_host_transfer=true") + pair("B", "vA", "kA", 1, "is_host_transfer=true")
    result = apply(parse(START + both + "  ROOT r = f32[4] add(vA, vB)").module, PASS)
    assert not result.changed
    assert len(said(result, "declined")) == 4


def test_a_done_behind_a_loop_binds_its_channel() -> None:
    loop = """
step {
  x = (s32[], (f32[4], u32[], token[])) parameter(0)
  n = s32[] get-tuple-element(x), index=0
  r = (f32[4], u32[], token[]) get-tuple-element(x), index=1
  d = (f32[4], token[]) recv-done(r), channel_id=1
  v = f32[4] get-tuple-element(d), index=0
  k = token[] get-tuple-element(d), index=1
  m = (f32[4], u32[], token[]) recv(k), channel_id=1
  s = (f32[4], u32[], token[]) send(v, k), channel_id=1
  e = token[] send-done(s), channel_id=1
  o = s32[] constant(1)
  i = s32[] add(n, o)
  ROOT t = (s32[], (f32[4], u32[], token[])) tuple(i, m)
}
until {
  x = (s32[], (f32[4], u32[], token[])) parameter(0)
  n = s32[] get-tuple-element(x), index=0
  last = s32[] constant(2)
  ROOT l = pred[] compare(n, last), direction=LT
}"""
    file = parse(
        "  k = token[] after-all()\n  z = s32[] constant(0)\n  r = (f32[4], u32[], token[]) recv(k), channel_id=1\n"
        "  t = (s32[], (f32[4], u32[], token[])) tuple(z, r)\n"
        "  w = (s32[], (f32[4], u32[], token[])) while(t), condition=until, body=step\n"
        "  l = (f32[4], u32[], token[]) get-tuple-element(w), index=1\n"
        "  d = (f32[4], token[]) recv-done(l), channel_id=1\n  ROOT v = f32[4] get-tuple-element(d), index=0",
        loop,
    )
    assert not apply(file.module, PASS).changed


# -- values ------------------------------------------------------------------------------------------------------------
def test_values() -> None:
    both = pair("A", "a", "k") + pair("B", "vA", "kA")
    reduce = f"  a = f32[4] all-reduce(p), replica_groups={{}}, channel_id=1, {GLOBAL}, to_apply=add_f32\n"
    more = "  b = f32[4] collective-permute(vB), channel_id=1, source_target_pairs={{1,3},{2,0}}\n"
    text = hlo(START + reduce + both + more + "  ROOT r = (f32[4], f32[4], f32[4]) tuple(vA, vB, b)", reducer())
    report = run_values(text, f"{PASS},{CONVERT}")
    assert report.result["exact"]


@needs_corpus
def test_a_chain_of_stages() -> None:
    file = corpus_file("send_recv_pipeline.hlo")
    result = apply(file.module, PASS)
    assert [reason for _, reason in said(result)] == ["channel id 1 → 2", "channel id 1 → 3"]
    assert sorted(filter(None, ids_of(reread(file)))) == [1, 1, 2, 2, 3, 3]
