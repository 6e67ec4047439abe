"""Whether a kernel writes all of a tensor before it looks at any of it, so that what was there does not matter."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue
from xdsl.traits import Pure

from crossrank.program.analysis.lineage import Lineage
from crossrank.program.dialect.tensors import known, shaped
from crossrank.program.dialect.tiles import StoreOp, is_whole
from crossrank.program.program import Function


def fills(kernel: Function, parameter: int, lineage: Lineage) -> bool:
    """Whether the first thing that a kernel does to a parameter is to write all of it, as far as that is plain.

    That is a store of a tile as large as the parameter, or stores of tiles beside one another, a loop each dimension.
    """
    tensor = kernel.body.args[parameter] if kernel.has_body else None
    return tensor is not None and shaped(tensor).is_static and _fills(kernel.body, tensor, lineage, ())


def _fills(block: Block, tensor: SSAValue, lineage: Lineage, loops: Sequence[scf.ForOp]) -> bool:
    """Whether a block does, in loops that run through all their turns."""
    touching = [op for op in block.ops if _touches(op, tensor, lineage)]
    if not touching or (loops and len(touching) > 1):
        return False
    match first := touching[0]:
        case StoreOp():
            return _covers(first, shaped(tensor).extents, loops)
        case scf.ForOp():
            return _fills(first.body.block, tensor, lineage, (*loops, first))
    return False


def _covers(store: StoreOp, extents: Sequence[int], loops: Sequence[scf.ForOp]) -> bool:
    """Whether a store, made in each turn of loops, writes everything."""
    target = shaped(store.target)
    if target.shape != extents or not is_whole(store.source):
        return False
    tile = shaped(store.source).extents
    tile = (1,) * (len(extents) - len(tile)) + tile
    driven = [
        any(_goes_through(loop, offset, extent, size) for loop in loops)
        for offset, extent, size in zip(store.offsets, extents, tile, strict=True)
    ]
    whole = [known(o) == 0 and s == e for o, e, s in zip(store.offsets, extents, tile, strict=True)]
    used = [sum(o is loop.body.block.args[0] for o in store.offsets) for loop in loops]
    return all(a or b for a, b in zip(driven, whole, strict=True)) and all(n == 1 for n in used)


def _goes_through(loop: scf.ForOp, offset: SSAValue, extent: int, size: int) -> bool:
    """Whether a loop's variable is an offset that goes over an extent by tiles of a size."""
    bounds = [known(v) for v in (loop.lb, loop.ub, loop.step)]
    return offset is loop.body.block.args[0] and bounds == [0, extent, size]


def _touches(op: Operation, tensor: SSAValue, lineage: Lineage) -> bool:
    """Whether an op, or one within it, reads or writes a tensor; views do not, nor does what hands it on."""
    return any(
        tensor in lineage.roots(value)
        for inner in op.walk()
        if not inner.has_trait(Pure) and not isinstance(inner, (scf.ForOp, scf.IfOp, scf.YieldOp))
        for value in inner.operands
    )
