"""Collectives of the host, run: each against NumPy, on all devices and on some, in loops and branches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import crossrank.program.language as pl
import crossrank.program.language.distributed as pld
from crossrank.errors import RunError
from crossrank.program import compile
from crossrank.program.execute.failures import Latched
from crossrank.program.program import Program, read_program

SIZE, CAPACITY = 16, 2
R, Q = pl.dynamic("R"), pl.dynamic("Q")
RESULTS = (
    *("allreduce", "ring", "broadcast", "allgather", "reduce_scatter"),
    *("all_to_all", "all_to_all_v", "indexed", "loop", "branch"),
)
"""What is taken from the devices, in this order."""


def everything(ranks: int, devices: tuple[int, ...] = ()) -> Program:
    """All of them, one after another; on all devices, or on as many ``devices`` as there are ranks."""
    rows = ranks * CAPACITY

    @pl.program
    class Everything:
        @pl.function(type=pl.FunctionType.InCore)
        def copy_in(
            self,
            x: pl.Tensor[[R, SIZE], pl.FP32],
            w: pl.InOut[pld.DistributedTensor[[R, SIZE], pl.FP32]],
        ) -> pld.DistributedTensor[[R, SIZE], pl.FP32]:
            for i in pl.range(R):
                w = pl.store(pl.load(x, [i, 0], [1, SIZE]), [i, 0], w)
            return w

        @pl.function(type=pl.FunctionType.InCore)
        def copy_cells(
            self,
            x: pl.Tensor[[R, 1], pl.INT32],
            w: pl.InOut[pld.DistributedTensor[[R, 1], pl.INT32]],
        ) -> pld.DistributedTensor[[R, 1], pl.INT32]:
            for i in pl.range(R):
                pl.write(w, [i, 0], pl.read(x, [i, 0]))
            return w

        @pl.function(type=pl.FunctionType.InCore)
        def copy_out(
            self,
            w: pld.DistributedTensor[[R, SIZE], pl.FP32],
            y: pl.Out[pl.Tensor[[Q, SIZE], pl.FP32]],
        ) -> pl.Tensor[[Q, SIZE], pl.FP32]:
            for i in pl.range(R):
                y = pl.store(pl.load(w, [i, 0], [1, SIZE]), [i, 0], y)
            return y

        @pl.function(type=pl.FunctionType.InCore)
        def copy_cells_out(
            self,
            w: pld.DistributedTensor[[R, 1], pl.INT32],
            y: pl.Out[pl.Tensor[[R, 1], pl.INT32]],
        ) -> pl.Tensor[[R, 1], pl.INT32]:
            for i in pl.range(R):
                pl.write(y, [i, 0], pl.read(w, [i, 0]))
            return y

        @pl.function(type=pl.FunctionType.Orchestration)
        def stage(
            self,
            x: pl.Tensor[[rows, SIZE], pl.FP32],
            counts: pl.Tensor[[ranks, 1], pl.INT32],
            index: pl.Tensor[[rows, 1], pl.INT32],
            summed: pl.InOut[pld.DistributedTensor[[rows, SIZE], pl.FP32]],
            ringed: pl.InOut[pld.DistributedTensor[[rows, SIZE], pl.FP32]],
            cast: pl.InOut[pld.DistributedTensor[[rows, SIZE], pl.FP32]],
            looped: pl.InOut[pld.DistributedTensor[[rows, SIZE], pl.FP32]],
            branched: pl.InOut[pld.DistributedTensor[[rows, SIZE], pl.FP32]],
            scattered: pl.InOut[pld.DistributedTensor[[ranks, SIZE], pl.FP32]],
            row: pl.InOut[pld.DistributedTensor[[1, SIZE], pl.FP32]],
            square: pl.InOut[pld.DistributedTensor[[ranks, SIZE], pl.FP32]],
            source: pl.InOut[pld.DistributedTensor[[rows, SIZE], pl.FP32]],
            sent: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
            rows_of: pl.InOut[pld.DistributedTensor[[rows, 1], pl.INT32]],
        ):
            self.copy_in(x, summed)
            self.copy_in(x, ringed)
            self.copy_in(x, cast)
            self.copy_in(x, looped)
            self.copy_in(x, branched)
            self.copy_in(x, source)
            self.copy_in(x[0:ranks], scattered)
            self.copy_in(x[0:ranks], square)
            self.copy_in(x[0:1], row)
            self.copy_cells(counts, sent)
            self.copy_cells(index, rows_of)

        @pl.function(type=pl.FunctionType.Orchestration)
        def take(self, w: pld.DistributedTensor[[R, SIZE], pl.FP32], y: pl.Out[pl.Tensor[[Q, SIZE], pl.FP32]]):
            self.copy_out(w, y)

        @pl.function(type=pl.FunctionType.Orchestration)
        def take_cells(self, w: pld.DistributedTensor[[R, 1], pl.INT32], y: pl.Out[pl.Tensor[[R, 1], pl.INT32]]):
            self.copy_cells_out(w, y)

        @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
        def host(
            self,
            x: pl.Tensor[[ranks, rows, SIZE], pl.FP32],
            counts: pl.Tensor[[ranks, ranks, 1], pl.INT32],
            index: pl.Tensor[[ranks, rows, 1], pl.INT32],
            cores: pl.Scalar[pl.INDEX],
            y: pl.Out[pl.Tensor[[len(RESULTS), ranks, rows, SIZE], pl.FP32]],
            received: pl.Out[pl.Tensor[[2, ranks, ranks, 1], pl.INT32]],
        ):
            sum_buf = pld.alloc_window_buffer([rows, SIZE], dtype=pl.FP32)
            ring_buf = pld.alloc_window_buffer([rows, SIZE], dtype=pl.FP32)
            cast_buf = pld.alloc_window_buffer([rows, SIZE], dtype=pl.FP32)
            loop_buf = pld.alloc_window_buffer([rows, SIZE], dtype=pl.FP32)
            branch_buf = pld.alloc_window_buffer([rows, SIZE], dtype=pl.FP32)
            scatter_buf = pld.alloc_window_buffer([ranks, SIZE], dtype=pl.FP32)
            row_buf = pld.alloc_window_buffer([1, SIZE], dtype=pl.FP32)
            gather_buf = pld.alloc_window_buffer([ranks, SIZE], dtype=pl.FP32)
            square_buf = pld.alloc_window_buffer([ranks, SIZE], dtype=pl.FP32)
            turned_buf = pld.alloc_window_buffer([ranks, SIZE], dtype=pl.FP32)
            input_buf = pld.alloc_window_buffer([rows, SIZE], dtype=pl.FP32)
            target_buf = pld.alloc_window_buffer([rows, SIZE], dtype=pl.FP32)
            picked_buf = pld.alloc_window_buffer([rows, SIZE], dtype=pl.FP32)
            sent_buf = pld.alloc_window_buffer([ranks, 1], dtype=pl.INT32)
            got_buf = pld.alloc_window_buffer([ranks, 1], dtype=pl.INT32)
            got_too_buf = pld.alloc_window_buffer([ranks, 1], dtype=pl.INT32)
            index_buf = pld.alloc_window_buffer([rows, 1], dtype=pl.INT32)
            wide_buf = pld.alloc_window_buffer([ranks, 2 * ranks], dtype=pl.INT32)
            cells_buf = pld.alloc_window_buffer([ranks], dtype=pl.INT32)
            rounds_buf = pld.alloc_window_buffer([2 * ranks - 1, ranks], dtype=pl.INT32)

            summed = pld.window(sum_buf, [rows, SIZE], dtype=pl.FP32)
            ringed = pld.window(ring_buf, [rows, SIZE], dtype=pl.FP32)
            cube = pld.window(ring_buf, [CAPACITY, ranks, SIZE], dtype=pl.FP32)
            cast = pld.window(cast_buf, [rows, SIZE], dtype=pl.FP32)
            looped = pld.window(loop_buf, [rows, SIZE], dtype=pl.FP32)
            branched = pld.window(branch_buf, [rows, SIZE], dtype=pl.FP32)
            scattered = pld.window(scatter_buf, [ranks, SIZE], dtype=pl.FP32)
            row = pld.window(row_buf, [1, SIZE], dtype=pl.FP32)
            gathered = pld.window(gather_buf, [ranks, SIZE], dtype=pl.FP32)
            square = pld.window(square_buf, [ranks, SIZE], dtype=pl.FP32)
            turned = pld.window(turned_buf, [ranks, SIZE], dtype=pl.FP32)
            source = pld.window(input_buf, [rows, SIZE], dtype=pl.FP32)
            target = pld.window(target_buf, [rows, SIZE], dtype=pl.FP32)
            picked = pld.window(picked_buf, [rows, SIZE], dtype=pl.FP32)
            sent = pld.window(sent_buf, [ranks, 1], dtype=pl.INT32)
            got = pld.window(got_buf, [ranks, 1], dtype=pl.INT32)
            got_too = pld.window(got_too_buf, [ranks, 1], dtype=pl.INT32)
            rows_of = pld.window(index_buf, [rows, 1], dtype=pl.INT32)
            wide = pld.window(wide_buf, [ranks, 2 * ranks], dtype=pl.INT32)
            cells = pld.window(cells_buf, [ranks], dtype=pl.INT32)
            rounds = pld.window(rounds_buf, [2 * ranks - 1, ranks], dtype=pl.INT32)

            if devices:
                for d in pl.unroll(ranks):
                    self.stage(
                        x[d], counts[d], index[d], summed, ringed, cast, looped, branched, scattered, row, square,
                        source, sent, rows_of, device=devices[d],
                    )  # fmt: skip
            else:
                for r in pl.range(pld.world_size()):
                    self.stage(
                        x[r], counts[r], index[r], summed, ringed, cast, looped, branched, scattered, row, square,
                        source, sent, rows_of, device=r,
                    )  # fmt: skip

            summed = pld.tensor.allreduce(summed, wide, core_num=3)
            pld.tensor.allreduce(cube, rounds, op=pld.ReduceOp.Max, mode="ring")
            cast = pld.tensor.broadcast(cast, cells, root=1)
            gathered = pld.tensor.allgather(row, gathered, cells)
            scattered = pld.tensor.reduce_scatter(scattered, wide, op=pld.ReduceOp.Min)
            cells = pld.tensor.barrier(cells)
            turned = pld.tensor.all_to_all(square, turned, cells)
            target = pld.tensor.all_to_all_v(source, target, wide, sent, got, core_num=cores)
            picked = pld.tensor.indexed_all_to_all_v(source, picked, wide, sent, got_too, rows_of, core_num=2)
            for i in pl.range(2):
                looped = pld.tensor.allreduce(looped, core_num=i + 1)
                looped = pld.tensor.allreduce(looped, op=pld.ReduceOp.Max)
            if cores > 1:
                branched = pld.tensor.allreduce(branched, core_num=cores)
            else:
                branched = pld.tensor.broadcast(branched, cells, root=0)

            results = [summed, ringed, cast, gathered, scattered, turned, target, picked, looped, branched]
            for k in pl.unroll(len(RESULTS)):
                if devices:
                    for d in pl.unroll(ranks):
                        self.take(results[k], y[k, d], device=devices[d])
                else:
                    for r in pl.range(pld.world_size()):
                        self.take(results[k], y[k, r], device=r)
            if devices:
                for d in pl.unroll(ranks):
                    self.take_cells(got, received[0, d], device=devices[d])
                    self.take_cells(got_too, received[1, d], device=devices[d])
            else:
                for r in pl.range(pld.world_size()):
                    self.take_cells(got, received[0, r], device=r)
                    self.take_cells(got_too, received[1, r], device=r)
            return y, received

    return Everything


Arrays = npt.NDArray[np.float32]


def meaning(x: Arrays, counts: npt.NDArray[np.int32], index: npt.NDArray[np.int32], cores: int) -> dict[str, Arrays]:
    """What each of them leaves on every rank, `[ranks, rows, SIZE]`; of fewer rows the first."""
    ranks = len(x)
    total = x.copy()
    total[:] = np.add.reduce(x, 0)  # of small whole numbers: exact in any order
    found = {name: np.zeros_like(x) for name in RESULTS}
    found["allreduce"] = total
    found["ring"][:] = x.max(0)
    found["broadcast"][:] = x[1]
    found["allgather"][:, :ranks] = x[:, 0]
    found["reduce_scatter"][:, :ranks] = x[:, :ranks]
    for r in range(ranks):
        found["reduce_scatter"][r, r] = x[:, r].min(0)
    found["all_to_all"][:, :ranks] = x[:, :ranks].swapaxes(0, 1)
    for s in range(ranks):
        for d in range(ranks):
            n = min(max(counts[s, d, 0], 0), CAPACITY)
            found["all_to_all_v"][d, s * CAPACITY :][:n] = x[s, d * CAPACITY :][:n]
            found["indexed"][d, s * CAPACITY :][:n] = x[s, index[s, d * CAPACITY :, 0][:n]]
    found["loop"] = total * ranks
    found["branch"][:] = total if cores > 1 else x[0]
    return found


@pytest.mark.parametrize(("ranks", "devices"), [(2, ()), (4, ()), (2, (0, 2)), (3, (3, 1, 2))])
def test_each_of_them(ranks: int, devices: tuple[int, ...]) -> None:
    rng = np.random.default_rng(ranks)
    x = rng.integers(-9, 9, (ranks, ranks * CAPACITY, SIZE)).astype(np.float32)
    counts = rng.permuted(np.resize([0, 1, 2, 5, -3], (ranks, ranks, 1)).astype(np.int32), axis=1)
    index = rng.integers(0, ranks * CAPACITY, (ranks, ranks * CAPACITY, 1)).astype(np.int32)
    run = compile(everything(ranks, devices), ranks=4 if devices else ranks)
    order = np.argsort(devices or range(ranks))  # of their numbers: so devices are ranks
    place = np.argsort(order)
    for cores in (1, 5):
        y, received = run(x, counts, index, cores)
        wanted = meaning(x[order], counts[order], index[order], cores)
        for k, name in enumerate(RESULTS):
            np.testing.assert_array_equal(y[k], wanted[name][place], name)
        clamped = np.clip(counts[order], 0, CAPACITY).swapaxes(0, 1)[place]
        np.testing.assert_array_equal(received, [clamped, clamped])
    record = run.record
    assert record is not None
    assert record.dispatched["builtin.tensor.all_to_all_v__fp32"] == ranks
    assert record.dispatched["builtin.tensor.broadcast__root1__fp32"] == ranks
    assert record.dispatched["builtin.tensor.allreduce__sum__fp32"] == 4 * ranks
    assert record.launched["__builtin_allreduce__max__fp32"] == 2 * ranks
    assert set(record.dispatches) == set(devices or range(ranks))


def test_what_the_passes_leave_is_a_program_that_can_be_read_and_run() -> None:
    x = np.arange(4 * 2 * SIZE, dtype=np.float32).reshape(2, 4, SIZE)
    arguments = x, np.ones((2, 2, 1), np.int32), np.zeros((2, 4, 1), np.int32), 2
    run = compile(everything(2), ranks=2)
    again = compile(read_program(run.program.text()), ranks=2, passes=[])
    for found, wanted in zip(again(*arguments), run(*arguments), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_what_cannot_be_launched_is_told_at_the_line_of_the_collective() -> None:
    run = compile(everything(2), ranks=2)
    x, counts = np.zeros((2, 4, SIZE), np.float32), np.zeros((2, 2, 1), np.int32)
    line = _line("target = pld.tensor.all_to_all_v")
    with pytest.raises(Latched) as raised:
        run(x, counts, np.zeros((2, 4, 1), np.int32), 7)
    assert raised.value.code == 5
    assert str(raised.value) == (
        f"{__file__}:{line}:22: signal stride 4 is smaller than the folded block count 6 (requested core_num 7, NR 2) "
        "(code 5)"
    )


def test_an_index_outside_of_the_input_is_a_fault_at_the_line_of_the_collective() -> None:
    run = compile(everything(2), ranks=2)
    x, counts = np.zeros((2, 4, SIZE), np.float32), np.ones((2, 2, 1), np.int32)
    with pytest.raises(RunError, match=f"{__file__}:{_line('picked = pld.tensor.indexed')}:22: __builtin_indexed"):
        run(x, counts, np.full((2, 4, 1), 4, np.int32), 1)


def test_who_waits_for_ever_is_told_at_the_line_of_the_collective() -> None:
    @pl.program
    class Spoilt:
        @pl.function(type=pl.FunctionType.InCore)
        def spoil(self, signal: pl.InOut[pld.DistributedTensor[[2, 1], pl.INT32]], rank: pl.Scalar[pl.INT32]):
            if rank == 1:  # added, not set: rank 0 may have told of itself before
                pld.system.notify(signal, peer=rank, offsets=[0, 0], value=-3, op=pld.NotifyOp.AtomicAdd)
            return signal

        @pl.function(type=pl.FunctionType.Orchestration)
        def chip(self, signal: pl.InOut[pld.DistributedTensor[[2, 1], pl.INT32]], rank: pl.Scalar[pl.INT32]):
            return self.spoil(signal, rank)

        @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
        def host(self):
            cells = pld.alloc_window_buffer([2, 1], dtype=pl.INT32)
            signal = pld.window(cells, [2, 1], dtype=pl.INT32)
            for r in pl.range(pld.world_size()):
                self.chip(signal, r, device=r)
            pld.tensor.barrier(signal)

    line = _line("pld.tensor.barrier(signal)")
    with pytest.raises(Latched) as raised:
        compile(Spoilt, ranks=2)()
    assert str(raised.value).splitlines()[0] == (
        f"nothing can go on: rank 1 waits in __builtin_barrier__fp32 ({Path(__file__).name}:{line}:13) for "
        "signal[0, 0] >= 1, which is -2"
    )
    with pytest.raises(Latched, match=f"{__file__}:{line}:13: signal rows 2 differ from the domain's size 3"):
        compile(Spoilt, ranks=3)()


def _line(begin: str) -> int:
    """The line of this file that begins so."""
    text = Path(__file__).read_text().splitlines()
    return next(n for n, line in enumerate(text, 1) if line.strip().startswith(begin))
