"""What texts may not say: values before they are made, blocks that end as they may not."""

from __future__ import annotations

import pytest

from crossrank.errors import InputError
from crossrank.program.program import read_program

MADE = "%one = arith.constant 1 : index"
SUM = "%sum = arith.addi %one, %one : index"
YES = "%yes = arith.constant true"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (f"func.func @f() {{ {SUM}\n {MADE}\n func.return }}", "operand 0 of arith.addi is used before it is made"),
        (
            f"func.func @f() {{ {YES}\n {MADE}\n %x = scf.if %yes -> (index) {{ scf.yield %one : index }} "
            "else { scf.yield %yes : i1 }\n func.return }",
            "scf.yield gives other types than scf.if has results",
        ),
        (
            f"func.func @f() {{ {YES}\n {MADE}\n %x = scf.if %yes -> (index) {{ scf.yield %one : index }}\n "
            "func.return }",
            "scf.if has results, and an arm that gives none",
        ),
        (
            "func.func @f() { scf.execute_region -> () { scf.yield }\n func.return }",
            "scf.execute_region is no part of programs",
        ),
        (MADE, "arith.constant stands outside of a function"),
    ],
)
def test_what_cannot_be(text: str, what: str) -> None:
    with pytest.raises(InputError) as raised:
        read_program(f"builtin.module {{\n{text}\n}}").verify()
    assert what in raised.value.what
