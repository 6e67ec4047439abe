"""The form of a module that a run executes: chosen collectives call our FFI handlers, or are pinned.

What stands in a user's module keeps the naming contract; this form is made just for the run. Each collective is

* left to XLA (`NATIVE`), with its groups written out as ranks,
* left to XLA, its operands and results sent through an identity custom-call (`PINNED`), so that XLA neither folds nor
  promotes nor lays out differently around it than around a custom-call,
* left out (`OUT`), or
* given to a `Backend`: a custom-call that carries an id, under which the backend knows groups, shapes and kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol

from crossrank.collective.dtypes import BF16, F16, F32, S16, TOKEN, U16, U32
from crossrank.collective.groups import ExplicitGroups
from crossrank.collective.kinds import Kind, ReduceOp
from crossrank.collective.pairs import SourceTargetPairs
from crossrank.collective.semantics import Collective
from crossrank.errors import InputError
from crossrank.hlo.backend_config import BINARY_OPS
from crossrank.hlo.build import ReductionBodies, convert, element, scalar, tuple_of
from crossrank.hlo.collectives import CollectiveInfo, describe, kind_of, pairs_of, ranks_of, write_groups
from crossrank.hlo.ffi.call import Backend, Call, call_of, label_of, roles
from crossrank.hlo.ffi.custom_calls import (
    COLLECTIVE_TARGET,
    Pins,
    custom_call,
    dies_at,
    give,
    hold,
    identity,
    one_of,
    zeros,
)
from crossrank.hlo.ffi.open_calls import open_calls
from crossrank.hlo.ffi.replicas import as_replicas
from crossrank.hlo.ffi.split import split_variadic
from crossrank.hlo.module import Computation, Instruction, Module
from crossrank.hlo.order import cyclic
from crossrank.hlo.passes.raise_custom_call_collectives import raise_collective, raise_send_recv
from crossrank.hlo.ranks import Ranks
from crossrank.hlo.shape import Shape
from crossrank.hlo.targets import element_type

_TOKEN = Shape(TOKEN)
_ROUNDED = (BF16, F16, F32)
_PROMOTED = (BF16, S16, U16)
"""What XLA:CPU reduces in a wider type, for which it takes the body's root to be the operation."""


class Left(Enum):
    """Collectives that stay with XLA, or go: of those that are left out each rank takes what it gave."""

    NATIVE = "native"
    PINNED = "pinned"
    OUT = "out"


@dataclass
class RunForm:
    """A module as it is run.

    Attributes:
        data: the serialized message.
        calls: id → what is called under it.
        pins: id of a pin that watches for NaN → origin of its collective.
        raised: custom-calls that no backend serves, with the reason; they run as native collectives.
    """

    data: bytes
    calls: dict[int, Call] = field(default_factory=dict)
    pins: dict[int, int] = field(default_factory=dict)
    raised: list[tuple[str, str]] = field(default_factory=list)


class Checks(Protocol):
    """What looks at operands and results; see `crossrank.hlo.execute.collective_checks`."""

    def register(self, call: Call, *, ours: bool) -> int:
        """A check of a collective; ``ours``: a backend computes it, and not XLA."""
        ...


Choose = Callable[[Instruction, CollectiveInfo, Call], "Left | Backend"]


def run_form(
    module: Module,
    choose: Choose,
    pins: Pins,
    checks: Checks | None = None,
    pinned_values: frozenset[int] = frozenset(),
) -> RunForm:
    """Make the form of ``module`` (which is changed) in which ``choose`` says what becomes of each collective.

    Args:
        module: changed.
        choose: who computes a collective.
        pins: where pins are made known.
        checks: where given, each collective hands its operands and results to one of them.
        pinned_values: origins of other instructions whose results go through a pin.
    """
    return _Former(module, choose, pins, checks).run(pinned_values)


class _Former:
    def __init__(self, module: Module, choose: Choose, pins: Pins, checks: Checks | None) -> None:
        self.checks = checks
        self.module = module
        self.choose = choose
        self.pins = pins
        self.form = RunForm(b"")
        self.bodies = ReductionBodies(module)
        self.ranks: Ranks
        self.converted: set[Instruction] = set()  # halves that were custom-calls
        self.sent: list[Instruction] = []  # calls that wait for nobody, of the computation at hand
        self.moved: list[Instruction] = []  # its other calls of sends and recvs

    def run(self, pinned_values: frozenset[int]) -> RunForm:
        module = self.module
        open_calls(module)
        if pinned_values:
            for i in list(module.instructions()):
                if i.origin in pinned_values and i.shape.is_array and kind_of(i) is None:
                    self._pin_value(i)
        self.ranks = as_replicas(module)
        speaking: set[Computation] = set()
        for c in list(module.computations):  # callees first; reduction bodies are added on the way
            around = [i for i in c.post_order() if any(b in speaking for b in i.called)]
            found = [(i, kind_of(i)) for i in c.post_order() if kind_of(i) is not None]
            halves = [h for i, kind in found if kind in (Kind.SEND, Kind.RECV) for h in self._native_half(i)]
            if found or around:
                speaking.add(c)
            self.sent, self.moved = [], []
            self._pair_send_recv(c, halves)
            alone = [i for i, kind in found if kind not in (Kind.SEND, Kind.RECV)]
            self._send_first([*alone, *self.moved, *around])
            for i in alone:
                self._form(i)
        module.remove_unreachable()
        self.form.data = module.serialize()
        return self.form

    # -- one collective ------------------------------------------------------------------------------------------------
    def _form(self, i: Instruction) -> None:
        info = describe(i)
        assert info is not None
        if info.kind.reduces and info.reduce_op is None and (op := _rounded_op(i.called[0])) is not None:
            i.set_called([self.bodies.get(op, i.called[0].root.shape.dtype)])
            info = describe(i)
            assert info is not None
        if info.kind.reduces and info.reduce_op is None:
            if element_type(i.shape) in _PROMOTED and i.called[0].root.opcode not in BINARY_OPS:
                raise unknown_reduction(f"%{i.name}")  # XLA:CPU aborts on it
            self._leave(i, info, (), pinned=False)  # a reduction that only XLA understands
            return
        call = call_of(i, info, self.module.config)
        choice = self.choose(i, info, call)
        if info.kind is Kind.SEND_RECV:
            self._fused(i, info, call, choice)
        elif choice is Left.OUT:
            given = tuple_of(i.computation, i.operands) if i.shape.is_tuple else i.operands[0]
            i.replace_all_uses_with(given)
            i.computation.remove(i)
        elif isinstance(choice, Left):
            if info.converted:
                self.form.raised.append((f"%{i.name}", f"no backend serves {i.proto.custom_call_target}"))
                raise_collective(i, info, self.bodies)
            self._check(i, i.operands, call, ours=False)
            self._leave(i, info, call.collective.pairs, pinned=choice is Left.PINNED)
        else:
            self._give(i, call, choice)

    def _give(self, i: Instruction, call: Call, backend: Backend) -> Instruction:
        """Let a backend compute it; returns what to take for it from here on."""
        number = backend.register(call)
        self.form.calls[number] = call
        operands = list(i.operands)
        give(i, call, number, self.ranks.rank(i.computation), dies_at)
        return self._check(i, operands, call, ours=True)

    def _check(self, i: Instruction, operands: Sequence[Instruction], call: Call, *, ours: bool) -> Instruction:
        """Put a check behind a collective, where there are checks; returns what to take for it from here on."""
        if self.checks is None or not call.fills_bytes:
            return i
        users, c = list(i.users), i.computation
        results = [element(i, n) for n in range(len(call.results))] if i.shape.is_tuple else [i]
        number = self.checks.register(call, ours=ours)
        given = [*operands, *results, self.ranks.rank(c)]
        check = custom_call(i.shape.as_row_major(), given, COLLECTIVE_TARGET, number, "check")
        _take_instead(i, users, check)
        return check

    def _leave(self, i: Instruction, info: CollectiveInfo, pairs: tuple[tuple[int, int], ...], *, pinned: bool) -> None:
        proto = i.edit()
        proto.channel_id = 0
        proto.use_global_device_ids = False
        proto.constrain_layout = False
        if info.kind is Kind.COLLECTIVE_PERMUTE:
            del proto.source_target_pairs[:]
            for source, target in pairs:
                proto.source_target_pairs.add(source=source, target=target)
        else:
            write_groups(proto, ExplicitGroups(ranks_of(info, self.module.config)))
        if info.kind is Kind.ALL_TO_ALL and i.shape.is_tuple and len(i.operands) == 1:
            # an exchange of each rank with itself, on which XLA's conversion to StableHLO crashes
            tuple_of(i.computation, i.operands).take_place_of(i)
            return
        if info.reduce_op is not None:
            root, element = i.called[0].root, i.operands[0].shape.dtype
            # XLA's own promotion leaves bodies in a wider type, while StableHLO wants the operand's; and aborts on a
            # root that is a copy
            if root.shape.dtype is not element or root.opcode == "copy":
                i.set_called([self.bodies.get(str(info.reduce_op), element)])
        parts = [i]
        # StableHLO has no variadic reduce-scatter or permute and no reduction over several types, and XLA:CPU mixes up
        # the bytes of an all-gather over several types, or of one whose arrays it lays out differently
        always = (Kind.REDUCE_SCATTER, Kind.ALL_GATHER, Kind.COLLECTIVE_PERMUTE)
        if i.shape.is_tuple and (info.kind in always or (info.kind is Kind.ALL_REDUCE and info.dtype is None)):
            parts = split_variadic(i)
            for part in parts:
                if info.reduce_op is not None and info.dtype is None:
                    part.set_called([self.bodies.get(str(info.reduce_op), part.shape.dtype)])
        for part in parts:
            if info.dim is not None and part.shape.is_array and not part.shape.count:
                # StableHLO gathers and scatters along no empty dimension: nothing is made of nothing
                part.computation.add("reshape", part.shape.as_row_major(), part.operands).take_place_of(part)
            elif pinned:
                self._pin(part, info)

    # -- pins ----------------------------------------------------------------------------------------------------------
    def _pin(self, i: Instruction, info: CollectiveInfo) -> None:
        """Send operands and results through identity calls; f16 sums and products are widened within them."""
        watch = info.reduce_op in (ReduceOp.MAXIMUM, ReduceOp.MINIMUM)
        half = info.reduce_op in (ReduceOp.ADD, ReduceOp.MULTIPLY) and element_type(i.shape) is F16
        operands = []
        for o in i.operands:
            pin = self._identity(o, i, watch)
            operands.append(convert(pin, F32) if half else pin)
        i.set_operands(operands)
        users = list(i.users)
        if half:
            assert info.reduction is not None
            i.set_called([self.bodies.get(info.reduction, F32)])
            i.set_shape(_each_leaf(i.shape, lambda s: s.with_dtype(F32)))

        def out(value: Instruction) -> Instruction:
            return self._identity(convert(value, F16) if half else value, i, watch=False)

        if i.shape.is_tuple:
            parts = [out(element(i, n)) for n in range(len(i.shape.elements))]
            new = tuple_of(i.computation, parts)
        else:
            new = out(i)
        _take_instead(i, users, new)

    def _pin_value(self, i: Instruction) -> None:
        i.replace_all_uses_with(identity([i], self.pins.pin(f"pin of %{i.name}")))

    def _identity(self, value: Instruction, of: Instruction, watch: bool) -> Instruction:
        element = value.shape.dtype
        watched = watch and (element.is_float or element.is_complex)
        number = self.pins.pin(f"pin of %{of.name}", [element if watched else None])
        if watched:
            self.form.pins[number] = of.origin
        return identity([value], number)

    # -- send and recv -------------------------------------------------------------------------------------------------
    def _native_half(self, i: Instruction) -> list[Instruction]:
        """A send or a recv as the native instruction, raised where it is a custom-call."""
        if i.opcode != "custom-call":
            return [i]
        info = describe(i)
        assert info is not None
        raised = [half for half in raise_send_recv(i, info) if half is not None]
        self.converted.update(raised)
        return raised

    def _fused(self, i: Instruction, info: CollectiveInfo, call: Call, choice: Left | Backend) -> None:
        _check_routes(i, info)
        c = i.computation
        if isinstance(choice, Left):
            send, recv = raise_send_recv(i, info)
            assert send is not None
            assert recv is not None
            self._join(c, send, recv)
            return
        payload, data = i.shape.elements[:-1], [o for o in i.operands if o.shape.is_array]
        shape = payload[0] if len(payload) == 1 else Shape.tuple_of(payload)
        moved = c.add("custom-call", shape, data, name=i.name, like=i)
        taken = self._give(moved, call, choice)
        received = [taken] if len(payload) == 1 else [element(taken, n) for n in range(len(payload))]
        tuple_of(c, [*received, c.add("after-all", _TOKEN)]).take_place_of(i)

    def _pair_send_recv(self, c: Computation, halves: list[Instruction]) -> None:
        """Make one permute-shaped call of each send and the recv that it meets, channel by channel, in order."""
        waiting: dict[int, list[Instruction]] = {}
        recvs = [h for h in halves if h.opcode == "recv"]
        for send in (h for h in halves if h.opcode == "send"):
            waiting.setdefault(int(send.proto.channel_id), []).append(send)
        for recv in recvs:
            queue = waiting.get(int(recv.proto.channel_id))
            if not queue:
                raise _unpaired(recv, "send")
            self._join(c, queue.pop(0), recv)
        for queue in waiting.values():
            for send in queue:
                raise _unpaired(send, "recv")

    def _join(self, c: Computation, send: Instruction, recv: Instruction) -> None:
        info = describe(send)
        assert info is not None
        _check_routes(send, info)
        config = self.module.config
        pairs = pairs_of(info, config)
        sent, payload = send.operands[0], recv.shape.elements[0]
        shapes = [s.as_row_major() for s in (payload.elements if payload.is_tuple else (payload,))]
        if not all(s.is_array for s in shapes) or not sent.shape.same_extents(payload):
            raise InputError(f"%{send.name} sends {sent.shape}, but %{recv.name} receives {payload}")
        call = Call(
            label=label_of(recv, Kind.RECV),
            world=config.replica_count * config.num_partitions,
            collective=Collective(Kind.RECV, SourceTargetPairs(pairs).components(), None, None, pairs),
            operands=tuple(shapes),
            results=tuple(shapes),
        )
        converted = send in self.converted and recv in self.converted
        choice = self.choose(recv, replace(info, converted=converted), call)
        assert not isinstance(choice, Left), "XLA:CPU has no send and recv"
        data = [element(sent, n) for n in range(len(shapes))] if payload.is_tuple else [sent]
        if cyclic([[send, *send.users, recv, *recv.users]]):
            taken = self._apart(send, data, recv, payload.as_row_major(), roles(call), choice)
        else:
            moved = c.add("custom-call", payload.as_row_major(), data, name=recv.name, like=recv)
            self.moved.append(moved)
            taken = self._give(moved, call, choice)
        token = c.add("after-all", _TOKEN)
        for done in list(recv.users):
            tuple_of(c, [taken, token]).take_place_of(done)
        for done in list(send.users):
            c.add("after-all", _TOKEN).take_place_of(done)
        c.remove(recv)  # and no more: the token that it took may be the done of a send that is still to be joined
        c.remove(send)

    def _apart(
        self, send: Instruction, data: list[Instruction], recv: Instruction, payload: Shape, call: Call, choice: Backend
    ) -> Instruction:
        """A call for the send and one for the recv, whose data the first may need; returns the second."""
        c, rank = recv.computation, self.ranks.rank(recv.computation)
        number = choice.register(call)
        self.form.calls[number] = call
        self.pins.eager(number, [source for source, _ in call.collective.pairs])
        receiver = c.add("add", rank.shape, [rank, scalar(c, call.world // 2, U32)])
        for like, operands, role in ((send, data, rank), (recv, zeros(c, call.operands), receiver)):
            moved = c.add("custom-call", payload, operands, name=like.name, like=like)
            give(moved, call, number, role, dies_at)
            moved.edit().custom_call_has_side_effect = True
            (self.sent if like is send else self.moved).append(moved)
        return moved

    def _send_first(self, waiting: Sequence[Instruction]) -> None:
        """Let what may have to wait come behind each send that does not need it.

        Control dependencies are lost on the way into XLA, and it may put a send behind a wait for its receiver.
        """
        for send in self.sent:
            needed = {send}
            work = [send]
            while work:
                new = [n for n in work.pop().needs() if n not in needed]
                needed.update(new)
                work += new
            leaf = element(send, 0) if send.shape.is_tuple else send
            for i in waiting:
                if i not in needed:
                    hold(i, one_of(leaf), self.pins.pin("a send before others"))


def unknown_reduction(where: str) -> InputError:
    """What XLA:CPU has no collective for."""
    return InputError(
        f"XLA:CPU has no collective with the reduction body of {where}",
        "it reduces with add, multiply, maximum, minimum, and, or of the two parameters only",
    )


def _rounded_op(body: Computation) -> str | None:
    """The op of a body that widens both floats, combines them and rounds: the same as the op on the floats themselves.

    A sum or product with more than twice the precision, rounded, is the one that is rounded at once. XLA's own passes
    leave such bodies, and XLA:CPU aborts on them.
    """
    root = body.root
    narrow = root.shape.dtype
    if root.opcode != "convert" or narrow not in _ROUNDED:
        return None
    step = root.operands[0]
    if step.opcode not in ("add", "multiply", "maximum", "minimum") or not step.shape.dtype.holds(narrow):
        return None
    parameters = [o.operands[0] for o in step.operands if o.opcode == "convert"]
    whole = len(set(parameters)) == 2 and all(p.opcode == "parameter" and p.shape.dtype is narrow for p in parameters)
    return step.opcode if whole else None


def _check_routes(i: Instruction, info: CollectiveInfo) -> None:
    if info.pairs is None:
        raise InputError(
            f"%{i.name}: nothing says which ranks it sends to",
            "it needs frontend_attributes={_xla_send_recv_source_target_pairs={{…}}}",
        )


def _unpaired(half: Instruction, other: str) -> InputError:
    return InputError(
        f"%{half.name}: no {other} on channel {half.proto.channel_id} meets it",
        "a run needs both halves; `crossrank check` lists the channels without a partner",
    )


def _take_instead(i: Instruction, users: Sequence[Instruction], new: Instruction) -> None:
    """Let what took ``i`` before ``new`` was built on it take ``new``."""
    for u in users:
        u.replace_operand(i, new)
    if i.is_root:
        i.computation.set_root(new)


def _each_leaf(shape: Shape, change: Callable[[Shape], Shape]) -> Shape:
    return Shape.tuple_of([change(e) for e in shape.elements]) if shape.is_tuple else change(shape)
