"""Collectives among the cores of a rank become copies and barriers, and no bit changes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossrank.errors import RunError
from crossrank.instr.builder import KernelBuilder
from crossrank.instr.instructions import InstCollectiveCompute, InstCoreBarrier, Instruction
from crossrank.instr.kinds import CollectiveKind
from crossrank.instr.program import Kernel, read_kernel
from crossrank.instr.tensors import DynamicSlice, View

from ..random_kernels import RandomKernel
from .kernels import Body, drawn, kernel_of, outputs, rewritten, same_bits

LOWER = "lower-local-collectives"
ALL = f"{LOWER}{{all_kinds=true}}"
SEMAPHORES = f"{LOWER}{{enable_remote_semaphore_dma=true}}"


def instructions(kernel: Kernel, core: int = 0) -> list[Instruction]:
    return list(kernel.programs[core].instructions())


def names(kernel: Kernel, core: int = 0) -> list[str]:
    """Instructions of a core, copies to and from the outside left out."""
    plain = (i for i in instructions(kernel, core) if not i.label.startswith(("DMACopy", "tensor_copy")))
    return [i.name.removeprefix("instr.") for i in plain]


def barriers(kernel: Kernel, core: int = 0) -> int:
    return names(kernel, core).count("core_barrier")


def kinds(kernel: Kernel) -> Counter[CollectiveKind]:
    found = (i for n in range(len(kernel.programs)) for i in instructions(kernel, n))
    return Counter(i.fields.kind for i in found if isinstance(i, InstCollectiveCompute))


def reasons(results: Any) -> list[str]:
    return [remark.reason for remark in results[0].remarks]


def check(kernel: Kernel, passes: str, inputs: Any, seeds: int = 6) -> Kernel:
    """The kernel after passes, which gives the same whichever core goes first."""
    low, _ = rewritten(kernel, passes)
    before = outputs(kernel, inputs)
    for seed in (None, *range(seeds)):
        assert same_bits(before, outputs(low, inputs, seed)), seed
    return low


# What each kind becomes


@pytest.mark.parametrize(
    ("dtype", "columns", "engine"),
    [
        ("f32", 256, "gpsimd_sb2sb"),
        ("f32", 257, "dma_copy"),
        ("bf16", 256, "gpsimd_sb2sb"),  # 512 bytes, which count as 1024
        ("bf16", 300, "dma_copy"),
        ("u8", 256, "gpsimd_sb2sb"),
    ],
)
@pytest.mark.parametrize("asked", [False, True])
def test_small_exchanges_go_by_gpsimd(dtype: str, columns: int, engine: str, asked: bool) -> None:
    kernel = swap(dtype, columns, asked)
    low, results = rewritten(kernel, LOWER)
    assert names(low) == ["core_barrier", engine, "core_barrier"]
    copy = next(i for i in instructions(low) if i.label == "LocalSendRecv-0.copy")
    assert (copy.fields.to_core, copy.fields.pipe_id, copy.fields.dma_qos) == (1, 7, 2)
    assert copy.fields.use_gpsimd_dma is asked
    text = reasons(results)[0]
    assert text.startswith(f"a copy to core 1, asked for by {'GPSIMD' if asked else 'DMA'}, made by ")
    assert ("SB2SB" in text) == (engine == "gpsimd_sb2sb")
    assert (f"{columns * 4} bytes per partition" in text) == (engine == "dma_copy")
    given = [[drawn((2, 128, columns), kernel.inputs()[0].type.dtype.numpy, 1)]]
    check(kernel, LOWER, given)
    assert (outputs(low, given)[0][0] == given[0][0][::-1])[~np.isnan(given[0][0][::-1])].all()


def swap(dtype: str = "f32", columns: int = 8, asked: bool = False, in_place: bool = False) -> Kernel:
    def body(b: KernelBuilder, core: int) -> None:
        x = b.input("x", (2, 128, columns), dtype, "shared_hbm")
        out = b.tensor((2, 128, columns), dtype, "shared_hbm", "out")
        s, d = (b.tensor((128, columns), dtype, "sbuf", n) for n in "sd")
        b.dma_copy(s, x[core])
        b.sendrecv(s if in_place else d, s, 1 - core, 1 - core, 7, use_gpsimd_dma=asked, dma_qos=2)
        b.dma_copy(out[core], s if in_place else d)
        b.output(out)

    return kernel_of(body)


TEXT = """instr.program @core0 on 0 {
    %semaphore = instr.tensor {name = "semaphore_0_1"} : !instr.tensor<[1, 1], u32, sbuf>
    %d_remote = instr.tensor {name = "d_remote_1", core = 1, of = "d"} : !instr.tensor<[4, 8], f32, sbuf>
    %0 = instr.access %d_remote {offset = 0, pattern = [[8, 4], [1, 8]]}
    %1 = instr.access %semaphore {offset = 0, pattern = [[1, 1], [1, 1]]}
    %s = instr.tensor {name = "s"} : !instr.tensor<[4, 8], f32, sbuf>
    %d = instr.tensor {name = "d", written_by_peer = true} : !instr.tensor<[4, 8], f32, sbuf>
    %2 = instr.access %s {offset = 0, pattern = [[8, 4], [1, 8]]}
    instr.core_barrier "LocalSendRecv-0.fence" out(%1) in(%1) {cores = [0, 1], barrier_id = 0}
    instr.gpsimd_sb2sb "LocalSendRecv-0.copy" out(%0) in(%2) {to_core = 1, pipe_id = 7}
    instr.core_barrier "LocalSendRecv-0.fence.1" out(%1) in(%1) {cores = [0, 1], barrier_id = 1}
    %3 = instr.access %d {offset = 0, pattern = [[8, 4], [1, 8]]}
    instr.tensor_completion "d-PTCOM" in(%3) after("LocalSendRecv-0.copy")
    instr.end
  }
  """


def test_the_text_of_an_exchange() -> None:
    def body(b: KernelBuilder, core: int) -> None:
        s, d = (b.tensor((4, 8), "f32", "sbuf", n) for n in "sd")
        b.sendrecv(d, s, 1 - core, 1 - core, 7)

    text = str(rewritten(kernel_of(body), f"{LOWER},insert-ptcom")[0])
    first = text[text.index("instr.program @core0") : text.index("instr.program @core1")]
    assert re.sub(r' at "[^"]*"', "", first) == TEXT


def test_the_limit_is_an_option() -> None:
    low, results = rewritten(swap(columns=8), f"{LOWER}{{sendrecv_to_gpsimd_max_bpp=31}}")
    assert "gpsimd_sb2sb" not in names(low)
    assert "32 bytes per partition (4 or more an element) are more than the 31 asked for" in reasons(results)[0]
    assert "gpsimd_sb2sb" in names(rewritten(swap(columns=8), f"{LOWER}{{sendrecv-to-gpsimd-max-bpp=32}}")[0])


def test_in_place_exchanges_are_staged() -> None:
    kernel = swap(in_place=True)
    low = check(kernel, LOWER, [[drawn((2, 128, 8), np.float32, 0)]])
    labels = [i.label for i in instructions(low) if i.label.startswith("Local")]
    assert labels == [f"LocalSendRecv-0.{what}" for what in ("stage", "fence", "copy", "fence.1")]


def reduced(
    op: str = "add", dtype: str = "f32", lnc: int = 2, shape: tuple[int, ...] = (8, 8), ranks: int = 1
) -> Kernel:
    def body(b: KernelBuilder, core: int) -> None:
        x = b.input("x", (lnc, *shape), dtype, "shared_hbm")
        out = b.tensor((lnc, *shape), dtype, "shared_hbm", "out")
        s, d = (b.tensor(shape, dtype, "private_hbm", n) for n in "sd")
        b.dma_copy(s, x[core])
        b.all_reduce_cc_raw(op, [s], [d], [list(range(lnc))], is_local=True)
        b.dma_copy(out[core], d)
        b.output(out)

    return kernel_of(body, lnc, ranks)


def test_an_all_reduce_is_reduced_by_slices() -> None:
    kernel = reduced()
    low, results = rewritten(kernel, LOWER)
    made = [i for i in instructions(low, 1) if i.label.startswith("Local")]
    assert [i.label.removeprefix("LocalAllReduce-0.") for i in made] == (
        ["seed", "fence", "reduce", "fence.1", "copy", "fence.2"]
    )
    reduce, copy = made[2], made[4]
    assert dict(reduce.fields.params) == {"reduce_op": "add"}
    assert reduce.fields.function == "dma_compute"
    assert [a.fields.offset for a in (*reduce.out_accesses, *reduce.in_accesses)] == [4, 4, 4]  # its half of 8 columns
    assert [a.of.fields.name for a in reduce.in_accesses] == ["d_remote_0", "d"]
    assert [a.of.fields.name for a in copy.out_accesses] == ["d_remote_0"]
    assert copy.fields.to_core == 0
    alias = low.programs[1].tensors()["d_remote_0"].fields
    assert (alias.core, alias.of) == (0, "d")
    assert all(low.programs[c].tensors()["d"].fields.written_by_peer for c in (0, 1))
    assert reasons(results)[0] == "slices, reduced on each core and copied to the others; behind a fence"
    x = np.arange(128, dtype=np.float32).reshape(2, 8, 8)
    (out,) = outputs(low, [[x]])[0]
    assert (out == x.sum(axis=0)).all()


@pytest.mark.parametrize("shape", [(8,), (8, 3), (8, 5), (5, 1)])
def test_what_has_no_dimension_to_split_is_reduced_on_the_first_core(shape: tuple[int, ...]) -> None:
    low = check(reduced(shape=shape), LOWER, [[drawn((2, *shape), np.float32, 3)]])
    labels = [
        [i.label.removeprefix("LocalAllReduce-0.") for i in instructions(low, c) if "Local" in i.label] for c in (0, 1)
    ]
    assert labels[0] == ["seed", "fence", "reduce", "fence.1", "fence.2"]
    assert labels[1] == ["seed", "fence", "fence.1", "copy", "fence.2"]


@pytest.mark.parametrize("lnc", [2, 3, 4, 8])
@pytest.mark.parametrize(("op", "dtype"), [("add", "bf16"), ("add", "s32"), ("maximum", "f32"), ("average", "f16")])
def test_all_reduces_of_any_number_of_cores(lnc: int, op: str, dtype: str) -> None:
    kernel = reduced(op, dtype, lnc, (4, 24))
    check(kernel, LOWER, [[drawn((lnc, 4, 24), kernel.inputs()[0].type.dtype.numpy, lnc)]], seeds=2)


@pytest.mark.parametrize("spaces", [("shared_hbm", "sbuf"), ("sbuf", "shared_hbm"), ("sbuf", "private_hbm")])
def test_one_name_in_different_memories(spaces: tuple[str, str]) -> None:
    def body(b: KernelBuilder, core: int) -> None:
        x, sent = b.input("x", (8, 16), "f32", "shared_hbm"), b.tensor((8, 16), "f32", "sbuf")
        got = b.tensor((8, 16), "f32", spaces[core], "got")
        b.dma_copy(sent, x)
        b.sendrecv(got, sent, 1 - core, 1 - core, 0)
        out = b.tensor((2, 8, 16), "f32", "shared_hbm", "out")
        b.dma_copy(out[core], got)
        b.output(out)

    check(kernel_of(body), LOWER, [[drawn((8, 16), np.float32, 1)]])


@pytest.mark.parametrize("op", ["add", "max"])
@pytest.mark.parametrize("lnc", [3, 4])
def test_a_reducing_receive_takes_from_all_that_it_names(lnc: int, op: str) -> None:
    """A tile that is sent to one core is read by others too."""

    def body(b: KernelBuilder, core: int) -> None:
        x, y = b.input("x", (lnc, 4, 8), "f16", "shared_hbm"), b.tensor((4, 8), "f16", "sbuf")
        mine, out = b.tensor((4, 8), "f16", "sbuf"), b.tensor((lnc, 4, 8), "f16", "shared_hbm", "out")
        b.dma_copy(mine, x[core])
        b.sendrecv_cce(y, mine, (core + 1) % lnc, [c for c in range(lnc) if c != core], op, 0)
        b.dma_copy(out[core], y)
        b.output(out)

    low = check(kernel_of(body, lnc), LOWER, [[drawn((lnc, 4, 8), np.float16, 1)]])
    assert not kinds(low)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_each_rank_by_itself(ranks: int) -> None:
    kernel = reduced("multiply", "f32", 2, (4, 8), ranks)
    check(kernel, LOWER, [[drawn((2, 4, 8), np.float32, rank)] for rank in range(ranks)])


def test_the_compiled_kernels_give_the_same() -> None:
    kernel = reduced("add", "bf16", 4, (4, 16))
    given = [[drawn((4, 4, 16), kernel.inputs()[0].type.dtype.numpy, 5)]]
    assert same_bits(outputs(kernel, given, backend="kernels"), outputs(rewritten(kernel, LOWER)[0], given))


# Everything that is local, of any number of cores, after a barrier that is too early: after it each core writes what
# it will give and reads what it will overwrite; in the end it overwrites what it gave


def chained(lnc: int, call: Callable[[KernelBuilder, int, View, View], None], wide: int = 1, narrow: int = 1) -> Kernel:
    """``call(b, core, src, dst)``, where destinations may be of other sizes."""
    rows = 4 * lnc

    def body(b: KernelBuilder, core: int) -> None:
        x = b.input("x", (lnc, rows, 8), "bf16", "shared_hbm")
        shape = (rows * wide // narrow, 8)
        out, old = (b.tensor((lnc, *shape), "bf16", "shared_hbm", n) for n in ("out", "old"))
        s, d = b.tensor((rows, 8), "bf16", "sbuf", "s"), b.tensor(shape, "bf16", "private_hbm", "d")
        b.compute("memset", [d], value=float(core))
        b._barrier(range(lnc))
        b.dma_copy(s, x[core])
        b.dma_copy(old[core], d)
        call(b, core, s, d)
        b.compute("memset", [s], value=float(core))
        b.dma_copy(out[core], d)
        b.output(out)
        b.output(old)

    return kernel_of(body, lnc)


def _group(lnc: int) -> list[list[int]]:
    return [[*range(1, lnc), 0]]


LOCAL: dict[str, tuple[Callable[[int], Callable[..., Any]], bool, bool]] = {
    "sendrecv": (lambda n: lambda b, c, s, d: b.sendrecv(d, s, (c + 1) % n, (c - 1) % n, 0), False, False),
    "cce": (lambda n: lambda b, c, s, d: b.sendrecv_cce(d, s, (c + 1) % n, [(c - 1) % n], "add", 0), False, False),
    "all_reduce": (
        lambda n: lambda b, c, s, d: b.all_reduce_cc_raw("add", [s], [d], _group(n), is_local=True),
        False,
        False,
    ),
    "reduce_scatter": (
        lambda n: lambda b, c, s, d: b.reduce_scatter_cc_raw("add", [s], [d], _group(n), 0, is_local=True),
        False,
        True,
    ),
    "all_gather": (
        lambda n: lambda b, c, s, d: b.all_gather_cc_raw([s], [d], _group(n), 0, is_local=True),
        True,
        False,
    ),
    "all_to_all": (
        lambda n: lambda b, c, s, d: b.all_to_all_cc_raw([s], [d], _group(n), 0, 0, is_local=True),
        False,
        False,
    ),
    "pairs": (
        lambda n: (
            lambda b, c, s, d: b.tiled_collective_permute_cc_raw(
                [s], [d], [(r, r + 1) for r in range(n - 1)], is_local=True
            )
        ),
        False,
        False,
    ),
    "ring": (
        lambda n: (
            lambda b, c, s, d: b.tiled_collective_permute_implicit_cc_raw([s], [d], _group(n), 1, 2, is_local=True)
        ),
        False,
        False,
    ),
    "ring_reduce": (
        lambda n: (
            lambda b, c, s, d: b.tiled_collective_permute_reduce_implicit_cc_raw(
                "average", [s, s], [d], _group(n), 0, 1, is_local=True
            )
        ),
        False,
        False,
    ),
    "broadcast": (
        lambda n: lambda b, c, s, d: b.broadcast_cc_raw([s], [d], _group(n), (), is_local=True),
        False,
        False,
    ),
}


@pytest.mark.parametrize("lnc", [2, 3, 8])
@pytest.mark.parametrize("kind", LOCAL)
def test_every_kind_among_cores(kind: str, lnc: int) -> None:
    call, wide, narrow = LOCAL[kind]
    kernel = chained(lnc, call(lnc), lnc if wide else 1, lnc if narrow else 1)
    given = [[drawn((lnc, 4 * lnc, 8), kernel.inputs()[0].type.dtype.numpy, lnc)]]
    low = check(kernel, ALL, given)
    assert not kinds(low)
    kept = rewritten(kernel, LOWER)[0]
    assert sum(kinds(kept).values()) == (0 if kind in ("sendrecv", "cce", "all_reduce") else lnc)
    if kinds(kept):
        assert names(kept) == ["compute", "core_barrier", "core_barrier", "collective_compute", "compute"]
    if kind == "sendrecv":
        low = check(kernel, SEMAPHORES, given)
        assert barriers(low) == 2
        assert barriers(rewritten(kernel, LOWER)[0]) == 2 + lnc - 1  # one for each remote core


def test_operands_in_lists_and_at_places_that_only_their_core_knows() -> None:
    def body(b: KernelBuilder, core: int) -> None:
        x = b.input("x", (2, 8, 16), "f32", "shared_hbm")
        out = b.tensor((2, 8, 16), "f32", "shared_hbm", "out")
        a, c = (b.tensor((8, 16), "f32", "private_hbm", n) for n in "ac")
        b.dma_copy(a, x[core])
        b.dma_copy(c, x[core])
        place = DynamicSlice(b.rank_id() + core, 8)
        b.all_reduce_cc_raw("add", [a, c], [c, a], [[0, 1]], is_local=True)
        b.all_reduce_cc_raw("maximum", [a[:, place]], [c[:, place]], [[1, 0]], is_local=True)
        b.all_gather_cc_raw([c[:4, place]], [a[:, place]], [[1, 0]], 0, is_local=True)
        b.sendrecv(c[:, place], a[:, place], 1 - core, 1 - core, 0)
        b.dma_copy(out[core], c)
        b.output(out)

    assert not kinds(check(kernel_of(body), ALL, [[drawn((2, 8, 16), np.float32, 0)]], seeds=20))


@pytest.mark.parametrize("kind", ["all_reduce", "ring_reduce", "placed", "over itself"])
@pytest.mark.parametrize("lower", [LOWER, ALL, SEMAPHORES])
def test_what_others_have_just_touched_is_not_copied_before_they_met(kind: str, lower: str) -> None:
    def body(b: KernelBuilder, core: int) -> None:
        x = b.input("x", (3, 8, 8), "f32", "shared_hbm")
        out = b.tensor((2, 8, 8), "f32", "shared_hbm", "out")
        shared = b.tensor((8, 8), "f32", "shared_hbm", "shared")
        s, d = (b.tensor((8, 8), "f32", "private_hbm", n) for n in "sd")
        for mine in (s, d):
            b.dma_copy(mine, x[core])
        if core == 0:
            b.dma_copy(shared, x[2])
        elif core == 1:
            s = shared  # written by core 0, whom this core meets in the collective only
        if kind == "all_reduce":
            b.all_reduce_cc_raw("add", [s], [d], [[0, 1]], is_local=True)
        elif kind == "ring_reduce":
            ring = b.tiled_collective_permute_reduce_implicit_cc_raw
            ring("add", [s, s], [d], [[0, 1]], 0, 1, is_local=True)
        elif kind == "placed":
            some = s[DynamicSlice(b.rank_id(), 4)]
            b.all_gather_cc_raw([some], [d], [[0, 1]], 0, is_local=True)
        else:
            b.sendrecv(s, s, 1 - core, 1 - core, 0)
        b.dma_copy(out[core], s if kind == "over itself" else d)
        b.output(out)

    check(kernel_of(body), lower, [[drawn((3, 8, 8), np.float32, 0)]], seeds=20)


def test_what_others_have_just_read_is_not_seeded_before_they_met() -> None:
    def body(b: KernelBuilder, core: int) -> None:
        x = b.input("x", (2, 8, 8), "f32", "shared_hbm")
        shared, out = (b.tensor((8, 8), "f32", "shared_hbm", n) for n in ("shared", "out"))
        s, d = (b.tensor((8, 8), "f32", "private_hbm", n) for n in ("s", "d"))
        b.dma_copy(s, x[core])
        if core == 0:
            b.dma_copy(shared, x[1])
        b._barrier([0, 1])
        if core == 1:
            b.dma_copy(out, shared)
        b.all_reduce_cc_raw("add", [s], [d if core else shared], [[0, 1]], is_local=True)
        b.output(out)

    check(kernel_of(body), LOWER, [[drawn((2, 8, 8), np.float32, 0)]], seeds=20)


def test_all_may_write_the_same_memory_where_all_get_the_same() -> None:
    def body(b: KernelBuilder, core: int) -> None:
        x = b.input("x", (2, 4, 8), "f32", "shared_hbm")
        y = b.tensor((4, 8), "f32", "shared_hbm", "y")
        s = b.tensor((4, 8), "f32", "private_hbm", "s")
        b.dma_copy(s, x[core])
        b.all_reduce_cc_raw("add", [s], [y], [[0, 1]], is_local=True)
        if core == 0:
            b.compute("memset", [y[:2]], value=1.0)
        b.output(y)

    assert not kinds(check(kernel_of(body), LOWER, [[drawn((2, 4, 8), np.float32, 0)]], seeds=20))


@settings(max_examples=12)
@given(st.integers(0, 10**6), st.sampled_from([f"{LOWER},insert-ptcom", ALL, SEMAPHORES]))
def test_no_bit_changes_whichever_core_goes_first(seed: int, passes: str) -> None:
    made = RandomKernel(seed, local=True)
    check(made.kernel, passes, made.inputs, seeds=2)


# Fences


def test_fences_that_nobody_needs_are_left_out() -> None:
    def body(steps: Callable[[KernelBuilder, int, View, View], None]) -> Body:
        def built(b: KernelBuilder, core: int) -> None:
            s, d = (b.tensor((4, 8), "f32", "private_hbm", n) for n in "sd")
            b.compute("memset", [s], value=1.0)
            steps(b, core, s, d)

        return built

    def count(steps: Callable[[KernelBuilder, int, View, View], None], passes: str = LOWER) -> int:
        return barriers(rewritten(kernel_of(body(steps)), passes)[0])

    def send(b: KernelBuilder, core: int, s: View, d: View) -> None:
        b.sendrecv(d, s, 1 - core, 1 - core, 0)

    def reduce(b: KernelBuilder, core: int, s: View, d: View) -> None:
        b.all_reduce_cc_raw("add", [d], [d], [[0, 1]], is_local=True)

    def barrier(b: KernelBuilder, core: int, s: View, d: View) -> None:
        b._barrier([0, 1])

    def ring(b: KernelBuilder, core: int, s: View, d: View) -> None:
        b.collective_permute_cc_raw([d], [s], [[0, 1]], is_local=True)

    def read(b: KernelBuilder, core: int, s: View, d: View) -> None:
        b.dma_copy(s, d)

    def chain(*steps: Callable[[KernelBuilder, int, View, View], None]) -> Callable[..., None]:
        def all_of_them(b: KernelBuilder, core: int, s: View, d: View) -> None:
            for step in steps:
                step(b, core, s, d)

        return all_of_them

    assert count(send) == 2
    assert count(chain(send, send)) == 3  # the one that ended the first
    assert count(chain(barrier, send)) == 2
    assert count(chain(barrier, read, send)) == 3  # d was read after it
    assert count(reduce) == 3
    assert count(chain(send, reduce)) == 4
    assert count(chain(send, ring)) == 2  # kept behind what ended the first
    assert count(chain(ring, ring)) == 2
    assert count(chain(send, read, ring)) == 3
    assert count(chain(send, ring), ALL) == 3
    assert count(chain(send, send), SEMAPHORES) == 1


def test_barriers_are_numbered_module_wide() -> None:
    def body(b: KernelBuilder, core: int) -> None:
        s = b.tensor((4, 8), "f32", "private_hbm", "s")
        if core < 2:
            b._barrier([0, 1])
        b.all_reduce_cc_raw("add", [s], [s], [[2, 3], [0, 1]], is_local=True)
        b._barrier([3, 1, 0, 2])

    low, results = rewritten(kernel_of(body, 4), LOWER)
    numbers = [[i.fields.barrier_id for i in instructions(low, c) if isinstance(i, InstCoreBarrier)] for c in range(4)]
    assert numbers == [[0, 1, 2, 3], [0, 1, 2, 3], [4, 5, 6, 3], [4, 5, 6, 3]]
    assert results[0].changed
    assert not rewritten(low, LOWER)[1][0].changed
    outputs(low, [[]], seed=1)


def test_dependences_follow() -> None:
    text = re.sub(r'("LocalSendRecv-0" .*?\}) at', r'\1 after("DMACopy-0") at', str(swap()))
    text = re.sub(r'("DMACopy-1" .*?) at', r'\1 after("LocalSendRecv-0", "DMACopy-0") at', text)
    low, _ = rewritten(read_kernel(text), LOWER)
    found = {i.label: i.deps for i in instructions(low)}
    assert found["LocalSendRecv-0.fence"] == ("DMACopy-0",)
    assert found["DMACopy-1"] == ("LocalSendRecv-0.fence.1", "DMACopy-0")


# What is left alone


def test_collectives_among_ranks_are_kept_behind_a_fence() -> None:
    def body(b: KernelBuilder, core: int) -> None:
        x, y = (b.tensor((4, 8), "f32", "shared_hbm", n) for n in "xy")
        own = b.tensor((4, 8), "f32", "sbuf", "own")
        b.compute("memset", [x[2 * core : 2 * core + 2]], value=float(core))
        b.all_reduce_cc("add", [x], [y])  # both cores do one
        b.dma_copy(own, y)
        b.all_reduce_cc("add", [own], [own])  # each does its own
        b.dma_copy(y[2 * core : 2 * core + 2], own[:2])
        b.output(y)

    kernel = kernel_of(body, ranks=2)
    low = check(kernel, ALL, [[], []])
    assert names(low) == ["compute", "core_barrier", "collective_compute", "collective_compute"]
    assert kinds(low) == kinds(kernel)


def odd_one_out(b: KernelBuilder, core: int, s: View, d: View) -> None:
    b.all_reduce_cc_raw("add", [s], [d], [[0, 1]], is_local=True)
    if core == 0:
        b.all_reduce_cc_raw("add", [s], [d], [[0, 1]], is_local=True)


def crossed(b: KernelBuilder, core: int, s: View, d: View) -> None:
    for op in ("all_gather", "all_reduce")[:: 1 - 2 * core]:
        if op == "all_reduce":
            b.all_reduce_cc_raw("add", [s], [d], [[0, 1]], is_local=True)
        else:
            b.broadcast_cc_raw([s], [d], [[0, 1]], (), is_local=True)


def unlike(b: KernelBuilder, core: int, s: View, d: View) -> None:
    b.all_reduce_cc_raw(("add", "maximum")[core], [s], [d], [[0, 1]], is_local=True)


def other_shapes(b: KernelBuilder, core: int, s: View, d: View) -> None:
    b.all_reduce_cc_raw("add", [s[: 2 + core]], [d[: 2 + core]], [[0, 1]], is_local=True)


def in_one_place(b: KernelBuilder, core: int, s: View, d: View) -> None:
    shared = b.tensor((8, 8), "f32", "shared_hbm", "shared")
    b.sendrecv(shared[2 * core : 2 * core + 4], d, 1 - core, 1 - core, 0)


def variable(b: KernelBuilder, core: int, s: View, d: View) -> None:
    metadata = b.tensor((3, 2), "u32", "private_hbm")
    b.compute("memset", [metadata], value=0)
    b.all_to_all_v_cc_raw([s], [d], [[0, 1]], metadata, is_local=True)


@pytest.mark.parametrize(
    ("steps", "reason", "stuck"),
    [
        (variable, "AllToAllV is left to the runtime; kept; behind a fence", False),
        (odd_one_out, "core 1 has none that meets it", True),
        (crossed, "the cores come to it in different orders", True),
        (unlike, "its members are not alike; kept; behind a fence", False),
        (other_shapes, "its members have tensors of different shapes or types; kept; behind a fence", True),
        (in_one_place, "two cores write the same elements; kept; behind a fence", False),
    ],
)
def test_what_does_not_fit_is_kept_and_said(
    steps: Callable[[KernelBuilder, int, View, View], None], reason: str, stuck: bool
) -> None:
    def body(b: KernelBuilder, core: int) -> None:
        s, d = (b.tensor((4, 8), "f32", "private_hbm", n) for n in "sd")
        b.compute("memset", [s], value=1.0)
        b.compute("memset", [d], value=1.0)
        steps(b, core, s, d)

    kernel = kernel_of(body)
    low, results = rewritten(kernel, ALL)
    assert reason in reasons(results)
    if stuck:
        for each in (kernel, low):
            with pytest.raises(RunError):
                outputs(each, [[]])


def test_a_core_in_no_group_has_nothing_to_do() -> None:
    def body(b: KernelBuilder, core: int) -> None:
        s = b.tensor((4, 8), "f32", "private_hbm", "s")
        b.all_reduce_cc_raw("add", [s], [s], [[0, 1]], is_local=True)

    low, results = rewritten(kernel_of(body, 3), LOWER)
    assert names(low, 2) == []
    assert "the core is in none of its groups; taken away; of a single core" in reasons(results)


@pytest.mark.parametrize(
    ("lnc", "arch", "said"), [(1, 40, []), (2, 20, ["cores cannot meet at architecture level 20"])]
)
def test_kernels_that_are_left_alone(lnc: int, arch: int, said: list[str]) -> None:
    def body(b: KernelBuilder, core: int) -> None:
        s = b.tensor((4, 8), "f32", "private_hbm", "s")
        b.all_reduce_cc_raw("add", [s], [s], [[0]], is_local=True)

    kernel = kernel_of(body, lnc, arch=arch)
    low, results = rewritten(kernel, LOWER)
    assert str(low) == str(kernel)
    assert not results[0].changed
    assert [r.split(",")[0] for r in reasons(results)] == said


# Loops and branches

LOOP = """
builtin.module attributes {instr.lnc = #builtin.int<2>} {
  PROGRAMS
}
"""
PROGRAM = """
  instr.program @coreC on C {
    %x = instr.tensor {name = "x", input = 0} : !instr.tensor<[2, 2, 8], s32, shared_hbm>
    %s = instr.tensor {name = "s"} : !instr.tensor<[2, 8], s32, private_hbm>
    %o = instr.tensor {name = "o", outputs = [0]} : !instr.tensor<[2, 2, 8], s32, shared_hbm>
    %xa = instr.access %x {offset = OFF, pattern = [[8, 2], [1, 8]]}
    %sa = instr.access %s {offset = 0, pattern = [[8, 2], [1, 8]]}
    %oa = instr.access %o {offset = OFF, pattern = [[8, 2], [1, 8]]}
    %c = instr.tensor {name = "c"} : !instr.tensor<[1], s32, private_hbm>
    %ca = instr.access %c {offset = 0, pattern = [[1, 1]]}
    instr.dma_copy "copy" out(%sa) in(%xa)
    instr.compute "zero" out(%ca) {function = "memset", params = [["value", 3]]}
    instr.jump ^loop
  ^loop:
    instr.collective_compute "AllReduce" out(%sa) in(%sa) {
      kind = all_reduce, replica_groups = [[0, 1]], op = add, is_local = true}
    %n = instr.register_load "load" in(%ca) : !instr.register
    %m = instr.register_alu "less" reg(%n) {op = "subtract", right = 1} : !instr.register
    instr.register_store "store" out(%ca) reg(%m)
    instr.branch %m, ^loop, ^after
  ^after:
    instr.dma_copy "out" out(%oa) in(%sa)
    instr.endEXTRA
  }
"""


def loop(extra: str = "") -> Kernel:
    made = [PROGRAM.replace("coreC on C", f"core{c} on {c}").replace("OFF", str(16 * c)) for c in (0, 1)]
    texts = [made[0].replace("EXTRA", ""), made[1].replace("EXTRA", extra)]
    return read_kernel(LOOP.replace("PROGRAMS", "".join(texts)))


def test_loops() -> None:
    kernel = loop()
    given = [[drawn((2, 2, 8), np.int32, 0)]]
    low = check(kernel, LOWER, given)
    assert not kinds(low)
    with np.errstate(over="ignore"):
        assert (outputs(low, given)[0][0] == given[0][0].sum(axis=0, dtype=np.int32) * np.int32(4)).all()


def test_cores_with_other_blocks_are_left_alone() -> None:
    kernel = loop("\n  ^never:\n    instr.end")
    low, results = rewritten(kernel, "lower-local-collectives,insert-ptcom")
    assert [r.reason for result in results for r in result.remarks] == ["its cores do not all have the same blocks"] * 2
    assert str(low) == str(kernel)
