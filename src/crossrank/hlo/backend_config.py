"""The ``backend_config`` of a converted collective: ``key=value`` pairs behind one another, parted by ``;``.

    channel_id=7;dimension=0;use_global_device_ids=true;constrain_layout=false;reduce=multiply

The order is fixed. A key that the collective lacks, or leaves unset, is left out: ``channel_id`` where there is none,
``dimension`` on an all-reduce, ``use_global_device_ids`` where it is not set, ``constrain_layout`` on permutes, sends
and receives. ``reduce`` (an HLO opcode) stands only where the target's name says ``UNKNOWNOP``. A target's groups or
pairs are no part of it: they are frontend attributes.
"""

from __future__ import annotations

from dataclasses import dataclass

BINARY_OPS = frozenset(
    [
        "add",
        "and",
        "atan2",
        "divide",
        "maximum",
        "minimum",
        "multiply",
        "or",
        "power",
        "remainder",
        "shift-left",
        "shift-right-arithmetic",
        "shift-right-logical",
        "subtract",
        "xor",
    ]
)
"""The HLO opcodes that combine two values of one type into a third: what a reduction body can be."""


@dataclass(frozen=True)
class CollectiveConfig:
    """What a converted collective carries beside its name, its groups or pairs, and its shape; None: left out."""

    channel_id: int | None = None
    dimension: int | None = None
    use_global_device_ids: bool | None = None
    constrain_layout: bool | None = None
    reduce: str | None = None

    def __str__(self) -> str:
        pairs = {
            "channel_id": self.channel_id,
            "dimension": self.dimension,
            "use_global_device_ids": self.use_global_device_ids,
            "constrain_layout": self.constrain_layout,
            "reduce": self.reduce,
        }
        return ";".join(f"{k}={_text(v)}" for k, v in pairs.items() if v is not None)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _number(key: str, text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{key} is a whole number, not {text!r}")
    return int(text)


def _truth(key: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{key} is true or false, not {text!r}")
    return text == "true"


def parse_config(text: str) -> CollectiveConfig:
    """Read the grammar above, in any order.

    Raises:
        ValueError: an unknown or doubled key, or a value of the wrong type.
    """
    found: dict[str, str] = {}
    for pair in filter(None, text.split(";")):
        key, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"{pair!r} is no key=value pair")
        if key in found:
            raise ValueError(f"{key} is given twice")
        found[key] = value
    known = {"channel_id", "dimension", "use_global_device_ids", "constrain_layout", "reduce"}
    if unknown := sorted(set(found) - known):
        raise ValueError(f"unknown key {unknown[0]!r}")
    if "reduce" in found and found["reduce"] not in BINARY_OPS:
        raise ValueError(f"reduce is the opcode of a binary op, not {found['reduce']!r}")
    return CollectiveConfig(
        channel_id=_number("channel_id", found["channel_id"]) if "channel_id" in found else None,
        dimension=_number("dimension", found["dimension"]) if "dimension" in found else None,
        use_global_device_ids=_truth("use_global_device_ids", found["use_global_device_ids"])
        if "use_global_device_ids" in found
        else None,
        constrain_layout=_truth("constrain_layout", found["constrain_layout"]) if "constrain_layout" in found else None,
        reduce=found.get("reduce"),
    )
