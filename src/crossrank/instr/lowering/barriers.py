"""Numbers for barriers: those that meet get the same one, module-wide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import replace

from crossrank.instr.instructions import InstCoreBarrier
from crossrank.instr.lowering.operations import aligned_blocks
from crossrank.instr.program import Kernel


def number_barriers(kernel: Kernel) -> bool:
    """Give the k-th barriers of the same cores in a block one number; returns whether any number changed.

    The cores must have the same blocks. A barrier that lacks its partners gets a number of its own.
    """
    changed, numbers = False, 0
    for block in aligned_blocks(kernel):
        known: dict[Hashable, int] = {}
        for instructions in block.values():
            seen: Counter[Hashable] = Counter()
            for inst in instructions:
                if not isinstance(inst, InstCoreBarrier):
                    continue
                key = (tuple(sorted(inst.fields.cores)), inst.fields.barrier_id)
                seen[key] += 1
                if (key, seen[key]) not in known:
                    known[key, seen[key]] = numbers
                    numbers += 1
                number = known[key, seen[key]]
                if inst.fields.barrier_id != number:
                    inst.fields = replace(inst.fields, barrier_id=number)
                    changed = True
    return changed
