"""What a launch of a collective that comes with crossrank does on one rank, by the extents of its operands."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from crossrank.program.builtins import Builtin
from crossrank.program.cost.work import Number


def launch_of(
    builtin: Builtin, operands: Mapping[str, Sequence[Number]], itemsize: int, ranks: int, blocks: int
) -> dict[str, Number]:
    """The counts of one launch on one rank; of an all-to-all-v as if all rows were sent that there is room for.

    Args:
        builtin: the collective.
        operands: the extents of its tensors.
        itemsize: bytes of an element of its target.
        ranks: in its domain.
        blocks: of the launch.
    """
    peers = ranks - 1
    share = math.prod(operands["target"]) / ranks if "target" in operands else 0
    moved, copied, computed, meetings = peers * share, share, 0.0, 2
    match builtin.name:
        case "barrier":
            meetings = 1
        case "allreduce":  # a rank reads its share of all ranks' elements, and writes the results there
            moved, copied, computed = 2 * moved, 2 * copied, moved
        case "allreduce_ring":
            moved, copied, computed, meetings = 2 * moved, 0, moved, 2 * peers + 1
        case "reduce_scatter":
            computed = moved
    cells = peers * blocks
    return {
        "notifies": (meetings + 1) * cells,  # and once more on its own cells, which are zero afterwards
        "waits": meetings * cells,
        "managed_bytes": moved * itemsize,
        "copied_bytes": copied * itemsize,
        "elements": computed,
    }
