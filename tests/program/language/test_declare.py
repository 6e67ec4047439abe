"""How functions are declared: annotations, decorators, what surrounds the source."""

from __future__ import annotations

import numpy as np
import pytest

import crossrank.program.language as pl
import crossrank.program.language.distributed as pld
from crossrank.author import load_module
from crossrank.errors import InputError
from crossrank.program.kinds import Direction, FunctionType, Level, Role
from crossrank.program.program import Program, line_of, read_program

HEAD = """\
import crossrank.program.language as pl
import crossrank.program.language.distributed as pld
"""
CLASS = HEAD + "@pl.program\nclass P:\n"
INCORE = CLASS + "    @pl.function(type=pl.FunctionType.InCore)\n"
FUNCTION = "    def f(self):\n        pass\n"

REFUSED = [
    (HEAD + "@pl.program\nclass P:\n    pass", "3:1", "Class 'P' contains no @pl.function decorated methods"),
    (INCORE + "    def f(self, x):\n        pass", "6:17", "parameter x has no type"),
    (INCORE + "    def f(self, x: int):\n        pass", "6:20", "<class 'int'> is no type of a program"),
    (INCORE + "    def f(self, x: pl.Tensor):\n        pass", "6:20", "pl.Tensor says no extents and no element type"),
    (
        INCORE + "    def f(self, x: pl.Tensor[[4]]):\n        pass",
        "6:20",
        "pl.Tensor[…] takes extents and an element type",
    ),
    (INCORE + "    def f(self, x: pl.Tensor[[4], 4]):\n        pass", "6:20", "pl.Tensor[…]: 4 is no element type"),
    (INCORE + "    def f(self, x: pl.Tensor[[-4], pl.FP32]):\n        pass", "6:20", "pl.Tensor[…]: an extent is -4"),
    (INCORE + "    def f(self, x: pl.Tensor[['N'], pl.FP32]):\n        pass", "6:20", "pl.Tensor[…]: 'N' is no extent"),
    *(
        (
            INCORE + f"    def f(self, x: pl.Tensor[[4, 8], pl.FP32, {how}]):\n        pass",
            "6:20",
            f"pl.Tensor[…]{said}",
        )
        for how, said in {
            "pl.TensorLayout.NZ": ": layout NZ; here tensors are row-major (ND)",
            "pl.TensorView(layout=pl.TensorLayout.DN)": ": layout DN; here tensors are row-major (ND)",
            "pl.TensorView(stride=[16, 1])": ": a tensor of strides [16, 1]; here elements lie one behind the other",
            "pl.TensorView(valid_shape=[4, 9])": " valid_shape 1 must be in [0, 8], got 9",
            "pl.TensorView(valid_shape=[4])": " valid_shape must have 2 entries, one a dimension, got 1",
        }.items()
    ),
    (INCORE + "    def f(self, x: pl.Tile[[4], pl.FP32]):\n        pass", "6:20", "a tile is no parameter"),
    (
        INCORE + "    def f(self, x: pl.Out[pl.Scalar[pl.FP32]]):\n        pass",
        "6:20",
        "pl.Out is for tensors, and this is Scalar[FP32]",
    ),
    (
        INCORE + "    def f(self, x: pl.Tensor[[4], pl.FP32] = 4):\n        pass",
        "6:5",
        "f: parameters have no defaults, and no * or **",
    ),
    (INCORE + "    def f(x: pl.Tensor[[4], pl.FP32]):\n        pass", "6:5", "the first parameter of f must be self"),
    (
        INCORE + "    def f(self, x: pl.Tensor[[4], pl.FP32]) -> pl.Tensor[[4], pl.FP32]:\n        pass",
        "7:9",
        "f returns nothing, and is declared to return Tensor[[4], FP32]",
    ),
    (
        INCORE + "    def f(self, x: pl.Tensor[[4], pl.FP32]) -> pl.Tensor[[4], pl.FP16]:\n        return x",
        "7:9",
        "f returns Tensor[[4], FP32], and is declared to return Tensor[[4], FP16]",
    ),
    (
        CLASS + "    @pl.function(type='InCore')\n    def f(self, x: pl.Tensor[[4], pl.FP32]):\n        pass",
        "6:5",
        "Unsupported `@pl.function`(type=...) value: 'InCore'",
    ),
    (
        CLASS + "    @pl.function(level=pl.Level.HOST)\n    def f(self):\n        pass",
        "6:5",
        "f has level HOST and role None",
    ),
    (
        CLASS + "    @pl.function(level=pl.Level.HOST, role=pl.Role.SubWorker)\n    def f(self):\n        pass",
        "6:5",
        "SubWorker function 'f' must not declare 'self'; declare it as a self-contained function inside @pl.program.",
    ),
    (
        CLASS + "    @pl.function(type=pl.FunctionType.Group)\n    def f(self):\n        self.f()",
        "6:5",
        "f calls itself",
    ),
    (f"{INCORE}{FUNCTION}    @pl.function\n{FUNCTION}", "8:1", "a second function is called f"),
    (CLASS + "    @pl.function(level=pl.Level.HOSTT)\n    def f(self):\n        pass", "5", "Level has no HOSTT"),
    (INCORE + "    def f(self):\n        await pl.FP32", "7:9", "'await' outside async function"),
]
"""A file, the place in it, and what is said first."""


@pytest.mark.parametrize(("text", "place", "said"), REFUSED, ids=[r[2] for r in REFUSED])
def test_refused(text: str, place: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        load_module(text.encode(), "p.py", "a program")
    assert caught.value.what == f"p.py:{place}: {said}"


def kinds(program: Program) -> dict[str, tuple[FunctionType, Level | None, Role | None]]:
    return {f.name: (f.type, f.level, f.role) for f in program.functions}


def test_kinds_and_surroundings() -> None:
    """Names come from the closure, from the enclosing function, from the module; annotations may be text."""
    size = 8

    def build(ranks: int) -> Program:
        WIDTH = pl.dynamic("W") * 2

        @pl.program(strict_ssa=False)
        class Several:
            SCALE = 3

            @pl.function(type=pl.FunctionType.InCore)
            def kernel(
                self,
                x: pl.Tensor[[ranks * size, WIDTH + 1], pl.FP32],
                w: "pl.InOut[pld.DistributedTensor[(1, size), pl.INT32]]",  # noqa: UP037
                n: pl.Scalar[pl.INDEX],
            ) -> None:
                pl.write(w, [0, n], self.SCALE * size)

            @pl.function
            def chip(self, x: pl.Tensor[[16, WIDTH + 1], pl.FP32], w: pld.DistributedTensor[[1, 8], pl.INT32]):
                self.kernel(x, w, np.int64(1).item())

            @pl.function(level=pl.Level.HOST, role=pl.Role.SubWorker)
            def later(x: pl.Out[pl.Tensor[[size], pl.BOOL]]) -> pl.Tensor[[size], pl.BOOL]: ...

            @pl.function(level=pl.Level.HOST, role=pl.Role.SubWorker)
            def worker(x: pl.Tensor[[size], pl.BOOL]):
                x[:] = size

        return Several

    program = build(2)
    assert kinds(program) == {
        "kernel": (FunctionType.InCore, None, None),
        "chip": (FunctionType.Orchestration, Level.CHIP, Role.Orchestrator),
        "later": (FunctionType.Opaque, Level.HOST, Role.SubWorker),
        "worker": (FunctionType.Opaque, Level.HOST, Role.SubWorker),
    }
    assert [(p.name, str(p.type), p.direction) for p in program.function("kernel").params] == [
        ("x", '!program.tensor<[16, "(W * 2) + 1"], f32>', Direction.In),
        ("w", "!program.dist_tensor<[1, 8], s32>", Direction.InOut),
        ("n", "index", Direction.In),
    ]
    assert str(program.function("later").returned[0]) == "!program.tensor<[8], pred>"
    array = np.zeros(8)
    program.workers["worker"](array)
    assert (array == 8).all()
    assert list(program.workers) == ["worker"]
    lines = {f.name: line_of(f.op) for f in program.functions}
    assert lines["chip"] > lines["kernel"] > build.__code__.co_firstlineno
    assert str(read_program(program.text(locations=True))) == str(program)


def test_names_that_python_makes_private() -> None:
    body = "    def __f(self):\n        pass\n    __N = 2\n"
    chip = "    @pl.function\n    def g(self):\n        for i in pl.unroll(self.__N):\n            self.__f()\n"
    program = load_module((INCORE + body + chip).encode(), "p.py", "a program").P
    assert [f.name for f in program.functions] == ["__f", "g"]
    assert str(program.function("g").op).count("@__f") == 2


def test_python_calls_are_refused() -> None:
    with pytest.raises(InputError, match=r"pl\.load was called as Python"):
        pl.load(1, 2, 3)
    declared = pl.function(type=pl.FunctionType.InCore)(test_python_calls_are_refused)
    with pytest.raises(InputError, match="test_python_calls_are_refused was called as Python"):
        declared()


def test_source_that_is_not_there() -> None:
    with pytest.raises(InputError, match=r"<string>:5:1: the source of f cannot be found"):
        exec(INCORE + "    def f(self):\n        pass", {})
