"""The forms in which the modules of several ranks are run: each by itself, on a device of its own, all meeting.

Every collective becomes a call of ours, for XLA knows no other program that it could meet. Which calls of different
modules are one meeting is settled here: a send meets the recv that `halves.Matcher` finds for it; other collectives
meet those of the same kind, channel and groups, the n-th of one module the n-th of another.

A token becomes the rank, as a value: each transfer takes it from those that it waits for, and hands it on. So what
tokens order stays ordered, whatever XLA makes of the module. In the same way all that a computation shares with others
is strung together, in an order (see `meeting_order`) that keeps control dependencies and in which nobody waits for a
send that could have been.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import NoReturn

from crossrank.collective.dtypes import TOKEN, U32
from crossrank.collective.groups import ExplicitGroups
from crossrank.collective.kinds import Kind
from crossrank.collective.pairs import SourceTargetPairs
from crossrank.collective.semantics import Collective
from crossrank.errors import InputError
from crossrank.hlo.build import binary, element, scalar, tuple_of
from crossrank.hlo.collectives import CollectiveInfo, describe, kind_of, pairs_of
from crossrank.hlo.ffi.call import Backend, Call, call_of, roles
from crossrank.hlo.ffi.custom_calls import Pins, give, hold, identity, one_of, steering, zeros
from crossrank.hlo.ffi.meeting_order import Step, meeting_order
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


_Visit = tuple[int, Instruction, CollectiveInfo, _Meeting]
"""A rank, its instruction and what that says, and where it goes."""


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
        self.plan: dict[Step, Callable[[Instruction], Instruction]] = {}  # takes a token, gives the one behind it
        self.sent: dict[tuple[_Meeting, int], Step] = {}  # by the rank that sends
        self.received: dict[Step, tuple[_Meeting, int]] = {}

    def run(self) -> ProgramForm:
        modules = self.program.modules
        for rank, module in enumerate(modules):
            open_calls(module)
            config = module.config
            self.ranks[module] = as_replicas(module, OneRank(config.num_partitions, config.replica_count, rank))
        pairs = self._pairs()
        apart = self._apart(pairs)
        transfers = [(pair, self._meet_in_transfer(*pair, pair in apart)) for pair in pairs]
        calls = [
            (rank, i, info, self._meet_in_order(rank, i, info))
            for rank, module in enumerate(modules)
            for c in module.computations
            for i in c.post_order()
            if (kind := kind_of(i)) is not None and kind not in (Kind.SEND, Kind.RECV)
            for info in [describe(i)]
            if info is not None
        ]
        self._compare_lonely(calls)
        form = self._register()
        for (send, recv), meeting in transfers:
            self._plan_transfer(send, recv, meeting)
        for rank, i, info, meeting in calls:
            make = self._fused if info.kind is Kind.SEND_RECV else self._collective
            self.plan[Step((i,), self._group(meeting, rank))] = partial(make, i, meeting)
        for received, sent in self.received.items():
            received.after = self.sent.get(sent)
        order = meeting_order(modules, list(self.plan))
        for module in modules:
            self._tokens_are_ranks(module.computations)
        for c, steps in order.items():
            after = self._rank(c)
            for step in steps:
                after = self.plan[step](after) if step in self.plan else self._around(step.members[0], after)
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

    def _apart(self, pairs: Sequence[tuple[Half, Half]]) -> set[tuple[Half, Half]]:
        """The pairs in one module that cannot become one call, for what is sent needs what is received."""
        one = defaultdict(list)
        for pair in pairs:
            if pair[0].computation is pair[1].computation:
                one[pair[0].computation].append(pair)
        return {
            some[n]
            for some in one.values()
            for n in cyclic([list(dict.fromkeys(s.members + r.members)) for s, r in some])
        }

    def _meet_in_transfer(self, send: Half, recv: Half, apart: bool) -> _Meeting:
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

    def _compare_lonely(self, calls: Sequence[_Visit]) -> None:
        """Where calls of two ranks do not meet because they differ, say in what."""
        came: dict[_Meeting, set[int]] = defaultdict(set)
        for rank, _, _, meeting in calls:
            came[meeting].add(rank)
        absent: list[tuple[_Visit, set[int]]] = []
        for visit in calls:
            rank, _, _, meeting = visit
            group = next((g for g in meeting.call.collective.groups if rank in g), ())
            if missing := set(group) - came[meeting]:
                absent.append((visit, missing))
        for visit, missing in absent:
            rank, i, info, meeting = visit
            others = [
                (found, other)
                for other, _ in absent
                if other[0] in missing
                and (other[2].kind is info.kind or info.channel_id == other[2].channel_id is not None)
                if (found := _differences(visit, other))
            ]
            if not others:
                continue
            found, (other_rank, other_i, _, _) = min(others, key=lambda o: len(o[0]))
            mine, other = self.program.name(rank, i), self.program.name(other_rank, other_i)
            said = [" and ".join(texts) for texts in zip(*found, strict=True)]
            what = f"{mine} has {said[0]}, but {other} {said[1]}"
            if all(x.computation is x.module.entry for x in (i, other_i)):
                raise InputError(
                    f"{what}: they never meet",
                    "what meets must have one kind, channel, reduction, dimension and list of groups or pairs",
                )
            # it may never be run: say it should somebody wait there
            meeting.call = replace(meeting.call, label=f"{meeting.call.label} ({what})")

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

    # -- when ----------------------------------------------------------------------------------------------------------
    def _group(self, meeting: _Meeting, rank: int) -> object:
        """What those have in common who wait for each other; None where nobody does."""
        for n, group in enumerate(meeting.call.collective.groups):
            if rank in group and len(group) > 1:
                return meeting, n
        return None

    def _plan_transfer(self, send: Half, recv: Half, meeting: _Meeting) -> None:
        if send.computation is recv.computation and not meeting.apart:
            members = tuple(dict.fromkeys(send.members + recv.members))
            self.plan[Step(members, self._group(meeting, recv.rank))] = partial(self._join, send, recv, meeting)
            return
        sent, received = Step((send.start,)), Step((recv.done,))
        self.plan[sent] = partial(self._send, send, meeting)
        self.plan[received] = partial(self._receive, recv, meeting)
        self.sent[meeting, send.rank] = sent
        for source, target in meeting.call.collective.pairs:
            if not meeting.apart or target == self.world + recv.rank:
                self.received[received] = (meeting, source)

    # -- calls ---------------------------------------------------------------------------------------------------------
    def _give(self, i: Instruction, meeting: _Meeting, rank: Instruction) -> None:
        give(i, meeting.call, meeting.number, rank, lambda _value, _user: False)
        # others wait for it: it must run where it stands, and as often, whoever uses what it gives
        i.edit().custom_call_has_side_effect = True

    def _collective(self, i: Instruction, meeting: _Meeting, after: Instruction) -> Instruction:
        self._give(i, meeting, after)
        return self._after(_parts(i), i.computation)

    def _transfer(
        self, like: Instruction, data: Sequence[Instruction], rank: Instruction, meeting: _Meeting
    ) -> tuple[list[Instruction], Instruction]:
        """A call that moves ``data``; returns what came, and the token behind it."""
        c, results = like.computation, meeting.call.results
        shape = results[0] if len(results) == 1 else Shape.tuple_of(results)
        moved = c.add("custom-call", shape, data, name=like.name, like=like)
        self._give(moved, meeting, rank)
        came = [moved] if len(results) == 1 else [element(moved, n) for n in range(len(results))]
        return came, self._after(came, c)

    def _after(self, came: Sequence[Instruction], c: Computation) -> Instruction:
        """The rank once more, for who must wait until ``came`` is there."""
        first = next((x for x in came if x.shape.count), next(iter(came), None))
        if first is None:
            return self._rank(c)
        return element(identity([self._rank(c), one_of(first)], self.pin), 0)

    def _all(self, *tokens: Instruction) -> Instruction:
        """The token behind all of ``tokens``, of one computation."""
        rank = self._rank(tokens[0].computation)
        some = dict.fromkeys(t for t in tokens if t is not rank)
        return reduce(partial(binary, "maximum"), some) if some else rank

    def _around(self, i: Instruction, after: Instruction) -> Instruction:
        """Let a loop or conditional with calls in it wait for ``after``; returns the token behind it."""
        c, n = i.computation, steering(i)
        if after is not self._rank(c):
            hold(i, after, self.pin)
        if n is not None:
            return self._after([element(i, n)], c)
        tokens = [self._after([part], c) for part in _parts(i) if part.shape.is_array]
        return self._all(*tokens) if tokens else after

    def _send(self, send: Half, meeting: _Meeting, after: Instruction) -> Instruction:
        self._let_go(meeting)
        _, token = self._transfer(send.start, send.data(), self._all(send.token, after), meeting)
        send.replace_with([], token)
        return token

    def _receive(self, recv: Half, meeting: _Meeting, after: Instruction) -> Instruction:
        c = recv.computation
        role = self._all(recv.token, after)
        if meeting.apart:
            role = binary("add", role, scalar(c, self.world, U32))
        came, token = self._transfer(recv.start, zeros(c, meeting.call.operands), role, meeting)
        recv.replace_with(came, token)
        return token

    def _join(self, send: Half, recv: Half, meeting: _Meeting, after: Instruction) -> Instruction:
        tokens = [t for t in (send.token, recv.token) if t not in (send.done, recv.done)]
        came, token = self._transfer(recv.start, send.data(), self._all(after, *tokens), meeting)
        recv.replace_with(came, token)
        send.replace_with([], token)
        return token

    def _fused(self, i: Instruction, meeting: _Meeting, after: Instruction) -> Instruction:
        *data, a, b = i.operands
        came, token = self._transfer(i, data, self._all(a, b, after), meeting)
        tuple_of(i.computation, [*came, token]).take_place_of(i)
        return token

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


def _parts(i: Instruction) -> list[Instruction]:
    return [element(i, n) for n in range(len(i.shape.elements))] if i.shape.is_tuple else [i]


def _differences(one: _Visit, other: _Visit) -> list[tuple[str, str]]:
    """In what two collectives that should meet differ."""

    def said(visit: _Visit) -> list[str]:
        _, _, info, meeting = visit
        collective = meeting.call.collective
        return [
            f"kind {info.kind}",
            "no channel" if info.channel_id is None else f"channel {info.channel_id}",
            f"reduction {collective.reduce_op or 'none'}",
            f"dimension {'none' if collective.dim is None else collective.dim}",
            f"pairs {SourceTargetPairs(collective.pairs)}"
            if info.kind.has_pairs
            else f"groups {ExplicitGroups(collective.groups)}",
        ]

    return [(a, b) for a, b in zip(said(one), said(other), strict=True) if a != b]
