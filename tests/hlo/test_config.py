"""The header line: what it says, and how it survives."""

from __future__ import annotations

import pytest

from crossrank.hlo.config import ModuleConfig, split_top_level

HEADER = (
    "HloModule jit_step, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias) }, "
    "entry_computation_layout={(f32[8,4]{1,0}, s32[])->f32[8]{0}}, "
    "allow_spmd_sharding_propagation_to_output={true,false}, "
    'num_partitions=4, replica_count=2, frontend_attributes={note="a, b=c"}'
)


def test_fields_without_those_of_the_message() -> None:
    config = ModuleConfig.from_header(HEADER)
    assert config.fields == {
        "allow_spmd_sharding_propagation_to_output": "{true,false}",
        "num_partitions": "4",
        "replica_count": "2",
    }
    assert (config.num_partitions, config.replica_count) == (4, 2)
    assert config.says_ranks


def test_the_header_is_printed_as_it_was_read() -> None:
    assert ModuleConfig.from_header(HEADER).header_line("HloModule jit_step") == HEADER


def test_fields_are_put_behind_what_xla_prints() -> None:
    config = ModuleConfig({"num_partitions": "8"})
    assert config.header_line("HloModule m") == "HloModule m, num_partitions=8"


def test_with_fields_makes_the_header_anew() -> None:
    config = ModuleConfig.from_header(HEADER).with_fields(num_partitions=16)
    assert config.num_partitions == 16
    assert config.header_line("HloModule m").endswith("num_partitions=16, replica_count=2")


def test_silent_header() -> None:
    config = ModuleConfig.from_header("HloModule m")
    assert (config.num_partitions, config.replica_count, config.says_ranks) == (1, 1, False)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a, b={c, d}, e", ["a", "b={c, d}", "e"]),
        ('a="x, \\" y", b', ['a="x, \\" y"', "b"]),
        ("a={(f32[2,3])->f32[]}, b=[1,2]<=[2]", ["a={(f32[2,3])->f32[]}", "b=[1,2]<=[2]"]),
        ("", [""]),
    ],
)
def test_split_top_level(text: str, parts: list[str]) -> None:
    assert split_top_level(text) == parts
