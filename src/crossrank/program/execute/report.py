"""Says who waits for whom when nobody can go on, and what a kernel failed of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import NamedTuple

from xdsl.dialects.builtin import FileLineColLoc

from crossrank.errors import counted
from crossrank.program.execute.callees import Kernel
from crossrank.program.execute.dispatch import Job
from crossrank.program.execute.views import Domain, View
from crossrank.runtime.tasks import Fault, Hang, Unfinished, Wait

SHOWN = 6
"""Of lines that are alike so many are shown, and of ranks in a line so many groups."""


@dataclass(frozen=True)
class Launched:
    """What a task was given: its kernel, its device, its tensors and its domains in the order of the kernel's slots.

    ``place`` is the author's line of the call, for a kernel that has no lines of its own.
    """

    kernel: Kernel
    device: int
    views: tuple[View, ...]
    domains: tuple[Domain, ...]
    place: str = ""

    def at(self, line: int) -> str:
        """The file and line of a kernel; where nobody knows it the place of the call, or the kernel's name."""
        location = self.kernel.function.op.location
        if isinstance(location, FileLineColLoc):
            return f"{location.filename.data}:{line}" if line else location.filename.data
        return self.place or self.kernel.name


Tasks = Mapping[int, Launched]


class Clause(NamedTuple):
    """What is said of a rank (or of one of its blocks), and the same of several."""

    one: str
    many: str
    block: str = ""


Said = Iterable[tuple[int, Clause]]


def fault_message(fault: Fault, launched: Launched) -> str:
    """One line: where, which kernel on which rank, what."""
    block = f", block {fault.block}" if fault.block else ""
    what = fault.text or f"it returned {fault.status}"
    column = f":{fault.column}" if fault.column else ""
    return f"{launched.at(fault.line)}{column}: {launched.kernel.name} on rank {fault.rank}{block}: {what}"


def hang_message(hang: Hang, tasks: Tasks, jobs: Sequence[Job], counts: Mapping[int, int], world: int) -> str:
    """Who waits for what, the first of them on the first line; then who is at work, and who has ended.

    Args:
        hang: what the engine found.
        tasks: those that were not over.
        jobs: those whose turn has not come.
        counts: how many tasks each device was given that was given anything.
        world: how many devices.
    """
    stuck = hang.stuck
    kernels = sorted((t for t in stuck.tasks if t.task in tasks), key=lambda t: t.rank)
    others = [t for t in stuck.tasks if t.task not in tasks and t.state == "running"]
    waits = [w for t in kernels if t.state in ("waiting", "deferred") for w in _waits(t, tasks[t.task])]
    works = [w for t in kernels if t.state == "running" for w in _waits(t, tasks[t.task])]
    works += [(t.rank, Clause(f"is at work in {t.name}", f"are at work in {t.name}")) for t in others]
    moving = {t.rank for t in kernels if t.state in ("waiting", "deferred", "running")} | {t.rank for t in others}
    lets = "and nothing lets it start" if stuck.reason == "hang" else "which has not begun"
    rest = {t.rank: _has(f"{t.name} to do, {lets}") for t in reversed(kernels)}
    rest |= {job.rank: _queued(job) for job in reversed(jobs)}
    kept = [(rank, clause) for rank, clause in sorted(rest.items()) if rank not in moving]
    idle = [(rank, _idle(counts.get(rank))) for rank in range(world) if rank not in moving and rank not in rest]
    idle.sort(key=lambda said: counts.get(said[0], -1), reverse=True)  # those that were given nothing, last
    lines = [line for said in (waits, works, kept, idle) for line in _told(said)]
    first = "nothing can go on" if stuck.reason == "hang" else f"{str(hang).partition(':')[0]} (--limit, limit_s)"
    return "\n".join([f"{first}: {lines[0]}", *lines[1:]]) if lines else first


def _told(said: Said) -> list[str]:
    """A line for each clause, of all of whom it holds; of many lines the first."""
    ranks: dict[Clause, list[int]] = {}
    for rank, clause in said:
        ranks.setdefault(clause, []).append(rank)
    lines = [f"{_who(*of)}{c.block} {c.one if len(of) == 1 else c.many}" for c, of in ranks.items()]
    more = len(lines) - SHOWN
    return lines if more <= 1 else [*lines[:SHOWN], f"and {more} more like it"]


def _has(what: str) -> Clause:
    return Clause(f"has {what}", f"have {what}")


def _queued(job: Job) -> Clause:
    after = " and ".join(f"{other.title} of {_who(other.rank)}" for other in list(job.after)[:2])
    return _has(f"{job.title} to do, which comes after {after}")


def _idle(tasks: int | None) -> Clause:
    """What became of a rank that has nothing left to do."""
    if tasks is None:
        return _has("been given nothing to do")
    return Clause(f"has ended ({counted(tasks, 'task')})", f"have ended ({counted(tasks, 'task')} each)")


def _waits(task: Unfinished, launched: Launched) -> Iterator[tuple[int, Clause]]:
    name, blocks = launched.kernel.name, {w.block for w in task.waits}
    for wait in task.waits:
        block = f" (block {wait.block})" if len(blocks) > 1 else ""
        place = f"{name} ({PurePath(launched.at(wait.line)).name})"
        if wait.what == "running":
            clause = Clause(f"runs {place}", f"run {place}", block)
        elif wait.what == "barrier":
            rest = f"in {place} at a barrier for {_ranks(wait, launched)}"
            clause = Clause(f"waits {rest}", f"wait {rest}", block)
        else:
            rest = f"in {place} for {_cell(wait, launched)} {wait.compare} {wait.expected}, which is {wait.present}"
            if wait.what == "cell":
                clause = Clause(f"waits {rest}", f"wait {rest}", block)
            else:
                ends = f"not over before, {rest}"
                clause = Clause(f"has left, and is {ends}", f"have left, and are {ends}", block)
        yield task.rank, clause


def _cell(wait: Wait, launched: Launched) -> str:
    """A cell as its author writes it: the parameter, and an index for each dimension."""
    kernel, view = launched.kernel, launched.views[wait.slot]
    name = kernel.parameters.params[kernel.code.slots.tensors[wait.slot]].name
    rest, indices = wait.cell * view.array.itemsize, [0] * view.array.ndim
    for axis in sorted(range(view.array.ndim), key=lambda a: -view.array.strides[a]):
        if view.array.shape[axis] > 1:
            indices[axis], rest = divmod(rest, view.array.strides[axis])
    return f"{name}[{', '.join(map(str, indices))}]"


def _ranks(wait: Wait, launched: Launched) -> str:
    devices = launched.domains[wait.context].devices
    return _who(*(devices[r] for r in wait.missing))


def _who(rank: int, *more: int) -> str:
    """``the host``, or as `ranks_named`."""
    return "the host" if rank < 0 else ranks_named([rank, *more])


def ranks_named(ranks: Sequence[int]) -> str:
    """``rank 3``, ``ranks 0-5, 7``; of many groups the first."""
    groups: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if groups and rank == groups[-1][-1] + 1:
            groups[-1].append(rank)
        else:
            groups.append([rank])
    named = [f"{g[0]}-{g[-1]}" if len(g) > 1 else str(g[0]) for g in groups]
    return f"rank{'s' * (len(set(ranks)) > 1)} {', '.join(named[:SHOWN])}{', …' * (len(named) > SHOWN)}"
