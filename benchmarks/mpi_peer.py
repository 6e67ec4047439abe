"""A rank of MPI's side of `mpi.py`, which starts it; and what both sides do: operands, results, counts.

Between its turns a rank sleeps in a socket, so that it takes nothing from the other side.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
KINDS = ("all-to-all-v", "all-gather", "reduce-scatter", "all-reduce")
ROW = 1024
"""Elements of a row of an all-to-all-v."""


@dataclass(frozen=True)
class Job:
    """A collective among ``ranks``, whose largest buffer has so many f32 ``elements``, ``repeats`` times a turn."""

    kind: str
    ranks: int
    elements: int
    repeats: int

    @property
    def chunk(self) -> int:
        """Elements that one rank has for another."""
        return self.elements // self.ranks

    @property
    def shapes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Of a rank's operand and of its result; of the reductions they are one."""
        rows = (self.elements // ROW, ROW)
        matrix = (self.ranks, self.chunk)
        shape = rows if self.kind == "all-to-all-v" else matrix
        return ((1, self.chunk) if self.kind == "all-gather" else shape), shape

    @property
    def capacity(self) -> int:
        """Rows that one rank can send another, of an all-to-all-v."""
        return self.chunk // ROW

    @property
    def counts(self) -> Array:
        """Rows that each rank sends each, [from, to]: all, or three quarters."""
        ranks = np.arange(self.ranks)
        quarters = 4 - (ranks[:, None] + ranks) % 2
        return (self.capacity * quarters // 4).astype(np.int32)

    @property
    def moved(self) -> int:
        """Bytes that all ranks must read once and write once."""
        if self.kind == "all-to-all-v":
            return 2 * int(self.counts.sum()) * ROW * 4
        both = {"all-reduce": 2 * self.elements}.get(self.kind, self.elements + self.chunk)
        return self.ranks * both * 4

    def operand(self, rank: int) -> Array:
        """What a rank writes before each call: numbers whose sums are exact."""
        shape = self.shapes[0]
        return ((np.arange(shape[0] * shape[1]) % 251) + rank).astype(np.float32).reshape(shape)

    def is_right(self, rank: int, found: Array) -> bool:
        """Whether a rank's result is what the operands say, where anything is said of it."""
        operands = [self.operand(r) for r in range(self.ranks)]
        if self.kind == "all-gather":
            return np.array_equal(found, np.concatenate(operands))
        if self.kind == "all-to-all-v":
            blocks, rows = found.reshape(self.ranks, self.capacity, ROW), self.counts[:, rank]
            sent = [o.reshape(blocks.shape)[rank] for o in operands]
            return all(np.array_equal(b[:n], s[:n]) for b, s, n in zip(blocks, sent, rows, strict=True))
        total = np.sum(operands, axis=0)
        if self.kind == "reduce-scatter":
            return np.array_equal(found[rank], total[rank])
        return np.array_equal(found, total)


def median_seconds(times: npt.ArrayLike) -> float:
    """Of calls, [rank, call, 2] ns: from when the first rank has begun until the last has ended."""
    begun, ended = np.moveaxis(np.asarray(times), -1, 0)
    return 1e-9 * float(np.median(ended.max(axis=0) - begun.min(axis=0)))


def prepared(job: Job, comm: Any, mpi: Any) -> tuple[Callable[[], None], Callable[[], None], Callable[[], Array]]:
    """What writes the operand, what carries the collective out, and what its result is."""
    rank, source = comm.Get_rank(), job.operand(comm.Get_rank())
    operand, result = (np.zeros(shape, np.float32) for shape in job.shapes)

    def write() -> None:
        np.copyto(operand, source)

    if job.kind == "all-gather":
        return write, lambda: comm.Allgather(operand, result), lambda: result
    if job.kind == "all-reduce":
        return write, lambda: comm.Allreduce(mpi.IN_PLACE, operand, mpi.SUM), lambda: operand
    if job.kind == "reduce-scatter":
        return write, lambda: comm.Reduce_scatter_block(operand, result[rank], mpi.SUM), lambda: result
    places = np.arange(job.ranks) * job.chunk
    out, into = job.counts[rank] * ROW, job.counts[:, rank] * ROW

    def exchange() -> None:
        comm.Alltoallv([operand, out, places, mpi.FLOAT], [result, into, places, mpi.FLOAT])

    return write, exchange, lambda: result


def main() -> None:
    from mpi4py import MPI

    comm, rank = MPI.COMM_WORLD, MPI.COMM_WORLD.Get_rank()
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as wire, wire.makefile("rw") as lines:

        def say(what: Any) -> None:
            lines.write(json.dumps(what) + "\n")
            lines.flush()

        say(MPI.Get_library_version().split(",")[0].strip())
        ready: dict[Job, Any] = {}
        for line in lines:
            job = Job(**json.loads(line))
            if job not in ready:
                ready[job] = prepared(job, comm, MPI)
            write, collective, result = ready[job]
            times = []
            for _ in range(job.repeats):
                write()
                comm.Barrier()
                begun = time.monotonic_ns()
                collective()
                times.append((begun, time.monotonic_ns()))
                comm.Barrier()
            say({"times": times, "right": job.is_right(rank, result())})


class Peers:
    """The ranks of MPI, as `mpi.py` talks to them."""

    def __init__(self, wires: list[socket.socket]) -> None:
        self._lines = [wire.makefile("rw") for wire in wires]  # which keep the sockets open
        self.library = {json.loads(lines.readline()) for lines in self._lines}.pop()

    def close(self) -> None:
        """Let them end."""
        for lines in self._lines:
            lines.close()

    def turn(self, job: Job) -> float:
        """The median seconds of a collective."""
        for lines in self._lines:
            lines.write(json.dumps(asdict(job)) + "\n")
            lines.flush()
        said = [json.loads(lines.readline()) for lines in self._lines]
        assert all(s["right"] for s in said), f"MPI's {job.kind} is wrong"
        return median_seconds([s["times"] for s in said])


if __name__ == "__main__":
    main()
