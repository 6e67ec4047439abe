"""Who depends on whom within a computation, through operands and control dependencies.

All questions here are answered by one walk over a stretch of the computation's post-order, so that a pass that asks
them for neighbours stays linear in the module.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from crossrank.hlo.module import Instruction


def independent(members: Collection[Instruction]) -> bool:
    """Whether no member depends on another one; all stand in one computation.

    Walks from the first to the last of them in post-order.
    """
    return all(level == 1 for level in levels(members).values())


def levels(members: Collection[Instruction]) -> dict[Instruction, int]:
    """For each member the most members on a path that ends with it, itself counted: 1 where none is before it.

    Two members of one level never depend on each other. Where all members of one level become a single instruction, the
    computation stays free of cycles, for paths lead from lower levels to higher ones only.
    """
    wanted = set(members)
    if not wanted:
        return {}
    order = next(iter(wanted)).computation.post_order()
    found: dict[Instruction, int] = {}
    before: dict[Instruction, int] = {}  # of instructions behind the first member, where above 0
    left = len(wanted)
    for i in order:
        level = max((before.get(n, 0) for n in i.needs()), default=0) if before else 0
        if i in wanted:
            level += 1
            found[i] = level
            left -= 1
            if not left:
                break
        if level:
            before[i] = level
    return found


def depends_on(i: Instruction, others: Iterable[Instruction]) -> bool:
    """Whether ``i`` is one of ``others`` or depends on one, all in its computation."""
    wanted = set(others)
    if i in wanted:
        return True
    seen: set[Instruction] = {i}
    work = [i]
    while work:
        for n in work.pop().needs():
            if n in wanted:
                return True
            if n not in seen:
                seen.add(n)
                work.append(n)
    return False
