"""`run_program_file`: a program run on N ranks, again and again, and compared with what its author expects."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from crossrank.arrays import save_arrays
from crossrank.compare import Tolerance, compare_given, compare_outputs, is_infinite, is_nan, listed
from crossrank.doors import Source
from crossrank.passes import Pass, PassResult
from crossrank.program.compiled import CompiledProgram, compile
from crossrank.program.cost.estimate import CostReport, cost_of
from crossrank.program.cost.rails import Rail, read_rail
from crossrank.program.execute.options import RuntimeOptions
from crossrank.program.execute.record import Record
from crossrank.program.execute.report import ranks_named
from crossrank.program.files import AUTO, Arguments, ProgramFile, arguments_of, expected_of
from crossrank.program.inventory import measure
from crossrank.program.program import Program
from crossrank.statistics import counts

Progress = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class ProgramOptions:
    """How to run.

    Attributes:
        inputs: an ``.npz`` with arguments by name (and ``expected_NAME``); None: those of the file, or drawn ones.
        seed: for what is drawn.
        limit_s: seconds after which a run in which nothing is done is given up.
        tolerance: how far a value may be from the one expected, relative to the argument's largest; None: by its type.
        outputs: an ``.npz`` to save what was written in, by name.
        build: a folder for the generated sources; None: none is written.
        repeats: runs, all of which must give the same bits.
    """

    inputs: str | None = None
    seed: int = 0
    limit_s: float = 60.0
    tolerance: float | None = None
    outputs: str | None = None
    build: str | None = None
    repeats: int = 2


@dataclass(frozen=True)
class ProgramReport:
    """What came of the runs; `as_dict` is its JSON.

    Attributes:
        written: the names of the arguments that the program writes: its outputs, in order.
        result: the last run against the first, as `compare_outputs` says it.
        expected: against what is expected; None: nobody says.
        dispatches: of chip functions, by rank.
        tasks: launches of kernels, by rank.
        launched: launches by kernel.
        blocks: in how many blocks each kernel was launched.
        time_ms: the median of the runs.
        cost: what it was estimated to cost.
        rails: all programs of the file, where the cheapest was picked.
    """

    file: str
    program: str
    rail: str
    ranks: int
    seed: int | None
    passes: Sequence[PassResult]
    before: dict[str, int]
    after: dict[str, int]
    written: list[str]
    result: dict[str, Any] = field(repr=False)
    expected: dict[str, Any] | None
    repeats: int
    dispatches: dict[int, int]
    tasks: dict[int, int]
    launched: dict[str, int]
    blocks: dict[str, list[int]]
    time_ms: float
    cost: CostReport
    rails: Sequence[Rail] = ()
    warnings: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Whether all runs gave the same, and what is expected."""
        return bool(self.result["equal"] and (self.expected is None or self.expected["equal"]))

    def as_dict(self) -> dict[str, Any]:
        """JSON data with stable keys."""
        return {
            "file": self.file,
            "program": self.program,
            "rail": self.rail,
            "ranks": self.ranks,
            "seed": self.seed,
            "passes": [p.spec for p in self.passes],
            "equal": self.equal,
            "exact": self.result["exact"],
            "outputs": [{"name": n, **o} for n, o in zip(self.written, self.result["outputs"], strict=True)],
            "collectives": {"before": self.before, "after": self.after},
            "first_difference": self.result["first_difference"],
            "expected": self.expected,
            "repeats": self.repeats,
            "dispatches": {str(rank): n for rank, n in sorted(self.dispatches.items())},
            "tasks": {str(rank): n for rank, n in sorted(self.tasks.items())},
            "launched": self.launched,
            "blocks": self.blocks,
            "time_ms": self.time_ms,
            "cost": self.cost.as_dict(),
            "rails": [r.as_dict() for r in self.rails],
            "warnings": self.warnings,
            "remarks": [r.as_dict() for p in self.passes for r in p.remarks],
        }


def run_program_source(
    source: Source,
    ranks: int | None,
    rail: str | None,
    passes: Sequence[Pass[Program]],
    options: ProgramOptions,
    progress: Progress | None = None,
) -> ProgramReport:
    """Run a program of a file: the one of that rail, or with ``auto`` the one that costs least.

    Raises:
        InputError: there is no such program, or it cannot be, or its arguments cannot.
        RunError: a run failed.
    """
    if rail == AUTO and progress is not None:
        progress({"stage": "compares the rails"})
    file, rails = read_rail(source, ranks, rail, passes, seed=options.seed, inputs=options.inputs)
    return replace(run_program_file(file, passes, options, progress), rails=rails)


def run_program_file(
    file: ProgramFile, passes: Sequence[Pass[Program]], options: ProgramOptions, progress: Progress | None = None
) -> ProgramReport:
    """Compile a program, run it ``repeats`` times on the same arguments, and compare.

    Raises:
        InputError: a program, or arguments, that cannot be.
        RunError: a run failed: a hang, a kernel's fault, a limit.
    """
    say = progress or (lambda _event: None)
    say({"stage": "compiles"})
    compiled = compile(
        file.program,
        ranks=file.ranks,
        passes=passes,
        output_dir=options.build,
        options=RuntimeOptions(limit_s=options.limit_s),
        progress=lambda done, total: say({"stage": "compiles kernels", "done": done, "total": total}),
    )
    arguments = arguments_of(file, options.seed, options.inputs)
    expected = expected_of(file, arguments, options.inputs)
    written = [p.name for p in file.program.entry.params if p.direction.writes]
    runs, times = [], []
    for n in range(options.repeats):
        say({"stage": "runs", "done": n + 1, "total": options.repeats})
        found, elapsed = _run(compiled, arguments)
        runs.append([[found[name]] for name in written])
        times.append(elapsed)
    first, last = runs[0], next((r for r in runs[1:] if not _same(runs[0], r)), runs[-1])
    if options.outputs is not None:
        save_arrays(options.outputs, {name: column[0] for name, column in zip(written, last, strict=True)})
    within = Tolerance(options.tolerance)
    given = {written.index(name): [array] for name, array in (expected or {}).items()}
    record = compiled.record
    assert record is not None
    return ProgramReport(
        file=file.path,
        program=file.program.name,
        rail=file.rail,
        ranks=file.ranks,
        seed=None if options.inputs else options.seed,
        passes=compiled.passes,
        before=counts(measure(file.program)),
        after=counts(measure(compiled.program)),
        written=written,
        result=compare_outputs(first, last, None),
        expected=compare_given(given, last, within) if given else None,
        repeats=options.repeats,
        dispatches=dict(record.dispatches),
        tasks=dict(record.tasks),
        launched=dict(record.launched),
        blocks={name: list(blocks) for name, blocks in record.blocks.items()},
        time_ms=statistics.median(times),
        cost=cost_of(compiled.program, file.ranks, arguments),
        warnings=[*_idle(record, file.ranks), *_odd(written, last, expected)],
    )


def _run(compiled: CompiledProgram, arguments: Arguments) -> tuple[Arguments, float]:
    """All arguments as a run leaves them, and its milliseconds."""
    own = {name: array.copy() for name, array in arguments.items()}
    start = time.perf_counter()
    with redirect_stdout(sys.stderr):  # for what sub-workers print
        compiled(*(array if array.ndim else array.item() for array in own.values()))
    return own, 1e3 * (time.perf_counter() - start)


def _same(one: Sequence[Sequence[Any]], other: Sequence[Sequence[Any]]) -> bool:
    return bool(compare_outputs(one, other, None)["exact"])


def _idle(record: Record, ranks: int) -> list[str]:
    """Which ranks did nothing, although the others did."""
    unused = [r for r in range(ranks) if r not in record.dispatches]
    without = [r for r in record.dispatches if r not in record.tasks]
    found = []
    if unused and record.dispatches:
        found.append(f"{ranks_named(unused)}: nothing was dispatched to {'it' if len(unused) == 1 else 'them'}")
    if without and record.tasks:
        found.append(f"{ranks_named(without)}: what was dispatched there launched no kernel")
    return found


def _odd(written: Sequence[str], outputs: Sequence[Sequence[Any]], expected: Arguments | None) -> list[str]:
    """What a reader should know although all is equal."""
    found = []
    if not written:
        found.append("the host orchestrator writes none of its arguments: there is nothing to compare")
    missing = [name for name in written if name not in (expected or {})]
    if missing and expected is None:
        found.append("nobody says what is expected: define expected(ranks, inputs) in the file")
    elif missing:
        found.append(f"nobody says what is expected of {listed(missing)}")
    for name, (array,) in zip(written, outputs, strict=True):
        nan = is_nan(array)
        if nan.size and nan.all():
            found.append(f"{name}: every element is NaN, which proves nothing")
        elif nan.any():
            found.append(f"{name}: there is NaN")
        if is_infinite(array).any():
            found.append(f"{name}: infinity among the values")
        if array.size and not np.any(array) and name not in (expected or {}):
            found.append(f"{name}: every element is zero")
    return found
