"""The combiners: fewer collectives, the same values, never a cycle."""

from __future__ import annotations

from collections import Counter
from itertools import islice, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossrank.errors import InputError
from crossrank.hlo.collectives import describe
from crossrank.hlo.io import ModuleFile
from crossrank.hlo.module import Instruction
from crossrank.passes import PassResult, parse_passes

from ...support import (
    apply,
    corpus_file,
    corpus_text,
    hlo,
    lines_run,
    needs_corpus,
    opcodes,
    parse,
    reducer,
    reread,
    run_values,
)

AR, RS, AG = "all-reduce-combiner", "reduce-scatter-combiner", "all-gather-combiner"
PAIRS = "replica_groups={{0,1},{2,3},{4,5},{6,7}}, use_global_device_ids=true"
REACHABLE = "Instruction is reachable."
COUNT = "Combined count threshold reached."
SIZE = "Combined size threshold exceeded."
CROWDED = "its computation has too many kinds of collectives to look at each kind alone"


def reduces(*lines: str, extra: tuple[str, ...] = ()) -> ModuleFile:
    """All-reduces of ``f32[4]``: each line is ``name operand [attributes]``."""
    body = ["  p = f32[4] parameter(0)", "  q = f32[4] parameter(1)"]
    names = []
    for n, line in enumerate(lines):
        name, operand, *rest = line.split(" ", 2)
        names.append(name)
        attributes = rest[0] if rest else f"{PAIRS}, to_apply=add_f32"
        body.append(f"  {name} = f32[4] all-reduce({operand}), channel_id={n + 1}, {attributes}")
    body.append(f"  ROOT t = ({', '.join('f32[4]' for _ in names)}) tuple({', '.join(names)})")
    return parse("\n".join(body), reducer(), reducer("maximum"), *extra)


def of_opcode(file: ModuleFile, opcode: str = "all-reduce") -> list[Instruction]:
    return [i for i in file.module.instructions() if i.opcode == opcode]


def declined(result: PassResult) -> list[tuple[str, str]]:
    return [(r.instruction, r.reason) for r in result.remarks if r.outcome == "declined"]


def combined(result: PassResult) -> list[str]:
    return [r.reason for r in result.remarks if r.outcome == "done"]


# -- the result --------------------------------------------------------------------------------------------------------
def test_two_become_one() -> None:
    metadata = 'metadata={op_name="grad" source_file="a.py" source_line=7}'
    file = reduces(f"a p {PAIRS}, to_apply=add_f32, {metadata}", "b q")
    result = apply(file.module, AR)
    assert result.changed
    assert combined(result) == ["combined with 1 more → %a.1: 2 arrays, 32 bytes"]
    file = reread(file)
    (one,) = of_opcode(file)
    assert one.shape.without_layout() == "(f32[4], f32[4])"
    assert [o.name for o in one.operands] == ["p", "q"]
    info = describe(one)
    assert info is not None
    assert info.channel_id == 1
    assert str(info.groups) == "{{0,1},{2,3},{4,5},{6,7}}"
    assert one.where == "a.py:7"
    parts = file.module.entry.root.operands
    assert [(p.opcode, p.proto.tuple_index) for p in parts] == [("get-tuple-element", 0), ("get-tuple-element", 1)]
    assert not apply(file.module, AR).changed


def test_one_alone_is_left_without_a_word() -> None:
    result = apply(reduces("a p").module, AR)
    assert not result.changed
    assert not result.remarks


def test_the_first_in_post_order_leads() -> None:
    late = parse(
        f"  p = f32[4] parameter(0)\n  b = f32[4] all-reduce(p), channel_id=9, {PAIRS}, to_apply=add_f32\n"
        f"  n = f32[4] negate(p)\n  a = f32[4] all-reduce(n), channel_id=3, {PAIRS}, to_apply=add_f32\n"
        "  ROOT t = (f32[4], f32[4]) tuple(b, a)",
        reducer(),
    )
    apply(late.module, AR)
    (one,) = of_opcode(late)
    assert [o.name for o in one.operands] == ["p", "n"]
    assert one.proto.channel_id == 9


def test_what_is_asked_for_twice_moves_once() -> None:
    file = reduces("a p", "b q", "c p")
    result = apply(file.module, AR)
    assert combined(result) == ["combined with 2 more → %a.1: 2 arrays, 32 bytes"]
    assert [p.proto.tuple_index for p in reread(file).module.entry.root.operands] == [0, 1, 0]


def test_frontend_attributes_that_all_members_have_stay() -> None:
    some = 'frontend_attributes={kind="grad",layer="%s"}'
    file = reduces(*(f"{n} {o} {PAIRS}, to_apply=add_f32, {some % n}" for n, o in (("a", "p"), ("b", "q"))))
    apply(file.module, AR)
    assert of_opcode(file)[0].frontend_attributes == {"kind": "grad"}


def test_sharding_goes_to_the_elements() -> None:
    file = reduces(*(f"{n} {o} {PAIRS}, to_apply=add_f32, sharding={{manual}}" for n, o in (("a", "p"), ("b", "q"))))
    apply(file.module, AR)
    file = reread(file)
    assert not of_opcode(file)[0].proto.HasField("sharding")
    assert all(p.proto.HasField("sharding") for p in file.module.entry.root.operands)


# -- dependence --------------------------------------------------------------------------------------------------------
def test_a_chain_stays_a_chain() -> None:
    result = apply(reduces("a p", "b a").module, AR)
    assert not result.changed
    assert declined(result) == [("%a", REACHABLE), ("%b", REACHABLE)]


def test_two_chains_of_two_become_two() -> None:
    file = reduces("a p", "b a", "c q", "d c")
    result = apply(file.module, AR)
    assert len(combined(result)) == 2
    assert not declined(result)
    first, second = of_opcode(reread(file))
    assert [len(i.operands) for i in (first, second)] == [2, 2]
    assert {o.operands[0] for o in second.operands} == {first}


def test_two_keys_that_cross_make_no_cycle() -> None:
    # a before x, y before b: joining both {a, b} and {x, y} would be a cycle
    other = f"{PAIRS}, to_apply=maximum_f32"
    file = reduces("a p", f"x a {other}", f"y q {other}", "b y")
    result = apply(file.module, AR)
    assert len(of_opcode(reread(file))) == 3
    assert len(combined(result)) == 1
    assert [reason for _, reason in declined(result)] == [REACHABLE, REACHABLE]


def test_control_dependencies_of_others_count() -> None:
    file = parse(
        f"  p = f32[4] parameter(0)\n  a = f32[4] all-reduce(p), channel_id=1, {PAIRS}, to_apply=add_f32\n"
        "  n = f32[4] negate(a)\n  k = f32[4] negate(p), control-predecessors={n}\n"
        f"  b = f32[4] all-reduce(k), channel_id=2, {PAIRS}, to_apply=add_f32\n"
        "  ROOT t = (f32[4], f32[4]) tuple(a, b)",
        reducer(),
    )
    assert not apply(file.module, AR).changed


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.booleans()), min_size=2, max_size=30))
def test_as_many_as_the_longest_chain(choices: list[tuple[int, int, bool]]) -> None:
    lines, names, depth = [], ["p"], {"p": 0}
    for n, (left, right, collective) in enumerate(choices):
        a, b = names[left % len(names)], names[right % len(names)]
        name = f"i{n}x"
        if collective:
            lines.append(f"  {name} = f32[4] all-reduce({a}), channel_id=1, {PAIRS}, to_apply=add_f32")
            depth[name] = depth[a] + 1
        else:
            lines.append(f"  {name} = f32[4] add({a}, {b})")
            depth[name] = max(depth[a], depth[b])
        names.append(name)
    everything = f"({', '.join('f32[4]' for _ in names)}) tuple({', '.join(names)})"
    file = parse("\n".join(["  p = f32[4] parameter(0)", *lines, f"  ROOT t = {everything}"]), reducer())
    result = apply(file.module, AR)
    file = reread(file)
    assert len(of_opcode(file)) == max(depth.values())
    assert result.changed == (sum(c for *_, c in choices) > max(depth.values()))
    assert not apply(file.module, AR).changed


def test_many_keys_share_a_walk() -> None:
    # 40 keys, each with two independent members: more than get a walk of their own
    lines = []
    for n, order in enumerate(islice(permutations(range(8)), 40)):
        groups = "{{" + ",".join(map(str, order)) + "}}"
        attributes = f"replica_groups={groups}, use_global_device_ids=true, to_apply=add_f32"
        lines += [f"a{n}x p {attributes}", f"b{n}x q {attributes}"]
    file = reduces(*lines)
    assert not declined(apply(file.module, AR))
    assert len(of_opcode(reread(file))) == 40
    chained = [line.replace(" q ", f" a{n // 2}x ") for n, line in enumerate(lines)]
    result = apply(reduces(*chained).module, AR)
    assert not result.changed
    assert Counter(reason for _, reason in declined(result)) == {REACHABLE: 64, CROWDED: 16}


# -- guards ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (f"{PAIRS}, to_apply=add_f32, control-predecessors={{q}}", "it has control dependencies"),
        (f"{PAIRS}, to_apply=odd", "reduction body is not a binary op over its two parameters"),
    ],
)
def test_left_out(other: str, reason: str) -> None:
    odd = (
        "odd {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  z = f32[] add(x, y)\n"
        "  ROOT w = f32[] negate(z)\n}"
    )
    file = reduces("a p", f"b q {other}", "c q", extra=(odd,))
    result = apply(file.module, AR)
    assert declined(result) == [("%b", reason)]
    assert sorted(len(i.operands) for i in of_opcode(reread(file))) == [1, 2]


@pytest.mark.parametrize(
    "other",
    [
        f"{PAIRS}, to_apply=maximum_f32",
        "replica_groups={{1,0},{2,3},{4,5},{6,7}}, use_global_device_ids=true, to_apply=add_f32",
        "replica_groups={{0,2},{1,3},{4,6},{5,7}}, use_global_device_ids=true, to_apply=add_f32",
        "replica_groups={}, to_apply=add_f32",
    ],
)
def test_what_differs_is_no_candidate(other: str) -> None:
    result = apply(reduces("a p", f"b q {other}").module, AR)
    assert not result.changed
    assert not result.remarks


@pytest.mark.parametrize(
    "same",
    [
        "[4,2]<=[8]",
        "mesh['x'=4,'y'=2] {'y'}",
        "{{6,7},{0,1},{2,3},{4,5}}",
    ],
)
def test_groups_are_lists_of_ranks(same: str) -> None:
    file = reduces("a p", f"b q replica_groups={same}, use_global_device_ids=true, to_apply=add_f32")
    assert apply(file.module, AR).changed


def test_empty_groups_are_everyone() -> None:
    lines = [
        f"  {n} = f32[4] all-reduce(p), replica_groups={groups}, to_apply=add_f32"
        for n, groups in (("a", "{}"), ("b", "{{0,1,2,3,4,5,6,7}}"), ("c", "{{7,6,5,4,3,2,1,0}}"))
    ]
    body = "\n".join(["  p = f32[4] parameter(0)", *lines, "  ROOT t = (f32[4], f32[4], f32[4]) tuple(a, b, c)"])
    file = parse(body, reducer(), header="replica_count=8")
    assert combined(apply(file.module, AR)) == ["combined with 1 more → %a.1: 1 arrays, 16 bytes"]
    unsaid = parse(body, reducer(), header="is_scheduled=false")
    assert not apply(unsaid.module, AR).changed  # everyone is as many as the file does not say


def test_a_mode_that_cannot_be_is_declined() -> None:
    file = reduces("a p", "b q")
    for i in of_opcode(file):
        i.edit().channel_id = 0  # XLA's parser refuses such text, but not such a message
    reason = "Invalid combination of has_channel_id and use_global_device_ids"
    assert declined(apply(file.module, AR)) == [("%a", reason), ("%b", reason)]


def test_groups_outside_of_the_ranks_are_declined() -> None:
    result = apply(
        reduces("a p", "b q replica_groups={{0,9}}, use_global_device_ids=true, to_apply=add_f32").module, AR
    )
    assert declined(result) == [("%b", "id 9 is outside the 8 ranks of flattened groups")]


def test_a_pinned_layout_switches_the_pass_off() -> None:
    file = reduces("a p", "b q", f"c q {PAIRS}, constrain_layout=true, to_apply=add_f32")
    result = apply(file.module, AR)
    assert not result.changed
    reason = "its layout is pinned (constrain_layout=true), so that no all-reduce of the module is combined"
    assert declined(result) == [("%c", reason)]


def test_a_layout_of_a_device_is_declined() -> None:
    file = parse(
        "  p = f32[4,8]{1,0:T(4,8)} parameter(0)\n"
        + "".join(
            f"  {n} = f32[4,8]{{1,0:T(4,8)}} all-reduce(p), {PAIRS}, channel_id=1, to_apply=add_f32\n" for n in "ab"
        )
        + "  ROOT t = (f32[4,8], f32[4,8]) tuple(a, b)",
        reducer(),
    )
    result = apply(file.module, AR)
    assert [reason for _, reason in declined(result)] == ["its layout is a device's, or its extents are dynamic"] * 2


def test_bodies_of_fusions_and_wrappers_are_left() -> None:
    wrapped = (
        f"body {{\n  x = f32[4] parameter(0)\n  a = f32[4] all-reduce(x), channel_id=1, {PAIRS}, to_apply=add_f32\n"
        f"  b = f32[4] all-reduce(x), channel_id=2, {PAIRS}, to_apply=add_f32\n"
        "  ROOT t = (f32[4], f32[4]) tuple(a, b)\n}"
    )
    file = parse(
        "  p = f32[4] parameter(0)\n  ROOT f = (f32[4], f32[4]) fusion(p), kind=kLoop, calls=body", reducer(), wrapped
    )
    result = apply(file.module, AR)
    assert not result.changed
    assert not result.remarks


# -- thresholds --------------------------------------------------------------------------------------------------------
def many(count: int) -> ModuleFile:
    lines = [
        f"  p{n}x = f32[4] parameter({n})\n  a{n}x = f32[4] all-reduce(p{n}x), channel_id=1, {PAIRS}, to_apply=add_f32"
        for n in range(count)
    ]
    names = ", ".join(f"a{n}x" for n in range(count))
    return parse("\n".join([*lines, f"  ROOT t = ({', '.join(['f32[4]'] * count)}) tuple({names})"]), reducer())


def sizes(file: ModuleFile) -> list[int]:
    return sorted(len(i.operands) for i in of_opcode(file))


def test_256_are_one_set_and_the_next_one_is_not() -> None:
    file = many(256)
    assert not declined(apply(file.module, AR))
    assert sizes(file) == [256]
    file = many(257)
    result = apply(file.module, AR)
    assert declined(result) == [("%a256x", COUNT)]
    assert sizes(file) == [1, 256]
    assert not apply(file.module, AR).changed


@pytest.mark.parametrize(
    ("options", "expected", "reasons"),
    [
        ("threshold_count=2", [1, 2, 2], [COUNT, COUNT]),
        ("threshold_count=1", [1, 1, 1, 1, 1], [COUNT] * 5),
        ("threshold_bytes=48", [2, 3], [SIZE]),
        ("threshold_bytes=47", [1, 2, 2], [SIZE, SIZE]),
        ("threshold_bytes=1", [1, 1, 1, 1, 1], [SIZE] * 5),
        ("threshold_count=0", [1, 1, 1, 1, 1], []),
        ("threshold_bytes=0", [1, 1, 1, 1, 1], []),
        ("threshold_bytes=-1", [1, 1, 1, 1, 1], []),
    ],
)
def test_thresholds(options: str, expected: list[int], reasons: list[str]) -> None:
    file = many(5)
    result = apply(file.module, f"{AR}{{{options}}}")
    assert sizes(file) == expected
    assert [reason for _, reason in declined(result)] == reasons
    assert result.changed == (len(expected) < 5)


# -- tuples ------------------------------------------------------------------------------------------------------------
VARIADIC = (
    "  p = f32[4] parameter(0)\n  q = f32[6] parameter(1)\n"
    f"  v = (f32[4], f32[6]) all-reduce(p, q), channel_id=1, {PAIRS}, to_apply=add_f32\n"
    "  v0 = f32[4] get-tuple-element(v), index=0\n"
    f"  n = f32[6] negate(q)\n  a = f32[6] all-reduce(n), channel_id=2, {PAIRS}, to_apply=add_f32\n"
    f"  w = (f32[4]) all-reduce(p), channel_id=3, {PAIRS}, to_apply=add_f32\n"
)


@pytest.mark.parametrize(
    ("root", "left"),
    [
        ("(f32[4], f32[6], (f32[4])) tuple(v0, a, w)", 1),
        ("((f32[4], f32[6]), f32[6], (f32[4]), f32[4]) tuple(v, a, w, v0)", 2),
    ],
)
def test_variadic_members_are_taken_in(root: str, left: int) -> None:
    file = parse(VARIADIC + f"  ROOT t = {root}", reducer())
    apply(file.module, AR)
    file = reread(file)
    (one,) = of_opcode(file)
    assert [o.name for o in one.operands] == ["p", "q", "n"]
    assert opcodes(file.module).count("tuple") == left + 1


def test_a_variadic_one_that_is_the_result() -> None:
    file = parse(
        "  p = f32[4] parameter(0)\n  n = f32[4] negate(p)\n"
        f"  a = f32[4] all-reduce(n), channel_id=2, {PAIRS}, to_apply=add_f32\n"
        f"  ROOT v = (f32[4], f32[4]) all-reduce(p, n), channel_id=1, {PAIRS}, to_apply=add_f32",
        reducer(),
    )
    assert apply(file.module, AR).changed
    assert reread(file).module.entry.root.opcode == "tuple"


# -- reduce-scatter and all-gather -------------------------------------------------------------------------------------
def two(opcode: str, a: str, b: str, attributes: tuple[str, str], result: tuple[str, str]) -> ModuleFile:
    body = "" if opcode == "all-gather" else ", to_apply=add_f32"
    return parse(
        f"  p = {a} parameter(0)\n  q = {b} parameter(1)\n"
        f"  a = {result[0]} {opcode}(p), channel_id=1, {PAIRS}, {attributes[0]}{body}\n"
        f"  b = {result[1]} {opcode}(q), channel_id=2, {PAIRS}, {attributes[1]}{body}\n"
        f"  ROOT t = ({result[0]}, {result[1]}) tuple(a, b)",
        *([] if opcode == "all-gather" else [reducer()]),
    )


def test_dimensions_are_part_of_the_key() -> None:
    for name, opcode, results in (
        (AG, "all-gather", ("f32[8,6]", "f32[8,4]")),
        (RS, "reduce-scatter", ("f32[2,6]", "f32[8,1]")),
    ):
        file = two(opcode, "f32[4,6]", "f32[8,2]", ("dimensions={0}", "dimensions={1}"), results)
        assert not apply(file.module, name).changed
        file = two(opcode, "f32[4,6]", "f32[8,2]", ("dimensions={0}", "dimensions={1}"), results)
        assert apply(file.module, name + "{combine_by_dim=false}").changed
        (one,) = of_opcode(reread(file), opcode)
        assert list(one.proto.dimensions) == [0]
        assert opcodes(file.module).count("transpose") == 2


def test_a_transposed_member_keeps_its_bytes_in_place() -> None:
    file = two(
        "all-gather", "f32[4,6]", "f32[8,2]{0,1}", ("dimensions={0}", "dimensions={1}"), ("f32[8,6]", "f32[8,4]{0,1}")
    )
    apply(file.module, AG + "{combine_by_dim=false}")
    (one,) = of_opcode(reread(file), "all-gather")
    assert str(one.shape) == "(f32[8,6]{1,0}, f32[4,8]{1,0})"
    assert [str(o.shape) for o in file.module.entry.root.operands] == ["f32[8,6]{1,0}", "f32[8,4]{0,1}"]


def test_the_most_frequent_dimension_unless_an_array_lacks_it() -> None:
    lines = [
        "  p = f32[4,6] parameter(0)\n  q = f32[3] parameter(1)",
        *(f"  {n} = f32[4,12] all-gather(p), channel_id=1, {PAIRS}, dimensions={{1}}" for n in "ab"),
        f"  c = f32[6] all-gather(q), channel_id=1, {PAIRS}, dimensions={{0}}",
        "  ROOT t = (f32[4,12], f32[4,12], f32[6]) tuple(a, b, c)",
    ]
    file = parse("\n".join(lines))
    apply(file.module, AG + "{combine_by_dim=false}")
    assert list(of_opcode(reread(file), "all-gather")[0].proto.dimensions) == [0]


def test_element_types_of_a_gather() -> None:
    def make() -> ModuleFile:
        return two("all-gather", "f32[4]", "bf16[4]", ("dimensions={0}",) * 2, ("f32[8]", "bf16[8]"))

    assert not apply(make().module, AG).changed
    file = make()
    assert apply(file.module, AG + "{combine_different_dtypes=true}").changed
    assert of_opcode(reread(file), "all-gather")[0].shape.without_layout() == "(f32[8], bf16[8])"


def test_a_reduction_that_is_none_of_the_known() -> None:
    lines = [
        "  p = f32[4] parameter(0)",
        *(
            f"  {n} = f32[2] reduce-scatter(p), channel_id=1, {PAIRS}, dimensions={{0}}, to_apply=power_f32"
            for n in "ab"
        ),
        "  ROOT t = (f32[2], f32[2]) tuple(a, b)",
    ]
    result = apply(parse("\n".join(lines), reducer("power")).module, RS)
    assert [reason for _, reason in declined(result)] == ["power is no reduction that is known"] * 2


def test_groups_of_tensor_parallelism() -> None:
    wide = "replica_groups={{0,2},{1,3},{4,6},{5,7}}, use_global_device_ids=true"

    def make(attributes: str) -> ModuleFile:
        return parse(
            "\n".join(
                [
                    "  p = f32[4] parameter(0)\n  q = f32[4] parameter(1)",
                    f"  r = f32[2] reduce-scatter(p), channel_id=9, {PAIRS}, dimensions={{0}}, to_apply=add_f32"
                    + attributes,
                    *(
                        f"  {n} = f32[8] all-gather({o}), channel_id=1, {PAIRS}, dimensions={{0}}"
                        for n, o in ("ap", "bq")
                    ),
                    *(
                        f"  {n} = f32[8] all-gather({o}), channel_id=1, {wide}, dimensions={{0}}"
                        for n, o in ("cp", "dq")
                    ),
                    "  ROOT t = (f32[2], f32[8], f32[8], f32[8], f32[8]) tuple(r, a, b, c, d)",
                ]
            ),
            reducer(),
        )

    tp = ', frontend_attributes={collective_type="tp_reduce_scatter"}'
    for attributes, options, left in (
        ("", "", 2),
        (tp, "", 3),
        (tp, "{tp_groups=off}", 2),
        ("", "{tp_groups=first}", 3),
    ):
        file = make(attributes)
        result = apply(file.module, AG + options)
        assert len(of_opcode(file, "all-gather")) == left
        reason = "its groups are not those of tensor parallelism"
        assert declined(result) == ([("%c", reason), ("%d", reason)] if left == 3 else [])
    with pytest.raises(InputError, match="tp_groups is marked or first or off, not some"):
        parse_passes(AG + "{tp_groups=some}")


# -- loops -------------------------------------------------------------------------------------------------------------
LOOP = f"""
inner {{
  x = f32[4] parameter(0)
  c = f32[4] all-reduce(x), channel_id=3, {PAIRS}, to_apply=add_f32
  m = f32[4] negate(x)
  d = f32[4] all-reduce(m), channel_id=4, {PAIRS}, to_apply=add_f32
  ROOT s = f32[4] add(c, d)
}}
step {{
  x = (s32[], f32[4]) parameter(0)
  n = s32[] get-tuple-element(x), index=0
  one = s32[] constant(1)
  k = s32[] add(n, one)
  v = f32[4] get-tuple-element(x), index=1
  m = f32[4] negate(v)
  a = f32[4] all-reduce(v), channel_id=1, {PAIRS}, to_apply=add_f32
  b = f32[4] all-reduce(m), channel_id=2, {PAIRS}, to_apply=maximum_f32
  e = f32[4] all-reduce(m), channel_id=2, {PAIRS}, to_apply=add_f32
  i = f32[4] call(a), to_apply=inner
  w = f32[4] add(i, b)
  z = f32[4] multiply(w, e)
  ROOT t = (s32[], f32[4]) tuple(k, z)
}}
until {{
  x = (s32[], f32[4]) parameter(0)
  n = s32[] get-tuple-element(x), index=0
  last = s32[] constant(3)
  ROOT l = pred[] compare(n, last), direction=LT
}}
"""
LOOPED = (
    "  p = f32[4] parameter(0)\n  zero = s32[] constant(0)\n  t = (s32[], f32[4]) tuple(zero, p)\n"
    "  w = (s32[], f32[4]) while(t), condition=until, body=step\n"
    "  ROOT r = f32[4] get-tuple-element(w), index=1"
)


def test_bodies_of_loops_and_what_they_call() -> None:
    file = parse(LOOPED, reducer(), reducer("maximum"), LOOP)
    assert not apply(file.module, AR + "{skip_while_loops=true}").changed
    assert len(combined(apply(file.module, AR))) == 2


# -- values ------------------------------------------------------------------------------------------------------------
def test_values_in_loops_and_tuples() -> None:
    report = run_values(hlo(LOOPED, reducer(), reducer("maximum"), LOOP), AR)
    assert report.result["exact"]
    assert report.before["all-reduce"] == 5
    assert report.after["all-reduce"] == 3
    root = "  ROOT t = (f32[4], f32[6], f32[4]) tuple(v0, a, w0)"
    report = run_values(hlo(VARIADIC + "  w0 = f32[4] get-tuple-element(w), index=0\n" + root, reducer()), AR)
    assert report.result["exact"]


FORMS = (
    (
        "replica_groups={{0,1},{2,3},{4,5},{6,7}}, use_global_device_ids=true, channel_id=1",
        "replica_groups=[4,2]<=[8], use_global_device_ids=true, channel_id=2",
        "replica_groups=mesh['x'=4,'y'=2] {'y'}, use_global_device_ids=true, channel_id=3",
    ),
    (
        "replica_groups={{6,2},{0,4},{1,5},{3,7}}, use_global_device_ids=true, channel_id=1",
        "replica_groups={{0,4},{6,2},{3,7},{1,5}}, use_global_device_ids=true, channel_id=2",
    ),
    ("replica_groups={{0,1},{3,2}}", "replica_groups={{3,2},{0,1}}"),
)


def random_module(seed: int) -> str:
    """A random graph of f32, s32 and bf16 arrays ``[8,4]``, all of them outputs, over 4 replicas of 2 partitions."""
    draw = np.random.default_rng(seed)
    dtypes = ("f32", "s32", "bf16")
    lines = [f"  p{n}x = {t}[8,4] parameter({n})" for n, t in enumerate(dtypes)]
    values = {t: [f"p{n}x"] for n, t in enumerate(dtypes)}
    for n in range(60):
        t = dtypes[draw.integers(3)]
        name, a, b = f"i{n}x", *draw.choice(values[t][-6:], 2)
        some = FORMS[draw.integers(3)]
        groups, op, dim = some[draw.integers(len(some))], ("add", "maximum")[draw.integers(2)], int(draw.integers(2))
        halves = "[4,4]" if dim == 0 else "[8,2]"
        match draw.integers(5):
            case 0 | 1:
                lines.append(f"  {name} = {t}[8,4] all-reduce({a}), {groups}, to_apply={op}_{t}")
            case 2:
                attributes = f"{groups}, dimensions={{{dim}}}, to_apply={op}_{t}"
                lines.append(f"  s{name} = {t}{halves} reduce-scatter({a}), {attributes}")
                lines.append(f"  {name} = {t}[8,4] concatenate(s{name}, s{name}), dimensions={{{dim}}}")
            case 3:
                part, wide = ("[0:8], [2:6]", "[8,8]") if dim else ("[5:13], [0:4]", "[16,4]")
                lines.append(f"  g{name} = {t}{wide} all-gather({a}), {groups}, dimensions={{{dim}}}")
                lines.append(f"  {name} = {t}[8,4] slice(g{name}), slice={{{part}}}")
            case _:
                lines.append(f"  {name} = {t}[8,4] {'maximum' if n % 3 else 'add'}({a}, {b})")
        values[t].append(name)
    outputs = [(t, v) for t in dtypes for v in values[t][1:]]
    types = ", ".join(f"{t}[8,4]" for t, _ in outputs)
    lines.append(f"  ROOT t = ({types}) tuple({', '.join(v for _, v in outputs)})")
    bodies = [reducer(op, t) for t in dtypes for op in ("add", "maximum")]
    return hlo("\n".join(lines), *bodies, header="replica_count=4, num_partitions=2")


@pytest.mark.parametrize("seed", range(3))
def test_values_of_random_modules(seed: int) -> None:
    report = run_values(random_module(seed), f"{AR},{RS},{AG}{{combine_different_dtypes=true}}")
    assert report.result["exact"]
    assert sum(report.after.values()) < sum(report.before.values())


def test_values_across_dimensions() -> None:
    options = "{combine_by_dim=false}"
    report = run_values(random_module(7), f"{RS}{options},{AG}{options}")
    assert report.result["exact"]
    assert sum(report.after.values()) < sum(report.before.values())


def test_converted_afterwards() -> None:
    convert = "convert-collectives-to-custom-call{all_computations=true}"
    report = run_values(random_module(11), f"{AR},{RS},{AG},{convert}")
    assert report.result["exact"]


# -- real modules ------------------------------------------------------------------------------------------------------
@needs_corpus
def test_many_small_gradients_are_one() -> None:
    file = corpus_file("psum_many_small.hlo")
    apply(file.module, "inline-calls")
    assert combined(apply(file.module, AR)) == ["combined with 59 more → %psum_invariant.2: 60 arrays, 5928 bytes"]
    assert len(of_opcode(reread(file))) == 1


@needs_corpus
@pytest.mark.parametrize(
    ("name", "passes", "before", "after"),
    [
        ("big_fsdp_tp_24l.hlo.gz", f"{AR},{AG}", (782, 270), (104, 6)),
        ("synthetic_60k.hlo.gz", AR, (3501, 0), (1410, 0)),
    ],
)
def test_large_modules(name: str, passes: str, before: tuple[int, int], after: tuple[int, int]) -> None:
    file = corpus_file(name)
    apply(file.module, "inline-calls")
    counts = Counter(opcodes(file.module))
    assert (counts["all-reduce"], counts["all-gather"]) == before
    for one in passes.split(","):
        # a fixed number of steps for each instruction, however many there are
        count = sum(len(c.post_order()) for c in file.module.computations)
        assert lines_run(lambda one=one: apply(file.module, one)) < 100 * count
    counts = Counter(opcodes(reread(file).module))
    assert (counts["all-reduce"], counts["all-gather"]) == after


@needs_corpus
def test_gathers_of_arrays_in_several_layouts() -> None:
    # XLA:CPU itself mixes up the bytes of one of these variadic gathers; a run splits them
    report = run_values(corpus_text("ranks16_fsdp_tp.hlo").decode(), f"inline-calls,{AR},{AG}")
    assert report.result["exact"]
    assert (report.before["all-gather"], report.after["all-gather"]) == (16, 7)
