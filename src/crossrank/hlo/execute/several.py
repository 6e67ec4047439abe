"""`run_program`: the modules of several ranks and what passes make of them, run side by side and compared."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from crossrank.arrays import load_arrays, save_arrays
from crossrank.errors import InputError
from crossrank.hlo.collectives import collectives
from crossrank.hlo.execute.inputs import ByRank, draw_inputs, take_inputs
from crossrank.hlo.execute.preflight import check_runnable
from crossrank.hlo.execute.request import REQUEST
from crossrank.hlo.execute.run import Progress, RunOptions, RunReport, in_child, keep_outputs, native_form
from crossrank.hlo.inventory import count_converted, count_native
from crossrank.hlo.io import ModuleFile
from crossrank.hlo.module import Module
from crossrank.hlo.program import Program, merged_results, run_passes_on_program
from crossrank.hlo.world import set_program_world
from crossrank.passes import Pass

WORKER = "crossrank.hlo.execute.several_child"


@dataclass(frozen=True)
class ProgramRequest:
    """What the parent asks of the child process. The folder holds ``original<rank>.pb`` and ``rewritten<rank>.pb``.

    Attributes:
        files: what messages call the modules, by rank.
        configs: their configurations, as header fields.
        backend: who computes converted collectives; see `backends.make_backend`.
        limit_s: seconds that a rank may wait for another.
        iters: how often both programs are timed; 0: not at all.
        exactly: outputs must be the same bit for bit; else within the tolerance.
        tolerance: relative to the largest value of an output; None: by the types.
        changed: types of the values that the passes changed.
        save_outputs: write ``outputs.npz``.
        absent_rank: a test hook: this rank never arrives.
    """

    files: tuple[str, ...]
    configs: tuple[dict[str, str], ...]
    backend: str = "kernels"
    limit_s: float = 60.0
    iters: int = 0
    exactly: bool = True
    tolerance: float | None = None
    changed: tuple[str, ...] = ()
    save_outputs: bool = False
    absent_rank: int | None = None

    def save(self, folder: Path) -> None:
        """Write it into the folder."""
        (folder / REQUEST).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @staticmethod
    def load(folder: Path) -> ProgramRequest:
        """Read it from the folder."""
        data = json.loads((folder / REQUEST).read_text(encoding="utf-8"))
        return ProgramRequest(**data | {"files": tuple(data["files"]), "configs": tuple(data["configs"])})


@dataclass
class ProgramReport(RunReport):
    """What came of the run of a program; each of its outputs says whose it is (``rank``)."""

    files: list[str] = field(default_factory=list)

    @property
    def warnings(self) -> list[str]:
        """What a reader should know although nothing differs."""
        lacking = "has no kernel" if self.via == "kernels" else f"is nothing that {self.via} serves"
        return super().warnings + [f"{name} {lacking}: it ran on the oracle" for name in self.result["on_oracle"]]

    def as_dict(self) -> dict[str, Any]:
        """JSON data: as of one module, and ``files``."""
        return super().as_dict() | {"files": self.files}


def run_program(
    files: Sequence[ModuleFile], passes: Sequence[Pass[Module]], options: RunOptions, progress: Progress | None = None
) -> ProgramReport:
    """Run ``files``, a module for each rank, as they are and as ``passes`` make them, and compare.

    Raises:
        InputError: the modules, the inputs or the options cannot be.
        RunError: the run failed: a limit, a kernel, a crash of XLA.
    """
    _check_options(options)
    set_program_world(files)
    for file in files:
        check_runnable(file, None)
    names = tuple(f.path for f in files)
    original = Program(tuple(native_form(f.module) for f in files), names)
    rewritten = Program(tuple(f.module.copy() for f in files), names)
    results = merged_results(rewritten, run_passes_on_program(rewritten, passes))
    reassociated = any(p.reassociates and r.changed for p, r in zip(passes, results, strict=True))
    found = [(i, info) for m in rewritten.modules for i, info in collectives(m)]
    changed = {leaf.dtype.name for i, info in found if info.converted for leaf in i.shape.leaves() if leaf.is_array}
    with tempfile.TemporaryDirectory(prefix="crossrank-") as name:
        folder = Path(name)
        for rank, (before, after) in enumerate(zip(original.modules, rewritten.modules, strict=True)):
            (folder / f"original{rank}.pb").write_bytes(before.serialize())
            (folder / f"rewritten{rank}.pb").write_bytes(after.serialize())
        save_arrays(folder / "inputs.npz", _inputs(original, options))
        ProgramRequest(
            files=names,
            configs=tuple(m.config.fields for m in original.modules),
            backend=options.backend,
            limit_s=options.limit_s,
            iters=options.iters,
            exactly=not reassociated and options.tolerance is None,
            tolerance=options.tolerance,
            changed=tuple(sorted(changed)),
            save_outputs=options.outputs is not None,
            absent_rank=options.absent_rank,
        ).save(folder)
        result = in_child(folder, len(files), options, progress or (lambda _event: None), WORKER)
        if options.outputs is not None:
            keep_outputs(folder / "outputs.npz", options.outputs)
    return ProgramReport(
        file=" ".join(dict.fromkeys(f.path for f in files)),
        ranks=len(files),
        via=result["via"],
        seed=None if options.inputs else options.seed,
        passes=results,
        before=_total([count_native(m) for m in original.modules]),
        after=_total([count_native(m) for m in rewritten.modules]),
        custom_calls=_total([count_converted(m) for m in rewritten.modules]),
        raised_for_original=sum(sum(count_converted(f.module).values()) for f in files),
        result=result,
        files=[f.path for f in files],
    )


def _check_options(options: RunOptions) -> None:
    if options.ranks is not None:
        raise InputError("several files are a rank each, and --ranks says how many ranks one file has", "leave it away")
    if options.verify_each:
        raise InputError("--verify-each takes one file", "run without it: all values are compared at the end")


def _inputs(program: Program, options: RunOptions) -> dict[str, Any]:
    """The arrays ``r<rank>.p<number>``, and ``r<rank>.o<number>`` where they are given."""
    arrays: dict[str, Any] = {}
    loaded = load_arrays(options.inputs) if options.inputs else {}
    for key in loaded:
        whose = re.fullmatch(r"r(\d+)\.[po]\d+", key)
        if whose is None or int(whose[1]) >= len(program.modules):
            raise InputError(f"{options.inputs} has {key}, which is no rank's", _KEYS)
    for rank, module in enumerate(program.modules):
        given: list[ByRank]
        golden: dict[int, ByRank] = {}
        if options.inputs:
            own = {k.partition(".")[2]: v for k, v in loaded.items() if k.startswith(f"r{rank}.")}
            for n, p in enumerate(module.entry.parameters):
                if f"p{n}" not in own:
                    raise InputError(f"{options.inputs} has no r{rank}.p{n}, a {p.shape}", _KEYS)
            given, golden = take_inputs(module, own, f"{options.inputs}, rank {rank}", 1)
        else:
            given = [by_rank[rank : rank + 1] for by_rank in draw_inputs(module, options.seed)]
        arrays |= {f"r{rank}.p{n}": by_rank[0] for n, by_rank in enumerate(given)}
        arrays |= {f"r{rank}.o{n}": by_rank[0] for n, by_rank in golden.items()}
    return arrays


_KEYS = "the keys are r0.p0, r0.p1, …, r1.p0, …: the parameters of each rank's module"


def _total(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    return {key: sum(c.get(key, 0) for c in counts) for key in sorted({k for c in counts for k in c})}
