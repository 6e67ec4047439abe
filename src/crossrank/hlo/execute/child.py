"""The process in which modules run: compiled by XLA for N devices, their collectives on a backend, values compared.

It is started by `crossrank.hlo.execute.run` with the right flags (the device count is fixed before JAX loads) and a
folder that holds the request; it writes one line of JSON for each step, and last the result. A crash or a hang of XLA
in here becomes a plain line there.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

from crossrank.arrays import save_arrays  # noqa: E402
from crossrank.collective.dtypes import PRED  # noqa: E402
from crossrank.collective.kinds import Kind, ReduceOp  # noqa: E402
from crossrank.compare import Tolerance, compare_given, compare_outputs, summary  # noqa: E402
from crossrank.errors import InputError, RunError  # noqa: E402
from crossrank.hlo.collectives import CollectiveInfo, collectives  # noqa: E402
from crossrank.hlo.config import ModuleConfig  # noqa: E402
from crossrank.hlo.execute.backends import KernelBackend, OracleBackend, make_backend, prepare  # noqa: E402
from crossrank.hlo.execute.collective_checks import CollectiveChecks  # noqa: E402
from crossrank.hlo.execute.inputs import ByRank, read_inputs  # noqa: E402
from crossrank.hlo.execute.request import ORIGINAL, RESULT, Request, Variant  # noqa: E402
from crossrank.hlo.execute.xla_cpu import Executable, fetch, place, prepare_library_calls  # noqa: E402
from crossrank.hlo.ffi.call import Backend, Call, call_of  # noqa: E402
from crossrank.hlo.ffi.form import Choose, Left, RunForm, run_form, unknown_reduction  # noqa: E402
from crossrank.hlo.ffi.native import Native  # noqa: E402
from crossrank.hlo.module import Instruction, Module  # noqa: E402

_ORACLE_KINDS = (Kind.COLLECTIVE_BROADCAST, Kind.RAGGED_ALL_TO_ALL, Kind.SEND, Kind.RECV)


def xla_lacks(call: Call) -> bool:
    """Whether XLA:CPU has no such collective (or crashes on it)."""
    c = call.collective
    if c.kind in _ORACLE_KINDS or c.reduce_op is ReduceOp.XOR:
        return True
    on_bits = c.reduce_op in (ReduceOp.AND, ReduceOp.OR)
    return on_bits and any(s.dtype is not PRED for s in call.operands)


@dataclass(frozen=True)
class Pinned:
    """What is pinned in the original.

    Attributes:
        collectives: origins of collectives; None: all.
        values: ids of other instructions.
        removed: origins of collectives that a rewrite took away; reductions among them in which every rank is alone are
            left out.
    """

    collectives: frozenset[int] | None = frozenset()
    values: frozenset[int] = frozenset()
    removed: frozenset[int] = frozenset()


NOTHING = Pinned()


class Session:
    """One request, worked off step by step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.request = Request.load(folder)
        self.native = Native.load()
        self.native.set_limit(self.request.limit_s)
        # as XLA has it for everything else in the module: then ours can be compared with its own bit for bit
        self.native.set_option("flush_subnormals", 1)
        self.oracle = OracleBackend(self.native)
        self.backend: Backend = make_backend(self.request.backend, self.native)
        configs = {ORIGINAL: self.request.config} | {v.file: v.config for v in self.request.variants}
        self.configs = {file: ModuleConfig(fields) for file, fields in configs.items()}
        self.placed: list[Any] = []
        self.golden: dict[int, ByRank] = {}
        self._references: dict[Pinned, list[ByRank]] = {}  # what the original gave, by what was pinned

    # -- forms ---------------------------------------------------------------------------------------------------------
    def _module(self, name: str) -> Module:
        return Module((self.folder / name).read_bytes(), self.configs[name])

    def _left(self, call: Call, left: Left) -> Left | Backend:
        return self.oracle if xla_lacks(call) else left

    def _untouched(self, _i: Instruction, _info: CollectiveInfo, call: Call) -> Left | Backend:
        return self._left(call, Left.NATIVE)

    def _rewritten(self, _i: Instruction, info: CollectiveInfo, call: Call) -> Left | Backend:
        if info.converted and self.backend.serves(call):
            return self.backend
        return self._left(call, Left.NATIVE)

    def _pinned(self, pinned: Pinned, on_oracle: frozenset[int] = frozenset()) -> Choose:
        """Pins what is to be pinned in the original."""
        wanted = pinned.collectives

        def choose(i: Instruction, info: CollectiveInfo, call: Call) -> Left | Backend:
            alone = all(len(group) == 1 for group in call.collective.groups)
            if info.kind.reduces and alone and i.origin in pinned.removed:
                return Left.OUT  # XLA:CPU's own makes +0 of -0, and the smallest value of NaN
            if i.origin in on_oracle:
                return self.oracle
            return self._left(call, Left.PINNED if wanted is None or i.origin in wanted else Left.NATIVE)

        return choose

    def _rewritten_pinned(self, i: Instruction, info: CollectiveInfo, call: Call) -> Left | Backend:
        choice = self._rewritten(i, info, call)
        return Left.PINNED if choice is Left.NATIVE else choice

    def _compile(
        self,
        name: str,
        what: str,
        choose: Choose,
        checks: CollectiveChecks | None = None,
        pinned_values: frozenset[int] = frozenset(),
    ) -> tuple[Executable, RunForm]:
        say(stage=f"XLA compiles {what}")
        module = self._module(name)
        form = run_form(module, choose, self.native, checks, pinned_values)
        try:
            return Executable(form.data, self.request.ranks, what), form
        except InputError as error:
            if "Unsupported reduction computation" not in error.what:
                raise
            odd = [
                f"%{i.name}" for i, info in collectives(self._module(name)) if info.kind.reduces and not info.reduce_op
            ]
            raise unknown_reduction(", ".join(odd[:4]) or what) from None

    # -- steps ---------------------------------------------------------------------------------------------------------
    def run(self) -> dict[str, Any]:
        """Do all of it; returns the result as JSON data."""
        request = self.request
        module = self._module(ORIGINAL)
        prepare_library_calls(module)
        self._prepare_kernels()
        original, _ = self._compile(ORIGINAL, "the original", self._untouched)
        arguments, self.golden = read_inputs(module, str(self.folder / "inputs.npz"))
        self.placed = [place(by_rank) for by_rank in arguments]
        results = []
        for n, variant in enumerate(request.variants):
            last = n + 1 == len(request.variants)
            try:
                results.append(self._compare_with(original, variant, last))
            except InputError as error:
                if last:
                    raise
                results.append({"error": error.what, "remedy": error.remedy})
        return {"via": self.backend.name, "variants": results}

    def _compare_with(self, original: Executable, variant: Variant, last: bool) -> dict[str, Any]:
        request = self.request
        rewritten, form = self._compile(variant.file, variant.what, self._rewritten)
        say(stage=f"runs the original and {variant.what}")
        if request.absent_rank is not None:
            self.native.absent(request.absent_rank)
        # first, for it can say who did not come where XLA's own collectives only abort
        actual = self._run(rewritten)
        self.native.absent(None)
        untouched = self._references.get(NOTHING) or self._run(original)
        self._references[NOTHING] = untouched
        tolerance = Tolerance(request.tolerance, tuple(variant.changed))
        within = None if variant.exactly and request.tolerance is None else tolerance
        compared = compare_outputs(untouched, actual, within)
        reference, result = self._closest(variant, actual, within, compared)
        result |= {
            "reference": reference,
            "untouched": summary(compared),
            "golden": _compare_golden(self.golden, actual, untouched, tolerance),
            "raised": form.raised,
            "calls": len(form.calls),
        }
        if last and request.check_collectives:
            result["collective_checks"] = self._check_collectives(variant)
        if last:
            sides = {"original": partial(self._seconds, original), "rewritten": partial(self._seconds, rewritten)}
            result |= time_sides(sides, request.iters)
            if request.save_outputs:
                outputs = {f"o{n}": np.stack(by_rank) for n, by_rank in enumerate(actual)}
                save_arrays(self.folder / "outputs.npz", outputs)
        return result

    def _check_collectives(self, variant: Variant) -> dict[str, Any]:
        checks = CollectiveChecks(self.native)
        exe, _ = self._compile(variant.file, f"{variant.what}, with checks", self._rewritten, checks)
        self._run(exe)
        return checks.as_dict()

    def _closest(
        self, variant: Variant, actual: list[ByRank], within: Tolerance | None, compared: dict[str, Any]
    ) -> tuple[str, dict[str, Any]]:
        """The reference that says most: XLA treats native collectives in ways of its own until they are pinned."""
        reference, result = "original", dict(compared)
        if not result["exact"] and variant.pinned:
            reference = "pinned original"
            pinned = Pinned(frozenset(variant.pinned), removed=frozenset(variant.removed))
            result = compare_outputs(self._run_pinned(pinned), actual, within)
        if not result["exact"] and (variant.keeps_native or variant.gone):
            choose, values = self._rewritten_pinned, frozenset(variant.new)
            exe, _ = self._compile(variant.file, f"{variant.what}, pinned", choose, pinned_values=values)
            expected = self._run_pinned(Pinned(None, frozenset(variant.gone), frozenset(variant.removed)))
            both = compare_outputs(expected, self._run(exe), within)
            if both["exact"] or (both["equal"] and not result["equal"]):
                reference, result = "original, where passes changed it pinned on both sides", both
        return reference, result

    def _prepare_kernels(self) -> None:
        if not isinstance(self.backend, KernelBackend):
            return
        calls = [
            call
            for variant in self.request.variants
            for i, info in collectives(self._module(variant.file))
            if info.converted and (info.reduce_op is not None or not info.kind.reduces)
            for call in [call_of(i, info, i.module.config)]
            if self.backend.serves(call)
        ]
        prepare(calls, lambda done, total: say(stage="compiles kernels", done=done, total=total))

    def _run(self, exe: Executable) -> list[ByRank]:
        try:
            _, outputs = exe.run(self.placed)
            return fetch(outputs)
        except jax.errors.JaxRuntimeError as error:
            raise RunError(self.native.failure() or str(error).splitlines()[0]) from None

    def _run_pinned(self, pinned: Pinned) -> list[ByRank]:
        """The original, pinned; and again, where a NaN met a max or min, with these on the oracle, which keeps it.

        With all of them, for what XLA drops in one would else reach another.
        """
        if pinned not in self._references:
            choose = self._pinned(pinned)
            exe, form = self._compile(ORIGINAL, "the pinned original", choose, pinned_values=pinned.values)
            outputs = self._run(exe)
            drops = any(map(self.native.nan_seen, form.pins))
            if drops and pinned.collectives is not None:  # else the rewritten module drops them too
                choose = self._pinned(pinned, frozenset(form.pins.values()))
                exe, _ = self._compile(
                    ORIGINAL, "the pinned original with NaN kept", choose, pinned_values=pinned.values
                )
                outputs = self._run(exe)
            self._references[pinned] = outputs
        return self._references[pinned]

    def _seconds(self, exe: Executable) -> float:
        try:
            return exe.run(self.placed)[0]
        except jax.errors.JaxRuntimeError as error:
            raise RunError(self.native.failure() or str(error).splitlines()[0]) from None


def time_sides(sides: Mapping[str, Callable[[], float]], iters: int) -> dict[str, Any]:
    """Time ``original`` and ``rewritten`` in turn, as JSON data; each function gives the seconds of one run."""
    if not iters:
        return {"time_ms": {}, "speedup": None}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for n in range(iters):
        say(stage="times both sides", done=n, total=iters)
        for name in sorted(sides, reverse=bool(n % 2)):  # neither is always the one behind the other
            seconds[name].append(sides[name]())
    pairs = zip(seconds["original"], seconds["rewritten"], strict=True)
    return {
        "time_ms": {name: 1e3 * median(times) for name, times in seconds.items()},
        "speedup": median(o / r for o, r in pairs),
    }


def _compare_golden(
    golden: dict[int, ByRank], actual: list[ByRank], original: list[ByRank], within: Tolerance
) -> dict[str, Any] | None:
    """The rewritten module against given outputs; and the original too, which may miss them on another CPU."""
    if not golden:
        return None

    untouched = compare_given(golden, original, within)
    return compare_given(golden, actual, within) | {"original": {k: untouched[k] for k in ("equal", "max_rel_err")}}


def say(**event: Any) -> None:
    """Tell the parent how far it is."""
    print(json.dumps(event), flush=True)


def _finish(folder: Path, result: dict[str, Any], status: int) -> None:
    """Write the result and leave at once: threads of ours and of XLA may still wait for ranks that never come."""
    temporary = folder / f"{RESULT}.part"
    temporary.write_text(json.dumps(result), encoding="utf-8")
    temporary.rename(folder / RESULT)
    sys.stdout.flush()
    os._exit(status)


def _watch(native: Callable[[], str | None], folder: Path) -> None:
    """End the process when a run has failed and the main thread does not come back from XLA by itself."""
    while True:
        time.sleep(0.05)
        failure = native()
        if failure:
            time.sleep(1.0)
            _finish(folder, {"error": failure, "status": 3}, 3)


def _leave_with_parent(folder: Path) -> None:
    """The parent holds our standard input; when it is gone, so are we."""
    while os.read(0, 1024):
        pass
    shutil.rmtree(folder, ignore_errors=True)  # it was the parent's to remove
    os._exit(3)


class Worker(Protocol):
    """What works off a request."""

    native: Native

    def run(self) -> dict[str, Any]:
        """Do all of it; returns the result as JSON data."""
        ...


def main(worker: Callable[[Path], Worker]) -> None:
    """Let ``worker`` work off the request in the folder that the command line names."""
    folder = Path(sys.argv[1])
    threading.Thread(target=_leave_with_parent, args=(folder,), daemon=True).start()
    try:
        session = worker(folder)
        threading.Thread(target=_watch, args=(session.native.failure, folder), daemon=True).start()
        result = session.run()
    except InputError as error:
        _finish(folder, {"error": error.what, "remedy": error.remedy, "status": 2}, 2)
    except RunError as error:
        _finish(folder, {"error": str(error), "status": 3}, 3)
    except BaseException:
        traceback.print_exc()
        os._exit(70)  # a fault of ours: what it was stands on standard error, which the parent keeps
    else:
        _finish(folder, result, 0)


if __name__ == "__main__":
    main(Session)
