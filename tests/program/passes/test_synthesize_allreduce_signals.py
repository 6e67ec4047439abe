"""Signals of allreduces that are given none: one for each buffer of data, as wide as any of them needs."""

from __future__ import annotations

from textwrap import indent

import pytest
from xdsl.dialects import arith

from crossrank.author import load_module
from crossrank.program.analysis.domains import constant
from crossrank.program.dialect.collectives import AllReduceOp
from crossrank.program.dialect.windows import AllocWindowOp, WindowOp, WorldSizeOp
from crossrank.program.program import Program
from crossrank.program.types import DistTensorType

from .texts import reasons, refused, run

PASS = "synthesize-allreduce-signals"
FILE = """\
import crossrank.program.language as pl
import crossrank.program.language.distributed as pld
@pl.program
class P:
    @pl.function(type=pl.FunctionType.Orchestration)
    def chip(self, data: pl.InOut[pld.DistributedTensor[[4, 64], pl.FP32]]):
        return data
    @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
    def host(self, n: pl.Scalar[pl.INDEX], m: pl.Scalar[pl.INDEX]):
        b = pld.alloc_window_buffer([4, 64], dtype=pl.FP32)
        c = pld.alloc_window_buffer([4, 64], dtype=pl.FP32)
        for r in pl.range(pld.world_size()):
            self.chip(pld.window(b, [4, 64], dtype=pl.FP32), device=r)
        for r in pl.range(2):
            self.chip(pld.window(c, [4, 64], dtype=pl.FP32), device=r)
        data = pld.window(b, [4, 64], dtype=pl.FP32)
        other = pld.window(c, [4, 64], dtype=pl.FP32)
{host}
"""
LINE = FILE[: FILE.index("{host}")].count("\n") + 1


def host(statements: str) -> Program:
    """A program whose host ends with these statements; ``data`` is on all devices, ``other`` on two."""
    found = load_module(FILE.format(host=indent(statements, " " * 8)).encode(), "p.py", "a program").P
    assert isinstance(found, Program)
    return found


def given(program: Program) -> list[tuple[str, object]]:
    """For each allreduce the buffer of its signal, and the extent of that beside the world's."""
    found: list[tuple[str, object]] = []
    for op in program.module.walk():
        if isinstance(op, AllReduceOp):
            assert op.signal is not None
            view, type = op.signal.owner, op.signal.type
            assert isinstance(view, WindowOp)
            assert isinstance(type, DistTensorType)
            buffer = view.buffer.owner
            assert isinstance(buffer, AllocWindowOp)
            assert isinstance(view.extents[0].owner, WorldSizeOp)
            assert (type.window, type.dtype.name) == (buffer.window, "s32")
            found.append((buffer.window, type.shape[1]))
    return found


@pytest.mark.parametrize(
    ("statements", "signals"),
    [
        ("data = pld.tensor.allreduce(data)", [("buf_0", 1)]),
        ("pld.tensor.allreduce(data)", [("buf_0", 1)]),
        ("return pld.tensor.allreduce(data, core_num=4)", [("buf_0", 4)]),
        (  # through views and results of one another, as wide as the widest
            "data = pld.tensor.allreduce(data, core_num=2)\n"
            "again = pld.window(b, [256], dtype=pl.FP32)\n"
            "again = pld.tensor.allreduce(again, core_num=7)\n"
            "data = pld.tensor.allreduce(data)",
            [("buf_0", 7)] * 3,
        ),
        ("pld.tensor.allreduce(data)\npld.tensor.allreduce(other, core_num=3)", [("buf_0", 1), ("buf_1", 3)]),
        (  # in a loop and in a branch
            "for i in pl.range(5):\n"
            "    data = pld.tensor.allreduce(data, core_num=i + 1)\n"
            "    if n > i:\n"
            "        data = pld.tensor.allreduce(data)",
            [("buf_0", 5)] * 2,
        ),
        ("if n < 9: pld.tensor.allreduce(data, core_num=n)", [("buf_0", 8)]),
        (  # that a run is given
            "for i in pl.range(m):\n    data = pld.tensor.allreduce(data, core_num=n)",
            [("buf_0", "?")],
        ),
    ],
)
def test_one_signal_for_each_buffer(statements: str, signals: list[tuple[str, object]]) -> None:
    subject = host(statements)
    results = run(subject, PASS)
    wanted = [(f"__allreduce_signal_{name}", columns) for name, columns in signals]
    assert given(subject) == wanted
    assert [r.rpartition(" ")[2] for r in reasons(results)] == sorted(name for name, _ in wanted)
    made = [op for op in subject.function("host").body.ops if isinstance(op, AllocWindowOp)]
    assert {op.window for op in made[: len(set(wanted))]} == {name for name, _ in wanted}  # before the author's
    run(subject, "derive-call-directions,materialize-comm-domain-scopes,lower-host-tensor-collectives")


def test_as_large_as_it_has_to_be() -> None:
    subject = host("data = pld.tensor.allreduce(data, core_num=6)")
    run(subject, PASS)
    buffer = next(op for op in subject.module.walk() if isinstance(op, AllocWindowOp) and "signal" in op.window)
    bytes_of = buffer.size.owner
    assert isinstance(bytes_of, arith.MuliOp)
    cells = bytes_of.lhs.owner
    assert isinstance(cells, arith.MuliOp)
    assert isinstance(cells.lhs.owner, WorldSizeOp)
    assert (constant(cells.rhs), constant(bytes_of.rhs)) == (6, 4)


def test_names_that_are_taken() -> None:
    subject = host(
        "__allreduce_signal_buf_0 = pld.alloc_window_buffer([4], dtype=pl.INT32)\npld.tensor.allreduce(data)"
    )
    run(subject, PASS)
    assert given(subject) == [("__allreduce_signal_buf_1", 1)]


def test_a_signal_that_is_given_stays() -> None:
    subject = host(
        "s = pld.alloc_window_buffer([4, 4], dtype=pl.INT32)\n"
        "pld.tensor.allreduce(data, pld.window(s, [pld.world_size(), 4], dtype=pl.INT32))"
    )
    assert not run(subject, PASS)[0].changed
    assert given(subject) == [("s", 4)]


def test_nobody_says_how_many_blocks() -> None:
    refused(
        host("for i in pl.range(m):\n    pld.tensor.allreduce(data, core_num=n + i)"),
        PASS,
        f"p.py:{LINE + 1}:13: pld.tensor.allreduce without a signal: nothing says before it runs how large core_num "
        "can be",
        "pass a signal with a column for each block: pld.window(buffer, [pld.world_size(), columns], dtype=pl.INT32)",
    )


def test_as_its_source() -> None:
    subject = host("data = pld.tensor.allreduce(data, core_num=2)\npld.tensor.allreduce(data)\nreturn data")
    run(subject, f"{PASS}{{as_source=true}}")
    assert given(subject) == [("__allreduce_signal_buf_0", 2), ("__allreduce_signal_buf_1", 1)]
    refused(
        host("for i in pl.range(2): pld.tensor.allreduce(data)"),
        f"{PASS}{{as_source=true}}",
        f"p.py:{LINE}:31: pld.tensor.allreduce without an explicit signal is not supported inside a for/while loop on "
        "the HOST rail: the synthesized signal binding cannot be allocated per dynamic iteration. Pass an explicit "
        "signal buffer — it is self-clearing and reusable across iterations — or hoist the call out of the loop.",
    )
    refused(
        host("self.chip(pld.tensor.allreduce(data), device=0)"),
        f"{PASS}{{as_source=true}}",
        f"p.py:{LINE}:19: pld.tensor.allreduce must be a direct assignment, expression statement, or return value "
        "before allreduce signal synthesis.",
    )
