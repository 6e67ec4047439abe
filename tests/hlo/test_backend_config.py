"""The grammar of a converted collective's `backend_config`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossrank.collective.kinds import ReduceOp
from crossrank.hlo.backend_config import CollectiveConfig, parse_config

CONFIGS = st.builds(
    CollectiveConfig,
    channel_id=st.none() | st.integers(0, 2**62),
    dimension=st.none() | st.integers(0, 8),
    use_global_device_ids=st.none() | st.booleans(),
    constrain_layout=st.none() | st.booleans(),
    reduce=st.none() | st.sampled_from([str(op) for op in ReduceOp]),
)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (
            CollectiveConfig(7, 0, True, False),
            "channel_id=7;dimension=0;use_global_device_ids=true;constrain_layout=false",
        ),
        (CollectiveConfig(), ""),
        (CollectiveConfig(7), "channel_id=7"),
        (CollectiveConfig(constrain_layout=False), "constrain_layout=false"),
        (CollectiveConfig(dimension=1, constrain_layout=True), "dimension=1;constrain_layout=true"),
        (
            CollectiveConfig(3, constrain_layout=False, reduce="multiply"),
            "channel_id=3;constrain_layout=false;reduce=multiply",
        ),
        (
            CollectiveConfig(3, use_global_device_ids=False, constrain_layout=False),
            "channel_id=3;use_global_device_ids=false;constrain_layout=false",
        ),
    ],
)
def test_exact_text(config: CollectiveConfig, text: str) -> None:
    assert str(config) == text
    assert parse_config(text) == config


@given(CONFIGS)
def test_round_trip(config: CollectiveConfig) -> None:
    assert parse_config(str(config)) == config


@given(CONFIGS, st.randoms())
def test_the_order_does_not_matter_to_the_reader(config: CollectiveConfig, random) -> None:
    pairs = str(config).split(";")
    random.shuffle(pairs)
    assert parse_config(";".join(pairs)) == config


def test_empty_text_is_the_default() -> None:
    assert parse_config("") == CollectiveConfig()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("channel_id", "'channel_id' is no key=value pair"),
        ("channel_id=1;channel_id=2", "channel_id is given twice"),
        ("colour=red", "unknown key 'colour'"),
        ("channel_id=seven", "channel_id is a whole number, not 'seven'"),
        ("channel_id=-1", "channel_id is a whole number"),
        ("dimension=", "dimension is a whole number, not ''"),
        ("use_global_device_ids=True", "use_global_device_ids is true or false, not 'True'"),
        ("reduce=fish", "reduce is the opcode of a binary op, not 'fish'"),
        ("constrain_layout=1", "constrain_layout is true or false"),
    ],
)
def test_what_cannot_be_read(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_config(text)
