"""`fuse-send-recv`: a send and the recv that it meets become one custom-call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from crossrank.collective.dtypes import TOKEN
from crossrank.collective.kinds import Kind
from crossrank.errors import InputError
from crossrank.hlo.build import element
from crossrank.hlo.halves import TARGET_ATTRIBUTE, Half, Matcher, check_payload, halves_in
from crossrank.hlo.module import Instruction
from crossrank.hlo.order import cyclic
from crossrank.hlo.passes.convert_collectives_to_custom_call import API_VERSION_ORIGINAL
from crossrank.hlo.program import Program, ProgramPass
from crossrank.hlo.shape import Shape
from crossrank.hlo.targets import BASES, target_for
from crossrank.passes import option, register
from crossrank.remarks import Remarks

_SUFFIX = "_<dtype>"
# what may give a token to a send or recv, and what may take one from their done halves
_TOKEN_SOURCES = {"after-all", "custom-call", "parameter", "recv-done", "send-done"}
_TOKEN_USERS = {"after-all", "custom-call", "recv", "send"}


@register
@dataclass(frozen=True)
class FuseSendRecv(ProgramPass):
    """Makes one custom-call of a send and the recv on the same channel, with their done halves.

    Matches `send-done` and `recv-done` in the entry computation, or with `all_computations` in all of them; operand 0
    is the send or recv. Halves on one channel belong together; where they name routes, only with equal routes. Several
    pairs on one channel are paired in order, which dependencies must fix.

    Makes `(payload…, token[]) custom-call(data…, send_token, recv_token)` with `backend_config="channel_id=N"`. It is
    named by the frontend attribute `custom_call_target` of either half where there is one, else by `target`. A recv
    token that comes from the pair's own send-done is replaced by the send's. The recv-done becomes a tuple of payload
    and token, the send-done the token. Attributes, metadata and control dependencies stay.

    In a program of several modules (one for each rank) a send in one and the recv in another become `AwsNeuronSend_…`
    and `AwsNeuronRecv_…`. So does, with `convert_unpaired`, a half without a partner.

    Declines pairs that would wait for themselves (what is sent depends on what is received), halves without a partner,
    transfers to the host, sends and recvs that something else than their done uses.
    """

    name: ClassVar[str] = "fuse-send-recv"

    all_computations: bool = option(False, "also while and conditional bodies, and whatever else is called")
    convert_unpaired: bool = option(False, "make custom-calls of halves without a partner too")
    target: str = option(
        BASES[Kind.SEND_RECV] + _SUFFIX, "the name of a fused pair; <dtype> stands for the element type"
    )

    def run_program(self, program: Program, remarks: Sequence[Remarks]) -> list[bool]:
        """Fuse; returns for each module whether anything was fused."""
        if not self.target:
            raise InputError(f"pass {self.name}: target is empty", "give a name, or leave the option away")
        halves: list[Half] = []
        for rank, module in enumerate(program.modules):
            scope = self.computations(module) if self.all_computations else self.entry(module)

            def decline(i: Instruction, reason: str, said: Remarks = remarks[rank]) -> None:
                said.declined(f"%{i.name}", reason, i.where)

            halves += halves_in(program, rank, scope, decline)
        pairs, lonely = Matcher(program, halves, order_all=self.convert_unpaired).match()
        transfers = [_Transfer(pair) for pair in pairs]
        everywhere = "in any module" if len(program.modules) > 1 else ""
        for half in lonely:
            if self.convert_unpaired:
                transfers.append(_Transfer((half,)))
            else:
                place = everywhere or f"in %{half.computation.name}"
                reason = f"no {half.other} meets it on channel {half.channel} {place}"
                remarks[half.rank].declined(f"%{half.start.name}", reason, half.start.where)
        transfers = _without_cycles(transfers, remarks)
        for transfer in transfers:
            for half in transfer.halves:
                _check_tokens(program, half)
        targets = {t: self._target(program, *t.halves) for t in transfers if t.fused}
        changed = [False] * len(program.modules)
        for transfer in transfers:
            for half in transfer.halves:
                changed[half.rank] = True
            if transfer.fused:
                target = targets[transfer]
                _fuse(transfer.halves[0], transfer.halves[1], target)
                send, recv = (h.start for h in transfer.halves)
                said = f"fused with %{recv.name} → {target} on channel {transfer.halves[0].channel}"
                remarks[transfer.halves[0].rank].done(f"%{send.name}", said, send.where)
                continue
            for half in transfer.halves:
                said = f"{half.kind} → {_convert(half)} on channel {half.channel}"
                remarks[half.rank].done(f"%{half.start.name}", said, half.start.where)
        return changed

    def _target(self, program: Program, send: Half, recv: Half) -> str:
        inherited = {half.kind: name for half in (send, recv) if (name := half.inherited_target)}
        if len(set(inherited.values())) > 1:
            raise InputError(
                f"{program.name(send.rank, send.start)} asks for the target {inherited[Kind.SEND]}, and "
                f"%{recv.start.name} for {inherited[Kind.RECV]}",
                f"both halves must have the same {TARGET_ATTRIBUTE}",
            )
        if inherited:
            return next(iter(inherited.values()))
        named = target_for(Kind.SEND_RECV, None, Shape.tuple_of(recv.leaves()))
        suffix = named.removeprefix(BASES[Kind.SEND_RECV])
        return self.target.replace(_SUFFIX, suffix)


@dataclass(frozen=True, eq=False)
class _Transfer:
    """What is rewritten together: a send and its recv, or a half alone."""

    halves: tuple[Half, ...]

    @property
    def fused(self) -> bool:
        """Whether one custom-call stands for both."""
        return len(self.halves) == 2 and self.halves[0].computation is self.halves[1].computation

    def groups(self) -> list[tuple[Instruction, ...]]:
        """The instructions that become one."""
        if self.fused:
            return [self.halves[0].members + self.halves[1].members]
        return [h.members for h in self.halves]


def _check_tokens(program: Program, half: Half) -> None:
    """InputError where a token comes from, or goes to, what cannot stand before or behind the custom-call."""
    check_payload(program, half)

    def fault(text: str, i: Instruction) -> InputError:
        return InputError(
            f"{program.name(half.rank, half.start)}: {text}", f"%{i.name} is a {i.opcode}; leave its token away"
        )

    source = half.token
    while source.opcode == "get-tuple-element":
        above = source.operands[0]
        source = above.operands[source.proto.tuple_index] if above.opcode == "tuple" else above
    if source.opcode not in _TOKEN_SOURCES:
        raise fault("Unexpected non-CustomCall op returns token", source)
    work = list(half.done.users)
    for user in work:
        if user.opcode == "get-tuple-element":
            if any(leaf.dtype is TOKEN for leaf in user.shape.leaves()):
                work += user.users
        elif user.opcode == "tuple":
            if not user.is_root:
                raise fault("Unexpected non-root tuple uses token", user)
        elif user.opcode not in _TOKEN_USERS:
            raise fault("Unexpected instruction type uses token", user)


def _without_cycles(transfers: Sequence[_Transfer], remarks: Sequence[Remarks]) -> list[_Transfer]:
    """The transfers of which each can become one instruction; a remark on the others."""
    groups = defaultdict(list)
    for transfer in transfers:
        for group in transfer.groups():
            groups[group[0].computation].append((transfer, group))
    declined = set()
    for some in groups.values():
        declined |= {some[n][0] for n in cyclic([group for _, group in some])}
    for transfer in transfers:
        if transfer in declined:
            for half, partner in zip(transfer.halves, transfer.halves[::-1], strict=True):
                reason = "as one instruction it would wait for itself"
                if transfer.fused:
                    reason = (
                        f"fused with %{partner.start.name} it would wait for itself: something that needs one of them "
                        "is needed by the other"
                    )
                remarks[half.rank].declined(f"%{half.start.name}", reason, half.start.where)
    return [t for t in transfers if t not in declined]


def _call(
    half: Half, shape: Shape, operands: Sequence[Instruction], target: str, attributes: dict[str, str]
) -> Instruction:
    """A new custom-call on the channel of ``half``, with its metadata and the sharding of its done."""

    def edit(proto: Any) -> None:
        proto.custom_call_target = target
        proto.custom_call_api_version = API_VERSION_ORIGINAL
        proto.backend_config = f"channel_id={half.channel}".encode()
        proto.frontend_attributes.map.update(attributes)
        if half.done.proto.HasField("sharding"):  # of the leaves, of which the call has the same
            proto.sharding.CopyFrom(half.done.proto.sharding)

    return half.computation.add("custom-call", shape, operands, name=half.start.name, like=half.start, edit=edit)


def _fuse(send: Half, recv: Half, target: str) -> None:
    """Put one custom-call in the place of all four instructions."""
    tokens = [send.token, send.token if recv.token is send.done else recv.token]
    shape = Shape.tuple_of([*recv.leaves(), Shape(TOKEN)])
    attributes = {**recv.attributes, **send.attributes}
    attributes.pop(TARGET_ATTRIBUTE, None)
    call = _call(recv, shape, [*send.data(), *tokens], target, attributes)
    _take_over_order(call, (*send.members, *recv.members))
    *payload, token = _elements(call, recv)
    recv.replace_with(payload, token)
    send.replace_with([], token)


def _elements(call: Instruction, recv: Half) -> list[Instruction]:
    """What a custom-call gives, one by one."""
    return [element(call, n, like=recv.done) for n in range(len(call.shape.elements))]


def _convert(half: Half) -> str:
    """Put a custom-call in the place of a half whose partner is elsewhere; returns its target."""
    operands = [*(half.data() if half.kind is Kind.SEND else []), half.token]
    leaves = half.leaves()
    target = target_for(half.kind, None, Shape.tuple_of(leaves))
    shape = Shape(TOKEN) if half.kind is Kind.SEND else Shape.tuple_of([*leaves, Shape(TOKEN)])
    call = _call(half, shape, operands, target, half.attributes)
    call.edit().custom_call_has_side_effect = True  # somebody waits for it, whoever uses what it gives
    _take_over_order(call, half.members)
    *payload, token = [call] if half.kind is Kind.SEND else _elements(call, half)
    half.replace_with(payload, token)
    return target


def _take_over_order(call: Instruction, members: Sequence[Instruction]) -> None:
    """Give the control dependencies of ``members`` to ``call``; those among themselves go."""
    before = [p for m in members for p in m.control_predecessors if p not in members]
    for m in members:
        m.set_control_predecessors(())
    for s in [s for m in members for s in m.control_successors]:
        s.set_control_predecessors(call if p in members else p for p in s.control_predecessors)
    call.set_control_predecessors(before)
