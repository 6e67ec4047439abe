"""Sends and recvs, the halves of a transfer: which belong together, in one module or in those of several ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from crossrank.collective.kinds import Kind
from crossrank.collective.pairs import parse_pairs
from crossrank.errors import InputError
from crossrank.hlo.build import element, tuple_of
from crossrank.hlo.collectives import ROUTES, describe, kind_of
from crossrank.hlo.module import Computation, Instruction
from crossrank.hlo.order import in_a_row
from crossrank.hlo.program import Program
from crossrank.hlo.shape import Shape

TARGET_ATTRIBUTE = "custom_call_target"
_DONE = {"send-done": "send", "recv-done": "recv"}


@dataclass(frozen=True, eq=False)
class Half:
    """A send or a recv.

    Attributes:
        rank: whose module has it.
        kind: ``SEND`` or ``RECV``.
        start: the send or recv; or the custom-call that stands for it.
        done: its done half; the same custom-call where that stands for both.
        channel: the channel id.
        routes: who sends to whom, sorted; None where neither half says.
    """

    rank: int
    kind: Kind
    start: Instruction
    done: Instruction
    channel: int
    routes: tuple[tuple[int, int], ...] | None

    @property
    def computation(self) -> Computation:
        """Where it stands."""
        return self.start.computation

    @property
    def members(self) -> tuple[Instruction, Instruction]:
        """Start and done."""
        return self.start, self.done

    @property
    def other(self) -> Kind:
        """The kind of what it meets."""
        return Kind.RECV if self.kind is Kind.SEND else Kind.SEND

    @property
    def token(self) -> Instruction:
        """The token that it takes."""
        return self.start.operands[-1]

    @property
    def payload(self) -> tuple[Shape, ...]:
        """What is sent or received: one shape, or several where a custom-call stands for the half."""
        if self.kind is Kind.RECV:
            return self.done.shape.elements[:-1]
        return tuple(o.shape for o in self.start.operands[:-1])

    @property
    def attributes(self) -> dict[str, str]:
        """The frontend attributes of start and done."""
        return {**self.done.frontend_attributes, **self.start.frontend_attributes}

    @property
    def inherited_target(self) -> str:
        """The target that a custom-call in its place should have; the empty string where nothing says."""
        return str(self.start.proto.custom_call_target) or self.attributes.get(TARGET_ATTRIBUTE, "")

    def leaves(self) -> list[Shape]:
        """The arrays of the payload."""
        return [leaf for shape in self.payload for leaf in shape.leaves()]

    def replace_with(self, payload: Sequence[Instruction], token: Instruction) -> None:
        """Put what was received (of a send: nothing) and a token in the place of it, and remove it."""
        c, done = self.computation, self.done
        if self.kind is Kind.SEND:
            done.replace_all_uses_with(token)
        else:
            nested = done is not self.start and self.payload[0].is_tuple
            parts = [tuple_of(c, payload, like=done)] if nested else payload
            done.replace_all_uses_with(tuple_of(c, [*parts, token], like=done))
        for i in dict.fromkeys((done, self.start)):
            c.remove(i)

    def data(self) -> list[Instruction]:
        """What is sent, an instruction for each leaf."""
        found = []
        for o in self.start.operands[:-1]:
            if not o.shape.is_tuple:
                found.append(o)
            elif o.opcode == "tuple":
                found += o.operands
            else:
                found += [element(o, n, like=self.start) for n in range(len(o.shape.elements))]
        return found


def halves_in(
    program: Program, rank: int, computations: Iterable[Computation], decline: Callable[[Instruction, str], None]
) -> Iterator[Half]:
    """The native sends and recvs of one module, by their done halves.

    Args:
        program: all modules.
        rank: which of them.
        computations: where to look.
        decline: called with a done that stands for no transfer between ranks, and the reason.

    Raises:
        InputError: a half has no channel id, or routes that cannot be read.
    """
    for c in computations:
        for done in [i for i in c.post_order() if i.opcode in _DONE]:
            start, kind = done.operands[0], _DONE[done.opcode]
            if start.opcode not in (kind, "custom-call"):
                decline(done, f"its operand %{start.name} is no {kind}")
                continue
            if len(start.users) > 1:
                decline(done, f"something else than it uses %{start.name}")
                continue
            # a custom-call in the place of a send has no channel of its own
            channel = int((done if start.opcode == "custom-call" else start).proto.channel_id)
            if not channel:
                raise InputError(
                    f"{program.name(rank, start)}: Send and Recv must have channel_id", "give it channel_id=N"
                )
            if done.proto.is_host_transfer or start.proto.is_host_transfer:
                decline(done, f"it is a transfer {'to' if kind == 'send' else 'from'} the host")
                continue
            yield Half(rank, Kind(kind), start, done, channel, _routes(program, rank, start, done))


def converted_halves_in(program: Program, rank: int, computations: Iterable[Computation]) -> Iterator[Half]:
    """The custom-calls of one module that stand for a send or a recv.

    Raises:
        InputError: one has no channel id, or a config or routes that cannot be read.
    """
    for c in computations:
        for i in [i for i in c.post_order() if i.opcode == "custom-call"]:
            kind = kind_of(i)
            if kind in (Kind.SEND, Kind.RECV):
                info = describe(i)
                assert info is not None
                if info.channel_id is None:
                    raise InputError(
                        f"{program.name(rank, i)}: Send and Recv must have channel_id",
                        'give it backend_config="channel_id=N"',
                    )
                yield Half(rank, info.kind, i, i, info.channel_id, _routes(program, rank, i, i))


class Matcher:
    """Finds which send meets which recv.

    A row are the halves of one kind on one channel in one computation, in post-order: the n-th of a row of sends meets
    the n-th of a row of recvs, where dependencies make sure that they run in this order.

    Args:
        program: the modules.
        halves: of all of them.
        order_all: whether halves without a partner must be in order too.
    """

    def __init__(self, program: Program, halves: Sequence[Half], order_all: bool) -> None:
        self.program = program
        self.order_all = order_all
        self.channels: dict[object, dict[Kind, dict[Computation, list[Half]]]] = {}
        routes = defaultdict(set)
        for half in halves:
            routes[half.channel].add(half.routes)
        for half in halves:
            several = len(routes[half.channel] - {None}) > 1
            rows = self.channels.setdefault((half.channel, half.routes if several else None), {})
            rows.setdefault(half.kind, {}).setdefault(half.computation, []).append(half)
        self.loose = self._loose()

    def _loose(self) -> set[Half]:
        """The first members of rows whose order nothing fixes."""
        long = defaultdict(list)
        for rows in self.channels.values():
            for by_computation in rows.values():
                for c, row in by_computation.items():
                    if len(row) > 1:
                        long[c].append(row)
        loose: set[Half] = set()
        for some in long.values():
            ordered = in_a_row([[h.start for h in row] for row in some])
            loose.update(row[0] for row, fixed in zip(some, ordered, strict=True) if not fixed)
        return loose

    def match(self) -> tuple[list[tuple[Half, Half]], list[Half]]:
        """The pairs, and the halves without a partner.

        Raises:
            InputError: it is not certain who meets whom, or they cannot meet.
        """
        pairs, lonely = [], []
        for rows in self.channels.values():
            for sends, recvs in self._meeting(rows.get(Kind.SEND, {}), rows.get(Kind.RECV, {})):
                for row in (sends, recvs):
                    if row and row[0] in self.loose and (self.order_all or (sends and recvs)):
                        raise self._doubled(row[0], row[1])
                count = min(len(sends), len(recvs))
                for send, recv in zip(sends[:count], recvs[:count], strict=True):
                    self._check_shapes(send, recv)
                    pairs.append((send, recv))
                lonely += sends[count:] + recvs[count:]
        return pairs, lonely

    def _meeting(
        self, sends: dict[Computation, list[Half]], recvs: dict[Computation, list[Half]]
    ) -> Iterator[tuple[list[Half], list[Half]]]:
        """The row of sends and the row of recvs that meet, the one or the other of which may be empty."""
        ranks = [{row[0].rank for row in rows.values()} for rows in (sends, recvs)]
        if not all(ranks) or ranks[0] == ranks[1]:  # both ends in one program, or only one end anywhere
            for c in {**sends, **recvs}:
                yield sends.get(c, []), recvs.get(c, [])
            return
        for rows in (sends, recvs):
            if len(rows) > 1:
                first, second, *_ = rows.values()
                raise self._doubled(first[0], second[0])
        yield next(iter(sends.values())), next(iter(recvs.values()))

    def _doubled(self, a: Half, b: Half) -> InputError:
        name = self.program.name
        second = f"%{b.start.name}" if a.rank == b.rank else name(b.rank, b.start)
        return InputError(
            f"{name(a.rank, a.start)} and {second}: channel_id {a.channel} is used by more than one "
            f"{str(a.kind).capitalize()}",
            "give each a channel of its own, or let a token order them",
        )

    def _check_shapes(self, send: Half, recv: Half) -> None:
        for half in (send, recv):
            check_payload(self.program, half)
        sent, received = send.leaves(), recv.leaves()
        if len(sent) != len(received) or not all(a.same_extents(b) for a, b in zip(sent, received, strict=True)):
            sender, receiver = (self.program.name(half.rank, half.start) for half in (send, recv))
            texts = [", ".join(s.without_layout() for s in half.payload) for half in (send, recv)]
            raise InputError(
                f"{sender} sends {texts[0]}, but {receiver} receives {texts[1]}",
                f"what meets on channel {send.channel} must have one shape and type",
            )


def _routes(program: Program, rank: int, start: Instruction, done: Instruction) -> tuple[tuple[int, int], ...] | None:
    for i in (start, done):
        if text := i.proto.frontend_attributes.map.get(ROUTES):
            try:
                return tuple(sorted(parse_pairs(text)))
            except ValueError as error:
                raise InputError(f"{program.name(rank, i)}: {error}", "write them as {{0,1},{1,2}}") from None
    return None


def check_payload(program: Program, half: Half) -> None:
    """InputError where a half carries a tuple of tuples."""
    if any(e.is_tuple for shape in half.payload for e in shape.elements):
        raise InputError(
            f"{program.name(half.rank, half.start)}: Cannot handle nested tuple shape",
            "send a flat tuple, or its arrays one by one",
        )
