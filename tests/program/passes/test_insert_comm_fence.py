"""Fences of kernels: what follows writes, calls and waits, and what does not."""

from __future__ import annotations

import pytest
from xdsl.rewriter import Rewriter

from crossrank.program.dialect.remote import FenceOp
from crossrank.program.passes.insert_comm_fence import InsertCommFence
from crossrank.program.program import Program

from .texts import becomes, program, reasons, refused, run

PASS = InsertCommFence.name
HEAD = "@k(%w: !w (InOut), %v: !w (In), %s: !s (InOut), %x: !t (InOut), %p: index (In), %one: i32 (In)) KERNEL { "
LOAD = (
    "%c0 = arith.constant 0 : index %c1 = arith.constant 1 : index %c4 = arith.constant 4 : index "
    "%t = program.load %x[%c0, %c0] valid [] : !t -> !tile "
)
WAIT = 'program.wait %s[%{}, %c0], %one cmp "Ge" : !s '
NOTIFY = 'program.notify %s at %p[%c0, %c0], %one op "AtomicAdd" : !s '
ALL = "program.cache_invalidate "
FENCE = "program.comm_fence "
PUT = '%d = program.put %w at %p from %x [] [] [] atomic "None_" chunks 0 0 : !w, !t '


def kernel(body: str) -> Program:
    subject = program(f"{HEAD}{LOAD}{body} func.return }}")
    subject.properties = ["CompositesLowered"]
    return subject


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("%a = program.store %t, %x[%c0, %c0] : !tile, !t ", ""),  # no window
        ("%a = program.store %t, %w[%c0, %c0] : !tile, !w ", "program.cache_invalidate of %w : !w " + FENCE),
        (
            "%u = program.slice %w[%c0, %c0] sizes [%c4, %c4] drop [] : !w -> !w "
            "%a = program.assemble %u, %x[%c0, %c0] : !w, !t ",
            "program.cache_invalidate of %u : !w " + FENCE,
        ),
        ("program.write %s[%c0, %c0], %one : !s, i32 ", "program.cache_invalidate of %s : !s " + FENCE),
        (
            PUT.replace("put", "get").replace("%x", "%v").replace("!t", "!w"),
            "program.cache_invalidate of %w : !w " + FENCE,
        ),
        (PUT.replace("put %w", "get %x").replace("from %x", "from %w").replace("!w, !t", "!t, !w"), ""),
        (PUT, FENCE),
        ("%a = program.remote_store %t, %w at %p[%c0, %c0] atomic \"Add\" : !tile, !w ", FENCE),
        ("%tid = program.call @q(%x) : (!t) -> () ", ALL + FENCE),
        (NOTIFY, ""),
        ("%l = program.remote_load %w at %p[%c0, %c0] valid [] : !w -> !tile ", ""),
        (WAIT.format("c0"), ALL),
        (WAIT.format("c0") + WAIT.format("c1"), ALL),
        (WAIT.format("c0") + "%n = arith.addi %c1, %c1 : index " + WAIT.format("n"), ALL),
        (WAIT.format("c0") + "scf.for %i = %c0 to %c4 step %c1 { " + WAIT.format("i") + "} ", ALL),
        (
            "scf.for %i = %c0 to %c4 step %c1 { %n = arith.cmpi ne, %i, %p : index scf.if %n { "
            + WAIT.format("i") + "} } ",
            ALL,
        ),
    ],
)  # fmt: skip
def test_what_follows(before: str, after: str) -> None:
    other = "@q(%x: !t (In)) CHIP { func.return }"
    subject = program(f"{HEAD}{LOAD}{before}{NOTIFY} func.return }}", other)
    subject.properties = ["CompositesLowered"]
    becomes(subject, PASS, f"{HEAD}{LOAD}{before}{after}{NOTIFY} func.return }}", other)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "scf.for %i = %c0 to %c4 step %c1 { {w}{n}}",
            "scf.for %i = %c0 to %c4 step %c1 { {w}program.cache_invalidate {n}}",
        ),
        ("{w}{n}{w}", "{w}program.cache_invalidate {n}{w}program.cache_invalidate "),
        (
            "%q = arith.cmpi eq, %p, %c0 : index scf.if %q { {w}} else { {n}}",
            "%q = arith.cmpi eq, %p, %c0 : index scf.if %q { {w}program.cache_invalidate } else { {n}}",
        ),
        ("{w}%l = program.read %s[%c0, %c0] : !s -> i32 {w}", None),
    ],
)
def test_what_comes_between_waits(before: str, after: str | None) -> None:
    def fill(text: str) -> str:
        return text.replace("{w}", WAIT.format("c0")).replace("{n}", NOTIFY)

    if after is None:
        after = before.replace("{w}", "{w}program.cache_invalidate ")
    becomes(kernel(fill(before)), PASS, f"{HEAD}{LOAD}{fill(after)} func.return }}")


def test_it_tells_where() -> None:
    subject = kernel(PUT.rstrip() + ' loc("k.py":4:5) ' + WAIT.format("c0").rstrip() + ' loc("k.py":5:5)')
    assert reasons(run(subject, PASS)) == [
        "done: k (k.py:4:5): fence after a remote write",
        "done: k (k.py:5:5): invalidate after a wait",
    ]


def test_what_orchestrates_needs_none() -> None:
    subject = program(
        "@chip(%w: !w (InOut), %x: !t (In)) CHIP { %c0 = arith.constant 0 : index "
        "%a = program.assemble %w, %x[%c0, %c0] : !w, !t func.return }"
    )
    subject.properties = ["CompositesLowered"]
    assert not run(subject, PASS)[0].changed


def test_a_fence_that_is_taken_away_is_found() -> None:
    subject = kernel(PUT.rstrip() + ' loc("k.py":4:5)')
    run(subject, PASS)
    (fence,) = [op for op in subject.module.walk() if isinstance(op, FenceOp)]
    Rewriter.erase_op(fence)
    refused(
        subject,
        "legalize-spmd-launches",
        "after pass legalize-spmd-launches the program does not have CommFencesInserted: k.py:4:5: no fence after a "
        "remote write in function k",
    )
