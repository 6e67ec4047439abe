"""The C++ that kernels become, what is refused, names, and the build folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from crossrank.errors import InputError
from crossrank.program.codegen.folder import write_folder
from crossrank.program.codegen.kernel import kernel_source
from crossrank.program.codegen.names import Names
from crossrank.program.program import Program, read_program

TENSOR, TILE, WINDOW = (
    "!program.tensor<[4, 64], f32>",
    "!program.tile<[1, 64], f32, Vec>",
    '!program.dist_tensor<["NR", 1], s32>',
)
LOOP = f"""
func.func @sum(%x : {TENSOR} {{program.name = "x"}}, %signal : {WINDOW} {{program.name = "signal"}},
    %scale : f32 {{program.name = "scale"}}, %c : !program.comm_ctx {{program.name = "signal_ctx"}})
    attributes {{program.type = "InCore"}} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %one = arith.constant 1 : i32
  %n = program.symbol "NR"
  %first = program.load %x[%c0, %c0] valid [] : {TENSOR} -> {TILE} loc("sum.py":4:5)
  %acc = scf.for %i = %c1 to %n step %c1 iter_args(%part = %first) -> ({TILE}) {{
    %row = program.load %x[%i, %c0] valid [] : {TENSOR} -> {TILE} loc("sum.py":6:9)
    %more = program.binary "add" %part, %row : {TILE}, {TILE} -> {TILE} loc("sum.py":6:9)
    scf.yield %more : {TILE}
  }} loc("sum.py":5:5)
  %scaled = program.binary "mul" %acc, %scale : {TILE}, f32 -> {TILE} loc("sum.py":7:5)
  %out = program.store %scaled, %x[%c0, %c0] : {TILE}, {TENSOR} loc("sum.py":8:5)
  program.wait %signal[%c1, %c0], %one cmp "Ge" : {WINDOW} loc("sum.py":9:5)
  program.comm_fence loc("sum.py":10:5)
  func.return
}} loc("sum.py":3:1)
"""
SOURCE = """\
#include "crossrank/program.h"

// sum (sum.py:3)
extern "C" int32_t kernel_sum(const Slot* args) try {
  cr::Core core(args[4]);
  CommContext* const signal_ctx = args[2].context;
  const auto x = cr::argument<float, 2>(core, args, "x", 0, 11);
  const auto signal = cr::argument<int32_t, 2>(core, args, "signal", 1, 4, signal_ctx);
  const float scale = float(args[3].real);
  const int64_t n = signal.shape[0];
  core.at(4, 5);  // sum.py:4
  auto first = cr::load(core, x, {0, 0}, {1, 64});
  cr::Tile<float, 2> part = first;
  core.at(5, 5);  // sum.py:5
  for (int64_t i = 1; i < n; ++i) {  // sum.py:5
    core.at(6, 9);  // sum.py:6
    auto row = cr::load(core, x, {i, 0}, {1, 64});
    auto more = cr::binary<cr::Add>(core, part, row);
    part = more;
  }
  core.at(7, 5);  // sum.py:7
  auto scaled = cr::binary<cr::Multiply>(core, part, scale);
  core.at(8, 5);  // sum.py:8
  cr::store(core, scaled, x, {0, 0});
  core.at(9, 5);  // sum.py:9
  cr::wait(core, signal, {1, 0}, 1, crossrank::Compare::kAtLeast);
  core.at(10, 5);  // sum.py:10
  cr::fence(core, signal_ctx);
  return crossrank::kOk;
} catch (Status failed) {
  return failed;
}
"""
CHIP = f"""
func.func @chip(%x : {TENSOR} {{program.name = "x", program.direction = "InOut"}}, %s : {WINDOW}, %f : f32,
    %c : !program.comm_ctx) attributes {{program.type = "Orchestration"}} {{
  %t = program.call @sum(%x, %s, %f, %c) : ({TENSOR}, {WINDOW}, f32, !program.comm_ctx) -> ()
  func.return
}}
"""
HOST = f"""
func.func @host(%x : {TENSOR}) attributes {{program.level = "HOST", program.role = "Orchestrator"}} {{
  %f = arith.constant 1.0 : f32
  %size = arith.constant 16 : index
  %buffer = program.alloc_window_buffer "buffer", %size
  %s = program.window %buffer[%size, %size] : {WINDOW}
  %c = program.get_comm_ctx %s : {WINDOW}
  %t = program.call @chip(%x, %s, %f, %c) : ({TENSOR}, {WINDOW}, f32, !program.comm_ctx) -> ()
  func.return
}}
"""


def read(*functions: str) -> Program:
    return read_program("\n".join(functions))


def test_a_kernel_reads_like_what_its_author_wrote() -> None:
    assert kernel_source(read(LOOP), "sum") == SOURCE


def kernel(body: str, params: str = f"%x : {TENSOR}, %i : index") -> str:
    return f'func.func @k({params}) attributes {{program.type = "InCore"}} {{\n{body}\nfunc.return\n}} loc("k.py":2:1)'


LOADED = f"%t = program.load %x[%i, %i] valid [] : {TENSOR} -> {TILE}\n"
REFUSED = {
    "contexts": (
        kernel("", f"%w : {WINDOW}"),
        "k.py:2:1: kernel k has 1 distributed tensors among its parameters, and 0 contexts\n"
        "run materialize-dist-tensor-ctx before its code is made",
    ),
    "composite": (
        kernel(f'%w2 = program.barrier %w : {WINDOW} loc("k.py":3:5)', f"%w : {WINDOW}, %c : !program.comm_ctx"),
        "k.py:3:5: pld.tensor.barrier was not lowered\nrun lower-composite-ops before code is made",
    ),
    "context": (
        kernel(f'%c2 = program.get_comm_ctx %w : {WINDOW} loc("k.py":3:5)', f"%w : {WINDOW}, %c : !program.comm_ctx"),
        "k.py:3:5: function 'k' still calls pld.get_comm_ctx\nrun materialize-dist-tensor-ctx before code is made",
    ),
    "elsewhere": (
        kernel('%n = program.world_size loc("k.py":3:5)'),
        "k.py:3:5: program.world_size cannot stand in a kernel",
    ),
    "integers": (
        kernel(LOADED + f'%u = program.binary "and" %t, %t : {TILE}, {TILE} -> {TILE} loc("k.py":4:5)'),
        "k.py:4:5: pl.and_ is not there for tiles of FP32\ncast it: pl.cast(x, pl.INT32)",
    ),
    "symbol": (
        kernel('%n = program.symbol "NR" loc("k.py":3:5)'),
        "k.py:3:5: NR is no extent of a parameter of k\nuse it as the extent of one, or pass its value",
    ),
    "elements": (
        kernel("", "%x : !program.tensor<[4], f8e5m2>"),
        "kernels have no elements of f8e5m2\nthey have FP16, BF16, FP32, FP64, INT8, INT16, INT32, INT64, UINT8, "
        "UINT16, UINT32, UINT64, BOOL",
    ),
    "dimensions": (
        kernel("", "%x : !program.tensor<[1, 1, 1, 1, 1, 1, 1, 1, 1], f32>"),
        "k.py:2:1: in a kernel a tensor has at most 8 dimensions",
    ),
    "big tile": (
        kernel('%t = program.full -> !program.tile<[65536, 65536], f32, Vec> loc("k.py":3:5)'),
        "k.py:3:5: this is a Tile[[65536, 65536], FP32], and a tile has at most 1 GiB\ntake smaller tiles in a loop",
    ),
    "no kernel": (CHIP.replace("@chip", "@k"), "k is no kernel with a body"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_a_kernel(what: str) -> None:
    text, wanted = REFUSED[what]
    with pytest.raises(InputError, match=f"^{re.escape(wanted)}$"):
        kernel_source(read(text), "k")


def test_names() -> None:
    names = Names()
    wanted = ["x", "x", "x_2", "x", "int", "a.b", "1st", "__x86", "I_MAX", "größe", "core", "x"]
    given = [names.fresh(name) for name in wanted]
    assert given[:5] == ["x", "x_2", "x_2_2", "x_3", "int_"]
    assert given[5:] == ["a_b", "v_1st", "v_x86", "v_I_MAX", "gruf6udfe", "core_", "x_4"]


def test_the_build_folder(tmp_path: Path) -> None:
    program = read(LOOP, CHIP, HOST)
    chip, alone = tmp_path / "out/next_levels/chip", tmp_path / "alone"
    write_folder(program, tmp_path / "out")
    write_folder(read(LOOP, CHIP), alone)
    assert [p.relative_to(tmp_path / "out") for p in sorted((tmp_path / "out").rglob("*")) if p.is_file()] == [
        Path(p)
        for p in (
            "next_levels/chip/kernel_config.py",
            "next_levels/chip/kernels/aiv/sum.cpp",
            "next_levels/chip/orchestration/chip.mlir",
            "orchestration/host_orch.mlir",
        )
    ]
    assert (chip / "kernels/aiv/sum.cpp").read_text() == SOURCE
    assert read_program((chip / "orchestration/chip.mlir").read_text()).function("chip").is_chip
    assert read_program((tmp_path / "out/orchestration/host_orch.mlir").read_text()).entry.is_host
    for path in (p for p in alone.rglob("*") if p.is_file()):  # without a host the same, but at the top
        assert path.read_bytes() == (chip / path.relative_to(alone)).read_bytes()
    config: dict[str, object] = {"__file__": str(chip / "kernel_config.py")}
    exec((chip / "kernel_config.py").read_text(), config)
    assert config["RUNTIME_CONFIG"] == {"runtime": "tensormap_and_ringbuffer", "aicpu_thread_num": 0}
    assert config["ORCHESTRATION"] == {
        "source": str(chip / "orchestration/chip.mlir"),
        "function_name": "chip",
        "signature": ["INOUT", "IN", "SCALAR", "SCALAR"],
    }
    assert config["KERNELS"] == [
        {
            "func_id": 0,
            "name": "sum",
            "source": str(chip / "kernels/aiv/sum.cpp"),
            "core_type": "aiv",
            "signature": ["IN", "IN", "SCALAR", "SCALAR"],
        }
    ]
