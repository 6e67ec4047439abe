"""The fields of instructions: one frozen dataclass for each, written as ``{key = value, …}`` and read back.

A value is an int, a float, a bool, a word or a tuple of such; what has its default is not written.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from enum import Enum, IntEnum, StrEnum
from functools import cache
from types import UnionType
from typing import Any, ForwardRef, Union, get_args, get_origin, get_type_hints

from xdsl.parser import AttrParser
from xdsl.printer import Printer

from crossrank.instr.compute import Value
from crossrank.instr.kinds import AluOp, CcTypeHint, CollectiveDimension, CollectiveKind, Space

Pairs = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Fields:
    """No fields at all; the base of all of them."""

    def given(self) -> dict[str, Any]:
        """The fields that do not have their default, and those that are always said."""
        return {
            f.name: getattr(self, f.name)
            for f in dataclasses.fields(self)
            if f.metadata.get("always") or getattr(self, f.name) != f.default
        }


@dataclass(frozen=True)
class TensorFields(Fields):
    """A tensor of one core, or of all cores of a rank where it lies in shared HBM.

    Attributes:
        name: by which the cores of a rank share it.
        input: the position among the program's inputs; -1: it is none.
        outputs: the positions among the program's outputs.
        written_by_peer: another core writes it, so that no allocator may take it for dead.
        core: of an alias: the core that has the tensor; -1: it is no alias.
        of: of an alias: the tensor's name there.
    """

    name: str
    input: int = -1
    outputs: tuple[int, ...] = ()
    written_by_peer: bool = False
    core: int = -1
    of: str = ""


@dataclass(frozen=True)
class AccessFields(Fields):
    """An access pattern on a tensor.

    Attributes:
        offset: the first element.
        pattern: ``(stride, extent)`` of each dimension.
        dtype: the type that the tensor's bytes are taken for, in whose elements all is counted; empty: the tensor's.
        scale: what each register's value is multiplied by before it is added to the offset.
        index_scale: what each value of the index tensor, which runs along the first dimension, is multiplied by.
        skip_outside: an index outside of the tensor leaves its elements out; else it is an error.
    """

    offset: int
    pattern: Pairs
    dtype: str = ""
    scale: tuple[int, ...] = ()
    index_scale: int = 0
    skip_outside: bool = False

    def __post_init__(self) -> None:
        if any(len(dim) != 2 or dim[1] < 0 for dim in self.pattern):
            raise ValueError("a pattern is [stride, extent] of each dimension, and no extent is below zero")


@dataclass(frozen=True)
class CollectiveFields(Fields):
    """The fields of an ``InstCollectiveCompute``; those of the source, by their names.

    Attributes:
        kind: what it does.
        op_class: the class of the op that it comes from; empty where it comes from none.
        replica_groups: who takes part, for the kinds with groups. Of a local one the cores of a rank, else ranks.
        src_target_pairs: who sends to whom, for the kinds with pairs.
        op: the reduction, for the kinds that reduce.
        cc_dim: the dimension that a group collective joins or splits.
        concat_dim: of an all-to-all: the dimension that it joins; it splits ``cc_dim``.
        channel_id: the channel of a tiled permute; -1: it has none. Odd channels go round the other way.
        num_channels: how many channels the permute has in all.
        stream_id: -1 until it is set; 0 tensor parallelism, 1 FSDP.
        cc_type_hint: of all-gather and reduce-scatter.
        is_local: whether it stays among the cores of a rank.
        pipe_id: what goes through one pipe completes together.
        send_to_rank: the core to send to.
        recv_from_ranks: the cores to receive from: one, or several for a reducing one.
        initial_core_barrier: of a send and receive between cores: they meet before anything is read or written, which
            all of them do who are on one pipe.
        use_gpsimd_dma: whether its author asked for the GPSIMD engine.
        permute_chain: carried through, like the next: nothing of ours sets or reads them.
        unique_tensors_type: carried through.
        dma_qos: 0 to 3; -1: not given.
        split_count: of an all-to-all only.
        broadcast_sizes: of a broadcast: the extents that are sent; empty: all of the tensor.
        recv_counts_known: of a variable exchange: the receive counts are not written.
        has_rdispls: the metadata has a row of displacements at the receiver.
        uniform_send: one chunk goes to all: a variable all-gather.
        phase: ``prepare``, ``trigger``, or empty for both at once.
    """

    kind: CollectiveKind = field(default=CollectiveKind.ALL_REDUCE, metadata={"always": True})
    op_class: str = ""
    replica_groups: Pairs = ()
    src_target_pairs: Pairs = ()
    op: AluOp | None = None
    cc_dim: CollectiveDimension | None = None
    concat_dim: CollectiveDimension | None = None
    channel_id: int = -1
    num_channels: int = 1
    stream_id: int = -1
    cc_type_hint: CcTypeHint = CcTypeHint.NONE
    is_local: bool = False
    pipe_id: int = -1
    send_to_rank: int = -1
    recv_from_ranks: tuple[int, ...] = ()
    initial_core_barrier: bool = False
    use_gpsimd_dma: bool = False
    permute_chain: tuple[int, ...] = ()
    unique_tensors_type: int = 0
    dma_qos: int = -1
    split_count: int = 0
    broadcast_sizes: tuple[int, ...] = ()
    recv_counts_known: bool = False
    has_rdispls: bool = False
    uniform_send: bool = False
    phase: str = ""


@dataclass(frozen=True)
class PeerFields(Fields):
    """What a bare send or receive carries: the other rank."""

    peer_id: int
    dma_qos: int = -1


@dataclass(frozen=True)
class BarrierFields(Fields):
    """A meeting of cores of one rank.

    Attributes:
        cores: who meets.
        engine: on which engine the core waits.
        barrier_id: cores meet in barriers of one number; -1 until they are numbered: the k-th meets the k-th.
    """

    cores: tuple[int, ...]
    engine: str = "gpsimd"
    barrier_id: int = -1


@dataclass(frozen=True)
class RankFields(Fields):
    """Of how many ranks the rank is one."""

    world_size: int


@dataclass(frozen=True)
class RingFields(Fields):
    """Which rank's data a member of a ring holds after ``iteration_id`` steps."""

    iteration_id: int
    replica_groups: Pairs
    channel_id: int = 0
    num_channels: int = 1


@dataclass(frozen=True)
class CopyFields(Fields):
    """A copy by a DMA queue, or by GPSIMD from SBUF to SBUF.

    Attributes:
        dma_qos: 0 to 3; -1: not given.
        to_core: of a copy into another core's memory: that core; -1: its own.
        pipe_id: of a copy that a send and receive became: its pipe.
        use_gpsimd_dma: whether the author of that asked for the GPSIMD engine.
        semaphore: whether it raises a semaphore on ``to_core``, and waits for the others of its pipe to do so on its
            own: copies of one pipe then end together, without a barrier.
    """

    dma_qos: int = -1
    to_core: int = -1
    pipe_id: int = -1
    use_gpsimd_dma: bool = False
    semaphore: bool = False


@dataclass(frozen=True)
class ComputeFields(Fields):
    """A computation of one engine.

    Attributes:
        function: which, by its name in `compute`.
        params: its parameters, ``(name, value)``.
        engine: on which engine; empty: the function's own.
    """

    function: str
    params: tuple[tuple[str, Value], ...] = ()
    engine: str = ""


@dataclass(frozen=True)
class AluFields(Fields):
    """Arithmetic on registers: 32 bits, signed, wrapping; division and remainder round down.

    Attributes:
        op: ``add``, ``subtract``, ``multiply``, ``divide``, ``mod``, ``min``, ``max``, ``and``, ``or``, ``xor``,
            ``shift_left``, ``shift_right``, a comparison (``eq ne lt le gt ge``, 0 or 1), or ``move``.
        left: the left operand where it is a number.
        right: the right operand where it is a number.
    """

    op: str
    left: int | None = None
    right: int | None = None


_ENUMS: tuple[type[Enum], ...] = (CollectiveKind, AluOp, CollectiveDimension, CcTypeHint, Space)


@cache
def _hints(fields: type[Fields]) -> dict[str, Any]:
    """The type of each field."""
    hints = get_type_hints(fields)
    return {f.name: hints[f.name] for f in dataclasses.fields(fields)}


def _enum(hint: Any) -> type[Enum] | None:
    """The enumeration of which a field is a word, if it is one."""
    return next((enum for enum in _ENUMS if hint is enum or enum in get_args(hint)), None)


def _is_a(value: Any, hint: Any) -> bool:
    """Whether a value that was read is of a field's type."""
    if get_origin(hint) is tuple:
        items = get_args(hint)
        if not isinstance(value, tuple):
            return False
        if items[-1] is Ellipsis:
            return all(_is_a(v, items[0]) for v in value)
        return len(value) == len(items) and all(map(_is_a, value, items))
    if get_origin(hint) in (Union, UnionType):
        return any(_is_a(value, h) for h in get_args(hint))
    if isinstance(hint, ForwardRef):  # a `Value` within a `Value`
        return True
    return type(value) is hint


def print_fields(printer: Printer, fields: Fields) -> None:
    """Write ``{key = value, …}``; nothing where all have their defaults."""
    given = fields.given()
    if given:
        printer.print_string("{" + ", ".join(f"{key} = {literal(value)}" for key, value in given.items()) + "}")


def literal(value: Any) -> str:
    """A value as it is written."""
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, IntEnum):
        return value.name.lower()
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(literal, value)) + "]"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, float):
        return _decimal(value) if math.isfinite(value) else "nan" if value != value else _INFINITIES[value]
    return str(value)


def quoted(text: str) -> str:
    """A string as the reader takes it."""
    return '"' + "".join(f"\\{ord(c):02X}" if c in '"\\\x7f' or c < " " else c for c in text) + '"'


def _decimal(value: float) -> str:
    """A float that the reader takes for one, and for the same one."""
    text = repr(value)
    mantissa, e, exponent = text.partition("e")
    if "." not in mantissa:
        mantissa += ".0"
    return mantissa + e + exponent


_INFINITIES = {math.inf: "inf", -math.inf: "neg_inf"}
_WORDS: dict[str, Value] = {"true": True, "false": False, "none": None, "nan": math.nan}
_WORDS |= {word: value for value, word in _INFINITIES.items()}


def parse_fields(parser: AttrParser, fields: type[Fields]) -> Fields:
    """Read what `print_fields` wrote."""
    hints = _hints(fields)  # type: ignore[arg-type]
    given: dict[str, Any] = {}

    def one() -> None:
        key = parser.parse_identifier()
        if key not in hints:
            parser.raise_error(f"there is no field {key} here; there are {', '.join(sorted(hints)) or 'none'}")
        parser.parse_punctuation("=")
        enum = _enum(hints[key])
        given[key] = parse_value(parser) if enum is None else _enum_value(parser, enum)
        if not _is_a(given[key], hints[key]):
            parser.raise_error(f"{literal(given[key])} cannot be the field {key}")

    if parser.parse_optional_punctuation("{") is not None:
        one()
        while parser.parse_optional_punctuation(",") is not None:
            one()
        parser.parse_punctuation("}")
    missing = [f.name for f in dataclasses.fields(fields) if f.default is dataclasses.MISSING and f.name not in given]
    if missing:
        parser.raise_error(f"the field {missing[0]} is missing")
    try:
        return fields(**given)
    except ValueError as error:
        parser.raise_error(str(error))


def _enum_value(parser: AttrParser, enum: type[Enum]) -> Enum | None:
    word = parser.parse_identifier()
    for member in enum:
        if word in (member.value, member.name.lower()):
            return member
    if word != "none":
        parser.raise_error(f"{word} is none of {', '.join(m.name.lower() for m in enum)}")
    return None


def parse_string(parser: AttrParser) -> str:
    """Read what `quoted` wrote."""
    return parser.expect(lambda: _optional_string(parser), "a string in quotes is expected")


def _optional_string(parser: AttrParser) -> str | None:
    if (text := parser.parse_optional_str_literal()) is not None:
        return text
    if (code := parser.parse_optional_bytes_literal()) is None:  # escapes beside what is not ASCII
        return None
    try:
        return code.decode()
    except UnicodeDecodeError:
        parser.raise_error("this string is no UTF-8")


def parse_value(parser: AttrParser) -> Value:
    """Read one value."""
    if (text := _optional_string(parser)) is not None:
        return text
    if (number := parser.parse_optional_number()) is not None:
        return number
    if parser.parse_optional_punctuation("[") is not None:
        items: list[Value] = []
        while parser.parse_optional_punctuation("]") is None:
            if items:
                parser.parse_punctuation(",")
            items.append(parse_value(parser))
        return tuple(items)
    word = parser.parse_identifier()
    if word not in _WORDS:
        parser.raise_error(f"{word} is no value; write words in quotes")
    return _WORDS[word]
