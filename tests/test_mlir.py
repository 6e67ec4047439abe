"""Texts that xDSL's parser cannot read, told by line and column; where ops stand that say no place."""

from __future__ import annotations

import pytest
from xdsl.context import Context
from xdsl.dialects.arith import Arith
from xdsl.dialects.builtin import Builtin, FileLineColLoc
from xdsl.dialects.func import Func
from xdsl.dialects.scf import Scf

from crossrank.errors import InputError
from crossrank.mlir import parse_module

ONE = "%one = arith.constant 1 : index"


def context() -> Context:
    found = Context()
    for dialect in (Builtin, Arith, Func, Scf):
        found.load_dialect(dialect)
    return found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'builtin.module {\n  // "\n  %x = "' + "a" * 200,
            "3:8: a string is not closed, or has an escape that is none",
        ),
        (r'builtin.module attributes {a = "\q"} {}', "1:32: a string is not closed, or has an escape that is none"),
        (f"builtin.module {{\n  {ONE}\n", "3:1: the text ends too early: a }} is missing"),
        (f"builtin.module {{\n  {ONE}\n  %two = arith.add\n}}", "3:3: Operation arith.add is not registered"),
        (f"builtin.module {{\n  {ONE}\n  {ONE}\n}}", "3:3: SSA value %one is already defined"),
        (
            "builtin.module {\n  %x = arith.constant 70000000000 : i32\n}",
            "2:3: Integer value 70000000000 is out of range for type i32 which supports values in the range "
            "[-2147483648, 4294967296)",
        ),
        ("builtin.module {\n" * 5000, "nested too deeply to be read"),
    ],
    ids=["no end of a string", "escape", "no end", "no op", "twice", "too large", "deep"],
)
def test_what_cannot_be_read(text: str, said: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_module(context(), text, "some.mlir")
    assert raised.value.what.startswith("some.mlir:")
    assert raised.value.what.endswith(said.replace("}}", "}"))


def test_places() -> None:
    text = f'builtin.module {{\n  {ONE}\n  %two = arith.constant 2 : index loc("a.py":7:8)\n}}'
    for path, first in (("some.mlir", "some.mlir:2:3"), (None, "")):
        ops = parse_module(context(), text, path).ops
        found = [o.location for o in ops]
        said = [
            f"{at.filename.data}:{at.line.data}:{at.column.data}" if isinstance(at, FileLineColLoc) else ""
            for at in found
        ]
        assert said == [first, "a.py:7:8"]
