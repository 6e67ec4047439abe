"""Completions of shared tensors: where they stand, what they depend on, and that they change nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from crossrank.instr.builder import KernelBuilder
from crossrank.instr.instructions import InstTensorCompletion
from crossrank.instr.lowering.flow import Flow
from crossrank.instr.program import Kernel, read_kernel

from .kernels import drawn, kernel_of, outputs, rewritten, same_bits


def completions(kernel: Kernel, core: int = 0) -> dict[str, tuple[int, tuple[str, ...]]]:
    """The completions of a core: the block that each stands in, and what it depends on."""
    found = {}
    for number, block in enumerate(kernel.programs[core].body.blocks):
        for inst in block.ops:
            if isinstance(inst, InstTensorCompletion):
                (access,) = inst.in_accesses
                assert access.is_whole
                found[inst.label] = (number, inst.deps)
    return found


def exchange(b: KernelBuilder, core: int) -> None:
    x = b.input("x", (2, 8, 8), "f32", "shared_hbm")
    y = b.tensor((2, 8, 8), "f32", "shared_hbm", "y")
    s, d, own = (b.tensor((8, 8), "f32", "sbuf", n) for n in ("s", "d", "own"))
    b.dma_copy(s, x[core])
    b.sendrecv(d, s, 1 - core, 1 - core, 0)
    b.dma_copy(own, d)
    b.dma_copy(y[core], own)
    b.output(y)


def test_what_others_write_or_see_is_completed_at_the_end() -> None:
    kernel = kernel_of(exchange)
    low, results = rewritten(kernel, "lower-local-collectives,insert-ptcom")
    for core in (0, 1):
        assert completions(low, core) == {
            "y-PTCOM": (0, ("DMACopy-2",)),
            "d-PTCOM": (0, ("LocalSendRecv-0.copy",)),
        }
        assert list(low.programs[core].instructions())[-2].label.endswith("-PTCOM")
    assert [(r.instruction, r.reason) for r in results[1].remarks][:2] == [
        ("core 0: y", "complete at the end of block 0"),
        ("core 1: y", "complete at the end of block 0"),
    ]
    given = [[drawn((2, 8, 8), np.float32, 0)]]
    assert same_bits(outputs(kernel, given), outputs(low, given, seed=1))
    assert not rewritten(low, "insert-ptcom")[1][0].changed


@pytest.mark.parametrize("passes", ["insert-ptcom{enable=false}", ""])
def test_it_can_be_switched_off(passes: str) -> None:
    kernel = kernel_of(exchange)
    assert str(rewritten(kernel, passes)[0]) == str(kernel)


def test_one_core_has_nobody_to_wait_for() -> None:
    def body(b: KernelBuilder, core: int) -> None:
        b.compute("memset", [b.tensor((2, 2), "f32", "shared_hbm", "x")], value=1.0)

    kernel = kernel_of(body, 1)
    assert str(rewritten(kernel, "insert-ptcom")[0]) == str(kernel)


def test_the_names_of_the_first_core_count() -> None:
    def body(b: KernelBuilder, core: int) -> None:
        for name in (("both", "first"), ("second", "both"))[core]:
            b.compute("memset", [b.tensor((2, 2), "f32", "shared_hbm", name)], value=1.0)

    low, _ = rewritten(kernel_of(body), "insert-ptcom")
    assert completions(low) == {"both-PTCOM": (0, ("memset-0",)), "first-PTCOM": (0, ("memset-1",))}
    assert completions(low, 1) == {"both-PTCOM": (0, ("memset-1",))}


def program(core: int, blocks: str) -> str:
    return f"""
  instr.program @core{core} on {core} {{
    %x = instr.tensor {{name = "x"}} : !instr.tensor<[2, 2], s32, shared_hbm>
    %a = instr.access %x {{offset = 0, pattern = [[2, 2], [1, 2]]}}
    %r = instr.get_global_rank_id "rank" {{world_size = 1}} : !instr.register
    {blocks}
  }}"""


def two_cores(blocks: str) -> Kernel:
    programs = program(0, blocks) + program(1, blocks)
    return read_kernel(f"builtin.module attributes {{instr.lnc = #builtin.int<2>}} {{{programs}\n}}")


def write(name: str) -> str:
    return f'instr.compute "{name}" out(%a) {{function = "memset", params = [["value", 1]]}}\n'


def test_both_ways_of_a_branch_meet_again() -> None:
    blocks = f"""instr.branch %r, ^left, ^right
  ^left:
    {write("left")} instr.jump ^after
  ^right:
    {write("right")} {write("again")} instr.jump ^after
  ^after:
    instr.end"""
    low, _ = rewritten(two_cores(blocks), "insert-ptcom")
    assert completions(low) == {"x-PTCOM": (3, ("left", "again"))}
    assert completions(low, 1) == completions(low)


def test_a_writer_in_a_loop_is_waited_for_after_it() -> None:
    blocks = f"""instr.jump ^loop
  ^loop:
    {write("turn")} instr.branch %r, ^loop, ^after
  ^after:
    instr.jump ^end
  ^end:
    instr.end"""
    assert completions(rewritten(two_cores(blocks), "insert-ptcom")[0]) == {"x-PTCOM": (2, ("turn",))}


def test_two_ends_have_no_block_in_common() -> None:
    blocks = f"""{write("first")} instr.branch %r, ^left, ^right
  ^left:
    instr.end
  ^right:
    {write("right")} instr.end"""
    low, results = rewritten(two_cores(blocks), "insert-ptcom")
    assert completions(low) == {}
    assert [(r.instruction, r.reason) for r in results[0].remarks] == [
        ("x", "no block outside of loops comes after all of its writers")
    ]


@pytest.mark.parametrize(
    ("successors", "writers", "meet"),
    [
        ([[]], [0], 0),
        ([[1, 2], [3], [3], []], [1, 2], 3),
        ([[1, 2], [3], [3], []], [1], 1),
        ([[1, 2], [3], [3], []], [0, 1], 3),
        ([[1], [1, 2], []], [1], 2),  # a block that follows itself
        ([[1], [2, 3], [1], [4], []], [2], 3),  # a loop of two blocks
        ([[1, 4], [2], [3, 1], [], [3]], [2, 4], 3),
        ([[1, 2], [], []], [1], 1),
        ([[1, 2], [], []], [0, 1], None),
        ([[1, 2], [1], []], [1], None),  # a loop without an end
        ([[1, 2], [1], []], [0, 2], 2),  # what never ends is not waited for
    ],
)
def test_where_paths_meet(successors: list[list[int]], writers: list[int], meet: int | None) -> None:
    assert Flow(successors).meeting_point(writers) == meet
