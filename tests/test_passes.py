"""Names, options, pipelines and runs of passes."""

from __future__ import annotations

import dataclasses

import pytest

from crossrank.errors import InputError
from crossrank.passes import (
    Pass,
    all_passes,
    all_pipelines,
    find_pass,
    parse_passes,
    pipeline,
    register,
    register_pipeline,
    run_passes,
    skip,
)

from .support import parse

CONVERT = "convert-collectives-to-custom-call"


def test_passes_are_known_by_the_name_they_give() -> None:
    known = all_passes()
    assert list(known) == sorted(known)
    assert {CONVERT, "inline-calls", "raise-custom-call-collectives", "verify-collective-targets"} <= set(known)
    for name, cls in known.items():
        assert cls.name == name
        assert dataclasses.is_dataclass(cls)
        assert cls.summary()
        assert not cls.summary().endswith(".")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("  ", []),
        ("inline-calls", ["inline-calls"]),
        (f"inline-calls,{CONVERT}{{all_computations=true}}", ["inline-calls", CONVERT]),
        (f"{CONVERT},{CONVERT}", [CONVERT, CONVERT]),
    ],
)
def test_reading_passes(text: str, names: list[str]) -> None:
    assert [p.name for p in parse_passes(text)] == names


@pytest.mark.parametrize(
    ("options", "value"), [("", False), ("{all_computations=true}", True), ("{all-computations=true}", True)]
)
def test_options(options: str, value: bool) -> None:
    (p,) = parse_passes(CONVERT + options)
    assert p.all_computations is value
    assert parse_passes(str(p)) == [p]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("inline-call", "unknown pass inline-call\ndid you mean inline-calls?"),
        ("zzz", "unknown pass zzz\n`crossrank passes` lists"),
        (f"{CONVERT}{{all_computation=true}}", "has no option all_computation\ndid you mean all_computations?"),
        ("inline-calls{x=1}", "pass inline-calls has no option x\nits options are execution_threads"),
        (f"{CONVERT}{{all_computations=7}}", f"pass {CONVERT}: "),
        ("inline-calls{", "cannot read the passes 'inline-calls{'"),
        ("a b", "a b"),
    ],
)
def test_what_cannot_be_read(text: str, complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_passes(text)
    assert complaint in str(caught.value)
    assert len(str(caught.value).splitlines()) == 2


def test_pipelines() -> None:
    assert {"default", "none"} <= set(all_pipelines())
    assert pipeline("none") == []
    assert [p.name for p in pipeline("default")][:1] == ["inline-calls"]
    for name in all_pipelines():
        pipeline(name)
    with pytest.raises(InputError, match=r"unknown pipeline defalt\ndid you mean default\?"):
        pipeline("defalt")


def test_skip() -> None:
    passes = pipeline("default")
    assert [p.name for p in skip(passes, ["inline-calls"])] == [p.name for p in passes[1:]]
    assert skip(passes, []) == passes
    with pytest.raises(InputError, match="unknown pass nothing"):
        skip(passes, ["nothing"])


def test_a_name_is_taken_once() -> None:
    @dataclasses.dataclass(frozen=True)
    class Other(Pass[None]):
        name = "inline-calls"

        def run(self, module, remarks):
            return False

    find_pass("inline-calls")
    with pytest.raises(ValueError, match="two passes are named inline-calls"):
        register(Other)
    with pytest.raises(ValueError, match="two pipelines are named none"):
        register_pipeline("none", "inline-calls")


def test_run_tells_what_each_pass_did() -> None:
    module = parse(
        "  p = f32[8] parameter(0)\n  ROOT c = f32[8] call(p), to_apply=id", "id {\n  ROOT i = f32[8] parameter(0)\n}"
    ).module
    seen = []
    passes = parse_passes(f"inline-calls,{CONVERT}{{all_computations=true}}")
    results = run_passes(module, passes, after=lambda result, m: seen.append((result.name, m is module)))
    assert [(r.name, r.changed, len(r.remarks)) for r in results] == [("inline-calls", True, 1), (CONVERT, False, 0)]
    assert seen == [("inline-calls", True), (CONVERT, True)]
    assert results[1].spec == f"{CONVERT}{{all_computations=true}}"
    assert all(r.seconds >= 0 for r in results)
