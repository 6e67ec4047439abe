"""Which of a file's programs costs least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crossrank.doors import Source
from crossrank.errors import InputError
from crossrank.passes import Pass, pipeline, run_passes
from crossrank.program.analysis.launches import too_wide
from crossrank.program.analysis.world import unfit
from crossrank.program.codegen.build import sources_of
from crossrank.program.compiled import PIPELINE, fitted
from crossrank.program.cost.estimate import CostReport, cost_of
from crossrank.program.execute.options import RuntimeOptions
from crossrank.program.execute.run import Callees
from crossrank.program.files import AUTO, Arguments, ProgramFile, given_arguments, read_program_file, read_program_files
from crossrank.program.program import Program, where

MACHINE = RuntimeOptions()
"""On which a program runs that the commands run."""


@dataclass(frozen=True)
class Rail:
    """One of a file's programs.

    Attributes:
        name: as the file has it; empty for the only one.
        file: the program as it is written; None where it could not be made.
        lowered: the program as it is compiled; None where it cannot be.
        cost: what a run of it costs; None likewise.
        error: why it cannot be compiled.
    """

    name: str
    file: ProgramFile | None
    lowered: Program | None = None
    cost: CostReport | None = None
    error: InputError | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON data with stable keys."""
        cost = None if self.cost is None else self.cost.as_dict()
        return {"rail": self.name, "cost": cost, "reason": None if self.error is None else str(self.error)}


def rails_of(
    source: Source,
    ranks: int | None,
    passes: Sequence[Pass[Program]] | None = None,
    *,
    seed: int = 0,
    inputs: str | None = None,
) -> list[Rail]:
    """All programs of a file, with what each costs.

    Args:
        source: what was read.
        ranks: on how many devices they are to run.
        passes: in place of the pipeline ``program``.
        seed: of the file's ``inputs``, which tell symbolic extents.
        inputs: an ``.npz`` of arguments in their place.

    Raises:
        InputError: the file's own code raised something, or defines no programs.
    """
    found = read_program_files(source, ranks)
    given: Arguments | None = None
    rails = []
    for name, file in found.items():
        if isinstance(file, InputError):
            rails.append(Rail(name, None, error=file))
            continue
        if given is None:  # the same for all of them
            given = given_arguments(file, seed, inputs)
        rails.append(rail_of(file, passes, given))
    return rails


def rail_of(
    file: ProgramFile, passes: Sequence[Pass[Program]] | None = None, arguments: Arguments | None = None
) -> Rail:
    """One program, lowered as far as it can be without a compiler, with its cost; or why it cannot be.

    Its arguments are those that the file gives, unless others are.
    """
    lowered = file.program.clone()
    try:
        run_passes(lowered, fitted(pipeline(PIPELINE) if passes is None else passes, MACHINE))
        Callees(lowered, sources_of(lowered))  # HOST and CHIP bodies, which nobody runs here
        for lapse in unfit(file.program, file.ranks):
            raise InputError(f"{where(lapse.op)}{lapse.what}", lapse.remedy)
        for call, what in too_wide(lowered, MACHINE.aiv_cores, MACHINE.aic_cores):
            raise InputError(f"{where(call)}{what}", "ask for fewer blocks: core_num=…")
        given = given_arguments(file, 0) if arguments is None else arguments
        return Rail(file.rail, file, lowered, cost_of(lowered, file.ranks, given))
    except InputError as error:
        return Rail(file.rail, file, error=error)


def read_rail(
    source: Source,
    ranks: int | None,
    rail: str | None,
    passes: Sequence[Pass[Program]] | None = None,
    *,
    seed: int = 0,
    inputs: str | None = None,
) -> tuple[ProgramFile, list[Rail]]:
    """A program of a file, and where it is the cheapest of several all of them: of the rail ``auto``.

    Args:
        source: what was read.
        ranks: on how many devices it is to run.
        rail: which; None for the only one.
        passes: in place of the pipeline ``program``.
        seed: of the file's ``inputs``, which tell symbolic extents.
        inputs: an ``.npz`` of arguments in their place.

    Raises:
        InputError: there is no such program; or it, or all of several, cannot be.
    """
    if rail != AUTO:
        return read_program_file(source, ranks, rail), []
    rails = rails_of(source, ranks, passes, seed=seed, inputs=inputs)
    file = picked(rails).file
    assert file is not None
    return file, rails if file.rail else []


def picked(rails: Sequence[Rail]) -> Rail:
    """The rail that costs least; of equal ones the first. One that the file itself calls ``auto`` goes before.

    Raises:
        InputError: none of them can be compiled.
    """
    for rail in rails:
        if rail.name == AUTO and rail.file is not None:
            return rail
    priced = [(rail.cost.milliseconds, n) for n, rail in enumerate(rails) if rail.cost is not None]
    if not priced:
        first = rails[0].error
        assert first is not None
        which = f"none of {', '.join(rail.name for rail in rails)} can be compiled: " if len(rails) > 1 else ""
        raise InputError(f"{which}{first.what}", first.remedy)
    return rails[min(priced)[1]]
