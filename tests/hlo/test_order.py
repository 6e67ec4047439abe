"""Rows of instructions that depend on one another, and groups that would wait for themselves: against brute force."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from crossrank.hlo.dependence import depends_on
from crossrank.hlo.module import Computation, Instruction
from crossrank.hlo.order import cyclic, in_a_row

from ..support import parse


def graph(rng: np.random.Generator, size: int) -> tuple[Computation, list[Instruction]]:
    """Adds over random earlier values, some with a control dependency."""
    lines = ["  n_0 = f32[] parameter(0)"]
    for n in range(1, size):
        a, b, c = rng.integers(max(0, n - 4), n, 3)
        control = f", control-predecessors={{n_{c}}}" if rng.random() < 0.2 else ""
        lines.append(f"  n_{n} = f32[] add(n_{a}, n_{b}){control}")
    lines.append(f"  ROOT r = f32[] negate(n_{size - 1})")
    entry = parse("\n".join(lines)).module.entry
    return entry, [i for i in entry.post_order() if i.name.startswith("n_")]


def test_nothing_is_in_a_row() -> None:
    assert in_a_row([]) == []
    assert in_a_row([[], []]) == [True, True]


@pytest.mark.parametrize("seed", range(20))
def test_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    _, nodes = graph(rng, 24)
    rows = [[nodes[k] for k in sorted(rng.choice(24, rng.integers(1, 4), replace=False))] for _ in range(6)]
    assert in_a_row(rows) == [all(depends_on(b, [a]) for a, b in pairwise(row)) for row in rows]


def has_cycle(entry: Computation, groups: list[list[Instruction]]) -> bool:
    """Whether the computation has a cycle once each group is one node."""
    owner = {i: n for n, group in enumerate(groups) for i in group}
    after: dict[object, set[object]] = {}
    for i in entry.post_order():
        for n in i.needs():
            if owner.get(n, n) != owner.get(i, i):
                after.setdefault(owner.get(n, n), set()).add(owner.get(i, i))
    done: set[object] = set()
    open_nodes: set[object] = set()

    def visit(node: object) -> bool:
        if node in open_nodes:
            return True
        if node in done:
            return False
        open_nodes.add(node)
        found = any(visit(n) for n in after.get(node, ()))
        open_nodes.discard(node)
        done.add(node)
        return found

    return any(visit(node) for node in list(after))


@pytest.mark.parametrize("seed", range(40))
def test_cycles(seed: int) -> None:
    rng = np.random.default_rng(seed)
    entry, nodes = graph(rng, 30)
    picked = rng.permutation(30)[:12]
    groups = [[nodes[k] for k in picked[n : n + 3]] for n in range(0, 12, 3)]
    waiting = cyclic(groups)
    assert not has_cycle(entry, [g for n, g in enumerate(groups) if n not in waiting])
    assert bool(waiting) == has_cycle(entry, groups)
    for n in waiting:  # none is left out without need: with all others made into one, it waits for itself
        assert has_cycle(entry, groups[:n] + groups[n + 1 :] + [groups[n]])
