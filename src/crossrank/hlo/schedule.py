"""The schedule of a module, kept complete while the module is edited.

A scheduled module lists, for each computation that runs step by step, every instruction in the order in which it runs.
What was removed must go from the list, and what is new must find a place in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crossrank.hlo.module import Computation, Instruction, Module


def complete_schedule(module: Module) -> None:
    """Bring the schedule, if there is one, up to date: new instructions run as late as their users allow."""
    if not module.proto.HasField("schedule"):
        return
    sequences = module.proto.schedule.sequences
    known = {c.id for c in module.computations}
    for key in [k for k in sequences if k not in known]:
        del sequences[key]
    for c in module.computations:
        if not c.touched or c.is_fusion:
            continue  # a fusion is one step: its body has no sequence of its own
        ids = sequences[c.id].instruction_ids
        order = _in_sequence(c, {k: n for n, k in enumerate(ids)})
        del ids[:]
        ids.extend(i.id for i in order)


def _in_sequence(c: Computation, place: dict[int, int]) -> list[Instruction]:
    """The instructions in their old order where they had one, new ones right before their first user."""
    starts = [i for i in c.post_order() if i.id in place or i.is_root or not i.users]
    done: set[Instruction] = set()
    order: list[Instruction] = []
    for start in sorted(starts, key=lambda i: place.get(i.id, len(place))):
        stack = [start]
        while stack:
            node = stack[-1]
            missing = [n for n in node.needs() if n not in done]
            if missing:
                stack.extend(reversed(missing))
            else:
                stack.pop()
                if node not in done:
                    done.add(node)
                    order.append(node)
    return order
