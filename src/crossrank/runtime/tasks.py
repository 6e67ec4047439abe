"""Run tasks of many ranks in this process: launches of compiled kernels that depend on one another and on signals.

    with Engine(limit=10) as engine:
        with engine.orchestrator():
            first = engine.submit(address, "produce", 0, tensors, [], [])
            engine.submit(other, "consume", 0, tensors, [], [], deps=[first])
        engine.finish()

A *task* is one launch of a kernel on one rank, in blocks. It is over when all its blocks have returned and all its
deferred conditions hold. An *orchestrator* is whoever submits; it is a task too, which others may wait for. Whoever
submits must be one: when no orchestrator is at work, no block runs and no cell has come to the value that somebody
waits for, nothing can ever change, and the engine says at once who waits for what.
"""

from __future__ import annotations

import ctypes
import struct
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count, takewhile
from types import TracebackType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from crossrank.errors import RunError, counted
from crossrank.runtime.library import library
from crossrank.runtime.threads import Tensor

Reason = Literal["hang", "limit"]
State = Literal["pending", "ready", "running", "waiting", "deferred"]
What = Literal["running", "cell", "barrier", "deferred"]

RECORD = np.dtype(
    [
        *(("rank", np.int32), ("orchestrator", np.int32), ("name", np.uint32), ("blocks", np.uint32)),
        *(("begin", np.int64), ("end", np.int64)),
    ]
)
"""Of a task; `Engine.names` has the names. An orchestrator, and a task that does nothing, has no blocks."""


class Context(ctypes.Structure):
    """What one communication context of a launch is made from, as ``tasks.h`` lays it out."""

    _fields_ = (
        ("domain", ctypes.c_uint64),
        ("peers", ctypes.POINTER(ctypes.c_void_p)),
        ("rank", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("slots", ctypes.c_uint32),
    )

    @classmethod
    def of(cls, domain: int, rank: int, size: int, peers: Sequence[Sequence[int] | None]) -> Context:
        """The context of a rank in its domain.

        Args:
            domain: a number of the domain's own; barriers of one domain and block number meet.
            rank: in the domain.
            size: ranks of the domain.
            peers: for each tensor of the kernel the addresses of the ``size`` ranks' own, None where the tensor is no
                window of this domain.
        """
        flat = [address for row in peers for address in (row or (None,) * size)]
        return cls(domain, (ctypes.c_void_p * len(flat))(*flat), rank, size, len(peers))


@dataclass(frozen=True)
class Wait:
    """A block that is not over, or a deferred condition that does not hold.

    Attributes:
        block: its number in the launch.
        line: of the author's source, as the kernel said last.
        what: what it waits for, or that it runs.
        context: which context of the launch; its slot and the cell's index there (0 at a barrier).
        compare: how the cell is compared.
        expected: the value; at a barrier the ranks of the domain.
        present: the cell's value; at a barrier the ranks that have come.
        missing: at a barrier the ranks, in the domain, that have not come.
    """

    what: What
    block: int
    line: int
    context: int
    slot: int
    cell: int
    compare: Literal["==", ">="]
    expected: int
    present: int
    missing: tuple[int, ...]


@dataclass(frozen=True)
class Unfinished:
    """A task that was not over: what it still needs (``pending``), and its blocks and conditions (``waits``)."""

    task: int
    name: str
    rank: int
    state: State
    pending: tuple[int, ...]
    waits: tuple[Wait, ...]


@dataclass(frozen=True)
class Stuck:
    """What was not over when all was given up; kernels' tasks over and submitted until then, by rank."""

    reason: Reason
    tasks: tuple[Unfinished, ...]
    over: dict[int, int]
    submitted: dict[int, int]


class Fault(RunError):
    """A kernel returned another status than kOk, as the first; ``text`` has its words, or the fabric's."""

    def __init__(
        self, task: int, block: int, rank: int, name: str, line: int, column: int, status: int, text: str
    ) -> None:
        super().__init__(f"{name} on rank {rank} failed: {text or f'the kernel returned {status}'}")
        self.task, self.block, self.rank, self.name = task, block, rank, name
        self.line, self.column, self.status, self.text = line, column, status, text


class Hang(RunError):
    """Nobody could go on, or the limit passed."""

    def __init__(self, stuck: Stuck, limit: float) -> None:
        why = "nothing can go on" if stuck.reason == "hang" else f"nothing was done for {limit:g} s"
        ranks = ",".join(map(str, sorted({task.rank for task in stuck.tasks})))
        super().__init__(f"{why}: {counted(len(stuck.tasks), 'task')} left, of ranks {ranks}")
        self.stuck = stuck


class GivenUp(RunError):
    """Somebody asked the engine to give up, or an orchestrator raised."""


_abandoned: list[object] = []  # what threads use that did not come back: it must stay

_OVER, _GIVEN_UP, _NO_TASK = 0, 2, 3  # Engine::Waited
_ENDINGS: dict[int, Reason] = {1: "hang", 2: "limit"}  # Ending, of which 3 is a fault
_FAULT = 3
_STATES: tuple[State, ...] = ("pending", "ready", "running", "waiting", "deferred")
_WHATS: tuple[What, ...] = ("running", "cell", "barrier", "deferred")
_COMPARES: tuple[Literal["==", ">="], ...] = ("==", ">=")

_SLICE_S = 0.1  # the main thread looks for signals in between
_LONG_S = 3600.0


@cache
def _short_calls() -> dict[str, Any]:
    """Calls that keep Python's lock: to give it away and wait for it again costs more than they do."""
    u64s, i64, u32, text = ctypes.POINTER(ctypes.c_uint64), ctypes.c_int64, ctypes.c_uint32, ctypes.c_char_p
    submit = [ctypes.c_void_p, ctypes.c_void_p, text, ctypes.c_int32, ctypes.POINTER(Tensor), u32]
    submit += [ctypes.POINTER(Context), u32, text, u32, u64s, u32, u32, ctypes.c_int32]
    signatures: dict[str, list[Any]] = {
        "new": [ctypes.c_void_p, ctypes.c_double],
        "delete": [None, ctypes.c_void_p],
        "submit": [i64, *submit],
        "open": [i64, ctypes.c_void_p, text, ctypes.c_int32],
        "close": [None, ctypes.c_void_p, ctypes.c_uint64],
        "restart_clock": [None, ctypes.c_void_p],
        "give_up": [None, ctypes.c_void_p],
        "ending": [ctypes.c_int32, ctypes.c_void_p],
        "fault": [text, ctypes.c_void_p, ctypes.POINTER(i64)],
        "stuck": [ctypes.POINTER(i64), ctypes.c_void_p, u64s],
        "name": [text, ctypes.c_void_p, u32],
        "records": [ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64],
        "unfinished": [ctypes.c_uint64, ctypes.c_void_p, u64s, ctypes.c_uint64],
    }
    return {
        name: ctypes.PYFUNCTYPE(*types)((f"crossrank_tasks_{name}", library())) for name, types in signatures.items()
    }


@cache
def _long_calls() -> dict[str, Any]:
    """Calls that wait, without Python's lock."""
    own = [ctypes.POINTER(ctypes.c_uint64), ctypes.c_uint32]
    signatures: dict[str, list[Any]] = {
        "wait": [ctypes.c_int32, ctypes.c_void_p, *own, *own, ctypes.c_double],
        "finish": [ctypes.c_int32, ctypes.c_void_p, *own, ctypes.c_double],
        "end": [ctypes.c_int32, ctypes.c_void_p],
    }
    return {
        name: ctypes.CFUNCTYPE(*types)((f"crossrank_tasks_{name}", library())) for name, types in signatures.items()
    }


class Engine:
    """Runs tasks until it is left; then what is not over is given up.

    Args:
        limit: seconds after which what is not over is given up, if in them nothing was done: no task was over, no
            orchestrator began, no cell was changed by a notify, nobody came to a barrier.
    """

    def __init__(self, limit: float = 60.0) -> None:
        self._short, self._long = _short_calls(), _long_calls()
        self._submit = self._short["submit"]
        self._limit = limit
        self._own = threading.local()  # `tasks`: the open orchestrators that this thread is, outermost first
        self._kept: list[object] = []
        self._engine = self._short["new"](limit)
        if self._engine is None:
            raise RunError("the system has no more threads")
        # orchestrators of other threads may still speak to it when it is left, and when Python ends
        weakref.finalize(self, _delete, self._engine, self._kept).atexit = False

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _end(self._engine, self._kept)

    def keep(self, *memory: object) -> None:
        """Let ``memory``, which tasks use, outlive a kernel that never returns."""
        self._kept.extend(memory)

    def submit(
        self,
        kernel_address: int,
        name: str,
        rank: int,
        tensors: Sequence[Tensor],
        contexts: Sequence[Context],
        scalars: Sequence[int | float],
        deps: Sequence[int] = (),
        blocks: int = 1,
        never_waits: bool = False,
    ) -> int:
        """A new task's number, counted from 0.

        Args:
            kernel_address: an ``int32_t (*)(const Slot*)``, called with tensors, contexts, scalars and a Launch; 0 for
                a task that does nothing.
            name: for people.
            rank: whose task it is, for people and for the limit of deferred tasks.
            tensors: copied, but for their data.
            contexts: copied, but for the windows.
            scalars: Python's own; a bool or an int becomes an int64_t, a float a double.
            deps: tasks that must be over before it starts.
            blocks: how many times the kernel is called, side by side.
            never_waits: whether it calls neither wait nor barrier; then it needs no thread of its own.

        Raises:
            Fault, Hang, GivenUp: all was given up.
        """
        if blocks < 1:
            raise ValueError(f"{name} cannot be launched in {blocks} blocks")
        number: int = self._submit(
            *(self._engine, kernel_address, name.encode(), rank),
            *((Tensor * len(tensors))(*tensors), len(tensors)),
            *((Context * len(contexts))(*contexts), len(contexts)),
            *(struct.pack("".join("d" if isinstance(s, float) else "q" for s in scalars), *scalars), len(scalars)),
            *(_numbers(deps), len(deps), blocks, never_waits),
        )
        return self._new(number)

    def open(self, name: str, rank: int = -1) -> int:
        """The task of an orchestrator, which counts as at work from now on; some thread must soon be `doing` it."""
        return self._new(self._short["open"](self._engine, name.encode(), rank))

    @contextmanager
    def doing(self, task: int) -> Iterator[int]:
        """This thread is that orchestrator, whose task is over at the end. An exception gives everything up."""
        own = self._mine()
        own.append(task)
        try:
            yield task
        except BaseException:
            self.give_up()
            raise
        finally:
            own.remove(task)
            self._short["close"](self._engine, task)

    @contextmanager
    def orchestrator(self, name: str = "orchestrator", rank: int = -1) -> Iterator[int]:
        """This thread submits tasks: `open` and `doing`."""
        with self.doing(self.open(name, rank)) as task:
            yield task

    def wait(self, ids: Iterable[int]) -> None:
        """Wait until these tasks are over.

        Raises:
            Fault, Hang, GivenUp: all was given up, whichever tasks are over.
        """
        tasks = tuple(ids)
        self._until(self._long["wait"], _numbers(tasks), len(tasks))

    def finish(self) -> None:
        """Wait until all tasks are over but this thread's own orchestrators; raises as `wait`."""
        self._until(self._long["finish"])

    def restart_clock(self) -> None:
        """Let the limit count from now."""
        self._short["restart_clock"](self._engine)

    def give_up(self) -> None:
        """Let nobody wait any more, and nothing start."""
        self._short["give_up"](self._engine)

    def unfinished(self, tasks: Sequence[int]) -> list[int]:
        """Those of these tasks that are not over."""
        numbers = _numbers(tasks)
        return numbers[: self._short["unfinished"](self._engine, numbers, len(tasks))]

    def trace(self) -> npt.NDArray[np.void]:
        """A `RECORD` for each task: begin and end in ns of `time.monotonic_ns`, 0 where not yet."""
        return self._records(0, self._short["records"](self._engine, 0, None, 0))

    def names(self) -> list[str]:
        """The names of tasks until now, by their numbers in a `RECORD`."""
        named = (self._short["name"](self._engine, number) for number in count())
        return [name.decode() for name in takewhile(lambda name: name is not None, named)]

    def name(self, task: int) -> str:
        """As it was submitted or opened."""
        return str(self._short["name"](self._engine, self._records(task, 1)["name"][0].item()).decode())

    def _records(self, first: int, count: int) -> npt.NDArray[np.void]:
        found = np.zeros(count, RECORD)
        self._short["records"](self._engine, first, found.ctypes.data, count)
        return found

    def _mine(self) -> list[int]:
        if not hasattr(self._own, "tasks"):
            self._own.tasks = []
        own: list[int] = self._own.tasks
        return own

    def _new(self, number: int) -> int:
        if number == -1:
            raise self._failure()
        if number < 0:
            raise ValueError("a task depends on one that was not submitted")
        return number

    def _until(self, wait: Callable[..., int], *arguments: object) -> None:
        own = self._mine()
        seconds = _SLICE_S if threading.current_thread() is threading.main_thread() else _LONG_S
        while (waited := wait(self._engine, *arguments, _numbers(own), len(own), seconds)) != _OVER:
            if waited == _GIVEN_UP:
                raise self._failure()
            if waited == _NO_TASK:
                raise ValueError("a task that was not submitted is waited for")

    def _failure(self) -> RunError:
        ending = self._short["ending"](self._engine)
        if ending == _FAULT:
            numbers = (ctypes.c_int64 * 5)()
            text = self._short["fault"](self._engine, numbers).decode(errors="replace")
            task, block, line, column, status = numbers
            rank = int(self._records(task, 1)["rank"][0])
            return Fault(task, block, rank, self.name(task), line, column, status, text)
        if ending in _ENDINGS:
            return Hang(self._stuck(_ENDINGS[ending]), self._limit)
        return GivenUp("the run was given up")

    def _stuck(self, reason: Reason) -> Stuck:
        length = ctypes.c_uint64()
        data = self._short["stuck"](self._engine, ctypes.byref(length))
        numbers = iter(data[: length.value])
        records = self.trace()
        tasks = []

        def some() -> tuple[int, ...]:
            return tuple(next(numbers) for _ in range(next(numbers)))

        def wait() -> Wait:
            what, block, line, context, slot, cell, compare, expected, present = (next(numbers) for _ in range(9))
            place = block, line, context, slot, cell
            return Wait(_WHATS[what], *place, _COMPARES[compare], expected, present, some())

        for task in numbers:
            state, pending = _STATES[next(numbers)], some()
            waits = tuple(wait() for _ in range(next(numbers)))
            tasks.append(Unfinished(task, self.name(task), int(records["rank"][task]), state, pending, waits))
        kernels = records[records["orchestrator"] == 0]
        return Stuck(reason, tuple(tasks), _by_rank(kernels[kernels["end"] > 0]), _by_rank(kernels))


def _end(engine: int, kept: list[object]) -> None:
    if not _long_calls()["end"](engine):
        _abandoned.append(kept)


def _delete(engine: int, kept: list[object]) -> None:
    _end(engine, kept)
    _short_calls()["delete"](engine)


def _numbers(values: Sequence[int]) -> ctypes.Array[ctypes.c_uint64]:
    return (ctypes.c_uint64 * len(values))(*values)


def _by_rank(records: npt.NDArray[np.void]) -> dict[int, int]:
    ranks, counts = np.unique(records["rank"], return_counts=True)
    return dict(zip(ranks.tolist(), counts.tolist(), strict=True))
