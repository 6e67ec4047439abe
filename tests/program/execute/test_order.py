"""Tasks and dispatches come after what touches the same memory, and after nothing else.

In each program the first does not end before the second has begun: it runs to its end where they are not ordered, and
hangs, which is told at once, where they are.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

import crossrank.program.language as pl
import crossrank.program.language.distributed as pld
from crossrank.errors import InputError, RunError
from crossrank.program import compile
from crossrank.program.execute.options import RuntimeOptions
from crossrank.program.program import Program

SIZE = 64


def pair(kind: str) -> Program:
    """`first` and `second` as tasks of one dispatch."""

    @pl.program
    class Pair:
        @pl.function(type=pl.FunctionType.InCore)
        def first(
            self,
            x: pl.Tensor[[SIZE], pl.FP32],
            y: pl.Out[pl.Tensor[[SIZE], pl.FP32]],
            signal: pld.DistributedTensor[[1], pl.INT32],
        ) -> pl.Tensor[[SIZE], pl.FP32]:
            pld.system.wait(signal, offsets=[0], expected=1, cmp=pld.WaitCmp.Ge)
            return pl.store(pl.add(pl.load(x, [0], [SIZE]), 1.0), [0], y)

        @pl.function(type=pl.FunctionType.InCore)
        def second(
            self,
            x: pl.Tensor[[SIZE], pl.FP32],
            y: pl.Out[pl.Tensor[[SIZE], pl.FP32]],
            signal: pld.DistributedTensor[[1], pl.INT32],
        ) -> pl.Tensor[[SIZE], pl.FP32]:
            pld.system.notify(signal, peer=0, offsets=[0], value=1, op=pld.NotifyOp.AtomicAdd)
            return pl.store(pl.mul(pl.load(x, [0], [SIZE]), 2.0), [0], y)

        @pl.function(type=pl.FunctionType.Orchestration)
        def chip(
            self,
            x: pl.Out[pl.Tensor[[4, SIZE], pl.FP32]],
            signal: pld.DistributedTensor[[1], pl.INT32],
        ) -> pl.Tensor[[4, SIZE], pl.FP32]:
            if kind == "write, read":
                self.first(x[0], x[1], signal)
                self.second(x[1], x[2], signal)
            elif kind == "read, write":
                self.first(x[0], x[1], signal)
                self.second(x[2], x[0], signal)
            elif kind == "write, write":
                self.first(x[0], x[1], signal)
                self.second(x[2], x[1], signal)
            elif kind == "read, read":
                self.first(x[0], x[1], signal)
                self.second(x[0], x[2], signal)
            elif kind == "apart":
                self.first(x[0], x[1], signal)
                self.second(x[2], x[3], signal)
            elif kind == "deps":
                _, task = pl.submit(self.first, x[0], x[1], signal)
                _, _ = pl.submit(self.second, x[2], x[3], signal, deps=[task])
            elif kind == "manual":
                with pl.manual_scope():
                    self.first(x[0], x[1], signal)
                    self.second(x[1], x[2], signal)
            elif kind == "no_dep":
                self.first(x[0], x[1], signal)
                self.second(pl.no_dep(x[1]), x[2], signal)
            elif kind == "read here":
                self.first(x[0], x[1], signal)
                if pl.read(x, [1, 0]) > 0.0:
                    self.second(x[2], x[3], signal)
            elif kind == "read elsewhere":
                self.first(x[0], x[1], signal)
                if pl.read(x, [2, 0]) > 0.0:
                    self.second(x[2], x[3], signal)
            return x

        @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
        def host(self, x: pl.Out[pl.Tensor[[4, SIZE], pl.FP32]]) -> pl.Tensor[[4, SIZE], pl.FP32]:
            buffer = pld.alloc_window_buffer(4)
            signal = pld.window(buffer, [1], dtype=pl.INT32)
            self.chip(x, signal, device=0)
            return x

    return Pair


@pytest.mark.parametrize(
    ("kind", "ordered"),
    [
        ("write, read", True),
        ("read, write", True),
        ("write, write", True),
        ("deps", True),
        ("read here", True),
        ("read, read", False),
        ("apart", False),
        ("manual", False),
        ("no_dep", False),
        ("read elsewhere", False),
    ],
)
def test_tasks_come_after_what_they_touch(kind: str, ordered: bool) -> None:
    x = np.ones((4, SIZE), np.float32)
    run = compile(pair(kind), options=RuntimeOptions(limit_s=20))
    if ordered:
        with pytest.raises(
            RunError, match=r"nothing can go on: rank 0 waits in first \(test_order.py:\d+\) for signal\[0\]"
        ):
            run(x)
    else:
        run(x)


def dispatches(kind: str) -> Program:
    """`first` and `second` in dispatches of their own."""

    @pl.program
    class Dispatches:
        @pl.function(type=pl.FunctionType.InCore)
        def wait(self, y: pl.Out[pl.Tensor[[8], pl.FP32]], signal: pld.DistributedTensor[[1], pl.INT32]):
            pld.system.wait(signal, offsets=[0], expected=1, cmp=pld.WaitCmp.Ge)
            pl.store(pl.tile.full([8], dtype=pl.FP32, value=1.0), [0], y)

        @pl.function(type=pl.FunctionType.InCore)
        def send(self, y: pl.Out[pl.Tensor[[8], pl.FP32]], signal: pld.DistributedTensor[[1], pl.INT32]):
            pld.system.notify(signal, peer=0, offsets=[0], value=1, op=pld.NotifyOp.AtomicAdd)
            pl.store(pl.tile.full([8], dtype=pl.FP32, value=2.0), [0], y)

        @pl.function(type=pl.FunctionType.Orchestration)
        def first(self, y: pl.Out[pl.Tensor[[8], pl.FP32]], signal: pld.DistributedTensor[[1], pl.INT32]):
            self.wait(y, signal)

        @pl.function(type=pl.FunctionType.Orchestration)
        def second(self, y: pl.Out[pl.Tensor[[8], pl.FP32]], signal: pld.DistributedTensor[[1], pl.INT32]):
            self.send(y, signal)

        @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
        def host(self, y: pl.Out[pl.Tensor[[8, 8], pl.FP32]]):
            buffer = pld.alloc_window_buffer(4)
            signal = pld.window(buffer, [1], dtype=pl.INT32)
            if kind == "apart":
                self.first(y[0], signal, device=0)
                self.second(y[1], signal, device=1)
            elif kind == "same memory":
                self.first(y[0], signal, device=0)
                self.second(y[0], signal, device=1)
            elif kind == "same device":
                self.first(y[0], signal, device=0)
                self.second(y[1], signal, device=0)
            elif kind == "deps":
                task = pl.submit(self.first, y[0], signal, device=0)
                pl.submit(self.second, y[1], signal, device=1, deps=[task])
            elif kind == "read":
                self.first(y[0], signal, device=0)
                if pl.read(y, [0, 0]) > 0.0:
                    self.second(y[1], signal, device=1)
            elif kind == "columns":
                self.first(y[0:8, 0], signal, device=0)
                self.second(y[1], signal, device=1)

    return Dispatches


@pytest.mark.parametrize(
    ("kind", "rest"),
    [
        ("apart", None),
        ("same memory", "rank 1 has second to do, which comes after first of rank 0"),
        ("same device", "rank 1 has been given nothing to do"),
        ("deps", "rank 1 has second to do, which comes after first of rank 0"),
        ("read", "rank 1 has been given nothing to do"),
    ],
)
def test_dispatches_come_after_what_they_touch(kind: str, rest: str | None) -> None:
    y = np.zeros((8, 8), np.float32)
    run = compile(dispatches(kind), ranks=2, options=RuntimeOptions(limit_s=20))
    if rest is None:
        run(y)
        np.testing.assert_array_equal(y[:2], [[1] * 8, [2] * 8])
    else:
        with pytest.raises(RunError) as raised:
            run(y)
        first, *others = str(raised.value).splitlines()
        assert first.startswith("nothing can go on: rank 0 waits in wait (test_order.py:")
        assert others == [rest]


def test_host_tensors_with_holes_are_not_dispatched() -> None:
    with pytest.raises(
        InputError, match=r"test_order.py:\d+:\d+: y of first is a host tensor whose elements do not lie"
    ):
        compile(dispatches("columns"), ranks=2)(np.zeros((8, 8), np.float32))


def random_calls() -> tuple[Program, npt.NDArray[np.int32]]:
    """Calls of one kernel on pieces of one tensor, and what they make of 0, 1, 2, … one after the other."""
    pieces = [(int(a), int(b)) for a, b in np.random.default_rng(0).integers(0, 56, (80, 2)) if abs(a - b) >= 8]
    source, target = [list(p) for p in zip(*pieces, strict=True)]
    wanted = np.arange(SIZE, dtype=np.int32)
    for a, b in pieces:
        wanted[b : b + 8] = 3 * wanted[b : b + 8] + wanted[a : a + 8]

    @pl.program
    class Calls:
        @pl.function(type=pl.FunctionType.InCore)
        def mix(self, x: pl.Tensor[[8], pl.INT32], y: pl.InOut[pl.Tensor[[8], pl.INT32]]) -> pl.Tensor[[8], pl.INT32]:
            return pl.store(pl.add(pl.mul(pl.load(y, [0], [8]), 3), pl.load(x, [0], [8])), [0], y)

        @pl.function(type=pl.FunctionType.Orchestration)
        def chip(self, x: pl.InOut[pl.Tensor[[SIZE], pl.INT32]]) -> pl.Tensor[[SIZE], pl.INT32]:
            for i in pl.unroll(len(source)):
                self.mix(x[source[i] : source[i] + 8], x[target[i] : target[i] + 8])
            return x

    return Calls, wanted


def test_whatever_runs_side_by_side_the_values_are_those_of_one_call_at_a_time() -> None:
    program, wanted = random_calls()
    run = compile(program)
    for _ in range(20):
        x = np.arange(SIZE, dtype=np.int32)
        run(x)
        np.testing.assert_array_equal(x, wanted)
