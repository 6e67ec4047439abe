"""What must be found before XLA sees a module, because there it ends the process.

XLA's parser answers most bad input with a message. For a few faults that an edit by hand easily makes it has a check
that aborts instead (or it never returns): a mesh that cannot be, a gap in the parameter numbers, a reshape that changes
the number of elements, an index beyond a tuple's end, a dot of one operand. `check_text` and `check_message` find these
in one walk over the lines or the instructions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
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
_LINE = re.compile(
    r"^[ \t]*(?:ROOT\s+)?%?([\w.\-]+)\s*=\s*(\([^\n]*?\)|[a-z]\w*\[[^]\n]*\][^\s(]*)\s+([\w\-]+)\(([^\n]*)", re.M
)
_PARAMETER = re.compile(r"\bparameter\(\s*(\d+)\s*\)")
_ASIDE = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*[^*]*\*/')
_LAYOUT = re.compile(r"\]\{(-?\d[\d,\-]*)")
_DIMS = re.compile(r"[a-z]\w*\[([\d,\s]*)\]")
_INDEX = re.compile(r"\bindex=(-?\d+)")
_OPERAND = re.compile(r"%?([\w.\-]+)\s*\)")
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
    yield from _faults_of_parameters(text)
    yield from _faults_of_lines(text)


def _faults_of_parameters(text: str) -> Iterator[tuple[int, str]]:
    places: dict[int, int] = {}
    start = depth = 0
    for line in text.splitlines(keepends=True):
        opened, closed = line.count("{"), line.count("}")
        if opened != closed:
            bare = _ASIDE.sub("", line)
            depth += bare.count("{") - bare.count("}")
        if "parameter(" in line:
            for number in _PARAMETER.findall(_ASIDE.sub("", line)):
                places[int(number)] = start
        if opened != closed and depth <= 0:  # a computation ends
            yield from ((places[n], _gap(n)) for n in _beyond(places))
            places, depth = {}, 0
        start += len(line)


def _faults_of_lines(text: str) -> Iterator[tuple[int, str]]:
    shapes: dict[str, str] = {}
    counts: dict[str, int] = {}  # of the elements of a tuple
    for found in _LINE.finditer(text):
        name, shape, opcode, rest = found.groups()
        shapes[name] = shape
        fault = ""
        if opcode == "constant":
            if (layout := _LAYOUT.search(shape)) and not _is_order(layout[1]):
                fault = f"constant %{name} has the layout {{{layout[1]}}}, which is no order of its dimensions"
        elif opcode == "dot":
            if len([o for o in split_top_level(rest.split("), ")[0].rstrip(") ")) if o]) != 2:
                fault = f"dot %{name} does not have two operands"
        elif opcode in ("reshape", "get-tuple-element") and (operand := _OPERAND.search(rest)):
            source = shapes.get(operand[1], "")
            if opcode == "reshape":
                fault = _resized(name, _extents(source), _extents(shape))
            elif source.startswith("(") and (index := _INDEX.search(rest)):
                if operand[1] not in counts:
                    counts[operand[1]] = len(list(filter(None, split_top_level(_COMMENT.sub("", source[1:-1])))))
                fault = _out_of_tuple(name, int(index[1]), counts[operand[1]])
        if fault:
            yield found.start(1), fault


def _is_order(text: str) -> bool:
    numbers = text.split(",")
    return sorted(numbers) == sorted(map(str, range(len(numbers))))


def _extents(shape: str) -> tuple[int, ...] | None:
    """The extents of an array as text has them; None for a tuple, and where one of them is only a bound."""
    found = _DIMS.match(shape)
    return tuple(int(d) for d in found[1].split(",") if d.strip()) if found else None


def check_message(module: Any) -> None:
    """ValueError, with instruction and fault, where XLA would abort on a ``Module`` message."""
    for c in module.computations:
        nodes = {i.id: i for i in c.instructions}
        parameters = {}
        for i in c.instructions:
            if i.opcode == "parameter":
                parameters[i.parameter_number] = i.name
                continue
            source = nodes[i.operand_ids[0]].shape if i.operand_ids and i.operand_ids[0] in nodes else None
            fault = ""
            if i.opcode == "reshape" and source is not None and not any(source.is_dynamic_dimension):
                fault = _resized(i.name, tuple(source.dimensions), tuple(i.shape.dimensions))
            elif i.opcode == "get-tuple-element" and source is not None and len(source.tuple_shapes):
                fault = _out_of_tuple(i.name, i.tuple_index, len(source.tuple_shapes))
            elif i.HasField("mesh_axes_replica_group_list") or i.HasField("iota_collective_device_list"):
                try:
                    read_groups(i)
                except ValueError as error:
                    fault = f"%{i.name}: cannot read its replica groups: {error}"
            if fault:
                raise ValueError(fault)
        for number in _beyond(parameters):
            raise ValueError(f"%{parameters[number]}: {_gap(number)}")


def _beyond(numbers: Iterable[int]) -> list[int]:
    """Parameter numbers that leave a gap below them, or are none."""
    known = sorted(numbers)
    return [n for place, n in enumerate(known) if n != place][:1]


def _gap(number: int) -> str:
    return f"parameter({number}) leaves a gap: the numbers of a computation's parameters are 0, 1, 2, …"


def _resized(name: str, source: tuple[int, ...] | None, result: tuple[int, ...] | None) -> str:
    if source is None or result is None or math.prod(source) == math.prod(result):
        return ""
    return f"reshape %{name} makes {list(result)} of {list(source)}, which has another number of elements"


def _out_of_tuple(name: str, index: int, count: int) -> str:
    return "" if 0 <= index < count else f"%{name} takes element {index} of a tuple of {count}"
