"""Which task comes after which: hazards, boxes, what is covered, and when all is left to the run."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from crossrank.program.dialect.calls import CallOp
from crossrank.program.passes.auto_derive_task_dependencies import AutoDeriveTaskDependencies
from crossrank.program.program import Program

from .texts import program, reasons, refused, run

PASS = AutoDeriveTaskDependencies.name
KERNELS = (
    "@read(%a: !u (In), %o: !u (Out)) -> (!u) KERNEL { func.return %o : !u }",
    "@change(%a: !u (InOut)) -> (!u) KERNEL { func.return %a : !u }",
    "@fill(%a: !u (Out)) -> (!u) KERNEL { func.return %a : !u }",
)
NUMBERS = "".join(f"%c{n} = arith.constant {n} : index " for n in (0, 1, 2, 4, 64))


def chip(body: str, *more: str) -> Program:
    head = "@chip(%x: !u (InOut), %y: !u (Out), %z: !u (Out), %n: index, %q: i1) CHIP { "
    return program(*KERNELS, f"{head}{NUMBERS}{body} func.return }}", *more)


def read(n: int, source: str, out: str, more: str = "") -> str:
    return f"%r{n}, %t{n} = program.call @read(%{source}, %{out}) {more} : (!u, !u) -> (!u) "


def change(n: int, buffer: str, more: str = "") -> str:
    return f"%r{n}, %t{n} = program.call @change(%{buffer}) {more} : (!u) -> (!u) "


def fill(n: int, buffer: str) -> str:
    return f"%r{n}, %t{n} = program.call @fill(%{buffer}) : (!u) -> (!u) "


TEXT: dict[str, Callable[..., str]] = {"read": read, "change": change, "fill": fill}


def edges(subject: Program) -> dict[str, list[str]]:
    """For each task those that it comes after; names are those of the text."""
    return {
        op.task.name_hint or "?": [d.name_hint or "?" for d in op.auto_deps]
        for op in subject.module.walk()
        if isinstance(op, CallOp)
    }


def directions(subject: Program) -> list[list[str]]:
    return [[str(d) for d in op.directions or []] for op in subject.module.walk() if isinstance(op, CallOp)]


def ordered(subject: Program) -> bool:
    """Run the pass after what it requires, twice; whether it changed anything."""
    changed = run(subject, f"derive-call-directions,{PASS}")[1].changed
    assert not run(subject, PASS)[0].changed
    return changed


def view(name: str, row: int, of: str = "x", rows: int = 2) -> str:
    """Some rows."""
    return f"%{name} = program.slice %{of}[%c{row}, %c0] sizes [%c{rows}, %c64] drop [] : !u -> !u "


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (change(0, "x") + read(1, "x", "y"), {"t0": [], "t1": ["t0"]}),  # read after write
        (read(0, "x", "y") + change(1, "x"), {"t0": [], "t1": ["t0"]}),  # write after read
        (fill(0, "y") + fill(1, "y"), {"t0": [], "t1": ["t0"]}),  # write after write
        (change(0, "x") + read(1, "r0", "y"), {"t0": [], "t1": ["t0"]}),  # what a call gives back
        (change(0, "x") + read(1, "x", "y") + change(2, "x"), {"t0": [], "t1": ["t0"], "t2": ["t1"]}),
        (
            change(0, "x") + read(1, "x", "y") + read(2, "x", "z") + change(3, "x"),
            {"t0": [], "t1": ["t0"], "t2": ["t0"], "t3": ["t1", "t2"]},
        ),
        (view("a", 0) + view("b", 1) + change(0, "a") + change(1, "b"), {"t0": [], "t1": ["t0"]}),
        (view("a", 0) + view("b", 2) + change(0, "a") + change(1, "b") + read(2, "x", "y"),
         {"t0": [], "t1": [], "t2": ["t0", "t1"]}),
        (  # a view of a view
            view("a", 2) + view("b", 1, "a", 1) + view("c", 0, "x", 2)
            + change(0, "b") + change(1, "c") + change(2, "a"),
            {"t0": [], "t1": [], "t2": ["t0"]},
        ),
        (change(0, "x") + change(1, "x", "deps [%t0]"), {"t0": [], "t1": []}),  # as its author says
        (change(0, "x") + read(1, "r0", "y", 'no_dep ["a"]'), {"t0": [], "t1": []}),
        (  # a branch that hands its task on
            change(0, "x") + "%g:2 = scf.if %q -> (!u, !task) { " + change(1, "x")
            + "scf.yield %r1, %t1 : !u, !task } else { %j = program.join [] "
            "scf.yield %x, %j : !u, !task } " + read(2, "g#0", "y"),
            {"t0": [], "t1": ["t0"], "t2": ["t0", "g"]},
        ),
        (  # two arms: never both
            "%g:1 = scf.if %q -> (!task) { " + change(0, "x") + "scf.yield %t0 : !task } else { " + change(1, "x")
            + "scf.yield %t1 : !task } " + change(2, "x"),
            {"t0": [], "t1": [], "t2": ["g"]},
        ),
        (  # a loop that reads
            change(0, "x") + "scf.for %i = %c0 to %n step %c1 { %o = program.create_tensor %c4, %c64 : !u "
            + read(1, "x", "o") + "}",
            {"t0": [], "t1": ["t0"]},
        ),
        (  # a loop that carries a buffer round as it is
            "%o = program.create_tensor %c4, %c64 : !u "
            "%e = scf.for %i = %c0 to %n step %c1 iter_args(%v = %o) -> (!u) { scf.yield %v : !u } "
            + fill(0, "o") + read(1, "e", "y"),
            {"t0": [], "t1": ["t0"]},
        ),
    ],
)  # fmt: skip
def test_who_comes_after_whom(body: str, found: dict[str, list[str]]) -> None:
    subject = chip(body)
    assert ordered(subject) is any(found.values())
    assert edges(subject) == found


def test_what_is_covered() -> None:
    subject = chip(change(0, "x") + read(1, "x", "y") + read(2, "y", "z") + change(3, "x"))
    results = run(subject, f"derive-call-directions,{PASS}")
    assert directions(subject) == [
        ["OutputExisting"],
        ["NoDep", "OutputExisting"],
        ["NoDep", "OutputExisting"],
        ["OutputExisting"],
    ]
    assert [r for r in reasons(results) if "comes" in r] == [
        "done: read: comes after 1 earlier task",
        "done: read: comes after 1 earlier task",
        "done: change: comes after 1 earlier task",
    ]
    alone = chip(read(0, "x", "y"))
    assert not ordered(alone)
    assert directions(alone) == [["Input", "OutputExisting"]]


@pytest.mark.parametrize(
    "body",
    [
        change(0, "x", "manual") + change(1, "x"),
        "%k = arith.constant 1.0 : f32 "
        + change(0, "x")
        + "program.write %x[%c0, %c0], %k : !u, f32 "
        + change(1, "x"),
    ],
)
def test_buffers_that_others_use_are_left_to_the_run(body: str) -> None:
    subject = chip(body)
    assert not ordered(subject)
    assert directions(subject) == [["InOut"], ["InOut"]]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            "%v = program.slice %x[%n, %c0] sizes [%c4, %c64] drop [] : !u -> !u " + change(0, "x") + change(1, "v"),
            "which elements argument 0 of change is, is known only when it runs",
        ),
        (
            "%v = scf.if %q -> (!u) { scf.yield %x : !u } else { scf.yield %y : !u } "
            + change(0, "x") + change(1, "v"),
            "which elements argument 0 of change is, is known only when it runs",
        ),
        (
            "scf.for %i = %c0 to %n step %c1 { " + change(0, "x") + "}",
            "each turn of a loop writes argument 0 of change",
        ),
        (
            "scf.for %i = %c0 to %n step %c1 { %o = program.create_tensor %c4, %c64 : !u " + read(0, "x", "o") + "} "
            + change(1, "x"),
            "change comes after a task in a loop or a branch that does not hand it on",
        ),
        (
            "scf.if %q { " + change(0, "x") + "} " + change(1, "x"),
            "change comes after a task in a loop or a branch that does not hand it on",
        ),
        (  # a reshape that is sliced
            "%f = program.reshape %x[%c64, %c4] : !u -> !program.tensor<[64, 4], f32> "
            "%v = program.slice %f[%c0, %c0] sizes [%c4, %c4] drop [] : !program.tensor<[64, 4], f32> -> !u "
            + change(0, "x") + change(1, "v"),
            "which elements argument 0 of change is, is known only when it runs",
        ),
    ],
)  # fmt: skip
def test_what_is_not_known_is_left_to_the_run(body: str, why: str) -> None:
    subject = chip(body)
    results = run(subject, f"derive-call-directions,{PASS}")
    assert not results[1].changed
    assert reasons(results[1:]) == [f"declined: chip: {why}"]
    assert all(
        "NoDep" not in d and not deps for d, deps in zip(directions(subject), edges(subject).values(), strict=True)
    )


@pytest.mark.parametrize(("second", "changed"), [("a", False), ("b", True)])
def test_parameters_that_are_one_buffer(second: str, changed: bool) -> None:
    host = (
        f"@host(%a: !u (InOut), %b: !u (InOut), %c: !u (InOut), %n: index, %q: i1) HOST {{ "
        f"%t = program.call @chip(%a, %{second}, %c, %n, %q) : (!u, !u, !u, index, i1) -> () func.return }}"
    )
    subject = chip(change(0, "x") + read(1, "x", "y"), host)
    assert ordered(subject) is changed


def test_a_function_whose_tasks_are_those_of_another() -> None:
    outer = (
        "@outer(%a: !u (InOut), %b: !u (InOut), %c: !u (InOut), %n: index, %q: i1) CHIP { "
        '%t = program.call @chip(%a, %b, %c, %n, %q) : (!u, !u, !u, index, i1) -> () loc("a.py":7:5) func.return }'
    )
    subject = chip(change(0, "x") + change(1, "x"), outer)
    results = run(subject, f"derive-call-directions,{PASS}")
    assert reasons(results[1:]) == ["declined: chip (a.py:7:5): its tasks are among those of outer"]


def test_random_chains_keep_every_hazard() -> None:
    """By brute force: whatever must not be exchanged is connected, and nothing else is."""
    rng = random.Random(5)
    for _ in range(20):
        calls = []
        for _ in range(rng.randrange(2, 9)):
            a, b = rng.sample("xyz", 2)
            calls.append(rng.choice([("read", a, b), ("change", a), ("fill", a)]))
        subject = chip("".join(TEXT[kind](n, *given) for n, (kind, *given) in enumerate(calls)))
        ordered(subject)
        reads = [{c[1]} if c[0] != "fill" else set() for c in calls]
        writes = [{c[-1]} for c in calls]
        direct = {int(k[1:]): {int(d[1:]) for d in v} for k, v in edges(subject).items()}
        closed: list[set[int]] = []
        wanted: list[set[int]] = []
        for n in range(len(calls)):
            conflicts = {m for m in range(n) if writes[m] & (reads[n] | writes[n]) or reads[m] & writes[n]}
            closed.append(direct[n] | {i for m in direct[n] for i in closed[m]})
            wanted.append(conflicts | {i for m in conflicts for i in wanted[m]})
        assert closed == wanted


def test_it_comes_after_the_directions() -> None:
    refused(
        chip(""),
        PASS,
        f"pass {PASS} requires CallDirectionsResolved, which program program does not have yet",
        "run derive-call-directions before it",
    )
