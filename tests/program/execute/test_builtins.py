"""What is asked of the operands of a built-in kernel when it is launched, whatever extents its program left open."""

from __future__ import annotations

import numpy as np
import pytest

from crossrank.author import load_module
from crossrank.program import compile
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
from crossrank.program.execute.builtins import Meetings, ask_operands
from crossrank.program.execute.failures import Fatal, Latched, Reason
from crossrank.program.execute.views import Domain, View, Window

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


def test_ranks_that_launch_something_else() -> None:
    """Whoever is late to the n-th launch on a signal is told, whichever rank that is."""
    window = Window("cells", Domain("comm_d0", 0, (2, 5)), 64)
    signal = View(window.memory[0][:16].view(np.int32).reshape(4, 1), window)
    meetings = Meetings()
    for device in (2, 2, 5, 2):
        meetings.come(signal, device, "a sum", "p.py:1:1")
    meetings.come(window.view(1, signal), 5, "a sum", "p.py:1:1")
    with pytest.raises(Fatal, match=r"^rank 5 launches a barrier where rank 2 launches a sum \(p.py:1:1\): "):
        meetings.come(window.view(1, signal), 5, "a barrier", "p.py:2:1")


BRANCHES = """
import crossrank.program.language as pl
import crossrank.program.language.distributed as pld

Data, Cells = pld.DistributedTensor[[1, 8], pl.FP32], pld.DistributedTensor[[2, 1], pl.INT32]

@pl.program
class P:
    @pl.function(type=pl.FunctionType.Orchestration)
    def chip(self, data: pl.InOut[Data], cells: pl.InOut[Cells]):
        if pld.rank(pld.get_comm_ctx(data)) == 0:
            data = pld.tensor.broadcast(data, cells, root=0)
        else:
            data = pld.tensor.broadcast(data, cells, root=1)

    @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
    def host(self):
        data_buf = pld.alloc_window_buffer(32)
        cells_buf = pld.alloc_window_buffer(8)
        data = pld.window(data_buf, [1, 8], dtype=pl.FP32)
        cells = pld.window(cells_buf, [2, 1], dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            self.chip(data, cells, device=r)
"""


def test_a_branch_by_rank() -> None:
    """Both broadcasts have as many meetings, so that their signals alone would not tell."""
    compiled = compile(load_module(BRANCHES.encode(), "p.py", "a program").P, ranks=2)
    kernel = r"launches __builtin_broadcast__fp32 of \[1, 8\] FP32"
    what = rf"rank (1|0) {kernel}, root \1 where rank (1|0) {kernel}, root \2"
    with pytest.raises(Latched, match=rf"^p.py:1[24]:\d+: {what} \(p.py:1[24]:\d+\): .*\(code 5\)$"):
        compiled()
