"""What the source says that cannot be is refused in one line, which begins with its place."""

from __future__ import annotations

import pytest

from crossrank.errors import InputError
from tests.program.language.sources import WHERE, parse

REFUSED = [
    ("kernel", "while n > 0:\n    pass", "1:1", "while is no part of the language"),
    ("kernel", "for i in pl.range(4):\n    break", "2:5", "break is no part of the language"),
    ("kernel", "for i in pl.range(4):\n    if i == 2:\n        continue", "3:9", "continue is no part of the language"),
    ("kernel", "t = [i for i in SIZES]", "1:5", "a comprehension is no part of the language"),
    ("kernel", "f = lambda: 1", "1:5", "a lambda is no part of the language"),
    ("kernel", "def inner():\n    pass", "1:1", "a function within a function is no part of the language"),
    ("kernel", "try:\n    pass\nfinally:\n    pass", "1:1", "try is no part of the language"),
    ("kernel", "import math", "1:1", "import is no part of the language"),
    ("kernel", "t = q + 1", "1:5", "q is not defined"),
    ("kernel", "t = n + M", "1:5", "nothing says what M is: no parameter of kernel has it as an extent"),
    ("kernel", "t = pl.laod(x, [0, 0], [4, 8])", "1:5", "pl.laod: crossrank.program.language has no laod"),
    ("kernel", "pld.system.notify(w, 0, [0, 0], 1)", "1:1", "pld.system.notify needs op=…"),
    ("kernel", "t = pl.load(x, [2**63, 0], [1, 8])", "1:5", "9223372036854775808 is no Scalar[INDEX]"),
    ("kernel", "t = 10 ** 10 ** 9", "1:5", "** would give a number of some 4000000000 bits"),
    ("kernel", "t = 1 << 10 ** 6", "1:5", "<< would give a number of some 1000001 bits"),
    ("kernel", "t = sum(range(10 ** 12))", "1:5", "sum would take too long: it is worked out before anything runs"),
    ("kernel", "t = [0] * 10 ** 11", "1:5", "list times int has too many items"),
    ("kernel", "t = x.size", "1:5", "Tensor[[4, 8], FP32] has no size"),
    ("kernel", "if n > 0:\n    t = 1\nm = t", "3:5", "t is bound in one arm of the if of line 11 only"),
    ("kernel", "if n > 0:\n    t = 1\nelse:\n    t = n * 1.5\nm = t", "4:9", "* of Scalar[INT32] and 1.5"),
    (
        "kernel",
        "if n > 0:\n    t = pl.load(x, [0, 0], [1, 8])\n"
        "else:\n    t = pl.load(x, [0, 0], [2, 8])\npl.store(t, [0, 0], y)",
        "5:10",
        "t is Tile[[1, 8], FP32] and Tile[[2, 8], FP32] in the arms of the if of line 11",
    ),
    (
        "kernel",
        "for i in pl.range(n):\n    t = i\nm = t",
        "3:5",
        "t is bound only in the loop of line 11, which may have no turn",
    ),
    (
        "kernel",
        "for i in pl.range(n):\n    pass\nm = i",
        "3:5",
        "i is bound only in the loop of line 11, which may have no turn",
    ),
    (
        "kernel",
        "t = pl.const(0, pl.INT32)\nfor i in pl.range(4):\n    t = t + i\nm = t",
        "3:9",
        "t is Scalar[INT32] before the loop of line 12, and Scalar[INDEX] after a turn",
    ),
    (
        "kernel",
        "for i, (t,) in pl.range(4, init_values=(n,)):\n    u = pl.yield_(t + i)",
        "2:5",
        "t is Scalar[INT32] before the loop of line 11, and Scalar[INDEX] after a turn",
    ),
    (
        "kernel",
        "for i, (t,) in pl.range(4, init_values=(n,)):\n    t = t + 1",
        "2:5",
        "the loop hands on 1 value, and pl.yield_ gives 0",
    ),
    ("kernel", "for i, (t,) in pl.range(4):\n    pass", "1:5", "a loop without init_values has one name"),
    ("kernel", "for i in range(4):\n    pass", "1:10", "for … in range(4): a loop runs over pl.range"),
    (
        "kernel",
        "for i in pl.range(4, 0, -1):\n    pass",
        "1:10",
        "range(): the step must be a positive number that is known here",
    ),
    ("kernel", "for i in pl.unroll(n):\n    pass", "1:10", "unroll(): the bounds must be numbers that are known here"),
    ("kernel", "for i in pl.range():\n    pass", "1:10", "range() takes 1 to 3 positional arguments, got 0"),
    ("kernel", "for i in pl.range(4):\n    return y", "2:5", "return stands in the loop of line 11"),
    (
        "kernel",
        "for i in pl.unroll(4):\n    if n == i:\n        return y",
        "3:9",
        "return stands in the loop of line 11",
    ),
    ("kernel", "if n > 0:\n    return y", "1:1", "the if of line 11 returns 1 value or 0 values, by its arm"),
    (
        "kernel",
        "if n > 0:\n    return y\nreturn w",
        "1:1",
        "the if of line 11 returns Tensor[[4, 8], FP32] or DistributedTensor[[NR, 1], INT32], by its arm",
    ),
    (
        "chip",
        "with pl.manual_scope():\n    if n > 0:\n        return\nx[0]",
        "2:5",
        "one arm of the if of line 15 returns, and the other one goes on behind this block",
    ),
    ("kernel", "return pl.load(x, [0, 0], [4, 8])", "1:1", "kernel returns Tile[[4, 8], FP32]"),
    ("kernel", "t = n + pl.read(x, [0, 0])", "1:5", "+ of Scalar[INT32] and Scalar[FP32]"),
    ("kernel", "t = n / 2", "1:5", "/ is not there for Scalar[INT32]"),
    ("kernel", "t = x[0, 0, 0]", "1:5", "Tensor[[4, 8], FP32] has 2 dimensions, and is given 3 indices"),
    ("kernel", "t = x[4]", "1:7", "4:5 lies beyond dimension 0, whose extent is 4"),
    ("kernel", "t = x[-1]", "1:7", "-1 is negative"),
    ("kernel", "t = x[0:4:2]", "1:7", "a slice has no step"),
    ("kernel", "t = SIZES[n]", "1:5", "SIZES[n]: list is indexed by what is known only when the program runs"),
    ("kernel", "SIZES[0] = 4", "1:1", "list does not change: it is Python's"),
    ("kernel", "y[0:2, 0:8] = x[0:3, 0:8]", "1:1", "a part of extents [2, 8] cannot become what has extents [3, 8]"),
    ("kernel", "y[0:n, 0:8] = x", "1:1", "this part has extents that are known only when the program runs"),
    ("kernel", "a, b = x.shape, 1, 2", "1:1", "2 names for 3 values"),
    ("kernel", "a, *b = x.shape", "1:4", "a starred name is no part of the language"),
    ("kernel", "t = pl.add(x, 1 << 1100)", "1:5", "a number of 1101 bits is no Scalar[FP32]"),
    ("kernel", "t = n + (1 << 20000)", "1:5", "a number of 20001 bits is no Scalar[INT32]"),
    ("kernel", "t: pl.Scalar[pl.FP32] = n", "1:4", "Scalar[INT32] does not become Scalar[FP32] by itself"),
    (
        "kernel",
        "t: pl.Tile[[4, 4], pl.FP32] = pl.load(x, [0, 0], [4, 8])",
        "1:4",
        "this is Tile[[4, 8], FP32], and the name is declared as Tile[[4, 4], FP32]",
    ),
    ("kernel", "t = divmod(1, 0)", "1:5", "ZeroDivisionError: integer division or modulo by zero"),
    ("kernel", "t = helper(1)", "1:5", "helper is plain Python, which a body does not run"),
    ("kernel", "with open('made', 'w'):\n    pass", "1:6", "open is plain Python, which a body does not run"),
    ("kernel", "SIZES.append(3)", "1:1", "SIZES.append is plain Python, which a body does not run"),
    ("kernel", "__import__('os').getcwd()", "1:1", "__import__ is plain Python, which a body does not run"),
    ("kernel", "t = helper(n)", "1:5", "helper is plain Python, and is given what is known only when the program runs"),
    ("kernel", "assert n > 0", "1:1", "assert of what is known only when the program runs"),
    ("kernel", "assert len(SIZES) == 3, f'{len(SIZES)} sizes'", "1:1", "2 sizes"),
    ("kernel", "t = pl.const(1 << 40, pl.INT32)", "1:5", "1099511627776 is no Scalar[INT32]"),
    ("kernel", "self.kernel(x, n, w, y)", "1:1", "a kernel cannot call kernel, which is of type InCore"),
    ("kernel", "pld.world_size()", "1:1", "pld.world_size stands in a HOST orchestrator, and this is a kernel"),
    (
        "kernel",
        "with pl.at(level=pl.Level.CORE_GROUP):\n    pass",
        "1:6",
        "pl.at stands in a HOST orchestrator or a CHIP orchestration, and this is a kernel",
    ),
    (
        "chip",
        "self.kernel(x, n, w)\nself.kernel(x, n)",
        "2:1",
        "self.kernel is not given w, which is DistributedTensor[[NR, 1], INT32]",
    ),
    ("chip", "self.kernel(x, n, w, y, y)", "1:1", "self.kernel is given 5 arguments"),
    ("chip", "self.kernel(x, n, w, y, z=1)", "1:1", "self.kernel has no parameter z"),
    ("chip", "self.kernel(x, n, w, y, x=x)", "1:1", "self.kernel is given x twice"),
    (
        "chip",
        "self.kernel(x[0:2], n, w, y)",
        "1:1",
        "self.kernel: x is Tensor[[4, 8], FP32], and is given Tensor[[2, 8], FP32]",
    ),
    ("chip", "self.kernel(x, x, w, y)", "1:1", "self.kernel: n is Scalar[INT32], and is given Tensor[[4, 8], FP32]"),
    (
        "chip",
        "self.kernel(x, n, x, y)",
        "1:1",
        "self.kernel: w is DistributedTensor[[NR, 1], INT32], and is given Tensor[[4, 8], FP32]",
    ),
    (
        "chip",
        "self.kernel(x, n, w, y, device=0)",
        "1:1",
        "self.kernel: device= says where a chip function runs, and it is of type InCore",
    ),
    ("chip", "self.kernel(x, n, w, y, deps=[])", "1:1", "deps= is for pl.submit"),
    ("chip", "self.kernel(x, n, w, y, core_num=0)", "1:1", "core_num must be a positive integer, got 0"),
    ("chip", "pl.submit(self.kernel, x, n, w, y, deps=[x])", "1:1", "pl.submit: deps has what is no task"),
    ("chip", "self.kernl(x, n, w, y)", "1:1", "self.kernl: program P has no kernl"),
    ("chip", "t = x + 1.0", "1:5", "pl.add of tensors stands in a kernel, and this is a CHIP orchestration"),
    (
        "chip",
        "with pl.at(level=pl.Level.CORE_GROUP):\n    t = (pl.read(x, [0, 0]), 1)\nm = t",
        "3:5",
        "t is tuple within the with of line 14, and is not there behind it",
    ),
    (
        "chip",
        "with pl.at(level=pl.Level.CORE_GROUP):\n    t = pl.read(x, [0, 0])\nm = t",
        "3:5",
        "t is Scalar[FP32] within the with of line 14, and is not there behind it",
    ),
    ("chip", "with pl.at(level=pl.Level.CHIP):\n    pass", "1:1", "pl.at(level=CHIP) stands in a CHIP orchestration"),
    ("chip", "with max(1, 2):\n    pass", "1:6", "with max(1, 2): this is no scope"),
    (
        "host",
        "with pl.at(level=pl.Level.CORE_GROUP):\n    pass",
        "1:1",
        "pl.at(level=CORE_GROUP) stands in a HOST orchestrator",
    ),
    ("host", "self.kernel(x[0], 1, x, y[0])", "1:1", "a HOST orchestrator cannot call kernel, which is of type InCore"),
    (
        "host",
        "self.chip(x[0], 1, x[0], y[0], device=0)",
        "1:1",
        "self.chip: w is DistributedTensor[[NR, 1], INT32], and is given Tensor[[4, 8], FP32]",
    ),
    (
        "host",
        "self.chip(x[0], 1, x[0], y[0], device=x)",
        "1:1",
        "self.chip: device is a number, and this is Tensor[[2, 4, 8], FP32]",
    ),
    (
        "host",
        "a = pld.alloc_window_buffer([8], dtype=pl.INT32)\nb = pld.alloc_window_buffer([8], dtype=pl.INT32)\n"
        "w = pld.window(a, [8], dtype=pl.INT32)\nfor i in pl.range(2):\n    w = pld.tensor.barrier(w)\n"
        "    w = pld.window(b, [8], dtype=pl.INT32)",
        "5:28",
        "w is DistributedTensor[[8], INT32] of a before the loop of line 20, and DistributedTensor[[8], INT32] of b "
        "after a turn",
    ),
]
"""A function, its statements, the place within them, and what is said first."""

REMEDIES = {
    ("kernel", "pld.world_size()"): "put it there: the HOST orchestrator is the function with level=pl.Level.HOST, "
    "role=pl.Role.Orchestrator",
    ("host", "pl.spmd(2)"): "put it there: a CHIP orchestration is a function of type Orchestration",
    ("kernel", "pld.tensor.allreduce(w)"): "give it one: signal=…; or put it there: the HOST orchestrator is the "
    "function with level=pl.Level.HOST, role=pl.Role.Orchestrator",
    ("kernel", "pld.WaitCmp.Gt"): "it has Eq, Ge",
    ("kernel", "pl.laod"): "did you mean load?",
    ("kernel", "pl.FP8"): "did you mean FP64 or FP32 or FP16?",
}
"""What to do instead."""


@pytest.mark.parametrize(("function", "statements"), REMEDIES, ids=[statements for _, statements in REMEDIES])
def test_what_to_do_instead(function: str, statements: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(**{function: statements})
    assert caught.value.remedy == REMEDIES[function, statements]


@pytest.mark.parametrize(("function", "statements", "place", "said"), REFUSED, ids=[r[1] for r in REFUSED])
def test_refused(function: str, statements: str, place: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(**{function: statements})
    line, column = map(int, place.split(":"))
    assert caught.value.what == f"p.py:{WHERE[function] + line - 1}:{column + 8}: {said}"
