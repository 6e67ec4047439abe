"""`aws_neuron_decompose_int_all_reduce`: an integer all-reduce becomes an all-gather and local operations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crossrank.arrays import save_arrays
from tests.support import apply, find, hlo, opcodes, parse, reducer, reread, run_values

PASS = "aws_neuron_decompose_int_all_reduce"
FLAT = "channel_id=3, use_global_device_ids=true"
SCALAR = f"""
  x = s32[] parameter(0)
  ROOT r = s32[] all-reduce(x), {FLAT}, replica_groups={{{{0,1,2,3}},{{4,5,6,7}}}}, to_apply=add_s32
"""


def test_a_scalar_is_gathered_and_summed() -> None:
    file = parse(SCALAR, reducer("add", "s32"))
    result = apply(file.module, PASS)
    assert [r.reason for r in result.remarks] == ["→ %all-gather of 4 values and 3 local operations"]
    module = reread(file).module
    folded = ["slice", "slice", "add", "slice", "add", "slice", "add"]
    assert opcodes(module) == ["parameter", "reshape", "all-gather", *folded, "reshape"]
    gather = find(module, "all-gather")
    assert gather.shape.dims == (4,)
    assert (gather.proto.channel_id, gather.proto.use_global_device_ids) == (3, True)
    assert list(gather.proto.dimensions) == [0]
    assert not gather.called
    assert module.entry.root.shape.dims == ()
    assert not apply(module, PASS).changed


def test_two_lanes_are_the_form_of_the_source() -> None:
    file = parse(SCALAR, reducer("add", "s32"))
    apply(file.module, f"{PASS}{{pad_to_two=true}}")
    module = reread(file).module
    gather, root = find(module, "all-gather"), module.entry.root
    assert gather.shape.dims == (8,)
    assert gather.operands[0].opcode == "broadcast"
    lane = root.operands[0]
    assert (root.opcode, lane.opcode, lane.shape.dims) == ("reshape", "slice", (1,))
    assert lane.operands[0].opcode == "add"  # of the sum, not of what was gathered


def test_control_dependencies_stay() -> None:
    text = SCALAR.replace("ROOT r =", "r =").replace("to_apply=add_s32", "to_apply=add_s32, control-predecessors={x}")
    text += "  n = s32[] negate(x), control-predecessors={r}\n  ROOT out = (s32[], s32[]) tuple(r, n)\n"
    file = parse(text, reducer("add", "s32"))
    apply(file.module, PASS)
    module = reread(file).module
    assert [p.name for p in find(module, "all-gather").control_predecessors] == ["x"]
    assert [p.opcode for p in find(module, "n").control_predecessors] == ["reshape"]


@pytest.mark.parametrize(
    ("entry", "body", "header", "reason"),
    [
        (SCALAR.replace("{4,5,6,7}", "{4,5,6},{7}"), "add", "num_partitions=8", "group sizes not consistent"),
        (SCALAR.replace(",{4,5,6,7}", ""), "add", "num_partitions=8", "ids 4, 5, 6, 7 are in no group"),
        (SCALAR, "add", "is_scheduled=false", "the module does not say how many ranks it has"),
        (
            SCALAR.replace("add_s32", "subtract_s32"),
            "subtract",
            "num_partitions=8",
            "its reduction is none of add, multiply, maximum, minimum, and, or, xor",
        ),
        (
            SCALAR.replace("ROOT r = s32[] all-reduce(x)", "ROOT r = (s32[], s32[]) all-reduce(x, x)"),
            "add",
            "num_partitions=8",
            "it is variadic",
        ),
    ],
)
def test_what_is_declined(entry: str, body: str, header: str, reason: str) -> None:
    result = apply(parse(entry, reducer(body, "s32"), header=header).module, PASS)
    assert not result.changed
    assert [r.reason for r in result.remarks] == [reason]


def test_floats_predicates_and_larger_arrays_are_no_candidates() -> None:
    entry = """
  a = f32[] parameter(0)
  b = pred[] parameter(1)
  c = s32[4] parameter(2)
  ra = f32[] all-reduce(a), replica_groups={}, to_apply=add_f32
  rb = pred[] all-reduce(b), replica_groups={}, to_apply=or_pred
  rc = s32[4] all-reduce(c), replica_groups={}, to_apply=add_s32
  ROOT out = (f32[], pred[], s32[4]) tuple(ra, rb, rc)"""
    file = parse(entry, reducer(), reducer("or", "pred"), reducer("add", "s32"), header="replica_count=8")
    result = apply(file.module, PASS)
    assert not result.changed
    assert not result.remarks
    assert apply(file.module, f"{PASS}{{any_shape=true}}").changed
    assert opcodes(file.module).count("all-gather") == 1


OPS = ("add", "multiply", "maximum", "minimum", "and", "or", "xor")
TYPES = ("s32", "u32", "s64", "u8", "s16")


def _every_op(dims: str, groups: str, dtype: str, parameter: int) -> tuple[str, list[str]]:
    lines = [f"  x{parameter} = {dtype}[{dims}] parameter({parameter})"]
    names = []
    for op in OPS:
        names.append(f"{op}.{parameter}")
        lines.append(f"  {op}.{parameter} = {dtype}[{dims}] all-reduce(x{parameter}), {groups}, to_apply={op}_{dtype}")
    return "\n".join(lines), names


def _module(cases: list[tuple[str, str, str]], header: str) -> str:
    parts, names, types = [], [], []
    for n, (dims, groups, dtype) in enumerate(cases):
        text, made = _every_op(dims, groups, dtype, n)
        parts.append(text)
        names += made
        types += [f"{dtype}[{dims}]"] * len(made)
    root = f"  ROOT out = ({', '.join(types)}) tuple({', '.join(names)})"
    bodies = [reducer(op, dtype) for op in OPS for dtype in sorted({c[2] for c in cases})]
    return hlo("\n".join([*parts, root]), *bodies, header=header)


@pytest.mark.parametrize("lanes", ["", "pad_to_two=true "])
def test_values_of_every_op_and_type(lanes: str, tmp_path: Path) -> None:
    forms = (f"{FLAT}, replica_groups=[2,4]<=[4,2]T(1,0)", f"{FLAT}, replica_groups={{{{7,6,5,4,3,2,1,0}}}}")
    dims = ("", "1,1", "3,2", "2,1,3", "")
    cases = [(d, forms[n % 2], dtype) for n, (d, dtype) in enumerate(zip(dims, TYPES, strict=True))]
    given = tmp_path / "in.npz"
    rng = np.random.default_rng(0)
    arrays = {}
    for n, (d, _, dtype) in enumerate(cases):
        kind = np.dtype({"s": "i", "u": "u"}[dtype[0]] + str(int(dtype[1:]) // 8))
        extents = [int(k) for k in d.split(",") if k]
        limits = np.iinfo(kind)
        arrays[f"p{n}"] = rng.integers(limits.min, limits.max, size=[8, *extents], dtype=kind, endpoint=True)
    save_arrays(given, arrays)
    text = _module(cases, "num_partitions=8")
    report = run_values(text, f"{PASS}{{{lanes}any_shape=true}}", inputs=str(given))
    assert report.result["exact"]
    assert report.after == {"all-gather": len(OPS) * len(cases)}


def test_values_of_every_group_mode() -> None:
    modes = (
        "replica_groups={{1,0}}",
        "replica_groups={}",
        "channel_id=1, replica_groups={{0},{1}}",
        "channel_id=2, replica_groups={{0,1}}",
        f"{FLAT}, replica_groups=mesh['a'=2,'b'=2,'c'=2] {{'a','c'}}",
    )
    text = _module([("", m, "s32") for m in modes], "replica_count=2, num_partitions=4")
    report = run_values(text, PASS)
    assert report.result["exact"]
    assert report.after == {"all-gather": len(OPS) * len(modes)}
