"""Who comes after whom: by the memory that two accesses have in common, and by what they do to it."""

from __future__ import annotations

import numpy as np
import pytest

from crossrank.program.execute.tensor_map import MANY, TensorMap
from crossrank.program.execute.views import View
from crossrank.program.kinds import ArgDirection

X = np.zeros((8, 12), np.float32)
V = {
    "all": X,
    "row 0": X[0],
    "row 1": X[1:2],
    "rows 0-3": X[:4],
    "columns 0-3": X[:, :4],
    "columns 4-7": X[:, 4:8],
    "block": X[2:4, 3:5],
    "transposed": X.T[:4, 2:4],
    "cell": X[3, 3, ...],
    "nothing": X[0:0],
    "other": np.zeros((8, 12), np.float32),
}
READ, WRITE, CHANGE, AWAY = (
    ArgDirection.Input,
    ArgDirection.OutputExisting,
    ArgDirection.InOut,
    ArgDirection.NoDep,
)


@pytest.mark.parametrize(
    ("accesses", "after"),
    [
        pytest.param([("all", WRITE), ("all", READ)], [0], id="read after write"),
        pytest.param([("all", READ), ("all", WRITE)], [0], id="write after read"),
        pytest.param([("all", WRITE), ("all", WRITE)], [0], id="write after write"),
        pytest.param([("all", READ), ("all", READ)], [], id="readers side by side"),
        pytest.param([("all", WRITE), ("other", CHANGE)], [], id="other memory"),
        pytest.param([("row 0", WRITE), ("row 1", CHANGE)], [], id="rows apart"),
        pytest.param([("columns 0-3", WRITE), ("columns 4-7", CHANGE)], [], id="columns apart"),
        pytest.param([("columns 0-3", WRITE), ("block", CHANGE)], [0], id="blocks that meet"),
        pytest.param([("transposed", WRITE), ("columns 4-7", CHANGE)], [], id="transposed, apart"),
        pytest.param([("transposed", WRITE), ("block", READ)], [0], id="transposed, in common"),
        pytest.param([("block", WRITE), ("cell", READ)], [0], id="one cell"),
        pytest.param([("all", WRITE), ("nothing", CHANGE)], [], id="nothing"),
        pytest.param([("row 0", WRITE), ("row 1", WRITE), ("rows 0-3", READ)], [0, 1], id="two writers"),
        pytest.param([("row 0", WRITE), ("all", WRITE), ("row 0", READ)], [1], id="the last writer"),
        pytest.param([("row 0", READ), ("row 0", READ), ("all", CHANGE)], [0, 1], id="all readers"),
        pytest.param([("all", WRITE), ("row 0", READ), ("row 1", CHANGE)], [0], id="a reader elsewhere"),
        pytest.param([("columns 0-3", WRITE), ("columns 0-3", WRITE), ("cell", READ)], [1], id="with holes, again"),
        pytest.param([("all", WRITE), ("all", AWAY)], [], id="ordered by its author"),
        pytest.param([("all", AWAY), ("all", WRITE)], [], id="ordered by its author, before"),
    ],
)
def test_the_last_access_comes_after(accesses: list[tuple[str, ArgDirection]], after: list[int]) -> None:
    known: TensorMap[int] = TensorMap(list)
    found: list[int] = []
    for task, (name, direction) in enumerate(accesses):
        found = known.all_before([(View(V[name]), direction)])
        known.note(View(V[name]), direction, task)
    assert sorted(found) == after


def test_what_was_not_ordered_stays_known() -> None:
    known: TensorMap[int] = TensorMap(list)
    known.note(View(V["row 0"]), WRITE, 0)
    known.note(View(V["all"]), WRITE, 1, ordered=False)
    assert sorted(known.all_before([(View(V["row 0"]), READ)])) == [0, 1]


def test_what_is_over_is_forgotten() -> None:
    """Of an endless run nothing may grow; what is not over stays, whoever has come since."""
    over = set(range(3 * MANY)) - {5, 7}
    asked: list[int] = []

    def unfinished(tasks: list[int]) -> list[int]:
        asked.append(len(tasks))
        return [task for task in tasks if task not in over]

    known: TensorMap[int] = TensorMap(unfinished)
    for task in range(3 * MANY):
        known.note(View(V["row 0"]), WRITE if task == 5 else READ, task)
    last = list(range(2 * MANY + 1, 3 * MANY))
    assert known.all_before([(View(V["row 0"]), READ)]) == [5]
    assert [t for t in known.all_before([(View(V["all"]), CHANGE)]) if t not in last] == [5, 7]
    assert asked == [MANY - 5, MANY + 3]


def test_by_elements_against_sets() -> None:
    """Random boxes of one tensor: an edge exactly where they have an element in common and one of them writes."""
    random = np.random.default_rng(0)
    numbers = np.arange(X.size).reshape(X.shape)
    met = 0
    for _ in range(300):
        boxes = []
        for _ in range(2):
            (a, b), (c, d) = (sorted(random.integers(0, n + 1, 2)) for n in X.shape)
            turn = bool(random.integers(2))
            boxes.append(
                [
                    (m.T if turn else m)[(slice(c, d), slice(a, b)) if turn else (slice(a, b), slice(c, d))]
                    for m in (X, numbers)
                ]
            )
        directions = [random.choice([READ, WRITE, CHANGE]) for _ in boxes]
        known: TensorMap[int] = TensorMap(list)
        known.note(View(boxes[0][0]), ArgDirection(directions[0]), 0)
        common = set(boxes[0][1].flat) & set(boxes[1][1].flat)
        wanted = [0] if common and any(ArgDirection(d).writes for d in directions) else []
        assert known.all_before([(View(boxes[1][0]), ArgDirection(directions[1]))]) == wanted
        met += bool(wanted)
    assert 50 < met < 250
