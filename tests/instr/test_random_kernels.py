"""Random kernels give what a simulation says, whoever computes and whoever goes first, before passes and after."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from crossrank.errors import InputError, RunError
from crossrank.instr.interpret import Machine
from crossrank.instr.program import Kernel, read_kernel
from crossrank.passes import parse_passes, run_passes
from tests.instr.passes.kernels import outputs, same_bits
from tests.instr.random_kernels import GLOBAL, LOCAL, RandomKernel
from tests.instr.reference import Step

PIPELINES = (
    "insert-ptcom",
    "lower-local-collectives,insert-ptcom",
    "lower-local-collectives{all_kinds=true},insert-ptcom",
    "lower-local-collectives{enable_remote_semaphore_dma=true}",
)


@pytest.mark.parametrize("seed", range(20))
def test_values(seed: int) -> None:
    made = RandomKernel(seed, local=seed % 3 == 2)
    text = str(made.kernel)
    assert str(read_kernel(text)) == text
    wanted = made.expected()
    assert same_bits(outputs(made.kernel, made.inputs, backend="kernels"), wanted)
    for order in (None, 1, 2):
        assert same_bits(outputs(made.kernel, made.inputs, order), wanted), order
    for passes in PIPELINES if made.lnc > 1 else ():
        low = Kernel(made.kernel.module.clone())
        run_passes(low, parse_passes(passes))
        low.verify()
        for order in (None, 3):
            assert same_bits(outputs(low, made.inputs, order), wanted), (passes, order)


def test_what_is_drawn_has_what_matters() -> None:
    made = [RandomKernel(seed, local=seed % 3 == 2) for seed in range(80)]
    drawn = {step.kind for kernel in made for step in kernel.steps}
    assert {*LOCAL, *GLOBAL} - drawn <= {"prepared", "gather", "scatter"}  # these are several steps
    assert {kernel.lnc for kernel in made} == {1, 2, 3, 4}
    assert {kernel.ranks for kernel in made} >= set(range(1, 9))


def waited_for(made: RandomKernel, step: Step, rank: int, core: int) -> bool:
    """Whether others wait for this core in a step."""
    if not step.does(rank) or core not in step.cores:
        return False
    if step.word in ("barrier", "sendrecv", "cce"):
        return True
    if step.word == "variable" and step.told[0]:
        return False
    return any((core if step.local else rank) in g and len(g) > 1 for g in step.members())


@pytest.mark.parametrize("seed", range(8))
def test_whoever_stays_away_is_missed(seed: int) -> None:
    """One core of one rank leaves out a step in which others wait for it: they say so, whoever goes first."""
    made, draw = RandomKernel(seed, local=seed % 3 == 2, steps=6), random.Random(seed)
    places = [(rank, core) for rank in range(made.ranks) for core in range(made.lnc)]
    steps = [(n, p) for n, step in enumerate(made.steps) for p in places if waited_for(made, step, *p)]
    for n, place in draw.sample(steps, min(3, len(steps))):
        kernel = made.build((n, place))
        for order in (None, 1):
            with pytest.raises(RunError, match=r"^deadlock: |, which (sends|does not)"):
                outputs(kernel, made.inputs, order)


def changed(text: str, draw: random.Random) -> str:
    """A kernel's text with a word, a number or a line changed, dropped, or put elsewhere."""
    way = draw.randrange(4)
    if way == 0:
        lines = text.split("\n")
        line = lines.pop(draw.randrange(len(lines)))
        if draw.random() < 0.5:
            lines.insert(draw.randrange(len(lines)), line)
        return "\n".join(lines)
    words = list(re.finditer(r"\d+" if way == 1 else r'"[^"\n]*"|[%@^!]?[\w.$-]+|\S', text))
    one, other = draw.choice(words), draw.choice(words)
    if way == 1:
        new = str(draw.choice([0, 1, 2, -1, int(one.group()) + 1, int(one.group()) * 2]))
    else:
        new = "" if draw.random() < 0.3 else other.group()
    return text[: one.start()] + new + text[one.end() :]


@pytest.mark.parametrize("seed", range(3))
def test_changed_texts_fail_plainly_or_run(seed: int) -> None:
    made, draw, failed = RandomKernel(seed, ranks=2, steps=4), random.Random(seed), 0
    text = str(made.kernel)
    for _ in range(20):
        try:
            kernel = read_kernel(changed(text, draw))
            inputs = [[np.zeros(t.type.shape, t.type.dtype.numpy) for t in kernel.inputs()]] * kernel.world_size
            Machine(kernel, backend="oracle").run(inputs)
        except (InputError, RunError):
            failed += 1
    assert failed > 10
