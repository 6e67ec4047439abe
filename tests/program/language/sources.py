"""Programs whose functions have given statements."""

from __future__ import annotations

import re
from textwrap import indent

from crossrank.author import load_module
from crossrank.program.program import Program

PARAMS = (
    "x: pl.Tensor[[4, 8], pl.FP32], n: pl.Scalar[pl.INT32], w: pld.DistributedTensor[[NR, 1], pl.INT32], "
    "y: pl.Out[pl.Tensor[[4, 8], pl.FP32]]"
)
FILE = f"""\
import crossrank.program.language as pl
import crossrank.program.language.distributed as pld
NR, M = pl.dynamic("NR"), pl.dynamic("M") * 2
SIZES = [1, 2]
def helper(n):
    return 1 // n
@pl.program
class P:
    @pl.function(type=pl.FunctionType.InCore)
    def kernel(self, {PARAMS}):
{{kernel}}
    @pl.function(type=pl.FunctionType.Orchestration)
    def chip(self, {PARAMS}):
{{chip}}
    @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
    def host(self, x: pl.Tensor[[2, 4, 8], pl.FP32], y: pl.Out[pl.Tensor[[2, 4, 8], pl.FP32]]):
{{host}}
"""
WHERE = {"kernel": 11, "chip": 14, "host": 17}
"""The line of each function's first statement; its column is 9."""


def parse(**bodies: str) -> Program:
    """The program whose functions have these bodies."""
    texts = {name: indent(bodies.get(name, "pass"), " " * 8) for name in WHERE}
    found = load_module(FILE.format(**texts).encode(), "p.py", "a program").P
    assert isinstance(found, Program)
    return found


def lines(program: Program, function: str) -> list[str]:
    """The ops of a function, a line each, without types; constants stand where they are used."""
    text = str(program.function(function).op).replace(" : i64]", "]").splitlines()[1:-1]
    found, constants = [], dict[str, str]()
    for line in text:
        if constant := re.match(r"\s*(%\w+) = arith.constant (\S+)", line):
            constants[constant[1]] = constant[2]
        else:
            bare = re.sub(r"( : | -> \().*?(?= \{$|$)", "", line.strip())
            found.append(re.sub(r"%\w+", lambda name: constants.get(name[0], name[0]), bare))
    return [line for line in found if line != "}"]
