"""`raise-custom-call-collectives`: back to what was converted."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossrank.errors import InputError
from crossrank.hlo.io import ModuleFile, to_text

from ...collective.strategies import any_groups
from ...support import apply, corpus_file, each_corpus_module, find, needs_corpus, parse, reducer

CONVERT, RAISE = "convert-collectives-to-custom-call", "raise-custom-call-collectives"


REDUCTION_BODY = re.compile(
    r"[^\n]*\{(\n[^\n]* = \w+\[\]\S* parameter\([01]\)[^\n]*){2}\n  ROOT [^\n]* = \w+\[\]\S* [^\n]*$"
)


def normal(file: ModuleFile) -> list[list[str]]:
    """The instructions in XLA's text by computation, without reduction bodies.

    Names of computations go, and so do the numbers of stack frames, which XLA counts anew when a frame is in no use.
    """
    text = re.sub(r"\b(to_apply|calls)=%[\w.\-]+|\bstack_frame_id=\d+", r"\1", to_text(file))
    computations = [c.strip().rsplit("\n\n", 1)[-1] for c in re.split(r"\n\}[^\n]*\n*", text)]
    kept = [c.splitlines() for c in computations if c.count("\n") != 3 or not REDUCTION_BODY.search(c)]
    return sorted(sorted(line for line in c if line.startswith("  ") and " = " in line) for c in kept)


def places(file: ModuleFile) -> dict[str, str]:
    """The source line of each instruction that is in the entry computation."""
    return {i.name: i.where for i in file.module.entry}


@given(
    st.sampled_from(["all-reduce", "all-gather", "reduce-scatter"]),
    st.sampled_from(["f32", "bf16", "s8", "f64", "u32"]),
    st.sampled_from(["add", "maximum", "minimum", "multiply"]),
    st.sampled_from(["", ", channel_id=9", ", channel_id=9, use_global_device_ids=true"]),
    st.booleans(),
    any_groups(),
)
def test_there_and_back(opcode, dtype, op, flags, constrain, groups) -> None:
    body = "" if opcode == "all-gather" else f", to_apply={op}_{dtype}"
    dims = "" if opcode == "all-reduce" else ", dimensions={1}"
    pinned = ", constrain_layout=true" if constrain else ""
    file = parse(
        f"  p = {dtype}[8,4] parameter(0)\n"
        f"  ROOT r = {dtype}[8,4] {opcode}(p), replica_groups={groups}{dims}{flags}{pinned}{body}",
        *([reducer(op, dtype)] if body else []),
    )
    before = normal(file)
    assert apply(file.module, CONVERT).changed
    assert apply(file.module, RAISE).changed
    assert normal(file) == before
    assert not apply(file.module, RAISE).changed


def test_bodies_are_shared_by_op_and_type() -> None:
    lines = [
        f"  r{n} = f32[8] all-reduce(p), replica_groups={{}}, to_apply={op}_f32"
        for n, op in enumerate(("add", "add", "maximum"))
    ]
    file = parse(
        "  p = f32[8] parameter(0)\n" + "\n".join(lines) + "\n  ROOT t = f32[8] add(r0, r2)",
        reducer(),
        reducer("maximum"),
    )
    apply(file.module, CONVERT)
    apply(file.module, RAISE)
    assert [c.name for c in file.module.computations] == ["add_f32", "maximum_f32", "main"]
    assert find(file.module, "r0").called == find(file.module, "r1").called


def call(target: str, config: str = "constrain_layout=false", groups: str = "{}") -> ModuleFile:
    return parse(
        f'  p = f32[8] parameter(0)\n  ROOT r = f32[8] custom-call(p), custom_call_target="{target}", '
        f'backend_config="{config}", frontend_attributes={{replica_groups="{groups}"}}'
    )


def test_a_lost_reduction_is_declined() -> None:
    file = call("AwsNeuronAllReduceUNKNOWNOP_f32")
    result = apply(file.module, RAISE)
    assert not result.changed
    assert [r.reason for r in result.remarks] == ["its name says UNKNOWNOP and its config has no reduce="]


def test_a_kept_reduction_comes_back() -> None:
    file = call("AwsNeuronAllReduceUNKNOWNOP_f32", "constrain_layout=false;reduce=multiply")
    assert apply(file.module, RAISE).changed
    assert find(file.module, "r").called[0].root.opcode == "multiply"


@pytest.mark.parametrize(
    ("config", "groups", "complaint"),
    [
        ("colour=red", "{}", "%r: unknown key 'colour'"),
        ("channel_id=x", "{}", "%r: channel_id is a whole number"),
        ("channel_id=1", "{{0,1}", "%r: cannot read the replica groups"),
        ("channel_id=1;reduce=fish", "{}", "%r: .*fish"),
    ],
)
def test_what_cannot_be_read_is_an_input_error(config: str, groups: str, complaint: str) -> None:
    target = "AwsNeuronAllReduceUNKNOWNOP_f32" if "reduce" in config else "AwsNeuronAllReduceAdd_f32"
    with pytest.raises(InputError, match=complaint):
        apply(call(target, config, groups).module, RAISE)


def test_foreign_calls_are_untouched() -> None:
    assert not apply(call("TopK").module, RAISE).changed


@needs_corpus
@each_corpus_module
def test_every_corpus_module_comes_back(name: str) -> None:
    file = corpus_file(name)
    before, where = normal(file), places(file)
    converted = apply(file.module, CONVERT + "{all_computations=true}")
    raised = apply(file.module, RAISE)
    done = [r for r in converted.remarks if r.outcome == "done"]
    assert len(raised.remarks) == len(done)
    assert normal(file) == before
    assert places(file) == where
