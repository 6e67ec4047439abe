"""What the host has others do: dispatches to devices and calls of sub-workers, each on a thread when its turn has come.

A `Job` is an orchestrator of the engine from the moment on at which all that it comes after is over, and not before:
what waits for its turn counts as nothing that could still happen. The job that ends opens those that come after it
before it is over itself, so that there is no moment in between at which nobody would be at work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from queue import SimpleQueue

from crossrank.runtime.tasks import Engine, Fault, GivenUp, Hang


class Job:
    """Something to be done on a thread of its own.

    Attributes:
        title: for people.
        rank: the device; -1 for a sub-worker.
        task: the engine's number of it, once its turn has come.
        over: whether it is.
        after: those that it still comes after.
        followers: those that come after it.
    """

    def __init__(self, title: str, rank: int, do: Callable[[], None]) -> None:
        self.title = title
        self.rank = rank
        self.do = do
        self.task: int | None = None
        self.over = False
        self.after: set[Job] = set()
        self.followers: list[Job] = []


class Threads:
    """Threads that do what they are handed; as many as are busy at a time. None keeps the process from ending."""

    def __init__(self) -> None:
        self._todo: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0

    def hand(self, do: Callable[[], None]) -> None:
        """Let one of them do it."""
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                self._threads += 1
                threading.Thread(target=self._work, daemon=True, name="crossrank-orchestrator").start()
        self._todo.put(do)

    def end(self) -> None:
        """Let them end once they are idle."""
        for _ in range(self._threads):
            self._todo.put(None)

    def _work(self) -> None:
        while (do := self._todo.get()) is not None:
            do()
            with self._lock:
                self._idle += 1


class Dispatcher:
    """Starts jobs in their order, each after those that it has to come after.

    Attributes:
        failure: what the first job raised that failed by itself.
    """

    def __init__(self, engine: Engine, threads: Threads) -> None:
        self.failure: BaseException | None = None
        self._engine = engine
        self._threads = threads
        self._lock = threading.Lock()
        self._unfinished: dict[Job, None] = {}

    def submit(self, job: Job, after: Iterable[Job]) -> None:
        """Let it be done after those."""
        with self._lock:
            self._unfinished[job] = None
            job.after = {other for other in after if not other.over}
            for other in job.after:
                other.followers.append(job)
            if not job.after:
                self._open(job)

    @property
    def queued(self) -> list[Job]:
        """The jobs whose turn has not come."""
        with self._lock:
            return [job for job in self._unfinished if job.task is None]

    def wait(self, jobs: Iterable[Job]) -> None:
        """Wait until they are over.

        Raises:
            Fault, Hang, GivenUp: all was given up; `failure` may say more.
        """
        for job in jobs:
            while not job.over:
                with self._lock:
                    first = job
                    while first.task is None:  # what its turn waits for, and so on
                        first = next(iter(first.after))
                self._engine.wait([first.task])

    def finish(self) -> None:
        """Wait until all jobs are over; raises as `wait`."""
        while self._unfinished:
            self.wait(list(self._unfinished))

    def _open(self, job: Job) -> None:
        job.task = self._engine.open(job.title, job.rank)
        self._threads.hand(lambda: self._run(job))

    def _run(self, job: Job) -> None:
        assert job.task is not None
        try:
            with self._engine.doing(job.task):
                try:
                    job.do()
                except (Fault, Hang, GivenUp):
                    raise  # of the engine, which tells all that wait in it
                except BaseException as error:
                    with self._lock:
                        self.failure = self.failure or error
                    raise
                self._ended(job)
        except BaseException:  # told to whoever waits for it, on the host's thread
            return

    def _ended(self, job: Job) -> None:
        with self._lock:
            job.over = True
            del self._unfinished[job]
            for follower in job.followers:
                follower.after.remove(job)
                if not follower.after:
                    self._open(follower)
            job.followers = []
            job.do = lambda: None  # what it needed may go
