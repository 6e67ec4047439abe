"""What is better found before XLA sees a module.

XLA's parser answers most bad input with a message. On a few faults it aborts with words that help nobody, and on an
index beyond a tuple's end it may do anything: these are found here, in a search for the few lines that can have them.
What else ends the process is `last_words`' affair.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from crossrank.collective.groups import parse_groups
from crossrank.hlo.collectives import read_groups
from crossrank.hlo.config import split_top_level

_MESH_GROUPS = re.compile(
    r"replica_groups=(mesh\s*\[[^]\n]*\]\s*(?:,\s*device_ids\s*=\s*\([^()\n]*(?:\([^()\n]*\)\s*)?\)\s*)?"
    r"\{[^}\n]*\}|mesh[^\n]{0,80})"
)
_MESH_SHARDING = re.compile(r"sharding=\{mesh\[([^]\n]*)\][^[\n]*\[([^]\n]*)\]")
_DEVICES = re.compile(r"devices=\[([\d,]+)\]<=\[([\d,]+)\]")
_AXIS_NAME = re.compile(r"""['"]([^'"\n]*)['"]""")
_TUPLE = re.compile(r"^[ \t]*(?:ROOT )?%?([\w.\-]+) = \(([^\n]*?)\) [\w\-]+\(", re.M)
_TAKES = " get-tuple-element("
_ELEMENT = re.compile(r"\s*(?:ROOT )?%?([\w.\-]+) = .* get-tuple-element\((?:.* )?%?([\w.\-]+)\), index=(\d+)")
_COMMENT = re.compile(r"/\*.*?\*/")
_NESTING = 1000


def check_text(text: str) -> None:
    """ValueError, with line and fault, where XLA's parser would abort on ``text``."""
    for place, fault in _faults_of_text(text):
        line = text.count("\n", 0, place) + 1
        raise ValueError(f"line {line}: {fault}")


def _faults_of_text(text: str) -> Iterator[tuple[int, str]]:
    if "mesh" in text:
        for found in _MESH_GROUPS.finditer(text):
            try:
                parse_groups(found[1])
            except ValueError as error:
                yield found.start(), str(error)
        for found in _MESH_SHARDING.finditer(text):
            axes = set(_AXIS_NAME.findall(found[1]))
            for name in _AXIS_NAME.findall(found[2]):
                if name not in axes and not name.isdecimal():
                    yield found.start(), f"the mesh of the sharding has no axis '{name}'"
    for found in _DEVICES.finditer(text):
        tile, iota = (math.prod(int(n) for n in part.split(",") if n) for part in found.groups())
        if tile != iota:
            yield found.start(), f"a sharding over {tile} devices lists {iota}"
    for bracket in "({":
        if (place := text.find(bracket * _NESTING)) >= 0:
            yield place, "brackets nested too deeply"
    yield from _faults_of_elements(text)


def _faults_of_elements(text: str) -> Iterator[tuple[int, str]]:
    elements: dict[str, str] = {}
    counts: dict[str, int] = {}
    place = text.find(_TAKES)
    if place >= 0:
        elements = dict(_TUPLE.findall(text))
    while place >= 0:
        start, end = text.rfind("\n", 0, place) + 1, text.find("\n", place)
        found = _ELEMENT.match(text, start, end if end >= 0 else len(text))
        if found and found[2] in elements:
            name, source, index = found.groups()
            if source not in counts:
                counts[source] = len(list(filter(None, split_top_level(_COMMENT.sub("", elements[source])))))
            if fault := _out_of_tuple(name, int(index), counts[source]):
                yield start, fault
        place = text.find(_TAKES, place + 1)


def check_message(module: Any) -> None:
    """ValueError, with instruction and fault, where XLA would abort on a ``Module`` message."""
    for c in module.computations:
        nodes = {i.id: i for i in c.instructions}
        for i in c.instructions:
            fault = ""
            if i.opcode == "get-tuple-element":
                source = nodes.get(i.operand_ids[0]) if i.operand_ids else None
                if source is not None:
                    fault = _out_of_tuple(i.name, i.tuple_index, len(source.shape.tuple_shapes))
            elif i.HasField("mesh_axes_replica_group_list") or i.HasField("iota_collective_device_list"):
                try:
                    read_groups(i)
                except ValueError as error:
                    fault = f"%{i.name}: cannot read its replica groups: {error}"
            if fault:
                raise ValueError(fault)


def _out_of_tuple(name: str, index: int, count: int) -> str:
    return "" if 0 <= index < count else f"%{name} takes element {index} of a tuple of {count}"
