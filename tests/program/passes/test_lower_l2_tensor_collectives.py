"""What collectives of chip functions become, in how many blocks they are launched, and what is refused."""

from __future__ import annotations

from functools import cache
from textwrap import indent
from typing import Any

import pytest
from xdsl.dialects.builtin import StringAttr

import crossrank.program.language as pl
import crossrank.program.language.distributed as pld
from crossrank.author import load_module
from crossrank.errors import InputError
from crossrank.passes import parse_passes, run_passes
from crossrank.program import CompiledProgram, compile
from crossrank.program.analysis.lineage import Lineage
from crossrank.program.builtins import blocks
from crossrank.program.dialect.calls import CallOp
from crossrank.program.dialect.collectives import CollectiveOp
from crossrank.program.dialect.tensors import known
from crossrank.program.execute.failures import Latched
from crossrank.program.kinds import Direction, FunctionType
from crossrank.program.program import Program
from crossrank.program.types import DistTensorType, TensorType
from tests.program.language.sources import parse
from tests.program.passes.texts import reasons, run

PASS = "lower-l2-tensor-collectives"
KERNEL = "__builtin_all_to_all_v__fp32"
FILE = """\
import crossrank.program.language as pl
import crossrank.program.language.distributed as pld
NR, D = pl.dynamic("NR"), pl.dynamic("D")
P, S, DTYPE = {P}, {S}, pl.{DTYPE}
@pl.program
class Exchange:
    @pl.function(type=pl.FunctionType.InCore)
    def stage_step(
        self,
        inp: pl.Tensor[[4 * P, 64], DTYPE],
        stage: pl.InOut[pld.DistributedTensor[[4 * P, 64], DTYPE]],
        counts: pl.InOut[pld.DistributedTensor[[P, 1], pl.INT32]],
    ):
        return stage, counts
    @pl.function(type=pl.FunctionType.InCore)
    def consume_step(
        self, data: pl.InOut[pld.DistributedTensor[[4 * P, 64], DTYPE]], out: pl.Out[pl.Tensor[[1], DTYPE]]
    ):
        return out
    @pl.function(type=pl.FunctionType.{TYPE})
    def chip_pipeline(
        self,
        inp: pl.Tensor[[4 * P, 64], DTYPE],
        out: pl.Out[pl.Tensor[[1], DTYPE]],
        stage: pl.InOut[pld.DistributedTensor[[4 * P, 64], DTYPE]],
        data: pl.InOut[pld.DistributedTensor[[4 * P, 64], DTYPE]],
        signal: pl.InOut[pld.DistributedTensor[[P, S], pl.INT32]],
        counts: pl.InOut[pld.DistributedTensor[[P, 1], pl.INT32]],
        recv: pl.InOut[pld.DistributedTensor[[P, 1], pl.INT32]],
        ring: pl.InOut[pld.DistributedTensor[[2 * P, P], pl.INT32]],
        row: pl.InOut[pld.DistributedTensor[[P], pl.INT32]],
        cube: pl.InOut[pld.DistributedTensor[[2, D, 2], DTYPE]],
        n: pl.Scalar[pl.INT32],
    ):
{chip}
"""
EXCHANGE = "data = pld.tensor.all_to_all_v(stage, data, signal, counts, recv, core_num=1)"
PIPELINE = f"stage, counts = self.stage_step(inp, stage, counts)\n{EXCHANGE}\nreturn self.consume_step(data, out)"


def exchange(
    chip: str = PIPELINE, ranks: int = 2, stride: int = 1, dtype: str = "FP32", kind: str = "Orchestration"
) -> Program:
    """A program whose chip function has these statements."""
    text = FILE.format(P=ranks, S=stride, DTYPE=dtype, TYPE=kind, chip=indent(chip, " " * 8))
    found = load_module(text.encode(), "p.py", "a program").Exchange
    assert isinstance(found, Program)
    return found


def wide(core_num: str) -> str:
    return EXCHANGE.replace("core_num=1", f"core_num={core_num}")


def calls(program: Program) -> list[CallOp]:
    return [op for op in program.function("chip_pipeline").op.walk() if isinstance(op, CallOp)]


def width(call: CallOp) -> int | None:
    """In how many blocks it is launched, where it says so."""
    return None if call.core_num is None else known(call.core_num)


def collectives(program: Program) -> list[str]:
    return [op.title for op in program.module.walk() if isinstance(op, CollectiveOp)]


@pytest.mark.parametrize("kind", ["Orchestration", "Graph"])
def test_it_becomes_a_task_among_the_others(kind: str) -> None:
    lowered = exchange(kind=kind)
    results = run(lowered, PASS)
    stage, call, consume = calls(lowered)
    assert [c.function for c in (stage, call, consume)] == ["stage_step", KERNEL, "consume_step"]
    assert collectives(lowered) == []
    chip = lowered.function("chip_pipeline")
    names = dict(zip([p.name for p in chip.params], chip.body.args, strict=True))
    given = [stage.results[0], names["data"], names["signal"], stage.results[1], names["recv"]]
    assert list(call.arguments) == given
    assert consume.arguments[0] is call.returned[0]
    assert (call.returned[0].name_hint, call.returned[0].type) == ("data", names["data"].type)
    assert (call.core_num, call.sync_start) == (None, None)
    line = FILE[: FILE.index("{chip}")].count("\n") + 2
    assert reasons(results) == [
        f"done: pld.tensor.all_to_all_v (p.py:{line}:16): in chip_pipeline: a task of {KERNEL}, 1 block"
    ]
    assert not run(lowered, PASS)[0].changed


@pytest.mark.parametrize(("dtype", "cpp"), [("FP32", "float"), ("INT8", "int8_t"), ("BF16", "bfloat16_t")])
def test_the_kernel_that_is_made(dtype: str, cpp: str) -> None:
    lowered = exchange(dtype=dtype)
    run(lowered, PASS)
    kernel = lowered.functions[-1]
    assert (kernel.name, kernel.type) == (f"__builtin_all_to_all_v__{dtype.lower()}", FunctionType.AIV)
    assert "program.level" not in kernel.op.attributes
    assert "program.role" not in kernel.op.attributes
    In, InOut = Direction.In, Direction.InOut
    assert [(p.name, type(p.type), p.direction) for p in kernel.params] == [
        ("input", TensorType, In),
        ("target", DistTensorType, InOut),
        ("signal", DistTensorType, InOut),
        ("send_counts", TensorType, In),
        ("recv_counts", DistTensorType, InOut),
    ]
    attributes = kernel.op.attributes
    assert str(attributes["builtin_template_dir"]) == '":pypto.runtime.builtins.collectives.all_to_all_v"'
    assert str(attributes["builtin_template_vars"]) == f'"dtype_cpp={cpp}"'
    assert "require_contiguous_operands" in attributes
    (end,) = kernel.body.ops
    assert end.operands[0] is kernel.body.args[1]
    assert Lineage(lowered).returned(kernel.name) == (1,)


def test_two_calls_share_a_kernel() -> None:
    again = "stage = pld.tensor.all_to_all_v(data, stage, signal, counts, recv)"
    lowered = exchange(f"{EXCHANGE}\n{again}\n{EXCHANGE.replace('stage, data', 'stage[0:4], data[0:4]')}")
    run(lowered, PASS)
    assert [c.function for c in calls(lowered)] == [KERNEL] * 3
    assert [f.name for f in lowered.functions] == ["stage_step", "consume_step", "chip_pipeline", KERNEL]


@pytest.mark.parametrize("where", ["return {}", "{}", "for i in pl.range(n):\n    data = {}", "if n > 0:\n    {}"])
def test_wherever_it_stands(where: str) -> None:
    lowered = exchange(where.format(EXCHANGE.removeprefix("data = ")))
    run(lowered, PASS)
    assert [c.function for c in calls(lowered)] == [KERNEL]


def test_what_stands_in_a_kernel_or_in_the_host_is_left_alone() -> None:
    host = (
        "b = pld.alloc_window_buffer(8)\ns = pld.window(b, [2, 1], dtype=pl.INT32)\npld.tensor.barrier(s)\n"
        "for r in pl.range(2):\n    self.chip(x[r], 1, s, y[r], device=r)"
    )
    kept = parse(kernel="pld.tensor.barrier(w)", host=host)
    assert not run(kept, PASS)[0].changed
    assert collectives(kept) == ["pld.tensor.barrier"] * 2
    assert "L2CollectivesLowered" in kept.properties


EACH = {
    "pld.tensor.barrier(row)": ("barrier__fp32", None),
    "pld.tensor.allreduce(data, signal, op=pld.ReduceOp.Max, core_num=2)": ("allreduce__max__fp32", 2),
    'pld.tensor.allreduce(data, ring[0:3], mode="ring")': ("allreduce_ring__sum__fp32", None),
    "pld.tensor.allreduce(cube, signal)": ("allreduce__sum__fp32", None),
    "pld.tensor.broadcast(data, row, root=1)": ("broadcast__fp32", None),
    "pld.tensor.allgather(stage[0:1], data[0:2], row)": ("allgather__fp32", None),
    "pld.tensor.reduce_scatter(data[0:2], signal, op=pld.ReduceOp.Min)": ("reduce_scatter__min__fp32", None),
    "pld.tensor.all_to_all(stage[0:2], data[0:2], row)": ("all_to_all__fp32", None),
    "pld.tensor.indexed_all_to_all_v(inp, data, signal, counts, recv, pl.create_tensor([8], pl.INT32), core_num=3)": (
        "indexed_all_to_all_v__fp32",
        3,
    ),
}


def test_every_collective_is_lowered() -> None:
    lowered = exchange("\n".join(EACH), stride=3)
    run(lowered, PASS)
    found = [(c.function.removeprefix("__builtin_"), width(c)) for c in calls(lowered)]
    assert found == list(EACH.values())
    assert collectives(lowered) == []


WIDTHS = {
    2: [1, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12, 14, 14, 16, 16, 18, 18, 20],
    4: [1, 2, 3, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12, 16, 16, 16, 16, 20],
    8: [1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 8, 8, 8, 8, 8, 16, 16, 16, 16, 16],
    16: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 16, 16, 16, 16],
}


@pytest.mark.parametrize("ranks", WIDTHS)
def test_the_width_of_a_launch(ranks: int) -> None:
    assert [blocks(ranks, limit) for limit in range(1, 21)] == WIDTHS[ranks]
    lowered = exchange("\n".join(wide(str(limit)) for limit in range(1, 21)), ranks, stride=20)
    run(lowered, PASS)
    widths = [width(call) for call in calls(lowered)]
    assert widths == [None, *WIDTHS[ranks][1:]]
    assert [c.sync_start is not None for c in calls(lowered)] == [w is not None for w in widths]


def test_a_width_that_is_computed_from_numbers_is_known() -> None:
    lowered = exchange(f"i = inp.shape[0] // 8 * n * 0 + 10\n{wide('i')}", ranks=8, stride=8)
    run(lowered, f"{PASS}{{as_source=true}}")
    (call,) = calls(lowered)
    assert width(call) == 8


def test_a_width_that_is_known_when_it_runs() -> None:
    lowered = exchange(wide("n"))
    results = run(lowered, f"{PASS},legalize-spmd-launches")
    (call,) = calls(lowered)
    assert call.core_num is not None
    assert call.core_num.owner.name == "program.launch_width"
    assert call.sync_start is not None
    assert not results[1].changed  # a launch that may have no block is refused when it runs
    assert reasons(results)[0].endswith(f"a task of {KERNEL}, as many blocks as it asks for when it runs")


OPERAND = "operand {} is not provably packed: {} (p.py:{}:{})"
LEFT = "write it in a HOST orchestrator, or in a kernel (an InCore function)"
LINE = FILE[: FILE.index("{chip}")].count("\n") + 1
REFUSED = [
    (
        "as_source",
        wide("n"),
        {},
        "CHIP pld.tensor.all_to_all_v needs a compile-time core_num; a runtime core_num is not supported on this rail "
        "yet",
    ),
    ("as_source", EXCHANGE, {"dtype": "BF16"}, "managed pld.tensor.all_to_all_v supports FP32 and INT8, got BF16"),
    ("as_source", EXCHANGE, {"ranks": 24}, "managed pld.tensor.all_to_all_v supports 16 or fewer ranks, got 24"),
    (
        "as_source",
        "pld.tensor.allreduce(data, signal)",
        {},
        "pld.tensor.allreduce in function 'chip_pipeline' was not lowered",
    ),
    ("", f"i = n * 0\n{wide('i')}", {}, "core_num must be in [1, 2147483647], got 0"),
    ("", wide("2**31"), {"stride": 2}, "core_num must be in [1, 2147483647], got 2147483648"),
    (
        "",
        wide("10"),
        {"ranks": 8, "stride": 7},
        "signal stride 7 is smaller than the folded block count 8 (requested core_num 10, NR 8)",
    ),
    (
        "",
        "pld.tensor.allreduce(data, row, core_num=2)",
        {},
        "signal stride 1 is smaller than the block count 2 (requested core_num 2, NR 2)",
    ),
    ("", "pld.tensor.broadcast(data, row, root=2)", {}, "pld.tensor.broadcast root (2) must be a valid rank in [0, 2)"),
    (
        "",
        'pld.tensor.allreduce(data, ring, mode="ring")',
        {},
        'CHIP pld.tensor.allreduce mode="ring" signal shape[0] (4) must equal 2*(NR-1) + 1 = 3 for NR = 2',
    ),
    (
        "",
        'pld.tensor.allreduce(data, row, mode="ring")',
        {},
        'CHIP pld.tensor.allreduce mode="ring" signal must be rank-2 [2*(NR-1) + 1, NR], got rank 1',
    ),
    (
        "",
        'pld.tensor.allreduce(data, ring[0:3], mode="ring", core_num=2)',
        {},
        'CHIP pld.tensor.allreduce mode="ring" does not support core_num > 1, got core_num=2; use mode="mesh" for a '
        "multi-core AllReduce",
    ),
    (
        "",
        "pld.tensor.barrier(pl.reshape(row, [1, P, 1]))",
        {},
        "CHIP pld.tensor.barrier signal must be rank-1 [NR] or rank-2 [NR, signal_stride], got rank 3",
    ),
    (
        "",
        "pld.tensor.all_to_all_v(pl.transpose(pl.reshape(stage, [64, 8]), 0, 1), data, signal, counts, recv)",
        {},
        OPERAND.format("input", "pl.transpose", LINE, 33),
    ),
]
ROLES = ["input", "target", "signal", "send_counts", "recv_counts"]


@pytest.mark.parametrize(("options", "chip", "shape", "what"), REFUSED)
def test_what_is_refused(options: str, chip: str, shape: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError) as raised:
        run_passes(exchange(chip, **shape), parse_passes(f"{PASS}{{as_source=true}}" if options else PASS))
    place, _, said = raised.value.what.partition(": ")
    assert (said, place.rpartition(":")[0]) == (what, f"p.py:{LINE + chip.count(chr(10))}")
    assert (raised.value.remedy == LEFT) is ("not lowered" in what)


@pytest.mark.parametrize("role", ROLES)
def test_each_operand_is_packed(role: str) -> None:
    names = ["stage", "data", "signal", "counts", "recv"]
    name = names[ROLES.index(role)]
    names[ROLES.index(role)] = f"pl.transpose(pl.transpose({name}, 0, 1), 0, 1)"
    turned = exchange(f"pld.tensor.all_to_all_v({', '.join(names)})")
    with pytest.raises(InputError, match=rf"operand {role} is not provably packed: pl.transpose \(p.py"):
        run_passes(turned, parse_passes(PASS))


def test_a_valid_part_is_refused_where_the_collective_stands() -> None:
    with pytest.raises(InputError) as raised:
        exchange("pld.tensor.all_to_all_v(pl.set_validshape(stage, 7, 64), data, signal, counts, recv)")
    assert raised.value.what == (
        f"p.py:{LINE}:9: pld.tensor.all_to_all_v input must be a full, packed view; dim 0 has valid_shape 7 < shape 8, "
        "so the payload is not contiguous"
    )
    with pytest.raises(
        InputError, match="operand target is not provably packed: dimension 0 has valid_shape 7 < shape"
    ):
        run_passes(exchange("pld.tensor.allreduce(pl.set_validshape(data, 7, 64), signal)"), parse_passes(PASS))


def test_a_function_of_the_author_has_the_name() -> None:
    subject = exchange()
    subject.function("consume_step").op.sym_name = StringAttr(KERNEL)
    with pytest.raises(InputError) as raised:
        run_passes(subject, parse_passes(PASS))
    assert raised.value.what.endswith(f"synthesized builtin kernel name '{KERNEL}' collides with an existing function")


@pl.program
class Widths:
    """One exchange of nothing, in as many blocks as it is told."""

    @pl.function(type=pl.FunctionType.Orchestration)
    def chip(
        self,
        data: pl.InOut[pld.DistributedTensor[[4, 8], pl.FP32]],
        signal: pl.InOut[pld.DistributedTensor[[2, 4], pl.INT32]],
        counts: pl.InOut[pld.DistributedTensor[[2, 1], pl.INT32]],
        recv: pl.InOut[pld.DistributedTensor[[2, 1], pl.INT32]],
        n: pl.Scalar[pl.INT32],
    ):
        stage = pl.create_tensor([4, 8], pl.FP32)
        data = pld.tensor.all_to_all_v(stage, data, signal, counts, recv, core_num=n)

    @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
    def host(self, n: pl.Scalar[pl.INT32]):
        data_buf = pld.alloc_window_buffer(128)
        cells = pld.alloc_window_buffer(32)
        count_buf = pld.alloc_window_buffer(8)
        recv_buf = pld.alloc_window_buffer(8)
        for r in pl.range(pld.world_size()):
            data = pld.window(data_buf, [4, 8], dtype=pl.FP32)
            signal = pld.window(cells, [2, 4], dtype=pl.INT32)
            counts = pld.window(count_buf, [2, 1], dtype=pl.INT32)
            recv = pld.window(recv_buf, [2, 1], dtype=pl.INT32)
            self.chip(data, signal, counts, recv, n, device=r)


@cache
def widths() -> CompiledProgram:
    return compile(Widths, ranks=2)


@pytest.mark.parametrize(("limit", "count"), [(1, 1), (3, 2), (5, 4)])
def test_a_width_that_runs(limit: int, count: int) -> None:
    widths()(limit)
    record = widths().record
    assert record is not None
    assert record.blocks == {KERNEL: [count]}


@pytest.mark.parametrize(
    ("limit", "what"),
    [
        (0, "core_num must be in [1, 2147483647], got 0"),
        (7, "signal stride 4 is smaller than the folded block count 6 (requested core_num 7, NR 2)"),
    ],
)
def test_a_width_that_cannot_run(limit: int, what: str) -> None:
    with pytest.raises(Latched) as raised:
        widths()(limit)
    assert raised.value.code == 5
    assert f": {what} (code 5)" in str(raised.value)
