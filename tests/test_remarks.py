"""Remarks and the two kinds of failure."""

from __future__ import annotations

import pytest

from crossrank.errors import InputError, RunError
from crossrank.remarks import Remark, Remarks


def test_remarks_keep_their_order() -> None:
    remarks = Remarks("inline-calls")
    remarks.done("%a", "opened", "f.py:3")
    remarks.declined("%b", "it runs elsewhere")
    assert len(remarks) == 2
    assert [str(r) for r in remarks] == [
        "inline-calls: done: %a (f.py:3): opened",
        "inline-calls: declined: %b: it runs elsewhere",
    ]


def test_a_remark_for_programs() -> None:
    assert Remark("p", "%a", "done", "why", "f.py:1").as_dict() == {
        "pass_name": "p",
        "instruction": "%a",
        "outcome": "done",
        "reason": "why",
        "where": "f.py:1",
    }


@pytest.mark.parametrize(("remedy", "text"), [("", "it is bad"), ("mend it", "it is bad\nmend it")])
def test_an_input_error_has_one_or_two_lines(remedy: str, text: str) -> None:
    error = InputError("it is bad", remedy)
    assert (str(error), error.what, error.remedy) == (text, "it is bad", remedy)


def test_a_failed_run_is_no_bad_input() -> None:
    assert not issubclass(RunError, InputError)
