"""Kernels as their authors write them, run: forms of tiles and views, loops, products, peers, and what goes wrong."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import crossrank.program.language as pl
import crossrank.program.language.distributed as pld
from crossrank.author import load_module
from crossrank.passes import parse_passes, run_passes
from crossrank.program.codegen.build import CompiledKernel, build_kernels
from crossrank.program.program import Function, Program
from crossrank.runtime.tasks import Fault
from crossrank.runtime.threads import Tensor
from tests.program.codegen.kernels import CALL, Array, Context, Fabric, Launch, Range, assert_same, launch

NR = pl.dynamic("NR")
M = pl.dynamic("M")
F = pl.Tensor[[6, 8], pl.FP32]
CELLS = pld.DistributedTensor[[NR, 2], pl.INT32]
RANKS = 3


@pl.program
class Kernels:
    @pl.function(type=pl.FunctionType.InCore)
    def forms(self, x: F, out: pl.Out[pl.Tensor[[8, 6, 8], pl.FP32]]):
        turned = pl.transpose(x, 0, 1)
        part = pl.slice(turned, [4, 1], [2, 3], drop_dims=[1])
        pl.store(pl.load(part, [1], [3]), [0, 0, 0], out)
        pl.store(pl.load(turned, [0, 0], [8, 6], valid_shape=[5, 2]), [1, 1, 1], pl.transpose(out, 1, 2))
        pl.store(pl.load(pl.reshape(x, [3, 16]), [1, 4], [2, 4]), [2, 0, 0], out)
        tile = pl.load(x, [0, 0], [6, 8])
        pl.store(pl.transpose(tile[1:4, 2:7], 0, 1), [3, 0, 0], out)
        pl.store(pl.reshape(pl.tile.row_sum(tile, tile), [1, 6]), [4, 0, 0], out)
        some = pl.set_validshape(tile, 5, 3)
        pl.store(pl.add(some, pl.load(x, [1, 0], [5, 8], valid_shape=[4, 8], clamp=True)[0:1, 0:8]), [4, 1, 0], out)
        pl.store(pl.fillpad(pl.set_validshape(tile, 2, 3), pl.PadValue.zero), [5, 0, 0], out)
        whole = pl.full([6, 8], pl.FP32, 2.0)
        other = pl.assemble(pl.add(whole, 1.0), tile[0:2, 0:2], [3, 4])
        whole, kept = pl.assemble(whole, tile[0:2, 0:2], [3, 4]), whole
        pl.tile.write(whole, [0, 7], pl.tile.read(tile, [5, 5]))
        pl.store(whole, [6, 0, 0], out)
        rows = pl.set_validshape(tile, 3, 8)
        pl.store(pl.reshape(rows, [2, 24])[0:1, 0:8], [7, 0, 0], out)
        pl.store(pl.reshape(pl.set_validshape(tile, 2, 3), [1, 6, 8]), [7, 1, 0], out)
        pl.store(pl.add(kept, other)[3:4, 3:6], [7, 5, 0], out)

    @pl.function(type=pl.FunctionType.InCore)
    def loops(
        self, x: pl.Tensor[[M, 8], pl.FP32], skip: pl.Scalar[pl.INT32], out: F, numbers: pl.Tensor[[8], pl.INT64]
    ):
        acc = pl.load(x, [0, 0], [1, 8])
        other = pl.full([1, 8], pl.FP32, 1.0)
        a, b = 0, 1
        for i in pl.range(1, M):
            if i != skip:
                acc, other = pl.add(acc, pl.load(x, [i, 0], [1, 8])), acc
            a, b = b, a + b
        out = pl.store(acc, [0, 0], out)
        pl.store(other, [1, 0], out)
        counts = pl.array.create(4, pl.INT64)
        for i in pl.range(0, 10, 3):
            for j in pl.range(i):
                counts[i // 3] = counts[i // 3] + j
        for i in pl.range(4):
            numbers[i] = counts[i]
        numbers[4] = a
        numbers[5] = pl.cast(skip, pl.INT64) // -2
        numbers[6] = pl.cast(skip, pl.INT64) % -3
        numbers[7] = pl.dim(x, 0)

    @pl.function(type=pl.FunctionType.InCore)
    def products(
        self,
        a: pl.Tensor[[5, 7], pl.BF16],
        b: pl.Tensor[[7, 6], pl.BF16],
        n: pl.Tensor[[7, 7], pl.INT8],
        out: pl.Tensor[[5, 6], pl.FP32],
        sums: pl.Tensor[[7, 7], pl.INT32],
    ):
        first, second = pl.load(a, [0, 0], [5, 7]), pl.load(b, [0, 0], [7, 6])
        acc = pl.matmul(first, second)
        pl.store(pl.matmul_acc(acc, first, second), [0, 0], out)
        whole = pl.load(n, [0, 0], [7, 7])
        pl.store(pl.matmul(whole, whole), [0, 0], sums)

    @pl.function(type=pl.FunctionType.InCore)
    def halves(
        self,
        h: pl.Tensor[[256, 256], pl.FP16],
        f: pl.Tensor[[256, 256], pl.FP32],
        d: pl.Tensor[[256, 256], pl.FP64],
        wide: pl.Out[pl.Tensor[[2, 256, 256], pl.FP32]],
        narrow: pl.Out[pl.Tensor[[3, 256, 256], pl.FP16]],
        brain: pl.Out[pl.Tensor[[256, 256], pl.BF16]],
    ):
        pl.store(pl.cast(pl.load(h, [0, 0], [256, 256]), pl.FP32), [0, 0, 0], wide)
        pl.store(pl.cast(pl.load(f, [0, 0], [256, 256]), pl.FP16), [0, 0, 0], narrow)
        pl.store(pl.cast(pl.load(d, [0, 0], [256, 256]), pl.FP16), [1, 0, 0], narrow)
        pl.store(pl.cast(pl.load(f, [0, 0], [256, 256]), pl.BF16), [0, 0], brain)
        for c in pl.range(256):  # a column: not the way of whole rows
            column = pl.load(h, [0, c], [256, 2], valid_shape=[256, 1])
            pl.store(pl.cast(column, pl.FP32), [1, 0, c], wide)
            floats = pl.load(f, [0, c], [256, 2], valid_shape=[256, 1])
            pl.store(pl.cast(floats, pl.FP16), [2, 0, c], narrow)

    @pl.function(type=pl.FunctionType.InCore)
    def blocks(self, out: pl.Tensor[[6, 8], pl.INT32]):
        i = pl.get_block_idx()
        pl.store(pl.full([1, 8], pl.INT32, 3), [i, 0], out)
        pl.write(out, [i, 0], pl.cast(pl.get_block_num(), pl.INT32))

    @pl.function(type=pl.FunctionType.InCore)
    def peers(
        self,
        mine: F,
        w: pl.InOut[pld.DistributedTensor[[4, 6, 8], pl.FP32]],
        cells: pl.InOut[CELLS],
        sums: pl.InOut[pld.DistributedTensor[[2, 8], pl.FP16]],
        step: pl.Scalar[pl.INT32],
        out: pl.Out[pl.Tensor[[4, 6, 8], pl.FP32]],
    ):
        ctx = pld.get_comm_ctx(w)
        me, n = pld.rank(ctx), pld.nranks(ctx)
        right = (me + pl.cast(step, pl.INDEX)) % n
        to = pl.transpose(w[1], 0, 1)
        pld.tensor.put(w[0], right, mine)
        pld.tensor.put(to, right, pl.reshape(mine, [8, 6]), [2, 1], [3, 0], [4, 5], chunk_rows=2)
        pld.tile.remote_store(pl.load(mine, [0, 0], [2, 8], valid_shape=[2, 5]), w[2], right, [3, 1])
        one = pl.full([1, 8], pl.FP16, 0.5)
        for peer in pl.range(n):
            pld.tile.remote_store(one, sums, peer, [1, 0], atomic=pld.AtomicType.Add)
            pld.system.notify(cells, peer=peer, offsets=[me, 1], value=2, op=pld.NotifyOp.AtomicAdd)
        for peer in pl.range(n):
            pld.system.wait(signal=cells, offsets=[peer, 1], expected=2, cmp=pld.WaitCmp.Ge)
        pl.store(pld.tile.remote_load(w[0], right, [4, 2], [2, 6], valid_shape=[1, 3]), [3, 0, 0], out)
        pld.tensor.get(out[2], right, w[2])
        pl.store(pl.load(w, [0, 0, 0], [2, 6, 8]), [0, 0, 0], out)

    @pl.function(type=pl.FunctionType.InCore)
    def staged(self, mine: F, w: pl.InOut[pld.DistributedTensor[[2, 6, 8], pl.FP32]], out: pl.Out[F]):
        pld.tensor.put(w[0], 1, mine, chunk_rows=1, chunk_cols=5)
        pld.tensor.put(w[1], 1, pl.reshape(mine, [6, 8]), [0, 0], [0, 2], [6, 3])
        pld.tile.remote_store(pl.load(mine, [0, 0], [2, 4]), w[1], 1, [4, 4])
        pl.store(pld.tile.remote_load(pl.transpose(w[0], 0, 1), 1, [0, 0], [2, 6]), [0, 0], out)
        pld.tensor.get(out, 1, w[1], [2, 0], [0, 0], [4, 8])


FAULTY = {
    "reads": ("pl.load(x, [n, 0], [4, 8])", "pl.load reads rows 3..7 of x, which has 6"),
    "valid": ("pl.load(x, [0, 0], [4, 8], valid_shape=[n - 5, 8])", "pl.load fills -2 rows of a tile"),
    "writes": (
        "pl.store(pl.full([2, 2], pl.FP32, 1.0), [0, n + 4], x)",
        "pl.store writes columns 7..9 of x, which has 8",
    ),
    "one": ("pl.write(x, [0, n - 4], pl.read(x, [n, n * 4]))", "pl.read reads columns 12..13 of x, which has 8"),
    "sliced": (
        "pl.load(pl.slice(x, [n, 4], [n * 2, 0]), [0, 0], [1, 1])",
        "pl.slice takes rows 6..9 of x, which has 6",
    ),
    "gaps": ("pl.load(pl.reshape(pl.transpose(x, 0, 1), [48]), [0], [2])", "pl.reshape of x, whose elements"),
    "zero": ("pl.div(pl.full([1, 2], pl.INT32, 4), pl.cast(n - 3, pl.INT32))", "pl.div: division by zero"),
    "scalar": ("pl.load(x, [4 // (n - 3), 0], [1, 8])", "division by zero"),
    "peer": ("pld.tensor.put(w, n, x)", "pld.tensor.put writes rank 3 of w, which 3 ranks have"),
    "cell": (
        "pld.system.notify(cells, 0, [n, 0], 1, op=pld.NotifyOp.Set)",
        "pld.system.notify changes rows 3..4 of cells, which has 3",
    ),
    "region": ("pld.tensor.put(w, 0, x, [0, 0], [n, 0], [4, 8])", "pld.tensor.put reads rows 3..7 of x, which has 6"),
    "far": ("pld.tile.remote_load(w, n - 4, [0, 0], [1, 8])", "pld.tile.remote_load reads rank -1 of w, which 3 ranks"),
}


def statement(name: str, text: str) -> str:
    return f"""
    @pl.function(type=pl.FunctionType.InCore)
    def {name}(self, x: F, w: pld.DistributedTensor[[6, 8], pl.FP32], cells: CELLS, n: pl.Scalar[pl.INDEX]):
        {text}
"""


HEAD = """\
import crossrank.program.language as pl
import crossrank.program.language.distributed as pld
from tests.program.codegen.test_kernels import CELLS, F
@pl.program
class Faults:
"""


Made = tuple[Program, dict[str, CompiledKernel]]


@pytest.fixture(scope="module")
def made() -> Made:
    source = HEAD + "".join(statement(name, text) for name, (text, _) in FAULTY.items())
    faults = load_module(source.encode(), "faulty.py", "a program").Faults
    found = Program.of("made", [Function(f.op.clone()) for p in (Kernels, faults) for f in p.functions])
    run_passes(found, parse_passes("materialize-comm-domain-scopes,materialize-dist-tensor-ctx"))
    return found, build_kernels(found)


def run(made: Made, name: str, *ranks: Sequence[Any], blocks: int = 1) -> None:
    """Run a kernel on ranks that give its tensors and scalars."""
    program, kernels = made
    launch(kernels[name], program.function(name), *ranks, blocks=blocks)


def numbers(*shape: int) -> Array:
    return np.random.default_rng(9).integers(-9, 9, shape).astype(np.float32)


def test_forms_of_tiles_and_views(made: Made) -> None:
    x, out = numbers(6, 8), np.full((8, 6, 8), -1, np.float32)
    wanted = out.copy()
    run(made, "forms", (x, out))
    wanted[0, 0, :3] = x.T[3:6, 3]
    wanted[1, 1:3, 1:6] = x.T[:5, :2].T
    wanted[2, :2, :4] = x.reshape(3, 16)[1:, 4:8]
    wanted[3, :5, :3] = x[1:4, 2:7].T
    wanted[4, 0, :6] = x.sum(1)
    wanted[4, 1:6, :3] = (x + x[1])[:5, :3]
    wanted[5] = 0
    wanted[5, :2, :3] = x[:2, :3]
    wanted[6] = 2
    wanted[6, 3:5, 4:6] = x[:2, :2]
    wanted[6, 0, 7] = x[5, 5]
    wanted[7, 0] = x[0]
    wanted[7, 1:3, :3] = x[:2, :3]
    wanted[7, 5, :3] = [2 + 3, *2 + x[0, :2]]
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize(("rows", "skip"), [(1, 0), (2, 1), (6, 3)])
def test_loops_carry_what_is_bound_again(made: Made, rows: int, skip: int) -> None:
    x, out, found = numbers(rows, 8), np.zeros((6, 8), np.float32), np.zeros(8, np.int64)
    run(made, "loops", (x, skip, out, found))
    acc, other, a, b = x[0], np.ones(8), 0, 1
    for i in range(1, rows):
        if i != skip:
            acc, other = acc + x[i], acc
        a, b = b, a + b
    np.testing.assert_array_equal(out[:2], [acc, other])
    counts = [sum(range(i)) for i in range(0, 10, 3)]
    np.testing.assert_array_equal(found, [*counts, a, skip // -2, skip % -3, rows])


def test_products(made: Made) -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((5, 7), (7, 6)))
    n = rng.integers(-128, 128, (7, 7)).astype(np.int8)
    out, sums = np.zeros((5, 6), np.float32), np.zeros((7, 7), np.int32)
    run(made, "products", (a, b, n, out, sums))
    wanted = np.zeros((5, 6), np.float32)
    for _ in range(2):
        for k in range(7):
            wanted += a[:, k : k + 1].astype(np.float32) * b[k : k + 1].astype(np.float32)
    np.testing.assert_array_equal(out, wanted)
    np.testing.assert_array_equal(sums, n.astype(np.int32) @ n.astype(np.int32))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_float_of_16_bits(made: Made) -> None:
    h = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(256, 256)
    f = np.random.default_rng(8).integers(0, 1 << 32, (256, 256), np.uint32).view(np.float32)
    f[:128] = h.astype(np.float32)[:128] * np.float32(1 + 2**-11)  # ties, or next to them
    d = h.astype(np.float64) * (1 + 2**-11) + np.copysign(1e-30, h)  # what two roundings would take for ties
    wide, narrow = np.zeros((2, 256, 256), np.float32), np.zeros((3, 256, 256), np.float16)
    brain = np.zeros((256, 256), ml_dtypes.bfloat16)
    run(made, "halves", (h, f, d, wide, narrow, brain))
    assert_same(wide, np.array([h, h]).astype(np.float32), "wide")
    assert_same(narrow, np.array([x.astype(np.float16) for x in (f, d, f)]), "narrow")
    assert_same(brain, f.astype(ml_dtypes.bfloat16), "brain")


def test_blocks_know_which_they_are(made: Made) -> None:
    out = np.zeros((6, 8), np.int32)
    run(made, "blocks", (out,), blocks=4)
    np.testing.assert_array_equal(out, [[4, *[3] * 7]] * 4 + [[0] * 8] * 2)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_peers(made: Made, ranks: int) -> None:
    mine = [numbers(6, 8) + r for r in range(ranks)]
    windows = [np.zeros((4, 6, 8), np.float32) for _ in mine]
    cells, sums = [np.zeros((ranks, 2), np.int32) for _ in mine], [np.ones((2, 8), np.float16) for _ in mine]
    outs = [np.zeros((4, 6, 8), np.float32) for _ in mine]
    run(made, "peers", *((m, w, c, s, 1, o) for m, w, c, s, o in zip(mine, windows, cells, sums, outs, strict=True)))
    wanted = [np.zeros((4, 6, 8), np.float32) for _ in mine]
    for r, m in enumerate(mine):
        w = wanted[(r + 1) % ranks]
        w[0] = m
        w[1].T[2:6, 1:6] = m.reshape(8, 6)[3:7, :5]
        w[2][3:5, 1:6] = m[:2, :5]
    for r, out in enumerate(outs):
        right = wanted[(r + 1) % ranks]
        np.testing.assert_array_equal(windows[r], wanted[r])
        np.testing.assert_array_equal(out[:3], [*wanted[r][:2], right[2]])
        np.testing.assert_array_equal(out[3, 0], [*right[0][4, 2:5], *[0] * 5])
        np.testing.assert_array_equal(sums[r], [[1] * 8, [1 + ranks / 2] * 8])
        np.testing.assert_array_equal(cells[r], [[0, 2]] * ranks)


def test_peers_whose_memory_is_not_reachable(made: Made) -> None:
    """Each transfer is a call of the fabric then, with rows in the pieces that were asked for."""
    _, kernels = made
    mine, out, peer = numbers(6, 8), np.zeros((6, 8), np.float32), np.zeros((2, 6, 8), np.float32)
    sizes = []

    def read(_: Any, slot: int, rank: int, range: Range, into: int) -> int:
        assert (slot, rank) == (1, 1)
        ctypes.memmove(into, peer.ctypes.data + range.offset, range.bytes)
        return 0

    def write(_: Any, slot: int, rank: int, range: Range, start: int) -> int:
        sizes.append(range.bytes)
        ctypes.memmove(peer.ctypes.data + range.offset, start, range.bytes)
        return 0

    fabric = Fabric(CALL(read), CALL(write))
    launched = Launch(0, 1)
    context = Context(ctypes.addressof(fabric), None, (ctypes.c_void_p * 6)(), 0, 0, 2, 3, ctypes.addressof(launched))
    tensors = [Tensor.of(a) for a in (mine, np.zeros((2, 6, 8), np.float32), out)]
    slots = (ctypes.c_void_p * 5)(*map(ctypes.addressof, (*tensors, context, launched)))
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(kernels["staged"].address)
    assert entry(slots) == 0, launched.fault
    wanted = np.zeros((2, 6, 8), np.float32)
    wanted[0], wanted[1, :, :3], wanted[1, 4:, 4:] = mine, mine[:, 2:5], mine[:2, :4]
    np.testing.assert_array_equal(peer, wanted)
    np.testing.assert_array_equal(out, [*np.pad(mine.T[:2], ((0, 0), (0, 2))), *wanted[1, :4]])
    assert sizes[:10] == [20] * 9 + [12]


@pytest.mark.parametrize("name", FAULTY)
def test_faults(made: Made, name: str) -> None:
    line = HEAD.count("\n") + 4 * list(FAULTY).index(name) + 4
    arguments = [(numbers(6, 8), numbers(6, 8), np.zeros((3, 2), np.int32), 3) for _ in range(RANKS)]
    with pytest.raises(Fault) as fault:
        run(made, name, *arguments)
    assert fault.value.text.startswith(FAULTY[name][1])
    assert fault.value.line == line
