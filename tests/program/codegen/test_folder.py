"""Build folders of programs whose collectives come with crossrank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import crossrank.program.language as pl
import crossrank.program.language.distributed as pld
from crossrank.author import load_module
from crossrank.passes import pipeline, run_passes
from crossrank.program.codegen.folder import write_folder
from crossrank.program.program import Program, read_program

ROWS, SIZE = 8, 64


def exchange(rail: str, dtype: Any) -> Program:
    """An exchange among two ranks, by the host or by the chip function to which it dispatches."""

    @pl.program
    class Exchange:
        @pl.function(type=pl.FunctionType.Orchestration)
        def chip_pipeline(
            self,
            stage: pl.InOut[pld.DistributedTensor[[ROWS, SIZE], dtype]],
            data: pl.InOut[pld.DistributedTensor[[ROWS, SIZE], dtype]],
            signal: pl.InOut[pld.DistributedTensor[[2, 1], pl.INT32]],
            counts: pl.InOut[pld.DistributedTensor[[2, 1], pl.INT32]],
            recv: pl.InOut[pld.DistributedTensor[[2, 1], pl.INT32]],
        ):
            if rail == "chip":
                data = pld.tensor.all_to_all_v(stage, data, signal, counts, recv, core_num=1)
            return data

        @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
        def host_orch(self):
            stage_buf = pld.alloc_window_buffer([ROWS, SIZE], dtype=dtype)
            data_buf = pld.alloc_window_buffer([ROWS, SIZE], dtype=dtype)
            signal_buf = pld.alloc_window_buffer([2], dtype=pl.INT32)
            counts_buf = pld.alloc_window_buffer([2], dtype=pl.INT32)
            recv_buf = pld.alloc_window_buffer([2], dtype=pl.INT32)
            stage = pld.window(stage_buf, [ROWS, SIZE], dtype=dtype)
            data = pld.window(data_buf, [ROWS, SIZE], dtype=dtype)
            signal = pld.window(signal_buf, [2, 1], dtype=pl.INT32)
            counts = pld.window(counts_buf, [2, 1], dtype=pl.INT32)
            recv = pld.window(recv_buf, [2, 1], dtype=pl.INT32)
            for r in pl.range(pld.world_size()):
                self.chip_pipeline(stage, data, signal, counts, recv, device=r)
            if rail == "host":
                pld.tensor.all_to_all_v(stage, data, signal, counts, recv)

    return Exchange


@pytest.mark.parametrize(("dtype", "name"), [(pl.FP32, "fp32"), (pl.INT8, "int8")])
def test_both_rails_have_one_source(dtype: Any, name: str, tmp_path: Path) -> None:
    for rail in ("host", "chip"):
        program = exchange(rail, dtype)
        run_passes(program, pipeline("program"))
        write_folder(program, tmp_path / rail)
    kernel, variant = f"__builtin_all_to_all_v__{name}", f"builtin.tensor.all_to_all_v__{name}"
    host, chip = (tmp_path / rail / "next_levels" for rail in ("host", "chip"))
    assert sorted(p.name for p in host.iterdir()) == [variant, "chip_pipeline"]
    assert [p.name for p in chip.iterdir()] == ["chip_pipeline"]
    (source,) = (host / variant / "kernels" / "aiv").iterdir()
    assert source.name == f"{kernel}.cpp"
    assert source.read_bytes() == (chip / "chip_pipeline" / "kernels" / "aiv" / f"{kernel}.cpp").read_bytes()
    for level, function, signature in (
        (host / variant, variant, ["IN", "INOUT", "INOUT", "IN", "INOUT", "SCALAR", "SCALAR", "SCALAR", "SCALAR"]),
        (chip / "chip_pipeline", "chip_pipeline", ["INOUT"] * 5 + ["SCALAR"] * 5),
    ):
        config = load_module((level / "kernel_config.py").read_bytes(), str(level / "kernel_config.py"), "data")
        assert (config.ORCHESTRATION["function_name"], config.ORCHESTRATION["signature"]) == (function, signature)
        assert read_program(Path(config.ORCHESTRATION["source"]).read_text()).functions[0].name == function
        assert [(k["name"], k["core_type"]) for k in config.KERNELS] == [(kernel, "aiv")]
        assert config.KERNELS[0]["signature"] == ["IN", "INOUT", "INOUT", "IN", "INOUT", "SCALAR", "SCALAR", "SCALAR"]
        assert Path(config.KERNELS[0]["source"]).is_file()
