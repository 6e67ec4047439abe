"""What the tests share: modules from text, the corpus, and Python in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import numpy.typing as npt
import pytest

from crossrank.collective import semantics
from crossrank.collective.kinds import ReduceOp
from crossrank.files import read_bytes
from crossrank.hlo.execute.run import RunOptions, RunReport, run_module
from crossrank.hlo.io import ModuleFile, parse_module, to_text
from crossrank.hlo.module import Instruction, Module
from crossrank.passes import PassResult, parse_passes, run_passes

CORPUS = Path(os.environ.get("CROSSRANK_CORPUS") or Path(__file__).parents[2] / "shared" / "corpus")
CORPUS_NAMES = sorted(p.name for p in CORPUS.glob("*.hlo*")) if CORPUS.is_dir() else []
LARGE = ("big_fsdp_tp_24l.hlo.gz", "synthetic_60k.hlo.gz")

needs_corpus = pytest.mark.skipif(not CORPUS_NAMES, reason=f"no corpus in {CORPUS}: set CROSSRANK_CORPUS")
NO_CORPUS = [pytest.param("", marks=needs_corpus)]
each_corpus_module = pytest.mark.parametrize("name", CORPUS_NAMES or NO_CORPUS)
each_small_module = pytest.mark.parametrize("name", [n for n in CORPUS_NAMES if n not in LARGE] or NO_CORPUS)


@cache
def corpus_text(name: str) -> bytes:
    return read_bytes(str(CORPUS / name))


def corpus_file(name: str) -> ModuleFile:
    return parse_module(corpus_text(name), name)


def corpus_facts(name: str) -> dict[str, Any]:
    """The JSON beside a corpus module."""
    facts: dict[str, Any] = json.loads((CORPUS / f"{name.partition('.')[0]}.json").read_text())
    return facts


def lines_run(function: Callable[[], object]) -> int:
    """How many lines of Python a call runs, turns of loops included: work that no busy machine changes."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


REDUCER = """
{name} {{
  {name}.a = {dtype}[] parameter(0)
  {name}.b = {dtype}[] parameter(1)
  ROOT {name}.c = {dtype}[] {op}({name}.a, {name}.b)
}}
"""


def reducer(op: str = "add", dtype: str = "f32", name: str = "") -> str:
    """The text of a reduction body."""
    return REDUCER.format(name=name or f"{op}_{dtype}", op=op, dtype=dtype)


def hlo(entry: str, *computations: str, header: str = "num_partitions=8") -> str:
    """HLO text with ``entry`` as the body of the entry computation."""
    return f"HloModule test, {header}\n" + "\n".join(computations) + "\nENTRY main {\n" + entry + "\n}\n"


def parse(entry: str, *computations: str, header: str = "num_partitions=8") -> ModuleFile:
    return parse_module(hlo(entry, *computations, header=header).encode(), "test.hlo")


def find(module: Module, name: str) -> Instruction:
    """The instruction of that name."""
    return next(i for i in module.instructions() if i.name == name)


def opcodes(module: Module) -> list[str]:
    return [i.opcode for i in module.instructions()]


def apply(module: Module, passes: str) -> PassResult:
    """Run one pass."""
    return run_passes(module, parse_passes(passes))[0]


def run_values(text: str, passes: str, **options: Any) -> RunReport:
    """Run a module and what ``passes`` make of it on all its ranks; the report compares every value of every rank."""
    file = parse_module(text.encode(), "test.hlo")
    return run_module(file, parse_passes(passes), RunOptions(**{"iters": 0, "limit_s": 30.0, **options}))


def reread(file: ModuleFile) -> ModuleFile:
    """The module as it is after printing and reading; XLA has accepted it."""
    return parse_module(to_text(file).encode(), file.path)


def python(code: str, *arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a Python process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        input=stdin,
        env={**os.environ, "JAX_PLATFORMS": "cpu", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def ring_all_reduce(inputs: Sequence[npt.NDArray[Any]], op: ReduceOp) -> npt.NDArray[Any]:
    """What the ring gives: segment i in the order of the ranks i + 1, i + 2, … i, rounded after each."""
    rows, ranks, size = [a.reshape(-1) for a in inputs], len(inputs), inputs[0].size
    step = 1 if inputs[0].itemsize >= 4 else 32 // inputs[0].itemsize
    bounds = [
        min(-(-n * size // (ranks * step)) * step if step > 1 else n * size // ranks, size) for n in range(ranks + 1)
    ]
    result = rows[0].copy()
    for n in range(ranks):
        part = slice(bounds[n], bounds[n + 1])
        so_far = rows[(n + 1) % ranks][part]
        for other in range(2, ranks + 1):
            so_far = semantics.all_reduce([so_far, rows[(n + other) % ranks][part]], op)[0]
        result[part] = so_far
    return result.reshape(inputs[0].shape)
