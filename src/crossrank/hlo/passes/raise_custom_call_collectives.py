"""`raise-custom-call-collectives`: the inverse of the conversion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from crossrank.collective.dtypes import TOKEN, U32
from crossrank.collective.kinds import Kind
from crossrank.errors import InputError
from crossrank.hlo.build import ReductionBodies, element, tuple_of
from crossrank.hlo.collectives import (
    GROUPS_ATTRIBUTE,
    NATIVE_CONFIG_ATTRIBUTE,
    PAIRS_ATTRIBUTE,
    CollectiveInfo,
    describe,
    kind_of,
    write_groups,
)
from crossrank.hlo.hlo_pass import HloPass
from crossrank.hlo.module import Instruction, Module
from crossrank.hlo.shape import Shape
from crossrank.passes import register
from crossrank.remarks import Remarks

_TOKEN = Shape(TOKEN)
_CONTEXT = Shape(U32, (), ())  # what a send or a recv hands to its done half beside data and token
_DIMENSIONED = (Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL)


@register
@dataclass(frozen=True)
class RaiseCustomCallCollectives(HloPass):
    """Turns custom-calls of the naming contract back into native collectives.

    Matches `custom-call`s whose target is a name of the contract, the UNKNOWN forms included, in all computations.

    Makes the native collective from the name, the `backend_config` and the groups or pairs; the element type is read
    from the shape. Reduction bodies are made anew, one for each op and type. A fused send and recv becomes send,
    send-done, recv and recv-done, a half its own two.

    Declines a reduction named `UNKNOWNOP` that has no `reduce=` in its config: its meaning is lost. A config, groups or
    pairs that cannot be read, or that no native collective could have, are an error.
    """

    name: ClassVar[str] = "raise-custom-call-collectives"

    def run(self, module: Module, remarks: Remarks) -> bool:
        """Raise; returns whether anything was raised."""
        bodies = ReductionBodies(module)
        changed = False
        found = [
            i for c in self.computations(module, wrapped=True) for i in c.post_order() if i.opcode == "custom-call"
        ]
        for i in found:
            if kind_of(i) is None:
                continue
            info = describe(i)
            assert info is not None
            _check_meaning(i, info)
            if info.kind.reduces and info.reduction is None:
                remarks.declined(f"%{i.name}", "its name says UNKNOWNOP and its config has no reduce=", i.where)
                continue
            target = i.proto.custom_call_target
            if info.kind.has_tokens:
                raise_send_recv(i, info)
            else:
                raise_collective(i, info, bodies)
            remarks.done(f"%{i.name}", f"{target} → {info.kind}", i.where)
            changed = True
        return changed


def _check_meaning(i: Instruction, info: CollectiveInfo) -> None:
    """InputError where no native collective can say what the custom-call says."""
    if info.mode is None:
        raise InputError(f"%{i.name}: Invalid combination of has_channel_id and use_global_device_ids")
    if info.kind.has_tokens:
        _check_tokens(i, info)
    tuple_form = info.kind is Kind.ALL_TO_ALL and i.shape.is_tuple
    if info.kind not in _DIMENSIONED or (tuple_form and info.dim is None):
        return
    rank = min(len(leaf.dims) for leaf in i.shape.leaves())
    if tuple_form or info.dim is None or info.dim >= rank:
        has = "no dimension" if info.dim is None else f"dimension={info.dim}"
        result = "is a tuple" if tuple_form else f"{rank} dimensions"
        raise InputError(f"%{i.name}: its config has {has}, and its result {result}")


def _check_tokens(i: Instruction, info: CollectiveInfo) -> None:
    """Operands: the data of a send, then a token for each half; results: the data of a recv, then a token."""
    if info.channel_id is None:
        raise InputError(f"%{i.name}: Send and Recv must have channel_id")
    sends, receives = info.kind is not Kind.RECV, info.kind is not Kind.SEND
    tokens = sends + receives
    operands = [o.shape for o in i.operands]
    results = list(i.shape.elements) if receives else [i.shape]
    data, payload = operands[:-tokens], results[:-1]
    right = (
        [s.dtype for s in (*operands[len(data) :], *results[-1:])] == [TOKEN] * (tokens + 1)
        and all(s.is_array for s in (*data, *payload))
        and bool(data) == sends
        and bool(payload) == receives
    )
    if not right:
        raise InputError(
            f"%{i.name}: a {info.kind} is no {i.shape} of {', '.join(map(str, operands))}",
            "its operands are data and one token for each half, its results data and one token",
        )


def raise_collective(i: Instruction, info: CollectiveInfo, bodies: ReductionBodies) -> None:
    """Make a native collective of one custom-call, in its place."""
    proto = i.edit()
    for field in ("custom_call_target", "custom_call_api_version", "backend_config"):
        proto.ClearField(field)
    i.set_opcode(str(info.kind))
    for attribute in (GROUPS_ATTRIBUTE, PAIRS_ATTRIBUTE):
        i.set_frontend_attribute(attribute, None)
    proto.backend_config = i.frontend_attributes.get(NATIVE_CONFIG_ATTRIBUTE, "").encode()
    i.set_frontend_attribute(NATIVE_CONFIG_ATTRIBUTE, None)
    if info.groups is not None:
        write_groups(proto, info.groups)
    for source, target in info.pairs or ():
        proto.source_target_pairs.add(source=source, target=target)
    proto.channel_id = info.channel_id or 0
    proto.use_global_device_ids = bool(info.use_global_device_ids)
    proto.constrain_layout = info.constrain_layout
    if info.dim is not None and info.kind in _DIMENSIONED:
        proto.dimensions.append(info.dim)
    if info.reduction is not None:
        i.set_called([bodies.get(info.reduction, next(i.shape.leaves()).dtype)])


def raise_send_recv(i: Instruction, info: CollectiveInfo) -> tuple[Instruction | None, Instruction | None]:
    """Put send, send-done, recv and recv-done, or two of them, in the place of one custom-call.

    The recv waits for its send-done, so that pairs on one channel stay in order where the custom-calls had one.

    Returns:
        the send and the recv.
    """
    c = i.computation

    def half(opcode: str, shape: Shape, *operands: Instruction) -> Instruction:
        def edit(proto: Any) -> None:
            proto.channel_id = info.channel_id
            proto.frontend_attributes.CopyFrom(i.proto.frontend_attributes)

        return c.add(opcode, shape, operands, like=i, edit=edit)

    send = recv = None
    data = [o for o in i.operands if o.shape.is_array]
    tokens = list(dict.fromkeys(i.operands[len(data) :]))
    result = tokens[0] if len(tokens) == 1 else c.add("after-all", _TOKEN, tokens, like=i)
    if info.kind is not Kind.RECV:
        sent = data[0] if len(data) == 1 else tuple_of(c, data, like=i)
        send = half("send", Shape.tuple_of([sent.shape, _CONTEXT, _TOKEN]), sent, result)
        send.set_control_predecessors(i.control_predecessors)
        result = half("send-done", _TOKEN, send)
    if info.kind is not Kind.SEND:
        *parts, _ = i.shape.elements
        payload = parts[0] if len(parts) == 1 else Shape.tuple_of(parts)
        recv = half("recv", Shape.tuple_of([payload, _CONTEXT, _TOKEN]), result)
        recv.set_control_predecessors(i.control_predecessors)
        result = half("recv-done", Shape.tuple_of([payload, _TOKEN]), recv)
        if len(parts) > 1:
            received = element(result, 0, like=i)
            values = [element(received, n, like=i) for n in range(len(parts))]
            result = tuple_of(c, [*values, element(result, 1, like=i)], like=i)
    i.set_control_predecessors(())
    result.take_place_of(i)
    return send, recv
