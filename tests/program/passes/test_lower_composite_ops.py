"""The statements that stand for each collective of a kernel, and what is refused."""

from __future__ import annotations

from collections import Counter

import pytest

from crossrank.errors import InputError
from crossrank.passes import parse_passes
from crossrank.program.passes.lower_composite_ops import LowerCompositeOps
from crossrank.program.program import Program, read_program
from crossrank.remarks import Remarks

DATA, ROWS, STAGE = (f"!program.dist_tensor<{s}, f32>" for s in ("[4, 70]", "[8, 5]", "[4, 70]"))
OWN, ONE = "!program.tensor<[4, 70], f32>", "!program.tensor<[1, 70], f32>"
CELLS, RING = "!program.dist_tensor<[4, 1], s32>", "!program.dist_tensor<[6, 4], s32>"
PARAMS = {
    "data": DATA,
    "half": "!program.dist_tensor<[4, 70], f16>",
    "long": '!program.dist_tensor<["M", 3], f32>',
    "own": OWN,
    "one": ONE,
    "cells": CELLS,
    "row": "!program.dist_tensor<[4], s32>",
    "ring": RING,
    "bad_ring": "!program.dist_tensor<[5, 4], s32>",
    "from": "!program.tensor<[8, 5], f32>",
    "to": ROWS,
    "counts": "!program.tensor<[4], s32>",
    "shown": "!program.dist_tensor<[4, 1], s32>",
    "got": "!program.dist_tensor<[4, 1], s32>",
    "index": "!program.tensor<[8, 1], s32>",
}


def program(body: str, *, kind: str = "InCore") -> Program:
    params = ", ".join(f"%{name} : {type}" for name, type in PARAMS.items())
    attributes = f'{{program.type = "{kind}"}}'
    return read_program(f"func.func @k({params}) attributes {attributes} {{\n{body}\nfunc.return\n}}")


def all_reduce(target: str = "data", signal: str = "cells", op: str = "Sum", mode: str = "mesh", more: str = "") -> str:
    return (
        f'%out = program.allreduce %{target} signal %{signal} : {PARAMS[signal]} {more} op "{op}" mode "{mode}" : '
        f"{PARAMS[target]}"
    )


def all_to_all_v(counts: str = "counts", more: str = "") -> str:
    types = ", ".join(PARAMS[name] for name in ("from", "to", "cells", counts, "got"))
    return f"%out = program.all_to_all_v %from, %to signal %cells counts %{counts}, %got {more} : {types}"


def indexed(counts: str = "shown", more: str = "") -> str:
    names = ("from", "to", "cells", counts, "counts", "index")
    types = ", ".join(PARAMS[name] for name in names)
    return (
        f"%out = program.indexed_all_to_all_v %from, %to signal %cells counts %{counts}, %counts index %index {more} : "
        f"{types}"
    )


BARRIER = f"%out = program.barrier %cells : {CELLS}"
BROADCAST = f"%out = program.broadcast %data signal %cells root 2 : {DATA}, {CELLS}"
ALL_GATHER = f"%out = program.allgather %one, %data signal %cells : {ONE}, {DATA}, {CELLS}"
ALL_TO_ALL = f"%out = program.all_to_all %own, %data signal %cells : {OWN}, {DATA}, {CELLS}"
REDUCE_SCATTER = f'%out = program.reduce_scatter %data signal %cells op "Max" : {DATA}, {CELLS}'

# op: how often it stands in what a collective becomes; a barrier is one notify and one wait, its reset one more notify
SHAPES = [
    (BARRIER, "", {"notify": 2, "wait": 1}),
    (BROADCAST, "", {"notify": 2, "wait": 1, "get": 1}),
    (ALL_GATHER, "", {"notify": 2, "wait": 1, "put": 1}),
    (ALL_TO_ALL, "", {"notify": 2, "wait": 1, "put": 1}),
    (all_to_all_v("shown"), "", {"notify": 3, "wait": 2, "put": 1, "read": 2, "remote_load": 1, "write": 1}),
    (all_to_all_v(), "", {"notify": 4, "wait": 2, "put": 1, "read": 1}),
    (all_to_all_v("shown"), "full_capacity", {"notify": 3, "wait": 1, "put": 1, "read": 1}),
    (indexed(), "", {"notify": 3, "wait": 2, "put": 1, "read": 3, "remote_load": 1, "write": 1}),
    (REDUCE_SCATTER, "", {"notify": 3, "wait": 2, "remote_load": 2, "binary": 1, "store": 1}),
    (all_reduce(), "", {"notify": 3, "wait": 2, "remote_load": 2, "binary": 2, "store": 1, "reshape": 1}),
    (
        all_reduce("half", op="Prod"),
        "",
        {"notify": 3, "wait": 2, "remote_load": 2, "binary": 1, "cast": 3, "store": 1, "reshape": 1},
    ),
    (
        all_reduce("long", op="Min"),
        "",
        {"notify": 3, "wait": 2, "remote_load": 2, "binary": 1, "store": 1, "reshape": 1, "dim": 1},
    ),
    (
        all_reduce(signal="ring", mode="ring"),
        "",
        {"notify": 5, "wait": 4, "remote_load": 1, "load": 1, "binary": 2, "store": 1, "get": 1, "reshape": 1},
    ),
]


def ops(program: Program) -> Counter[str]:
    names = [op.name.removeprefix("program.") for op in program.module.walk() if op.name.startswith("program.")]
    assert Counter(n for n in names if n in ("rank", "nranks", "get_comm_ctx")) == {
        "rank": 1,
        "nranks": 1,
        "get_comm_ctx": 1,
    }
    return Counter(n for n in names if n not in ("rank", "nranks", "get_comm_ctx"))


@pytest.mark.parametrize(("body", "protocol", "expected"), SHAPES)
def test_what_a_collective_becomes(body: str, protocol: str, expected: dict[str, int]) -> None:
    lowered, remarks = program(body), Remarks("lower-composite-ops")
    (lower,) = parse_passes(f"lower-composite-ops{{protocol={protocol}}}" if protocol else "lower-composite-ops")
    assert lower.run(lowered, remarks)
    assert ops(lowered) == expected
    assert lowered.properties == ("CompositesLowered",)
    assert [(r.outcome, r.where) for r in remarks] == [("done", "")]
    text = lowered.text()
    assert not lower.run(lowered, remarks)
    assert lowered.text() == read_program(text).text() == text


def test_what_uses_the_result_uses_the_target() -> None:
    lowered = program(f"{BARRIER}\n%again = program.barrier %out : {CELLS}\n%t = program.dim %again 0 : {CELLS}")
    assert LowerCompositeOps().run(lowered, Remarks("lower-composite-ops"))
    (dim,) = (op for op in lowered.module.walk() if op.name == "program.dim")
    assert dim.operands[0] is lowered.function("k").body.args[list(PARAMS).index("cells")]


@pytest.mark.parametrize("kind", ["Orchestration", "Graph"])
def test_what_is_no_kernel_stays(kind: str) -> None:
    kept, remarks = program(all_reduce(), kind=kind), Remarks("lower-composite-ops")
    text = kept.text()
    assert not LowerCompositeOps().run(kept, remarks)
    assert (
        kept.text().replace(', program.properties = ["CompositesLowered"]', "").count("allreduce")
        == text.count("allreduce")
        == 1
    )
    assert [str(r) for r in remarks] == ["lower-composite-ops: declined: pld.tensor.allreduce: k is no kernel"]


SHARED = (
    ' — a signal shaped for mode="ring" allreduce ([2*(NR-1), NR]) cannot be shared with this collective; give it its '
    "own [NR, 1] signal window"
)
TWO = "%two = arith.constant 2 : index\n"
SOME = "%some = program.block_num\n"
REFUSED = [
    (all_reduce(signal="ring"), f"pld.tensor.allreduce signal shape[1] must be 1 (one cell per rank), got 4{SHARED}"),
    (
        BROADCAST.replace("%cells", "%ring").replace(CELLS, RING),
        f"pld.tensor.broadcast signal shape[1] must be 1 (one cell per rank), got 4{SHARED}",
    ),
    (all_reduce(signal="row"), "pld.tensor.allreduce signal must be 2D [NR, 1], got rank 1"),
    (all_reduce(signal="row", mode="ring"), "mode=ring signal must be 2D [2*(NR-1), NR]"),
    (
        all_reduce(signal="bad_ring", mode="ring"),
        "pld.tensor.allreduce mode=ring signal shape[0] (5) must equal 2*(NR-1) = 6 for NR = 4",
    ),
    (
        all_reduce(mode="ring"),
        "pld.tensor.allreduce mode=ring signal shape[0] (4) must equal 2*(NR-1) = 0 for NR = 1",
    ),
    (
        all_reduce().replace(f"signal %cells : {CELLS}", ""),
        "pld.tensor.allreduce requires an explicit signal outside host orchestrator functions. Use "
        "pld.tensor.allreduce(target, signal, op=...) for InCore/lowered composite paths.",
    ),
    (
        TWO + all_reduce(more="core_num %two"),
        "pld.tensor.allreduce core_num > 1 is supported only in a HOST orchestrator; use an enclosing pl.spmd(...) "
        "for multi-core InCore execution",
    ),
    (
        TWO + all_to_all_v(more="core_num %two"),
        "InCore pld.tensor.all_to_all_v requires a compile-time core_num=1, got 2; call it from a CHIP Orchestration "
        "function to use the managed multi-AIV path",
    ),
    (
        SOME + all_to_all_v(more="core_num %some"),
        "InCore pld.tensor.all_to_all_v requires a compile-time core_num=1, got a dynamic value; call it from a CHIP "
        "Orchestration function to use the managed multi-AIV path",
    ),
    (
        TWO + indexed(more="core_num %two"),
        "InCore pld.tensor.indexed_all_to_all_v requires a compile-time core_num=1, got 2; call it from a CHIP "
        "Orchestration function to use the managed multi-AIV path",
    ),
    (BROADCAST.replace("root 2", "root 4"), "pld.tensor.broadcast root (4) must be a valid rank in [0, 4)"),
]


@pytest.mark.parametrize(("body", "text"), REFUSED)
def test_what_is_refused(body: str, text: str) -> None:
    with pytest.raises(InputError) as error:
        LowerCompositeOps().run(program(body), Remarks("lower-composite-ops"))
    assert error.value.what == text


OF_THE_SOURCE = [
    (all_reduce("half", op="Prod"), None),
    (
        all_reduce("cells").replace("%cells signal", "%shown signal"),
        "pld.tensor.allreduce target dtype must be FP16 or FP32, got INT32",
    ),
    (REDUCE_SCATTER.replace("Max", "Sum"), None),
    (
        REDUCE_SCATTER,
        "pld.tensor.reduce_scatter op must be ReduceOp.Sum (got int 1); Max / Min / Prod lowerings are not yet "
        "implemented",
    ),
    (
        indexed(),
        "pld.tensor.indexed_all_to_all_v is lowered in CHIP orchestration only; HOST and InCore calls are unsupported",
    ),
]


@pytest.mark.parametrize(("body", "text"), OF_THE_SOURCE)
def test_limits_of_the_source(body: str, text: str | None) -> None:
    assert LowerCompositeOps().run(program(body), Remarks("lower-composite-ops"))
    if text is None:
        assert LowerCompositeOps(as_source=True).run(program(body), Remarks("lower-composite-ops"))
        return
    with pytest.raises(InputError) as error:
        LowerCompositeOps(as_source=True).run(program(body), Remarks("lower-composite-ops"))
    assert error.value.what == text


def test_there_are_two_protocols() -> None:
    with pytest.raises(
        InputError, match="pass lower-composite-ops: there is no protocol old\nit is newest or full_capacity"
    ):
        parse_passes("lower-composite-ops{protocol=old}")
