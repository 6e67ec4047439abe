"""The naming contract, both ways."""

from __future__ import annotations

from itertools import product

import pytest

from crossrank.collective.dtypes import ALL, TOKEN, dtype
from crossrank.collective.kinds import Kind, ReduceOp
from crossrank.hlo.shape import Shape
from crossrank.hlo.targets import (
    CATALOGUE,
    NAMED_BY_THE_SOURCE,
    TARGETS,
    Target,
    element_type,
    parse_target,
    target_for,
)

OURS = {
    Kind.ALL_TO_ALL: "AwsNeuronAllToAll",
    Kind.COLLECTIVE_PERMUTE: "AwsNeuronCollectivePermute",
    Kind.COLLECTIVE_BROADCAST: "AwsNeuronCollectiveBroadcast",
    Kind.RAGGED_ALL_TO_ALL: "AwsNeuronRaggedAllToAll",
    Kind.SEND_RECV: "AwsNeuronSendRecv",
    Kind.SEND: "AwsNeuronSend",
    Kind.RECV: "AwsNeuronRecv",
}
NAMED = ("f32", "bf16", "f16", "u32", "s64", "s32")
LEGAL = {
    **{
        f"{base}{infix}_{t}": Target(kind, op, dtype(t))
        for (kind, base), (op, infix), t in product(
            ((Kind.ALL_REDUCE, "AwsNeuronAllReduce"), (Kind.REDUCE_SCATTER, "AwsNeuronReduceScatter")),
            ((ReduceOp.ADD, "Add"), (ReduceOp.MAXIMUM, "Max"), (ReduceOp.MINIMUM, "Min")),
            NAMED,
        )
    },
    **{f"AwsNeuronAllGather_{t}": Target(Kind.ALL_GATHER, None, dtype(t)) for t in NAMED},
}
ALSO_LEGAL = {f"{base}_{t}": Target(kind, None, dtype(t)) for kind, base in OURS.items() for t in NAMED}


def array(name: str) -> Shape:
    return Shape(dtype(name), (4,))


def test_there_are_42_legal_names_of_the_source() -> None:
    assert len(LEGAL) == 42
    assert set(LEGAL) == {name for name in CATALOGUE if TARGETS[name].kind in NAMED_BY_THE_SOURCE}


def test_every_other_kind_has_its_six() -> None:
    assert set(ALSO_LEGAL) == CATALOGUE - set(LEGAL)
    assert len(ALSO_LEGAL) == 6 * len(OURS)


@pytest.mark.parametrize("name", sorted(LEGAL | ALSO_LEGAL))
def test_legal_names_both_ways(name: str) -> None:
    target = (LEGAL | ALSO_LEGAL)[name]
    assert target.dtype is not None
    assert target_for(target.kind, target.reduce_op, array(target.dtype.name)) == name
    assert parse_target(name) == target


@pytest.mark.parametrize("t", [t.name for t in ALL if t.name not in NAMED and t.bits])
def test_other_element_types_have_no_name(t: str) -> None:
    assert target_for(Kind.ALL_GATHER, None, array(t)) == "AwsNeuronAllGather_UNKNOWNDTYPE"
    assert target_for(Kind.ALL_REDUCE, ReduceOp.MAXIMUM, array(t)) == "AwsNeuronAllReduceMax_UNKNOWNDTYPE"


@pytest.mark.parametrize("op", [op for op in ReduceOp if op not in ("add", "maximum", "minimum")])
def test_other_reductions_have_no_name(op: ReduceOp) -> None:
    assert target_for(Kind.ALL_REDUCE, op, array("f32")) == "AwsNeuronAllReduceUNKNOWNOP_f32"
    assert target_for(Kind.REDUCE_SCATTER, op, array("u8")) == "AwsNeuronReduceScatterUNKNOWNOP_UNKNOWNDTYPE"


@pytest.mark.parametrize(
    ("shape", "suffix"),
    [
        (Shape.tuple_of([array("f32"), array("f32")]), "_f32"),
        (Shape.tuple_of([array("bf16")]), "_bf16"),
        (Shape.tuple_of([array("f32"), array("bf16")]), "_UNKNOWNDTYPE"),
        (Shape.tuple_of([array("f64"), array("f64")]), "_UNKNOWNDTYPE"),
        (Shape.tuple_of([]), "_UNKNOWNDTYPE"),
        (Shape.tuple_of([array("s32"), Shape.tuple_of([array("s32")])]), "_s32"),
        (Shape.tuple_of([array("s32"), Shape(TOKEN)]), "_s32"),
        (Shape(TOKEN), "_UNKNOWNDTYPE"),
    ],
    ids=str,
)
def test_a_tuple_is_named_by_the_one_type_of_its_leaves(shape: Shape, suffix: str) -> None:
    assert target_for(Kind.ALL_REDUCE, ReduceOp.ADD, shape) == f"AwsNeuronAllReduceAdd{suffix}"


def test_unknown_names_are_read_but_are_not_legal() -> None:
    unknown = set(TARGETS) - CATALOGUE
    assert len(unknown) == 2 * (4 * 7 - 3 * 6) + 1 + len(OURS)
    for name in unknown:
        assert parse_target(name) == TARGETS[name]
        assert TARGETS[name].name == name


@pytest.mark.parametrize(
    "name", ["", "AwsNeuronAllReduce", "AwsNeuronAllReduceAdd_f64", "awsneuronallgather_f32", "TopK"]
)
def test_foreign_names(name: str) -> None:
    assert parse_target(name) is None


def test_element_type_of_mixed_leaves_is_none() -> None:
    assert element_type(Shape.tuple_of([array("f32"), array("s32")])) is None
