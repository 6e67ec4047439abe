"""Programs that run on many ranks, and who is told to wait for whom when nobody can go on."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crossrank.program.language as pl
import crossrank.program.language.distributed as pld
from crossrank.errors import InputError, RunError
from crossrank.program import CompiledProgram, compile
from crossrank.program.execute.options import RuntimeOptions

SIZE = 64
NR = pl.dynamic("NR")


@pl.program
class Messages:
    """Each rank sends what it has, and notifies, as it is told to; then it waits as it is told to."""

    @pl.function(type=pl.FunctionType.InCore)
    def message(
        self,
        inp: pl.Tensor[[1, SIZE], pl.FP32],
        out: pl.Out[pl.Tensor[[1, SIZE], pl.FP32]],
        data: pl.InOut[pld.DistributedTensor[[1, SIZE], pl.FP32]],
        signal: pl.InOut[pld.DistributedTensor[[NR, 2], pl.INT32]],
        to: pl.Scalar[pl.INT32],
        silent: pl.Scalar[pl.INT32],
        count: pl.Scalar[pl.INT32],
    ) -> pl.Tensor[[1, SIZE], pl.FP32]:
        ctx = pld.get_comm_ctx(data)
        me = pld.rank(ctx)
        x = pl.load(inp, [0, 0], [1, SIZE])
        pld.tile.remote_store(x, target=data, peer=to, offsets=[0, 0])
        if me != silent:
            pld.system.notify(target=signal, peer=to, offsets=[1, 1], value=1, op=pld.NotifyOp.AtomicAdd)
        pld.system.wait(signal=signal, offsets=[1, 1], expected=count, cmp=pld.WaitCmp.Ge)
        got = pl.load(data, [0, 0], [1, SIZE])
        return pl.store(got, [0, 0], out)

    @pl.function(type=pl.FunctionType.Orchestration)
    def chip(
        self,
        inp: pl.Tensor[[1, SIZE], pl.FP32],
        out: pl.Out[pl.Tensor[[1, SIZE], pl.FP32]],
        data: pl.InOut[pld.DistributedTensor[[1, SIZE], pl.FP32]],
        signal: pl.InOut[pld.DistributedTensor[[NR, 2], pl.INT32]],
        to: pl.Scalar[pl.INT32],
        silent: pl.Scalar[pl.INT32],
        count: pl.Scalar[pl.INT32],
    ) -> pl.Tensor[[1, SIZE], pl.FP32]:
        return self.message(inp, out, data, signal, to, silent, count)

    @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
    def host(
        self,
        inputs: pl.Tensor[[NR, 1, SIZE], pl.FP32],
        outputs: pl.Out[pl.Tensor[[NR, 1, SIZE], pl.FP32]],
        shift: pl.Scalar[pl.INT32],
        ring: pl.Scalar[pl.INT32],
        silent: pl.Scalar[pl.INT32],
        count: pl.Scalar[pl.INT32],
    ) -> pl.Tensor[[NR, 1, SIZE], pl.FP32]:
        data_buf = pld.alloc_window_buffer(SIZE * 4)
        signal_buf = pld.alloc_window_buffer(pld.world_size() * 8)
        for r in pl.range(pld.world_size()):
            data = pld.window(data_buf, [1, SIZE], dtype=pl.FP32)
            signal = pld.window(signal_buf, [pld.world_size(), 2], dtype=pl.INT32)
            to = (r + shift) % ring
            self.chip(inputs[r], outputs[r], data, signal, to, silent, count, device=r)
        return outputs


@cache
def messages(ranks: int) -> CompiledProgram:
    return compile(Messages, ranks=ranks, options=RuntimeOptions(limit_s=20))


@pytest.mark.parametrize("ranks", [2, 3, 64])
def test_a_ring(ranks: int) -> None:
    ring = messages(ranks)
    x = np.random.default_rng(ranks).normal(size=(ranks, 1, SIZE)).astype(np.float32)
    y = np.zeros_like(x)
    for shift in (1, 0, ranks - 1):
        assert ring(x, y, shift, ranks, -1, 1) is y
        np.testing.assert_array_equal(y, np.roll(x, shift, axis=0))
    np.testing.assert_array_equal(ring(x, 1, ranks, -1, 1), np.roll(x, 1, axis=0))  # made: NR is known by x
    assert ring.record is not None
    assert ring.record.dispatches == ring.record.tasks == dict.fromkeys(range(ranks), 1)
    assert ring.record.launched == {"message": ranks}
    assert ring.record.dispatched == {"chip": ranks}
    assert (ring.record.trace["end"] > 0).all()


def stuck(ranks: int, *how: int) -> str:
    x = np.zeros((ranks, 1, SIZE), np.float32)
    with pytest.raises(RunError) as raised:
        messages(ranks)(x, x.copy(), 1, *how)
    return str(raised.value)


SOURCE = Path(__file__).read_text().splitlines()


def line(text: str) -> int:
    """The first line of this file that has it."""
    return next(n for n, content in enumerate(SOURCE, 1) if text in content)


PLACE = f"message (test_run.py:{line('pld.system.wait(signal=signal')})"


@pytest.mark.parametrize(
    ("ranks", "how", "lines"),
    [
        pytest.param(
            *(3, (1, -1, 1)),
            [
                f"nothing can go on: ranks 1-2 wait in {PLACE} for signal[1, 1] >= 1, which is 0",
                "rank 0 has ended (1 task)",
            ],
            id="all notify one",
        ),
        pytest.param(
            *(2, (2, 0, 1)),
            [
                f"nothing can go on: rank 1 waits in {PLACE} for signal[1, 1] >= 1, which is 0",
                "rank 0 has ended (1 task)",
            ],
            id="a rank that does not notify",
        ),
        pytest.param(
            *(2, (2, -1, 2)),
            [f"nothing can go on: ranks 0-1 wait in {PLACE} for signal[1, 1] >= 2, which is 1"],
            id="wrong count",
        ),
        pytest.param(
            *(12, (4, -1, 3)),
            [
                f"nothing can go on: ranks 4-11 wait in {PLACE} for signal[1, 1] >= 3, which is 0",
                "ranks 0-3 have ended (1 task each)",
            ],
            id="of many some",
        ),
    ],
)
def test_a_hang_is_told_at_once(ranks: int, how: tuple[int, ...], lines: list[str]) -> None:
    assert stuck(ranks, *how).splitlines() == lines
    x = np.ones((ranks, 1, SIZE), np.float32)
    y = np.zeros_like(x)
    messages(ranks)(x, y, 1, ranks, -1, 1)  # nothing of it stays
    np.testing.assert_array_equal(x, y)


def test_a_kernel_s_fault_has_its_place() -> None:
    x = np.zeros((2, 1, SIZE), np.float32)
    with pytest.raises(
        RunError, match=rf"test_run.py:{line('remote_store(x')}:9: message on rank [01]: .*rank [67] of data"
    ):
        messages(2)(x, x.copy(), 6, 16, -1, 1)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (lambda x, y: (x[:1], y, 1, 2, -1, 1), "gets [2, 1, 64] FP32: NR is 1 by inputs"),
        (
            lambda x, y: (x.astype(np.float64), y, 1, 2, -1, 1),
            "inputs of host is declared Tensor[[NR, 1, 64], FP32], and gets [2, 1, 64] FP64",
        ),
        (lambda x, y: (x[..., :32], y, 1, 2, -1, 1), "gets [2, 1, 32] FP32"),
        (lambda x, y: (x[:, 0], y, 1, 2, -1, 1), "gets [2, 64] FP32"),
        (lambda x, y: (x, y, 1, -1), "Messages expects 6 (in-place) or 5 (return) arguments, got 4"),
    ],
)
def test_arguments_that_do_not_fit(arguments: Any, what: str) -> None:
    x = np.zeros((2, 1, SIZE), np.float32)
    with pytest.raises(InputError) as raised:
        messages(2)(*arguments(x, x.copy()))
    assert what in str(raised.value)


@pl.program
class Deferred:
    """A task that is over when another rank says so, and one that comes after it."""

    @pl.function(type=pl.FunctionType.InCore)
    def register(
        self, out: pl.InOut[pl.Tensor[[1], pl.INT32]], bell: pld.DistributedTensor[[4], pl.INT32]
    ) -> pl.Tensor[[1], pl.INT32]:
        pld.system.defer_wait(signal=bell, offsets=[2], expected=3, cmp=pld.WaitCmp.Ge)
        return out

    @pl.function(type=pl.FunctionType.InCore)
    def look(
        self, out: pl.InOut[pl.Tensor[[1], pl.INT32]], bell: pld.DistributedTensor[[4], pl.INT32]
    ) -> pl.Tensor[[1], pl.INT32]:
        value: pl.Scalar[pl.INT32] = pl.read(bell, [2])
        pl.write(out, [0], value)
        return out

    @pl.function(type=pl.FunctionType.InCore)
    def ring(
        self,
        out: pl.InOut[pl.Tensor[[1], pl.INT32]],
        bell: pld.DistributedTensor[[4], pl.INT32],
        value: pl.Scalar[pl.INT32],
    ) -> pl.Tensor[[1], pl.INT32]:
        pld.system.notify(bell, peer=0, offsets=[2], value=value, op=pld.NotifyOp.Set)
        return out

    @pl.function(type=pl.FunctionType.Orchestration)
    def chip(
        self,
        out: pl.InOut[pl.Tensor[[1], pl.INT32]],
        bell: pld.DistributedTensor[[4], pl.INT32],
        rank: pl.Scalar[pl.INT32],
        value: pl.Scalar[pl.INT32],
    ) -> pl.Tensor[[1], pl.INT32]:
        if rank == 0:
            out = self.register(out, bell)
            out = self.look(out, bell)
        else:
            out = self.ring(out, bell, value)
        return out

    @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
    def host(
        self, out: pl.InOut[pl.Tensor[[2, 1], pl.INT32]], value: pl.Scalar[pl.INT32]
    ) -> pl.Tensor[[2, 1], pl.INT32]:
        buffer = pld.alloc_window_buffer(16)
        for r in pl.range(pld.world_size()):
            bell = pld.window(buffer, [4], dtype=pl.INT32)
            self.chip(out[r], bell, r, value, device=r)
        return out


def test_a_task_that_is_over_when_a_signal_comes() -> None:
    run = compile(Deferred, ranks=2)
    assert run(np.zeros((2, 1), np.int32), 5)[0] == 5
    with pytest.raises(RunError) as raised:
        run(np.zeros((2, 1), np.int32), 2)
    place = f"register (test_run.py:{line('defer_wait(signal')})"
    assert str(raised.value).splitlines() == [
        f"nothing can go on: rank 0 has left, and is not over before, in {place} for bell[2] >= 3, which is 2",
        "rank 1 has ended (1 task)",
    ]
