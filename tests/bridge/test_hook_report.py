"""What the report adds up to, and how it is told."""

from __future__ import annotations

from crossrank.bridge.hook_report import Report
from crossrank.bridge.rewrite import Given, Left, Rewritten
from crossrank.collective.kinds import Kind


def left(kind: Kind, reason: str) -> Left:
    return Left(kind, "%x", reason, "train.py:3")


def some() -> Report:
    report = Report()
    for name in ("jit_a", "jit_b", "jit_c"):
        report.count()
        given = [Given(Kind.ALL_REDUCE, 0, "all-reduce %x"), Given(Kind.ALL_TO_ALL, 1, "all-to-all %y")]
        kinds = [left(Kind.ALL_REDUCE, "one"), left(Kind.ALL_REDUCE, "one"), left(Kind.ALL_REDUCE, f"of {name}")]
        report.add(Rewritten(name, 8, b"", given if name != "jit_c" else given[:1], kinds if name == "jit_a" else []))
    report.count()
    report.fail("jit_c", "it broke")
    return report


def test_it_adds_up() -> None:
    found = some().as_dict()
    assert found["executables"] == 2
    assert found["compiled"] == 4
    assert found["converted"] == {"all-reduce": 2, "all-to-all": 2}
    assert found["left"] == {"all-reduce": "one; of jit_a"}
    assert found["left_count"] == {"all-reduce": 3}
    assert found["errors"] == {"jit_c": "it broke"}
    assert [m["name"] for m in found["modules"]] == ["jit_a", "jit_b"]
    assert found["modules"][0]["left"][0] == {
        "kind": "all-reduce",
        "instruction": "%x",
        "reason": "one",
        "where": "train.py:3",
    }


def test_it_is_told_in_lines() -> None:
    assert some().lines() == [
        "on our kernels: 2 all-reduce, 2 all-to-all in 2 of 4 executables (0 calls, 0 B read and written)",
        "left to XLA: 3 all-reduce: one; of jit_a",
        "jit_c stayed as it was: it broke",
    ]
    quiet = Report()
    quiet.count()
    assert quiet.lines() == ["no collectives in 1 executable"]
    assert Report(error="no\ncompiler").lines() == ["nothing ran on our kernels: no compiler"]
