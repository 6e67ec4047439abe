"""The process in which a program of several modules runs: each compiled by itself, for a device of its own.

Started by `crossrank.hlo.execute.several`, as `child` is by `run`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from crossrank.hlo.execute.child import main, say, time_sides  # first: it sets JAX up

# isort: split
import jax

from crossrank.arrays import Array, load_arrays, save_arrays
from crossrank.compare import Tolerance, compare_outputs, summary
from crossrank.errors import RunError
from crossrank.hlo.config import ModuleConfig
from crossrank.hlo.execute.backends import KernelBackend, OracleBackend, make_backend, prepare
from crossrank.hlo.execute.several import ProgramRequest
from crossrank.hlo.execute.xla_cpu import Executable, fetch, prepare_library_calls
from crossrank.hlo.ffi.call import Backend, Call
from crossrank.hlo.ffi.native import Native
from crossrank.hlo.ffi.program_form import ProgramForm, program_form
from crossrank.hlo.module import Module
from crossrank.hlo.program import Program

Outputs = list[list[Array]]
"""Of each rank, by index."""


class ProgramSession:
    """One request, worked off step by step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.request = ProgramRequest.load(folder)
        self.native = Native.load()
        self.native.set_limit(self.request.limit_s)
        self.native.set_option("flush_subnormals", 1)
        self.oracle = OracleBackend(self.native)
        self.backend: Backend = make_backend(self.request.backend, self.native)
        self.runs = 0
        self.arguments: list[list[Any]] = []

    def run(self) -> dict[str, Any]:
        """Do all of it; returns the result as JSON data."""
        request = self.request
        ranks = range(len(request.files))
        # first, for the rewritten program is the one that may wait for ever by a fault of ours
        rewritten, form = self._compile("rewritten", self.backend)
        original, _ = self._compile("original", self.oracle)
        given = load_arrays(str(self.folder / "inputs.npz"))
        for rank in ranks:
            own = [given[f"r{rank}.p{n}"] for n in range(sum(k.startswith(f"r{rank}.p") for k in given))]
            self.arguments.append([jax.device_put(a, jax.devices()[rank]) for a in own])
        say(stage="runs both programs")
        if request.absent_rank is not None:
            self.native.absent(request.absent_rank)
        actual = self._run(rewritten)
        self.native.absent(None)
        expected = self._run(original)
        tolerance = Tolerance(request.tolerance, request.changed)
        compared = _by_rank(expected, actual, None if request.exactly else tolerance)
        if request.save_outputs:
            outputs = {f"r{rank}.o{n}": a for rank in ranks for n, a in enumerate(actual[rank])}
            save_arrays(self.folder / "outputs.npz", outputs)
        sides = {
            "original": lambda: self._timed(original)[0],
            "rewritten": lambda: self._timed(rewritten)[0],
        }
        return compared | {
            "via": self.backend.name,
            "reference": "original",
            "untouched": summary(compared),
            "golden": self._golden(given, actual, expected, tolerance),
            "raised": [],
            "on_oracle": form.on_oracle,
            "calls": form.calls,
            **time_sides(sides, request.iters),
        }

    def _compile(self, which: str, backend: Backend) -> tuple[list[Executable], ProgramForm]:
        request = self.request
        modules = []
        for rank, config in enumerate(request.configs):
            modules.append(Module((self.folder / f"{which}{rank}.pb").read_bytes(), ModuleConfig(config)))
            prepare_library_calls(modules[-1])
        program = Program(tuple(modules), request.files)
        form = program_form(program, backend, self.oracle, self.native, self._prepare)
        executables = []
        for rank, data in enumerate(form.data):
            say(stage=f"XLA compiles the {which} modules", done=rank, total=len(form.data))
            executables.append(Executable(data, 1, f"the {which} module of {program.title(rank)}", first=rank))
        return executables, form

    def _prepare(self, calls: Sequence[Call]) -> None:
        if isinstance(self.backend, KernelBackend):
            prepare(calls, lambda done, total: say(stage="compiles kernels", done=done, total=total))

    def _run(self, executables: Sequence[Executable]) -> Outputs:
        return self._timed(executables)[1]

    def _timed(self, executables: Sequence[Executable]) -> tuple[float, Outputs]:
        """Run all modules at once; returns seconds, and what they gave."""
        # what one run of the program is, XLA cannot know: to it these are runs of several programs
        self.runs += 1
        self.native.set_option("run", self.runs)
        start = time.perf_counter()
        with ThreadPoolExecutor(len(executables)) as threads:
            running = [threads.submit(e.run, a) for e, a in zip(executables, self.arguments, strict=True)]
        seconds = time.perf_counter() - start
        try:
            return seconds, [[by_rank[0] for by_rank in fetch(r.result()[1])] for r in running]
        except jax.errors.JaxRuntimeError as error:
            raise RunError(self.native.failure() or str(error).splitlines()[0]) from None

    def _golden(
        self, given: dict[str, Array], actual: Outputs, original: Outputs, within: Tolerance
    ) -> dict[str, Any] | None:
        """The rewritten program against given outputs; and the original too."""
        wanted = [
            (rank, n) for rank in range(len(actual)) for n in range(len(actual[rank])) if f"r{rank}.o{n}" in given
        ]
        if not wanted:
            return None

        def against(outputs: Outputs) -> dict[str, Any]:
            expected: Outputs = [[given[f"r{r}.o{n}"] for r, n in wanted if r == rank] for rank in range(len(outputs))]
            chosen: Outputs = [[outputs[r][n] for r, n in wanted if r == rank] for rank in range(len(outputs))]
            found = _by_rank(expected, chosen, within)
            errors = [o["max_rel_err"] for o in found["outputs"]]
            return {"equal": found["equal"], "max_rel_err": max(errors), "first_difference": found["first_difference"]}

        mine, untouched = against(actual), against(original)
        del untouched["first_difference"]
        return mine | {"original": untouched, "outputs": len(wanted)}


def _by_rank(expected: Outputs, actual: Outputs, within: Tolerance | None) -> dict[str, Any]:
    """The comparison of all ranks; outputs and the first difference say whose they are."""
    found = [compare_outputs([[a] for a in x], [[a] for a in y], within) for x, y in zip(expected, actual, strict=True)]
    for rank, one in enumerate(found):
        one["outputs"] = [{"rank": rank} | o for o in one["outputs"]]
        if one["first_difference"]:
            one["first_difference"]["rank"] = rank
    return {
        "equal": all(f["equal"] for f in found),
        "exact": all(f["exact"] for f in found),
        "outputs": [o for f in found for o in f["outputs"]],
        "first_difference": next((f["first_difference"] for f in found if f["first_difference"]), None),
    }


if __name__ == "__main__":
    main(ProgramSession)
