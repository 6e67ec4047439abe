"""Order among many instructions at once: what stands in a row, and what would come to wait for itself.

`dependence` answers for one set of instructions; here many sets are asked about in one walk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from crossrank.hlo.module import Instruction

Node = Instruction | int


def in_a_row(rows: Sequence[Sequence[Instruction]]) -> list[bool]:
    """For each row whether every member depends on the one before it.

    All members of all rows stand in one computation. One walk over it, whatever the number of rows.
    """
    rows = list(rows)
    members = [i for row in rows for i in row]
    if not members:
        return [True] * len(rows)
    bit = {i: 1 << n for n, i in enumerate(members)}
    before: dict[Instruction, int] = {}  # which members an instruction depends on, itself counted; where there are any
    for i in members[0].computation.post_order():
        reached = bit.get(i, 0)
        for n in i.needs():
            reached |= before.get(n, 0)
        if reached:
            before[i] = reached
    return [all(before[b] & bit[a] for a, b in pairwise(row)) for row in rows]


def cyclic(groups: Sequence[Sequence[Instruction]]) -> set[int]:
    """Which groups would wait for themselves, were each group made into one instruction.

    What stands between members of one group does not count, unless it leads through other instructions. Once these
    groups are left as they are, the others can be made into one instruction each without a cycle.

    Args:
        groups: disjoint, of instructions of one computation.
    """
    owner: dict[Instruction, Node] = {i: n for n, group in enumerate(groups) for i in group}

    def needs(node: Node) -> Iterator[Node]:
        members = groups[node] if isinstance(node, int) else (node,)
        found = (owner.get(n, n) for i in members for n in i.needs())
        return (n for n in found if n is not node and n != node)

    # Tarjan's strongly connected components, without recursion
    number: dict[Node, int] = {}
    low: dict[Node, int] = {}
    stack: list[Node] = []
    closed: set[Node] = set()
    path: list[tuple[Node, Iterator[Node]]] = []
    found: set[int] = set()

    def enter(node: Node) -> None:
        number[node] = low[node] = len(number)
        stack.append(node)
        path.append((node, needs(node)))

    for start in range(len(groups)):
        if start not in number:
            enter(start)
        while path:
            node, rest = path[-1]
            for n in rest:
                if n not in number:
                    enter(n)
                    break
                if n not in closed:
                    low[node] = min(low[node], number[n])
            else:
                path.pop()
                if path:
                    above = path[-1][0]
                    low[above] = min(low[above], low[node])
                if low[node] == number[node]:
                    place = len(stack) - 1
                    while stack[place] != node:
                        place -= 1
                    component = stack[place:]
                    del stack[place:]
                    closed.update(component)
                    if len(component) > 1:
                        found.update(n for n in component if isinstance(n, int))
    return found
