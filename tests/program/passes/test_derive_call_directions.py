"""What calls do to their arguments: the table row by row, wrappers, and what is kept."""

from __future__ import annotations

import pytest

from crossrank.program.dialect.calls import CallOp
from crossrank.program.passes.derive_call_directions import DeriveCallDirections
from crossrank.program.program import Program

from .texts import program, reasons, refused, run

PASS = DeriveCallDirections.name
KERNELS = (
    "@put(%o: !t (Out)) -> (!t) KERNEL { func.return %o : !t }",
    "@add(%a: !t (In), %b: !t (InOut), %n: index (In)) -> (!t) KERNEL { func.return %b : !t }",
)
PUT = "%r{0}, %t{0} = program.call @put(%{1}) : (!t) -> (!t)"


def chip(body: str) -> Program:
    """A chip function with that body, and its kernels; the last call is what matters."""
    head = "@chip(%x: !t (In), %y: !t (Out), %z: !t (InOut), %n: index, %q: i1) CHIP { "
    numbers = "%c0 = arith.constant 0 : index %c1 = arith.constant 1 : index %c4 = arith.constant 4 : index "
    return program(*KERNELS, f"{head}{numbers}{body} func.return }}")


def directions(subject: Program) -> list[list[str]]:
    return [[str(d) for d in op.directions or []] for op in subject.module.walk() if isinstance(op, CallOp)]


def test_read_changed_and_no_tensor() -> None:
    subject = chip("%r, %t = program.call @add(%x, %y, %n) : (!t, !t, index) -> (!t)")
    results = run(subject, PASS)
    assert directions(subject) == [["Input", "InOut", "Scalar"]]
    assert reasons(results) == ["done: add: Input, InOut, Scalar"]
    results = run(subject, PASS)
    assert not results[0].changed
    assert reasons(results) == ["declined: add: it has directions already"]


@pytest.mark.parametrize(
    ("body", "overwrites"),
    [
        (PUT.format("", "y"), True),
        (PUT.format("", "z"), False),  # the caller was given it as InOut
        (PUT.format("0", "x") + PUT.format("", "y"), True),  # another buffer
        (PUT.format("0", "y") + PUT.format("", "y"), False),
        (PUT.format("0", "y") + PUT.format("", "r0"), False),  # what a call gives back is its argument
        ("%r0, %t0 = program.call @add(%y, %z, %n) : (!t, !t, index) -> (!t)" + PUT.format("", "y"), True),  # a reader
        ("%r0, %t0 = program.call @add(%x, %y, %n) : (!t, !t, index) -> (!t)" + PUT.format("", "y"), False),
        ("%k = arith.constant 1.0 : f32 program.write %y[%c0, %c0], %k : !t, f32 " + PUT.format("", "y"), False),
        ("%a = program.assemble %y, %x[%c0, %c0] : !t, !t " + PUT.format("", "a"), False),
        ("scf.if %q { " + PUT.format("0", "y") + " } " + PUT.format("", "y"), False),
        ("scf.if %q { " + PUT.format("0", "y") + " } else { " + PUT.format("", "y") + " }", True),
        (PUT.format("0", "y") + " scf.if %q { " + PUT.format("", "y") + " }", False),
        ("scf.for %i = %c0 to %n step %c1 { " + PUT.format("", "y") + " }", False),
        ("scf.for %i = %c0 to %n step %c1 { " + PUT.format("", "y") + " } {program.parallel}", True),
        ("scf.for %i = %c0 to %n step %c1 { " + PUT.format("0", "y") + " } " + PUT.format("", "y"), False),
        ("%new = program.create_tensor %c4, %c4 : !t " + PUT.format("", "new"), True),
        (
            "%s = program.slice %y[%c0, %c0] sizes [%c4, %c4] drop [] : !t -> !t " + PUT.format("0", "s")
            + PUT.format("", "y"),
            False,
        ),
        (
            "%w = scf.if %q -> (!t) { scf.yield %x : !t } else { scf.yield %y : !t } " + PUT.format("", "w"),
            False,  # one of two buffers
        ),
        (
            "%w = scf.if %q -> (!t) { scf.yield %y : !t } else { " + PUT.format("0", "y") + " scf.yield %r0 : !t } "
            "%new = program.create_tensor %c4, %c4 : !t " + PUT.format("", "new"),
            True,
        ),
    ],
)  # fmt: skip
def test_what_is_only_written(body: str, overwrites: bool) -> None:
    subject = chip(body)
    run(subject, PASS)
    assert directions(subject)[-1] == ["OutputExisting" if overwrites else "InOut"]


def test_the_author_has_the_last_word() -> None:
    call = "program.call @add(%x, %y, %n)"
    kept = f'%r, %t = {call} directions ["NoDep", "OutputExisting", "Scalar"] : (!t, !t, index) -> (!t)'
    marked = f'%r1, %t1 = {call} no_dep ["a", "n"] : (!t, !t, index) -> (!t)'
    subject = chip(f"{kept} {marked}")
    run(subject, PASS)
    assert directions(subject) == [["NoDep", "OutputExisting", "Scalar"], ["NoDep", "InOut", "Scalar"]]


def test_wrappers_do_what_their_kernels_do() -> None:
    """To a fixed point: the outer wrapper stands before the inner one, on which it depends."""
    subject = program(
        "@chip(%x: !t (In), %y: !t (Out), %z: !t (InOut), %n: index) CHIP { "
        "%t = program.call @outer(%x, %y, %z, %n) : (!t, !t, !t, index) -> () func.return }",
        "@outer(%a: !t (In), %b: !t (In), %c: !t (In), %n: index) SPMD { "
        "%t = program.call @inner(%a, %b, %c, %n) : (!t, !t, !t, index) -> () func.return }",
        "@inner(%a: !t (In), %b: !t (In), %c: !t (In), %n: index) SPMD { "
        "%r, %t = program.call @put(%b) : (!t) -> (!t) "
        "%s, %u = program.call @add(%a, %c, %n) : (!t, !t, index) -> (!t) func.return }",
        *KERNELS,
    )
    results = run(subject, PASS)
    assert directions(subject)[0] == ["Input", "OutputExisting", "InOut", "Scalar"]
    assert [p.direction for p in subject.function("outer").params] == ["In", "Out", "InOut", "In"]
    assert reasons(results)[:2] == ["done: outer: b is Out, not In", "done: outer: c is InOut, not In"]


def test_what_is_written_is_no_mere_input() -> None:
    """Whatever its author declares: by a function, and by who hands it to that function."""
    subject = program(
        "@host(%w: !w (In), %n: index) HOST { %t = program.call @chip(%w) device %n : (!w) -> () func.return }",
        "@chip(%w: !w (In)) CHIP { %t = program.call @push(%w) : (!w) -> () "
        "%u = program.call @pull(%w, %w) : (!w, !w) -> () func.return }",
        "@push(%w: !w (In)) KERNEL { %c0 = arith.constant 0 : index "
        "%tile = program.load %w[%c0, %c0] valid[] : !w -> !tile "
        '%r = program.remote_store %tile, %w at %c0[%c0, %c0] atomic "None_" : !tile, !w func.return }',
        "@pull(%w: !w (In), %o: !w (Out)) KERNEL { func.return }",
    )
    run(subject, PASS)
    assert directions(subject) == [["InOut"], ["InOut"], ["Input", "InOut"]]


def test_what_a_worker_gives_back() -> None:
    """A declaration gives back what it writes."""
    subject = program(
        "private @sum(!t, !t) -> (!t) WORKER, "
        'program.params = [{program.name = "a", program.direction = "In"}, '
        '{program.name = "o", program.direction = "Out"}]}',
        "@host(%x: !t (In), %y: !t (Out)) HOST { %r, %t = program.call @sum(%x, %y) : (!t, !t) -> (!t) "
        "%s, %u = program.call @sum(%x, %r) : (!t, !t) -> (!t) func.return }",
    )
    run(subject, PASS)
    assert directions(subject) == [["Input", "OutputExisting"], ["Input", "InOut"]]


def test_calls_that_cannot_be() -> None:
    refused(
        chip('%t = program.call @nothing(%x) : (!t) -> () loc("a.py":3:9)'),
        PASS,
        "a.py:3:9: the program has no function nothing",
    )
    refused(
        chip('%r, %t = program.call @add(%x) : (!t) -> (!t) loc("a.py":3:9)'),
        PASS,
        "a.py:3:9: call of add: it has 3 parameters, and is given 1",
        "pass every parameter, those that it writes too",
    )


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ('["Scalar", "InOut", "Scalar"]', "says Scalar of 'a', which is a tensor"),
        ('["Input", "InOut", "Input"]', "says Input of 'n', which is no tensor"),
        ('["Input", "Input", "Scalar"]', "says Input of 'b', which the callee writes"),
    ],
)
def test_directions_that_cannot_be_are_found(said: str, fault: str) -> None:
    subject = chip(f"%r, %t = program.call @add(%x, %y, %n) directions {said} : (!t, !t, index) -> (!t)")
    refused(
        subject,
        PASS,
        f"after pass {PASS} the program does not have CallDirectionsResolved: the call of add {fault}",
    )
