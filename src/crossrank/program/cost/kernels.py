"""What one block of a kernel does of an op."""

from __future__ import annotations

import math

from xdsl.ir import Operation, SSAValue

from crossrank.program.cost.values import Known
from crossrank.program.cost.work import Number
from crossrank.program.dialect import remote, tiles
from crossrank.program.dialect.tensors import AssembleOp, ReadOp, WriteOp, shaped
from crossrank.program.types import DistTensorType

Counted = tuple[str, Number, tuple[SSAValue, ...]]
"""What is counted, how much of it, and the tensors that ranks share which it is about."""


def counted(op: Operation, known: Known) -> Counted | None:
    """What an op adds to a kernel's counts; None: nothing that counts."""
    match op:
        case remote.NotifySignalOp():
            return "notifies", 1, (op.target,)
        case remote.WaitOp() | remote.DeferWaitOp():
            return "waits", 1, (op.signal,)
        case remote.PutOp() | remote.GetOp():
            mine, theirs = (op.src, op.dst) if isinstance(op, remote.PutOp) else (op.dst, op.src)
            extents = [known.most(v) for v in op.shape] or known.shape(op.src).extents
            size = 0 if 0 in extents else math.prod(extents) * shaped(op.src).dtype.itemsize
            return _way(known, theirs, op.peer), size, (theirs, mine)
        case remote.RemoteLoadOp():
            return _way(known, op.target, op.peer), _bytes(known, op.result), (op.target,)
        case remote.RemoteStoreOp():
            return _way(known, op.target, op.peer), _bytes(known, op.source), (op.target,)
        case ReadOp() | WriteOp():  # which is told, not counted
            return "copied_bytes", 0, tuple(v for v in op.operands if isinstance(v.type, DistTensorType))
        case tiles.LoadOp():
            return "copied_bytes", _bytes(known, op.result), ()
        case tiles.StoreOp() | AssembleOp():
            return "copied_bytes", _bytes(known, op.source), ()
        case tiles.MatmulOp():
            rows, inner = known.declared(op.lhs).extents
            return "elements", rows * inner * known.declared(op.rhs).extents[1], ()
        case tiles.ReduceOp():
            return "elements", known.shape(op.source).elements, ()
        case tiles.UnaryOp() | tiles.BinaryOp() | tiles.CastOp() | tiles.FullOp() | tiles.FillPadOp():
            return "elements", known.shape(op.result).elements, ()
    return None


def _way(known: Known, tensor: SSAValue, peer: SSAValue) -> str:
    """Where the bytes go that are of a peer: it may be the rank itself."""
    domain = known.shape(tensor).domain
    own = domain.devices.index(known.device) if domain is not None and known.device in domain.devices else None
    return "copied_bytes" if own is not None and known.exact(peer) == own else "moved_bytes"


def _bytes(known: Known, value: SSAValue) -> Number:
    return known.shape(value).elements * shaped(value).dtype.itemsize
