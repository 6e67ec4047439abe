"""Programs: what parsing, passes and code generation take, and how a run compares with copies and built-in kernels.

    python benchmarks/programs.py [--rounds N] [--json]

Growth is the time per statement of the largest program over that of the smallest: about 1 where it is linear.
``put/copy`` is the time of a ring of puts over that of NumPy copying as many bytes; ``lowered/built-in`` that of an
all-reduce inside of a kernel over that of the built-in kernel on threads. Both sides run in one process, turn by turn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from turns import arguments_of, median, show

import crossrank.program.language as pl
import crossrank.program.language.distributed as pld
from crossrank.author import load_module
from crossrank.collective.dtypes import F32
from crossrank.collective.kinds import Kind, ReduceOp
from crossrank.kernels import Variant
from crossrank.passes import pipeline, run_passes
from crossrank.program import compile
from crossrank.program.codegen.kernel import kernel_source
from crossrank.program.program import Program, read_program
from crossrank.runtime.threads import run_variant

STATEMENTS = (100, 200, 400, 800)
RANKS = (2, 8, 32)
BYTES = (4 << 10, 256 << 10, 4 << 20)

LONG = """
import crossrank.program.language as pl
import crossrank.program.language.distributed as pld

@pl.program
class Long:
    @pl.function(type=pl.FunctionType.InCore)
    def step(
        self,
        x: pl.Tensor[[4, 8], pl.FP32],
        y: pl.Out[pl.Tensor[[4, 8], pl.FP32]],
        signal: pl.InOut[pld.DistributedTensor[[1, 1], pl.INT32]],
    ) -> pl.Tensor[[4, 8], pl.FP32]:
        me = pld.rank(pld.get_comm_ctx(signal))
{kernel}
        return y

    @pl.function(type=pl.FunctionType.Orchestration)
    def chip(
        self,
        x: pl.Tensor[[4, 8], pl.FP32],
        y: pl.Out[pl.Tensor[[4, 8], pl.FP32]],
        signal: pl.InOut[pld.DistributedTensor[[1, 1], pl.INT32]],
    ) -> pl.Tensor[[4, 8], pl.FP32]:
{chip}
        return y

    @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
    def host(self, x: pl.Tensor[[4, 8], pl.FP32], y: pl.Out[pl.Tensor[[4, 8], pl.FP32]]):
        signal = pld.window(pld.alloc_window_buffer(4, name="cells"), [1, 1], dtype=pl.INT32)
        self.chip(x, y, signal, device=0)
        return y
"""
STATEMENT = (
    "        y = pl.store(pl.add(pl.load(x, [{row}, 0], [1, 8]), {n}.0), [{row}, 0], y)\n"
    "        pld.system.notify(target=signal, peer=me, offsets=[0, 0], value=1, op=pld.NotifyOp.AtomicAdd)"
)


def long_source(statements: int) -> bytes:
    kernel = "\n".join(STATEMENT.format(row=n % 4, n=n) for n in range(statements // 2))
    chip = "\n".join(["        y = self.step(x, y, signal)"] * (statements // 4))
    return LONG.format(kernel=kernel, chip=chip).encode()


def stages(rounds: int) -> list[dict[str, Any]]:
    """Microseconds per statement of each stage, and how they grow with the program."""
    found: dict[str, list[float]] = {}

    def lowered(program: Program) -> Program:
        clone = program.clone()
        run_passes(clone, pipeline("program"))
        return clone

    for statements in STATEMENTS:
        source = long_source(statements)
        program = load_module(source, "long.py", "a program").Long
        ready = lowered(program)
        text = ready.text(locations=True)
        sides = {
            "parse": lambda s=source: load_module(s, "long.py", "a program"),
            "passes": lambda p=program: lowered(p),
            "print": lambda p=ready: p.text(locations=True),
            "read": lambda t=text: read_program(t),
            "generate C++": lambda p=ready: kernel_source(p, "step"),
        }
        for stage, s in zip(sides, median(rounds, *sides.values()), strict=True):
            found.setdefault(stage, []).append(1e6 * s / statements)
    return [{"stage": s, "us_per_statement": t[-1], "growth": t[-1] / t[0]} for s, t in found.items()]


def ring(ranks: int, width: int, turns: int) -> Program:
    """So many puts to the right neighbour, each waited for."""

    @pl.program
    class Ring:
        @pl.function(type=pl.FunctionType.InCore)
        def turn(
            self,
            x: pl.Tensor[[1, width], pl.FP32],
            inbox: pl.InOut[pld.DistributedTensor[[1, width], pl.FP32]],
            signal: pl.InOut[pld.DistributedTensor[[1, 1], pl.INT32]],
        ) -> pld.DistributedTensor[[1, width], pl.FP32]:
            right = (pld.rank(pld.get_comm_ctx(inbox)) + 1) % ranks
            for n in pl.range(turns):
                inbox = pld.tensor.put(inbox, right, x)
                pld.system.notify(target=signal, peer=right, offsets=[0, 0], value=1, op=pld.NotifyOp.AtomicAdd)
                pld.system.wait(signal=signal, offsets=[0, 0], expected=n + 1, cmp=pld.WaitCmp.Ge)
            return inbox

        @pl.function(type=pl.FunctionType.Orchestration)
        def chip(
            self,
            x: pl.Tensor[[1, width], pl.FP32],
            inbox: pl.InOut[pld.DistributedTensor[[1, width], pl.FP32]],
            signal: pl.InOut[pld.DistributedTensor[[1, 1], pl.INT32]],
        ) -> pld.DistributedTensor[[1, width], pl.FP32]:
            return self.turn(x, inbox, signal)

        @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
        def host(self, x: pl.Tensor[[ranks, 1, width], pl.FP32]):
            inboxes = pld.alloc_window_buffer(width * 4)
            cells = pld.alloc_window_buffer(4)
            for r in pl.range(ranks):
                inbox = pld.window(inboxes, [1, width], dtype=pl.FP32)
                signal = pld.window(cells, [1, 1], dtype=pl.INT32)
                self.chip(x[r], inbox, signal, device=r)

    return Ring


def summed(ranks: int, width: int, turns: int) -> Program:
    """So many all-reduces inside of a kernel."""

    @pl.program
    class Summed:
        @pl.function(type=pl.FunctionType.InCore)
        def turn(
            self,
            data: pl.InOut[pld.DistributedTensor[[1, width], pl.FP32]],
            signal: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
        ) -> pld.DistributedTensor[[1, width], pl.FP32]:
            for _ in pl.range(turns):
                data = pld.tensor.allreduce(data, signal)
            return data

        @pl.function(type=pl.FunctionType.Orchestration)
        def chip(
            self,
            data: pl.InOut[pld.DistributedTensor[[1, width], pl.FP32]],
            signal: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
        ) -> pld.DistributedTensor[[1, width], pl.FP32]:
            return self.turn(data, signal)

        @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
        def host(self, x: pl.Tensor[[1], pl.FP32]):
            data_buf = pld.alloc_window_buffer(width * 4)
            cells = pld.alloc_window_buffer(ranks * 4)
            for r in pl.range(ranks):
                data = pld.window(data_buf, [1, width], dtype=pl.FP32)
                signal = pld.window(cells, [ranks, 1], dtype=pl.INT32)
                self.chip(data, signal, device=r)

    return Summed


TURNS = 20
MANY = 500


def runs(rounds: int) -> list[dict[str, Any]]:
    """A ring of puts beside copies, and an all-reduce inside of a kernel beside the built-in one, on 4 ranks."""
    rows = []
    for size in BYTES:
        width = size // 4
        xs = np.zeros((4, 1, width), np.float32)
        to = np.zeros_like(xs)
        data = [np.zeros((1, 1, width), np.float32) for _ in range(4)]
        variant = Variant(Kind.ALL_REDUCE, ReduceOp.ADD, F32)
        put, own = compile(ring(4, width, TURNS), ranks=4), compile(summed(4, width, TURNS), ranks=4)
        one = np.zeros(1, np.float32)

        def copies(a: Any = xs, b: Any = to) -> None:
            for _ in range(TURNS):
                np.copyto(b, a)

        def built_in(a: Any = data, v: Variant = variant) -> None:
            for _ in range(TURNS):
                run_variant(v, a, a)

        with put.prepare(persistent=True) as ring_of, own.prepare(persistent=True) as sum_of:
            sides = (lambda f=ring_of, x=xs: f(x), copies, lambda f=sum_of, x=one: f(x), built_in)
            for side in sides:
                side()
            puts, copied, lowered, kernel = median(rounds, *sides)
        rows.append({"bytes": size, "put/copy": puts / copied, "lowered/built-in": lowered / kernel})
    return rows


def ranks(rounds: int) -> list[dict[str, Any]]:
    """A run of one dispatch and one task a rank, and a hop of a ring, at several rank counts."""
    rows = []
    for count in RANKS:
        short, long = (compile(ring(count, 16, turns), ranks=count) for turns in (1, 1 + MANY))
        x = np.zeros((count, 1, 16), np.float32)
        with short.prepare(persistent=True) as a, long.prepare(persistent=True) as b:
            once, more = median(rounds, lambda f=a, x=x: f(x), lambda f=b, x=x: f(x))
        rows.append({"ranks": count, "us_per_rank": 1e6 * once / count, "us_per_hop": 1e6 * (more - once) / MANY})
    return rows


def main() -> None:
    arguments = arguments_of(__doc__)
    tables = {
        "stages": stages(max(arguments.rounds // 4, 1)),
        "runs": runs(arguments.rounds),
        "ranks": ranks(arguments.rounds),
    }
    show(tables, as_json=arguments.json)


if __name__ == "__main__":
    main()
