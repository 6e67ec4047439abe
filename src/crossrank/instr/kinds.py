"""The numbers of the instruction level: kinds of collective, ALU ops, dimensions, memory spaces.

The numbers are those of the source's instruction format and never change.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

from crossrank.collective.kinds import ReduceOp


class CollectiveKind(IntEnum):
    """What an ``InstCollectiveCompute`` does.

    The builder never writes it: an op's class implies it. 6, 8 and 11 have no producer in the source: a variable
    exchange, a permute that reduces, and a broadcast are extensions of ours (11 is a number of ours, too).
    """

    SEND_RECV = 0
    SEND_RECV_CCE = 1
    ALL_REDUCE = 2
    REDUCE_SCATTER = 3
    ALL_GATHER = 4
    ALL_TO_ALL = 5
    ALL_TO_ALL_V = 6
    PERMUTE = 7
    PERMUTE_REDUCE = 8
    PERMUTE_IMPLICIT = 9
    PERMUTE_REDUCE_IMPLICIT = 10
    BROADCAST = 11

    @property
    def title(self) -> str:
        """Its name in messages."""
        return _TITLES.get(self, "".join(part.capitalize() for part in self.name.split("_")))

    @property
    def label(self) -> str:
        """What names of its instructions begin with."""
        return f"Collective{self.title}" if self.title.startswith("Permute") else self.title

    @property
    def reduces(self) -> bool:
        """Whether it needs an ALU op."""
        return self in _REDUCING

    @property
    def has_pairs(self) -> bool:
        """Whether source-target pairs say who talks to whom."""
        return self in (CollectiveKind.PERMUTE, CollectiveKind.PERMUTE_REDUCE)

    @property
    def is_ring(self) -> bool:
        """Whether each member sends to its neighbour in the order of the group."""
        return self in (CollectiveKind.PERMUTE_IMPLICIT, CollectiveKind.PERMUTE_REDUCE_IMPLICIT)

    @property
    def is_point_to_point(self) -> bool:
        """Whether ranks and a pipe say who talks to whom: between the cores of one rank."""
        return self in (CollectiveKind.SEND_RECV, CollectiveKind.SEND_RECV_CCE)

    @property
    def is_extension(self) -> bool:
        """Whether the source has no producer of it."""
        return self in (CollectiveKind.ALL_TO_ALL_V, CollectiveKind.PERMUTE_REDUCE, CollectiveKind.BROADCAST)


_TITLES = {CollectiveKind.SEND_RECV_CCE: "SendRecvCCE"}
_REDUCING = (
    CollectiveKind.SEND_RECV_CCE,
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.PERMUTE_REDUCE,
    CollectiveKind.PERMUTE_REDUCE_IMPLICIT,
)


class AluOp(IntEnum):
    """The op of a reduction, by its number in the instruction.

    Above 100 are extensions: what HLO reduces with and the instruction set does not.
    """

    ADD = 4
    MULT = 6
    MAX = 8
    MIN = 9
    AVERAGE = 24
    AND = 101
    OR = 102
    XOR = 103

    @property
    def is_extension(self) -> bool:
        """Whether the source's instruction set lacks it."""
        return self > 100

    @property
    def reduce_op(self) -> ReduceOp:
        """The reduction that it is; an average is a sum that is divided afterwards."""
        return _REDUCE_OPS[self]

    @staticmethod
    def of(op: object) -> AluOp:
        """The op that a word says: ``add``, ``maximum`` (or ``max``), …, an `AluOp`, or a thing with such a ``name``.

        Raises:
            ValueError: no reduction is called that.
        """
        if isinstance(op, AluOp):
            return op
        word = str(getattr(op, "name", op)).lower()
        if word not in _BY_WORD:
            raise ValueError(f"no reduction is called {word!r}")
        return _BY_WORD[word]


_REDUCE_OPS = {
    AluOp.ADD: ReduceOp.ADD,
    AluOp.AVERAGE: ReduceOp.ADD,
    AluOp.MULT: ReduceOp.MULTIPLY,
    AluOp.MAX: ReduceOp.MAXIMUM,
    AluOp.MIN: ReduceOp.MINIMUM,
    AluOp.AND: ReduceOp.AND,
    AluOp.OR: ReduceOp.OR,
    AluOp.XOR: ReduceOp.XOR,
}
_BY_WORD = (
    {op.name.lower(): op for op in AluOp}
    | {str(reduce): op for op, reduce in _REDUCE_OPS.items() if op is not AluOp.AVERAGE}
    | {"bitwise_and": AluOp.AND, "bitwise_or": AluOp.OR, "bitwise_xor": AluOp.XOR}
)


class CollectiveDimension(IntEnum):
    """The dimension along which a group collective joins or splits."""

    PARTITION = 0
    FREE = 1


class CcTypeHint(IntEnum):
    """Which parallelism a collective serves; set on all-gather and reduce-scatter only."""

    TP = 0
    FSDP = 1
    NONE = 2


class Space(StrEnum):
    """Where a tensor lies: HBM of one core, HBM that the cores of a rank share, or SBUF or PSUM of one core."""

    PRIVATE_HBM = "private_hbm"
    SHARED_HBM = "shared_hbm"
    SBUF = "sbuf"
    PSUM = "psum"

    @property
    def is_hbm(self) -> bool:
        """Private or shared HBM."""
        return self in (Space.PRIVATE_HBM, Space.SHARED_HBM)

    @property
    def is_shared(self) -> bool:
        """Whether the cores of a rank share it."""
        return self is Space.SHARED_HBM

    @property
    def has_partitions(self) -> bool:
        """Whether the first dimension runs over partitions, of which there are 128."""
        return not self.is_hbm


PARTITIONS = 128
"""Partitions of SBUF and PSUM (``tile_size.pmax``)."""

MULTI_CORE_ARCH = 30
"""The first architecture level whose cores can meet, and write into each other's memory."""
