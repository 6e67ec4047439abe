"""A program of several modules: one for each rank, and passes that look at all of them at once.

Most passes look at one module at a time, and run over each. A send in one module and the recv that it meets in another
can be seen together only by a pass that is given both: a `ProgramPass`.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from crossrank.errors import InputError
from crossrank.hlo.hlo_pass import HloPass
from crossrank.hlo.module import Instruction, Module
from crossrank.passes import Pass, PassResult, check_door
from crossrank.remarks import Remarks


@dataclass(frozen=True)
class Program:
    """The modules of all ranks, by rank.

    Attributes:
        modules: a module for each rank; or a single one, which may be that of all ranks.
        files: what messages call them; the empty string for a single one that needs no name.
    """

    modules: tuple[Module, ...]
    files: tuple[str, ...] = ("",)

    def title(self, rank: int) -> str:
        """The file of a rank; with the rank where several have files of that name."""
        twice = self.files.count(self.files[rank]) > 1
        return f"{self.files[rank]} (rank {rank})" if twice else self.files[rank]

    def name(self, rank: int, i: Instruction) -> str:
        """``%name``, behind the file that has it where there are several."""
        return f"%{i.name}" if len(self.modules) == 1 else f"{self.title(rank)}: %{i.name}"


@dataclass(frozen=True)
class ProgramPass(HloPass):
    """A pass that looks at the modules of all ranks at once."""

    def run(self, module: Module, remarks: Remarks) -> bool:
        """Apply the pass to a single module."""
        return self.run_program(Program((module,)), [remarks])[0]

    @abstractmethod
    def run_program(self, program: Program, remarks: Sequence[Remarks]) -> list[bool]:
        """Apply the pass to every module, in place; returns for each whether it changed."""


def run_passes_on_program(
    program: Program, passes: Sequence[Pass[Module]], after: Callable[[int, PassResult], None] | None = None
) -> list[list[PassResult]]:
    """Run ``passes`` in order, each over the modules of all ranks before the next.

    Args:
        program: its modules are changed in place.
        passes: what to run.
        after: called with the rank and the result, once a pass has left the module of that rank.

    Returns:
        the results by rank.
    """
    check_door(passes, Module.TITLE)
    results: list[list[PassResult]] = [[] for _ in program.modules]
    for p in passes:
        remarks = [Remarks(p.name) for _ in program.modules]
        start = time.perf_counter()
        if isinstance(p, ProgramPass):
            changed = p.run_program(program, remarks)
        else:
            changed = [_run(p, program, rank, remarks[rank]) for rank in range(len(program.modules))]
        seconds = (time.perf_counter() - start) / len(program.modules)
        for rank, (done, said) in enumerate(zip(changed, remarks, strict=True)):
            results[rank].append(PassResult(p.name, str(p), done, tuple(said), seconds))
            if after is not None:
                after(rank, results[rank][-1])
    return results


def merged_results(program: Program, results: Sequence[Sequence[PassResult]]) -> list[PassResult]:
    """What each pass did to all modules together; remarks name the file."""
    merged = []
    for by_rank in zip(*results, strict=True):
        remarks = [
            replace(remark, instruction=f"{program.title(rank)}: {remark.instruction}")
            for rank, result in enumerate(by_rank)
            for remark in result.remarks
        ]
        changed, seconds = any(r.changed for r in by_rank), sum(r.seconds for r in by_rank)
        merged.append(replace(by_rank[0], changed=changed, remarks=tuple(remarks), seconds=seconds))
    return merged


def _run(p: Pass[Module], program: Program, rank: int, remarks: Remarks) -> bool:
    try:
        return p.run(program.modules[rank], remarks)
    except InputError as error:
        if error.what.startswith("%"):  # a pass knows the instruction, and not the file
            raise InputError(f"{program.title(rank)}: {error.what}", error.remedy) from None
        raise
