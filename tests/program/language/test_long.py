"""Long programs and deep ones: straight code may be as long as it likes, and where something is too deep it is said."""

from __future__ import annotations

import pytest

from crossrank.errors import InputError
from crossrank.passes import parse_passes, pipeline, run_passes
from crossrank.program.codegen.kernel import kernel_source
from tests.program.language.sources import WHERE, parse

MANY = 1200
"""Longer than calls within calls can be."""

LONG = {
    "a chain of tiles": "t = pl.load(x, [0, 0], [4, 8])\n" + "t = pl.add(t, 1.0)\n" * MANY + "pl.store(t, [0, 0], y)",
    "unrolled": f"t = x\nfor i in pl.unroll({MANY}):\n    t = t * 1.0\npl.store(t, [0, 0], y)",
    "a sum": f"pl.write(w, [0, 0], {' + '.join(['n'] * MANY)})",
    "a sum of tiles": f"pl.store({' + '.join(['x'] * MANY)}, [0, 0], y)",
    "a chain of stores": "t = pl.load(x, [0, 0], [4, 8])\n" + "y = pl.store(t, [0, 0], y)\n" * MANY,
    "a chain of numbers": "q = n\n" + "q = q + 1\n" * MANY + "e = q + 1\npl.read(w[q:e], [0, 0])",
    "each twice the one before": "q = n\n" + "q = q + q\n" * 70 + "e = q + 1\npl.read(w[q:e], [0, 0])",
    "conditions": f"if {' and '.join(['n > 0'] * MANY)}:\n    pl.write(w, [0, 0], n)",
}


@pytest.mark.parametrize("name", LONG)
def test_long(name: str) -> None:
    program = parse(kernel=LONG[name])
    run_passes(program, pipeline("program"))
    assert kernel_source(program, "kernel")


def test_long_in_a_chip_function() -> None:
    loops = "for i in pl.range(n):\n    q = q + 1\n" * 60
    sums = "q = q + 1\n" * MANY
    views = "x = x[0:4, 0:8]\n" * MANY
    calls = "for i in pl.range(2):\n    y = self.kernel(x, n, w, y, core_num=q)\n" * 40
    program = parse(kernel="return y", chip=f"q = n\n{loops}{sums}{views}{calls}")
    passes = pipeline("program")
    behind = [p.name for p in passes].index("derive-call-directions") + 1
    run_passes(program, [*passes[:behind], *parse_passes("auto-derive-task-dependencies"), *passes[behind:]])


DEEP = {
    "minus": f"q = {'-' * 900}n",
    "elif": "if n > 0:\n    q = 1\n" + "elif n > 1:\n    q = 2\n" * 400,
    "else": f"q = {'1 if n > 0 else ' * 900}2",
    "attributes": f"q = n{'.shape' * 1500}",
}


@pytest.mark.parametrize("name", DEEP)
def test_deep(name: str) -> None:
    with pytest.raises(InputError, match=rf"^p.py:(?!{WHERE['kernel'] - 1}:)\d+:\d+: this is nested too deeply"):
        parse(kernel=DEEP[name])


def test_a_hundred_branches() -> None:
    def branches(many: int) -> str:
        return "q = n\nif n > 0:\n    q = 1\n" + "elif n > 1:\n    q = 2\n" * (many - 1) + "pl.write(w, [0, 0], q)"

    program = parse(kernel=branches(100))
    run_passes(program, pipeline("program"))
    assert kernel_source(program, "kernel").count("} else {") >= 99
    assert program.text() == program.clone().text()
    with pytest.raises(InputError, match="more than 100 loops and branches stand within one another"):
        parse(kernel=branches(101))
