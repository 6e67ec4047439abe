"""Making a failure of a pass small: the piece of a module on which the pass still fails."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from crossrank.errors import InputError, RunError
from crossrank.hlo import xla
from crossrank.hlo.collectives import collectives
from crossrank.hlo.execute.run import RunOptions, run_module
from crossrank.hlo.extract import extract, neighbourhood
from crossrank.hlo.io import ModuleFile
from crossrank.hlo.module import Instruction, Module
from crossrank.passes import Pass, run_passes
from crossrank.remarks import Remarks

DEPTHS = (1, 2, 4, 8)
MOST_TRIES = 32

Progress = Callable[[str], None]


def extract_failure(
    file: ModuleFile, passes: Sequence[Pass[Module]], name: str, options: RunOptions, progress: Progress
) -> tuple[Module, str]:
    """The smallest module found on which a pass fails, and how it fails.

    A pass fails where it raises, where XLA refuses what it made, or where values differ from those before it. Pieces
    are cut around the instructions that the pass speaks of, ever wider, and the first one that fails is it; where none
    does, it is the whole module as the passes before left it.

    Args:
        file: the module.
        passes: what runs on it; those before the one in question run first.
        name: of the pass.
        options: of the runs.
        progress: called with what is tried.

    Raises:
        InputError: the pass is not among ``passes``, or does not fail.
    """
    position = next((n for n, p in enumerate(passes) if p.name == name), None)
    if position is None:
        raise InputError(f"pass {name} is not among the passes to run", "name it with --passes")
    before = file.module.copy()
    run_passes(before, passes[:position])
    culprit = passes[position]

    def failure(module: Module) -> str:
        return _failure(replace(file, module=module), culprit, options)

    progress(f"runs {name} on the whole module")
    found = failure(before)
    if not found:
        raise InputError(f"{file.path}: pass {name} does not fail: no value differs", "there is nothing to extract")
    for tries, (piece, what) in enumerate(_pieces(before, culprit, found)):
        if tries == MOST_TRIES:
            break
        progress(f"tries {what}")
        try:
            small = extract(before, piece)
            if said := failure(small):
                return small, said
        except (InputError, RunError):
            continue  # this piece cannot be run by itself
    return before, found


def _failure(file: ModuleFile, culprit: Pass[Module], options: RunOptions) -> str:
    """How the pass fails on a module; the empty string where it does not."""
    rewritten = file.module.copy()
    try:
        run_passes(rewritten, [culprit])
    except Exception as error:
        return f"{culprit.name} raises {type(error).__name__}: {error}"
    try:
        xla.check_proto(rewritten.serialize(), "the module")
    except ValueError as error:
        return f"XLA refuses what {culprit.name} makes: {str(error).splitlines()[0]}"
    report = run_module(file, [culprit], options)
    if report.equal:
        return ""
    where = report.result["first_difference"] or {}
    return f"values differ after {culprit.name}: output {where.get('output')}, rank {where.get('rank')}"


def _pieces(module: Module, culprit: Pass[Module], found: str) -> Iterator[tuple[set[Instruction], str]]:
    """Pieces to try, from small to large, around what the pass spoke of."""
    remarks = Remarks(culprit.name)
    try:
        culprit.run(module.copy(), remarks)
    except Exception:
        found += " ".join(r.instruction for r in remarks)
    named = {r.instruction.removeprefix("%") for r in remarks if r.outcome == "done"}
    named |= set(re.findall(r"%([\w.\-]+)", found))
    starts = [i for i in module.instructions() if i.name in named] or [i for i, _ in collectives(module)]
    for depth in DEPTHS:
        for start in starts[: MOST_TRIES // len(DEPTHS)]:
            yield neighbourhood(start, depth), f"%{start.name} and {depth} steps around it"
