"""The stream injector and its checker."""

from __future__ import annotations

import pytest

from crossrank.errors import InputError
from crossrank.hlo.io import ModuleFile
from crossrank.passes import PassResult

from ...support import apply, find, hlo, parse, reducer, reread, run_values

INJECTOR, CHECKER = "aws_neuron_collective_stream_id_injector", "collective-stream-id-checker"
CONVERT = "convert-collectives-to-custom-call{all_computations=true}"
GLOBAL = "use_global_device_ids=true"
TP = f"replica_groups={{{{0,1}},{{2,3}},{{4,5}},{{6,7}}}}, {GLOBAL}"
TP_IOTA = f"replica_groups=[4,2]<=[8], {GLOBAL}"
FSDP = f"replica_groups=[2,4]<=[4,2]T(1,0), {GLOBAL}"
OTHER = f"replica_groups={{{{0,3}},{{1,2}},{{4,7}},{{5,6}}}}, {GLOBAL}"


def gather(name: str, groups: str, kind: str = "", size: int = 2, dtype: str = "f32", operand: str = "p") -> str:
    attributes = f', frontend_attributes={{collective_type="{kind}"}}' if kind else ""
    return (
        f"  {name} = {dtype}[{8 * size}] all-gather({operand}), channel_id=1, {groups}, dimensions={{0}}{attributes}\n"
    )


def module(*lines: str, dtype: str = "f32", extra: tuple[str, ...] = ()) -> ModuleFile:
    names = [line.split()[0] for line in lines]
    shapes = [line.split()[2] for line in lines]
    root = f"  ROOT t = ({', '.join(shapes)}) tuple({', '.join(names)})"
    return parse(
        f"  p = {dtype}[8] parameter(0)\n  q = s32[8] parameter(1)\n" + "".join(lines) + root, reducer(), *extra
    )


def streams(file: ModuleFile) -> dict[str, str]:
    found = {i.name: i.frontend_attributes.get("stream_id") for i in file.module.instructions()}
    return {name: stream for name, stream in found.items() if stream is not None}


def said(result: PassResult) -> list[str]:
    return [f"{r.outcome} {r.instruction}: {r.reason}" for r in result.remarks]


@pytest.mark.parametrize("converted", [False, True])
def test_tensor_groups_get_0_and_sharded_data_groups_1(converted: bool) -> None:
    file = module(
        gather("a", TP, "tp_all_gather"),
        gather("b", FSDP, "fsdp_all_gather", 4),
        gather("c", TP_IOTA),
        gather("d", FSDP, "", 4),
        gather("e", OTHER),
        # what it says itself does not count, its groups do
        gather("f", FSDP, "tp_reduce_scatter", 4),
        "  g = f32[8] all-reduce(p), replica_groups={}, to_apply=add_f32\n",
    )
    if converted:
        apply(file.module, CONVERT)
    result = apply(file.module, INJECTOR)
    assert result.changed
    file = reread(file)
    assert streams(file) == {"a": "0", "b": "1", "c": "0", "d": "1", "e": "0", "f": "1", "g": "0"}
    assert not apply(file.module, INJECTOR).changed


def test_without_an_exemplar_all_are_0_and_that_is_a_change() -> None:
    file = module(gather("a", TP), gather("b", FSDP, "", 4))
    result = apply(file.module, INJECTOR)
    assert result.changed
    assert said(result) == ["done %a: stream_id none → 0", "done %b: stream_id none → 0"]


def test_groups_of_both_are_0() -> None:
    file = module(gather("a", TP, "tp_all_gather"), gather("b", TP, "fsdp_all_gather"))
    apply(file.module, INJECTOR)
    assert set(streams(file).values()) == {"0"}


def test_collectives_of_integers_are_no_exemplars() -> None:
    file = module(
        gather("a", TP, "fsdp_all_gather", dtype="s32", operand="q"),
        gather("b", FSDP, "fsdp_all_gather", 4),
        gather("c", TP),
    )
    apply(file.module, INJECTOR)
    assert streams(file) == {"a": "0", "b": "1", "c": "0"}


def test_the_first_of_a_computation_and_the_last_computation() -> None:
    body = (
        "body {\n  p = f32[8] parameter(0)\n"
        + gather("x", OTHER, "fsdp_all_gather")
        + gather("y", TP, "fsdp_all_gather")
        + "  ROOT z = f32[16] add(x, y)\n}"
    )
    call = "  w = f32[16] call(p), to_apply=body\n"
    file = module(call, gather("a", OTHER), gather("b", TP), extra=(body,))
    apply(file.module, INJECTOR)
    assert streams(file) == {"x": "1", "y": "0", "a": "1", "b": "0"}
    file = module(call, gather("a", OTHER), gather("b", TP, "fsdp_reduce_scatter"), extra=(body,))
    apply(file.module, INJECTOR)
    assert streams(file) == {"x": "0", "y": "1", "a": "0", "b": "1"}


def test_another_stream_is_replaced() -> None:
    file = module(gather("a", TP))
    find(file.module, "a").set_frontend_attribute("stream_id", "7")
    assert said(apply(file.module, INJECTOR)) == ["done %a: stream_id 7 → 0"]


def test_starts_and_wrapped_ones_have_streams_permutes_and_sends_none() -> None:
    wrapped = (
        "wrapped {\n  x = f32[8] parameter(0)\n  ROOT r = f32[4] reduce-scatter(x), "
        f"channel_id=1, {TP}, dimensions={{0}}, to_apply=add_f32\n}}"
    )
    file = parse(
        "  p = f32[8] parameter(0)\n  k = token[] after-all()\n"
        f"  s = f32[8] all-reduce-start(p), replica_groups={{}}, channel_id=1, {GLOBAL}, to_apply=add_f32\n"
        "  d = f32[8] all-reduce-done(s)\n"
        "  w = ((f32[8]), f32[4]) async-start(p), calls=wrapped\n  e = f32[4] async-done(w)\n"
        "  m = f32[8] collective-permute(d), channel_id=1, source_target_pairs={{0,1}}\n"
        "  b = f32[8] collective-broadcast(m), channel_id=1, replica_groups={{0,1}}\n"
        "  z = (f32[8], u32[], token[]) send(b, k), channel_id=2\n  y = token[] send-done(z), channel_id=2\n"
        "  ROOT t = (f32[8], f32[4], token[]) tuple(b, e, y)",
        reducer(),
        wrapped,
    )
    apply(file.module, INJECTOR)
    assert streams(file) == {"s": "0", "r": "0", "b": "0"}
    # the checker looks at what either predicate takes for a collective
    assert sorted(said(apply(file.module, CHECKER))) == [
        "declined %m: it has no stream_id",
        "declined %z: it has no stream_id",
        "done %b: it has stream_id 0",
        "done %r: it has stream_id 0",
        "done %s: it has stream_id 0",
    ]


def test_the_checker_changes_nothing() -> None:
    file = module(gather("a", TP), "  b = f32[8] negate(p)\n")
    result = apply(file.module, CHECKER)
    assert not result.changed
    assert not file.module.modified
    assert said(result) == ["declined %a: it has no stream_id"]


def test_groups_that_cannot_be_are_an_input_error() -> None:
    with pytest.raises(InputError, match="%a: id 9 is outside the 8 ranks"):
        apply(module(gather("a", f"replica_groups={{{{0,9}}}}, {GLOBAL}")).module, INJECTOR)


def test_values() -> None:
    lines = [gather("a", TP, "tp_all_gather"), gather("b", FSDP, "fsdp_all_gather", 4), gather("c", TP_IOTA)]
    root = "  ROOT t = (f32[16], f32[32], f32[16]) tuple(a, b, c)"
    report = run_values(hlo("  p = f32[8] parameter(0)\n" + "".join(lines) + root), f"{INJECTOR},{CONVERT}")
    assert report.result["exact"]
