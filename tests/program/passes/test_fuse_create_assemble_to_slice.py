"""What is created apart and assembled into a tensor: when it is made there, and that values stay as they are."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import crossrank.program.language as pl
import crossrank.program.language.distributed as pld
from crossrank.passes import pipeline, skip
from crossrank.program import CompiledProgram, compile
from crossrank.program.passes.fuse_create_assemble_to_slice import FuseCreateAssembleToSlice
from crossrank.program.program import Program
from tests.program.language.sources import lines, parse
from tests.program.passes.texts import reasons, run

PASS = FuseCreateAssembleToSlice.name
WRITES = "return pl.store(pl.load(x, [0, 0], [4, 8]), [0, 0], y)"
MADE = "t = pl.create_tensor([4, 8], pl.FP32)\n"
CALL = "t = self.kernel(x, n, w, t)\n"
INTO = "out = pl.assemble(out, t, [4, 0])\n"


def fused(chip: str, kernel: str = WRITES) -> Program:
    return parse(kernel=kernel, chip=f"out = pl.create_tensor([8, 8], pl.FP32)\n{chip}")


FUSES = {
    "a tensor": (MADE + CALL + INTO, WRITES),
    "in a loop": (
        "for i in pl.range(2):\n    t = pl.create_tensor([4, 8], pl.FP32)\n    t = self.kernel(x, n, w, t)\n"
        "    out = pl.assemble(out, t, [i * 4, 0])",
        WRITES,
    ),
    "by tiles": (
        MADE + CALL + INTO,
        "for i in pl.range(4):\n    for j in pl.range(0, 8, 4):\n"
        "        y = pl.store(pl.load(x, [i, j], [1, 4]), [i, j], y)\nreturn y",
    ),
    "read and changed in between": (MADE + CALL + "pl.write(t, [0, 0], pl.read(t, [1, 1]))\n" + CALL + INTO, WRITES),
    "with fewer dimensions": (
        "big = pl.create_tensor([2, 4, 8], pl.FP32)\n" + MADE + CALL + "big = pl.assemble(big, t, [1, 0, 0])",
        WRITES,
    ),
    "columns": (
        "wide = pl.create_tensor([4, 16], pl.FP32)\n" + MADE + CALL + "wide = pl.assemble(wide, t, [0, 8])",
        WRITES,
    ),
}
KEPT = {
    "assembled twice": (MADE + CALL + INTO + INTO.replace("4, 0", "0, 0"), WRITES, "it is assembled 2 times"),
    "of another block": (
        MADE + CALL + "if n > 0:\n    out = pl.assemble(out, t, [0, 0])",
        WRITES,
        "it is assembled in another loop or branch than it is made in",
    ),
    "a part of it": (
        MADE + CALL + "out = pl.assemble(out, t[0:2], [0, 0])",
        WRITES,
        "not all of it, or not it alone, is assembled",
    ),
    "never written": (
        MADE + INTO,
        WRITES,
        "its zeros may be seen: no kernel that is always launched writes all of it first",
    ),
    "written in part": (
        MADE + CALL + INTO,
        "return pl.store(pl.load(x, [0, 0], [2, 8]), [0, 0], y)",
        "its zeros may be seen: kernel may not write all of it before it reads",
    ),
    "written as far as something is valid": (
        MADE + CALL + INTO,
        "return pl.store(pl.load(x, [0, 0], [4, 8], valid_shape=[n, 8]), [0, 0], y)",
        "its zeros may be seen: kernel may not write all of it before it reads",
    ),
    "read before": (
        MADE + CALL + INTO,
        "return pl.store(pl.add(pl.load(x, [0, 0], [4, 8]), pl.load(y, [0, 0], [4, 8])), [0, 0], y)",
        "its zeros may be seen: kernel may not write all of it before it reads",
    ),
    "written in a loop with gaps": (
        MADE + CALL + INTO,
        "for i in pl.range(0, 4, 2):\n    y = pl.store(pl.load(x, [i, 0], [1, 8]), [i, 0], y)\nreturn y",
        "its zeros may be seen: kernel may not write all of it before it reads",
    ),
    "written by nobody, perhaps": (
        MADE + "t = self.kernel(x, n, w, t, core_num=n)\n" + INTO,
        WRITES,
        "its zeros may be seen: kernel may not write all of it before it reads",
    ),
    "written in a branch": (
        MADE + "if n > 0:\n    self.kernel(x, n, w, t)\n" + INTO,
        WRITES,
        "its zeros may be seen: no kernel that is always launched writes all of it first",
    ),
    "used later": (MADE + CALL + INTO + "pl.read(t, [0, 0])", WRITES, "it is used after it was assembled"),
    "handed on": (MADE + CALL + INTO + "return t", WRITES, "it is used after it was assembled"),
    "the target is read": (
        MADE + CALL + "q = pl.read(out, [5, 0])\n" + INTO,
        WRITES,
        "the target is read or written before it is assembled",
    ),
    "the target is written by a task": (
        MADE + CALL + "self.kernel(x, n, w, out[4:8])\n" + INTO,
        WRITES,
        "the target is read or written before it is assembled",
    ),
    "a place that is read": (
        MADE + CALL + "k = pl.read(w, [0, 0])\nout = pl.assemble(out, t, [k, 0])",
        WRITES,
        "its place in the target is computed after it",
    ),
    "a target that is made later": (
        MADE + CALL + "late = pl.create_tensor([8, 8], pl.FP32)\nlate = pl.assemble(late, t, [0, 0])",
        WRITES,
        "the target is made after it",
    ),
    "tasks that the author orders": (
        MADE + "with pl.manual_scope():\n    t = self.kernel(x, n, w, t)\n" + INTO,
        WRITES,
        "the author orders the task of kernel",
    ),
    "a part that is not packed, and reshaped": (
        "wide = pl.create_tensor([4, 16], pl.FP32)\n" + MADE + CALL + "wide = pl.assemble(wide, t, [0, 8])",
        "y = pl.store(pl.load(x, [0, 0], [4, 8]), [0, 0], y)\nz = pl.reshape(y, [32])\npl.read(z, [0])\nreturn y",
        "it would not be packed, and kernel counts on that",
    ),
    "one of two": (
        MADE + CALL + "if n > 0:\n    t = pl.create_tensor([4, 8], pl.FP32)\n" + INTO,
        WRITES,
        "not all of it, or not it alone, is assembled",
    ),
}


@pytest.mark.parametrize("case", FUSES)
def test_what_is_fused(case: str) -> None:
    subject = fused(*FUSES[case])
    found = [r for r in reasons(run(subject, PASS)) if r.startswith("done")]
    assert len(found) == 1
    assert "in chip: a slice of what it is assembled into" in found[0]
    text = lines(subject, "chip")
    assert not any("assemble" in line for line in text)
    assert sum("program.slice" in line for line in text) == 1
    assert not run(subject, PASS)[0].changed


@pytest.mark.parametrize("case", KEPT)
def test_what_is_kept(case: str) -> None:
    chip, kernel, why = KEPT[case]
    subject = fused(chip, kernel)
    text = subject.text()
    (result,) = run(subject, PASS)
    assert (result.changed, subject.text()) == (False, text)
    assert reasons([result])[0].endswith(f": {why}")


def test_one_after_another() -> None:
    """The second one's target is the first one's assemble, which goes; their parts are apart."""
    two = "a = pl.create_tensor([4, 8], pl.FP32)\nb = pl.create_tensor([4, 8], pl.FP32)\n"
    both = "a = self.kernel(x, n, w, a)\nb = self.kernel(x, n, w, b)\n"
    subject = fused(f"{two}{both}out = pl.assemble(out, a, [0, 0])\nout = pl.assemble(out, b, [4, 0])")
    assert len(run(subject, PASS)[0].remarks) == 2
    assert not any("assemble" in line for line in lines(subject, "chip"))


def test_the_same_memory_twice() -> None:
    chip = f"{MADE}{CALL}y = pl.assemble(y, t, [0, 0])"
    apart, same = (
        parse(kernel=WRITES, chip=chip, host=host)
        for host in (
            f"b = pld.alloc_window_buffer(4)\nw = pld.window(b, [1, 1], dtype=pl.INT32)\nself.chip({x}, 1, w, y[0])"
            for x in ("y[1]", "y[0]")
        )
    )
    assert run(apart, PASS)[0].changed
    (result,) = run(same, PASS)
    assert not result.changed
    assert reasons([result])[0].endswith(": a caller may give the function the same memory twice")


@pl.program
class Windows:
    """A row is assembled into a window, another one into a tensor after it was gathered."""

    @pl.function(type=pl.FunctionType.InCore)
    def ones(self, y: pl.Out[pl.Tensor[[1, 8], pl.FP32]]):
        return pl.store(pl.full([1, 8], pl.FP32, 1.0), [0, 0], y)

    @pl.function(type=pl.FunctionType.Orchestration)
    def chip(
        self,
        w: pl.InOut[pld.DistributedTensor[[4, 8], pl.FP32]],
        s: pl.InOut[pld.DistributedTensor[[4, 1], pl.INT32]],
        y: pl.Out[pl.Tensor[[2, 8], pl.FP32]],
    ):
        w = pl.assemble(w, self.ones(), [1, 0])
        for i in pl.range(2):
            t = self.ones()
            w = pld.tensor.allgather(t, w, s)
            y = pl.assemble(y, t, [i, 0])
        return y


def test_what_collectives_are_about_stays() -> None:
    assert isinstance(Windows, Program)
    (result,) = run(Windows.clone(), PASS)
    assert not result.changed
    assert [r.partition(": ")[2].partition("): ")[2] for r in reasons([result])] == [
        "the target is a window, which peers may look into before",
        "a collective uses it, and it would not be provably packed: a slice whose offsets are not all numbers",
    ]


@pl.program
class Rows:
    """Rows are made one by one, some of them in place of others."""

    @pl.function(type=pl.FunctionType.InCore)
    def double(self, x: pl.Tensor[[1, 8], pl.FP32], y: pl.Out[pl.Tensor[[1, 8], pl.FP32]]):
        return pl.store(pl.add(pl.load(x, [0, 0], [1, 8]), pl.load(x, [0, 0], [1, 8])), [0, 0], y)

    @pl.function(type=pl.FunctionType.InCore)
    def half(self, x: pl.Tensor[[1, 8], pl.FP32], y: pl.Out[pl.Tensor[[1, 8], pl.FP32]]):
        return pl.store(pl.load(x, [0, 0], [1, 4]), [0, 2], y)

    @pl.function(type=pl.FunctionType.Orchestration)
    def chip(self, x: pl.Tensor[[4, 8], pl.FP32], y: pl.InOut[pl.Tensor[[8, 16], pl.FP32]]):
        for i in pl.range(4):
            t = pl.create_tensor([1, 8], pl.FP32)
            t = self.double(x[i : i + 1], t)
            pl.write(t, [0, 0], pl.read(t, [0, 1]))
            y = pl.assemble(y, t, [i, 8])
            s = pl.create_tensor([1, 8], pl.FP32)
            s = self.half(x[i : i + 1], s)
            y = pl.assemble(y, s, [4 + i, 0])
        u = pl.create_tensor([8], pl.FP32)
        return pl.assemble(y, u, [7, 8])


@cache
def rows(with_pass: bool) -> CompiledProgram:
    passes = pipeline("program")
    return compile(Rows, passes=passes if with_pass else skip(passes, [PASS]))


def test_values_stay_as_they_are() -> None:
    x = np.random.default_rng(5).normal(size=(4, 8)).astype(np.float32)
    y: Any = np.full((8, 16), 7, np.float32)
    found = []
    for with_pass in (True, False):
        found.append(y.copy())
        rows(with_pass)(x, found[-1])
    y[:4, 8:] = 2 * x
    y[:4, 8] = 2 * x[:, 1]
    y[4:, :8] = 0
    y[4:, 2:6] = x[:, :4]
    y[7, 8:] = 0
    assert all(np.array_equal(f, y) for f in found)
    assert isinstance(Rows, Program)
    (result,) = run(Rows.clone(), PASS)
    assert [r.outcome for r in result.remarks] == ["done", "declined", "declined"]
