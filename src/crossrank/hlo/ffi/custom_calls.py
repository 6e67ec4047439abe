"""The custom-calls of a module as it is run: a backend or a pin stands behind each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from crossrank.collective.dtypes import DType
from crossrank.collective.kinds import Kind
from crossrank.hlo.build import broadcast, element, reshape, scalar, slice_, tuple_of
from crossrank.hlo.collectives import GROUP_FIELDS
from crossrank.hlo.ffi.call import Call
from crossrank.hlo.module import Computation, Instruction
from crossrank.hlo.shape import Shape

COLLECTIVE_TARGET = "crossrank.collective"
PIN_TARGET = "crossrank.pin"
API_VERSION_TYPED_FFI = 4


class Pins(Protocol):
    """Where pins are made known; see `crossrank.hlo.ffi.native.Native`."""

    def pin(self, label: str, watch: Sequence[DType | None] = ()) -> int:
        """A new pin; ``watch`` names the types in which it looks for NaN."""
        ...

    def eager(self, id: int, ranks: Sequence[int]) -> None:
        """These ranks give their data to a registered collective, and wait for nobody."""
        ...


def custom_call(shape: Shape, operands: Sequence[Instruction], target: str, number: int, name: str) -> Instruction:
    """A new call of ours.

    Args:
        shape: of what it gives, row-major.
        operands: what it takes, one or more; they reach it row-major.
        target: of our handlers.
        number: what it was registered under.
        name: of the instruction.
    """
    edit = partial(_call_fields, target=target, number=number)
    made = operands[0].computation.add("custom-call", shape, operands, name=name, edit=edit)
    _row_major_operands(made)
    return made


def give(
    i: Instruction, call: Call, number: int, rank: Instruction, dies_at: Callable[[Instruction, Instruction], bool]
) -> None:
    """Make of a collective the custom-call that a backend knows under ``number``.

    Args:
        i: the collective; its operands and results are, or become, row-major.
        call: what was registered.
        number: what registering it returned.
        rank: the flattened rank as ``u32[]``, in the computation of ``i``.
        dies_at: whether the buffer of an operand is free once ``i`` has read it, so that a result may take it.
    """
    proto = i.edit()
    _clear_native(proto)
    i.set_called(())
    i.set_opcode("custom-call")
    _call_fields(proto, COLLECTIVE_TARGET, number)
    i.set_shape(i.shape.as_row_major())
    operands = list(i.operands)
    kind = call.collective.kind
    in_place = kind is Kind.ALL_REDUCE and len(call.results) == len(operands)
    i.set_operands([*operands, rank])
    _row_major_operands(i)
    if in_place:
        for n, operand in enumerate(operands):
            if dies_at(operand, i):
                alias = proto.output_operand_aliasing.add(operand_index=n)
                if i.shape.is_tuple:
                    alias.output_shape_index.append(n)
    elif kind is Kind.RAGGED_ALL_TO_ALL and dies_at(operands[1], i):  # what no rows arrive for stays
        proto.output_operand_aliasing.add(operand_index=1)


# buffers that belong to somebody else, or that XLA makes once for the whole run
_NOT_OURS = {"parameter", "constant", "get-tuple-element", "iota", "broadcast"}
_ALIASES = {"reshape", "bitcast", "opt-barrier"}


def dies_at(value: Instruction, user: Instruction) -> bool:
    """Whether the buffer of ``value`` is free once ``user`` has read it (else XLA would have to copy it first)."""
    while True:
        if len(value.users) != 1 or user.operands.count(value) != 1 or value.is_root:
            return False
        if value.opcode in _NOT_OURS:
            return False
        if value.opcode not in _ALIASES:
            return value.shape.is_array
        value, user = value.operands[0], value


def identity(values: Sequence[Instruction], number: int) -> Instruction:
    """The pin of that number: a call that XLA cannot see through, and that gives what it takes."""
    shapes = [v.shape.as_row_major() for v in values]
    shape = shapes[0] if len(shapes) == 1 else Shape.tuple_of(shapes)
    return custom_call(shape, values, PIN_TARGET, number, "pin")


def hold(i: Instruction, after: Instruction, number: int) -> None:
    """Let a collective, or a loop or conditional, wait for ``after`` as if that were one of its operands.

    Args:
        i: changed: an operand of it goes through a pin.
        after: what must be there before.
        number: of the pin.
    """
    first, n = i.operands[0], steering(i)
    value = first if n is None else element(first, n)
    if not value.shape.is_array:
        return
    pinned = element(identity([value, after], number), 0)
    if n is not None:
        parts = [pinned if k == n else element(first, k) for k in range(len(first.shape.elements))]
        pinned = tuple_of(i.computation, parts)
    i.set_operands([pinned, *i.operands[1:]])


def steering(i: Instruction) -> int | None:
    """Which element of its state a loop decides by: XLA cannot drop it, nor know it ahead. None where there is none."""
    if i.opcode != "while" or not i.shape.is_tuple:
        return None
    reads = (u for u in i.called[1].parameters[0].users if u.opcode == "get-tuple-element" and u.shape.is_array)
    return next((int(u.proto.tuple_index) for u in reads), None)


def one_of(x: Instruction) -> Instruction:
    """One element of an array, as a scalar; of an empty array itself."""
    dims = x.shape.dims
    return reshape(slice_(x, [0] * len(dims), [1] * len(dims)), ()) if dims and x.shape.count else x


def zeros(c: Computation, shapes: Sequence[Shape]) -> list[Instruction]:
    """Arrays of zeros."""
    found = []
    for shape in shapes:
        zero = scalar(c, 0, shape.dtype)
        found.append(broadcast(zero, shape.dims) if shape.dims else zero)
    return found


def _clear_native(proto: Any) -> None:
    for name in (
        *GROUP_FIELDS,
        "channel_id",
        "use_global_device_ids",
        "dimensions",
        "source_target_pairs",
        "frontend_attributes",
        "custom_call_api_version",
        "backend_config",
    ):
        proto.ClearField(name)


def _call_fields(proto: Any, target: str, number: int) -> None:
    proto.custom_call_target = target
    proto.custom_call_api_version = API_VERSION_TYPED_FFI
    proto.backend_config = f"{{id = {number} : i64}}".encode()


def _row_major_operands(i: Instruction) -> None:
    """Without this XLA may hand a handler buffers in another layout, and says nothing."""
    proto = i.edit()
    proto.constrain_layout = True
    del proto.operand_shapes_with_layout[:]
    for o in i.operands:
        o.shape.as_row_major().write(proto.operand_shapes_with_layout.add())
