"""Contexts as parameters: who takes them, who passes which, and where there is no one context."""

from __future__ import annotations

import pytest

from crossrank.program.passes.materialize_dist_tensor_ctx import MaterializeDistTensorCtx
from crossrank.program.program import Program

from .texts import becomes, program, reasons, refused, run

PASS = MaterializeDistTensorCtx.name
PASSES = f"materialize-comm-domain-scopes,{PASS}"


def test_contexts_are_taken_and_passed() -> None:
    results = becomes(
        program(
            "@k(%w: !w (InOut), %x: !t (In), %s: !s (InOut)) -> (!w) KERNEL { %c = program.get_comm_ctx %s : !s "
            "%r = program.rank %c func.return %w : !w }",
            "@chip(%v: !w (InOut), %x: !t (In), %s: !s (InOut)) CHIP { "
            '%a, %t = program.call @k(%v, %x, %s) directions ["InOut", "Input", "InOut"] : (!w, !t, !s) -> (!w) '
            "%b, %u = program.call @k(%a, %x, %s) : (!w, !t, !s) -> (!w) func.return }",
        ),
        PASSES,
        "@k(%w: !w (InOut), %x: !t (In), %s: !s (InOut), %w_ctx: !c (In), %s_ctx: !c (In)) -> (!w) KERNEL { "
        "%r = program.rank %s_ctx func.return %w : !w }",
        "@chip(%v: !w (InOut), %x: !t (In), %s: !s (InOut), %v_ctx: !c (In), %s_ctx: !c (In)) CHIP { "
        "%a, %t = program.call @k(%v, %x, %s, %v_ctx, %s_ctx) "
        'directions ["InOut", "Input", "InOut", "Scalar", "Scalar"] : (!w, !t, !s, !c, !c) -> (!w) '
        "%b, %u = program.call @k(%a, %x, %s, %v_ctx, %s_ctx) : (!w, !t, !s, !c, !c) -> (!w) func.return }",
    )
    assert reasons(results) == ["done: k: takes w_ctx, s_ctx", "done: chip: takes v_ctx, s_ctx"]


def test_the_host_asks_for_them() -> None:
    subject = program(
        "@chip(%w: !w (InOut), %w_ctx: index (In)) CHIP { func.return }",
        "@host(%i: index) HOST { "
        '%b = program.alloc_window_buffer "data", %i %w = program.window %b[%i, %i] : !w %c = arith.constant 1 : index '
        "%t = program.call @chip(%w, %i) device %c : (!w, index) -> () "
        "%u = program.call @chip(%w, %i) device %c : (!w, index) -> () func.return }",
    )
    run(subject, PASSES)
    text = subject.text()
    assert text.count("program.get_comm_ctx") == 1
    assert text.count("program.call @chip(%w, %i, %w_ctx)") == 2
    assert [p.name for p in subject.function("chip").params] == ["w", "w_ctx", "w_ctx_1"]
    assert not any(r.changed for r in run(subject, PASSES))


LOOP = """%e = scf.for %i = %c to %c step %c iter_args(%v = %a) -> (!w) {{ scf.yield {} : !w }} loc("a.py":4:5)"""


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (LOOP.format("%v"), []),
        (
            LOOP.format("%b"),
            [
                "a.py:4:5: a loop or a branch decides whether this distributed tensor is 'a' or 'b', so that it has "
                "no one context",
                "use a variable for each window",
            ],
        ),
        (
            '%y, %t = program.call @new() : () -> (!w) loc("a.py":5:5) %z = program.get_comm_ctx %y : !w',
            [
                "a.py:5:5: this distributed tensor is no parameter of k, so that it has no context",
                "let the callee return the parameter that it writes",
            ],
        ),
        (
            '%t = program.call @k(%x, %b, %x) : (!t, !w, !t) -> () loc("a.py":6:5)',
            [
                "a.py:6:5: call of k: expected DistributedTensor arg at callee param index 0",
                "pass a view of a window: pld.window(buffer, shape, dtype=...)",
            ],
        ),
    ],
)
def test_one_value_has_one_context(body: str, lines: list[str]) -> None:
    subject = program(
        "@k(%a: !w (InOut), %b: !w (InOut), %x: !t (In)) KERNEL { %c = arith.constant 1 : index "
        f"{body} func.return }}",
        "private @new() -> (!w) KERNEL",
    )
    if lines:
        refused(subject, PASSES, *lines)
    else:
        run(subject, PASSES)


def test_contexts_of_an_author_are_refused() -> None:
    refused(
        program("@k(%c: !c (In), %a: !w (InOut)) KERNEL { func.return }"),
        PASSES,
        "function k has 1 windows among its parameters, and 1 contexts",
        "leave contexts away and ask for them: ctx = pld.get_comm_ctx(x)",
    )


def test_it_comes_after_the_domains() -> None:
    refused(
        program("@k(%a: !w (InOut)) KERNEL { func.return }"),
        PASS,
        f"pass {PASS} requires CommDomainScopesMaterialized, which program program does not have yet",
        "run materialize-comm-domain-scopes before it",
    )


@pytest.mark.parametrize(
    ("added", "fault"),
    [
        ("@q(%a: !w (InOut)) KERNEL { func.return }", "function q lacks a context for each of its 1 windows"),
        (
            "@q(%a: !w (InOut), %a_ctx: !c (In)) KERNEL { %c = program.get_comm_ctx %a : !w func.return }",
            "function 'q' asks for a context; only host orchestration may",
        ),
        (
            "@q(%a: !w (InOut), %n: index, %a_ctx: !c (In)) KERNEL { "
            "%t = program.call @k(%a, %n) : (!w, index) -> () func.return }",
            "the call of k passes no context as 'a_ctx'",
        ),
    ],
)
def test_what_is_added_later_is_found(added: str, fault: str) -> None:
    def with_contexts(*functions: str) -> Program:
        subject = program("@k(%a: !w (InOut), %a_ctx: !c (In)) KERNEL { func.return }", *functions)
        subject.properties = ["CommDomainScopesMaterialized", "DistTensorCtxMaterialized"]
        return subject

    run(with_contexts(), "materialize-comm-domain-scopes")
    refused(
        with_contexts(added),
        "materialize-comm-domain-scopes",
        f"after pass materialize-comm-domain-scopes the program does not have DistTensorCtxMaterialized: {fault}",
    )
