"""`run_module`: a module and its rewrite, run side by side on N ranks and compared value by value."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from crossrank.arrays import load_arrays, save_arrays
from crossrank.compare import odd_values
from crossrank.errors import InputError, RunError
from crossrank.hlo.collectives import collectives
from crossrank.hlo.execute.inputs import ByRank, draw_inputs, read_inputs
from crossrank.hlo.execute.preflight import check_runnable
from crossrank.hlo.execute.request import ORIGINAL, RESULT, Request, Variant
from crossrank.hlo.inventory import count_converted, count_native
from crossrank.hlo.io import ModuleFile
from crossrank.hlo.module import Instruction, Module
from crossrank.hlo.passes.raise_custom_call_collectives import RaiseCustomCallCollectives
from crossrank.passes import Pass, PassResult, run_passes
from crossrank.remarks import Remarks

FORGIVEN = 1e-2
"""How far off given outputs may be, if the untouched original is as far off: another CPU, not another program."""

Progress = Callable[[dict[str, Any]], None]

RETAINED_PAGES = (
    "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=68719476736:"
    "glibc.malloc.arena_max=1:glibc.malloc.hugetlb=1"
)
"""Memory stays with the process: fresh pages would cost more than the collectives do."""


@dataclass(frozen=True)
class RunOptions:
    """How to run.

    Attributes:
        ranks: for a file that does not say; must agree with one that does.
        backend: who computes converted collectives: ``kernels``, ``oracle`` or a plug-in; see `backends.make_backend`.
        inputs: an ``.npz`` with parameters (and outputs to compare with), or None to draw them.
        seed: for drawn inputs.
        iters: timed runs of each module; 0: none.
        limit_s: seconds that a rank may wait for another.
        tolerance: compare with this tolerance, relative to an output's largest value, instead of bit for bit.
        outputs: an ``.npz`` to save the rewritten module's outputs in.
        retain_pages: keep freed memory in the process (both modules gain).
        verify_each: compare after every pass, and every collective with the oracle.
        absent_rank: a test hook: this rank never arrives.
    """

    ranks: int | None = None
    backend: str = "kernels"
    inputs: str | None = None
    seed: int = 0
    iters: int = 5
    limit_s: float = 60.0
    tolerance: float | None = None
    outputs: str | None = None
    retain_pages: bool = True
    verify_each: bool = False
    absent_rank: int | None = None


@dataclass(frozen=True)
class Stage:
    """The module as one pass left it, compared with the original.

    Attributes:
        spec: the pass, with its options.
        exact: every bit of every output is the same.
        equal: exact, or within the tolerance where this pass or an earlier one reassociates.
        first_difference: output, rank, element and both values; None where there is none.
        error: why XLA does not take the module, or the empty string.
    """

    spec: str
    exact: bool
    equal: bool
    first_difference: dict[str, Any] | None
    error: str = ""

    @staticmethod
    def of(report: RunReport) -> Stage:
        """What became of the last pass that changed something."""
        spec = next((p.spec for p in reversed(report.passes) if p.changed), "")
        result = report.result
        if "error" in result:
            return Stage(spec, False, False, None, result["error"])
        return Stage(spec, result["exact"], result["equal"], result["first_difference"])


@dataclass
class RunReport:
    """What came of a run; `as_dict` is its JSON. ``via`` is what the backend calls itself."""

    file: str
    ranks: int
    via: str
    seed: int | None
    passes: list[PassResult]
    before: dict[str, int]
    after: dict[str, int]
    custom_calls: dict[str, int]
    raised_for_original: int
    result: dict[str, Any] = field(repr=False)
    stages: list[Stage] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Whether all outputs are what they should be.

        Given outputs count too, unless the untouched original misses them just as far on this machine (XLA's matrix
        products are not the same on every CPU): that is none of the rewrite's doing, and a warning.
        """
        golden = self.result["golden"]
        checks = self.result.get("collective_checks")
        if any(not s.equal for s in self.stages) or (checks and checks["different"]):
            return False
        return bool(self.result["equal"] and (golden is None or golden["equal"] or self._original_as_far_off()))

    def _original_as_far_off(self) -> bool:
        golden = self.result["golden"]
        mine, theirs = golden["max_rel_err"], golden["original"]["max_rel_err"]
        return not golden["original"]["equal"] and mine <= min(1.5 * theirs, FORGIVEN)

    @property
    def warnings(self) -> list[str]:
        """What a reader should know although nothing differs."""
        found = odd_values(self.result["outputs"])
        golden = self.result["golden"]
        if golden is not None and not golden["equal"] and self._original_as_far_off():
            found.append(
                f"the given outputs are up to {golden['max_rel_err']:.1e} off, and so is the untouched original "
                "on this machine"
            )
        found += [f"{name}: {reason}; it ran as a native collective" for name, reason in self.result["raised"]]
        return found

    @property
    def culprit(self) -> str | None:
        """Under ``verify_each`` the first pass, or else the first collective, that changes values; None: neither."""
        for stage in self.stages:
            if not stage.equal:
                return stage.spec
        checks = self.result.get("collective_checks")
        return checks["different"][0]["collective"] if checks and checks["different"] else None

    def as_dict(self) -> dict[str, Any]:
        """JSON data with stable keys; ``verify_each`` only where it was asked for."""
        verified = {
            "passes": [asdict(s) for s in self.stages],
            "collectives": self.result.get("collective_checks"),
            "first": self.culprit,
        }
        return {
            "file": self.file,
            "ranks": self.ranks,
            "via": self.via,
            "seed": self.seed,
            "passes": [p.spec for p in self.passes],
            "equal": self.equal,
            "exact": self.result["exact"],
            "reference": self.result["reference"],
            "outputs": self.result["outputs"],
            "collectives": {"before": self.before, "after": self.after},
            "custom_calls": self.custom_calls,
            "raised_for_original": self.raised_for_original,
            "first_difference": self.result["first_difference"],
            "untouched": self.result["untouched"],
            "golden": self.result["golden"],
            "time_ms": self.result["time_ms"],
            "speedup": self.result["speedup"],
            "warnings": self.warnings,
            "remarks": [r.as_dict() for p in self.passes for r in p.remarks],
        } | ({"verify_each": verified} if self.stages else {})


def run_module(
    file: ModuleFile, passes: Sequence[Pass[Module]], options: RunOptions, progress: Progress | None = None
) -> RunReport:
    """Run ``file`` as it is and as ``passes`` make it, and compare.

    With ``verify_each`` the module is also run as each pass left it, and each collective of the final one is compared
    with the oracle, operands and results.

    Raises:
        InputError: the module, the inputs or the options cannot be.
        RunError: the run failed: a limit, a kernel, a crash of XLA.
    """
    check_runnable(file, options.ranks)
    if not options.verify_each:
        return _run(file, [_rewrite(file.module, passes)], options, progress)[-1]
    stages = _stages(file.module, passes)
    *before, report = _run(file, stages, options, progress)
    report.stages = [Stage.of(one) for one in (*before, report)]
    return report


def run_variants(
    file: ModuleFile,
    variants: Sequence[Sequence[Pass[Module]]],
    options: RunOptions,
    progress: Progress | None = None,
) -> list[RunReport]:
    """Run ``file`` once as it is, and then as each of several lists of passes makes it; each compared with the first.

    Times are taken of the last variant, and it is whose outputs are saved.

    Raises:
        InputError: the module, the inputs or the options cannot be, or XLA does not take the last variant; of another
            one the report's ``result`` holds only the ``error``.
        RunError: the run failed: a limit, a kernel, a crash of XLA.
    """
    check_runnable(file, options.ranks)
    return _run(file, [_rewrite(file.module, passes) for passes in variants], options, progress)


def _run(
    file: ModuleFile, rewrites: Sequence[_Rewrite], options: RunOptions, progress: Progress | None
) -> list[RunReport]:
    original = native_form(file.module)
    with tempfile.TemporaryDirectory(prefix="crossrank-") as name:
        folder = Path(name)
        (folder / ORIGINAL).write_bytes(original.serialize())
        variants = [r.save(folder, n, len(rewrites), original) for n, r in enumerate(rewrites)]
        try:
            if options.inputs:
                given, golden = read_inputs(original, options.inputs)
            else:
                given, golden = draw_inputs(original, options.seed), {}
        except MemoryError:
            size = sum(p.shape.nbytes for p in original.entry.parameters) * original.world
            raise InputError(f"{file.path}: its arguments take {size >> 30} GiB on {original.world} ranks") from None
        _save_inputs(folder / "inputs.npz", given, golden)
        Request(
            ranks=original.world,
            variants=tuple(variants),
            config=original.config.fields,
            backend=options.backend,
            limit_s=options.limit_s,
            iters=options.iters,
            tolerance=options.tolerance,
            check_collectives=options.verify_each,
            save_outputs=options.outputs is not None,
            absent_rank=options.absent_rank,
        ).save(folder)
        try:
            result = in_child(folder, original.world, options, progress or (lambda _event: None))
        except InputError as error:
            if error.what.startswith("XLA"):  # it speaks of the module, and does not know the file
                raise InputError(f"{file.path}: {error.what}", error.remedy) from None
            raise
        if options.outputs is not None:
            keep_outputs(folder / "outputs.npz", options.outputs)
    before, raised = count_native(original), sum(count_converted(file.module).values())
    return [
        RunReport(
            file=file.path,
            ranks=original.world,
            via=result["via"],
            seed=None if options.inputs else options.seed,
            passes=one.results,
            before=before,
            after=count_native(one.module),
            custom_calls=count_converted(one.module),
            raised_for_original=raised,
            result=outcome,
        )
        for one, outcome in zip(rewrites, result["variants"], strict=True)
    ]


@dataclass
class _Rewrite:
    """A module as passes made it."""

    module: Module
    results: list[PassResult]
    reassociated: bool

    def save(self, folder: Path, number: int, count: int, original: Module) -> Variant:
        """Write it for the child; returns what that must know of it."""
        found = list(collectives(self.module))
        native = {i.origin for i, info in found if not info.converted}
        before = [i for i, _ in collectives(original)]
        known, left = {i.name for i in before}, {i.name for i, _ in found}
        standing = {i.origin for i in self.module.instructions() if i.opcode not in ("copy", "tuple")}
        gone, new = _seam(original, self.module)
        touched = [i for i, info in found if info.converted or i.name not in known]
        touched += (i for i in before if i.name not in left)  # a sum that was rounded to bf16 may be one of f32 now
        variant = Variant(
            file=f"variant{number}.pb",
            config=self.module.config.fields,
            what=self._what(count),
            exactly=not self.reassociated,
            changed=tuple(sorted({leaf.dtype.name for i in touched for leaf in i.shape.leaves() if leaf.is_array})),
            pinned=tuple(i.id for i in before if i.origin not in native),
            removed=tuple(i.id for i in before if i.origin not in standing),
            gone=gone,
            new=new,
            keeps_native=bool(native),
        )
        (folder / variant.file).write_bytes(self.module.serialize())
        return variant

    def _what(self, count: int) -> str:
        if count == 1:
            return "the rewritten module"
        return f"the module after {self.results[-1].name}" if self.results else "the module without passes"


def _seam(original: Module, rewritten: Module) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Where what passes changed meets what they left: ids of values on either side that something unchanged takes."""
    opcodes = {i.origin: i.opcode for i in original.instructions()}
    kept = {i.origin for i in rewritten.instructions() if opcodes.get(i.origin) == i.opcode}

    def side(module: Module, changed: Callable[[Instruction], bool]) -> tuple[int, ...]:
        return tuple(
            i.id
            for i in module.instructions()
            if i.shape.is_array and changed(i) and any(not changed(u) for u in i.users)
        )

    return (
        side(original, lambda i: i.origin not in kept),
        side(rewritten, lambda i: opcodes.get(i.origin) != i.opcode),
    )


def _rewrite(module: Module, passes: Sequence[Pass[Module]]) -> _Rewrite:
    rewritten = module.copy()
    results = run_passes(rewritten, passes)
    reassociated = any(p.reassociates and r.changed for p, r in zip(passes, results, strict=True))
    return _Rewrite(rewritten, results, reassociated)


def _stages(module: Module, passes: Sequence[Pass[Module]]) -> list[_Rewrite]:
    """The module after each pass that changes it, and as all leave it."""
    rewritten = module.copy()
    stages: list[_Rewrite] = []
    results: list[PassResult] = []
    reassociated = False
    for p in passes:
        results += run_passes(rewritten, [p])
        if results[-1].changed:
            reassociated |= p.reassociates
            stages.append(_Rewrite(rewritten.copy(), list(results), reassociated))
    return [*stages[:-1], _Rewrite(rewritten, results, reassociated)]


def native_form(module: Module) -> Module:
    """The module with custom-calls of the contract raised: the original of a file that is converted already."""
    original = module.copy()
    RaiseCustomCallCollectives().run(original, Remarks("raise"))
    return original


def _save_inputs(path: Path, given: list[ByRank], golden: dict[int, ByRank]) -> None:
    arrays = {f"p{n}": np.stack(by_rank) for n, by_rank in enumerate(given)}
    arrays |= {f"o{n}": np.stack(by_rank) for n, by_rank in golden.items()}
    save_arrays(path, arrays)


def keep_outputs(produced: Path, wanted: str) -> None:
    """Copy the outputs that a run has saved to where they are wanted."""
    save_arrays(wanted, load_arrays(str(produced)))


def _environment(ranks: int, options: RunOptions) -> dict[str, str]:
    env = dict(os.environ)
    # XLA's own limits, one after the other, come after ours, so that ours can say who did not arrive
    warn, stop = int(options.limit_s) + 2, 3
    flags = (
        f"--xla_force_host_platform_device_count={ranks}",
        f"--xla_cpu_collective_call_warn_stuck_timeout_seconds={warn}",
        f"--xla_cpu_collective_call_terminate_timeout_seconds={stop}",
    )
    env["XLA_FLAGS"] = " ".join((env.get("XLA_FLAGS", ""), *flags)).strip()
    env["JAX_PLATFORMS"] = "cpu"
    env.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if options.retain_pages:
        env["GLIBC_TUNABLES"] = ":".join(filter(None, (env.get("GLIBC_TUNABLES"), RETAINED_PAGES)))
    return env


def in_child(
    folder: Path, ranks: int, options: RunOptions, progress: Progress, worker: str = "crossrank.hlo.execute.child"
) -> dict[str, Any]:
    """Let a process of its own work off the request in ``folder``.

    Args:
        folder: holds the request.
        ranks: how many devices it needs.
        options: limits.
        progress: called with each step that it tells.
        worker: the module that it runs.

    Raises:
        InputError: what the request asks for cannot be.
        RunError: the run failed.
    """
    log = folder / "stderr.txt"
    with log.open("wb") as stderr:
        child = subprocess.Popen(
            [sys.executable, "-m", worker, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=_environment(ranks, options),
        )
        try:
            assert child.stdout is not None
            for line in child.stdout:
                if line.startswith(b"{"):
                    progress(json.loads(line))
            status = child.wait()
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()
    if not (folder / RESULT).exists():
        raise RunError(_last_words(status, log))
    result: dict[str, Any] = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    if "error" in result:
        if result["status"] == 2:
            raise InputError(result["error"], result["remedy"])
        raise RunError(result["error"])
    return result


def _last_words(status: int, log: Path) -> str:
    """Why the child ended without a result."""
    text = log.read_text(encoding="utf-8", errors="replace")
    stuck = re.search(r"Termination timeout for `([a-z -]+?) Rendezvous", text, re.I)
    if stuck:
        came = re.search(r"Expected (\d+) threads to join the rendezvous, but only (\d+)", text)
        who = f": {came[2]} of {came[1]} ranks came" if came else ""
        return f"ranks waited for one another in a native {stuck[1]} until XLA gave up{who}"
    lines = text.strip().splitlines()
    fatal = [line for line in lines if line.startswith("F") or "Check failed" in line]
    ending = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
    said = (fatal or [line for line in lines if line.strip()] or ["it said nothing"])[-1]
    return f"the process that runs the modules ended by {ending}: {said[:300]}"
