"""Collectives of chip functions beside MPI's and the memory floor, f32.

    python benchmarks/mpi.py [--ranks 4,8] [--size 4M] [--kinds all-reduce] [--rounds N] [--json]

A turn is so many times {write the operand, barrier, collective, barrier} on every rank. What is timed, by the machine's
one clock on both sides, is each collective from when the first rank begins it until the last has its result; of a turn
the median counts. On our side that is a chip function with a loop of four tasks, run by one persistent worker; on MPI's
side NumPy and mpi4py, in a process for each rank that sleeps in a socket when it is not its turn. Both sides take turns
in one run; a ratio is the median over the turns. The floor is the time of copying the bytes that all ranks must read
once and write once, measured in the same turns.

Where MPI is not installed (`pip install -e '.[mpi]'`) only ours and the floor are shown.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from collectives import Floor, bytes_of, size_text
from mpi_peer import KINDS, ROW, Job, Peers, median_seconds
from turns import show

import crossrank.program.language as pl
import crossrank.program.language.distributed as pld
from crossrank.program import compile
from crossrank.program.program import Program

TILE = 4096
INSTALL = "pip install -e '.[mpi]'"
OPEN_MPI = ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
"""More ranks than cores, which let one another run."""
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def program(job: Job) -> Program:
    """So many times {write the operand, barrier, collective, barrier} on each rank, and its result at the end."""
    kind, ranks, turns = job.kind, job.ranks, job.repeats
    (rows, width), (out_rows, out_width) = job.shapes
    in_place = job.kind in ("all-reduce", "reduce-scatter")
    tile, out_tile = min(TILE, width), min(TILE, out_width)
    Operand, Result = pl.Tensor[[rows, width], pl.FP32], pl.Tensor[[out_rows, out_width], pl.FP32]
    OperandWindow = pld.DistributedTensor[[rows, width], pl.FP32]
    ResultWindow = pld.DistributedTensor[[out_rows, out_width], pl.FP32]
    Cells = pld.DistributedTensor[[ranks, 1], pl.INT32]
    Counts = pl.Tensor[[ranks, 1], pl.INT32]

    @pl.program
    class Collectives:
        @pl.function(type=pl.FunctionType.InCore)
        def write(self, source: Operand, operand: pl.Out[OperandWindow], signal: pl.InOut[Cells]):
            for row in pl.range(rows):
                for n in pl.range(width // tile):
                    operand = pl.store(pl.load(source, [row, n * tile], [1, tile]), [row, n * tile], operand)
            return operand, signal  # by which it comes after one barrier and before the next

        @pl.function(type=pl.FunctionType.InCore)
        def read(self, result: ResultWindow, found: pl.Out[Result]):
            for row in pl.range(out_rows):
                for n in pl.range(out_width // out_tile):
                    part = pl.load(result, [row, n * out_tile], [1, out_tile])
                    found = pl.store(part, [row, n * out_tile], found)
            return found

        @pl.function(type=pl.FunctionType.Orchestration)
        def chip(
            self,
            source: Operand,
            counts: Counts,
            found: pl.Out[Result],
            operand: pl.InOut[OperandWindow],
            result: pl.InOut[ResultWindow],
            signal: pl.InOut[Cells],
            recv: pl.InOut[Cells],
        ):
            for _ in pl.range(turns):
                operand, signal = self.write(source, operand, signal)
                signal = pld.tensor.barrier(signal)
                if kind == "all-to-all-v":
                    result = pld.tensor.all_to_all_v(operand, result, signal, counts, recv)
                if kind == "all-gather":
                    result = pld.tensor.allgather(operand, result, signal)
                if kind == "reduce-scatter":
                    operand = pld.tensor.reduce_scatter(operand, signal)
                if kind == "all-reduce":
                    operand = pld.tensor.allreduce(operand, signal)
                signal = pld.tensor.barrier(signal)
            if in_place:
                return self.read(operand, found)
            return self.read(result, found)

        @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
        def host(
            self,
            source: pl.Tensor[[ranks, rows, width], pl.FP32],
            counts: pl.Tensor[[ranks, ranks, 1], pl.INT32],
            found: pl.Out[pl.Tensor[[ranks, out_rows, out_width], pl.FP32]],
        ):
            operands = pld.alloc_window_buffer(rows * width * pl.FP32.get_byte())
            results = pld.alloc_window_buffer(out_rows * out_width * pl.FP32.get_byte())
            signals = pld.alloc_window_buffer(ranks * pl.INT32.get_byte())
            recvs = pld.alloc_window_buffer(ranks * pl.INT32.get_byte())
            for r in pl.range(pld.world_size()):
                operand = pld.window(operands, [rows, width], dtype=pl.FP32)
                result = pld.window(results, [out_rows, out_width], dtype=pl.FP32)
                signal = pld.window(signals, [ranks, 1], dtype=pl.INT32)
                recv = pld.window(recvs, [ranks, 1], dtype=pl.INT32)
                self.chip(source[r], counts[r], found[r], operand, result, signal, recv, device=r)
            return found

    return Collectives


class Ours:
    """A job on the CHIP rail."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.compiled = compile(program(job), ranks=job.ranks)
        self.worker = self.compiled.prepare(persistent=True, reset_persistent_windows=False)
        sources = np.stack([job.operand(r) for r in range(job.ranks)])
        self.arguments = sources, job.counts[..., None], np.zeros((job.ranks, *job.shapes[1]), np.float32)

    def turn(self) -> float:
        """The median seconds of a collective."""
        self.worker(*self.arguments)
        found = self.arguments[-1]
        assert all(self.job.is_right(r, f) for r, f in enumerate(found)), f"our {self.job.kind} is wrong"
        assert self.compiled.record is not None
        trace = self.compiled.record.trace
        times = []
        for rank in range(self.job.ranks):  # in the order in which they were submitted
            tasks = trace[(trace["rank"] == rank) & (trace["orchestrator"] == 0)]
            collectives = tasks[:-1].reshape(self.job.repeats, 4)[:, 2]
            times.append(np.stack([collectives["begin"], collectives["end"]], axis=1))
        return median_seconds(times)


def mpiexec() -> list[str] | None:
    """The command that starts ranks of MPI, up to their number; None where it is not installed."""
    bin = str(Path(sys.executable).parent)
    found = shutil.which("mpiexec", path=os.pathsep.join((bin, os.environ.get("PATH", ""))))
    if found is None or importlib.util.find_spec("mpi4py") is None:
        return None
    said = subprocess.run([found, "--version"], env=os.environ | AS_ROOT, capture_output=True, text=True)
    return [found, *(OPEN_MPI if "Open MPI" in said.stdout else []), "-n"]


@contextmanager
def peers(ranks: int) -> Iterator[Peers | None]:
    """MPI's ranks, asleep; None where MPI is not installed."""
    command = mpiexec()
    if command is None:
        yield None
        return
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as open:
        port = str(server.getsockname()[1])
        peer = str(Path(__file__).with_name("mpi_peer.py"))
        command = [*command, str(ranks), sys.executable, peer, port]
        process = open.enter_context(subprocess.Popen(command, env=os.environ | AS_ROOT))  # waits for its end
        server.settimeout(60)
        try:
            wires = [open.enter_context(server.accept()[0]) for _ in range(ranks)]
        except TimeoutError:
            process.terminate()
            sys.exit("MPI's ranks have not come within a minute")
        yield open.enter_context(closing(Peers(wires)))


def measured(job: Job, theirs: Peers | None, rounds: int) -> dict[str, Any]:
    """The medians of one job, turn by turn."""
    ours, floor = Ours(job), Floor(job.moved)
    sides = [ours.turn, floor.seconds, *([] if theirs is None else [partial(theirs.turn, job)])]
    for side in sides:
        side()  # memory is touched for the first time
    turns = np.array([[side() for side in sides] for _ in range(rounds)])
    ours.worker.close()
    floor.close()
    mine, least, *others = np.moveaxis(turns, -1, 0)
    row: dict[str, Any] = {"collective": job.kind, "ranks": job.ranks, "size": size_text(job.elements * 4)}
    row |= {"ours ms": 1e3 * median(mine), "ours/floor": median(mine / least)}
    for other in others:
        row |= {"MPI ms": 1e3 * median(other), "MPI/floor": median(other / least), "MPI/ours": median(other / mine)}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="4,8")
    parser.add_argument("--size", default="4M", help="bytes of the largest buffer of a rank")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--repeats", type=int, default=10, help="collectives in a turn")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--json", action="store_true", help="one object on standard output, and nothing else")
    args = parser.parse_args()
    rows, elements = [], bytes_of(args.size) // 4
    for ranks in map(int, args.ranks.split(",")):
        if elements % (ranks * max(ROW, TILE)):
            parser.error(f"--size {args.size}: no whole number of tiles for each of {ranks} ranks")
        with peers(ranks) as theirs:
            if theirs is None:
                print(f"MPI is not installed ({INSTALL}): ours and the floor alone", file=sys.stderr)
            else:
                print(theirs.library, file=sys.stderr)
            for kind in args.kinds.split(","):
                rows.append(measured(Job(kind, ranks, elements, args.repeats), theirs, args.rounds))
    show({"mpi": rows}, as_json=args.json)


if __name__ == "__main__":
    main()
