"""Says who waits for whom when nobody can go on, and what a kernel failed of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from xdsl.dialects.builtin import FileLineColLoc

from crossrank.errors import counted
from crossrank.program.execute.callees import Kernel
from crossrank.program.execute.dispatch import Job
from crossrank.program.execute.views import Domain, View
from crossrank.runtime.tasks import Fault, Hang, Unfinished, Wait

SHOWN = 6
"""Of lines that are alike so many are shown."""
FEW = 3


@dataclass(frozen=True)
class Launched:
    """What a task was given: its kernel, its device, its tensors and its domains in the order of the kernel's slots."""

    kernel: Kernel
    device: int
    views: tuple[View, ...]
    domains: tuple[Domain, ...]


Tasks = Mapping[int, Launched]


def fault_message(fault: Fault, kernel: Kernel) -> str:
    """One line: where, which kernel on which rank, what."""
    block = f", block {fault.block}" if fault.block else ""
    what = fault.text or f"it returned {fault.status}"
    return f"{_place(kernel, fault.line)}: {kernel.name} on rank {fault.rank}{block}: {what}"


def hang_message(hang: Hang, tasks: Tasks, jobs: Sequence[Job], counts: Mapping[int, int], world: int) -> str:
    """Who waits for what, the first of them on the first line; then who is at work, and who has ended.

    Args:
        hang: what the engine found.
        tasks: those that were not over.
        jobs: those whose turn has not come.
        counts: of each device's tasks.
        world: how many devices.
    """
    stuck = hang.stuck
    kernels = sorted((t for t in stuck.tasks if t.task in tasks), key=lambda t: t.rank)
    waits = [w for t in kernels if t.state in ("waiting", "deferred") for w in _waits(t, tasks[t.task])]
    works = [w for t in kernels if t.state == "running" for w in _waits(t, tasks[t.task])]
    works += [
        f"{_who(t.rank)} is at work in {t.name}" for t in stuck.tasks if t.task not in tasks and t.state == "running"
    ]
    moving = {t.rank for t in kernels if t.state in ("waiting", "deferred", "running")}
    rest = {t.rank: f"rank {t.rank} has {t.name} to do, and nothing lets it start" for t in reversed(kernels)}
    rest |= {job.rank: _queued(job) for job in reversed(jobs)}
    kept = [text for rank, text in sorted(rest.items()) if rank not in moving]
    idle = [rank for rank in range(world) if rank not in moving and rank not in rest]
    lines = [*_shortened(waits), *_shortened(works), *_shortened(kept), *_idle(idle, counts)]
    first = "nothing can go on" if stuck.reason == "hang" else str(hang).partition(":")[0]
    return "\n".join([f"{first}: {lines[0]}", *lines[1:]]) if lines else first


def _shortened(lines: list[str]) -> list[str]:
    more = len(lines) - SHOWN
    return lines if more <= 1 else [*lines[:SHOWN], f"and {more} more like it"]


def _queued(job: Job) -> str:
    after = " and ".join(f"{other.title} of {_who(other.rank)}" for other in list(job.after)[:2])
    return f"{_who(job.rank)} has {job.title} to do, which comes after {after}"


def _idle(ranks: list[int], counts: Mapping[int, int]) -> Iterator[str]:
    """What became of ranks that have nothing left to do: of few a line each, of many how many they are."""
    ended, unused = [r for r in ranks if r in counts], [r for r in ranks if r not in counts]
    for some, what in ((ended, "ended"), (unused, "been given nothing to do")):
        if len(some) > FEW:
            yield f"{len(some)} ranks have {what}: {', '.join(map(str, some[:SHOWN]))}{', …' * (len(some) > SHOWN)}"
            continue
        for rank in some:
            yield f"rank {rank} has {what}" + (f" ({counted(counts[rank], 'task')})" if rank in counts else "")


def _waits(task: Unfinished, launched: Launched) -> Iterator[str]:
    name, blocks = launched.kernel.name, {w.block for w in task.waits}
    for wait in task.waits:
        block = f" (block {wait.block})" if len(blocks) > 1 else ""
        who = f"rank {task.rank}{block}"
        place = f"{name} ({_place(launched.kernel, wait.line, short=True)})"
        if wait.what == "running":
            yield f"{who} runs {place}"
        elif wait.what == "barrier":
            yield f"{who} waits in {place} at a barrier for {_ranks(wait, launched)}"
        else:
            verb = "waits in" if wait.what == "cell" else "has left, and is not over before, in"
            cell = f"{_cell(wait, launched)} {wait.compare} {wait.expected}, which is {wait.present}"
            yield f"{who} {verb} {place} for {cell}"


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
    return "rank" + ("s " if len(wait.missing) > 1 else " ") + ", ".join(str(devices[r]) for r in wait.missing)


def _who(rank: int) -> str:
    return "the host" if rank < 0 else f"rank {rank}"


def _place(kernel: Kernel, line: int, short: bool = False) -> str:
    location = kernel.function.op.location
    file = location.filename.data if isinstance(location, FileLineColLoc) else kernel.name
    name = Path(file).name if short else file
    return f"{name}:{line}" if line else name
