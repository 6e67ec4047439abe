"""What a host orchestrator may do: domains of some devices, functions that call functions, and what it is refused."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import UnitAttr

import crossrank.program.language as pl
import crossrank.program.language.distributed as pld
from crossrank.errors import InputError, RunError
from crossrank.program import compile
from crossrank.program.program import Program

SIZE = 16
M = pl.dynamic("M")


def groups(kind: str) -> Program:
    """Two domains that share a device: ranks count within each."""

    @pl.program
    class Groups:
        @pl.function(type=pl.FunctionType.InCore)
        def exchange(
            self,
            x: pl.Tensor[[1, SIZE], pl.FP32],
            out: pl.Out[pl.Tensor[[1, SIZE], pl.FP32]],
            data: pl.InOut[pld.DistributedTensor[[1, SIZE], pl.FP32]],
            signal: pl.InOut[pld.DistributedTensor[[2, 1], pl.INT32]],
            peer: pl.Scalar[pl.INT32],
        ) -> pl.Tensor[[1, SIZE], pl.FP32]:
            data = pl.store(pl.load(x, [0, 0], [1, SIZE]), [0, 0], data)
            me = pld.rank(pld.get_comm_ctx(signal))
            pld.system.notify(signal, peer=peer, offsets=[me, 0], value=1, op=pld.NotifyOp.Set)
            pld.system.wait(signal, offsets=[peer, 0], expected=1, cmp=pld.WaitCmp.Eq)
            return pl.store(pld.tile.remote_load(data, peer=peer, offsets=[0, 0], shape=[1, SIZE]), [0, 0], out)

        @pl.function(type=pl.FunctionType.Orchestration)
        def chip(
            self,
            x: pl.Tensor[[1, SIZE], pl.FP32],
            out: pl.Out[pl.Tensor[[1, SIZE], pl.FP32]],
            data: pl.InOut[pld.DistributedTensor[[1, SIZE], pl.FP32]],
            signal: pl.InOut[pld.DistributedTensor[[2, 1], pl.INT32]],
            peer: pl.Scalar[pl.INT32],
        ) -> pl.Tensor[[1, SIZE], pl.FP32]:
            return self.exchange(x, out, data, signal, peer)

        @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
        def host(
            self, x: pl.Tensor[[3, 1, SIZE], pl.FP32], out: pl.Out[pl.Tensor[[2, 3, 1, SIZE], pl.FP32]]
        ) -> pl.Tensor[[2, 3, 1, SIZE], pl.FP32]:
            left_data = pld.alloc_window_buffer(pld.world_size() * (SIZE if kind == "small window" else 4 * SIZE))
            left_signal = pld.alloc_window_buffer(2 * 4)
            right_data = pld.alloc_window_buffer(SIZE * 4)
            right_signal = pld.alloc_window_buffer(2 * 4)
            for r in pl.range(2):
                data = pld.window(left_data, [SIZE], dtype=pl.FP32)
                signal = pld.window(left_signal, [2, 1], dtype=pl.INT32)
                self.chip(x[r], out[0, r], data, signal, 1 - r, device=r)
            for r in pl.range(1, 3):
                other = pld.window(right_data, [1, SIZE], dtype=pl.FP32)
                bell = pld.window(right_signal, [2, 1], dtype=pl.INT32)
                self.chip(x[r], out[1, r], other, bell, 2 - r, device=r)
            return out

    return Groups


def test_domains_of_some_devices() -> None:
    x = np.random.default_rng(0).normal(size=(3, 1, SIZE)).astype(np.float32)
    run = compile(groups(""), ranks=3)
    out = run(x)
    np.testing.assert_array_equal(out[:, :, 0], [[x[1, 0], x[0, 0], 0 * x[0, 0]], [0 * x[0, 0], x[2, 0], x[1, 0]]])
    assert run.record is not None
    assert run.record.dispatches == {0: 1, 1: 2, 2: 1}


@pytest.mark.parametrize(
    ("kind", "ranks", "what"),
    [
        ("small window", 3, r"test_host.py:\d+:\d+: pld.window \[16\] takes 64 bytes, and buffer left_data has 48"),
        ("", 2, r"test_host.py:\d+:\d+: comm_d1 \(2 devices: 1, 2\): device 2 is not there: the program runs on 2,"),
    ],
)
def test_windows_and_domains_that_cannot_be(kind: str, ranks: int, what: str) -> None:
    x = np.zeros((3, 1, SIZE), np.float32)
    with pytest.raises(InputError, match=what):
        compile(groups(kind), ranks=ranks)(x)


@pl.program
class Nested:
    """A function that wraps a kernel, an extent that is an expression, views; no host."""

    @pl.function(type=pl.FunctionType.InCore)
    def twice(
        self, x: pl.Tensor[[M * 2], pl.FP32], y: pl.Out[pl.Tensor[[M * 2], pl.FP32]]
    ) -> pl.Tensor[[M * 2], pl.FP32]:
        return pl.store(pl.mul(pl.load(x, [0], [SIZE]), 2.0), [0], y)

    @pl.function(type=pl.FunctionType.Group)
    def inner(
        self, x: pl.Tensor[[M * 2], pl.FP32], y: pl.Out[pl.Tensor[[M * 2], pl.FP32]]
    ) -> pl.Tensor[[M * 2], pl.FP32]:
        return self.twice(x, y)

    @pl.function(type=pl.FunctionType.Orchestration)
    def outer(
        self, x: pl.Tensor[[2, SIZE], pl.FP32], n: pl.Scalar[pl.INT32], y: pl.Out[pl.Tensor[[2, SIZE], pl.FP32]]
    ) -> pl.Tensor[[2, SIZE], pl.FP32]:
        for r in pl.range(2):
            t: pl.Tensor[[SIZE], pl.FP32] = pl.create_tensor([SIZE], dtype=pl.FP32)
            t = self.inner(x[r], t)
            if r != n:
                t = self.inner(t, t)
            self.inner(t, y[r])
        return y


def test_a_program_without_a_host() -> None:
    x = np.random.default_rng(0).normal(size=(2, SIZE)).astype(np.float32)
    run = compile(Nested)
    np.testing.assert_array_equal(run(x, 1), x * np.array([[8], [4]], np.float32))
    assert run.record is not None
    assert run.record.launched == {"twice": 5}


@pl.program
class Columns:
    """A kernel that takes a column."""

    @pl.function(type=pl.FunctionType.InCore)
    def one(self, y: pl.Out[pl.Tensor[[SIZE], pl.FP32]]) -> pl.Tensor[[SIZE], pl.FP32]:
        return pl.store(pl.tile.full([SIZE], dtype=pl.FP32, value=1.0), [0], y)

    @pl.function(type=pl.FunctionType.Orchestration)
    def chip(self, y: pl.Out[pl.Tensor[[SIZE, 4], pl.FP32]], at: pl.Scalar[pl.INDEX]) -> pl.Tensor[[SIZE, 4], pl.FP32]:
        self.one(y[0:SIZE, at])
        return y


def test_columns_are_written_where_a_kernel_takes_them() -> None:
    wanted = np.zeros((SIZE, 4), np.float32)
    wanted[:, 2] = 1
    np.testing.assert_array_equal(compile(Columns)(2), wanted)
    with pytest.raises(InputError, match=r"test_host.py:\d+:\d+: a slice from 7 to 8 of dimension 1 of \[16, 4\] FP32"):
        compile(Columns)(7)


def test_a_kernel_that_wants_packed_operands() -> None:
    program = Columns.clone()
    program.function("one").op.attributes["require_contiguous_operands"] = UnitAttr()
    with pytest.raises(RunError, match=r"test_host.py:\d+:\d+: operand y of one is not contiguous \(code 5\)"):
        compile(program)(2)


@pl.program
class Elsewhere:
    """A dispatch to a device that is not there."""

    @pl.function(type=pl.FunctionType.Orchestration)
    def chip(self, y: pl.Out[pl.Tensor[[SIZE], pl.FP32]]) -> pl.Tensor[[SIZE], pl.FP32]:
        return y

    @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
    def host(self, y: pl.Out[pl.Tensor[[SIZE], pl.FP32]]) -> pl.Tensor[[SIZE], pl.FP32]:
        return self.chip(y, device=2)


def test_a_device_that_is_not_there() -> None:
    compile(Elsewhere, ranks=3)()
    with pytest.raises(
        InputError, match=r"test_host.py:\d+:\d+: device 2 is not there: the program runs on 2, counted"
    ):
        compile(Elsewhere, ranks=2)()
