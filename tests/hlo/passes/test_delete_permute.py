"""`aws_neuron_delete_permute`: all-reduces and permutes of ranks that are alone go."""

from __future__ import annotations

import pytest

from ...support import apply, opcodes, parse, reducer, run_values
from .rewrites import FLAGS, data, data_text, declined, rewritten

NAME = "aws_neuron_delete_permute"
SINGLE = "{{0},{1},{2},{3},{4},{5},{6},{7}}"
SELF = "{{0,0},{1,1},{2,2},{3,3},{4,4},{5,5},{6,6},{7,7}}"


def one(line: str, header: str = "num_partitions=8"):
    return parse(f"  p = f32[8] parameter(0)\n  ROOT r = f32[8] {line}", reducer(), header=header)


@pytest.mark.parametrize(
    "line",
    [
        f"all-reduce(p), replica_groups={SINGLE}, to_apply=add_f32, {FLAGS}",
        f"collective-permute(p), source_target_pairs={SELF}, channel_id=1",
    ],
)
def test_the_operand_takes_its_place(line: str) -> None:
    assert opcodes(rewritten(one(line), NAME)) == ["parameter"]


@pytest.mark.parametrize(
    "line", ["all-reduce(p), replica_groups={}, to_apply=add_f32", "collective-permute(p), source_target_pairs={{0,0}}"]
)
def test_one_device(line: str) -> None:
    assert opcodes(rewritten(one(line, "replica_count=1, num_partitions=1"), NAME)) == ["parameter"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (f"all-reduce(p), replica_groups={{}}, to_apply=add_f32, {FLAGS}", "it talks to other ranks"),
        ("collective-permute(p), source_target_pairs={{0,1},{1,0}}, channel_id=1", "it talks to other ranks"),
        (
            "collective-permute(p), source_target_pairs={{0,0}}, channel_id=1",
            "ranks that it leaves out do not get what they gave",
        ),
    ],
)
def test_guards(line: str, reason: str) -> None:
    assert declined(one(line).module, NAME) == [reason]


def test_other_collectives_are_no_candidates() -> None:
    assert declined(one(f"all-gather(p), replica_groups={SINGLE}, dimensions={{0}}, {FLAGS}").module, NAME) == []


def test_an_axis_of_one_in_jax() -> None:
    result = apply(data(NAME).module, NAME)
    assert [r.outcome for r in result.remarks] == ["done", "done", "declined"]
    report = run_values(data_text(NAME), NAME)
    assert report.result["exact"]
    assert report.after == {"all-reduce": 1}
