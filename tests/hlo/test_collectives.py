"""Collectives as instructions say them, native and converted alike."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given

from crossrank.collective.groups import GroupMode
from crossrank.collective.kinds import Kind
from crossrank.hlo.collectives import collectives, describe, kind_of, pairs_of, ranks_of, read_groups, write_groups
from crossrank.hlo.schema import InstructionProto

from ..collective.strategies import any_groups
from ..support import apply, corpus_facts, corpus_file, each_small_module, find, needs_corpus, parse, reducer


def info(line: str, *computations: str, header: str = "num_partitions=8"):
    file = parse(f"  p = f32[8,4] parameter(0)\n  ROOT r = {line}", reducer(), *computations, header=header)
    found = describe(find(file.module, "r"))
    assert found is not None
    return found, file


@pytest.mark.parametrize(
    ("flags", "mode"),
    [
        ("", GroupMode.CROSS_REPLICA),
        (", channel_id=1", GroupMode.CROSS_REPLICA_AND_PARTITION),
        (", channel_id=1, use_global_device_ids=true", GroupMode.FLATTENED),
    ],
)
def test_modes_stay_the_same_when_converted(flags: str, mode: GroupMode) -> None:
    native, file = info(f"f32[8,4] all-reduce(p), replica_groups={{}}, to_apply=add_f32{flags}")
    apply(file.module, "convert-collectives-to-custom-call")
    converted = describe(find(file.module, "r"))
    assert converted is not None
    assert native.mode is converted.mode is mode
    assert converted.converted
    for field in ("kind", "groups", "channel_id", "dim", "reduction", "dtype", "nbytes", "constrain_layout"):
        assert getattr(native, field) == getattr(converted, field), field


def test_a_channel_alone_means_partitions_on_an_all_to_all() -> None:
    found, file = info("f32[8,4] all-to-all(p), channel_id=1, replica_groups={}, dimensions={0}")
    assert (found.kind, found.mode, found.dim) == (Kind.ALL_TO_ALL, GroupMode.CROSS_PARTITION, 0)
    assert ranks_of(found, file.module.config) == (tuple(range(8)),)


def test_pairs() -> None:
    found, file = info("f32[8,4] collective-permute(p), channel_id=1, source_target_pairs={{0,1},{3,3}}")
    assert (found.kind, found.groups, str(found.pairs)) == (Kind.COLLECTIVE_PERMUTE, None, "{{0,1},{3,3}}")
    assert pairs_of(found, file.module.config) == ((0, 1), (3, 3))


def test_what_is_no_collective() -> None:
    module = parse('  p = f32[8] parameter(0)\n  ROOT r = f32[8] custom-call(p), custom_call_target="TopK"').module
    assert [kind_of(i) for i in module.entry] == [None, None]
    assert list(collectives(module)) == []


@given(any_groups())
def test_groups_are_written_in_their_own_form(groups) -> None:
    proto = InstructionProto()
    write_groups(proto, groups)
    assert read_groups(proto) == groups
    assert str(read_groups(proto)) == str(groups)


@needs_corpus
@each_small_module
def test_the_corpus_has_the_collectives_that_it_says(name: str) -> None:
    wanted = corpus_facts(name)["collectives"]
    # XLA reads `reduce-scatter-start` as an async-start around a reduce-scatter
    wanted = Counter(
        {k.replace("scatter-start", "scatter").replace("to-all-start", "to-all"): n for k, n in wanted.items()}
    )
    found = Counter(i.opcode for i, _ in collectives(corpus_file(name).module))
    assert found == {k: n for k, n in wanted.items() if not k.endswith("-done") and not k.startswith("async")}
