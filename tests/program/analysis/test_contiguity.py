"""Which tensors are packed for certain, and the first step of those that may not be."""

from __future__ import annotations

import pytest

from crossrank.program.analysis.contiguity import loose_step
from crossrank.program.analysis.lineage import Lineage
from tests.program.language.sources import WHERE, parse

CALL = "self.kernel(x, n, w, y)"
FOLLOWED = {
    "a parameter": "v = x",
    "a new tensor": "v = pl.create_tensor([4, 8], pl.FP32)",
    "a reshape": "v = pl.reshape(x, [8, 4])",
    "all of it valid": "v = pl.set_validshape(x, 4, 8)",
    "an assemble: its target": "v = pl.assemble(y, pl.transpose(pl.reshape(x, [8, 4]), 0, 1), [0, 0])",
    "a collective: its target": "v = pld.tensor.barrier(w)",
    "a call: the argument that it returns": f"v = {CALL}",
    "a task: the argument that it returns": "v, task = pl.submit(self.kernel, x, n, w, y)",
    "an Out that a call leaves away: a new tensor": "v = self.kernel(x, n, w)",
    "an element that is written: its tensor": "pl.write(y, [0, 0], 1.0)\nv = y",
    "rows": "v = x[1:3]",
    "a row": "v = x[2]",
    "rows of rows": "v = pl.slice(x[1:4], [1, 8], [2, 0])",
    "a loop": f"v = y\nfor i in pl.range(n):\n    v = {CALL}",
    "a branch": "v = y\nif n > 0:\n    v = pl.create_tensor([4, 8], pl.FP32)",
}
STATIC = "Tensor[[4, 8], FP32]"
LOOSE = {
    "a transpose": ("v = pl.transpose(x, 0, 1)", 1, "pl.transpose"),
    "columns": ("v = x[0:4, 0:4]", 1, f"a slice of dimension 1 of {STATIC}; only of the leading one it is packed"),
    "a part of a row": (
        "r = x[0:1]\nv = r[0:1, 0:4]",
        2,
        "a slice of dimension 1 of Tensor[[1, 8], FP32]; only of the leading one it is packed",
    ),
    "a computed offset": ("v = pl.slice(x, [1, 8], [n, 0])", 1, "a slice whose offsets are not all numbers"),
    "an open extent": (
        "v = w[0:1]",
        1,
        "a slice of DistributedTensor[[NR, 1], INT32], whose extents are not all numbers",
    ),
    "a slice below a reshape": (
        "a = x[0:4, 0:4]\nv = pl.reshape(a, [2, 8])",
        1,
        f"a slice of dimension 1 of {STATIC}; only of the leading one it is packed",
    ),
    "an assemble into columns": (
        "a = pl.slice(y, [4, 4], [0, 4])\nv = pl.assemble(a, x[0:4, 0:4], [0, 0])",
        1,
        f"a slice of dimension 1 of {STATIC}; only of the leading one it is packed",
    ),
    "what a loop begins with": (
        f"v = pl.transpose(pl.reshape(x, [8, 4]), 0, 1)\nfor i in pl.range(n):\n    v = {CALL}",
        1,
        "pl.transpose",
    ),
    "what a turn hands on": (
        "v = pl.create_tensor([4, 4], pl.FP32)\nfor i in pl.range(n):\n    v = x[0:4, 0:4]",
        3,
        f"a slice of dimension 1 of {STATIC}; only of the leading one it is packed",
    ),
    "one arm of a branch": (
        "v = pl.create_tensor([4, 4], pl.FP32)\nif n > 0:\n    v = pl.transpose(v, 0, 1)",
        3,
        "pl.transpose",
    ),
    "a valid part": ("v = pl.set_validshape(x, 4, 6)", 1, "dimension 1 has valid_shape 6 < shape 8"),
    "a slice that is valid in part": (
        "v = pl.slice(x, [2, 8], [0, 0], valid_shape=[1, 8])",
        1,
        "dimension 0 has valid_shape 1 < shape 2",
    ),
    "below a full view": (
        "a = pl.set_validshape(x, 4, 6)\nv = a[0:4, 0:6]",
        2,
        "a slice of dimension 1 of Tensor[[4, 8], FP32, TensorView(valid_shape=[4, 6])]; only of the leading one it is "
        "packed",
    ),
    "a part again": ("a = pl.set_validshape(x, 3, 8)\nv = a[0:3]", 1, "dimension 0 has valid_shape 3 < shape 4"),
}


def step_of(**bodies: str) -> str | None:
    """The first step of what a chip function returns."""
    program = parse(kernel="return y", **bodies)
    end = program.function("chip").body.last_op
    assert end is not None
    return loose_step(end.operands[0], Lineage(program))


@pytest.mark.parametrize("case", FOLLOWED)
def test_packed(case: str) -> None:
    assert step_of(chip=f"{FOLLOWED[case]}\nreturn v") is None


@pytest.mark.parametrize("case", LOOSE)
def test_loose(case: str) -> None:
    body, line, what = LOOSE[case]
    step = step_of(chip=f"{body}\nreturn v")
    assert step is not None
    said, _, place = step.rpartition(" (")
    assert (said, int(place.split(":")[1]) - WHERE["chip"] + 1) == (what, line)


def test_what_a_kernel_gives_that_is_no_parameter_of_it() -> None:
    kernel = "q = y\nif n > 0:\n    q = x\nreturn q"
    program = parse(kernel=kernel, chip=f"return {CALL}")
    end = program.function("chip").body.last_op
    assert end is not None
    step = loose_step(end.operands[0], Lineage(program))
    assert step == f"what kernel gives, which is none of its parameters (p.py:{WHERE['chip'] + 3}:16)"


def test_a_window_is_packed() -> None:
    program = parse(host="b = pld.alloc_window_buffer(64)\nv = pld.window(b, [4, 4], dtype=pl.FP32)")
    (window,) = [op for op in program.function("host").op.walk() if op.name == "program.window"]
    assert loose_step(window.results[0], Lineage(program)) is None
