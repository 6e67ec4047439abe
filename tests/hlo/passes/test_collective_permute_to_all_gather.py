"""`collective-permute-to-all-gather`: who receives what stays as it was."""

from __future__ import annotations

import numpy as np
import pytest

from crossrank.errors import InputError
from crossrank.hlo.collectives import describe, ranks_of
from crossrank.hlo.io import ModuleFile
from crossrank.hlo.literals import read_literal
from crossrank.hlo.module import Instruction
from crossrank.passes import PassResult, parse_passes

from ...support import apply, find, hlo, opcodes, parse, reread, run_values

PASS = "collective-permute-to-all-gather"
FULL = "it is a full permutation, which is what a native permute is for (always=true rewrites it)"
CHAIN = "{{0,1},{1,2},{2,3}}"
RING = "{{0,1},{1,2},{2,3},{3,0}}"


def permute(pairs: str, shape: str = "f32[4,6]", header: str = "replica_count=4", more: str = "") -> ModuleFile:
    return parse(
        f"  p = {shape} parameter(0)\n  ROOT r = {shape} collective-permute(p), source_target_pairs={pairs}{more}",
        header=header,
    )


def reasons(result: PassResult) -> list[str]:
    return [r.reason for r in result.remarks if r.outcome == "declined"]


def gathers(file: ModuleFile) -> list[Instruction]:
    return [i for i in file.module.instructions() if i.opcode == "all-gather"]


def table(file: ModuleFile) -> list[int]:
    values = read_literal(next(i for i in file.module.instructions() if i.name.startswith("sources")).proto.literal)
    assert values is not None
    return [int(v) for v in values]


# -- the gate ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("pairs", "header", "more"),
    [
        (RING, "replica_count=4", ""),
        ("{{0,0},{1,1},{2,3},{3,2}}", "replica_count=4", ""),
        (RING, "num_partitions=4", ", channel_id=1"),
        (RING, "replica_count=2, num_partitions=4", ", channel_id=1"),
        ("{{1,0},{0,1}}", "replica_count=2, num_partitions=4", ""),
    ],
)
def test_full_permutations_stay(pairs: str, header: str, more: str) -> None:
    file = permute(pairs, header=header, more=more)
    result = apply(file.module, PASS)
    assert not result.changed
    assert reasons(result) == [FULL]
    assert apply(file.module, PASS + "{always=true}").changed
    assert "collective-permute" not in opcodes(reread(file).module)


@pytest.mark.parametrize(
    ("pairs", "sources"),
    [
        (CHAIN, [-1, 0, 1, 2]),
        ("{{3,0}}", [3, -1, -1, -1]),
        ("{{2,2}}", [-1, -1, 2, -1]),
        ("{}", [-1, -1, -1, -1]),
        ("{{0,1},{0,2},{0,3},{0,0}}", [0, 0, 0, 0]),
        ("{{0,1},{2,1}}", [-1, 2, -1, -1]),
    ],
)
def test_what_is_no_permutation_is_gathered(pairs: str, sources: list[int]) -> None:
    file = permute(pairs)
    assert apply(file.module, PASS).changed
    assert table(file) == sources
    assert not apply(reread(file).module, PASS).changed


def test_the_identity_form_sends_back_what_nobody_asked_for() -> None:
    file = permute(CHAIN)
    apply(file.module, PASS + "{untargeted=identity}")
    assert table(file) == [0, 0, 1, 2]
    assert "select" not in opcodes(file.module)
    with pytest.raises(InputError, match="untargeted is zeros or identity, not noise"):
        parse_passes(PASS + "{untargeted=noise}")


# -- the result --------------------------------------------------------------------------------------------------------
def test_one_gather_of_everyone() -> None:
    more = ', frontend_attributes={stream_id="1"}, sharding={manual}, metadata={source_file="a.py" source_line=3}'
    file = permute(CHAIN, more=more)
    result = apply(file.module, PASS)
    assert [str(r) for r in result.remarks] == [
        f"{PASS}: done: %r (a.py:3): 3 pairs → all-gather of 4 ranks and a slice: "
        "a rank receives 288 bytes, before at most 96"
    ]
    file = reread(file)
    (gather,) = gathers(file)
    info = describe(gather)
    assert info is not None
    assert ranks_of(info, file.module.config) == ((0, 1, 2, 3),)
    assert (info.channel_id, info.use_global_device_ids, info.constrain_layout, info.dim) == (1, True, False, 0)
    assert gather.shape.without_layout() == "f32[16,6]"
    assert gather.frontend_attributes == {"stream_id": "1"}
    assert gather.where == "a.py:3"
    root = file.module.entry.root
    assert root.opcode == "select"
    assert root.proto.HasField("sharding")


def test_channels_are_fresh() -> None:
    file = parse(
        f"  p = f32[4] parameter(0)\n  a = f32[4] collective-permute(p), channel_id=7, source_target_pairs={CHAIN}\n"
        f"  ROOT b = f32[4] collective-permute(a), channel_id=7, source_target_pairs={CHAIN}",
        header="num_partitions=4",
    )
    apply(file.module, PASS)
    assert [i.proto.channel_id for i in gathers(reread(file))] == [8, 9]


def test_control_dependencies_hold_the_gather() -> None:
    file = parse(
        "  p = f32[4] parameter(0)\n  n = f32[4] negate(p)\n"
        f"  r = f32[4] collective-permute(p), source_target_pairs={CHAIN}, control-predecessors={{n}}\n"
        "  m = f32[4] negate(p), control-predecessors={r}\n  ROOT t = (f32[4], f32[4], f32[4]) tuple(r, n, m)",
        header="replica_count=4",
    )
    apply(file.module, PASS)
    file = reread(file)
    (gather,) = gathers(file)
    assert [p.name for p in gather.control_predecessors] == ["n"]
    assert find(file.module, "m").control_predecessors == (gather,)


def test_layouts_stay() -> None:
    file = permute(CHAIN, "f32[4,6]{0,1}")
    apply(file.module, PASS)
    file = reread(file)
    assert str(gathers(file)[0].shape) == "f32[16,6]{0,1}"
    assert str(file.module.entry.root.shape) == "f32[4,6]{0,1}"


def test_several_operands() -> None:
    file = parse(
        "  p = f32[4] parameter(0)\n  q = s32[] parameter(1)\n"
        f"  ROOT r = (f32[4], s32[]) collective-permute(p, q), source_target_pairs={CHAIN}",
        header="replica_count=4",
    )
    apply(file.module, PASS)
    file = reread(file)
    assert [i.shape.without_layout() for i in gathers(file)] == ["f32[16]", "s32[4]"]
    assert file.module.entry.root.opcode == "tuple"


# -- guards ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("shape", "header", "pairs", "reason"),
    [
        ("f32[4]", "is_scheduled=false", "{{0,1}}", "the module does not say how many ranks it has"),
        ("f32[4]", "replica_count=4", "{{0,9}}", "pair 0,9 is outside the 4 ids of cross-replica pairs"),
        ("f32[0,4]", "replica_count=4", CHAIN, "it moves no elements"),
        ("f32[4,8]{1,0:T(4,8)}", "replica_count=4", CHAIN, "it has a layout or an extent that is a device's own"),
        (
            "u8[1073741824]",
            "replica_count=4",
            CHAIN,
            "an s32 index does not reach the end of what would be gathered",
        ),
    ],
)
def test_declined(shape: str, header: str, pairs: str, reason: str) -> None:
    result = apply(permute(pairs, shape, header).module, PASS)
    assert not result.changed
    assert reasons(result) == [reason]


def test_permutes_in_place_are_declined() -> None:
    file = parse(
        "  p = f32[4] parameter(0)\n  q = f32[8] parameter(1)\n  z = s32[] constant(0)\n  o = (s32[]) tuple(z)\n"
        f"  ROOT r = f32[8] collective-permute(p, q, o, o), source_target_pairs={CHAIN}, slice_sizes={{{{4}}}}",
        header="replica_count=4",
    )
    assert reasons(apply(file.module, PASS)) == ["it permutes in place, at offsets of larger buffers"]


# -- values ------------------------------------------------------------------------------------------------------------
def some_permutes(pairs: list[str], more: str = "") -> str:
    shapes = ["f32[4,6]", "f32[]", "bf16[3]{0}", "pred[2,2,2]", "c64[3,2]{0,1}", "s8[1,5]", "f16[7]", "f32[6,2]{0,1}"]
    lines = [f"  p{n}x = {s} parameter({n})" for n, s in enumerate(shapes)]
    names = []
    for n, p in enumerate(pairs):
        names.append(f"r{n}x")
        lines.append(f"  r{n}x = {shapes[n % 8]} collective-permute(p{n % 8}x), source_target_pairs={p}{more}")
    types = ", ".join(shapes[n % 8] for n in range(len(pairs)))
    return "\n".join([*lines, f"  ROOT t = ({types}) tuple({', '.join(names)})"])


def random_pairs(seed: int, ids: int) -> list[str]:
    """Partial permutations with cycles, chains, self-pairs; the first one is empty, the second complete."""
    draw = np.random.default_rng(seed)
    found = []
    for n in range(16):
        count = (0, ids)[n] if n < 2 else int(draw.integers(1, ids + 1))
        sources, targets = draw.permutation(ids)[:count], draw.permutation(ids)[:count]
        found.append("{" + ",".join(f"{{{s},{t}}}" for s, t in zip(sources, targets, strict=True)) + "}")
    return found


@pytest.mark.parametrize(
    ("header", "ids", "more"),
    [
        ("num_partitions=8", 8, ", channel_id=3"),
        ("replica_count=8", 8, ""),
        ("replica_count=2, num_partitions=4", 4, ", channel_id=3"),
        ("replica_count=4, num_partitions=2", 4, ""),
    ],
)
def test_values(header: str, ids: int, more: str) -> None:
    report = run_values(hlo(some_permutes(random_pairs(ids, ids), more), header=header), PASS + "{always=true}")
    assert report.result["exact"]
    assert report.after == {"all-gather": 16}


def test_values_in_a_loop_and_of_several_operands() -> None:
    loop = """
step {
  x = (s32[], f32[4], f32[]) parameter(0)
  n = s32[] get-tuple-element(x), index=0
  one = s32[] constant(1)
  k = s32[] add(n, one)
  v = f32[4] get-tuple-element(x), index=1
  w = f32[] get-tuple-element(x), index=2
  r = (f32[4], f32[]) collective-permute(v, w), channel_id=1, source_target_pairs={{0,1},{1,0},{2,2},{4,7},{7,5}}
  a = f32[4] get-tuple-element(r), index=0
  b = f32[] get-tuple-element(r), index=1
  s = f32[4] add(a, v)
  ROOT t = (s32[], f32[4], f32[]) tuple(k, s, b)
}
until {
  x = (s32[], f32[4], f32[]) parameter(0)
  n = s32[] get-tuple-element(x), index=0
  last = s32[] constant(2)
  ROOT l = pred[] compare(n, last), direction=LT
}"""
    text = hlo(
        "  p = f32[4] parameter(0)\n  q = f32[] parameter(1)\n  zero = s32[] constant(0)\n"
        "  t = (s32[], f32[4], f32[]) tuple(zero, p, q)\n"
        "  w = (s32[], f32[4], f32[]) while(t), condition=until, body=step\n"
        "  a = f32[4] get-tuple-element(w), index=1\n  b = f32[] get-tuple-element(w), index=2\n"
        "  ROOT r = (f32[4], f32[]) tuple(a, b)",
        loop,
    )
    report = run_values(text, f"{PASS},all-gather-combiner,convert-collectives-to-custom-call{{all_computations=true}}")
    assert report.result["exact"]
    assert report.before == {"collective-permute": 1}
