"""Which kernels there are: one for each kind, reduce op and element type, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from crossrank.collective.dtypes import DType
from crossrank.collective.kinds import Kind, ReduceOp

MOVING = (
    Kind.ALL_GATHER,
    Kind.ALL_TO_ALL,
    Kind.COLLECTIVE_PERMUTE,
    Kind.COLLECTIVE_BROADCAST,
    Kind.RAGGED_ALL_TO_ALL,
)
"""The kinds whose kernels move bytes."""

_INTEGERS = ("s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64")
_FLOATS = ("f16", "bf16", "f32", "f64")
_COMPLEX = ("c64", "c128")
_ON_BITS = (ReduceOp.AND, ReduceOp.OR, ReduceOp.XOR)
_ORDERING = (ReduceOp.MAXIMUM, ReduceOp.MINIMUM)
_ON_PRED = {
    ReduceOp.ADD: ReduceOp.OR,
    ReduceOp.MAXIMUM: ReduceOp.OR,
    ReduceOp.MULTIPLY: ReduceOp.AND,
    ReduceOp.MINIMUM: ReduceOp.AND,
}

Code = tuple[ReduceOp, str] | None
"""A reduction as it is compiled: an op and the name of a number."""


def reduction(op: ReduceOp | None, dtype: DType | None) -> Code:
    """The reduction that computes ``op`` on ``dtype``; None where nothing is reduced.

    What computes the same shares its code: integers wrap and so have no sign but where they are compared, and pred is a
    byte of 0 or 1.
    """
    if op is None or dtype is None:
        return None
    name = dtype.name
    if name == "pred":
        return _ON_PRED.get(op, op), "u8"
    if name in _INTEGERS and op not in _ORDERING:
        return op, f"u{name[1:]}"
    return op, name


def has_kernel(kind: Kind, op: ReduceOp | None, dtype: DType | None) -> bool:
    """Whether a kernel serves ``kind`` with ``op`` on elements of ``dtype``.

    What reduces nothing moves bytes: it takes every type whose elements fill whole ones. A fused send and recv is a
    permute.
    """
    if kind in MOVING:
        return op is None and (dtype is None or dtype.name == "pred" or (dtype.bits >= 8 and dtype.bits % 8 == 0))
    if not kind.reduces or op is None or dtype is None:
        return False
    return dtype.name in ("pred", *_INTEGERS, *_FLOATS, *_COMPLEX) and op.valid_for(dtype)


@dataclass(frozen=True)
class Variant:
    """One kernel.

    Attributes:
        kind: the collective.
        op: the reduce op; None where nothing is reduced.
        dtype: the element type; None where bytes are moved.

    Raises:
        ValueError: there is no such kernel.
    """

    kind: Kind
    op: ReduceOp | None = None
    dtype: DType | None = None

    def __post_init__(self) -> None:
        if not has_kernel(self.kind, self.op, self.dtype):
            what = " ".join(str(x) for x in (self.kind, self.op, self.dtype) if x is not None)
            raise ValueError(f"there is no kernel for {what}")

    @property
    def code(self) -> Code:
        """The reduction as it is compiled; None where nothing is reduced."""
        return reduction(self.op, self.dtype)

    @property
    def symbol(self) -> str:
        """The name under which the kernel's library exports it; ``_body``, ``_kernel`` or ``_managed`` follows."""
        parts = ("crossrank", self.kind.replace("-", "_"), *(self.code or ()))
        return "_".join(parts)
