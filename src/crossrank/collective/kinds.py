"""The kinds of collective, and the operations with which two of them reduce."""

from __future__ import annotations

from enum import StrEnum

from crossrank.collective.dtypes import PRED, DType


class Kind(StrEnum):
    """A kind of collective; the value is its HLO opcode (a fused send and recv, ``send-recv``, has none)."""

    ALL_REDUCE = "all-reduce"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_GATHER = "all-gather"
    ALL_TO_ALL = "all-to-all"
    RAGGED_ALL_TO_ALL = "ragged-all-to-all"
    COLLECTIVE_PERMUTE = "collective-permute"
    COLLECTIVE_BROADCAST = "collective-broadcast"
    SEND = "send"
    RECV = "recv"
    SEND_RECV = "send-recv"

    @property
    def reduces(self) -> bool:
        """Whether it computes with a reduce op: all-reduce and reduce-scatter."""
        return self in (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER)

    @property
    def has_pairs(self) -> bool:
        """Whether source-target pairs say who talks to whom; else replica groups do."""
        return self in (Kind.COLLECTIVE_PERMUTE, Kind.SEND, Kind.RECV, Kind.SEND_RECV)

    @property
    def has_tokens(self) -> bool:
        """Whether tokens stand among its operands and results: send, recv and the two fused."""
        return self in (Kind.SEND, Kind.RECV, Kind.SEND_RECV)


_NEURON = frozenset(Kind) - {Kind.COLLECTIVE_BROADCAST, Kind.RAGGED_ALL_TO_ALL, Kind.SEND_RECV}
_GROUPED = frozenset(k for k in Kind if not k.has_pairs)


def is_neuron_collective(opcode: str) -> bool:
    """Whether the Neuron compiler's own predicate takes ``opcode`` for a collective.

    It takes send and recv, and it does not take collective-broadcast (nor ragged-all-to-all, which is younger than it).
    """
    return opcode in _NEURON


def is_collective_class(opcode: str) -> bool:
    """Whether ``opcode`` belongs to XLA's class of collective instructions: the ones that carry replica groups.

    So neither send and recv nor collective-permute, whose route is a list of pairs. The stream-id injector, which
    compares replica groups, asks this one.
    """
    return opcode in _GROUPED


class ReduceOp(StrEnum):
    """What a reduction computes; the value is the HLO opcode of its body."""

    ADD = "add"
    MULTIPLY = "multiply"
    MAXIMUM = "maximum"
    MINIMUM = "minimum"
    AND = "and"
    OR = "or"
    XOR = "xor"

    def valid_for(self, dtype: DType) -> bool:
        """Whether it is defined on elements of ``dtype``.

        Pred has all seven, integers too; floats have the arithmetic four, complex numbers only add and multiply.
        """
        if dtype == PRED or dtype.is_integer:
            return True
        if self in (ReduceOp.ADD, ReduceOp.MULTIPLY):
            return dtype.is_float or dtype.is_complex
        return self in (ReduceOp.MAXIMUM, ReduceOp.MINIMUM) and dtype.is_float
