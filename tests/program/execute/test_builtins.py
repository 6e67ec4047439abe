"""What is asked of the operands of a built-in kernel when it is launched, whatever extents its program left open."""

from __future__ import annotations

import numpy as np
import pytest

from crossrank.program.builtins import ALL_REDUCE, BUILTINS, RING, Builtin
from crossrank.program.dialect.collectives import (
    AllGatherOp,
    AllToAllOp,
    AllToAllVOp,
    BarrierOp,
    BroadcastOp,
    IndexedAllToAllVOp,
    ReduceScatterOp,
)
from crossrank.program.execute.builtins import ask_operands
from crossrank.program.execute.failures import Fatal, Reason
from crossrank.program.execute.views import Domain, View

BROADCAST, GATHER, SCATTER = BUILTINS[BroadcastOp], BUILTINS[AllGatherOp], BUILTINS[ReduceScatterOp]
EXCHANGE, COUNTED, INDEXED = BUILTINS[AllToAllOp], BUILTINS[AllToAllVOp], BUILTINS[IndexedAllToAllVOp]

FOUR = Domain("comm_d0", 0, range(4))
RIGHT: list[tuple[Builtin, list[tuple[int, int]]]] = [
    (ALL_REDUCE, [(3, 5), (4, 1)]),
    (RING, [(3, 5), (7, 4)]),
    (BUILTINS[BarrierOp], [(4, 1)]),
    (BROADCAST, [(3, 5), (4, 2)]),
    (GATHER, [(1, 5), (4, 5), (4, 1)]),
    (SCATTER, [(4, 5), (4, 1)]),
    (EXCHANGE, [(4, 5), (4, 5), (4, 1)]),
    (COUNTED, [(8, 5), (8, 5), (4, 3), (4, 1), (4, 1)]),
    (INDEXED, [(2, 5), (8, 5), (4, 3), (4, 1), (4, 1), (8, 1)]),
]


def launched(builtin: Builtin, shapes: list[tuple[int, int]], root: int = 0, spare: bool = False) -> None:
    views = [View(np.zeros(shape, np.int32)) for shape in shapes]
    ask_operands(builtin, views, [FOUR, FOUR], [root] if builtin is BROADCAST else [], spare)


@pytest.mark.parametrize(("builtin", "shapes"), RIGHT, ids=lambda v: v.name if isinstance(v, Builtin) else "")
def test_what_can_be(builtin: Builtin, shapes: list[tuple[int, int]]) -> None:
    launched(builtin, shapes)


@pytest.mark.parametrize(
    ("builtin", "shapes", "what"),
    [
        (ALL_REDUCE, [(3, 5), (3, 1)], "signal rows 3 differ from the domain's size 4"),
        (ALL_REDUCE, [(3, 5), (8, 1)], "signal rows 8 differ from the domain's size 4"),
        (ALL_REDUCE, [(3, 5), (4, 0)], "signal of allreduce has no cells"),
        (RING, [(3, 5), (6, 4)], r"ring allreduce signal shape\[0\] \(6\) must equal 2\*\(NR-1\) \+ 1 = 7 for NR = 4"),
        (RING, [(3, 5), (7, 5)], r"ring allreduce signal shape\[1\] \(5\) must equal the domain's size \(4\)"),
        (GATHER, [(2, 5), (4, 5), (4, 1)], "input of allgather has 2 rows, and needs 1"),
        (GATHER, [(1, 6), (4, 5), (4, 1)], r"target SIZE \(5\) must equal input SIZE \(6\)"),
        (GATHER, [(1, 5), (3, 5), (4, 1)], "target rows 3 differ from the domain's size 4"),
        (SCATTER, [(5, 5), (4, 1)], "target rows 5 differ from the domain's size 4"),
        (EXCHANGE, [(3, 5), (4, 5), (4, 1)], "input of all_to_all has 3 rows, and needs 4"),
        (COUNTED, [(8, 5), (9, 5), (4, 3), (4, 1), (4, 1)], r"signal dim 0 \(4\) must divide target dim 0 \(9\)"),
        (COUNTED, [(7, 5), (8, 5), (4, 3), (4, 1), (4, 1)], "input of all_to_all_v has 7 rows, and needs 8"),
        (COUNTED, [(9, 5), (8, 5), (4, 3), (4, 1), (4, 1)], "input of all_to_all_v has 9 rows, and needs 8"),
        (COUNTED, [(8, 5), (8, 5), (4, 3), (3, 1), (4, 1)], "send_counts of all_to_all_v has 3 entries, and needs 4"),
        (COUNTED, [(8, 5), (8, 5), (4, 3), (4, 1), (2, 1)], "recv_counts of all_to_all_v has 2 entries, and needs 4"),
        (
            INDEXED,
            [(2, 5), (8, 5), (4, 3), (4, 1), (4, 1), (7, 1)],
            "index of indexed_all_to_all_v has 7 entries, and needs 8",
        ),
    ],
)
def test_what_cannot_be(builtin: Builtin, shapes: list[tuple[int, int]], what: str) -> None:
    with pytest.raises(Fatal, match=rf"^{what} \(code 5\)$") as caught:
        launched(builtin, shapes)
    assert caught.value.code is Reason.INVALID_ARGS


def test_root_that_is_no_rank() -> None:
    with pytest.raises(Fatal, match=r"^pld.tensor.broadcast root \(4\) must be a valid rank in \[0, 4\) \(code 5\)$"):
        launched(BROADCAST, [(3, 5), (4, 1)], root=4)


def test_spare_rows() -> None:
    """A dispatch of the host to some of the devices takes tensors that were made for all."""
    for builtin, shapes in ((SCATTER, [(6, 5), (6, 1)]), (EXCHANGE, [(6, 5), (6, 5), (6, 1)])):
        launched(builtin, shapes, spare=True)
    with pytest.raises(Fatal, match="signal rows 3"):
        launched(ALL_REDUCE, [(6, 5), (3, 1)], spare=True)


def test_what_is_apart() -> None:
    memory, signal = np.zeros((5, 5), np.int32), View(np.zeros((4, 1), np.int32))
    with pytest.raises(Fatal, match="input and target of allgather share memory"):
        ask_operands(GATHER, [View(memory[:1]), View(memory[:4]), signal], [FOUR, FOUR], [], False)
    ask_operands(GATHER, [View(memory[4:]), View(memory[:4]), signal], [FOUR, FOUR], [], False)
    other = Domain("comm_d1", 1, range(4))
    with pytest.raises(Fatal, match=r"the windows of allreduce are of comm_d0 .* and comm_d1 "):
        ask_operands(ALL_REDUCE, [View(memory), signal], [FOUR, other], [], False)
