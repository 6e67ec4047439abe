"""What collectives of the host become, on which devices, and what is refused."""

from __future__ import annotations

from textwrap import indent

import pytest
from xdsl.dialects import scf

from crossrank.author import load_module
from crossrank.errors import InputError
from crossrank.passes import parse_passes, run_passes
from crossrank.program import compile
from crossrank.program.dialect.calls import CallOp
from crossrank.program.dialect.collectives import BarrierOp
from crossrank.program.dialect.tensors import known, shaped
from crossrank.program.dialect.windows import LaunchWidthOp, WindowOp, WorldSizeOp
from crossrank.program.kinds import ArgDirection, Direction
from crossrank.program.program import Program
from crossrank.program.types import DistTensorType

from .texts import reasons, refused, run

PASS = "lower-host-tensor-collectives"
BEFORE = "derive-call-directions,materialize-comm-domain-scopes"
ALL = f"{BEFORE},{PASS}"
FILE = """\
import crossrank.program.language as pl
import crossrank.program.language.distributed as pld
NR = pl.dynamic("NR")
@pl.program
class P:
    @pl.function(type=pl.FunctionType.Orchestration)
    def chip(
        self,
        data: pl.InOut[pld.DistributedTensor[[4, 64], pl.{DTYPE}]],
        target: pl.InOut[pld.DistributedTensor[[4, 64], pl.{DTYPE}]],
        row: pl.InOut[pld.DistributedTensor[[1, 64], pl.{DTYPE}]],
        cube: pl.InOut[pld.DistributedTensor[[2, NR, 2], pl.{DTYPE}]],
        bell: pl.InOut[pld.DistributedTensor[[4], pl.INT32]],
        wide: pl.InOut[pld.DistributedTensor[[4, 3], pl.INT32]],
        rounds: pl.InOut[pld.DistributedTensor[[7, 4], pl.INT32]],
        sent: pl.InOut[pld.DistributedTensor[[4, 1], pl.INT32]],
        got: pl.InOut[pld.DistributedTensor[[4, 1], pl.INT32]],
    ):
        pass
    @pl.function(type=pl.FunctionType.Orchestration)
    def other(self, far: pl.InOut[pld.DistributedTensor[[4, 64], pl.{DTYPE}]]):
        pass
    @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
    def host(
        self, x: pl.Tensor[[4, 64], pl.{DTYPE}], n: pl.Scalar[pl.INDEX],
        loose: pl.InOut[pld.DistributedTensor[[4, 64], pl.{DTYPE}]],
    ):
        b0 = pld.alloc_window_buffer([4, 64], dtype=pl.{DTYPE})
        b1 = pld.alloc_window_buffer([4, 64], dtype=pl.{DTYPE})
        b2 = pld.alloc_window_buffer([1, 64], dtype=pl.{DTYPE})
        b3 = pld.alloc_window_buffer(n * 32)
        b4 = pld.alloc_window_buffer([9, 20], dtype=pl.INT32)
        b5 = pld.alloc_window_buffer([9, 9], dtype=pl.INT32)
        b6 = pld.alloc_window_buffer([7, 4], dtype=pl.INT32)
        b7 = pld.alloc_window_buffer([4], dtype=pl.INT32)
        b8 = pld.alloc_window_buffer([4], dtype=pl.INT32)
        b9 = pld.alloc_window_buffer([4, 64], dtype=pl.{DTYPE})
        far = pld.window(b9, [4, 64], dtype=pl.{DTYPE})
        data = pld.window(b0, [4, 64], dtype=pl.{DTYPE})
        target = pld.window(b1, [4, 64], dtype=pl.{DTYPE})
        row = pld.window(b2, [1, 64], dtype=pl.{DTYPE})
        cube = pld.window(b3, [2, n, 2], dtype=pl.{DTYPE})
        bell = pld.window(b4, [4], dtype=pl.INT32)
        wide = pld.window(b5, [4, 3], dtype=pl.INT32)
        rounds = pld.window(b6, [7, 4], dtype=pl.INT32)
        sent = pld.window(b7, [4, 1], dtype=pl.INT32)
        got = pld.window(b8, [4, 1], dtype=pl.INT32)
        for r in pl.range({N}):
            self.chip(data, target, row, cube, bell, wide, rounds, sent, got, device=r)
        self.other(far, device=7)
{host}
"""
WORLD, FOUR = "pld.world_size()", "4"
LINE = FILE[: FILE.index("{host}")].count("\n") + 1


def host(statements: str, devices: str = WORLD, dtype: str = "FP32") -> Program:
    """A program whose host ends with these statements; what they use are windows of ``range(devices)``."""
    text = FILE.format(N=devices, DTYPE=dtype, host=indent(statements, " " * 8))
    found = load_module(text.encode(), "p.py", "a program").P
    assert isinstance(found, Program)
    return found


def dispatches(program: Program) -> list[CallOp]:
    """The calls of the host, but for the author's."""
    walk = program.function("host").op.walk()
    return [op for op in walk if isinstance(op, CallOp) and op.function not in ("chip", "other")]


EACH = {
    "allreduce__sum__fp32": "pld.tensor.allreduce(data, bell)",
    "allreduce__prod__fp32": "pld.tensor.allreduce(cube, bell, op=pld.ReduceOp.Prod)",
    "allreduce_ring__min__fp32": 'pld.tensor.allreduce(data, rounds, op=pld.ReduceOp.Min, mode="ring")',
    "barrier__fp32": "pld.tensor.barrier(bell)",
    "broadcast__root3__fp32": "pld.tensor.broadcast(cube, wide, root=3)",
    "reduce_scatter__max__fp32": "pld.tensor.reduce_scatter(data, bell, op=pld.ReduceOp.Max)",
    "allgather__fp32": "pld.tensor.allgather(row, data, bell)",
    "all_to_all__fp32": "pld.tensor.all_to_all(data, target, bell)",
    "all_to_all_v__fp32": "pld.tensor.all_to_all_v(data, target, wide, sent, got, core_num=n)",
    "indexed_all_to_all_v__fp32": "pld.tensor.indexed_all_to_all_v(data, target, wide, sent, got, bell, core_num=3)",
}
INDEX = "bell = pld.window(b4, [4, 1], dtype=pl.INT32)\n"  # as many as the target has rows
IN, IO, S = ArgDirection.Input, ArgDirection.InOut, ArgDirection.Scalar
DIRECTIONS = {
    "allreduce": [IO, IO, S],
    "allreduce_ring": [IO, IO],
    "barrier": [IO],
    "broadcast": [IO, IO],
    "reduce_scatter": [IO, IO],
    "allgather": [IN, IO, IO],
    "all_to_all": [IN, IO, IO],
    "all_to_all_v": [IN, IO, IO, IN, IO, S],
    "indexed_all_to_all_v": [IN, IO, IO, IN, IO, IN, S],
}


@pytest.mark.parametrize("variant", EACH)
def test_each_becomes_a_dispatch_to_every_device(variant: str) -> None:
    subject = host(INDEX + EACH[variant])
    assert reasons(run(subject, ALL))[-1].endswith(f"in host: builtin.tensor.{variant} on every device")
    (call,) = dispatches(subject)
    assert call.function == f"builtin.tensor.{variant}"
    assert call.directions == DIRECTIONS[variant.partition("__")[0]]
    loop = call.parent_op()
    assert isinstance(loop, scf.ForOp)
    assert (known(loop.lb), isinstance(loop.ub.owner, WorldSizeOp), known(loop.step)) == (0, True, 1)
    assert call.device is loop.body.block.args[0]
    tensors = [a for a, d in zip(call.arguments, call.directions, strict=True) if d is not S]
    assert all(len(shaped(t).shape) == 2 for t in tensors)
    assert not run(subject, PASS)[0].changed


def test_a_dispatched_function_launches_one_kernel() -> None:
    subject = host(EACH["all_to_all_v__fp32"])
    run(subject, ALL)
    function = subject.function("builtin.tensor.all_to_all_v__fp32")
    names = ["input", "target", "signal", "send_counts", "recv_counts", "core_num"]
    assert [p.name for p in function.params] == names
    written = [p.name for p in function.params if p.direction is Direction.InOut]
    assert (written, function.is_chip) == (["target", "signal", "recv_counts"], True)
    width, call, end = function.body.ops
    assert isinstance(width, LaunchWidthOp)
    assert isinstance(call, CallOp)
    assert (width.core_num, width.signal) == (function.body.args[5], function.body.args[2])
    assert (call.function, call.core_num) == ("__builtin_all_to_all_v__fp32", width.result)
    assert (call.sync_start is not None, call.directions) == (True, [IN, IO, IO, IN, IO])
    assert list(call.arguments) == list(function.body.args[:5])
    assert list(end.operands) == [function.body.args[1]]


def test_one_function_for_all_of_a_variant_in_loops_and_branches_and_chains() -> None:
    body = """\
for i in pl.range(3):
    data = pld.tensor.allreduce(data, bell)
if n > 1:
    data = pld.tensor.allreduce(data, wide, core_num=2)
target = pld.tensor.all_to_all(pld.tensor.broadcast(data, bell, root=0), target, bell)
return pld.tensor.allreduce(target, bell)"""
    subject = host(body)
    run(subject, ALL)
    names = [f.name for f in subject.functions]
    sums = [c for c in dispatches(subject) if c.function == "builtin.tensor.allreduce__sum__fp32"]
    assert (len(sums), names.count("builtin.tensor.allreduce__sum__fp32"), len(set(names))) == (3, 1, len(names))
    assert names.count("__builtin_allreduce__sum__fp32") == 1
    run(subject, "materialize-dist-tensor-ctx,lower-composite-ops,insert-comm-fence")
    end = subject.function("host").body.last_op
    assert end is not None
    assert isinstance(type := end.operands[0].type, DistTensorType)
    assert type.window == "b1"


def test_some_devices_get_one_dispatch_each() -> None:
    subject = host("data = pld.tensor.allreduce(data, bell)\nself.other(far, device=7)", "3")
    assert reasons(run(subject, ALL))[-1] == (
        f"done: pld.tensor.allreduce (p.py:{LINE}:16): in host: builtin.tensor.allreduce__sum__fp32 on devices 0, 1, 2"
    )
    assert [c.device and known(c.device) for c in dispatches(subject)] == [0, 1, 2]


def test_one_that_comes_back_is_found() -> None:
    subject = host(EACH["barrier__fp32"])
    run(subject, ALL)
    signal = next(op for op in subject.module.walk() if isinstance(op, WindowOp) and op.result.name_hint == "bell")
    block = signal.parent_block()
    assert block is not None
    block.insert_op_after(BarrierOp(signal.result), signal)
    refused(
        subject,
        "derive-call-directions",
        "after pass derive-call-directions the program does not have HostCollectivesLowered: pld.tensor.barrier in "
        "function host",
    )


PLAIN = (
    "must be a window-bound DistributedTensor (a view of an alloc_window_buffer) when called from a HOST orchestrator; "
    "a plain Tensor or an unbound DistributedTensor parameter is only supported on the InCore composite path"
)
APART = (
    "must be different window allocations (two pld.window views over the same alloc_window_buffer are a cross-process "
    "data race under in-kernel TPUT/notify)"
)
REFUSED = [
    ("pld.tensor.all_to_all(x, data, bell)", WORLD, f"pld.tensor.all_to_all input {PLAIN}"),
    ("pld.tensor.allreduce(loose, bell)", WORLD, f"pld.tensor.allreduce src {PLAIN}"),
    (
        "pld.tensor.all_to_all_v(data, target, wide, pl.create_tensor([4, 1], dtype=pl.INT32), got)",
        WORLD,
        f"pld.tensor.all_to_all_v send_counts {PLAIN}",
    ),
    (
        "pld.tensor.allreduce(pld.window(b4, [4, 4], dtype=pl.INT32), bell)",
        WORLD,
        f"pld.tensor.allreduce src and signal {APART}",
    ),
    (
        "pld.tensor.all_to_all(data, pld.window(b0, [4, 64], dtype=pl.FP32), bell)",
        WORLD,
        f"pld.tensor.all_to_all input and target {APART}",
    ),
    (
        "pld.tensor.all_to_all_v(data, target, wide, sent, pld.window(b7, [4, 1], dtype=pl.INT32))",
        WORLD,
        f"pld.tensor.all_to_all_v send_counts and recv_counts {APART}",
    ),
    (
        "pld.tensor.allreduce(far, bell)",
        WORLD,
        "pld.tensor.allreduce window buffers must resolve to the same comm-domain scope",
    ),
    (
        "pld.tensor.broadcast(data, bell, root=3)",
        "3",
        "pld.tensor.broadcast root (3) must be a valid rank in [0, 3) for this explicit device subset",
    ),
    (
        "pld.tensor.allreduce(data, pld.window(b4, [3], dtype=pl.INT32))",
        FOUR,
        "pld.tensor.allreduce: collective signal shape[0] (3) must be at least the participating device count (4)",
    ),
    (
        "pld.tensor.allreduce(data, pld.window(b4, [4, 1, 1], dtype=pl.INT32))",
        WORLD,
        "pld.tensor.allreduce: collective signal must be rank-1 [world_size] or rank-2 [world_size, signal_stride]",
    ),
    (
        "pld.tensor.allreduce(data, bell, core_num=2)",
        WORLD,
        "pld.tensor.allreduce: rank-1 signal is valid only when one signal lane is required",
    ),
    (
        "pld.tensor.allreduce(data, wide, core_num=4)",
        WORLD,
        "pld.tensor.allreduce: collective rank-2 signal shape[1] (3) must be at least the required lane count (4)",
    ),
    (
        "pld.tensor.allreduce(data, wide, core_num=2**31)",
        WORLD,
        "core_num must be in [1, 2147483647], got 2147483648",
    ),
    (
        'pld.tensor.allreduce(data, rounds, mode="ring", core_num=2)',
        WORLD,
        'HOST pld.tensor.allreduce mode="ring" does not support core_num > 1, got core_num=2; use mode="mesh" for a '
        "multi-core AllReduce",
    ),
    (
        'pld.tensor.allreduce(data, bell, mode="ring")',
        WORLD,
        "pld.tensor.allreduce: ring allreduce signal must be rank-2 [2*(NR-1) + 1, NR], got rank 1",
    ),
    (
        'pld.tensor.allreduce(data, pld.window(b4, [4, 4], dtype=pl.INT32), mode="ring")',
        WORLD,
        "pld.tensor.allreduce: ring allreduce signal shape[0] (4) must be at least 2*(NR-1) + 1 = 7 for NR = 4",
    ),
    (
        'pld.tensor.allreduce(data, pld.window(b4, [8, 4], dtype=pl.INT32), mode="ring")',
        FOUR,
        "pld.tensor.allreduce: ring allreduce signal shape[0] (8) must equal 2*(NR-1) + 1 = 7 for NR = 4",
    ),
    (
        'pld.tensor.allreduce(data, pld.window(b4, [7, 5], dtype=pl.INT32), mode="ring")',
        FOUR,
        "pld.tensor.allreduce: ring allreduce signal shape[1] (5) must equal the participating device count (4)",
    ),
]


@pytest.mark.parametrize(("statement", "devices", "what"), REFUSED, ids=[r[2][:70] for r in REFUSED])
def test_what_cannot_be(statement: str, devices: str, what: str) -> None:
    subject = host(statement, devices)
    run(subject, BEFORE)
    with pytest.raises(InputError) as raised:
        run_passes(subject, parse_passes(PASS))
    assert raised.value.what == f"p.py:{LINE}:9: {what}"


def test_what_only_the_run_knows_is_left_to_it() -> None:
    few = "pld.tensor.all_to_all_v(data, target, wide, sent, got, core_num=9)"
    any_stride = "pld.tensor.allreduce(data, pld.window(b4, [n, n], dtype=pl.INT32), core_num=n)"
    run(host(f"{few}\n{any_stride}"), ALL)


def test_more_cores_than_a_device_has() -> None:
    subject = host("pld.tensor.allreduce(data, pld.window(b4, [4, 40], dtype=pl.INT32), core_num=40)")
    what = f"p.py:{LINE}:9: pld.tensor.allreduce core_num (40) exceeds the backend AIV core count (36)"
    with pytest.raises(InputError) as raised:
        compile(subject, "a5")
    assert raised.value.what == what
    refused(subject.clone(), f"{ALL}{{aiv_cores=36}}", what)
    run(subject, ALL)


RING = 'pld.tensor.allreduce(data, rounds, mode="ring"'
SOURCE = [
    ("pld.tensor.allreduce(data, bell)", "BF16",
     "builtin.tensor.allreduce currently supports only FP16 or FP32, got BF16"),
    ("pld.tensor.allgather(row, data, bell)", "FP16",
     "builtin.tensor.allgather currently supports only dtype=FP32; got FP16"),
    ("pld.tensor.all_to_all_v(data, target, pld.window(b5, [4, 1], dtype=pl.INT32), sent, got)", "FP16",
     "builtin.tensor.all_to_all_v currently supports only FP32 or INT8, got FP16"),
    ("pld.tensor.reduce_scatter(data, bell, op=pld.ReduceOp.Max)", "FP32",
     "builtin.tensor.reduce_scatter currently supports only (op=ReduceOp.Sum, dtype=FP32); got (op=ReduceOp.Max, "
     "dtype=FP32)"),
    (f"{RING})", "FP16",
     "builtin.tensor.allreduce_ring currently supports only (op=ReduceOp.Sum, dtype=FP32); got (op=ReduceOp.Sum, "
     "dtype=FP16)"),
    ("pld.tensor.allreduce(pld.window(b0, [3, 5], dtype=pl.FP32), rounds, mode=\"ring\")", "FP32",
     "pld.tensor.allreduce: ring allreduce requires the per-rank data size (product of src shape = 15) to be an exact "
     "multiple of the rank count (4); got a remainder of 3"),
    ("pld.tensor.allreduce(cube, rounds, mode=\"ring\")", "FP32",
     "pld.tensor.allreduce: ring allreduce requires a statically-known src shape (dynamic host-ring extents are not "
     "supported; the ring schedule partitions src into NR compile-time chunks)"),
    ("pld.tensor.barrier(wide)", "FP32",
     "builtin.tensor.barrier signal must be a rank-1 DistributedTensor, got rank 2"),
    ("pld.tensor.indexed_all_to_all_v(data, target, wide, sent, got, bell)", "FP32",
     "pld.tensor.indexed_all_to_all_v is lowered in CHIP orchestration only; HOST and InCore calls are unsupported"),
    ("pld.tensor.allgather(row, data, pld.window(b4, [4, n], dtype=pl.INT32))", "FP32",
     "pld.tensor.allgather: collective rank-2 signal shape[1] must be constant"),
    ("for i in pl.range(2): pld.tensor.all_to_all_v(data, target, wide, sent, got)", "FP32",
     "pld.tensor.all_to_all_v is not supported inside a for/while loop in a HOST orchestrator."),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "dtype", "what"), SOURCE, ids=[s[2][:70] for s in SOURCE])
def test_the_limits_of_the_source(statement: str, dtype: str, what: str) -> None:
    subject = host(statement, dtype=dtype)
    run(subject.clone(), ALL)
    run(subject, BEFORE)
    with pytest.raises(InputError) as raised:
        run_passes(subject, parse_passes(f"{PASS}{{as_source=true}}"))
    place, _, said = raised.value.what.partition(": ")
    assert (place.partition(":")[2].partition(":")[0], said) == (str(LINE), what)


def test_no_more_ranks_than_the_source_has() -> None:
    run(host("pld.tensor.barrier(pld.window(b4, [16], dtype=pl.INT32))", "16"), f"{ALL}{{as_source=true}}")
    for statement, what in (
        (
            "pld.tensor.barrier(pld.window(b4, [17], dtype=pl.INT32))",
            "builtin.tensor.barrier requires 16 or fewer participating devices, got 17",
        ),
        (
            'pld.tensor.allreduce(data, pld.window(b3, [33, 17], dtype=pl.INT32), mode="ring")',
            "pld.tensor.allreduce: ring allreduce requires 16 or fewer participating devices, got 17",
        ),
    ):
        run(host(statement, "17"), ALL)
        refused(host(statement, "17"), f"{ALL}{{as_source=true}}", f"p.py:{LINE}:9: {what}")
