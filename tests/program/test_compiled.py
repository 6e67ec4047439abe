"""The compile call: what is given back, workers that run several times, and what cannot be configured."""

from __future__ import annotations

import threading
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from xdsl.dialects.builtin import StringAttr

import crossrank.program.language as pl
import crossrank.program.language.distributed as pld
from crossrank.errors import InputError, RunError
from crossrank.passes import parse_passes
from crossrank.program import CompiledProgram, DistributedConfig, compile
from crossrank.program.execute.options import RuntimeOptions

Array = npt.NDArray[Any]

SIZE = 64


@pl.program
class Reduced:
    """Two dispatches, the host's own Python between them and after them, and scalars that orchestrators read."""

    @pl.function(type=pl.FunctionType.InCore)
    def scale(
        self,
        x: pl.Tensor[[SIZE], pl.FP32],
        by: pl.Scalar[pl.FP32],
        y: pl.Out[pl.Tensor[[SIZE], pl.FP32]],
    ) -> pl.Tensor[[SIZE], pl.FP32]:
        return pl.store(pl.mul(pl.load(x, [0], [SIZE]), by), [0], y)

    @pl.function(type=pl.FunctionType.Orchestration)
    def chip(
        self,
        x: pl.Tensor[[SIZE], pl.FP32],
        times: pl.Tensor[[1], pl.INT32],
        y: pl.Out[pl.Tensor[[SIZE], pl.FP32]],
    ) -> pl.Tensor[[SIZE], pl.FP32]:
        y = self.scale(x, 1.0, y)
        for _ in pl.range(pl.read(times, [0])):
            other: pl.Tensor[[SIZE], pl.FP32] = pl.create_tensor([SIZE], dtype=pl.FP32)
            other = self.scale(y, 2.0, other)
            y = self.scale(other, pl.read(other, [0]), y)
        return y

    @pl.function(level=pl.Level.HOST, role=pl.Role.SubWorker)
    def total(
        a: pl.Tensor[[SIZE], pl.FP32], b: pl.Tensor[[SIZE], pl.FP32], f: pl.Out[pl.Tensor[[SIZE], pl.FP32]]
    ) -> pl.Tensor[[SIZE], pl.FP32]:
        if a[0] < 0:
            raise ValueError("a negative sum")
        f[:] = a + b
        return f

    @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
    def host(
        self,
        x: pl.Tensor[[2, SIZE], pl.FP32],
        times: pl.Tensor[[1], pl.INT32],
        sum: pl.Out[pl.Tensor[[SIZE], pl.FP32]],
        again: pl.Out[pl.Tensor[[SIZE], pl.FP32]],
    ) -> tuple[pl.Tensor[[SIZE], pl.FP32], pl.Tensor[[SIZE], pl.FP32]]:
        a: pl.Tensor[[SIZE], pl.FP32] = pl.create_tensor([SIZE], dtype=pl.FP32)
        b: pl.Tensor[[SIZE], pl.FP32] = pl.create_tensor([SIZE], dtype=pl.FP32)
        a = self.chip(x[0], times, a, device=0)
        b = self.chip(x[1], times, b, device=1)
        sum = self.total(a, b, sum)
        again = self.chip(sum, times, again, device=1)
        return again, sum


@cache
def reduced() -> CompiledProgram:
    return compile(Reduced, ranks=2)


def scaled(x: Array, times: int) -> Array:
    for _ in range(times):
        x = (x * 2) * (x[0] * 2)
    return x


@pytest.mark.parametrize("times", [0, 1, 3])
def test_sub_workers_and_reads_come_in_their_order(times: int) -> None:
    x = np.random.default_rng(times).uniform(0.5, 1, (2, SIZE)).astype(np.float32)
    n = np.array([times], np.int32)
    sum, again = np.zeros((2, SIZE), np.float32)
    given = reduced()(x, n, sum, again)
    assert given[0] is again
    assert given[1] is sum
    wanted = scaled(x[0], times) + scaled(x[1], times)
    np.testing.assert_array_equal(sum, wanted)
    np.testing.assert_array_equal(again, scaled(wanted, times))
    made = reduced()(x, n)  # Out parameters, in their own order
    np.testing.assert_array_equal(made, [sum, again])
    record = reduced().record
    assert record is not None
    assert (record.dispatches, record.tasks) == ({0: 1, 1: 2}, {0: 1 + 2 * times, 1: 2 + 4 * times})


def test_what_a_sub_worker_raises_has_its_line() -> None:
    x = -np.ones((2, SIZE), np.float32)
    with pytest.raises(RunError, match=r"test_compiled.py:\d+: sub-worker total raised ValueError: a negative sum"):
        reduced()(x, np.zeros(1, np.int32))


def test_a_sub_worker_in_place_of_another() -> None:
    x, n = np.ones((2, SIZE), np.float32), np.zeros(1, np.int32)
    seen: list[float] = []

    def other(a: Array, b: Array, f: Array) -> None:
        seen.append(float(a[0]))
        f[:] = 7

    with reduced().prepare(sub_worker_overrides={"total": other}) as worker:
        for _ in range(2):
            np.testing.assert_array_equal(worker(x, n), np.full((2, SIZE), 7, np.float32))
    assert seen == [1, 1]
    with pytest.raises(InputError, match="this worker was closed"):
        worker(x, n)
    with pytest.raises(ValueError, match="nobody: not sub-workers of program Reduced; it has total"):
        reduced().prepare(sub_worker_overrides={"nobody": other})


class Tensor:
    """Another library's: its memory can be seen as an array."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __array__(self, dtype: object = None, copy: object = None) -> Array:
        return self.array


def test_tensors_of_others_are_written_in_place() -> None:
    x, n = Tensor(np.ones((2, SIZE), np.float32)), Tensor(np.zeros(1, np.int32))
    sum, again = Tensor(np.zeros(SIZE, np.float32)), Tensor(np.zeros(SIZE, np.float32))
    given = reduced()(x, n, sum, again)
    assert given[0] is again
    assert given[1] is sum
    np.testing.assert_array_equal(sum.array, np.full(SIZE, 2, np.float32))


def read_only() -> Array:
    array = np.zeros(SIZE, np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("again", "raised", "what"),
    [
        (read_only(), ValueError, "parameter again is written, and this array is read-only"),
        ([0.0] * SIZE, TypeError, "parameter again is a tensor, and gets list"),
        (np.zeros(SIZE), InputError, "again of host is declared Tensor[[64], FP32], and gets [64] FP64"),
    ],
)
def test_arguments_that_cannot_be(again: Any, raised: type[Exception], what: str) -> None:
    x, sum = np.ones((2, SIZE), np.float32), np.zeros(SIZE, np.float32)
    with pytest.raises(raised) as found:
        reduced()(x, np.zeros(1, np.int32), sum, again)
    assert what in str(found.value)


def test_nothing_runs_beyond_the_limit() -> None:
    told = threading.Event()

    def wait(a: Array, b: Array, f: Array) -> None:
        told.wait(60)

    run = compile(Reduced, ranks=2, options=RuntimeOptions(limit_s=1))
    with run.prepare(callbacks={"total": wait}) as worker:
        with pytest.raises(RunError) as raised:
            worker(np.ones((2, SIZE), np.float32), np.zeros(1, np.int32))
        told.set()
    assert str(raised.value).splitlines() == [
        "nothing was done for 1 s (--limit, limit_s): the host is at work in total",
        "rank 1 has chip to do, which comes after total of the host",
        "rank 0 has ended (1 task)",
    ]


@pl.program
class Turns:
    """Loops of orchestrators, which do nothing else; and a kernel that writes what it declares In."""

    @pl.function(type=pl.FunctionType.InCore)
    def change(self, x: pl.Tensor[[SIZE], pl.FP32]):
        pl.write(x, [0], 1.0)

    @pl.function(type=pl.FunctionType.Orchestration)
    def chip(self, x: pl.Tensor[[SIZE], pl.FP32], turns: pl.Scalar[pl.INT64]):
        n = 0
        for i in pl.range(turns):
            n = (n + i) % 7
        if n < 7:
            self.change(x)

    @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
    def host(self, x: pl.Tensor[[SIZE], pl.FP32], turns: pl.Scalar[pl.INT64], more: pl.Scalar[pl.INT64]):
        n = 0
        for i in pl.range(turns):
            n = (n + i) % 7
        if n < 7:
            self.chip(x, more, device=0)


@cache
def turns(passes: str | None = None) -> CompiledProgram:
    chosen = None if passes is None else parse_passes(passes)
    return compile(Turns, passes=chosen, options=RuntimeOptions(limit_s=1))


@pytest.mark.parametrize(
    ("given", "who"), [((2**60, 0), "the host is at work in host"), ((0, 2**60), "rank 0 is at work in chip")]
)
def test_loops_of_orchestrators_end_at_the_limit(given: tuple[int, int], who: str) -> None:
    with pytest.raises(RunError) as raised:
        turns()(np.zeros(SIZE, np.float32), *given)
    assert str(raised.value).partition("\n")[0] == f"nothing was done for 1 s (--limit, limit_s): {who}"


def test_what_is_written_is_not_read_only() -> None:
    x = np.zeros(SIZE, np.float32)
    turns()(x, 1, 1)
    assert x[0] == 1
    with pytest.raises(ValueError, match="parameter x is written, and this array is read-only"):
        turns()(read_only(), 1, 1)
    with pytest.raises(InputError, match=r":\d+:\d+: change writes x, and gets memory that is read-only"):
        turns("")(read_only(), 1, 1)


@pl.program
class Counter:
    """Adds one to a cell of its window; its launches have several blocks."""

    @pl.function(type=pl.FunctionType.InCore)
    def count(
        self,
        out: pl.Out[pl.Tensor[[1], pl.INT32]],
        cell: pl.InOut[pld.DistributedTensor[[1], pl.INT32]],
    ) -> pl.Tensor[[1], pl.INT32]:
        pld.system.notify(cell, peer=0, offsets=[0], value=1, op=pld.NotifyOp.AtomicAdd)
        n: pl.Scalar[pl.INT32] = pl.read(cell, [0])
        pl.write(out, [0], n)
        return out

    @pl.function(type=pl.FunctionType.Orchestration)
    def chip(
        self,
        out: pl.Out[pl.Tensor[[1], pl.INT32]],
        cell: pl.InOut[pld.DistributedTensor[[1], pl.INT32]],
        blocks: pl.Scalar[pl.INT32],
        together: pl.Scalar[pl.INT32],
    ) -> pl.Tensor[[1], pl.INT32]:
        if together == 1:
            out, _ = pl.spmd_submit(self.count, out, cell, core_num=blocks, sync_start=True)
        else:
            out, _ = pl.spmd_submit(self.count, out, cell, core_num=blocks)
        return out

    @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
    def host(
        self,
        out: pl.Out[pl.Tensor[[1], pl.INT32]],
        blocks: pl.Scalar[pl.INT32],
        together: pl.Scalar[pl.INT32],
    ) -> pl.Tensor[[1], pl.INT32]:
        buffer = pld.alloc_window_buffer(4)
        cell = pld.window(buffer, [1], dtype=pl.INT32)
        return self.chip(out, cell, blocks, together, device=0)


@cache
def counter(platform: str = "a2a3sim") -> CompiledProgram:
    return compile(Counter, platform)


@pytest.mark.parametrize(
    ("persistent", "reset", "counts"),
    [(False, None, [1, 1, 1]), (True, None, [1, 1, 1]), (True, True, [1, 1, 1]), (True, False, [1, 2, 3])],
)
def test_windows_live_as_long_as_is_asked_for(persistent: bool, reset: bool | None, counts: list[int]) -> None:
    with counter().prepare(persistent=persistent, reset_persistent_windows=reset) as worker:
        assert [int(worker(np.zeros(1, np.int32), 1, 0)[0]) for _ in counts] == counts


def test_calls_of_one_persistent_worker_take_turns() -> None:
    counts: list[int] = []
    with counter().prepare(persistent=True, reset_persistent_windows=False) as worker:

        def call() -> None:
            for _ in range(20):
                counts.append(int(worker(np.zeros(1, np.int32), 1, 0)[0]))

        threads = [threading.Thread(target=call) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(counts) == list(range(1, 121))


@pytest.mark.parametrize(
    ("platform", "blocks", "together", "what"),
    [
        ("a2a3sim", 48, 1, None),
        ("a2a3sim", 49, 0, None),
        ("a2a3sim", 1, 1, None),
        ("a2a3sim", 0, 1, None),  # launches nothing
        ("a2a3sim", -3, 0, None),
        ("a2a3sim", 49, 1, "require_sync_start block_num=49 > limit=48 (deadlock guaranteed) (code 7)"),
        ("a5sim", 37, 1, "require_sync_start block_num=37 > limit=36 (deadlock guaranteed) (code 7)"),
    ],
)
def test_blocks_that_are_to_be_resident_together(platform: str, blocks: int, together: int, what: str | None) -> None:
    out = np.zeros(1, np.int32)
    if what is None:
        counter(platform)(out, blocks, together)
        assert (1 <= out[0] <= blocks) if blocks > 0 else out[0] == 0
        return
    with pytest.raises(RunError) as raised:
        counter(platform)(out, blocks, together)
    place, _, said = str(raised.value).partition(": ")
    assert (place.rpartition("/")[2].split(":")[0], said) == ("test_compiled.py", what)


def test_cube_kernels_have_cores_of_their_own() -> None:
    program = Counter.clone()
    program.function("count").op.attributes["program.type"] = StringAttr("AIC")
    assert compile(program)(24, 1) is not None
    with pytest.raises(RunError, match="require_sync_start block_num=25 > limit=24"):
        compile(program)(25, 1)


def test_a_build_folder_where_one_is_asked_for(tmp_path: Path) -> None:
    compiled = compile(Counter, output_dir=tmp_path / "build")
    assert Path(compiled) == compiled.output_dir == (tmp_path / "build").resolve()
    assert (tmp_path / "build" / "orchestration").is_dir()
    assert (tmp_path / "build" / "next_levels" / "chip" / "kernels" / "aiv" / "count.cpp").is_file()
    assert counter().output_dir is None


@pl.program
class Halves:
    """No host orchestrator, and two others."""

    @pl.function(type=pl.FunctionType.InCore)
    def scale(
        self, x: pl.Tensor[[SIZE], pl.FP32], by: pl.Scalar[pl.FP32], y: pl.Out[pl.Tensor[[SIZE], pl.FP32]]
    ) -> pl.Tensor[[SIZE], pl.FP32]:
        return pl.store(pl.mul(pl.load(x, [0], [SIZE]), by), [0], y)

    @pl.function(type=pl.FunctionType.Orchestration)
    def twice(self, x: pl.Tensor[[SIZE], pl.FP32], y: pl.Out[pl.Tensor[[SIZE], pl.FP32]]):
        return self.scale(x, 2.0, y)

    @pl.function(type=pl.FunctionType.Orchestration)
    def half(self, y: pl.InOut[pl.Tensor[[SIZE], pl.FP32]]):
        return self.scale(y, 0.5, y)


def test_one_of_several_orchestrations_is_chosen(tmp_path: Path) -> None:
    compiled = compile(Halves, output_dir=tmp_path)
    assert compiled.orchestration_names == ["twice", "half"]
    assert (compiled["half"].name, compiled.half.param_names) == ("half", ["y"])
    assert (compiled.twice.output_dir, (tmp_path / "orchestration").exists()) == (tmp_path / "next_levels/twice", False)
    assert (tmp_path / "next_levels" / "half" / "kernels" / "aiv" / "scale.cpp").is_file()
    y = np.ones(SIZE, np.float32)
    assert compiled["half"](y) is y
    np.testing.assert_array_equal(compiled.twice(y), np.ones(SIZE, np.float32))
    np.testing.assert_array_equal(y, np.full(SIZE, 0.5, np.float32))
    with pytest.raises(TypeError, match=r"several others: twice, half\nselect one explicitly"):
        compiled(y)
    with pytest.raises(KeyError, match="Halves has no orchestration third; it has twice, half"):
        compiled["third"]
    with pytest.raises(AttributeError, match="'CompiledProgram' object has no attribute 'third'"):
        _ = compiled.third


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (lambda: compile(Counter, "a9"), "Invalid platform 'a9'. Expected 'a2a3sim', 'a2a3', 'a5sim', or 'a5'."),
        (lambda: DistributedConfig(device_ids=[]), "DistributedConfig.device_ids must not be empty"),
        (lambda: DistributedConfig(device_ids=[0, -1]), "must be non-negative device indices, got [0, -1]"),
        (lambda: DistributedConfig(device_ids=[1, 1]), "DistributedConfig.device_ids must be distinct, got [1, 1]"),
        (lambda: DistributedConfig(num_sub_workers=-1), "num_sub_workers must be non-negative, got -1"),
        (
            lambda: DistributedConfig(aicpu_thread_num=1),
            "DistributedConfig.aicpu_thread_num must be 0 (architecture default) or at least 2, got 1",
        ),
        (lambda: compile(Counter, ranks=0), "a program runs on at least one rank, not on 0"),
    ],
)
def test_what_cannot_be_configured(wrong: Any, what: str) -> None:
    with pytest.raises(ValueError) as raised:
        wrong()
    assert what in str(raised.value)


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (lambda: compile(lambda ranks: Counter), "program must be a Program, got <function"),  # type: ignore[arg-type]
        (lambda: compile(7), "program must be a Program, got 7"),  # type: ignore[arg-type]
        (lambda: compile(Counter, passes=["nope"]), "each of passes must be a Pass, got 'nope'"),  # type: ignore[list-item]
        (lambda: compile(Counter, options=3), "options must be a RuntimeOptions, got 3"),  # type: ignore[arg-type]
        (lambda: compile(Counter, ranks="2"), "ranks must be a number, got '2'"),  # type: ignore[arg-type]
        (lambda: DistributedConfig("ab"), "device_ids must be numbers of devices, got ['a', 'b']"),  # type: ignore[arg-type]
    ],
)
def test_what_is_of_another_type(wrong: Any, what: str) -> None:
    with pytest.raises(InputError) as raised:
        wrong()
    assert what in str(raised.value)
