"""`run_kernel_file`: a kernel and its rewrite, both interpreted on N ranks and compared value by value."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crossrank.arrays import Array, save_arrays
from crossrank.compare import Tolerance, compare_given, compare_outputs, odd_values
from crossrank.errors import InputError, RunError
from crossrank.instr.files import ByRank, KernelFile, drawn_inputs, given_inputs, written_only
from crossrank.instr.interpret import Machine
from crossrank.instr.inventory import inventory, measure
from crossrank.instr.program import Kernel
from crossrank.passes import Pass, PassResult, run_passes
from crossrank.statistics import counts

Progress = Callable[[dict[str, Any]], None]
WORTH_A_REPEAT_MS = 1000.0


@dataclass(frozen=True)
class KernelOptions:
    """How to run.

    Attributes:
        backend: who computes collectives among ranks: ``kernels`` or ``oracle``.
        inputs: an ``.npz`` with inputs (and outputs to compare with); None: those of the file, or drawn ones.
        seed: for drawn inputs.
        limit_s: seconds that a compiled kernel may take.
        tolerance: compare with this tolerance, relative to an output's largest value, instead of bit for bit.
        outputs: an ``.npz`` to save the rewritten kernel's outputs in.
    """

    backend: str = "kernels"
    inputs: str | None = None
    seed: int = 0
    limit_s: float = 60.0
    tolerance: float | None = None
    outputs: str | None = None


@dataclass(frozen=True)
class KernelReport:
    """What came of a run; `as_dict` is its JSON.

    Attributes:
        result: the rewritten kernel against the original, as `compare_outputs` says it.
        expected: the rewritten kernel against what the file or the ``.npz`` expects; None: they expect nothing.
    """

    file: str
    kernel: str
    ranks: int
    lnc: int
    via: str
    seed: int | None
    passes: list[PassResult]
    before: dict[str, int]
    after: dict[str, int]
    result: dict[str, Any] = field(repr=False)
    expected: dict[str, Any] | None
    time_ms: dict[str, float]

    @property
    def equal(self) -> bool:
        """Whether all outputs are what they should be."""
        return bool(self.result["equal"] and (self.expected is None or self.expected["equal"]))

    @property
    def warnings(self) -> list[str]:
        """What a reader should know although nothing differs."""
        if not self.result["outputs"]:
            return ["the kernel returns nothing and writes none of its inputs: there is nothing to compare"]
        return odd_values(self.result["outputs"])

    def as_dict(self) -> dict[str, Any]:
        """JSON data with stable keys."""
        return {
            "file": self.file,
            "kernel": self.kernel,
            "ranks": self.ranks,
            "lnc": self.lnc,
            "via": self.via,
            "seed": self.seed,
            "passes": [p.spec for p in self.passes],
            "equal": self.equal,
            "exact": self.result["exact"],
            "outputs": self.result["outputs"],
            "collectives": {"before": self.before, "after": self.after},
            "first_difference": self.result["first_difference"],
            "expected": self.expected,
            "time_ms": self.time_ms,
            "warnings": self.warnings,
            "remarks": [r.as_dict() for p in self.passes for r in p.remarks],
        }


def run_kernel_file(
    file: KernelFile, passes: Sequence[Pass[Kernel]], options: KernelOptions, progress: Progress | None = None
) -> KernelReport:
    """Run a kernel as it is and as ``passes`` make it, and compare.

    Outputs are what the kernel returns, and behind that the inputs that it writes. What is expected may leave the
    latter away.

    Raises:
        InputError: the inputs or what is expected of them do not fit the kernel.
        RunError: the run failed: a deadlock, an access outside of a tensor, a limit.
    """
    say = progress or (lambda _event: None)
    kernel, given = file.kernel, dict[int, list[Array]]()
    if options.inputs is not None:
        inputs, given = given_inputs(kernel, options.inputs)
    else:
        inputs = drawn_inputs(kernel, options.seed) if file.inputs is None else file.inputs
    rewritten = Kernel(kernel.module.clone())
    results = run_passes(rewritten, passes)
    rewritten.verify()
    written = written_only(kernel)
    say({"stage": "runs the original"})
    before, original_ms = _run(kernel, inputs, written, options)
    say({"stage": "runs the rewritten kernel"})
    try:
        after, rewritten_ms = _run(rewritten, inputs, written, options)
    except RunError as error:
        raise RunError(f"the rewritten kernel: {error}") from None
    if original_ms + rewritten_ms < WORTH_A_REPEAT_MS:  # the first run of all loads kernels and touches fresh memory
        original_ms = min(original_ms, _run(kernel, inputs, written, options)[1])
        rewritten_ms = min(rewritten_ms, _run(rewritten, inputs, written, options)[1])
    if not given and file.expected is not None:
        given = _by_output(file, file.expected(inputs), after, len(written))
    if options.outputs is not None:
        _save(options.outputs, after)
    reassociated = any(p.reassociates and r.changed for p, r in zip(passes, results, strict=True))
    within = Tolerance(options.tolerance, tuple(_types(kernel)))
    return KernelReport(
        file=file.path,
        kernel=kernel.name,
        ranks=kernel.world_size,
        lnc=kernel.lnc,
        via=options.backend,
        seed=None if options.inputs else options.seed,
        passes=results,
        before=counts(measure(kernel)),
        after=counts(measure(rewritten)),
        result=compare_outputs(before, after, within if reassociated or options.tolerance is not None else None),
        expected=compare_given(given, after, within) if given else None,
        time_ms={"original": original_ms, "rewritten": rewritten_ms},
    )


def _run(
    kernel: Kernel, inputs: ByRank, written: Sequence[int], options: KernelOptions
) -> tuple[list[list[Array]], float]:
    """Outputs, each a list over ranks, and milliseconds."""
    machine = Machine(kernel, backend=options.backend, limit=options.limit_s)
    start = time.perf_counter()
    returned = machine.run(inputs)
    elapsed = 1e3 * (time.perf_counter() - start)
    by_rank = [
        [*outputs, *(contents[n] for n in written)]
        for outputs, contents in zip(returned, machine.input_contents(), strict=True)
    ]
    return [list(column) for column in zip(*by_rank, strict=True)], elapsed


def _types(kernel: Kernel) -> set[str]:
    """The element types that collectives move: the narrowest says how far values may be off."""
    return {e.dtype for e in inventory(kernel) if e.dtype is not None}


def _by_output(file: KernelFile, expected: ByRank, after: list[list[Array]], written: int) -> dict[int, list[Array]]:
    """What is expected, by output, each in the shape that the kernel gives it."""
    least = len(after) - written
    for rank, arrays in enumerate(expected):
        if not least <= len(arrays) <= len(after) or len(arrays) != len(expected[0]):
            wanted = f"{least} outputs" + (f" and writes {written} of its inputs" if written else "")
            raise InputError(
                f"{file.path}: expected() gives {len(arrays)} arrays for rank {rank}, and the kernel gives {wanted}"
            )
        for n, array in enumerate(arrays):
            like = after[n][rank]
            if array.size != like.size:
                raise InputError(
                    f"{file.path}: expected() gives {array.dtype}{list(array.shape)} for output {n} of rank {rank}, "
                    f"and the kernel gives {like.dtype}{list(like.shape)}"
                )
    columns = zip(*expected, strict=True)
    return {
        n: [a.astype(like.dtype).reshape(like.shape) for a, like in zip(column, after[n], strict=True)]
        for n, column in enumerate(columns)
    }


def _save(path: str, outputs: Sequence[Sequence[Array]]) -> None:
    try:
        save_arrays(path, {f"o{n}": np.stack(by_rank) for n, by_rank in enumerate(outputs)})
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
