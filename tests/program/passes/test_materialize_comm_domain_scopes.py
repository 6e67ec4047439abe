"""Communication domains: who is in them, which windows they have, and what cannot be told."""

from __future__ import annotations

import pytest

from crossrank.program.dialect.calls import CommDomainScopeOp
from crossrank.program.passes.materialize_comm_domain_scopes import MaterializeCommDomainScopes
from crossrank.program.program import Program

from .texts import becomes, program, reasons, refused, run

PASS = MaterializeCommDomainScopes.name
CHIP = "@chip(%w: !w (InOut), %s: !s (InOut)) CHIP { func.return }"
NUMBERS = "".join(f"%c{n} = arith.constant {n} : index " for n in (0, 1, 2, 3, 4, 64, 1024))
CALL = 'program.call @chip(%w, %s) device %{} : (!w, !s) -> () loc("a.py":9:5) '
WORLD = "%n = program.world_size "


def host(body: str, windows: str = "w:!w s:!s") -> Program:
    """A host orchestrator with some windows (``name:type``), each with one view, and that body."""
    made = "".join(
        f'%b{name} = program.alloc_window_buffer "{name}", %c1024 loc("a.py":{line}:1) '
        f"%{name} = program.window %b{name}[%c4, %c64] : {type} "
        for line, (name, type) in enumerate((w.split(":") for w in windows.split()), 1)
    )
    return program(CHIP, f"@host(%x: !t (Out), %i: index) -> (!t) HOST {{ {NUMBERS}{made}{body} func.return %x : !t }}")


def domains(subject: Program) -> list[tuple[str, str, list[str]]]:
    return [
        (op.sym_name.data, op.devices.data, [w.data for w in op.windows])
        for op in subject.module.walk()
        if isinstance(op, CommDomainScopeOp)
    ]


def test_the_body_is_put_into_a_scope() -> None:
    body = """%n = program.world_size
      %end = scf.for %r = %c0 to %n step %c1 iter_args(%v = %w) -> (WINDOW) {
        %t = program.call @chip(%v, %s) device %r : (WINDOW, SIGNAL) -> ()
        scf.yield %v : WINDOW
      }"""
    before = f"""@host(%x: !t (Out)) -> (!t) HOST {{ {NUMBERS}
      %bw = program.alloc_window_buffer "data", %c1024
      %bs = program.alloc_window_buffer "signal", %c1024
      %w = program.window %bw[%c4, %c64] : WINDOW
      %s = program.window %bs[%c4, %c1] : SIGNAL
      {body}
      """
    inner = before.partition("{")[2]
    named = f"""@host(%x: !t (Out)) -> (!t) HOST {{
      %y = program.comm_domain "comm_d0" devices "all" windows ["data", "signal"] -> (!t) {{ {inner}
        program.yield %x : !t
      }}
      func.return %y : !t }}"""
    plain = before.replace("WINDOW", "!w").replace("SIGNAL", "!s") + "func.return %x : !t }"
    window, signal = "!program.dist_tensor<[4, 64], f32, data>", "!program.dist_tensor<[4, 1], s32, signal>"
    results = becomes(program(CHIP, plain), PASS, CHIP, named.replace("WINDOW", window).replace("SIGNAL", signal))
    assert reasons(results) == ["done: comm_d0: devices all share data, signal"]


@pytest.mark.parametrize(
    ("body", "windows", "found"),
    [
        ("%t = " + CALL.format("c1"), "w:!w s:!s", [("1", ["w", "s"])]),
        ("%t = program.call @chip(%w, %s) : (!w, !s) -> () ", "w:!w s:!s", [("0", ["w", "s"])]),
        ("%t = " + CALL.format("c1") + "%u = " + CALL.format("c0"), "w:!w s:!s", [("0,1", ["w", "s"])]),
        (
            WORLD + "scf.for %r = %c0 to %n step %c1 { %t = " + CALL.format("r") + "}",
            "w:!w s:!s",
            [("all", ["w", "s"])],
        ),
        ("scf.for %r = %c0 to %c2 step %c1 { %t = " + CALL.format("r") + "}", "w:!w s:!s", [("0,1", ["w", "s"])]),
        (
            "scf.for %r = %c1 to %c3 step %c1 { "
            "scf.for %q = %c0 to %i step %c1 { %t = " + CALL.format("r") + "} }",
            "w:!w s:!s",
            [("1,2", ["w", "s"])],
        ),
        (  # all of them, and one: all
            WORLD + "scf.for %r = %c0 to %n step %c1 { %t = " + CALL.format("r") + "} %u = " + CALL.format("c1"),
            "w:!w s:!s",
            [("all", ["w", "s"])],
        ),
        (  # one domain for a set of devices, in the order of allocation
            "%t = program.call @chip(%w, %s) device %c1 : (!w, !s) -> () "
            "%u = program.call @chip(%a, %b) device %c0 : (!w, !s) -> () "
            "%v = program.call @chip(%d, %e) device %c1 : (!w, !s) -> () ",
            "w:!w s:!s a:!w b:!s d:!w e:!s",
            [("1", ["w", "s", "d", "e"]), ("0", ["a", "b"])],
        ),
        (  # what only collectives reach is where their data is, through one another
            "%t = " + CALL.format("c1") + "%v = program.allreduce %w signal %g : !s op \"Sum\" mode \"mesh\" : !w "
            "%g1 = program.barrier %g : !s %h1 = program.allreduce %h signal %g : !s op \"Sum\" mode \"mesh\" : !w",
            "w:!w s:!s g:!s h:!w",
            [("1", ["w", "s", "g", "h"])],
        ),
        (  # a view of a view, and what a call gives back
            "%p = program.slice %w[%c0, %c0] sizes [%c4, %c64] drop [] : !w -> !w "
            "%t = program.call @chip(%p, %s) device %c1 : (!w, !s) -> ()",
            "w:!w s:!s",
            [("1", ["w", "s"])],
        ),
    ],
)  # fmt: skip
def test_devices_are_those_of_the_dispatches(body: str, windows: str, found: list[tuple[str, list[str]]]) -> None:
    subject = host(body, windows)
    assert run(subject, PASS)[0].changed
    assert domains(subject) == [(f"comm_d{n}", *f) for n, f in enumerate(found)]
    assert not run(subject, PASS)[0].changed


def test_without_windows_nothing_changes() -> None:
    subject = program(
        "@chip(%x: !t (In)) CHIP { func.return }",
        "@host(%x: !t (In), %i: index) HOST { %t = program.call @chip(%x) device %i : (!t) -> () func.return }",
    )
    assert not run(subject, PASS)[0].changed


HOW = "dispatch with device=<number>, or with device=r in `for r in pl.range(pld.world_size())`"


@pytest.mark.parametrize(
    ("body", "windows", "lines"),
    [
        (
            "%d = arith.addi %i, %c1 : index %t = " + CALL.format("d"),
            "w:!w s:!s",
            ["9:5: dispatch of chip: device= expression must be ConstInt or the induction var of pl.range; got an "
             "unsupported expression", HOW],
        ),
        (
            "%t = " + CALL.format("i"),
            "w:!w s:!s",
            ["9:5: dispatch of chip: device= Var is not the induction variable of any enclosing pl.range loop", HOW],
        ),
        (
            "scf.for %r = %c0 to %i step %c1 { %t = " + CALL.format("r") + "}",
            "w:!w s:!s",
            ["9:5: dispatch of chip: device=r loop bound must be ConstInt or pld.system.world_size()", HOW],
        ),
        (
            "scf.for %r = %c0 to %c2 step %c2 { %t = " + CALL.format("r") + "}",
            "w:!w s:!s",
            ["9:5: dispatch of chip: device=r over a non-unit-step loop is not supported (step=2)", HOW],
        ),
        (
            WORLD + "scf.for %r = %c1 to %n step %c1 { %t = " + CALL.format("r") + "}",
            "w:!w s:!s",
            ["9:5: dispatch of chip: device=r loop over pld.system.world_size() must start at 0, got 1", HOW],
        ),
        (
            "%m = arith.constant -1 : index %t = " + CALL.format("m"),
            "w:!w s:!s",
            ["9:5: dispatch of chip: device= ConstInt must be non-negative, got -1", HOW],
        ),
        (
            "%t = " + CALL.format("c0") + '%dead = program.alloc_window_buffer "dead", %c2 loc("a.py":5:1)',
            "w:!w s:!s",
            ["5:1: pld.tensor.alloc_window_buffer 'dead' has no pld.tensor.window materialisation (dead allocation)",
             "view it, x = pld.window(buffer, shape, dtype=...), or leave it away"],
        ),
        (
            "%t = " + CALL.format("c0"),
            "w:!w s:!s idle:!w",
            ["3:1: pld.tensor.alloc_window_buffer 'idle' is not consumed by any chip_orch dispatch",
             "pass a view of it to a chip function with device=..., or leave it away"],
        ),
        (
            "scf.for %r = %c0 to %c0 step %c1 { %t = " + CALL.format("r") + "}",
            "w:!w s:!s",
            ["1:1: pld.tensor.alloc_window_buffer 'w' is not consumed by any chip_orch dispatch",
             "pass a view of it to a chip function with device=..., or leave it away"],
        ),
        (
            "%t = " + CALL.format("c0") + '%g1 = program.barrier %g : !s loc("a.py":8:5)',
            "w:!w s:!s g:!s",
            ["8:5: pld.tensor.barrier signal buffer has no inferred comm-domain coverage — add a device= annotation or "
             "ensure the signal window is consumed by a device-tagged chip dispatch"],
        ),
        (
            "%t = " + CALL.format("c0") + '%again = program.alloc_window_buffer "w", %c2 loc("a.py":5:1)',
            "w:!w s:!s",
            ["5:1: duplicate allocation name 'w'", "give each window its own name"],
        ),
        (
            'scf.for %r = %c0 to %c2 step %c1 { %l = program.alloc_window_buffer "l", %c2 loc("a.py":5:5) }',
            "w:!w s:!s",
            ["5:5: pld.tensor.alloc_window_buffer 'l' stands in a loop or a branch",
             "allocate windows before it: they live until the end"],
        ),
        (
            "%q = arith.cmpi eq, %i, %c0 : index "
            "%e = scf.if %q -> (!w) { scf.yield %w : !w } else { scf.yield %a : !w } "
            'loc("a.py":6:5) %t = program.call @chip(%e, %s) device %c1 : (!w, !s) -> ()',
            "w:!w s:!s a:!w",
            ["6:5: a loop or a branch decides whether this is a view of window 'w' or 'a'",
             "use a variable for each window"],
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_told(body: str, windows: str, lines: list[str]) -> None:
    refused(host(body, windows), PASS, f"a.py:{lines[0]}", *lines[1:])


def test_a_window_that_is_taken_out_of_its_domain_is_found() -> None:
    subject = host("%t = " + CALL.format("c1"))
    run(subject, PASS)
    (scope,) = [op for op in subject.module.walk() if isinstance(op, CommDomainScopeOp)]
    scope.windows = type(scope.windows)(scope.windows.data[:1])
    refused(
        subject,
        PASS,
        f"after pass {PASS} the program does not have CommDomainScopesMaterialized: a.py:2:1: window 's' is in 0 "
        "communication domains",
    )
