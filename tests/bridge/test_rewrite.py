"""Modules in the middle of XLA's compiler: what becomes of their collectives, layouts and buffers."""

from __future__ import annotations

import pytest

from crossrank.bridge.rewrite import Rewritten, read, rewrite
from crossrank.hlo.config import ModuleConfig
from crossrank.hlo.execute.backends import KernelBackend
from crossrank.hlo.ffi.native import Native
from crossrank.hlo.module import Instruction, Module
from crossrank.passes import parse_passes
from tests.support import find, parse, reducer

GROUPS = "channel_id=1, replica_groups={{0,1,2,3},{4,5,6,7}}, use_global_device_ids=true"


def shown(entry: str, *computations: str, replicas: int = 1, partitions: int = 8) -> Module:
    """A module for so many replicas and partitions."""
    module = parse(entry, *computations).module
    module.config = ModuleConfig().with_fields(replica_count=replicas, num_partitions=partitions)
    return module


def rewritten(module: Module, passes: str = "") -> tuple[Rewritten, Module]:
    made = rewrite(module, parse_passes(passes), KernelBackend(Native.load()))
    return made, module


def calls(module: Module) -> list[Instruction]:
    return [i for i in module.instructions() if i.opcode == "custom-call"]


def opcodes(module: Module) -> list[str]:
    return [i.opcode for i in module.entry.post_order()]


def test_a_collective_becomes_a_call_with_the_rank_behind_its_data() -> None:
    text = f"p = f32[16,8]{{1,0}} parameter(0)\nROOT r = f32[16,8]{{1,0}} all-reduce(p), {GROUPS}, to_apply=add_f32"
    made, module = rewritten(shown(text, reducer()))
    assert [str(g.kind) for g in made.given] == ["all-reduce"]
    assert (made.ranks, made.left) == (8, [])
    (call,) = calls(module)
    assert call.is_root
    assert [o.opcode for o in call.operands] == ["parameter", "partition-id"]
    assert made.data is not None


@pytest.mark.parametrize(
    ("replicas", "partitions", "rank"),
    [(1, 8, ["partition-id"]), (8, 1, ["replica-id"]), (2, 4, ["replica-id", "constant", "multiply", "partition-id"])],
)
def test_the_rank_is_of_replicas_and_partitions(replicas: int, partitions: int, rank: list[str]) -> None:
    text = "p = f32[8]{0} parameter(0)\nROOT r = f32[8]{0} all-reduce(p), replica_groups={}, to_apply=add_f32"
    _, module = rewritten(shown(text, reducer(), replicas=replicas, partitions=partitions))
    assert set(rank) <= set(opcodes(module))
    (call,) = calls(module)
    assert call.operands[1].opcode == (rank[0] if len(rank) == 1 else "add")


def test_a_collective_in_column_major_order_is_said_as_it_lies() -> None:
    text = f"""
    p = f32[16,8]{{0,1}} parameter(0)
    g = f32[16,32]{{0,1}} all-gather(p), {GROUPS}, dimensions={{1}}
    ROOT c = f32[16,32]{{1,0}} copy(g)"""
    _, module = rewritten(shown(text))
    (call,) = calls(module)
    assert str(call.shape) == "f32[32,16]{1,0}"  # along dimension 0, as it lies
    assert [str(o.shape) for o in call.operands] == ["f32[8,16]{1,0}", "u32[]"]
    assert sorted(opcodes(module)) == ["bitcast", "bitcast", "copy", "custom-call", "parameter", "partition-id"]
    assert str(find(module, "c").operands[0].shape) == "f32[16,32]{0,1}"


def test_an_operand_that_lies_otherwise_than_its_result_is_copied() -> None:
    text = f"""
    p = f32[16,8]{{0,1}} parameter(0)
    ROOT r = f32[4,8]{{1,0}} reduce-scatter(p), {GROUPS}, dimensions={{0}}, to_apply=add_f32"""
    _, module = rewritten(shown(text, reducer()))
    (call,) = calls(module)
    assert str(call.operands[0].shape) == "f32[16,8]{1,0}"
    assert [call.operands[0].opcode, call.is_root] == ["copy", True]


def test_extents_of_one_have_no_order() -> None:
    text = f"p = f32[1,8]{{0,1}} parameter(0)\nROOT r = f32[1,8]{{1,0}} all-reduce(p), {GROUPS}, to_apply=add_f32"
    _, module = rewritten(shown(text, reducer()))
    assert sorted(opcodes(module)) == ["bitcast", "custom-call", "parameter", "partition-id"]


def test_each_operand_of_a_tuple_keeps_its_order() -> None:
    text = f"""
    p = f32[16,8]{{0,1}} parameter(0)
    q = f32[4]{{0}} parameter(1)
    r = (f32[16,8]{{0,1}}, f32[4]{{0}}) all-reduce(p, q), {GROUPS}, to_apply=add_f32
    a = f32[16,8]{{0,1}} get-tuple-element(r), index=0
    ROOT b = f32[4]{{0}} get-tuple-element(r), index=1"""
    _, module = rewritten(shown(text, reducer()))
    (call,) = calls(module)
    assert str(call.shape) == "(f32[8,16]{1,0}, f32[4]{0})"
    assert module.entry.root.opcode == "get-tuple-element"


def test_a_tuple_as_the_result_keeps_its_shape() -> None:
    shape = "(f32[16,8]{0,1}, f32[4]{0})"
    text = f"""
    p = f32[16,8]{{0,1}} parameter(0)
    q = f32[4]{{0}} parameter(1)
    ROOT r = {shape} all-reduce(p, q), {GROUPS}, to_apply=add_f32"""
    _, module = rewritten(shown(text, reducer()))
    assert (module.entry.root.opcode, str(module.entry.root.shape)) == ("tuple", shape)


def test_parts_of_an_all_to_all_share_one_order() -> None:
    parts = ", ".join(["f32[4,2]{0,1}", "f32[4,2]{1,0}"])
    text = f"""
    p = f32[4,2]{{1,0}} parameter(0)
    q = f32[4,2]{{0,1}} parameter(1)
    ROOT r = ({parts}) all-to-all(p, q), channel_id=1, replica_groups={{{{0,1}},{{2,3}},{{4,5}},{{6,7}}}}"""
    _, module = rewritten(shown(text))
    (call,) = calls(module)
    assert str(call.shape) == "(f32[2,4]{1,0}, f32[2,4]{1,0})"
    assert str(module.entry.root.shape) == f"({parts})"


def test_a_body_that_runs_from_two_places_is_two_bodies() -> None:
    body = f"""
body {{
  b = f32[8] parameter(0)
  ROOT br = f32[8] all-reduce(b), {GROUPS}, to_apply=add_f32
}}"""
    text = """
    p = f32[8] parameter(0)
    x = f32[8] call(p), to_apply=body
    ROOT y = f32[8] call(x), to_apply=body"""
    made, module = rewritten(shown(text, reducer(), body))
    assert len({g.number for g in made.given}) == len(calls(module)) == 2


IN_PLACE: list[tuple[str, str, bool]] = [
    ("fresh and used up", "e = f32[8] exponential(p)\nr = {ar}(e){rest}\nROOT n = f32[8] negate(r)", True),
    ("behind a bitcast", "e = f32[2,4] exponential(q)\nb = f32[8] bitcast(e)\nr = {ar}(b){rest}\n"
     "ROOT n = f32[8] negate(r)", True),
    ("a parameter", "r = {ar}(p){rest}\nROOT n = f32[8] negate(r)", False),
    ("read twice", "e = f32[8] exponential(p)\nr = {ar}(e){rest}\nROOT n = f32[8] add(r, e)", False),
    ("the result", "e = f32[8] exponential(p)\nROOT r = {ar}(e){rest}", False),
    ("handed on", "e = f32[8] exponential(p)\nr = {ar}(e){rest}\nROOT t = (f32[8]) tuple(r)", False),
    ("written into", "e = f32[8] exponential(p)\nr = {ar}(e){rest}\nz = s32[] constant(0)\nu = f32[1] constant({{1}})\n"
     "ROOT d = f32[8] dynamic-update-slice(r, u, z)", False),
    ("an update", "z = s32[] constant(0)\nu = f32[1] constant({{1}})\nd = f32[8] dynamic-update-slice(p, u, z)\n"
     "r = {ar}(d){rest}\nROOT n = f32[8] negate(r)", False),
]  # fmt: skip


@pytest.mark.parametrize(("entry", "in_place"), [case[1:] for case in IN_PLACE], ids=[case[0] for case in IN_PLACE])
def test_results_take_buffers_that_are_nobody_elses(entry: str, in_place: bool) -> None:
    body = entry.format(ar="f32[8] all-reduce", rest=f", {GROUPS}, to_apply=add_f32")
    _, module = rewritten(shown(f"p = f32[8] parameter(0)\nq = f32[2,4] parameter(1)\n{body}", reducer()))
    (call,) = calls(module)
    assert bool(call.proto.output_operand_aliasing) is in_place


ODD = """
odd {
  oa = f32[] parameter(0)
  ob = f32[] parameter(1)
  ROOT oc = f32[] subtract(oa, ob)
}"""


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (f"ROOT r = f32[8] all-reduce(p), {GROUPS}, to_apply=odd", "no kernel reduces with subtract"),
        (
            f"s = f32[8] all-reduce-start(p), {GROUPS}, to_apply=add_f32\nROOT r = f32[8] all-reduce-done(s)",
            "it is asynchronous",
        ),
        (
            f"c = s4[8] convert(p)\nROOT r = s4[32] all-gather(c), {GROUPS}, dimensions={{0}}",
            "no kernel for all-gather",
        ),
    ],
    ids=["reduction", "asynchronous", "type"],
)
def test_what_is_left_says_why(entry: str, reason: str) -> None:
    made, module = rewritten(shown(f"p = f32[8] parameter(0)\n{entry}", reducer(), ODD))
    assert not made.given
    assert made.data is None
    assert [reason in x.reason for x in made.left] == [True]
    assert not calls(module)


def test_a_module_that_does_not_say_its_ranks_is_left() -> None:
    file = parse("p = f32[8] parameter(0)\nROOT r = f32[8] all-reduce(p), to_apply=add_f32", reducer())
    made, _ = rewritten(read(file.module.serialize()))
    assert [x.reason for x in made.left] == ["the module does not say how many ranks it has"]


def test_passes_run_before_and_what_they_convert_is_served_too() -> None:
    text = f"p = f32[16,8]{{0,1}} parameter(0)\nROOT r = f32[16,32]{{0,1}} all-gather(p), {GROUPS}, dimensions={{1}}"
    made, module = rewritten(shown(text), "convert-collectives-to-custom-call")
    assert [p.changed for p in made.passes] == [True]
    assert len(made.given) == 1
    (call,) = calls(module)
    assert call.proto.custom_call_target == "crossrank.collective"


def test_the_number_of_ranks_stands_in_the_device_assignment() -> None:
    module = parse("ROOT p = f32[] parameter(0)").module
    assert not read(module.serialize()).config.says_ranks
    module.proto.device_assignment.replica_count = 2
    module.proto.device_assignment.computation_count = 3
    assert read(module.serialize()).world == 6
