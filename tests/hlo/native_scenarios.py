"""What test_native.py runs in child processes: modules that call the native handlers, on N devices of one process."""

# ruff: noqa: E402 - the number of devices is set before JAX is imported

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

RANKS = int(sys.argv[1])
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={RANKS}"

import jax
import jax._src.interpreters.mlir as jax_mlir
import ml_dtypes
import numpy as np
import pytest
from jax._src.lib import xla_client
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxlib import _hlo, _jax
from jaxlib.mlir import ir

from crossrank.collective import semantics
from crossrank.collective.dtypes import BF16, F32, S8, S32, U32, DType
from crossrank.collective.kinds import Kind, ReduceOp
from crossrank.collective.pairs import SourceTargetPairs
from crossrank.collective.semantics import Collective
from crossrank.hlo.execute.backends import KernelBackend
from crossrank.hlo.ffi.call import Call
from crossrank.hlo.ffi.native import SOURCES, From, Native, Part, Tensor
from crossrank.hlo.shape import Shape
from crossrank.kernels import Variant

native = Native.load()
devices = jax.devices()
world = [range(RANKS)]
rng = np.random.default_rng(RANKS)


def build(lines: str, extra: str = "") -> Any:
    add = "add {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b)\n}"
    text = f"HloModule m, replica_count={RANKS}\n{add}\n{extra}\nENTRY e {{\n k = u32[] replica-id()\n{lines}\n}}\n"
    computation = _hlo.XlaComputation(_hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto())
    options = xla_client.CompileOptions()
    options.num_replicas, options.num_partitions = RANKS, 1
    build_options = options.executable_build_options
    build_options.num_replicas, build_options.num_partitions = RANKS, 1
    build_options.use_spmd_partitioning = False
    build_options.device_assignment = xla_client.DeviceAssignment.create(np.arange(RANKS).reshape(RANKS, 1))
    with jax_mlir.make_ir_context():
        module = ir.Module.parse(_jax.mlir.xla_computation_to_mlir_module(computation))
        return devices[0].client.compile_and_load(module, xla_client.DeviceList(tuple(devices)), options)


def custom_call(
    id: int, operands: Sequence[tuple[str, str]], result: str, target: str = "collective", more: str = ""
) -> str:
    """The text of a call; operands: names and shapes, without the rank."""
    rank = [("k", "u32[]")] if target == "collective" else []
    names = ", ".join(name for name, _ in [*operands, *rank])
    shapes = ", ".join(shape for _, shape in [*operands, *rank])
    return (
        f'{result} custom-call({names}), custom_call_target="crossrank.{target}", '
        f"operand_layout_constraints={{{shapes}}}"
        f'{more}, api_version=API_VERSION_TYPED_FFI, backend_config="{{id = {id} : i64}}"'
    )


def shape(t: str, *dims: int) -> str:
    return f"{t}[{','.join(map(str, dims))}]" + (
        f"{{{','.join(map(str, reversed(range(len(dims)))))}}}" if dims else ""
    )


def give(rows: Sequence[np.ndarray]) -> Any:
    mesh = Mesh(np.array(devices), ("i",))
    shards = [jax.device_put(row[None], device) for row, device in zip(rows, devices, strict=True)]
    sharding = NamedSharding(mesh, PartitionSpec("i"))
    return jax.make_array_from_single_device_arrays((RANKS, *rows[0].shape), sharding, shards)


def start(executable: Any, *operands: Sequence[np.ndarray]) -> Any:
    return executable.execute_sharded([give(rows) for rows in operands]).disassemble_into_single_device_arrays()


def run(executable: Any, *operands: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
    """For each result the arrays of all ranks."""
    return [[np.asarray(a) for a in ranks] for ranks in start(executable, *operands)]


def refused(executable: Any, *operands: Sequence[np.ndarray]) -> str:
    """The error of a run that must fail on every rank that waits."""
    with pytest.raises(jax.errors.JaxRuntimeError) as error:
        run(executable, *operands)
    return str(error.value)


def same(got: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> None:
    for rank, (g, w) in enumerate(zip(got, wanted, strict=True)):
        assert g.size == w.size, (g.shape, w.shape)
        assert g.tobytes() == w.tobytes(), f"rank {rank}: {g.ravel()[:4]} instead of {w.ravel()[:4]}"


def rows(*dims: int, t: Any = np.float32) -> list[np.ndarray]:
    return [rng.standard_normal(dims).astype(t) for _ in range(RANKS)]


def reducer(op: ReduceOp, t: DType, count: int, n: int = 0) -> Part:
    pair = (Tensor(From.OPERAND, n, (1, count, 1), t), Tensor(From.RESULT, n, (1, count, 1), t))
    return Part(Variant(Kind.ALL_REDUCE, op, t), pair)


def served(
    collective: Collective,
    operands: Sequence[tuple[DType, Sequence[int]]],
    results: Sequence[tuple[DType, Sequence[int]]],
    label: str = "",
) -> int:
    """A collective that kernels serve: its id."""
    shapes = (tuple(Shape(t).with_dims(dims) for t, dims in given) for given in (operands, results))
    call = Call(label or str(collective.kind), RANKS, collective, *shapes)
    backend = KernelBackend(native)
    assert backend.serves(call)
    return backend.register(call)


def all_reduce_module(id: int, count: int) -> Any:
    s = shape("f32", 1, count)
    return build(f" p = {s} parameter(0)\n ROOT {custom_call(id, [('p', s)], f'r = {s}')}")


def independent_and_native_ones_mixed() -> None:
    """Ranks enter independent collectives in any order, ours and XLA's own, small ones and large ones."""
    for count in (64, 300_000 // RANKS):
        s = shape("f32", 1, count)
        lines = [f" p = {s} parameter(0)"]
        for c in range(40):
            lines += [f" c{c} = f32[] constant({c + 1})", f" b{c} = {s} broadcast(c{c}), dimensions={{}}"]
            lines += [f" m{c} = {s} multiply(p, b{c})"]
            if c % 2:
                lines.append(f" r{c} = {s} all-reduce(m{c}), replica_groups={{}}, to_apply=add")
            else:
                id = native.kernels(f"all-reduce %r{c}", RANKS, world, [reducer(ReduceOp.ADD, F32, count)])
                lines.append(" " + custom_call(id, [(f"m{c}", s)], f"r{c} = {s}"))
        shapes = ", ".join([s] * 40)
        lines.append(f" ROOT t = ({shapes}) tuple({', '.join(f'r{c}' for c in range(40))})")
        executable, p = build("\n".join(lines)), rows(count)
        for _ in range(4):
            for c, result in enumerate(run(executable, p)):
                same(result, semantics.all_reduce([a * np.float32(c + 1) for a in p], ReduceOp.ADD))


def a_loop_comes_back() -> None:
    s = shape("f32", 1, 500)
    t = f"(s32[], u32[], {s})"
    id = native.kernels("all-reduce %r", RANKS, world, [reducer(ReduceOp.MAXIMUM, F32, 500)])
    body = f"""body {{
 b = {t} parameter(0)
 i = s32[] get-tuple-element(b), index=0
 k = u32[] get-tuple-element(b), index=1
 x = {s} get-tuple-element(b), index=2
 one = s32[] constant(1)
 n = s32[] add(i, one)
 f = f32[] constant(-0.5)
 fs = {s} broadcast(f), dimensions={{}}
 y = {s} multiply(x, fs)
 {custom_call(id, [("y", s)], f"r = {s}")}
 z = {s} add(r, x)
 ROOT o = {t} tuple(n, k, z)
}}
cond {{
 b = {t} parameter(0)
 i = s32[] get-tuple-element(b), index=0
 n = s32[] constant(60)
 ROOT l = pred[] compare(i, n), direction=LT
}}"""
    executable = build(
        f" p = {s} parameter(0)\n z = s32[] constant(0)\n q = {t} tuple(z, k, p)\n"
        f" w = {t} while(q), condition=cond, body=body\n ROOT o = {s} get-tuple-element(w), index=2",
        body,
    )
    p = rows(500)
    wanted = [a[None] for a in p]
    for _ in range(60):
        top = semantics.all_reduce([a * np.float32(-0.5) for a in wanted], ReduceOp.MAXIMUM)
        wanted = [t + a for t, a in zip(top, wanted, strict=True)]
    for _ in range(3):
        same(run(executable, p)[0], wanted)


def eight_runs_in_flight() -> None:
    id = native.kernels("all-reduce %r", RANKS, world, [reducer(ReduceOp.ADD, F32, 4000)])
    executable = all_reduce_module(id, 4000)
    for _ in range(5):
        given = [rows(4000) for _ in range(8)]
        started = [start(executable, p) for p in given]
        for p, result in zip(given, started, strict=True):
            same([np.asarray(a) for a in result[0]], semantics.all_reduce(p, ReduceOp.ADD))
    times = native.times(id)
    assert times.calls == 40
    assert times.bytes == 40 * 2 * RANKS * 16000
    assert times.seconds > 0


def groups_of_all_kinds() -> None:
    """Uneven and unsorted groups, ranks in none, several operands of one meeting, gather and scatter dims."""
    groups = [[2, 0, 1], [7, 4]]
    s, b = shape("f32", 1, 33), shape("bf16", 1, 5000)
    id = native.kernels(
        "both", RANKS, groups, [reducer(ReduceOp.ADD, F32, 33), reducer(ReduceOp.MULTIPLY, BF16, 5000, 1)]
    )
    executable = build(
        f" p = {s} parameter(0)\n q = {b} parameter(1)\n {custom_call(id, [('p', s), ('q', b)], f't = ({s}, {b})')}\n"
        f" x = {s} get-tuple-element(t), index=0\n y = {b} get-tuple-element(t), index=1\n"
        f" ROOT o = ({s}, {b}) tuple(x, y)"
    )
    p, q = rows(33), rows(5000, t=ml_dtypes.bfloat16)
    wanted = [[np.zeros_like(a) for a in given] for given in (p, q)]
    for group in groups:
        for given, out, op in ((p, wanted[0], ReduceOp.ADD), (q, wanted[1], ReduceOp.MULTIPLY)):
            for rank, value in zip(group, semantics.all_reduce([given[r] for r in group], op), strict=True):
                out[rank] = value
    for _ in range(3):
        for got, w in zip(run(executable, p, q), wanted, strict=True):
            same(got, w)
    # [3, 8, 5] scattered and gathered along its second dim, among halves of the world.
    halves = ((0, 1, 2, 3), (4, 5, 6, 7))
    for kind, dims, out in ((Kind.REDUCE_SCATTER, (3, 8, 5), (3, 2, 5)), (Kind.ALL_GATHER, (3, 2, 5), (3, 8, 5))):
        collective = Collective(kind, halves, ReduceOp.MINIMUM if kind.reduces else None, 1)
        id = served(collective, [(S8, dims)], [(S8, out)])
        i, o = shape("s8", 1, *dims), shape("s8", 1, *out)
        executable = build(f" p = {i} parameter(0)\n ROOT {custom_call(id, [('p', i)], f'r = {o}')}")
        p = [rng.integers(-128, 128, dims).astype(np.int8) for _ in range(RANKS)]
        wanted = []
        for half in halves:
            mine = [p[r] for r in half]
            wanted += (
                semantics.reduce_scatter(mine, ReduceOp.MINIMUM, 1) if kind.reduces else semantics.all_gather(mine, 1)
            )
        same(run(executable, p)[0], wanted)


def data_is_moved() -> None:
    """All-to-alls of both forms, permutes and broadcasts: small and large, uneven groups, ranks in none."""
    fours = ((3, 0, 6, 1), (2, 7, 5, 4))
    for rows_, inner in ((2, 3), (64, 4000)):
        dims, s = (rows_, 4, inner), shape("f32", 1, rows_, 4, inner)
        p = rows(*dims)
        id = served(Collective(Kind.ALL_TO_ALL, fours, dim=1), [(F32, dims)], [(F32, dims)])
        wanted: list[Any] = [np.zeros(dims, np.float32)] * RANKS
        for group in fours:
            for rank, value in zip(group, semantics.all_to_all([p[r] for r in group], 1), strict=True):
                wanted[rank] = value
        same(run(build(f" p = {s} parameter(0)\n ROOT {custom_call(id, [('p', s)], f'r = {s}')}"), p)[0], wanted)

        given = [rows(*dims) for _ in range(4)]
        id = served(Collective(Kind.ALL_TO_ALL, fours), [(F32, dims)] * 4, [(F32, dims)] * 4)
        lines = "".join(f" p{n} = {s} parameter({n})\n" for n in range(4))
        names = [(f"p{n}", s) for n in range(4)]
        results = run(build(f"{lines} ROOT {custom_call(id, names, f'r = ({s}, {s}, {s}, {s})')}"), *given)
        for group in fours:
            exchanged = semantics.all_to_all_tuple([[g[r] for g in given] for r in group])
            for rank, values in zip(group, exchanged, strict=True):
                for result, value in zip(results, values, strict=True):
                    same([result[rank]], [value])

        pairs = ((0, 3), (3, 1), (1, 0), (6, 6), (2, 5))
        permute = Collective(Kind.COLLECTIVE_PERMUTE, SourceTargetPairs(pairs).components(), pairs=pairs)
        id = served(permute, [(F32, dims)], [(F32, dims)])
        executable = build(f" p = {s} parameter(0)\n ROOT {custom_call(id, [('p', s)], f'r = {s}')}")
        same(run(executable, p)[0], semantics.collective_permute(p, pairs))

        groups = ((5, 1, 2), (0, 7))
        id = served(Collective(Kind.COLLECTIVE_BROADCAST, groups), [(F32, dims)], [(F32, dims)])
        wanted = [np.zeros(dims, np.float32)] * RANKS
        for group in groups:
            for rank in group:
                wanted[rank] = p[group[0]]
        same(run(build(f" p = {s} parameter(0)\n ROOT {custom_call(id, [('p', s)], f'r = {s}')}"), p)[0], wanted)


def who_is_not_connected_does_not_wait() -> None:
    """In a permute a rank waits for those that pairs connect it with, and for nobody else."""
    pairs = ((0, 1), (2, 3), (3, 2))
    permute = Collective(Kind.COLLECTIVE_PERMUTE, SourceTargetPairs(pairs).components(), pairs=pairs)
    id = served(permute, [(F32, (5,))], [(F32, (5,))], "collective-permute %p")
    s = shape("f32", 1, 5)
    executable = build(f" p = {s} parameter(0)\n ROOT {custom_call(id, [('p', s)], f'r = {s}')}")
    native.set_limit(0.5)
    native.absent(3, id)
    error = refused(executable, rows(5))
    assert "collective-permute %p waited 0.5 s: rank 2 arrived, rank 3 did not" in error, error
    native.absent(None)
    native.set_limit(60)
    native.reset()


def rows_that_are_not_there_fail_the_run() -> None:
    table, data = shape("s32", 1, 2), shape("f32", 1, 6, 3)
    groups = tuple((r, r + 1) for r in range(0, RANKS, 2))
    lines = f" p = {data} parameter(0)\n o = {data} parameter(1)\n"
    lines += "".join(f" t{n} = {table} parameter({n + 2})\n" for n in range(4))
    names = [("p", data), ("o", data), *((f"t{n}", table) for n in range(4))]
    operands = [(F32, (6, 3)), (F32, (6, 3)), *[(S32, (2,))] * 4]
    label = "ragged-all-to-all %x (moe.py:7)"
    id = served(Collective(Kind.RAGGED_ALL_TO_ALL, groups), operands, [(F32, (6, 3))], label)
    executable = build(f"{lines} ROOT {custom_call(id, names, f'r = {data}')}")
    p, o = rows(6, 3), rows(6, 3)
    right = [[np.array(v, np.int32) for _ in range(RANKS)] for v in ([0, 2], [2, 2], [1, 4], [2, 2])]

    def wanted() -> list[np.ndarray]:
        members = [[p[r], o[r], *(t[r] for t in right)] for r in range(RANKS)]
        return [a for group in groups for a in semantics.ragged_all_to_all([members[r] for r in group])]

    same(run(executable, p, o, *right)[0], wanted())
    for which, rank, value, message in (
        (0, 3, 5, "rank 3 sends rows 5..7 of 6"),
        (0, 3, -(1 << 31), "rank 3 sends rows -2147483648..-2147483646 of 6"),
        (2, 5, 5, "rank 5 writes rows 5..7 of 6 on rank 4"),
        (3, 6, 9, "rank 6 sends 2 rows to rank 6, which expects 9"),
        (1, 2, 1 << 30, "rank 2 sends 1073741824 rows to rank 2, which expects 2"),
    ):
        tables = [[a.copy() for a in t] for t in right]
        tables[which][rank][0] = value
        error = refused(executable, p, o, *tables)
        assert f"{label}: {message}" in error, error
        assert native.failure() == f"{label}: {message}"
        native.reset()
    same(run(executable, p, o, *right)[0], wanted())


def in_place() -> None:
    for count in (1000, 400_000):
        s = shape("f32", 1, count)
        id = native.kernels("all-reduce %r", RANKS, world, [reducer(ReduceOp.ADD, F32, count)])
        alias = ", output_to_operand_aliasing={{}: (0, {})}"
        executable = build(
            f" p = {s} parameter(0)\n m = {s} negate(p)\n {custom_call(id, [('m', s)], f'r = {s}', more=alias)}\n"
            f" ROOT n = {s} negate(r)"
        )
        p = rows(count)
        for _ in range(3):
            same(run(executable, p)[0], [-a for a in semantics.all_reduce([-a for a in p], ReduceOp.ADD)])


def subnormals() -> None:
    """They are kept on every thread, whatever XLA sets on its own; or flushed on every thread, as XLA's own do."""
    for count in (64, 300_000):
        s = shape("f32", 1, count)
        id = native.kernels("all-reduce %r", RANKS, world, [reducer(ReduceOp.ADD, F32, count)])
        executable = all_reduce_module(id, count)
        of_xla = build(f" p = {s} parameter(0)\n ROOT r = {s} all-reduce(p), replica_groups={{}}, to_apply=add")
        p = [rng.integers(1, 1 << 25, count).astype(np.uint32).view(np.float32) for _ in range(RANKS)]
        same(run(executable, p)[0], semantics.all_reduce(p, ReduceOp.ADD))
        native.set_option("flush_subnormals", 1)
        same(run(executable, p)[0], run(of_xla, p)[0])
        native.set_option("flush_subnormals", 0)


def an_absent_rank_ends_the_run_in_time() -> None:
    s = shape("f32", 1, 100)
    late = native.kernels("all-reduce %ar.3 (train.py:12)", RANKS, world, [reducer(ReduceOp.ADD, F32, 100)])
    other = native.kernels("all-reduce %ar.4", RANKS, world, [reducer(ReduceOp.ADD, F32, 100)])
    executable = build(
        f" p = {s} parameter(0)\n {custom_call(late, [('p', s)], f'a = {s}')}\n"
        f" {custom_call(other, [('a', s)], f'b = {s}')}\n"
        f" {custom_call(other, [('p', s)], f'c = {s}')}\n ROOT t = ({s}, {s}) tuple(b, c)"
    )
    p = rows(100)
    native.set_limit(0.5)
    native.absent(3, late)
    begun = time.perf_counter()
    error = refused(executable, p)
    assert 0.4 < time.perf_counter() - begun < 5
    there = [r for r in range(RANKS) if r != 3]
    who = ",".join(map(str, there[:16])) + (f",… ({len(there)} in all)" if len(there) > 16 else "")
    message = f"all-reduce %ar.3 (train.py:12) waited 0.5 s: ranks {who} arrived, rank 3 did not"
    assert message in error, error
    assert native.failure() == message, native.failure()
    native.reset()
    assert native.failure() is None
    native.absent(None)
    native.set_limit(60)
    for _ in range(3):
        total = semantics.all_reduce(p, ReduceOp.ADD)
        first, second = run(executable, p)
        same(first, semantics.all_reduce(total, ReduceOp.ADD))
        same(second, total)
    native.set_limit(0.2)
    native.absent(1)
    assert "arrived, rank 1 did not" in refused(executable, p)
    native.absent(None)
    native.set_limit(60)
    native.reset()
    same(run(executable, p)[1], semantics.all_reduce(p, ReduceOp.ADD))


def oracles_are_called_once_all_have_come() -> None:
    groups = [list(range(0, RANKS, 2)), list(range(RANKS - 1, 0, -2))]
    seen: list[int] = []

    def rotate(group: int, inputs: list[list[np.ndarray]], outputs: list[list[np.ndarray]]) -> None:
        seen.append(group)
        for member, (out, empty) in enumerate(outputs):
            out[...] = inputs[member - 1][0]
            assert empty.size == 0

    ids = [native.oracle(f"permute {i}", RANKS, groups, rotate) for i in range(10)]
    s, z = shape("f32", 1, 50), shape("f32", 0, 3)
    lines = [f" p = {s} parameter(0)"]
    for c, id in enumerate(ids):
        lines.append(" " + custom_call(id, [("p", s)], f"t{c} = ({s}, {z})"))
        lines.append(f" r{c} = {s} get-tuple-element(t{c}), index=0")
    lines.append(f" ROOT t = ({', '.join([s] * 10)}) tuple({', '.join(f'r{c}' for c in range(10))})")
    executable, p = build("\n".join(lines)), rows(50)
    wanted: list[Any] = [None] * RANKS
    for group in groups:
        for member, rank in enumerate(group):
            wanted[rank] = p[group[member - 1]]
    for _ in range(5):
        for result in run(executable, p):
            same(result, wanted)
    assert sorted(seen) == [0] * 50 + [1] * 50

    def fails(group: int, inputs: Any, outputs: Any) -> None:
        raise ValueError(f"no such thing in group {group}")

    id = native.oracle("ragged-all-to-all %x", RANKS, world, fails)
    error = refused(all_reduce_module(id, 10), rows(10))
    assert "ragged-all-to-all %x: no such thing in group 0" in error, error
    assert native.failure() == "ragged-all-to-all %x: no such thing in group 0"
    native.reset()


def pins_copy_and_look_for_nan() -> None:
    s, c, u = shape("f32", 1, 5001), shape("c64", 1, 40), shape("u32", 1, 8)
    plain, watched = native.pin("pin"), native.pin("watch", [None, F32, None])
    complex_watched = native.pin("watch", [semantics.dtype_of(np.dtype(np.complex64))])
    executable = build(
        f" p = {s} parameter(0)\n q = {u} parameter(1)\n z = {c} parameter(2)\n"
        f" {custom_call(plain, [('p', s)], f'a = {s}', 'pin')}\n"
        f" {custom_call(complex_watched, [('z', c)], f'zz = {c}', 'pin')}\n"
        f" {custom_call(watched, [('q', u), ('p', s), ('a', s)], f't = ({u}, {s}, {s})', 'pin')}\n"
        f" x = {u} get-tuple-element(t), index=0\n y = {s} get-tuple-element(t), index=1\n"
        f" ROOT o = ({u}, {s}, {c}) tuple(x, y, zz)"
    )
    p, z = rows(5001), [a.astype(np.complex64) for a in rows(40)]
    q = [rng.integers(0, 1 << 32, 8, np.uint32) for _ in range(RANKS)]
    for got, wanted in zip(run(executable, p, q, z), (q, p, z), strict=True):
        same(got, wanted)
    assert not native.nan_seen(watched)
    p[RANKS - 1][5000] = np.nan
    p[0][0] = np.inf
    same(run(executable, p, q, z)[1], p)
    assert native.nan_seen(watched)
    assert not native.nan_seen(plain)
    assert not native.nan_seen(complex_watched)
    native.clear_nan()
    assert not native.nan_seen(watched)
    z[1][3] = complex(0, np.nan)
    run(executable, p, q, z)
    assert native.nan_seen(complex_watched)
    with pytest.raises(ValueError, match="not in u32"):
        native.pin("pin", [U32])


def misuse_is_an_error_not_a_crash() -> None:
    id = native.kernels("all-reduce %r", RANKS, world, [reducer(ReduceOp.ADD, F32, 100)])
    assert "the buffers are not those that were registered" in refused(all_reduce_module(id, 99), rows(99))
    assert "no collective is registered as 99999" in refused(all_reduce_module(99999, 4), rows(4))
    few = native.kernels("all-reduce %few", 2, [[0, 1]], [reducer(ReduceOp.ADD, F32, 4)])
    native.set_limit(1)
    assert "of 2" in refused(all_reduce_module(few, 4), rows(4))
    native.set_limit(60)
    native.reset()
    s = shape("f32", 1, 4)
    pin = build(f" p = {s} parameter(0)\n ROOT {custom_call(id, [('p', s)], f'r = {s}', 'pin')}")
    assert "no pin is registered" in refused(pin, rows(4))
    for groups in ([[0, 0]], [[0, RANKS]], [[0], []]):
        with pytest.raises(ValueError, match="at most once"):
            native.kernels("bad", RANKS, groups, [reducer(ReduceOp.ADD, F32, 4)])
    permute = Part(Variant(Kind.COLLECTIVE_PERMUTE), (*reducer(ReduceOp.ADD, F32, 4).tensors, SOURCES))
    for sources in (None, [[0]]):
        with pytest.raises(ValueError, match="needs a source"):
            native.kernels("bad", RANKS, world, [permute], sources)
    odd = Part(Variant(Kind.ALL_TO_ALL), reducer(ReduceOp.ADD, F32, 7).tensors)
    with pytest.raises(ValueError, match=f"do not fit a group of {RANKS}"):
        native.kernels("bad", RANKS, world, [odd])
    with pytest.raises(ValueError, match="at least one operand"):
        native.kernels("bad", RANKS, world, [])
    with pytest.raises(ValueError, match="no option is named speed"):
        native.set_option("speed", 11)


for name in sys.argv[2:]:
    scenario: Callable[[], None] = globals()[name]
    scenario()
    assert native.failure() is None, f"{name} left {native.failure()}"
    print("done", name, flush=True)
