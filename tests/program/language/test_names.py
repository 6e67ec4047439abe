"""Every name, keyword and number of the language that programs in the wild use is there, and has a test."""

from __future__ import annotations

import inspect
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import crossrank.program as ir
import crossrank.program.language as pl
import crossrank.program.language.distributed as pld
from crossrank.program.kinds import AtomicType, NotifyOp, ReduceOp, WaitCmp

WORDS = {
    "pl.add": "lhs rhs",
    "pl.array.create": "",
    "pl.assemble": "target source offset",
    "pl.at": "level role name_hint deps",
    "pl.cast": "input target_type mode",
    "pl.const": "value dtype",
    "pl.create_tensor": "dtype",
    "pl.load": "tensor offsets shapes valid_shape target_memory",
    "pl.manual_scope": "",
    "pl.matmul": "",
    "pl.min": "",
    "pl.move": "target_memory",
    "pl.mul": "",
    "pl.parallel": "init_values",
    "pl.range": "init_values",
    "pl.read": "",
    "pl.slice": "",
    "pl.store": "tile offsets output_tensor",
    "pl.sub": "",
    "pl.tensor.add": "",
    "pl.tensor.slice": "",
    "pl.tile.create": "dtype target_memory",
    "pl.tile.full": "dtype value",
    "pl.tile.reshape": "",
    "pl.tile.row_sum": "",
    "pl.unroll": "",
    "pl.write": "",
    "pl.yield_": "",
    "pld.alloc_window_buffer": "dtype",
    "pld.get_comm_ctx": "",
    "pld.nranks": "",
    "pld.rank": "",
    "pld.system.defer_wait": "signal offsets expected cmp",
    "pld.system.notify": "target peer offsets value op",
    "pld.system.wait": "signal offsets expected cmp",
    "pld.tensor.all_to_all": "",
    "pld.tensor.all_to_all_v": "core_num",
    "pld.tensor.allgather": "",
    "pld.tensor.allreduce": "op mode core_num",
    "pld.tensor.barrier": "",
    "pld.tensor.broadcast": "root",
    "pld.tensor.get": "dst peer src dst_offsets src_offsets shape chunk_rows chunk_cols pipeline",
    "pld.tensor.put": "dst peer src dst_offsets src_offsets shape atomic chunk_rows chunk_cols pipeline",
    "pld.tensor.reduce_scatter": "op",
    "pld.tensor.remote_store": "src target peer offsets atomic",
    "pld.tile.remote_load": "target peer offsets shape valid_shape",
    "pld.tile.remote_store": "src_tile target peer offsets atomic",
    "pld.window": "dtype",
    "pld.world_size": "",
}
"""Words, and the keywords that they take."""

NAMES = """
    pl.function pl.program pl.dynamic
    pl.Tensor pl.Scalar pl.Tile pl.Out pl.InOut pld.DistributedTensor
    pl.FP32 pl.FP16 pl.BF16 pl.INT32 pl.INDEX pl.INT32.get_byte pl.FP32.get_byte
    pl.FunctionType.InCore pl.FunctionType.Orchestration
    pl.Level.HOST pl.Level.CHIP pl.Level.CORE_GROUP pl.Role.Orchestrator pl.Role.SubWorker
    pl.MemorySpace.Mat pl.MemorySpace.Vec pl.MemorySpace.Left pl.MemorySpace.Right
    pld.NotifyOp.AtomicAdd pld.NotifyOp.Set pld.WaitCmp.Ge pld.WaitCmp.Eq pld.ReduceOp.Sum pld.AtomicType.Add
""".split()  # noqa: SIM905
"""What is no word."""

CALLS: dict[Any, str] = {
    pl.function: "type level role",
    ir.compile: "program platform distributed_config output_dir skip_ptoas",
    ir.DistributedConfig: "device_ids num_sub_workers aicpu_thread_num sub_worker_overrides",
    ir.CompiledProgram.prepare: "config persistent reset_persistent_windows sub_worker_overrides",
    ir.RunConfig: "platform",
}
"""What is called outside of programs, and its keywords."""


def found(name: str) -> Any:
    value: Any = {"pl": pl, "pld": pld}[name.partition(".")[0]]
    for part in name.split(".")[1:]:
        value = getattr(value, part)
    return value


@cache
def programs() -> str:
    """The text of tests and examples but for this file."""
    root = Path(__file__).parents[3]
    files = [*(root / "tests" / "program").rglob("*.py"), *(root / "examples").glob("*.py")]
    return "\n".join(path.read_text() for path in files if path != Path(__file__))


@pytest.mark.parametrize("name", [*WORDS, *NAMES])
def test_it_is_there_and_has_a_test(name: str) -> None:
    assert found(name) is not None
    assert re.search(rf"(?<![\w.]){re.escape(name)}\b", programs())


@pytest.mark.parametrize(
    ("taker", "keywords"), [*((found(name), keywords) for name, keywords in WORDS.items()), *CALLS.items()]
)
def test_it_takes_the_keywords(taker: Any, keywords: str) -> None:
    assert inspect.signature(taker).parameters.keys() >= set(keywords.split())


def test_defaults() -> None:
    for word, defaults in {
        pld.tensor.put: {"atomic": AtomicType.None_, "chunk_rows": 0, "chunk_cols": 0, "pipeline": False},
        pld.tensor.allreduce: {"op": ReduceOp.Sum, "mode": "mesh", "core_num": 1},
        pld.tensor.all_to_all_v: {"core_num": 1},
        pld.tensor.reduce_scatter: {"op": ReduceOp.Sum},
        pld.tile.remote_store: {"atomic": AtomicType.None_},
        pld.system.defer_wait: {"cmp": WaitCmp.Ge},
    }.items():
        parameters = inspect.signature(word).parameters
        assert {name: parameters[name].default for name in defaults} == defaults


def test_numbers_that_kernels_see() -> None:
    for kind, numbers in {
        NotifyOp: {"AtomicAdd": 0, "Set": 1},
        WaitCmp: {"Eq": 0, "Ge": 1},
        AtomicType: {"None_": 0, "Add": 1},
        ReduceOp: {"Sum": 0, "Max": 1, "Min": 2, "Prod": 3},
    }.items():
        assert {member.name: member.value for member in kind} == numbers


def test_kinds_of_functions() -> None:
    kinds = ["Opaque", "Orchestration", "InCore", "AIC", "AIV", "Group", "Spmd", "Inline", "Graph"]
    assert [*pl.FunctionType.__members__] == kinds
    assert {"AIV", "AIC", "CORE_GROUP", "CHIP_DIE", "CHIP", "HOST"} <= {*pl.Level.__members__}
    assert [*pl.Role.__members__] == ["Orchestrator", "SubWorker"]
