"""Which fences a kernel needs, so that peers see what it wrote and it sees what they wrote."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue
from xdsl.traits import Pure

from crossrank.program.analysis.lineage import Lineage
from crossrank.program.dialect.calls import CallOp
from crossrank.program.dialect.remote import FenceOp, InvalidateOp, PutOp, RemoteStoreOp, WaitOp
from crossrank.program.program import Function
from crossrank.program.types import DistTensorType


@dataclass(frozen=True)
class Need:
    """What has to follow an op.

    Attributes:
        after: the op.
        why: in a word or two.
        region: the tensor that is not to be read stale.
        whole: nothing is to be read stale.
        fence: what was written is to be visible.
    """

    after: Operation
    why: str
    region: SSAValue | None = None
    whole: bool = False
    fence: bool = False

    @property
    def met(self) -> bool:
        """Whether it follows."""
        following = self.after.next_op
        if self.whole or self.region is not None:
            if not isinstance(following, InvalidateOp) or following.region is not self.region:
                return False
            following = following.next_op
        return not self.fence or isinstance(following, FenceOp)


def missing(kernel: Function, lineage: Lineage) -> list[Need]:
    """What has to follow ops of a kernel, and does not."""
    return [need for need in _needs(kernel.op, lineage) if not need.met]


def _needs(around: Operation, lineage: Lineage) -> Iterator[Need]:
    for region in around.regions:
        for block in region.blocks:
            for op in block.ops:
                if _only_waits(op):
                    if not _waits_again(op):
                        yield Need(op, "wait", whole=True)
                    continue
                yield from _after(op, lineage)
                yield from _needs(op, lineage)


def _after(op: Operation, lineage: Lineage) -> Iterator[Need]:
    """Of an op that is no wait."""
    if isinstance(op, CallOp):
        yield Need(op, "call", whole=True, fence=True)
    elif isinstance(op, (PutOp, RemoteStoreOp)):
        yield Need(op, "remote write", fence=True)
    else:
        for tensor in lineage.written(op):
            if any(isinstance(root.type, DistTensorType) for root in lineage.roots(tensor)):
                yield Need(op, "local write", region=tensor, fence=True)


def _only_waits(op: Operation) -> bool:
    """Whether it is a wait, or a loop or a branch of waits and nothing else that reads or writes memory."""
    if isinstance(op, WaitOp):
        return True
    if not isinstance(op, (scf.ForOp, scf.IfOp)):
        return False
    inner = [(o, _only_waits(o)) for region in op.regions for block in region.blocks for o in block.ops]
    return any(waits for _, waits in inner) and all(waits or _harmless(o) for o, waits in inner)


def _harmless(op: Operation) -> bool:
    """Whether it neither reads nor writes memory."""
    return (
        isinstance(op, scf.YieldOp)
        or op.has_trait(Pure)
        or (
            isinstance(op, (scf.ForOp, scf.IfOp))
            and all(_harmless(o) for r in op.regions for b in r.blocks for o in b.ops)
        )
    )


def _waits_again(op: Operation) -> bool:
    """Whether nothing but numbers is computed until the next wait of the same block."""
    following = op.next_op
    while following is not None and not _only_waits(following):
        if not _harmless(following) or isinstance(following, scf.YieldOp):
            return False
        following = following.next_op
    return following is not None
