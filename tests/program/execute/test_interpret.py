"""Bodies as closures: arithmetic as its types have it, loops, branches, and what cannot be."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from crossrank.errors import InputError
from crossrank.program.execute.interpret import Code
from crossrank.program.program import read_program


def code(body: str, parameters: str = "", returned: str = "") -> Code:
    """A function of such a body; `%a`, `%b`, … of these types, returned those."""
    types = parameters.split(", ") if parameters else []
    named = ", ".join(f"%{name} : {type}" for name, type in zip("abcd", types, strict=False))
    text = f"func.func @f({named}){f' -> ({returned})' if returned else ''} {{\n{body}\n}}"
    return Code(read_program(text, "body.mlir").function("f"), {})


def result(op: str, type: str, *arguments: float, to: str = "") -> Any:
    """One op's result."""
    names = ", ".join("%" + n for n, _ in zip("abc", arguments, strict=False))
    to = to or type
    body = f"%r = arith.{op.replace('...', names)}\nfunc.return %r : {to}"
    return code(body, ", ".join([type] * len(arguments)), to).run(None, arguments)[0]


@pytest.mark.parametrize(
    ("op", "type", "arguments", "wanted"),
    [
        ("addi ... : i8", "i8", (127, 1), -128),
        ("addi ... : i32", "i32", (2**31 - 1, 1), -(2**31)),
        ("muli ... : index", "index", (2**62, 2), -(2**63)),
        ("subi ... : i1", "i1", (0, 1), 1),
        ("floordivsi ... : index", "index", (-7, 2), -4),
        ("ceildivsi ... : index", "index", (7, 2), 4),
        ("ceildivsi ... : index", "index", (-7, 2), -3),
        ("divsi ... : i32", "i32", (-7, 2), -3),
        ("divsi ... : i8", "i8", (-128, -1), -128),
        ("remsi ... : i32", "i32", (-7, 2), -1),
        ("remsi ... : i32", "i32", (7, -2), 1),
        ("divui ... : i8", "i8", (-1, 2), 127),
        ("remui ... : i8", "i8", (-1, 16), 15),
        ("maxui ... : i8", "i8", (-1, 1), -1),
        ("minsi ... : i8", "i8", (-1, 1), -1),
        ("xori ... : i8", "i8", (-1, 1), -2),
        ("shli ... : i8", "i8", (1, 7), -128),
        ("shrsi ... : i8", "i8", (-128, 7), -1),
        ("shrui ... : i8", "i8", (-128, 7), 1),
        ("shli ... : index", "index", (5, 70), 0),
        ("shrsi ... : i64", "i64", (-5, -1), -1),
        ("addf ... : f32", "f32", (1e8, 1.0), 1e8),
        ("addf ... : f16", "f16", (2048.0, 1.0), 2048.0),
        ("mulf ... : bf16", "bf16", (1.0078125, 1.0078125), 1.015625),
        ("mulf ... : f32", "f32", (1e30, 1e30), math.inf),
        ("divf ... : f32", "f32", (-1.0, 0.0), -math.inf),
        ("divf ... : f32", "f32", (0.0, 0.0), math.nan),
        ("divf ... : f64", "f64", (1.0, 3.0), 1 / 3),
        ("divf ... : f32", "f32", (1.0, 3.0), float(np.float32(1 / 3))),
        ("minimumf ... : f32", "f32", (1.0, math.nan), math.nan),
        ("maximumf ... : f32", "f32", (1.0, 2.0), 2.0),
        ("negf ... : f32", "f32", (1.5,), -1.5),
    ],
)
def test_arithmetic(op: str, type: str, arguments: tuple[float, ...], wanted: float) -> None:
    np.testing.assert_equal(result(op, type, *arguments), wanted)


@pytest.mark.parametrize(
    ("op", "type", "argument", "to", "wanted"),
    [
        ("index_cast ... : index to i8", "index", 200, "i8", -56),
        ("index_cast ... : i8 to index", "i8", -56, "index", -56),
        ("trunci ... : i32 to i8", "i32", 300, "i8", 44),
        ("extsi ... : i8 to i32", "i8", -1, "i32", -1),
        ("extui ... : i8 to i32", "i8", -1, "i32", 255),
        ("sitofp ... : i32 to f16", "i32", 2049, "f16", 2048.0),
        ("sitofp ... : i64 to bf16", "i64", 2**53 + 2**45 + 1, "bf16", 2.0**53 + 2**46),
        ("sitofp ... : i64 to f32", "i64", -(2**62) - 2**38 - 1, "f32", -(2.0**62) - 2**39),
        ("uitofp ... : i8 to f32", "i8", -1, "f32", 255.0),
        ("fptosi ... : f32 to i32", "f32", -1.9, "i32", -1),
        ("fptosi ... : f64 to i8", "f64", -300.0, "i8", -128),
        ("fptosi ... : f32 to i64", "f32", math.inf, "i64", 2**63 - 1),
        ("fptosi ... : f32 to i32", "f32", math.nan, "i32", 0),
        ("fptoui ... : f32 to i8", "f32", 300.0, "i8", -1),
        ("truncf ... : f64 to f32", "f64", 0.1, "f32", float(np.float32(0.1))),
        ("truncf ... : f64 to bf16", "f64", 1 + 2**-8 + 2**-40, "bf16", 1 + 2**-7),
        ("extf ... : f16 to f32", "f16", 0.5, "f32", 0.5),
    ],
)
def test_conversions(op: str, type: str, argument: float, to: str, wanted: float) -> None:
    assert result(op, type, argument, to=to) == wanted


@pytest.mark.parametrize(
    ("predicate", "holds"),
    [
        ("eq", "10"), ("ne", "01"), ("slt", "00"), ("sle", "10"), ("sgt", "01"), ("sge", "11"),
        ("ult", "01"), ("ule", "11"), ("ugt", "00"), ("uge", "10"),
    ],
)  # fmt: skip
def test_integers_compare(predicate: str, holds: str) -> None:
    pairs = [(3, 3), (3, -3)]
    assert "".join(str(result(f"cmpi {predicate}, ... : i8", "i8", *p, to="i1")) for p in pairs) == holds


@pytest.mark.parametrize(
    ("predicate", "holds"),
    [
        ("oeq", "1000"), ("ogt", "0010"), ("oge", "1010"), ("olt", "0100"), ("ole", "1100"), ("one", "0110"),
        ("ord", "1110"), ("ueq", "1001"), ("ugt", "0011"), ("uge", "1011"), ("ult", "0101"), ("ule", "1101"),
        ("une", "0111"), ("uno", "0001"), ("true", "1111"), ("false", "0000"),
    ],
)  # fmt: skip
def test_floats_compare(predicate: str, holds: str) -> None:
    pairs = [(1.0, 1.0), (1.0, 2.0), (2.0, 1.0), (1.0, math.nan)]
    assert "".join(str(result(f"cmpf {predicate}, ... : f32", "f32", *p, to="i1")) for p in pairs) == holds


LOOP = """
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %p, %q = scf.for %i = %zero to %a step %b iter_args(%x = %zero, %y = %one) -> (index, index) {
    %even = arith.andi %i, %one : index
    %c = arith.cmpi eq, %even, %zero : index
    %n = scf.if %c -> (index) {
      %s = arith.addi %x, %y : index
      scf.yield %s : index
    } else {
      scf.yield %y : index
    }
    scf.yield %y, %n : index, index
  }
  func.return %p, %q : index, index
"""


@pytest.mark.parametrize(("turns", "step"), [(0, 1), (1, 1), (7, 1), (10, 3), (-1, 1)])
def test_loops_carry_and_branches_give(turns: int, step: int) -> None:
    x, y = 0, 1
    for i in range(0, turns, step):
        x, y = y, (x + y if i % 2 == 0 else y)
    ready = code(LOOP, "index, index", "index, index")
    assert ready.run(None, [turns, step]) == (x, y)
    assert ready.run(None, [turns, step]) == (x, y)  # nothing of a call stays


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("%r = arith.divsi %a, %b : index\nfunc.return %r : index", "division by zero"),
        ("scf.for %i = %a to %b step %b {\nscf.yield\n}\nfunc.return %a : index", "a loop's step is positive"),
    ],
)
def test_what_cannot_be(body: str, what: str) -> None:
    with pytest.raises(InputError) as raised:
        code(body, "index, index", "index").run(None, [-1, 0])
    assert what in raised.value.what


def test_ops_of_kernels_are_refused_before_anything_runs() -> None:
    with pytest.raises(InputError, match="block_idx in function 'f': no orchestrator does that"):
        code("%r = program.block_idx\nfunc.return %r : index", "", "index")
