"""What statements become: a function's statements, and the ops that it has."""

from __future__ import annotations

import pytest

from crossrank.program.program import read_program
from tests.program.language.sources import WHERE, lines, parse

TABLE = {
    "parts": (
        "kernel",
        "t = x[1]\nu = x[1:3, n:n + 4]\nv = x[2:]\ny[0:2, 4:8] = u\ny[n, 0] = x[0, n]",
        [
            "%t = program.slice %x[1, 0] sizes[1, 8] drop [0]",
            "%3 = arith.index_cast %n",
            "%u = program.slice %x[1, %3] sizes[2, 4] drop []",
            "%v = program.slice %x[2, 0] sizes[2, 8] drop []",
            "%6 = program.load %u[0, 0] valid[]",
            "%y_1 = program.store %6, %y[0, 4]",
            "%7 = arith.index_cast %n",
            "%8 = program.read %x[0, %7]",
            "%9 = arith.index_cast %n",
            "program.write %y_1[%9, 0], %8",
            "func.return",
        ],
    ),
    "a loop hands on what it binds again": (
        "kernel",
        "acc = 0.0\nt = pl.load(x, [0, 0], [1, 8])\nfor i in pl.range(NR):\n    for j in pl.parallel(i, n, 2):\n"
        "        acc = acc + x[j, 0]\n        s = t * acc\n        w[0, 0] = j\nreturn pl.store(t, [0, 0], y)",
        [
            "%t = program.load %x[0, 0] valid[]",
            '%1 = program.symbol "NR"',
            "%acc = scf.for %i = 0 to %1 step 1 iter_args(%acc_1 = 0.000000e+00) {",
            "%4 = arith.index_cast %n",
            "%acc_2 = scf.for %j = %i to %4 step 2 iter_args(%acc_3 = %acc_1) {",
            "%7 = program.read %x[%j, 0]",
            "%acc_4 = arith.addf %acc_3, %7",
            '%s = program.binary "mul" %t, %acc_4',
            "%8 = arith.index_cast %j",
            "program.write %w[0, 0], %8",
            "scf.yield %acc_4",
            "} {program.parallel}",
            "scf.yield %acc_2",
            "%9 = program.store %t, %y[0, 0]",
            "func.return %9",
        ],
    ),
    "a loop with init_values": (
        "kernel",
        "for i, (a, b) in pl.range(0, 4, init_values=(y, 0)):\n    t = pl.load(x, [i, 0], [1, 8])\n"
        "    a = pl.store(t, [i, 0], a)\n    c, d = pl.yield_(a, b + n)\nw[0, 0] = d\nreturn c",
        [
            "%c, %d = scf.for %i = 0 to 4 step 1 iter_args(%a = %y, %b = 0) {",
            "%t = program.load %x[%i, 0] valid[]",
            "%a_1 = program.store %t, %a[%i, 0]",
            "%4 = arith.index_cast %n",
            "%5 = arith.addi %b, %4",
            "scf.yield %a_1, %5",
            "%6 = arith.index_cast %d",
            "program.write %w[0, 0], %6",
            "func.return %c",
        ],
    ),
    "arms that yield": (
        "kernel",
        "if n > 0:\n    t = pl.yield_(pl.load(x, [0, 0], [1, 8]))\n"
        "else:\n    t = pl.yield_(pl.load(x, [1, 0], [1, 8]))\nreturn pl.store(t, [0, 0], y)",
        [
            "%1 = arith.cmpi sgt, %n, 0",
            "%t = scf.if %1 {",
            "%t_1 = program.load %x[0, 0] valid[]",
            "scf.yield %t_1",
            "} else {",
            "%t_2 = program.load %x[1, 0] valid[]",
            "scf.yield %t_2",
            "%6 = program.store %t, %y[0, 0]",
            "func.return %6",
        ],
    ),
    "an arm, and what is not read behind it": (
        "kernel",
        "t = x[0, 0]\nfor i in pl.range(4):\n    if i == 2:\n        t = x[i, 0]\n        y[i, 0:8] = x[i]\n"
        "        y[i, 0] = t\nreturn y",
        [
            "%t = program.read %x[0, 0]",
            "%y_1 = scf.for %i = 0 to 4 step 1 iter_args(%y_2 = %y) {",
            "%4 = arith.cmpi eq, %i, 2",
            "%y_3 = scf.if %4 {",
            "%t_1 = program.read %x[%i, 0]",
            "%8 = program.slice %x[%i, 0] sizes[1, 8] drop [0]",
            "%9 = program.load %8[0] valid[]",
            "%y_4 = program.store %9, %y_2[%i, 0]",
            "program.write %y_4[%i, 0], %t_1",
            "scf.yield %y_4",
            "} else {",
            "scf.yield %y_2",
            "scf.yield %y_3",
            "func.return %y_1",
        ],
    ),
    "calls": (
        "chip",
        "self.kernel(x, n, w, y)\nself.kernel(x, y=y, n=2, w=w, core_num=3)",
        [
            "%0 = program.call @kernel(%x, %n, %w, %y)",
            "%3 = program.call @kernel(%x, 2, %w, %y) core_num 3",
            "func.return",
        ],
    ),
    "an Out parameter that is left away is made": (
        "chip",
        "self.kernel(x, n, w)",
        ["%y_1 = program.create_tensor 4, 8", "%2 = program.call @kernel(%x, %n, %w, %y_1)", "func.return"],
    ),
    "scopes of calls": (
        "chip",
        "with pl.manual_scope():\n    with pl.spmd(n, sync_start=True):\n"
        "        task = pl.submit(self.kernel, x, n, w, y, deps=[None])\n"
        "pl.spmd_submit(self.kernel, x, n, pl.no_dep(w), y, core_num=4, deps=[task])",
        [
            "%0 = arith.index_cast %n",
            "%task = program.call @kernel(%x, %n, %w, %y) core_num %0 sync_start manual",
            '%2 = program.call @kernel(%x, %n, %w, %y) core_num 4 deps[%task] no_dep ["w"]',
            "func.return",
        ],
    ),
    "dispatches": (
        "host",
        "buffer = pld.alloc_window_buffer(4 * pld.world_size())\nfor r in pl.range(pld.world_size()):\n"
        "    w = pld.window(buffer, [pld.world_size()], dtype=pl.INT32)\n"
        "    v = pld.window(buffer, [1, 1], dtype=pl.INT32)\n"
        "    self.chip(x[r], r, v, y[r], device=r)",
        [
            "%0 = program.world_size",
            "%2 = arith.muli 4, %0",
            '%buffer = program.alloc_window_buffer "buffer", %2',
            "%3 = program.world_size",
            "scf.for %r = 0 to %3 step 1 {",
            "%6 = program.world_size",
            "%w = program.window %buffer[%6]",
            "%v = program.window %buffer[1, 1]",
            "%11 = program.slice %x[%r, 0, 0] sizes[1, 4, 8] drop [0]",
            "%12 = program.slice %y[%r, 0, 0] sizes[1, 4, 8] drop [0]",
            "%13 = arith.index_cast %r",
            "%14 = program.call @chip(%11, %13, %v, %12) device %r",
            "func.return",
        ],
    ),
}
"""A function, its statements, its ops."""


@pytest.mark.parametrize(("function", "statements", "ops"), TABLE.values(), ids=TABLE)
def test_ops(function: str, statements: str, ops: list[str]) -> None:
    program = parse(**{function: statements})
    assert lines(program, function) == ops
    assert str(read_program(program.text(locations=True))) == str(program)


def test_scopes_become_functions() -> None:
    """What a scope needs from around are its parameters; what it writes and is read behind it comes back."""
    program = parse(
        chip="m = 4\nwith pl.at(level=pl.Level.CORE_GROUP) as first:\n    t = x + 1.0\n    u = t * 2.0\n"
        "    w[NR - 1, 0] = n\n"
        "with pl.at(level=pl.Level.CORE_GROUP, name_hint='second', deps=[first]):\n    y[0:m, 0:8] = u\nreturn y",
        host="with pl.at(level=pl.Level.CHIP, role=pl.Role.Orchestrator):\n    one = x[0]\n"
        "    with pl.at(level=pl.Level.CORE_GROUP, name_hint='second'):\n        y[1, 0:4, 0:8] = one\nreturn y",
    )
    made = {f.name: [(p.name, str(p.direction)) for p in f.params] for f in program.functions if f.name not in WHERE}
    assert made == {
        "chip_incore": [("x", "In"), ("n", "In"), ("w", "InOut"), ("NR", "In"), ("u", "Out")],
        "second": [("u", "In"), ("y", "InOut")],
        "second_1": [("one", "In"), ("y", "InOut")],
        "host_chip": [("x", "In"), ("y", "InOut")],
    }
    assert lines(program, "chip") == [
        '%0 = program.symbol "NR"',
        "%u = program.create_tensor 4, 8",
        "%u_1, %first = program.call @chip_incore(%x, %n, %w, %0, %u)",
        "%y_1, %3 = program.call @second(%u_1, %y) deps[%first]",
        "func.return %y_1",
    ]
    assert lines(program, "host") == [
        "%y_1, %0 = program.call @host_chip(%x, %y)",
        "func.return %y_1",
    ]


def test_a_loop_whose_types_are_found_late() -> None:
    """A kernel in the body of a loop that is parsed again, since a number takes another type, is made once."""
    program = parse(
        chip="seen = 0\nfor i in pl.range(4):\n    with pl.at(level=pl.Level.CORE_GROUP):\n        y[0:4, 0:8] = x\n"
        "    seen = w[0, 0]\nif seen > 1:\n    self.kernel(x, n, w, y)"
    )
    assert [f.name for f in program.functions] == ["kernel", "chip_incore", "chip", "host"]
