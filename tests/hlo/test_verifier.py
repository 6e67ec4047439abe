"""Every finding of the verifier, and none on modules that are right."""

from __future__ import annotations

import pytest

from crossrank.hlo.collectives import ROUTES
from crossrank.hlo.verifier import verify

from ..support import apply, corpus_file, each_corpus_module, find, needs_corpus, parse, reducer

GLOBAL = "channel_id=1, use_global_device_ids=true"


def findings(line: str, header: str, operand: str) -> list[tuple[str, str]]:
    file = parse(
        f"  p = {operand} parameter(0)\n  t = token[] after-all()\n  b = f32[8,2] parameter(1)\n"
        f"  k = s32[8] parameter(2)\n  m = s32[5] parameter(3)\n  ROOT r = {line}",
        reducer(),
        reducer("and", "f32"),
        header=header,
    )
    return [(f.kind, f.message) for f in verify(file.module)]


def all_reduce(groups: str, flags: str = GLOBAL) -> str:
    return f"f32[8,4] all-reduce(p), replica_groups={groups}, to_apply=add_f32" + (f", {flags}" if flags else "")


def gather(result: str, groups: str = "{{0,1},{2,3},{4,5},{6,7}}", dim: int = 0) -> str:
    return f"{result} all-gather(p), replica_groups={groups}, dimensions={{{dim}}}, {GLOBAL}"


def scatter(result: str, groups: str = "{{0,1},{2,3},{4,5},{6,7}}", dim: int = 0) -> str:
    return f"{result} reduce-scatter(p), replica_groups={groups}, dimensions={{{dim}}}, {GLOBAL}, to_apply=add_f32"


def permute(pairs: str, flags: str = "channel_id=1") -> str:
    return f"f32[8,4] collective-permute(p), source_target_pairs={pairs}" + (f", {flags}" if flags else "")


def exchange(operands: str, groups: str = "{}") -> str:
    return f"(f32[8,4], f32[8,4]) all-to-all({operands}), replica_groups={groups}, channel_id=1"


def ragged(operands: str, groups: str = "{}") -> str:
    return f"f32[8,4] ragged-all-to-all({operands}), replica_groups={groups}, channel_id=1"


def converted(target: str, result: str, operands: str, attributes: str = "") -> str:
    return (
        f'{result} custom-call({operands}), custom_call_target="AwsNeuron{target}", backend_config="channel_id=1", '
        f"frontend_attributes={{{attributes}}}"
    )


P8, R8, R2P4 = "num_partitions=8", "replica_count=8", "replica_count=2, num_partitions=4"


@pytest.mark.parametrize(
    ("line", "header", "kind", "message"),
    [
        (gather("f32[8,4]"), P8, "shape", "over groups of 2 it should make f32[16,4] of f32[8,4], not f32[8,4]"),
        (gather("f32[16,8]"), P8, "shape", "over groups of 2 it should make f32[16,4] of f32[8,4], not f32[16,8]"),
        (gather("f32[8,4]", dim=1), P8, "shape", "over groups of 2 it should make f32[8,8] of f32[8,4], not f32[8,4]"),
        (gather("bf16[16,4]"), P8, "shape", "it makes bf16 of f32"),
        (gather("f32[32,4]", "{{0,1,2},{3,4,5,6,7}}"), P8, "shape", "its groups have different sizes (3, 5)"),
        (scatter("f32[8,4]"), P8, "shape", "over groups of 2 it should make f32[4,4] of f32[8,4], not f32[8,4]"),
        (scatter("f32[8,1]", "{}", 1), P8, "shape", "dimension 1 of f32[8,4]{1,0} cannot be cut into 8 equal parts"),
        (all_reduce("{{0,1,2,3},{3,4,5,6,7}}"), P8, "groups", "id 3 is in groups 0 and 1"),
        (all_reduce("{{0,1,2,2},{3,4,5,6,7}}"), P8, "groups", "id 2 is 2 times in group 0"),
        (all_reduce("{{0,1,2},{4,5,6,7}}"), P8, "groups", "id 3 is in no group"),
        (all_reduce("{{0,1,2,3},{4,5,6,8}}"), P8, "groups", "id 8 is outside the 8 ranks of flattened groups"),
        (all_reduce("[4,4]<=[16]"), P8, "groups", "id 8 is outside the 8 ranks"),
        (all_reduce("[2,2]<=[4]"), P8, "groups", "ids 4, 5, 6, 7 are in no group"),
        (all_reduce("mesh['a'=2,'b'=2] {'a'}"), P8, "groups", "ids 4, 5, 6, 7 are in no group"),
        (all_reduce("{{0,1},{2,3}}", ""), R8, "groups", "in no group"),
        (all_reduce("{{0,1,8}}", ""), R8, "groups", "id 8 is outside the 8 replicas of cross-replica groups"),
        (
            all_reduce("{{0,2}}", "channel_id=1"),
            R2P4,
            "groups",
            "outside the 2 replicas of cross-replica-and-partition",
        ),
        (all_reduce("{{0,1},{0,1}}", "channel_id=1"), R2P4, "groups", "groups"),
        (
            'f32[8,4] custom-call(p), custom_call_target="AwsNeuronAllReduceAdd_f32", '
            'backend_config="use_global_device_ids=true;constrain_layout=false"',
            P8,
            "mode",
            "Invalid combination of has_channel_id and use_global_device_ids",
        ),
        (
            "(f32[8,4], u32[], token[]) send(p, t), channel_id=1, "
            'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},oops}"}',
            P8,
            "config",
            "cannot read the source-target pairs",
        ),
        (permute("{{0,1},{2,1}}"), P8, "pairs", "rank 1 is the target of 2 pairs"),
        (permute("{{0,8}}"), P8, "pairs", "pair 0,8 is outside the 8 ids of cross-partition pairs"),
        (permute("{{0,1}}", ""), P8, "pairs", "pair 0,1 is outside the 1 ids of cross-replica pairs"),
        (
            f"f32[8,4] all-reduce(p), replica_groups={{}}, to_apply=and_f32, {GLOBAL}",
            P8,
            "reduction",
            "and cannot reduce f32",
        ),
        (
            "f32[8,4] all-to-all(p), channel_id=1, replica_groups={}, dimensions={1}",
            P8,
            "shape",
            "cannot be cut into 8",
        ),
        (exchange("p, p"), P8, "shape", "it has 2 operands, and groups of 8"),
        (exchange("p, b", "{{0,1},{2,3},{4,5},{6,7}}"), P8, "shape", "its operands differ in shape"),
        (ragged("p, p, k, k, k"), P8, "shape", "it has 5 operands, and a ragged-all-to-all has six"),
        (ragged("p, p, k, k, k, b"), P8, "shape", "its offsets and sizes are no lists of integers"),
        (ragged("p, p, k, k, k, k", "{{0,1,2},{3,4,5},{6,7}}"), P8, "shape", "its groups have different sizes"),
        (ragged("p, p, m, m, m, m"), P8, "shape", "have 5 entries, which groups of 8 cannot share"),
        (ragged("b, p, k, k, k, k"), P8, "shape", "rows of f32[8,2] are no rows of f32[8,4]"),
        (converted("AllToAll_f32", "f32[8,4]", "p"), P8, "shape", "it has no dimension"),
        (converted("SendRecv_f32", "(f32[8,2], token[])", "p, t, t"), P8, "shape", "not f32[8,2]"),
        (
            converted("SendRecv_f32", "(f32[8,4], f32[8,2], token[])", "p, t, t"),
            P8,
            "shape",
            "1 operands and 2 results",
        ),
        (converted("SendRecv_s32", "(f32[8,4], token[])", "p, t, t"), P8, "target", "its result, which is f32"),
        (converted("Send_s32", "token[]", "p, t"), P8, "target", "AwsNeuronSend_s32 contradicts"),
        (
            converted("CollectivePermute_f32", "f32[8,4]", "p", 'source_target_pairs="{{0,1},{2,1}}"'),
            P8,
            "pairs",
            "rank 1 is the target of 2 pairs",
        ),
        (
            converted("SendRecv_f32", "(f32[8,4], token[])", "p, t, t", f'{ROUTES}="{{{{0,9}}}}"'),
            P8,
            "pairs",
            "pair 0,9 is outside",
        ),
    ],
)
def test_each_finding(line: str, header: str, kind: str, message: str) -> None:
    found = findings(line, header, "f32[8,4]")
    assert found, "nothing was found"
    assert {k for k, _ in found} == {kind}
    assert any(message in m for _, m in found), found


@pytest.mark.parametrize(
    ("line", "header"),
    [
        (all_reduce("{}"), P8),
        (all_reduce("{}", ""), R8),
        (all_reduce("{}", "channel_id=1"), R2P4),
        (all_reduce("{{1,0}}", "channel_id=1"), R2P4),
        (all_reduce("{{0},{1}}", ""), R2P4),
        (all_reduce("{{7,0,2},{1,3,4,5,6}}"), P8),
        (all_reduce("[4,2]<=[2,4]T(1,0)"), P8),
        (all_reduce("mesh['a'=2,'b'=4] {'b':(1)2}"), P8),
        (gather("f32[16,4]"), P8),
        (scatter("f32[4,4]", "mesh['a'=4,'b'=2] {'b'}"), P8),
        (scatter("f32[1,4]", "{}"), P8),
        (permute("{{0,1},{1,2},{3,3}}"), P8),
        (permute("{}"), P8),
        (permute("{{0,1}}", ""), R8),
        (exchange("p, p", "{{0,1},{2,3},{4,5},{6,7}}"), P8),
        (ragged("p, p, k, k, k, k"), P8),
        (converted("AllToAll_f32", "(f32[8,4], f32[8,4])", "p, p", 'replica_groups="{{0,1}}"'), "num_partitions=2"),
        (converted("CollectiveBroadcast_f32", "f32[8,4]", "p"), P8),
        (converted("SendRecv_f32", "(f32[8,4], token[])", "p, t, t", f'{ROUTES}="{{{{0,1}}}}"'), P8),
        (converted("SendRecv_f32", "(f32[8,4], f32[8,2], token[])", "p, b, t, t"), P8),
        (converted("Send_f32", "token[]", "p, t"), P8),
        (converted("Recv_f32", "(f32[8,2], token[])", "t"), P8),
        ("f32[8,4] collective-broadcast(p), channel_id=1, replica_groups={{3,1}}", "num_partitions=4"),
    ],
)
def test_nothing_is_found_where_nothing_is_wrong(line: str, header: str) -> None:
    assert not [f for f in findings(line, header, "f32[8,4]") if "broadcast" not in line]


def test_converted_collectives_are_checked_too() -> None:
    file = parse(f"  p = f32[8,4] parameter(0)\n  ROOT r = {gather('f32[8,4]')}")
    apply(file.module, "convert-collectives-to-custom-call")
    assert [f.kind for f in verify(file.module)] == ["shape"]
    find(file.module, "r").edit().backend_config = b"colour=red"
    (finding,) = verify(file.module)
    assert (finding.kind, finding.message) == ("config", "unknown key 'colour'")


def test_text_of_a_finding() -> None:
    file = parse(
        f'  p = f32[8,4] parameter(0)\n  ROOT r = {gather("f32[8,4]")}, metadata={{source_file="f.py" source_line=3}}'
    )
    (finding,) = verify(file.module)
    assert str(finding).startswith("%r (f.py:3): over groups of 2")
    assert finding.as_dict()["severity"] == "error"


@needs_corpus
@each_corpus_module
def test_no_false_finding(name: str) -> None:
    assert [str(f) for f in verify(corpus_file(name).module)] == []
