"""Whether the elements of a tensor lie one behind the other, as far as that is plain before anything runs.

It is an allow-list: what is not known to be packed counts as if it were not. A rank that found out only when it runs
would leave its peers waiting for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import scf
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from crossrank.program.analysis.lineage import Lineage
from crossrank.program.dialect.calls import CallOp, CommDomainScopeOp
from crossrank.program.dialect.collectives import CollectiveOp
from crossrank.program.dialect.tensors import (
    AssembleOp,
    CreateTensorOp,
    ReshapeOp,
    SliceOp,
    TransposeOp,
    known,
    shaped,
)
from crossrank.program.dialect.windows import WindowOp
from crossrank.program.program import place


def loose_step(value: SSAValue, lineage: Lineage) -> str | None:
    """The first step, on the way back from a tensor to all the memory that it may be, by which it may not be packed.

    In words, with the author's place; None: it is packed. Parameters, views of windows and new tensors are where a way
    ends.
    """
    seen, todo = {value}, [value]
    while todo:
        current = todo.pop()
        if narrow := _narrow(current):
            return narrow
        sources = _sources(current, lineage)
        if isinstance(sources, str):
            return _at(sources, current)
        todo += [s for s in dict.fromkeys(reversed(sources)) if s not in seen]
        seen.update(sources)
    return None


def _sources(value: SSAValue, lineage: Lineage) -> Sequence[SSAValue] | str:
    """The values that a packed value may be, or is a packed part of; in words what it is where it may not be packed."""
    if isinstance(value, BlockArgument):
        return lineage.origins(value)
    assert isinstance(value, OpResult)
    match value.op:
        case WindowOp() | CreateTensorOp():
            return ()
        case scf.ForOp() | scf.IfOp() | CommDomainScopeOp() | ReshapeOp() | AssembleOp() | CollectiveOp():
            return lineage.origins(value)
        case CallOp() as call:
            return lineage.origins(value) or f"what {call.function} gives, which is none of its parameters"
        case SliceOp() as op:
            return _loose_slice(op) or (op.source,)
        case TransposeOp():
            return "pl.transpose"
        case Operation() as op:
            return f"what {op.name.removeprefix('program.')} gives"


def _loose_slice(op: SliceOp) -> str | None:
    """What a slice is that narrows more than the leading dimension, or may do so; None: it does not."""
    of = shaped(op.source)
    if not of.is_static:
        return f"a slice of {of.described}, whose extents are not all numbers"
    offsets, extents = [known(v) for v in op.offsets], [known(v) for v in op.extents]
    if None in offsets:
        return "a slice whose offsets are not all numbers"
    for axis, (extent, dim) in enumerate(zip(extents, of.shape, strict=True)):
        if axis > 0 and extent != dim:
            return f"a slice of dimension {axis} of {of.described}; only of the leading one it is packed"
    return None


def _narrow(value: SSAValue) -> str | None:
    """In words, where less than all of a value is valid."""
    of = shaped(value)
    for axis, (valid, dim) in enumerate(zip(of.valid, of.shape, strict=False)):
        if valid != dim:
            return _at(f"dimension {axis} has valid_shape {valid} < shape {dim}", value)
    return None


def _at(what: str, value: SSAValue) -> str:
    where = place(value)
    return f"{what} ({where})" if where else what
