"""`run_kernel_file`: a kernel and its rewrite, both interpreted on N ranks and compared value by value."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from crossrank.arrays import Array, save_arrays
from crossrank.compare import Tolerance, compare_given, compare_outputs, is_infinite, is_nan, listed
from crossrank.errors import RunError
from crossrank.instr.expected import as_returned, by_output
from crossrank.instr.files import ByRank, KernelFile, drawn_inputs, given_inputs, written_only
from crossrank.instr.interpret import Machine
from crossrank.instr.inventory import inventory, measure, private_outputs
from crossrank.instr.orders import IN_ORDER, Order, order_dependence
from crossrank.instr.program import Kernel
from crossrank.passes import Pass, PassResult, run_passes
from crossrank.statistics import counts

Progress = Callable[[dict[str, Any]], None]
WORTH_REPEATS_MS = 200.0
REPEATS = 5


@dataclass(frozen=True)
class KernelOptions:
    """How to run.

    Attributes:
        backend: who computes collectives among ranks: ``kernels`` or ``oracle``.
        inputs: an ``.npz`` with inputs (and outputs to compare with); None: those of the file, or drawn ones.
        seed: for drawn inputs.
        limit_s: seconds that a compiled kernel may take, and a loop in which a core meets nobody.
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
        warnings: what a reader should know although nothing differs.
        unordered: where outputs depend on which core goes first (see `order_dependence`); None: nowhere.
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
    unordered: dict[str, Any] | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Whether all outputs are what they should be, whichever core goes first."""
        return self.unordered is None and bool(
            self.result["equal"] and (self.expected is None or self.expected["equal"])
        )

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
            "unordered": self.unordered,
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
    if any(r.changed for r in results) and original_ms + rewritten_ms < WORTH_REPEATS_MS:
        # the first run of all loads kernels and touches fresh memory, and short ones differ
        times = [[_run(k, inputs, written, options)[1] for k in (kernel, rewritten)] for _ in range(REPEATS)]
        original_ms, rewritten_ms = (statistics.median(side) for side in zip(*times, strict=True))
    unordered = None
    if kernel.lnc > 1:
        say({"stage": "runs other orders of the cores"})
        original, changed = (partial(_outputs, k, inputs, written, options) for k in (kernel, rewritten))
        unordered = order_dependence("the original", before, original) or order_dependence(
            "the rewritten kernel", after, changed
        )
    seen = after
    if not given and file.expected is not None:
        seen = as_returned(file, after)
        given = by_output(file, file.expected(inputs), seen, len(written))
    if options.outputs is not None:
        save_arrays(options.outputs, {f"o{n}": np.stack(by_rank) for n, by_rank in enumerate(after)})
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
        expected=compare_given(given, seen, within) if given else None,
        time_ms={"original": original_ms, "rewritten": rewritten_ms},
        unordered=unordered,
        warnings=list(_odd(file, after)),
    )


def _run(
    kernel: Kernel, inputs: ByRank, written: Sequence[int], options: KernelOptions, order: Order = IN_ORDER
) -> tuple[list[list[Array]], float]:
    """Outputs, each a list over ranks, and milliseconds."""
    machine = Machine(kernel, backend=options.backend, limit=options.limit_s, **order)
    start = time.perf_counter()
    returned = machine.run(inputs)
    elapsed = 1e3 * (time.perf_counter() - start)
    by_rank = [
        [*outputs, *(contents[n] for n in written)]
        for outputs, contents in zip(returned, machine.input_contents(), strict=True)
    ]
    return [list(column) for column in zip(*by_rank, strict=True)], elapsed


def _outputs(
    kernel: Kernel, inputs: ByRank, written: Sequence[int], options: KernelOptions, order: Order
) -> list[list[Array]]:
    """Outputs, where the cores go on in that order."""
    return _run(kernel, inputs, written, options, order)[0]


def _types(kernel: Kernel) -> set[str]:
    """The element types that collectives move: the narrowest says how far values may be off."""
    return {e.dtype for e in inventory(kernel) if e.dtype is not None}


def _odd(file: KernelFile, after: list[list[Array]]) -> Iterator[str]:
    """What a reader should know of outputs although they are equal."""
    kernel = file.kernel
    if not after:
        returns = file.returns or "nothing"
        yield f"the kernel returns {returns} and writes none of its inputs: there is nothing to compare"
    for n, cores in private_outputs(kernel).items():
        yield f"output {n} is each core's own, on cores {listed(cores, ',')}: that of core {cores[0]} counts"
    for n, by_rank in enumerate(after):
        nan = [is_nan(a) for a in by_rank]
        dead = [r for r, found in enumerate(nan) if found.size and found.all()]
        some = [r for r, found in enumerate(nan) if found.any() and r not in dead]
        endless = [r for r, a in enumerate(by_rank) if is_infinite(a).any()]
        for ranks, what in ((dead, "every element is NaN, which proves nothing"), (some, "there is NaN")):
            if ranks:
                yield f"output {n}, {_ranks(ranks, kernel.world_size)}: {what}; memory that nobody wrote holds NaN"
        if endless:
            yield f"output {n}, {_ranks(endless, kernel.world_size)}: infinity among the values"


def _ranks(ranks: Sequence[int], world: int) -> str:
    if len(ranks) == world:
        return "all ranks" if world > 1 else "the only rank"
    return f"rank{'s' if len(ranks) > 1 else ''} {listed(ranks, ',')}"
