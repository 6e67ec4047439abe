"""`verify-collective-targets`: only names of the catalogue pass."""

from __future__ import annotations

import pytest

from crossrank.errors import InputError
from crossrank.hlo.targets import CATALOGUE, TARGETS, parse_target

from ...support import apply, parse

NAME = "verify-collective-targets"


def call(target: str, shape: str):
    return parse(
        f'  p = {shape} parameter(0)\n  ROOT r = {shape} custom-call(p), custom_call_target="{target}", '
        'metadata={op_name="psum" source_file="f.py" source_line=9}'
    ).module


@pytest.mark.parametrize("target", sorted(CATALOGUE))
def test_legal_names_pass(target: str) -> None:
    told = parse_target(target)
    assert told is not None
    result = apply(call(target, f"{told.dtype}[8]"), NAME)
    assert (result.changed, result.remarks) == (False, ())


@pytest.mark.parametrize("target", ["TopK", "Sharding", "my_kernel"])
def test_other_families_pass(target: str) -> None:
    apply(call(target, "f64[8]"), NAME)


@pytest.mark.parametrize(
    "target", [*sorted(set(TARGETS) - CATALOGUE), "AwsNeuronAllReduce", "AwsNeuronTopK", "AwsNeuronAllReduceAdd_f64"]
)
def test_names_outside_the_catalogue_are_refused(target: str) -> None:
    with pytest.raises(InputError, match=f"%r: {target} is not in the catalogue of collective targets"):
        apply(call(target, "f32[8]"), NAME)


@pytest.mark.parametrize(
    ("shape", "told"), [("bf16[8]", "bf16"), ("(f32[8], bf16[8])", "of several types"), ("(s32[8], s32[8])", "s32")]
)
def test_a_name_that_contradicts_its_shape_is_refused(shape: str, told: str) -> None:
    with pytest.raises(InputError, match=f"%r: AwsNeuronAllGather_f32 contradicts its result, which is {told}"):
        apply(call("AwsNeuronAllGather_f32", shape), NAME)


def test_the_first_is_named_and_the_others_counted() -> None:
    line = '  r{} = f32[8] custom-call(p), custom_call_target="AwsNeuronX"'
    module = parse(
        "  p = f32[8] parameter(0)\n" + "\n".join(line.format(n) for n in range(3)) + "\n  ROOT t = f32[8] add(r0, r1)"
    ).module
    with pytest.raises(InputError, match=r"AwsNeuronX is not in the catalogue .* \(and 2 more\)\n"):
        apply(module, NAME)
