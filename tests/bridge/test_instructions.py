"""Collectives as instructions: what each target becomes, and that every value stays, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from crossrank.bridge.instruction_backend import InstructionBackend
from crossrank.bridge.instructions import (
    BY_TARGET,
    core_kernel_of,
    extensions_of,
    has_instructions,
    kernel_of,
    kernels_of,
    target_of,
)
from crossrank.collective.dtypes import dtype
from crossrank.collective.kinds import Kind, ReduceOp
from crossrank.collective.pairs import SourceTargetPairs
from crossrank.collective.semantics import Collective
from crossrank.errors import InputError, RunError
from crossrank.hlo.execute.backends import meaning
from crossrank.hlo.execute.run import RunOptions, run_module
from crossrank.hlo.ffi.call import Call, roles
from crossrank.hlo.ffi.native import Native
from crossrank.hlo.shape import Shape
from crossrank.hlo.targets import CATALOGUE, NAMED_BY_THE_SOURCE, TARGETS
from crossrank.instr.builder import KernelBuilder
from crossrank.instr.fields import CollectiveFields
from crossrank.instr.instructions import InstCollectiveCompute, Instruction
from crossrank.instr.interpret import run_kernel
from crossrank.instr.program import Kernel, read_kernel
from crossrank.passes import parse_passes, pipeline, run_passes
from tests.support import CORPUS, corpus_file, hlo, needs_corpus, parse, reducer, run_values

BACKEND = "crossrank.bridge.instruction_backend:InstructionBackend"
NOWHERE = cast(Native, None)  # where nothing is registered
PAIRS = ((0, 1), (1, 2), (4, 5))  # two components, ranks that are no target, and one in no pair
TWO = ((0, 3), (2, 1))


def shape(element: str, *dims: int) -> Shape:
    return Shape(dtype(element)).with_dims(dims)


def call(kind: Kind, operands: Sequence[Shape], results: Sequence[Shape] | None = None, **fields: Any) -> Call:
    pairs = fields.get("pairs", ())
    groups = fields.pop("groups", SourceTargetPairs(pairs).components() if kind.has_pairs else TWO)
    world = fields.pop("world", 6 if kind.has_pairs else 4)
    collective = Collective(kind, groups, **fields)
    return Call("it", world, collective, tuple(operands), tuple(operands if results is None else results))


def resized(like: Shape, dim: int, by: float) -> Shape:
    return like.with_dims([int(n * by) if d == dim else n for d, n in enumerate(like.dims)])


def collectives_in(kernel: Kernel) -> list[InstCollectiveCompute]:
    return [i for p in kernel.programs for i in p.instructions() if isinstance(i, InstCollectiveCompute)]


def shapes_of(inst: Instruction) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    return [a.type.shape for a in inst.in_accesses], [a.type.shape for a in inst.out_accesses]


def test_every_target_has_instructions() -> None:
    assert BY_TARGET.keys() == TARGETS.keys()
    assert all(callable(getattr(KernelBuilder, m)) for i in BY_TARGET.values() for m in i.methods)


# kind → class, number, what a rank's [4, 6, 5] along dimension 1 becomes among two
NAMED = {
    Kind.ALL_REDUCE: ("AllReduceOp", 2, (4, 30), (4, 30)),
    Kind.REDUCE_SCATTER: ("ReduceScatterOp", 3, (6, 20), (3, 20)),
    Kind.ALL_GATHER: ("AllGatherOp", 4, (6, 20), (12, 20)),
}
ALU = {ReduceOp.ADD: 4, ReduceOp.MAXIMUM: 8, ReduceOp.MINIMUM: 9, None: None}


@pytest.mark.parametrize("name", sorted(n for n in CATALOGUE if TARGETS[n].kind in NAMED_BY_THE_SOURCE))
def test_legal_targets(name: str) -> None:
    target = TARGETS[name]
    assert target.dtype is not None
    operand = shape(target.dtype.name, 4, 6, 5)
    dim = None if target.kind is Kind.ALL_REDUCE else 1
    by = {Kind.ALL_GATHER: 2.0, Kind.REDUCE_SCATTER: 0.5}.get(target.kind, 1.0)
    kernel = kernel_of(call(target.kind, [operand], [resized(operand, 1, by)], dim=dim, reduce_op=target.reduce_op))
    op_class, kind, source, destination = NAMED[target.kind]
    (inst,) = collectives_in(kernel)
    fields: CollectiveFields = inst.fields
    assert kernel.name == name
    assert (fields.op_class, fields.kind, fields.op, fields.replica_groups) == (
        *(op_class, kind, ALU[target.reduce_op]),
        TWO,
    )
    assert shapes_of(inst) == ([source], [destination])
    assert {a.type.dtype for a in (*inst.in_accesses, *inst.out_accesses)} == {target.dtype}
    assert all(a.of.fields.input < 0 and not a.of.fields.outputs for a in (*inst.in_accesses, *inst.out_accesses))
    assert fields.cc_dim == (None if dim is None else 0)
    assert extensions_of(kernel) == (("elements of s64",) if target.dtype.name == "s64" else ())


def test_there_are_42_legal_names() -> None:
    assert sum(TARGETS[n].kind in NAMED_BY_THE_SOURCE for n in CATALOGUE) == 42


SQUARE, SCALAR, EMPTY = shape("f32", 4, 6), shape("bf16"), shape("f16", 0, 4)
TABLES = [shape("s64", 4)] * 4
OTHERS = {
    # what only an extension, or a name of ours, says → (class, kind, number of sources) of each collective
    "multiply": (call(Kind.ALL_REDUCE, [SQUARE], reduce_op=ReduceOp.MULTIPLY), [("AllReduceOp", 2, 1)]),
    "xor": (call(Kind.ALL_REDUCE, [shape("pred", 3)], reduce_op=ReduceOp.XOR), [("AllReduceOp", 2, 1)]),
    "f64": (call(Kind.ALL_GATHER, [shape("f64", 2)], [shape("f64", 4)], dim=0), [("AllGatherOp", 4, 1)]),
    "variadic": (
        call(Kind.ALL_REDUCE, [SQUARE, SCALAR, SQUARE, EMPTY], reduce_op=ReduceOp.ADD),
        [("AllReduceOp", 2, 2), ("AllReduceOp", 2, 1), ("AllReduceOp", 2, 1)],
    ),
    "all-to-all": (call(Kind.ALL_TO_ALL, [SQUARE, SQUARE], dim=1), [("AlltoAllOp", 5, 1)] * 2),
    "tuple": (call(Kind.ALL_TO_ALL, [SQUARE, SQUARE]), [("AlltoAllOp", 5, 1)]),
    "permute": (call(Kind.COLLECTIVE_PERMUTE, [SQUARE, SCALAR], pairs=PAIRS), [("TiledCollectivePermuteOp", 7, 1)] * 2),
    "no pairs": (call(Kind.COLLECTIVE_PERMUTE, [SQUARE], pairs=()), []),
    "broadcast": (call(Kind.COLLECTIVE_BROADCAST, [SQUARE, SCALAR]), [("BroadcastOp", 11, 1)] * 2),
    "ragged": (
        call(Kind.RAGGED_ALL_TO_ALL, [SQUARE, SQUARE, *TABLES], [SQUARE]),
        [("AlltoAllOp", 5, 1), ("AlltoAllVOp", 6, 2), ("AlltoAllVOp", 6, 2)],
    ),
    "send-recv": (call(Kind.SEND_RECV, [SQUARE, SCALAR], pairs=PAIRS), []),
}
MARKED = {
    "multiply": ("reduces with multiply",),
    "xor": ("reduces with xor",),
    "f64": ("elements of f64",),
    "broadcast": ("kind 11, Broadcast",),
    "ragged": ("kind 6, AllToAllV",),
}


@pytest.mark.parametrize("what", OTHERS)
def test_what_goes_beyond(what: str) -> None:
    it, expected = OTHERS[what]
    kernel = kernel_of(it)
    found = [(i.fields.op_class, i.fields.kind, len(i.ins)) for i in collectives_in(kernel)]
    assert found == expected
    assert kernel.name == target_of(it)
    assert extensions_of(kernel) == MARKED.get(what, ())
    text = str(kernel)
    again = read_kernel(text)
    assert (str(again), extensions_of(again)) == (text, extensions_of(kernel))


def test_send_recv_is_sends_and_recvs() -> None:
    kernel = kernel_of(OTHERS["send-recv"][0], where="pipe.py:7")
    found = [i for i in kernel.programs[0].instructions() if i.name in ("instr.send", "instr.recv")]
    peers = [(i.name.removeprefix("instr."), i.fields.peer_id) for i in found]
    assert peers == [("send", 1), ("send", 2), ("send", 5), ("recv", 0), ("recv", 1), ("recv", 4)]
    assert all((len(i.ins) + len(i.outs), i.where) == (2, "pipe.py:7") for i in found)


@pytest.mark.parametrize(
    "it",
    [
        call(Kind.RECV, [SQUARE], [SQUARE, SCALAR], pairs=PAIRS),  # half of one
        call(Kind.ALL_TO_ALL, [SQUARE, SCALAR]),
        call(Kind.RAGGED_ALL_TO_ALL, [SQUARE, SQUARE, *[shape("u32", 4)] * 4], [SQUARE]),
    ],
)
def test_what_has_no_instructions(it: Call) -> None:
    assert not has_instructions(it)
    with pytest.raises(InputError, match="it: no instructions say this"):
        kernel_of(it)


# -- values ------------------------------------------------------------------------------------------------------------
def draw(like: Shape, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Numbers of both signs, zeros of both signs, and a NaN where there is one."""
    kind = like.dtype
    values = rng.normal(size=like.dims) if kind.is_float else rng.integers(0, 4, like.dims)
    if kind.is_float and like.dims and like.count > 4:
        values.reshape(-1)[:3] = (0.0, -0.0, np.nan)
    return np.asarray(values).astype(kind.numpy)


def check_values(it: Call, members: Sequence[Sequence[np.ndarray[Any, Any]]] | None = None) -> None:
    """All groups by the kernels of instructions, as by the oracle."""
    rng = np.random.default_rng(0)
    backend = InstructionBackend(NOWHERE)
    assert backend.serves(it)
    for group, ranks in enumerate(it.collective.groups):
        given = members or [[draw(s, rng) for s in it.operands] for _ in ranks]
        for got, due in zip(backend.values(it, group, given), meaning(it, group, given), strict=True):
            assert [(a.dtype, a.shape, a.tobytes()) for a in got] == [(a.dtype, a.shape, a.tobytes()) for a in due]


@pytest.mark.parametrize("what", [w for w in OTHERS if w != "ragged"])
def test_values(what: str) -> None:
    check_values(OTHERS[what][0])


@pytest.mark.parametrize("op", ReduceOp)
@pytest.mark.parametrize("element", ["f32", "bf16", "f16", "s64", "s8", "u32", "pred", "c64", "f8e4m3fn"])
def test_values_of_reductions(op: ReduceOp, element: str) -> None:
    if op.valid_for(dtype(element)):
        operand = shape(element, 3, 4, 5)
        check_values(call(Kind.ALL_REDUCE, [operand], reduce_op=op))
        check_values(call(Kind.REDUCE_SCATTER, [operand], [resized(operand, 1, 0.5)], reduce_op=op, dim=1))


@pytest.mark.parametrize("element", ["f32", "bf16", "s64", "pred", "c128", "f8e8m0fnu"])
def test_values_of_movement(element: str) -> None:
    operand = shape(element, 4, 6, 2)
    for dim in range(3):
        check_values(call(Kind.ALL_GATHER, [operand], [resized(operand, dim, 2)], dim=dim))
        check_values(call(Kind.ALL_TO_ALL, [operand], dim=dim))
    for kind in (Kind.COLLECTIVE_PERMUTE, Kind.SEND_RECV, Kind.RECV):
        check_values(call(kind, [operand], pairs=PAIRS))


def test_values_of_groups_of_several_sizes() -> None:
    groups = ((5, 0), (1,), (2, 4, 3))
    check_values(call(Kind.ALL_REDUCE, [SQUARE], reduce_op=ReduceOp.ADD, groups=groups, world=6))


def test_values_of_a_send_and_a_recv_apart() -> None:
    check_values(roles(call(Kind.RECV, [SQUARE], pairs=((0, 0), (1, 2), (2, 1)), world=3)))


def exchange(members: int, entries: int, table: str = "s32") -> tuple[Call, list[list[np.ndarray[Any, Any]]]]:
    """A ragged exchange in which rows arrive one after the other."""
    rng = np.random.default_rng(members)
    sizes = rng.integers(0, 3, (members, members, entries))
    flat = sizes.reshape(members, -1)
    starts = np.cumsum(flat, axis=1) - flat
    arriving = sizes.transpose(1, 0, 2).reshape(members, -1)
    places = (np.cumsum(arriving, axis=1) - arriving).reshape(members, members, entries).transpose(1, 0, 2)
    rows = int(max(flat.sum(1).max(), arriving.sum(1).max()))
    operand, result = shape("bf16", rows, 3), shape("bf16", rows + 2, 3)
    tables = [t.reshape(members, -1).astype(dtype(table).numpy) for t in (starts, flat, places, arriving)]
    given = [[draw(operand, rng), draw(result, rng), *(t[n] for t in tables)] for n in range(members)]
    groups = (tuple(reversed(range(members))), tuple(range(members, 2 * members)))
    shapes = [operand, result, *[shape(table, members * entries)] * 4]
    return call(Kind.RAGGED_ALL_TO_ALL, shapes, [result], groups=groups, world=2 * members), given


@pytest.mark.parametrize(("members", "entries", "table"), [(1, 1, "s32"), (3, 1, "s64"), (4, 2, "s64"), (2, 3, "s32")])
def test_values_of_ragged_exchanges(members: int, entries: int, table: str) -> None:
    check_values(*exchange(members, entries, table))


@pytest.mark.parametrize(
    ("table", "entry", "value", "text"),
    [
        (3, 3, 9, "rank 0 sends 9 rows to rank 1, which expects 1"),
        (5, 0, 0, "rank 0 sends 1 rows to rank 0, which expects 0"),
        (2, 0, -1, "AllToAllV-0: rank 0 sends 2 elements from .* to rank 0"),
        (4, 0, 99, "rank 0 sends 2 elements .* which has room for"),
        (4, 1, 0, "rows that rank 0 receives overlap"),
    ],
)
def test_a_ragged_exchange_that_does_not_fit(table: int, entry: int, value: int, text: str) -> None:
    rows, each = shape("f32", 4, 2), shape("s32", 4)  # two entries a peer, of one row each
    it = call(Kind.RAGGED_ALL_TO_ALL, [rows, rows, *[each] * 4], [rows], groups=((0, 1),), world=2)
    data, ones, places = np.zeros(rows.dims, np.float32), np.ones(4, np.int32), np.array([0, 1, 0, 1], np.int32)
    given = [
        [data, data, np.arange(4, dtype=np.int32), ones.copy(), np.add(places, 2 * n, dtype=np.int32), ones.copy()]
        for n in range(2)
    ]
    check_values(it, given)
    given[0][table][entry] = value
    with pytest.raises((ValueError, RunError), match=text):
        InstructionBackend(NOWHERE).values(it, 0, given)


@pytest.mark.parametrize(("lnc", "order"), [(2, (0, 1)), (2, (1, 0)), (3, (2, 0, 1))])
@pytest.mark.parametrize(
    ("op", "element"), [("add", "f32"), ("add", "bf16"), ("maximum", "f32"), ("multiply", "c64"), ("xor", "u8")]
)
def test_an_all_reduce_of_cores_is_kind_1(lnc: int, order: tuple[int, ...], op: str, element: str) -> None:
    rng = np.random.default_rng(1)
    groups = tuple(tuple(lnc * rank + core for core in order) for rank in range(2))
    it = call(Kind.ALL_REDUCE, [shape(element, 3, 5)], reduce_op=ReduceOp(op), groups=groups, world=2 * lnc)
    kernel = core_kernel_of(it, lnc)
    found = collectives_in(kernel)
    assert {(i.fields.op_class, i.fields.kind, i.fields.is_local) for i in found} == {("SendRecvCCEOp", 1, True)}
    assert (len(found), kernel.world_size, kernel.lnc) == (lnc * (lnc - 1), 2, lnc)
    inputs = [np.stack([draw(it.operands[0], rng) for _ in range(lnc)]) for _ in range(2)]
    for group, (given, (result,)) in enumerate(zip(inputs, run_kernel(kernel, [[a] for a in inputs]), strict=True)):
        due = meaning(it, group, [[given[core]] for core in order])
        assert all(result[core].tobytes() == values[0].tobytes() for core, values in zip(order, due, strict=True))


def test_what_is_no_exchange_of_cores() -> None:
    sums = call(Kind.ALL_REDUCE, [SQUARE], reduce_op=ReduceOp.ADD, groups=((0, 1), (2, 3)))
    for it, lnc in (
        (replace(sums, collective=replace(sums.collective, groups=((0, 2), (1, 3)))), 2),
        (replace(sums, collective=replace(sums.collective, groups=((0, 1), (3, 2)))), 2),
        (sums, 1),
        (sums, 3),
        (call(Kind.ALL_GATHER, [SQUARE], [resized(SQUARE, 0, 2)], dim=0, groups=((0, 1), (2, 3))), 2),
    ):
        with pytest.raises(InputError):
            core_kernel_of(it, lnc)


# -- modules -----------------------------------------------------------------------------------------------------------
CONVERT = 'convert-collectives-to-custom-call{kinds="all"}'
MODULES = {
    "reductions": hlo(
        """
  x = f32[4,6] parameter(0)
  b = bf16[6] parameter(1)
  g = f32[4,24] all-gather(x), replica_groups={{0,2,1,3}}, dimensions={1}
  s = f32[4,12] reduce-scatter(g), replica_groups={{0,1},{3,2}}, dimensions={1}, to_apply=add_f32
  m = bf16[6] all-reduce(b), to_apply=maximum_bf16
  ROOT t = (f32[4,12], bf16[6]) tuple(s, m)""",
        reducer(),
        reducer("maximum", "bf16"),
        header="replica_count=4",
    ),
    "moves": hlo(
        """
  x = f32[4,6] parameter(0)
  a = f32[4,6] all-to-all(x), replica_groups={{0,1},{2,3}}, dimensions={0}
  p = f32[4,6] collective-permute(a), source_target_pairs={{0,1},{1,0},{3,2}}
  t = (f32[4,6], f32[4,6]) all-to-all(p, x), replica_groups={{3,0},{1,2}}
  u = f32[4,6] get-tuple-element(t), index=0
  v = f32[4,6] get-tuple-element(t), index=1
  ROOT w = f32[4,6] subtract(u, v)""",
        header="replica_count=4",
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_values_of_modules(name: str) -> None:
    report = run_values(MODULES[name], CONVERT, backend=BACKEND)
    assert report.result["exact"], report.result["first_difference"]
    assert (report.via, report.result["calls"], report.warnings) == ("instr", 3, [])


def test_subnormals_are_flushed_as_elsewhere(tmp_path: Any) -> None:
    tiny = np.float32(2e-39)
    path = tmp_path / "tiny.npz"
    np.savez(path, p0=np.array([[tiny, 1, -tiny, 0], [tiny, -1, 3 * tiny, 0]], np.float32))
    text = hlo(
        """
  x = f32[4] parameter(0)
  s = f32[4] all-reduce(x), to_apply=add_f32
  m = f32[4] all-reduce(x), to_apply=maximum_f32
  ROOT t = (f32[4], f32[4]) tuple(s, m)""",
        reducer(),
        reducer("maximum"),
        header="replica_count=2",
    )
    report = run_values(text, CONVERT, backend=BACKEND, inputs=str(path))
    assert report.result["exact"], report.result["first_difference"]


# the three smallest with collectives that run here, and one for each kind that these lack
CORPUS_RUNS = {
    "variadic_allreduce": 1,
    "collective_broadcast": 3,
    "cg_while": 4,
    "dtype_reductions": 18,
    "moe_ragged_alltoall": 1,
    "send_recv_pipeline": 1,
}


@needs_corpus
@pytest.mark.parametrize("name", CORPUS_RUNS)
def test_values_of_the_corpus(name: str) -> None:
    golden = CORPUS / f"{name}.npz"
    options = RunOptions(inputs=str(golden) if golden.exists() else None, iters=0, backend=BACKEND)
    report = run_module(corpus_file(f"{name}.hlo"), pipeline("default"), options)
    assert report.result["exact"], report.result["first_difference"]
    assert report.result["calls"] >= CORPUS_RUNS[name]
    assert not [w for w in report.warnings if "serves" in w]


def test_kernels_of_a_module() -> None:
    file = parse(
        """
  x = f32[4,6] parameter(0)
  t = token[] after-all()
  g = f32[4,12] all-gather(x), channel_id=1, replica_groups=[4,2]<=[8], dimensions={1}, use_global_device_ids=true,
    metadata={source_file="net.py" source_line=7}
  s = f32[4,12] all-reduce(g), channel_id=2, replica_groups=[2,4]<=[8], use_global_device_ids=true, to_apply=sub_f32
  o = (f32[4,12], u32[], token[]) send(g, t), channel_id=3,
    frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}
  d = token[] send-done(o), channel_id=3
  ROOT m = f32[4,12] all-reduce(g), channel_id=4, replica_groups={}, to_apply=maximum_f32""",
        reducer("subtract", name="sub_f32"),
        reducer("maximum"),
    )
    run_passes(file.module, parse_passes(CONVERT))
    found = kernels_of(file.module)
    assert [(name, k.name, k.world_size) for name, k in found] == [
        ("g", "AwsNeuronAllGather_f32", 8),
        ("m", "AwsNeuronAllReduceMax_f32", 8),
    ]
    (gather,), (reduce,) = (collectives_in(k) for _, k in found)
    assert gather.fields.replica_groups == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert gather.where.endswith("net.py:7")
    assert reduce.fields.replica_groups == (tuple(range(8)),)


def test_kernels_of_groups_that_cannot_be() -> None:
    entry = """
  x = f32[4] parameter(0)
  ROOT s = f32[4] all-reduce(x), channel_id=2, replica_groups={{0,9}}, to_apply=add_f32"""
    with pytest.raises(InputError, match="%s: "):
        kernels_of(parse(entry, reducer()).module)
