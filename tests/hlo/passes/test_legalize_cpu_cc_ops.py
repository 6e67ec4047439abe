"""`legalize-cpu-cc-ops`: no channel ids, and every rank still talks to the same ones."""

from __future__ import annotations

import pytest

from crossrank.hlo.collectives import collectives, pairs_of, ranks_of
from crossrank.hlo.io import parse_module
from crossrank.hlo.module import Module

from ...support import apply, find, parse, reducer, reread, run_values
from .rewrites import FLAGS, Lines, declined, rewritten

NAME = "legalize-cpu-cc-ops"


def meant(module: Module) -> list[object]:
    """Who talks to whom in each collective."""
    found: list[object] = []
    for _, info in collectives(module):
        found.append(set(pairs_of(info, module.config) if info.groups is None else ranks_of(info, module.config)))
    return found


def one(line: str, header: str):
    return parse(f"  p = f32[8,4] parameter(0)\n  ROOT r = {line}", reducer(), header=header)


REDUCE = "f32[8,4] all-reduce(p), to_apply=add_f32, "


@pytest.mark.parametrize(
    ("header", "line", "after"),
    [
        ("replica_count=8", REDUCE + f"replica_groups=[2,4]<=[8], {FLAGS}", "[2,4]<=[8]"),
        ("replica_count=8", REDUCE + f"replica_groups=mesh['a'=2,'b'=4] {{'a'}}, {FLAGS}", "mesh['a'=2,'b'=4] {'a'}"),
        ("replica_count=8", REDUCE + f"replica_groups={{}}, {FLAGS}", "{}"),
        ("replica_count=8", REDUCE + "replica_groups={{0,1,2,3},{7,6,5,4}}, channel_id=3", "{{0,1,2,3},{7,6,5,4}}"),
        # partitions of which there is one: every replica is alone
        ("replica_count=8", "f32[8,4] all-to-all(p), dimensions={0}, replica_groups={{0}}, channel_id=3",
         "{{0},{1},{2},{3},{4},{5},{6},{7}}"),
        # flattened ids of one partition each
        ("replica_count=4, num_partitions=2", REDUCE + f"replica_groups={{{{0,4}},{{1,5}},{{2,6}},{{3,7}}}}, {FLAGS}",
         "{{0,2},{1,3}}"),
        ("replica_count=4, num_partitions=2", REDUCE + f"replica_groups={{{{6,0,2,4}},{{7,1,3,5}}}}, {FLAGS}",
         "{{3,0,1,2}}"),
        ("replica_count=1, num_partitions=8", REDUCE + f"replica_groups=[8,1]<=[8], {FLAGS}", "{{0}}"),
        ("replica_count=8", "f32[64,4] all-gather(p), dimensions={0}, replica_groups={}, " + FLAGS, "{}"),
        ("replica_count=8", "f32[8,4] collective-broadcast(p), replica_groups={{0}}, channel_id=1",
         "{{0},{1},{2},{3},{4},{5},{6},{7}}"),
    ],
)  # fmt: skip
def test_groups_mean_what_they_meant(header: str, line: str, after: str) -> None:
    file = one(line, header)
    before = meant(file.module)
    module = rewritten(file, NAME)
    assert meant(module) == before
    ((r, info),) = collectives(module)
    assert str(info.groups) == after
    assert (r.proto.channel_id, r.proto.use_global_device_ids) == (0, False)


@pytest.mark.parametrize(
    ("header", "pairs", "after"),
    [
        ("replica_count=8", "{{0,0}}", [(r, r) for r in range(8)]),
        ("replica_count=1, num_partitions=8", "{{0,0},{1,1},{2,2},{3,3},{4,4},{5,5},{6,6},{7,7}}", [(0, 0)]),
    ],
)
def test_pairs_mean_what_they_meant(header: str, pairs: str, after: list[tuple[int, int]]) -> None:
    file = one(f"f32[8,4] collective-permute(p), source_target_pairs={pairs}, channel_id=2", header)
    before = meant(file.module)
    module = rewritten(file, NAME)
    assert meant(module) == before
    assert [(p.source, p.target) for p in find(module, "r").proto.source_target_pairs] == after


@pytest.mark.parametrize(
    ("header", "line", "reason"),
    [
        ("num_partitions=8", REDUCE + f"replica_groups={{}}, {FLAGS}", "groups of replicas cannot say who takes part"),
        ("replica_count=4, num_partitions=2", REDUCE + f"replica_groups=[4,2]<=[8], {FLAGS}", "across partitions"),
        ("num_partitions=8", "f32[8,4] collective-permute(p), source_target_pairs={{0,1}}, channel_id=2",
         "pairs of replicas cannot say who sends to whom: it talks across partitions"),
        ("replica_count=4", REDUCE + f"replica_groups={{{{0,1,2,9}}}}, {FLAGS}", "id 9 is outside the 4 ranks"),
        ("is_scheduled=false", REDUCE + f"replica_groups={{}}, {FLAGS}", "the file does not say how many ranks"),
    ],
)  # fmt: skip
def test_guards(header: str, line: str, reason: str) -> None:
    (found,) = declined(one(line, header).module, NAME)
    assert reason in found


def test_ragged_exchanges_sends_and_ids_that_are_not_there() -> None:
    file = parse(
        "  p = f32[8] parameter(0)\n  a = f32[8] all-reduce(p), replica_groups={}, to_apply=add_f32\n"
        "  t = token[] after-all()\n  s = (f32[8], u32[], token[]) send(a, t), channel_id=1\n"
        "  ROOT d = token[] send-done(s), channel_id=1",
        reducer(),
        header="replica_count=8",
    )
    assert declined(file.module, NAME) == []


def test_values() -> None:
    lines = Lines()
    p = lines.parameter("f32[8,4]")
    groups = "{{6,0,2,4},{7,1,3,5}}"
    lines.add("f32[8,4]", f"all-reduce({p}), replica_groups={groups}, to_apply=add_f32, {FLAGS}", output=True)
    lines.add("f32[8,16]", f"all-gather({p}), replica_groups={groups}, dimensions={{1}}, {FLAGS}", output=True)
    lines.add(
        "f32[2,4]",
        f"reduce-scatter({p}), replica_groups={groups}, dimensions={{0}}, to_apply=add_f32, {FLAGS}",
        output=True,
    )
    lines.add(
        "f32[8,4]", f"collective-permute({p}), source_target_pairs={{{{0,0}},{{1,1}}}}, channel_id=5", output=True
    )
    report = run_values(lines.text(reducer(), header="replica_count=4, num_partitions=2"), NAME)
    assert report.result["exact"]
    assert [r.outcome for r in report.passes[0].remarks] == ["done"] * 4
    replicas = lines.text(reducer(), header="replica_count=8").replace("{{0,0},{1,1}}", "{{0,0}}")
    report = run_values(replicas, NAME)
    assert report.result["exact"]
    assert [r.outcome for r in report.passes[0].remarks] == ["done"] * 4


def test_halves_of_asynchronous_pairs() -> None:
    file = parse(
        "  p = f32[8,4] parameter(0)\n"
        f"  s = f32[8,4] all-reduce-start(p), replica_groups={{}}, to_apply=add_f32, {FLAGS}\n"
        "  ROOT d = f32[8,4] all-reduce-done(s)",
        reducer(),
        header="replica_count=8",
    )
    apply(file.module, NAME)
    assert find(reread(file).module, "s").proto.channel_id == 0


EVERYTHING = "{partitions_as_replicas=true}"


@pytest.mark.parametrize("header", ["num_partitions=8", "replica_count=2, num_partitions=4"])
def test_partitions_become_replicas(header: str) -> None:
    lines = Lines()
    p = lines.parameter("f32[8,4]")
    partition, replica = lines.add("u32[]", "partition-id()"), lines.add("u32[]", "replica-id()")
    lines.add("u32[]", f"subtract({partition}, {replica})", output=True)
    flat = "replica_groups=mesh['a'=2,'b'=4] {'b'}"
    lines.add("f32[8,4]", f"all-reduce({p}), {flat}, to_apply=add_f32, {FLAGS}", output=True)
    lines.add("f32[8,4]", f"all-reduce({p}), replica_groups={{}}, to_apply=add_f32", output=True)  # between replicas
    lines.add("f32[8,16]", f"all-gather({p}), replica_groups=[2,4]<=[8], dimensions={{1}}, {FLAGS}", output=True)
    lines.add(
        "f32[8,4]", f"collective-permute({p}), source_target_pairs={{{{0,1}},{{2,3}}}}, channel_id=5", output=True
    )
    file = parse_module(lines.text(reducer(), header=header).encode(), "test.hlo")
    assert apply(file.module, NAME + EVERYTHING).changed
    again = reread(file).module
    assert (again.config.replica_count, again.config.num_partitions) == (8, 1)
    assert not any(i.proto.channel_id or i.opcode == "partition-id" for i in again.instructions())
    assert not apply(again, NAME + EVERYTHING).changed
    assert run_values(lines.text(reducer(), header=header), NAME + EVERYTHING).result["exact"]


def test_a_converted_module_keeps_its_partitions() -> None:
    file = one(REDUCE + f"replica_groups={{}}, {FLAGS}", "num_partitions=8")
    apply(file.module, "convert-collectives-to-custom-call")
    result = apply(file.module, NAME + EVERYTHING)
    assert not result.changed
    assert "its partitions stay: %r is converted already" in result.remarks[0].reason
