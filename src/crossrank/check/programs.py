"""What is wrong with a program, found without running it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from crossrank.doors import Source
from crossrank.errors import InputError
from crossrank.findings import Finding
from crossrank.passes import pipeline, run_passes
from crossrank.program.analysis.discipline import lapses
from crossrank.program.analysis.launches import too_wide
from crossrank.program.analysis.world import unfit
from crossrank.program.codegen.build import sources_of
from crossrank.program.compiled import PIPELINE, fitted
from crossrank.program.execute.options import RuntimeOptions
from crossrank.program.execute.run import Callees
from crossrank.program.files import AUTO, read_program_file, read_program_files
from crossrank.program.language.parse.faults import collecting
from crossrank.program.program import Program, place

_PLACED = re.compile(r"(?P<where>\S+:\d+:\d+): (?P<what>.*)", re.S)


def check_program(source: Source, ranks: int | None, rail: str | None = None) -> list[Finding]:
    """What the parser, the verifiers, the passes and the generation of code find in a program, for so many ranks.

    The parser goes on behind a fault; a pass does not. With the rail ``auto`` all programs of the file are checked.

    Raises:
        InputError: the file defines no program, or its own Python fails.
    """
    if rail == AUTO and (several := _rails(source, ranks)):
        return _checked_rails(source, ranks, several)
    with collecting() as faults:
        try:
            file = read_program_file(source, ranks, rail)
        except InputError as error:
            if not faults and not _PLACED.match(error.what):
                raise
            return [_finding("program", fault) for fault in faults or [error]]
    return [*_of_author(file.program, file.ranks), *_of_passes(file.program.clone())]


def _rails(source: Source, ranks: int | None) -> list[str]:
    """The names of a file's programs; none, where it has one, or they cannot be told."""
    try:
        names = list(read_program_files(source, ranks))
    except InputError:
        return []
    return [] if AUTO in names else [name for name in names if name]


def _checked_rails(source: Source, ranks: int | None, rails: list[str]) -> list[Finding]:
    """What is found on any rail; what is not found on all of them says on which."""
    found: dict[Finding, list[str]] = {}
    for rail in rails:
        try:
            findings = check_program(source, ranks, rail)
        except InputError as error:  # of the Python that makes it
            findings = [_finding("program", error)]
        for finding in findings:
            found.setdefault(finding, []).append(rail)
    return [
        finding if on == rails else replace(finding, message=f"{finding.message} (rail {', '.join(on)})")
        for finding, on in found.items()
    ]


def _of_author(program: Program, ranks: int) -> Iterator[Finding]:
    try:
        for lapse in lapses(program):
            at = place(lapse.op)
            yield Finding("discipline", at, lapse.what, lapse.remedy, where=at, severity="warning")
        for lapse in unfit(program, ranks):
            yield Finding("execute", place(lapse.op), lapse.what, lapse.remedy, where=place(lapse.op))
    except InputError:  # a call of nothing, which a pass tells
        return


def _of_passes(program: Program) -> Iterator[Finding]:
    machine = RuntimeOptions()
    for p in fitted(pipeline(PIPELINE), machine):
        try:
            run_passes(program, [p])
        except InputError as error:
            yield _finding(p.name, error)
            return
    try:
        kernels = sources_of(program)
    except InputError as error:
        yield _finding("codegen", error)
        return
    try:
        Callees(program, kernels)  # HOST and CHIP bodies, which nobody runs here
    except InputError as error:
        yield _finding("execute", error)
    for call, what in too_wide(program, machine.aiv_cores, machine.aic_cores):
        yield Finding("execute", place(call), what, "ask for fewer blocks: core_num=…", where=place(call))


def _finding(kind: str, error: InputError) -> Finding:
    placed = _PLACED.match(error.what)
    if placed is None:
        return Finding(kind, "", error.what, error.remedy)
    return Finding(kind, placed["where"], placed["what"], error.remedy, where=placed["where"])
