"""Who works together when a kernel does not say: groups derived from how many ranks there are.

The ``*_cc`` methods of the builder, which take no groups, ask here and nowhere else.
"""

from __future__ import annotations

from crossrank.instr.fields import Pairs


def gen_all_worker_group(world_size: int) -> Pairs:
    """One group of all ranks, in order."""
    return (tuple(range(world_size)),)


def gen_all_collective_permute_config(world_size: int) -> Pairs:
    """One ring of all ranks: the order of the list is the order of the ring."""
    return (tuple(range(world_size)),)
