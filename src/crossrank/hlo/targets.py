"""The naming contract: custom-call target ↔ (kind, reduce op, element type), one table read both ways.

A name is a base, for reductions an infix, and a suffix for the element type of the result (of a send, which gives a
token only: of what it sends). Consumers dispatch on the whole string. What the contract has no word for is called
``UNKNOWNOP`` or ``_UNKNOWNDTYPE``; such names are emitted, but they are not in the catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from crossrank.collective.dtypes import TOKEN, DType, dtype
from crossrank.collective.kinds import Kind, ReduceOp
from crossrank.hlo.shape import Shape

FAMILY = "AwsNeuron"
"""What every target of the contract begins with."""

BASES = {
    Kind.ALL_REDUCE: "AwsNeuronAllReduce",
    Kind.REDUCE_SCATTER: "AwsNeuronReduceScatter",
    Kind.ALL_GATHER: "AwsNeuronAllGather",
    Kind.ALL_TO_ALL: "AwsNeuronAllToAll",
    Kind.COLLECTIVE_PERMUTE: "AwsNeuronCollectivePermute",
    Kind.COLLECTIVE_BROADCAST: "AwsNeuronCollectiveBroadcast",
    Kind.RAGGED_ALL_TO_ALL: "AwsNeuronRaggedAllToAll",
    Kind.SEND_RECV: "AwsNeuronSendRecv",
    Kind.SEND: "AwsNeuronSend",
    Kind.RECV: "AwsNeuronRecv",
}
NAMED_BY_THE_SOURCE = (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER, Kind.ALL_GATHER)
"""The kinds for which the source has names, 42 in all; the other names are ours, made in the same way."""
INFIXES: dict[ReduceOp | None, str] = {ReduceOp.ADD: "Add", ReduceOp.MAXIMUM: "Max", ReduceOp.MINIMUM: "Min"}
SUFFIXES = {name: f"_{name}" for name in ("f32", "bf16", "f16", "u32", "s64", "s32")}
UNKNOWN_OP = "UNKNOWNOP"
UNKNOWN_DTYPE = "_UNKNOWNDTYPE"


@dataclass(frozen=True)
class Target:
    """What a target's name says.

    Attributes:
        kind: the collective.
        reduce_op: of a reduction; None where the name says ``UNKNOWNOP``, and for a kind that does not reduce.
        dtype: the element type; None where the name says ``_UNKNOWNDTYPE``.
    """

    kind: Kind
    reduce_op: ReduceOp | None = None
    dtype: DType | None = None

    @property
    def name(self) -> str:
        """The target's name."""
        infix = INFIXES.get(self.reduce_op, UNKNOWN_OP) if self.kind.reduces else ""
        suffix = SUFFIXES.get(self.dtype.name, UNKNOWN_DTYPE) if self.dtype else UNKNOWN_DTYPE
        return BASES[self.kind] + infix + suffix


def _table() -> dict[str, Target]:
    table = {}
    dtypes = [*map(dtype, SUFFIXES), None]
    for kind in BASES:
        ops = [*INFIXES, None] if kind.reduces else [None]
        for op, element in product(ops, dtypes):
            target = Target(kind, op, element)
            table[target.name] = target
    return table


TARGETS = _table()
"""Every name that is ever emitted, the UNKNOWN forms included."""

_NAMES = {target: name for name, target in TARGETS.items()}

CATALOGUE = frozenset(name for name in TARGETS if "UNKNOWN" not in name)
"""The legal names."""


def element_type(shape: Shape) -> DType | None:
    """The type that names a collective's result: an array's own, the one type of all arrays in a tuple, else None."""
    types = {leaf.dtype for leaf in shape.leaves()} - {TOKEN}
    return types.pop() if len(types) == 1 else None


def _named(dtype: DType | None) -> DType | None:
    return dtype if dtype is not None and dtype.name in SUFFIXES else None


def target_for(kind: Kind, reduce_op: ReduceOp | None, shape: Shape) -> str:
    """The name for a collective of that kind, op and result shape (of a send: the shape of what it sends)."""
    return _NAMES[Target(kind, reduce_op if reduce_op in INFIXES else None, _named(element_type(shape)))]


def parse_target(name: str) -> Target | None:
    """What a name says, or None where it is not one of ours."""
    return TARGETS.get(name)
