"""Kernels for tests: made from builders or from text, and run by both backends."""

import numpy as np

from crossrank.instr import Kernel, KernelBuilder, read_kernel, run_kernel


def kernel(*builders: KernelBuilder) -> Kernel:
    """The kernel of these builders, one a core, read back from its own text."""
    first = builders[0]
    made = Kernel.of(
        [b.finish() for b in builders],
        world_size=first.world_size,
        lnc=first.lnc,
        has_collectives=any(b.has_collectives for b in builders),
    )
    made.verify()
    again = read_kernel(str(made))
    assert str(again) == str(made)
    return again


def run(made: Kernel, inputs, **options):
    """The outputs of all ranks; kernels and oracle agree bit for bit."""
    results = [run_kernel(made, inputs, backend=backend, **options) for backend in ("kernels", "oracle")]
    for ours, meant in zip(*results, strict=True):
        for a, b in zip(ours, meant, strict=True):
            assert a.dtype == b.dtype
            assert a.tobytes() == b.tobytes()
    return results[0]


def text(*programs: str, ranks: int = 2, lnc: int | None = None) -> str:
    """A kernel's text, given what stands in the program of each core."""
    world, cores = (f"#builtin.int<{n}>" for n in (ranks, lnc or len(programs)))
    body = "".join(f"instr.program @core{n} on {n} {{\n{p}\n}}\n" for n, p in enumerate(programs))
    said = f'instr.kernel = "k", instr.world_size = {world}, instr.lnc = {cores}'
    return f"builtin.module attributes {{{said}}} {{\n{body}}}"


TENSORS = """
%x = instr.tensor {name = "x", input = 0} : !instr.tensor<[4], s32, private_hbm>
%y = instr.tensor {name = "y", outputs = [0]} : !instr.tensor<[4], s32, private_hbm>
%a = instr.access %x {offset = 0, pattern = [[1, 4]]}
%b = instr.access %y {offset = 0, pattern = [[1, 4]]}
"""
"""An input and an output of four integers each, and an access to all of each."""


def counted(ranks: int, count: int = 4):
    """For each rank one input of integers that no other rank has."""
    return [[np.arange(count, dtype=np.int32) + 100 * rank] for rank in range(ranks)]
