"""Launches that may have no block: what is proved, what is guarded, what is refused."""

from __future__ import annotations

import pytest

from crossrank.program.analysis.launches import unproven
from crossrank.program.passes.legalize_spmd_launches import LegalizeSpmdLaunches

from .texts import becomes, program, reasons, refused, run

PASS = LegalizeSpmdLaunches.name
KERNEL = "@k(%x: !t (In), %y: !t (Out)) -> (!t) KERNEL { func.return %y : !t }"


def launch(count: str, around: str = "{}") -> str:
    """A chip function that launches as many blocks as ``count`` computes of the parameters n and m."""
    call = "%r, %task = program.call @k(%x, %y) core_num %count : (!t, !t) -> (!t)"
    return f"""@chip(%x: !t (In), %y: !t (Out), %n: index, %m: index, %i: i32, %b: i1) CHIP {{
      %zero = arith.constant 0 : index
      %one = arith.constant 1 : index
      %four = arith.constant 4 : index
      %minus = arith.constant -3 : index
      {around.format(f"{count} {call}")}
      func.return }}"""


POSITIVE = "%yes = arith.cmpi sgt, %n, %zero : index scf.if %yes {{ {} }}"
LOOP = "scf.for %turn = %zero to %n step %one {{ {} }}"


@pytest.mark.parametrize(
    ("count", "around", "proved"),
    [
        ("%count = arith.constant 1 : index", "{}", True),
        ("%count = arith.constant 0 : index", "{}", False),
        ("%count = arith.addi %n, %one : index", "{}", False),
        ("%count = arith.addi %n, %one : index", POSITIVE, True),
        ("%count = program.world_size", "{}", True),
        ('%count = program.symbol "NR"', "{}", False),
        ("%count = program.dim %x 1 : !t", "{}", True),
        ("%count = arith.muli %n, %four : index", POSITIVE, True),
        ("%count = arith.muli %n, %minus : index", POSITIVE, False),
        ("%count = arith.muli %n, %m : index", POSITIVE, False),
        ("%count = arith.subi %n, %one : index", POSITIVE, False),
        ("%count = arith.floordivsi %four, %n : index", POSITIVE, False),
        ("%count = arith.ceildivsi %n, %four : index", POSITIVE, True),
        ("%low = arith.minsi %n, %four : index %count = arith.maxsi %low, %one : index", "{}", True),
        ("%count = arith.minsi %n, %four : index", "{}", False),
        ("%count = arith.minsi %n, %four : index", POSITIVE, True),
        (
            "%q = arith.floordivsi %n, %four : index %back = arith.muli %q, %four : index "
            "%mod = arith.subi %n, %back : index %count = arith.addi %mod, %one : index",
            "{}",
            True,
        ),
        ("%count = arith.addi %turn, %one : index", LOOP, True),
        ("%count = arith.addi %turn, %zero : index", LOOP, False),
        ("%count = arith.addi %n, %zero : index", LOOP, True),  # the loop has a turn
        ("%count = arith.subi %n, %turn : index", LOOP, False),  # no relation between two is followed
        ("%count = arith.select %b, %one, %four : index", "{}", True),
        ("%count = arith.select %b, %one, %n : index", "{}", False),
        (
            "%count = arith.addi %n, %zero : index",
            "%c = arith.cmpi sle, %n, %zero : index scf.if %c {{ }} else {{ {} }}",
            True,
        ),
        (
            "%count = arith.addi %n, %zero : index",
            "%c = arith.cmpi slt, %n, %zero : index scf.if %c {{ }} else {{ {} }}",
            False,
        ),
        ("%count = arith.addi %n, %zero : index", "%c = arith.cmpi eq, %n, %four : index scf.if %c {{ {} }}", True),
        (
            "%count = arith.addi %n, %zero : index",
            "%c = arith.cmpi slt, %four, %n : index %both = arith.andi %c, %b : i1 scf.if %both {{ {} }}",
            True,
        ),
        (
            "%count = arith.addi %n, %zero : index",
            "%c = arith.cmpi slt, %four, %n : index %any = arith.ori %c, %b : i1 scf.if %any {{ {} }}",
            False,
        ),
        (
            "",
            "%count = scf.for %r = %zero to %n step %one iter_args(%a = %one) -> (index) {{ "
            "%next = arith.addi %a, %r : index scf.yield %next : index }} {}",
            True,
        ),
        (
            "",
            "%count = scf.for %r = %zero to %n step %one iter_args(%a = %one) -> (index) {{ "
            "%next = arith.subi %a, %r : index scf.yield %next : index }} {}",
            False,
        ),
        ("", "%count = scf.if %b -> (index) {{ scf.yield %one : index }} else {{ scf.yield %four : index }} {}", True),
        ("%count = arith.index_cast %i : i32 to index", "{}", False),
        (
            "%wide = arith.muli %i, %i : i32 %count = arith.index_cast %wide : i32 to index",
            "%k = arith.constant 1 : i32 %c = arith.cmpi sge, %i, %k : i32 scf.if %c {{ {} }}",
            False,  # it may have wrapped around
        ),
        (
            "%count = arith.index_cast %i : i32 to index",
            "%k = arith.constant 0 : i32 %c = arith.cmpi sgt, %i, %k : i32 scf.if %c {{ {} }}",
            True,
        ),
    ],
)
def test_what_is_proved(count: str, around: str, proved: bool) -> None:
    subject = program(KERNEL, launch(count, around))
    assert (unproven(subject) == []) is proved
    assert run(subject, PASS)[0].changed is not proved
    assert unproven(subject) == []
    assert not run(subject, PASS)[0].changed


def test_what_is_not_proved_is_guarded() -> None:
    chip = """@chip(%x: !t (In), %y: !t (Out), %n: index) -> (!t) CHIP {{
      %a, %first = program.call @k(%x, %y) : (!t, !t) -> (!t)
      {}
      %b, %last = program.call @k(%x, %r) deps [%task] : (!t, !t) -> (!t)
      func.return %b : !t }}"""
    call = "program.call @k(%x, %a) core_num %n sync_start deps [%first] : (!t, !t) -> (!t)"
    results = becomes(
        program(KERNEL, chip.format(f'%r, %task = {call} loc("ring.py":7:5)')),
        PASS,
        KERNEL,
        chip.format(f"""%zero = arith.constant 0 : index
      %some = arith.cmpi sgt, %n, %zero : index
      %r, %task = scf.if %some -> (!t, !task) {{
        %r1, %task1 = {call}
        scf.yield %r1, %task1 : !t, !task
      }} else {{
        %none = program.join[%first]
        scf.yield %a, %none : !t, !task
      }}"""),
    )
    assert reasons(results) == ["done: k (ring.py:7:5): launched only where core_num > 0, which cannot be proved"]


def test_a_buffer_of_another_type_is_seen_as_the_result_is() -> None:
    """The kernel's extents have names, the caller's are numbers."""
    kernel = KERNEL.replace("!t", "!program.tensor<[4, NR], f32>".replace("NR", '"NR"'))
    chip = "@chip(%x: !t (In), %y: !t (Out), %n: index) CHIP {{ {} func.return }}"
    call = '%r, %task = program.call @k(%x, %y) core_num %n : (!t, !t) -> (!program.tensor<[4, "NR"], f32>)'
    subject = program(kernel, chip.format(call))
    run(subject, PASS)
    assert subject.text().count("program.slice %y") == 1
    assert subject.text().count("program.dim %y") == 2


@pytest.mark.parametrize(
    ("kernel", "call", "lines"),
    [
        (
            KERNEL,
            "%task = program.call @k(%x) core_num %n : (!t) -> ()",
            [
                "launch 'k' may have a non-positive core_num; output tensors 'y' (parameter 1) are not preallocated",
                "Allocate and pass every Out/InOut tensor before this launch.",
            ],
        ),
        (
            "@k(%x: !t (In), %y: !t (Out)) -> (!t) KERNEL { %a = arith.constant 4 : index "
            "%new = program.create_tensor %a, %a : !t func.return %new : !t }",
            "%r, %task = program.call @k(%x, %y) core_num %n : (!t, !t) -> (!t)",
            [
                "launch 'k' return 0 cannot be mapped to a caller-provided Tensor parameter",
                "Return a preallocated Out/InOut parameter for a potentially empty launch.",
            ],
        ),
        (KERNEL, "%task = program.call @q(%x) core_num %n : (!t) -> ()", ["the program has no function q"]),
    ],
)
def test_what_cannot_be_guarded(kernel: str, call: str, lines: list[str]) -> None:
    chip = f'@chip(%x: !t (In), %y: !t (Out), %n: index) CHIP {{ {call} loc("ring.py":7:5) func.return }}'
    refused(program(kernel, chip), PASS, f"ring.py:7:5: {lines[0]}", *lines[1:])
