"""The control flow of a program: where all paths meet again, and what is in a loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Flow:
    """A control-flow graph of numbered blocks, the first of which is entered.

    Args:
        successors: of each block; one without is an end.
    """

    def __init__(self, successors: Sequence[Sequence[int]]) -> None:
        self._end = len(successors)  # after all ends
        self._successors = [list(s) or [self._end] for s in successors] + [[]]
        self._predecessors: list[list[int]] = [[] for _ in self._successors]
        for block, following in enumerate(self._successors):
            for other in following:
                self._predecessors[other].append(block)
        self._order = _post_order(self._predecessors, self._end)
        self._place = {block: n for n, block in enumerate(self._order)}
        self._next = {self._end: self._end}
        self._find_post_dominators()
        self._in_loop = self._loops()

    def meeting_point(self, blocks: Iterable[int]) -> int | None:
        """The first block, outside of loops, on every path from each of ``blocks``; None: there is none."""
        found: int | None = None
        for block in blocks:
            if block not in self._place:
                return None  # a loop without an end
            found = block if found is None else self._common(found, block)
        while found is not None and found != self._end and found in self._in_loop:
            found = self._next[found]
        return None if found == self._end else found

    def _common(self, a: int, b: int) -> int:
        while a != b:
            if self._place[a] < self._place[b]:
                a = self._next[a]
            else:
                b = self._next[b]
        return a

    def _find_post_dominators(self) -> None:
        """The next block on every path to the end, of each block that reaches it (Cooper, Harvey, Kennedy)."""
        changed = True
        while changed:
            changed = False
            for block in reversed(self._order[:-1]):
                known = [s for s in self._successors[block] if s in self._next]
                found = known[0]
                for other in known[1:]:
                    found = self._common(found, other)
                if self._next.get(block) != found:
                    self._next[block] = found
                    changed = True

    def _loops(self) -> set[int]:
        """The blocks of strongly connected components with a cycle (Kosaraju's two walks)."""
        order = []
        seen: set[int] = set()
        for start in range(len(self._successors)):
            order += _post_order(self._successors, start, seen)
        found: set[int] = set()
        seen = set()
        for start in reversed(order):
            component = _post_order(self._predecessors, start, seen)
            if len(component) > 1 or (component and component[0] in self._successors[component[0]]):
                found.update(component)
        return found


def _post_order(edges: Sequence[Sequence[int]], start: int, seen: set[int] | None = None) -> list[int]:
    """The blocks that ``start`` leads to, each after those it leads to; without those ``seen``."""
    seen = set() if seen is None else seen
    if start in seen:
        return []
    seen.add(start)
    order, stack = [], [(start, iter(edges[start]))]
    while stack:
        block, rest = stack[-1]
        following = next((b for b in rest if b not in seen), None)
        if following is None:
            order.append(block)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(edges[following])))
    return order
