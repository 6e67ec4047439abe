"""Values after those that they are computed from, however long the chain: no call within a call for each of them."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def postorder(value: T, made_of: Callable[[T], Sequence[T]], known: Container[T]) -> Iterator[T]:
    """A value, and before it what it is made of; what is ``known`` is left out, also what becomes so meanwhile."""
    todo = [value]
    begun = set[T]()
    while todo:
        current = todo[-1]
        missing = [] if current in begun or current in known else [v for v in made_of(current) if v not in known]
        begun.add(current)
        if missing:
            todo += missing
            continue
        todo.pop()
        if current not in known:
            yield current
