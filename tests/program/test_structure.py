"""What texts may not say: values before they are made, blocks that end as they may not, words that are none."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from crossrank.errors import InputError
from crossrank.passes import pipeline, run_passes
from crossrank.program.analysis.discipline import lapses
from crossrank.program.codegen.kernel import kernel_source
from crossrank.program.program import read_program
from tests.program.language.sources import parse

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
        (
            f"func.func @f() {{ %p = scf.if %q -> (index) {{ {MADE}\n scf.yield %one : index }} else {{ {MADE}\n "
            f"scf.yield %one : index }}\n %q = arith.cmpi eq, %p, %p : index\n func.return }}",
            "operand 0 of scf.if is used before it is made",
        ),
        ('func.func @"../f"() { func.return }', "'../f' is no name of a function"),
        (
            'func.func @f() attributes {program.level = "MOON"} { func.return }',
            'function f: program.level is "MOON", and can be AIV, AIC, CORE_GROUP, CHIP_DIE, CHIP, HOST',
        ),
        (
            'func.func @f(%x: index {program.direction = "Up"}) { func.return }',
            'a parameter of f: program.direction is "Up", and can be In, Out, InOut',
        ),
        (
            'func.func @f(%x: index {program.name = "a"}, %y: index {program.name = "a"}) { func.return }',
            "two parameters of f are called a",
        ),
        (
            'func.func private @f(index) attributes {program.params = [{program.name = "a b"}]}',
            "'a b' is no name of a parameter of f",
        ),
        (
            'func.func @f() { %t = program.call @g() directions ["In"] : () -> ()\n func.return }',
            "call of g: a direction for each argument",
        ),
        (
            f'func.func @f() {{ {MADE}\n %t = program.call @g(%one) directions ["Up"] : (index) -> ()\n func.return }}',
            "call of g: 'Up' is no direction",
        ),
    ],
)
def test_what_cannot_be(text: str, what: str) -> None:
    with pytest.raises(InputError) as raised:
        read_program(f"builtin.module {{\n{text}\n}}")
    assert what in raised.value.what


def test_properties_have_names() -> None:
    claimed = read_program('builtin.module attributes {program.properties = ["Fast"]} {}')
    with pytest.raises(InputError, match="says that it has Fast, which is no property of programs"):
        run_passes(claimed, pipeline("program"))


def edits(text: str) -> Iterator[str]:
    """The text with a line left away, twice, before the one above, or with another value for one of it."""
    lines = text.splitlines()
    values = sorted(set(re.findall(r"%\w+", text)))
    for n, line in enumerate(lines):
        yield "\n".join(lines[:n] + lines[n + 1 :])
        yield "\n".join(lines[: n + 1] + lines[n:])
        yield "\n".join([*lines[: max(n - 1, 0)], line, *lines[max(n - 1, 0) : n], *lines[n + 1 :]])
        for k, used in enumerate(re.finditer(r"%\w+", line)):
            other = values[(n + 5 * k) % len(values)]
            yield "\n".join([*lines[:n], line[: used.start()] + other + line[used.end() :], *lines[n + 1 :]])


def test_edited_text_is_read_or_refused() -> None:
    """Whatever is edited, it is refused, or is a program that all that follows takes, or refuses."""
    loop = "t = pl.load(x, [0, 0], [4, 8])\nfor i in pl.range(n):\n    t = pl.add(t, 1.0)\npl.store(t, [0, 0], y)"
    made = parse(kernel=loop, chip="if n > 0:\n    self.kernel(x, n, w, y)")
    taken = refused = 0
    for text in edits(made.text()):
        try:
            program = read_program(text, "edited.mlir")
            assert read_program(program.text(locations=True)).text(locations=True) == program.text(locations=True)
            list(lapses(program))
            run_passes(program, pipeline("program"))
            kernel_source(program, "kernel")
            taken += 1
        except InputError as error:
            refused += 1
            placed = re.match(r"edited\.mlir:\d+:\d+: ", error.what)
        else:
            placed = True
        assert placed
    assert taken >= 10
    assert refused >= 50
