"""The forms in which the modules of several ranks are run: each by itself, on a device of its own, all meeting.

Every collective becomes a call of ours, for XLA knows no other program that it could meet. Which calls of different
modules are one meeting is settled here: a send meets the recv that `halves.Matcher` finds for it; other collectives
meet those of the same kind, channel and groups, the n-th of one module the n-th of another.

A token becomes the rank, as a value: each transfer takes it from those that it waits for, and hands it on. So what
tokens order stays ordered, whatever XLA makes of the module.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from crossrank.collective.dtypes import TOKEN, U32
from crossrank.collective.kinds import Kind
from crossrank.collective.pairs import SourceTargetPairs
from crossrank.collective.semantics import Collective
from crossrank.errors import InputError
from crossrank.hlo.build import binary, element, reshape, scalar, slice_, tuple_of
from crossrank.hlo.collectives import CollectiveInfo, describe, kind_of, pairs_of
from crossrank.hlo.ffi.form import Backend, Call, Pins, call_of, give, identity, roles, zeros
from crossrank.hlo.ffi.open_calls import open_calls
from crossrank.hlo.ffi.replicas import as_replicas
from crossrank.hlo.halves import Half, Matcher, converted_halves_in, halves_in
from crossrank.hlo.module import Computation, Instruction, Module
from crossrank.hlo.order import cyclic
from crossrank.hlo.program import Program
from crossrank.hlo.ranks import Ranks
from crossrank.hlo.shape import Shape

_RANK = Shape(U32, (), ())


@dataclass
class ProgramForm:
    """The modules of a program as they are run.

    Attributes:
        data: the serialized messages, by rank.
        calls: how many meetings there are.
        on_oracle: names of converted collectives that the backend does not serve.
    """

    data: list[bytes]
    calls: int
    on_oracle: list[str] = field(default_factory=list)


def program_form(
    program: Program, backend: Backend, oracle: Backend, pins: Pins, prepare: Callable[[Sequence[Call]], None]
) -> ProgramForm:
    """Make the form of all modules of ``program`` (which are changed).

    Args:
        program: a module for each rank, whose configuration says as many ranks.
        backend: who computes converted collectives.
        oracle: who computes all others.
        pins: where identity calls are made known.
        prepare: called with what ``backend`` will be given, before it is.

    Raises:
        InputError: something can meet nothing, or cannot be computed here.
    """
    return _ProgramFormer(program, backend, oracle, pins, prepare).run()


class OneRank(Ranks):
    """The rank of a module that only one device runs: a constant."""

    def __init__(self, num_partitions: int, replica_count: int, rank: int) -> None:
        super().__init__(num_partitions, replica_count)
        self._number = rank

    def rank(self, c: Computation) -> Instruction:
        """The flattened rank, ``u32[]``."""
        if c not in self._rank:
            self._rank[c] = scalar(c, self._number, U32)
        return self._rank[c]

    def replica(self, c: Computation) -> Instruction:
        """The replica of the rank, ``u32[]``."""
        return scalar(c, self._number // self.num_partitions, U32)

    def partition(self, c: Computation) -> Instruction:
        """The partition of the rank, ``u32[]``."""
        return scalar(c, self._number % self.num_partitions, U32)


@dataclass(eq=False)
class _Meeting:
    """What calls of several modules share."""

    call: Call
    name: str  # of the first that was found
    converted: bool = True
    apart: bool = False  # send and recv are two calls in one module
    number: int = -1


class _ProgramFormer:
    def __init__(
        self,
        program: Program,
        backend: Backend,
        oracle: Backend,
        pins: Pins,
        prepare: Callable[[Sequence[Call]], None],
    ) -> None:
        self.program = program
        self.world = len(program.modules)
        self.backend = backend
        self.oracle = oracle
        self.prepare = prepare
        self.pins = pins
        self.pin = pins.pin("the order of tokens")
        self.ranks: dict[Module, Ranks] = {}
        self.meetings: list[_Meeting] = []
        self.shared: dict[object, list[_Meeting]] = defaultdict(list)
        self.met: Counter[object] = Counter()

    def run(self) -> ProgramForm:
        modules = self.program.modules
        for rank, module in enumerate(modules):
            open_calls(module)
            config = module.config
            self.ranks[module] = as_replicas(module, OneRank(config.num_partitions, config.replica_count, rank))
        transfers = [(pair, self._meet_in_transfer(*pair)) for pair in self._pairs()]
        calls = [
            (i, info, self._meet_in_order(rank, i, info))
            for rank, module in enumerate(modules)
            for c in module.computations
            for i in c.post_order()
            if (kind := kind_of(i)) is not None and kind not in (Kind.SEND, Kind.RECV)
            for info in [describe(i)]
            if info is not None
        ]
        form = self._register()
        for module in modules:
            self._tokens_are_ranks(module.computations)
        for (send, recv), meeting in transfers:
            if send.computation is recv.computation and not meeting.apart:
                self._join(send, recv, meeting)
            else:
                self._send(send, meeting)
                self._receive(recv, meeting)
        for i, info, meeting in calls:
            if info.kind is Kind.SEND_RECV:
                self._fused(i, meeting)
            else:
                self._give(i, meeting, self._rank(i.computation))
        form.data = [module.serialize() for module in modules]
        return form

    # -- who meets whom ------------------------------------------------------------------------------------------------
    def _pairs(self) -> list[tuple[Half, Half]]:
        halves: list[Half] = []
        for rank, module in enumerate(self.program.modules):

            def decline(i: Instruction, reason: str, rank: int = rank) -> NoReturn:
                raise InputError(f"{self.program.name(rank, i)} cannot run here: {reason}")

            halves += halves_in(self.program, rank, module.computations, decline)
            halves += converted_halves_in(self.program, rank, module.computations)
        pairs, lonely = Matcher(self.program, halves, order_all=False).match()
        for half in lonely:
            raise InputError(
                f"{self.program.name(half.rank, half.start)}: no {half.other} meets it on channel {half.channel} in "
                "any module",
                "a run needs both halves",
            )
        return pairs

    def _meet_in_transfer(self, send: Half, recv: Half) -> _Meeting:
        """The meeting of a send and a recv; in one module, of those that have the same two."""
        name = self.program.name
        leaves = tuple(s.as_row_major() for s in recv.leaves())
        if send.computation is recv.computation:
            pairs = self._routes(send, recv)
            label = f"recv {name(recv.rank, recv.start)} with its send"
        else:
            pairs = ((send.rank, recv.rank),)
            label = f"send {name(send.rank, send.start)} to recv {name(recv.rank, recv.start)}"
        collective = Collective(Kind.RECV, SourceTargetPairs(pairs).components(), None, None, pairs)
        call = Call(f"{label} (channel {send.channel})", self.world, collective, leaves, leaves)
        converted = send.start is send.done and recv.start is recv.done
        if send.computation is not recv.computation:
            self.meetings.append(_Meeting(call, name(recv.rank, recv.start), converted))
            return self.meetings[-1]
        apart = bool(cyclic([send.members + recv.members]))  # what is sent needs what is received
        call = roles(call) if apart else call
        meeting = self._meet(recv.rank, recv.start, (send.channel, call.collective), call, converted)
        meeting.apart = apart
        return meeting

    def _routes(self, send: Half, recv: Half) -> tuple[tuple[int, int], ...]:
        """The pairs of ranks of a send and a recv in one module."""
        name = self.program.name(send.rank, send.start)
        for half in (send, recv):
            info = describe(half.start)
            if info is not None and info.pairs is not None:
                return pairs_of(info, self.program.modules[send.rank].config)
        raise InputError(
            f"{name}: nothing says which ranks it sends to",
            "it needs frontend_attributes={_xla_send_recv_source_target_pairs={{…}}}",
        )

    def _meet_in_order(self, rank: int, i: Instruction, info: CollectiveInfo) -> _Meeting:
        name = self.program.name(rank, i)
        if info.kind.reduces and info.reduce_op is None:
            raise InputError(
                f"{name}: its reduction {info.reduction} is none that modules of several ranks can meet in",
                "it reduces with add, multiply, maximum, minimum, and, or, xor of the two parameters only",
            )
        call = call_of(i, info, self.program.modules[rank].config)
        call = Call(f"{info.kind} {name}", call.world, call.collective, call.operands, call.results)
        return self._meet(rank, i, (info.channel_id, call.collective), call, info.converted)

    def _meet(self, rank: int, i: Instruction, key: object, call: Call, converted: bool) -> _Meeting:
        """The n-th meeting under ``key``, for the n-th instruction of this rank that asks for one."""
        n = self.met[rank, key]
        self.met[rank, key] += 1
        if n == len(self.shared[key]):
            self.shared[key].append(_Meeting(call, self.program.name(rank, i)))
            self.meetings.append(self.shared[key][n])
        meeting = self.shared[key][n]
        meeting.converted &= converted
        if (call.operands, call.results) != (meeting.call.operands, meeting.call.results):
            shapes = [", ".join(s.without_layout() for s in c.operands) for c in (meeting.call, call)]
            mine = self.program.name(rank, i)
            raise InputError(
                f"{mine} comes with {shapes[1]}, but {meeting.name}, which it meets, with {shapes[0]}",
                "what meets must have one shape and type",
            )
        return meeting

    def _register(self) -> ProgramForm:
        form = ProgramForm([], len(self.meetings))
        served = []
        for meeting in self.meetings:
            if meeting.converted and self.backend.serves(meeting.call):
                served.append(meeting)
            elif self.oracle.serves(meeting.call):
                if meeting.converted:
                    form.on_oracle.append(meeting.name)
                meeting.number = self.oracle.register(meeting.call)
            else:
                raise InputError(f"{meeting.name}: nothing here computes it with its element type")
        self.prepare([meeting.call for meeting in served])
        for meeting in served:
            meeting.number = self.backend.register(meeting.call)
        return form

    def _let_go(self, meeting: _Meeting) -> None:
        """Take what is sent as it comes: the sender may be waited for before it is received."""
        self.pins.eager(meeting.number, [source for source, _ in meeting.call.collective.pairs])

    def _rank(self, c: Computation) -> Instruction:
        return self.ranks[c.module].rank(c)

    # -- calls ---------------------------------------------------------------------------------------------------------
    def _give(self, i: Instruction, meeting: _Meeting, rank: Instruction) -> None:
        give(i, meeting.call, meeting.number, rank, lambda _value, _user: False)
        # others wait for it: it must run where it stands, and as often, whoever uses what it gives
        i.edit().custom_call_has_side_effect = True

    def _transfer(
        self, like: Instruction, data: Sequence[Instruction], rank: Instruction, meeting: _Meeting
    ) -> tuple[list[Instruction], Instruction]:
        """A call that moves ``data``; returns what came, and the token behind it."""
        c, results = like.computation, meeting.call.results
        shape = results[0] if len(results) == 1 else Shape.tuple_of(results)
        moved = c.add("custom-call", shape, data, name=like.name, like=like)
        self._give(moved, meeting, rank)
        came = [moved] if len(results) == 1 else [element(moved, n) for n in range(len(results))]
        return came, self._after(came, like)

    def _after(self, came: Sequence[Instruction], like: Instruction) -> Instruction:
        """The rank once more, for who must wait until ``came`` is there."""
        rank = self._rank(like.computation)
        first = next((x for x in came if x.shape.count), None)
        if first is None:
            return rank
        dims = first.shape.dims
        one = reshape(slice_(first, [0] * len(dims), [1] * len(dims)), ()) if dims else first
        return element(identity([rank, one], self.pin), 0)

    def _send(self, send: Half, meeting: _Meeting) -> None:
        self._let_go(meeting)
        _, token = self._transfer(send.start, send.data(), send.token, meeting)
        send.replace_with([], token)

    def _receive(self, recv: Half, meeting: _Meeting) -> None:
        c = recv.computation
        role = binary("add", recv.token, scalar(c, self.world, U32)) if meeting.apart else recv.token
        came, token = self._transfer(recv.start, zeros(c, meeting.call.operands), role, meeting)
        recv.replace_with(came, token)

    def _join(self, send: Half, recv: Half, meeting: _Meeting) -> None:
        rank = send.token if recv.token is send.done else binary("maximum", send.token, recv.token)
        came, token = self._transfer(recv.start, send.data(), rank, meeting)
        recv.replace_with(came, token)
        send.replace_with([], token)

    def _fused(self, i: Instruction, meeting: _Meeting) -> None:
        *data, a, b = i.operands
        came, token = self._transfer(i, data, binary("maximum", a, b), meeting)
        tuple_of(i.computation, [*came, token]).take_place_of(i)

    # -- tokens --------------------------------------------------------------------------------------------------------
    def _tokens_are_ranks(self, computations: Sequence[Computation]) -> None:
        for c in computations:
            for i in [i for i in c.post_order() if any(s.dtype is TOKEN for s in i.shape.leaves())]:
                i.set_shape(_without_tokens(i.shape))
                if i.opcode == "after-all":
                    value = i.operands[0] if i.operands else self._rank(c)
                    for o in i.operands[1:]:
                        value = binary("maximum", value, o)
                    i.replace_all_uses_with(value)
                    c.remove(i)
            program_shape = c.proto.program_shape
            for proto in (*program_shape.parameters, program_shape.result):
                _without_tokens(Shape.read(proto)).write(proto)


def _without_tokens(shape: Shape) -> Shape:
    if shape.is_tuple:
        return Shape.tuple_of([_without_tokens(e) for e in shape.elements])
    return _RANK if shape.dtype is TOKEN else shape
