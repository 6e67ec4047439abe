"""What a program with a mistake gets, from its source to the run: the place, and what is wrong."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from textwrap import indent
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import crossrank.program.language as pl
import crossrank.program.language.distributed as pld
from crossrank.author import load_module
from crossrank.errors import InputError, RunError
from crossrank.program import CompiledProgram, compile
from crossrank.program.analysis.discipline import lapses
from crossrank.program.execute.failures import Latched
from crossrank.program.execute.options import RuntimeOptions

NR = pl.dynamic("NR")
PARAMS = (
    "x: pl.Tensor[[4, 8], pl.BF16], w: pl.InOut[pld.DistributedTensor[[4, 8], pl.BF16]], "
    "s: pl.InOut[pld.DistributedTensor[[NR, 1], pl.INT32]]"
)
SOURCE = f"""\
import crossrank.program.language as pl
import crossrank.program.language.distributed as pld
NR = pl.dynamic("NR")
@pl.program
class P:
    @pl.function(type=pl.FunctionType.InCore)
    def kernel(self, {{params}}):
{{kernel}}
{{more}}
    @pl.function(type=pl.FunctionType.Orchestration)
    def chip(self, {PARAMS}):
{{chip}}
    @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
    def host(self, x: pl.Tensor[[NR, 4, 8], pl.BF16]):
        data = pld.alloc_window_buffer([4, 8], dtype=pl.BF16)
        cells = pld.alloc_window_buffer(pld.world_size() * 4)
        for r in pl.range(pld.world_size()):
            w = pld.window(data, [4, 8], dtype=pl.BF16)
            s = pld.window(cells, [pld.world_size(), 1], dtype=pl.INT32)
{{host}}
"""
DISPATCH = "self.chip(x[r], w, s, device=r)"
BODIES = {"params": PARAMS, "kernel": "pass", "chip": "self.kernel(x, w, s)", "host": DISPATCH, "more": ""}


def a_function(kind: str, body: str) -> str:
    return f"    @pl.function({kind})\n    def other(self, {PARAMS}):\n        {body}"


ORCHESTRATION, HOST = "type=pl.FunctionType.Orchestration", "level=pl.Level.HOST, role=pl.Role.Orchestrator"
REDUCED = "w = pld.tensor.allreduce(w, s)"
TWICE = "s = pld.window(data, [pld.world_size(), 1], dtype=pl.INT32)\n"
SHARED = (
    "pld.tensor.allreduce src and signal must be different window allocations (two pld.window views over the same "
    "alloc_window_buffer are a cross-process data race under in-kernel TPUT/notify)"
)
ELSEWHERE = {
    "more": a_function(ORCHESTRATION, "pass").replace(PARAMS, PARAMS.partition(", s:")[0]),
    "host": "self.other(x[r], w, device=1)\nself.chip(x[r], w, s, device=0)",
}
APART = "pld.tensor.allreduce window buffers must resolve to the same comm-domain scope"
STATIC = {
    "a chip function calls a chip function": (
        {"more": a_function(ORCHESTRATION, "pass"), "chip": "self.other(x, w, s)"},
        "self.other(",
        "a CHIP orchestration cannot call other, which is of type Orchestration",
    ),
    "a wrapper calls itself": (
        {"more": a_function("type=pl.FunctionType.Group", "self.other(x, w, s)"), "chip": "self.other(x, w, s)"},
        "def other",
        "other calls itself",
    ),
    "two HOST orchestrators": (
        {"more": a_function(HOST, "pass")},
        "def host",
        "program P has two HOST orchestrators: other, host",
    ),
    "a tensor of the host where a window is wanted": (
        {"host": f"{DISPATCH}\npld.tensor.all_to_all(x[r], w, s)"},
        "pld.tensor.all_to_all",
        "pld.tensor.all_to_all input must be a window-bound DistributedTensor (a view of an alloc_window_buffer) when "
        "called from a HOST orchestrator; a plain Tensor or an unbound DistributedTensor parameter is only supported "
        "on the InCore composite path",
    ),
    "a collective of a chip on columns": (
        {"chip": "w = pld.tensor.allreduce(w[0:4, 0:4], s)"},
        "pld.tensor.allreduce",
        "operand target is not provably packed: a slice of dimension 1 of DistributedTensor[[4, 8], BF16]; only of the "
        "leading one it is packed (p.py:12:34)",
    ),
    "a word of kernels in a chip function": (
        {"chip": "pld.tensor.put(w, 0, x)"},
        "pld.tensor.put",
        "pld.tensor.put stands in a kernel, and this is a CHIP orchestration",
    ),
    "a view of another element type": (
        {"host": "w = pld.window(data, [4, 8], dtype=pl.FP16)\n" + DISPATCH},
        "self.chip(",
        "self.chip: w is DistributedTensor[[4, 8], BF16], and is given DistributedTensor[[4, 8], FP16]",
    ),
    "a tensor where a window is wanted": (
        {"chip": "self.kernel(x, x, s)"},
        "self.kernel(",
        "self.kernel: w is DistributedTensor[[4, 8], BF16], and is given Tensor[[4, 8], BF16]",
    ),
    "a device that is computed": (
        {"host": DISPATCH.replace("device=r", "device=r + 1")},
        "self.chip(",
        "dispatch of chip: device= expression must be ConstInt or the induction var of pl.range; got an unsupported "
        "expression",
    ),
    "a ring on the signal of a mesh": (
        {"kernel": 'w = pld.tensor.allreduce(w, s, mode="ring")'},
        "pld.tensor.allreduce",
        "pld.tensor.allreduce mode=ring signal shape[1] must be NR (one cell per rank), got 1 — a signal shaped for "
        'other collectives ([NR, 1]) cannot be shared with mode="ring"; give it its own [2*(NR-1), NR] signal window',
    ),
    "a mesh on the signal of a ring": (
        {"kernel": "s = pld.tensor.barrier(s)", "params": PARAMS.replace("[NR, 1]", "[6, 4]"), "chip": "pass"},
        "pld.tensor.barrier",
        'pld.tensor.barrier signal shape[1] must be 1 (one cell per rank), got 4 — a signal shaped for mode="ring" '
        "allreduce ([2*(NR-1), NR]) cannot be shared with this collective; give it its own [NR, 1] signal window",
    ),
    "an exchange with itself": (
        {
            "kernel": "w = pld.tensor.all_to_all_v(w, w, s, s, s)",
            "params": PARAMS.replace("[NR, 1]", "[4, 1]"),
            "chip": "pass",
        },
        "pld.tensor.all_to_all_v",
        "pld.tensor.all_to_all_v input and target must be two distinct buffers; in-place reuse races this rank's "
        "outgoing reads against incoming peer pushes",
    ),
    "one window twice, on the host": ({"host": f"{DISPATCH}\n{TWICE}{REDUCED}"}, "pld.tensor.allreduce", SHARED),
    "one window twice, on a chip": ({"chip": REDUCED, "host": TWICE + DISPATCH}, "pld.tensor.allreduce", SHARED),
    "one window twice, in a kernel": ({"kernel": REDUCED, "host": TWICE + DISPATCH}, "pld.tensor.allreduce", SHARED),
    "two domains, on the host": (
        {**ELSEWHERE, "host": f"{ELSEWHERE['host']}\n{REDUCED}"},
        "pld.tensor.allreduce",
        APART,
    ),
    "two domains, on a chip": ({**ELSEWHERE, "chip": REDUCED}, "pld.tensor.allreduce", APART),
    "two domains, in a kernel": ({**ELSEWHERE, "kernel": REDUCED}, "pld.tensor.allreduce", APART),
    "bf16 added where cores cannot": (
        {"kernel": "w = pld.tensor.put(w, 0, x, atomic=pld.AtomicType.Add)"},
        "pld.tensor.put",
        "atomic=AtomicType.Add of BF16: the cores of this platform do not add that as one step",
    ),
}


def source(bodies: dict[str, str]) -> str:
    texts = BODIES | bodies
    for name, depth in (("kernel", 8), ("chip", 8), ("host", 12)):
        texts[name] = indent(texts[name], " " * depth)
    return SOURCE.format(**texts)


@pytest.mark.parametrize("mistake", STATIC)
def test_before_it_runs(mistake: str) -> None:
    bodies, begins, said = STATIC[mistake]
    text = source(bodies)
    with pytest.raises(InputError) as raised:
        compile(load_module(text.encode(), "p.py", "a program").P, "a5", ranks=2)
    file, line, column, what = raised.value.what.split(":", 3)
    assert (file, what[1:]) == ("p.py", said)
    assert text.splitlines()[int(line) - 1][int(column) - 1 :].rpartition("= ")[2].startswith(begins)


AGAIN = "is read here, and was given to"
RETURNS = {"kernel": "return w, s"}


@pytest.mark.parametrize(
    ("bodies", "found"),
    [
        (
            {"chip": "self.kernel(x, w, s)\nself.kernel(x, w, s)"},
            [f"w {AGAIN} kernel as InOut", f"s {AGAIN} kernel as InOut"],
        ),
        ({"chip": "self.kernel(x, w, s)\nreturn w"}, [f"w {AGAIN} kernel as InOut"]),
        ({**RETURNS, "chip": "w, s = self.kernel(x, w, s)\nself.kernel(x, w, s)"}, []),
        ({**RETURNS, "chip": "for _ in pl.range(2):\n    w, s = self.kernel(x, w, s)"}, []),
        ({"host": f"if r == 0:\n    {DISPATCH}\nelse:\n    {DISPATCH}"}, []),
        (
            {"host": f"if r == 0:\n    {DISPATCH}\nelse:\n    {DISPATCH}\n{DISPATCH}"},
            [f"w {AGAIN} chip as InOut", f"s {AGAIN} chip as InOut"],
        ),
        ({"kernel": "pl.write(x, [0, 0], pl.read(w, [0, 0]))"}, ["kernel writes x, which it declares In"]),
        (
            {
                "more": a_function("type=pl.FunctionType.InCore", "x = pl.load(w, [0, 0], [4, 8])").replace(
                    "x: pl.Tensor[[4, 8], pl.BF16]", "x: pl.Out[pl.Tensor[[4, 8], pl.BF16]]"
                )
            },
            ["other declares x Out, and never writes it"],
        ),
        ({"kernel": "w = pl.store(pl.load(x, [0, 0], [4, 8]), [0, 0], w)"}, []),
    ],
)
def test_what_authors_should_keep_to(bodies: dict[str, str], found: list[str]) -> None:
    program = load_module(source(bodies).encode(), "p.py", "a program").P
    assert [lapse.what.partition(" in line")[0] for lapse in lapses(program)] == found


class Mistake:
    """What a run of `Mistakes` is told to make."""

    root, cells, rows, peer, offset, look, load, store, put, extents = range(10)
    branch, rounds, eq, set, nobody, count = range(10, 16)
    conditions, tasks, together, packed = range(16, 20)


@pl.program
class Mistakes:
    """Makes one of them; ``n`` is a number in it."""

    @pl.function(type=pl.FunctionType.InCore)
    def kernel(
        self,
        x: pl.Tensor[[2, 8], pl.FP32],
        y: pl.Out[pl.Tensor[[2, 8], pl.FP32]],
        w: pl.InOut[pld.DistributedTensor[[2, 8], pl.FP32]],
        s: pl.InOut[pld.DistributedTensor[[NR, 1], pl.INT32]],
        few: pl.InOut[pld.DistributedTensor[[2, 1], pl.INT32]],
        which: pl.Scalar[pl.INT32],
        n: pl.Scalar[pl.INT32],
    ):
        me = pld.rank(pld.get_comm_ctx(s))
        if which == Mistake.root:
            w = pld.tensor.broadcast(w, s, root=3)
        if which == Mistake.cells and me == 2:  # with the others, whose fault is first is theirs to race for
            few = pld.tensor.barrier(few)
        if which == Mistake.rows:
            w = pld.tensor.reduce_scatter(w, s)
        if which == Mistake.peer:
            pld.system.notify(s, peer=n, offsets=[0, 0], value=1, op=pld.NotifyOp.Set)
        if which == Mistake.offset:
            pld.system.notify(s, peer=0, offsets=[n, 0], value=1, op=pld.NotifyOp.AtomicAdd)
        if which == Mistake.look:
            pld.system.wait(s, [n, 0], 0, cmp=pld.WaitCmp.Ge)
        if which == Mistake.load:
            y = pl.store(pld.tile.remote_load(w, 0, [n, 0], [2, 8]), [0, 0], y)
        if which == Mistake.store:
            w = pld.tile.remote_store(pl.load(x, [0, 0], [2, 8]), w, 0, [0, n])
        if which == Mistake.put:
            w = pld.tensor.put(w, 0, x, [0, 0], [n, 0], [1, 8])
        if which == Mistake.extents:
            w = pld.tensor.put(w, 0, x, [0, 0], [0, 0], [n, 8], chunk_rows=1)
        if which == Mistake.branch and me != 0:
            w = pld.tensor.allreduce(w, s)
        if which == Mistake.rounds:
            for _ in pl.range(me + 1):
                s = pld.tensor.barrier(s)
        if which == Mistake.eq:
            if me == 1:
                for _ in pl.range(2):
                    pld.system.notify(s, peer=0, offsets=[1, 0], value=1, op=pld.NotifyOp.AtomicAdd)
            if me == 0:
                pld.system.wait(s, [1, 0], 2, cmp=pld.WaitCmp.Ge)
                pld.system.wait(s, [1, 0], 1, cmp=pld.WaitCmp.Eq)
        if which == Mistake.set:
            if me == 1:
                pld.system.notify(s, peer=0, offsets=[2, 0], value=1, op=pld.NotifyOp.AtomicAdd)
                pld.system.notify(s, peer=0, offsets=[2, 0], value=1, op=pld.NotifyOp.Set)
            if me == 0:
                pld.system.wait(s, offsets=[2, 0], expected=2, cmp=pld.WaitCmp.Ge)
        if which == Mistake.count:
            pld.system.notify(s, peer=me, offsets=[0, 0], value=n, op=pld.NotifyOp.AtomicAdd)
        if which == Mistake.nobody or which == Mistake.count or which == Mistake.together:
            pld.system.wait(s, offsets=[0, 0], expected=3, cmp=pld.WaitCmp.Ge)

    @pl.function(type=pl.FunctionType.InCore)
    def later(self, s: pld.DistributedTensor[[NR, 1], pl.INT32], n: pl.Scalar[pl.INT32]):
        for _ in pl.range(n):
            pld.system.defer_wait(s, [0, 0], 1)

    @pl.function(type=pl.FunctionType.InCore)
    def bell(self, s: pld.DistributedTensor[[NR, 1], pl.INT32], me: pl.Scalar[pl.INT32]):
        pld.system.notify(s, me, [0, 0], 1, op=pld.NotifyOp.Set)

    @pl.function(type=pl.FunctionType.Orchestration)
    def chip(
        self,
        x: pl.Tensor[[2, 8], pl.FP32],
        y: pl.Out[pl.Tensor[[2, 8], pl.FP32]],
        w: pl.InOut[pld.DistributedTensor[[2, 8], pl.FP32]],
        s: pl.InOut[pld.DistributedTensor[[NR, 1], pl.INT32]],
        few: pl.InOut[pld.DistributedTensor[[2, 1], pl.INT32]],
        which: pl.Scalar[pl.INT32],
        n: pl.Scalar[pl.INT32],
        rank: pl.Scalar[pl.INT32],
    ):
        if which == Mistake.conditions:
            self.later(s, n)
        elif which == Mistake.tasks:
            for _ in pl.range(n):
                self.later(s, 1)
        elif which == Mistake.together and rank == 1:
            pl.spmd_submit(self.later, s, 0, core_num=n, sync_start=True)
        else:
            self.kernel(x, y, w, s, few, which, n)
        if (which == Mistake.conditions or which == Mistake.tasks) and n <= 64:
            self.bell(s, rank)

    @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
    def host(
        self,
        x: pl.Tensor[[NR, NR, 2, 8], pl.FP32],
        y: pl.Out[pl.Tensor[[NR, 2, 8], pl.FP32]],
        which: pl.Scalar[pl.INT32],
        n: pl.Scalar[pl.INT32],
    ):
        data = pld.alloc_window_buffer(64)
        cells = pld.alloc_window_buffer(pld.world_size() * 4)
        two = pld.alloc_window_buffer(8)
        for r in pl.range(pld.world_size()):
            w = pld.window(data, [2, 8], dtype=pl.FP32)
            s = pld.window(cells, [pld.world_size(), 1], dtype=pl.INT32)
            few = pld.window(two, [2, 1], dtype=pl.INT32)
            if which == Mistake.packed:
                self.chip(x[0:2, r, 0], y[r], w, s, few, which, n, r, device=r)
            else:
                self.chip(x[r, 0], y[r], w, s, few, which, n, r, device=r)


RANKS = 3


@cache
def mistakes() -> CompiledProgram:
    return compile(Mistakes, ranks=RANKS, options=RuntimeOptions(limit_s=20))


def arguments() -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    return np.zeros((RANKS, RANKS, 2, 8), np.float32), np.zeros((RANKS, 2, 8), np.float32)


def said(error: BaseException) -> str:
    """What it says, of this file its name alone."""
    return str(error).replace(str(Path(__file__).parent) + "/", "")


HERE = Path(__file__).read_text().splitlines()


def line(text: str) -> int:
    """The line of `Mistakes` that has it."""
    begin = HERE.index("class Mistakes:")
    return next(n for n, content in enumerate(HERE[begin:], begin + 1) if text in content)


@pytest.mark.parametrize(
    ("which", "n", "text", "what"),
    [
        ("root", 0, "root=3", "pld.tensor.get reads rank 3 of w, which 3 ranks have"),
        ("cells", 0, "barrier(few)", "pld.system.notify changes rows 2..3 of few, which has 2"),
        ("rows", 0, "reduce_scatter(w", "pld.tile.remote_load reads rows 2..3 of w, which has 2"),
        ("peer", 3, "peer=n", "pld.system.notify changes rank 3 of s, which 3 ranks have"),
        ("peer", -1, "peer=n", "pld.system.notify changes rank -1 of s, which 3 ranks have"),
        ("offset", 3, "offsets=[n, 0]", "pld.system.notify changes rows 3..4 of s, which has 3"),
        ("look", 3, "wait(s, [n, 0]", "pld.system.wait looks at rows 3..4 of s, which has 3"),
        ("load", 1, "remote_load(w, 0, [n", "pld.tile.remote_load reads rows 1..3 of w, which has 2"),
        ("store", 4, "w, 0, [0, n]", "remote_store writes columns 4..12 of w, which has 8"),
        ("put", 2, "[n, 0], [1, 8]", "pld.tensor.put reads rows 2..3 of x, which has 2"),
        ("extents", 3, "[n, 8], chunk_rows", "pld.tensor.put reads rows 0..3 of x, which has 2"),
        ("extents", -2, "[n, 8], chunk_rows", "pld.tensor.put reads -2 rows of x"),
        ("conditions", 65, "defer_wait(s", "a task can have no more than 64 deferred conditions"),
        ("tasks", 65, "defer_wait(s", "more than 64 tasks of this rank wait for deferred conditions"),
    ],
)
def test_a_fault_has_its_line(which: str, n: int, text: str, what: str) -> None:
    with pytest.raises(RunError) as raised:
        mistakes()(*arguments(), getattr(Mistake, which), n)
    place, _, rest = said(raised.value).partition(": ")
    name, _, rest = rest.partition(" on rank ")
    place, _, column = place.rpartition(":")
    assert (place, name) == (f"test_mistakes.py:{line(text)}", "later" if "deferred" in what else "kernel")
    assert HERE[line(text) - 1][int(column) - 1 :].startswith("pld.")
    assert rest[1:] == f": {what}"


ENDED = "ranks 1-2 have ended (1 task each)"


@pytest.mark.parametrize(
    ("which", "text", "waits", "ended"),
    [
        ("branch", "allreduce(w, s)", ("ranks 1-2 wait", "s[0, 0] >= 1, which is 0"), "rank 0 has ended (1 task)"),
        ("rounds", "barrier(s)", ("ranks 1-2 wait", "s[0, 0] >= 1, which is 0"), "rank 0 has ended (1 task)"),
        ("eq", "WaitCmp.Eq)", ("rank 0 waits", "s[1, 0] == 1, which is 2"), ENDED),
        ("set", "offsets=[2, 0], expected", ("rank 0 waits", "s[2, 0] >= 2, which is 1"), ENDED),
        ("nobody", "expected=3", ("ranks 0-2 wait", "s[0, 0] >= 3, which is 0"), ""),
        ("count", "expected=3", ("ranks 0-2 wait", "s[0, 0] >= 3, which is 2"), ""),
    ],
)
def test_a_hang_says_who_waits_and_who_has_ended(which: str, text: str, waits: tuple[str, str], ended: str) -> None:
    with pytest.raises(Latched) as raised:
        mistakes()(*arguments(), getattr(Mistake, which), 2)
    place = f"kernel (test_mistakes.py:{line(text)})"
    who, what = waits
    lines = [f"nothing can go on: {who} in {place} for {what}", *([ended] if ended else [])]
    assert said(raised.value).splitlines() == lines
    assert (raised.value.code, raised.value.status) == (100, -100)


def test_the_first_failure_stays() -> None:
    """A launch that cannot be, on one rank, and the others wait for it without end."""
    with pytest.raises(Latched) as raised:
        mistakes()(*arguments(), Mistake.together, 49)
    assert said(raised.value).partition(": ")[2] == (
        "require_sync_start block_num=49 > limit=48 (deadlock guaranteed) (code 7)"
    )
    assert (raised.value.code, raised.value.status) == (7, -7)


def test_as_many_conditions_and_deferred_tasks_as_there_may_be() -> None:
    for which in ("conditions", "tasks"):
        mistakes()(*arguments(), getattr(Mistake, which), 64)
        assert mistakes().record.tasks == dict.fromkeys(range(RANKS), 2 if which == "conditions" else 65)  # type: ignore[union-attr]


def test_host_tensors_that_are_not_packed() -> None:
    with pytest.raises(InputError) as raised:
        mistakes()(*arguments(), Mistake.packed, 0)
    assert said(raised.value).splitlines() == [
        f"test_mistakes.py:{line('x[0:2, r, 0]')}:17: x of chip is a host tensor whose elements do not lie one behind "
        "the other, and such are not dispatched",
        "pass a tensor whose leading dimension alone is sliced, or a copy",
    ]


def test_credits_that_an_aborted_call_leaves() -> None:
    """They stay in windows that stay, unless these are zeroed."""
    for reset in (True, False):
        with mistakes().prepare(persistent=True, reset_persistent_windows=reset) as worker:
            with pytest.raises(RunError, match="which is 2"):
                worker(*arguments(), Mistake.count, 2)
            with pytest.raises(RunError, match="which is 0" if reset else "which is 2"):
                worker(*arguments(), Mistake.nobody, 0)
