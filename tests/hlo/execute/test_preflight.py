"""What is said before a run starts."""

from __future__ import annotations

import pytest

from crossrank.errors import InputError
from crossrank.hlo.execute.preflight import check_runnable

from ...support import corpus_facts, corpus_file, each_corpus_module, needs_corpus, parse, reducer

COPY = "  p = f32[8] parameter(0)\n  ROOT r = f32[8] copy(p)"
FUSED = "fused {\n  x = f32[8] parameter(0)\n  ROOT y = f32[8] negate(x)\n}"


@pytest.mark.parametrize(
    ("entry", "computations", "complaint"),
    [
        ("  p = f32[8] parameter(0)\n  ROOT r = f32[8] fusion(p), kind=kLoop, calls=fused", [FUSED], "fusion %r"),
        (
            '  p = f32[8] parameter(0)\n  ROOT r = f32[8] custom-call(p), custom_call_target="cublas"',
            [],
            "library call %r to cublas",
        ),
        ("  p = f32[8,128]{1,0:T(8,128)} parameter(0)\n  ROOT r = f32[8,128] copy(p)", [], "device layout of %p"),
        (
            "  p = f32[8] parameter(0)\n  s = f32[8] all-reduce-start(p), replica_groups={}, to_apply=add_f32\n"
            "  ROOT d = f32[8] all-reduce-done(s)",
            [reducer()],
            r"all-reduce-done \(1\), all-reduce-start \(1\); the first is %s",
        ),
        (
            "  a = f32[] constant(0)\n  b = f32[] constant(1)\n  ROOT r = f32[8] rng(a, b), distribution=rng_uniform",
            [],
            r"%r draws random numbers \(rng\)",
        ),
        ("  p = s32[<=4] parameter(0)\n  ROOT r = s32[<=4] copy(p)", [], "has a dynamic shape"),
        ("  p = (f32[8]) parameter(0)\n  ROOT r = f32[8] get-tuple-element(p), index=0", [], "parameter %p is a "),
        ("  c = f32[8] constant({...})\n  ROOT r = f32[8] copy(c)", [], "constant %c has no numbers"),
        (
            "  p = f32[8] parameter(0)\n  ROOT r = f32[8] all-reduce(p), channel_id=1, use_global_device_ids=true, "
            "replica_groups={{0,1}}, to_apply=add_f32",
            [reducer()],
            "%r: .*in no group",
        ),
    ],
)
def test_what_cannot_run(entry: str, computations: list[str], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint) as caught:
        check_runnable(parse(entry, *computations), None)
    assert len(str(caught.value).splitlines()) <= 2
    assert str(caught.value).startswith("test.hlo")


def test_more_ranks_than_one_process_holds() -> None:
    with pytest.raises(InputError, match="it has 2049 ranks, and one process here holds 2048 at most"):
        check_runnable(parse(COPY, header="replica_count=2049"), None)


def test_a_file_that_does_not_say_its_ranks_is_told_what_to_give() -> None:
    header = "entry_computation_layout={(f32[1]{0})->f32[4]{0}}"
    entry = "  p = f32[1] parameter(0)\n  ROOT r = f32[4] all-gather(p), dimensions={0}, replica_groups={}"
    with pytest.raises(InputError, match="give --ranks N"):
        check_runnable(parse(entry, header=header), None)


@pytest.mark.parametrize(
    ("header", "ranks", "world"),
    [
        ("num_partitions=8", None, 8),
        ("num_partitions=8", 8, 8),
        ("replica_count=2, num_partitions=4", 8, 8),
        ("a=b", 4, 4),
    ],
)
def test_the_world(header: str, ranks: int | None, world: int) -> None:
    header = "entry_computation_layout={(f32[8]{0})->f32[8]{0}}" if header == "a=b" else header
    file = parse(COPY, header=header)
    check_runnable(file, ranks)
    assert file.module.world == world


@pytest.mark.parametrize(("flags", "partitions"), [(", channel_id=1, use_global_device_ids=true", 4), ("", 1)])
def test_ids_are_partitions_where_there_are_channels(flags: str, partitions: int) -> None:
    file = parse(
        f"  p = f32[8] parameter(0)\n  ROOT r = f32[8] all-reduce(p), replica_groups={{}}, to_apply=add_f32{flags}",
        reducer(),
        header="entry_computation_layout={(f32[8]{0})->f32[8]{0}}",
    )
    check_runnable(file, 4)
    assert (file.module.config.num_partitions, file.module.world) == (partitions, 4)


@pytest.mark.parametrize("ranks", [4, 0, -1])
def test_ranks_that_contradict_the_file(ranks: int) -> None:
    with pytest.raises(InputError, match=str(ranks)):
        check_runnable(parse(COPY), ranks)


@needs_corpus
@each_corpus_module
def test_what_ran_when_the_corpus_was_made_may_run(name: str) -> None:
    if corpus_facts(name).get("runnable_small"):
        check_runnable(corpus_file(name), None)
