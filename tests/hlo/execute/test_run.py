"""Modules and their rewrites, really run: values on every rank, against XLA and against the oracle."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from crossrank.collective.dtypes import dtype
from crossrank.collective.kinds import Kind, ReduceOp
from crossrank.collective.semantics import Collective, evaluate
from crossrank.errors import InputError, RunError
from crossrank.hlo.execute.run import RunOptions, RunReport, run_module
from crossrank.hlo.io import parse_module
from crossrank.hlo.module import Module
from crossrank.passes import Pass, parse_passes, pipeline
from crossrank.remarks import Remarks
from tests.support import hlo, reducer

DEFAULT = "inline-calls,convert-collectives-to-custom-call{all_computations=true}"
REAL_TYPES = ("s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64", "c64", "c128", "pred")


def run(text: str, passes: str | None = DEFAULT, **options: object) -> RunReport:
    chosen = pipeline("default") if passes is None else parse_passes(passes)
    return run_module(
        parse_module(text.encode(), "test.hlo"),
        chosen,
        RunOptions(**{"iters": 0, "limit_s": 30.0, **options}),  # type: ignore[arg-type]
    )


def outputs_of(text: str, tmp_path: object, **options: object) -> tuple[RunReport, list[np.ndarray]]:
    """The report, and what the rewritten module gave, ``[ranks, …]`` each."""
    path = f"{tmp_path}/outputs.npz"
    report = run(text, outputs=path, **options)
    with np.load(path) as data:
        return report, [data[f"o{n}"] for n in range(len(data.files))]


def tuple_root(named: dict[str, str]) -> str:
    return f"  ROOT out = ({', '.join(named.values())}) tuple({', '.join(named)})"


def every_reduction(groups: str, types: tuple[str, ...]) -> str:
    lines, out, bodies = [], {}, []
    for n, t in enumerate(types):
        lines.append(f"  p{n} = {t}[8,3] parameter({n})")
        for op in (op for op in ReduceOp if op.valid_for(dtype(t))):
            bodies.append(reducer(op, t))
            lines.append(
                f"  ar_{op}_{t} = {t}[8,3] all-reduce(p{n}), replica_groups={groups}, to_apply={op}_{t}\n"
                f"  rs_{op}_{t} = {t}[2,3] reduce-scatter(p{n}), dimensions={{0}}, replica_groups={groups}, "
                f"to_apply={op}_{t}"
            )
            out |= {f"ar_{op}_{t}": f"{t}[8,3]", f"rs_{op}_{t}": f"{t}[2,3]"}
        lines.append(f"  ag_{t} = {t}[8,12] all-gather(p{n}), dimensions={{1}}, replica_groups={groups}")
        out[f"ag_{t}"] = f"{t}[8,12]"
    return hlo("\n".join([*lines, tuple_root(out)]), *bodies, header="replica_count=8")


def test_every_type_and_reduction_is_exact() -> None:
    report = run(every_reduction("{{0,2,4,6},{5,3,7,1}}", REAL_TYPES))
    assert report.result["exact"], report.result["first_difference"]
    assert report.after == {}
    assert not report.result["raised"]
    assert sum(report.custom_calls.values()) == report.result["calls"] == len(report.result["outputs"])


def test_the_oracle_backend_gives_the_same() -> None:
    report = run(every_reduction("{{0,1,2,3},{4,5,6,7}}", ("f32", "bf16", "s32", "c64")), backend="oracle")
    assert report.result["exact"]


def test_types_without_a_kernel_run_natively_with_a_warning() -> None:
    entry = """
  x = f8e5m2[8] parameter(0)
  r = f8e5m2[8] all-reduce(x), replica_groups={}, to_apply=maximum_f8e5m2
  g = f8e5m2[64] all-gather(x), dimensions={0}, replica_groups={}
  ROOT out = (f8e5m2[8], f8e5m2[64]) tuple(r, g)"""
    report = run(hlo(entry, reducer("maximum", "f8e5m2"), header="replica_count=8"))
    assert report.result["exact"]
    assert [name for name, _ in report.result["raised"]] == ["%r"]
    assert any("%r" in w for w in report.warnings)


def test_nan_in_a_maximum_survives(tmp_path: object) -> None:
    """XLA's own max drops NaN: the reference is then the pinned original with these collectives on the oracle.

    What it dropped must reach the next one.
    """
    entry = """
  x = f32[4] parameter(0)
  m = f32[4] all-reduce(x), replica_groups={}, to_apply=maximum_f32
  n = f32[4] all-reduce(m), replica_groups={}, to_apply=minimum_f32
  ROOT out = (f32[4], f32[4]) tuple(m, n)"""
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    x[3, 1] = np.nan
    np.savez(f"{tmp_path}/in.npz", p0=x)
    text = hlo(entry, reducer("maximum"), reducer("minimum"), header="replica_count=8")
    report, (largest, smallest) = outputs_of(text, tmp_path, inputs=f"{tmp_path}/in.npz")
    assert report.result["exact"]
    assert report.result["reference"] == "pinned original"
    assert np.isnan(largest[:, 1]).all()
    assert np.isnan(smallest[:, 1]).all()
    assert np.isfinite(largest[:, [0, 2, 3]]).all()


@pytest.mark.parametrize(
    ("header", "attributes", "groups"),
    [
        ("replica_count=2, num_partitions=4", "replica_groups={}", [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("replica_count=2, num_partitions=4", "replica_groups={{1,0}}", [[4, 0], [5, 1], [6, 2], [7, 3]]),
        (
            "replica_count=2, num_partitions=4",
            "replica_groups={{0,1}}, channel_id=1",
            [[0, 1, 2, 3, 4, 5, 6, 7]],
        ),
        (
            "replica_count=2, num_partitions=4",
            "replica_groups={{0},{1}}, channel_id=1",
            [[0, 1, 2, 3], [4, 5, 6, 7]],
        ),
        (
            "replica_count=2, num_partitions=4",
            "replica_groups=[4,2]<=[2,4]T(1,0), channel_id=1, use_global_device_ids=true",
            [[0, 4], [1, 5], [2, 6], [3, 7]],
        ),
        (
            "num_partitions=8",
            "replica_groups=mesh['a'=2,'b'=4] {'b':(2)2}, channel_id=1, use_global_device_ids=true",
            [[0, 1], [2, 3], [4, 5], [6, 7]],
        ),
        (
            "num_partitions=8",
            "replica_groups={{0},{3,1,2},{7,4,5,6}}, channel_id=1, use_global_device_ids=true",
            [[0], [3, 1, 2], [7, 4, 5, 6]],
        ),
    ],
)
def test_groups_of_every_form_and_mode(header: str, attributes: str, groups: list[list[int]], tmp_path: object) -> None:
    """The values are those of the oracle over the ranks that the ids mean, and ids come from the rank."""
    entry = f"""
  x = f32[5] parameter(0)
  r = f32[5] all-reduce(x), {attributes}, to_apply=add_f32
  i = u32[] partition-id()
  j = u32[] replica-id()
  ROOT out = (f32[5], u32[], u32[]) tuple(r, i, j)"""
    x = np.random.default_rng(1).normal(size=(8, 5)).astype(np.float32)
    np.savez(f"{tmp_path}/in.npz", p0=x)
    text = hlo(entry, reducer(), header=header)
    report, (total, partition, replica) = outputs_of(text, tmp_path, inputs=f"{tmp_path}/in.npz")
    collective = Collective(
        kind=Kind.ALL_REDUCE,
        groups=tuple(map(tuple, groups)),
        reduce_op=ReduceOp.ADD,
    )
    expected = evaluate(collective, [[row] for row in x])
    assert report.result["exact"]
    assert np.array_equal(total, np.stack([row for [row] in expected]))
    partitions = 4 if "num_partitions=4" in header else 8
    assert partition.tolist() == [r % partitions for r in range(8)]
    assert replica.tolist() == [r // partitions for r in range(8)]


def test_variadic_mixed_scattered_laid_out_and_empty() -> None:
    """What StableHLO lacks is split; layouts are made row-major; a zero-sized array is an array."""
    entry = """
  x = f32[8,6]{0,1} parameter(0)
  h = bf16[8,6] parameter(1)
  e = f32[0,3] parameter(2)
  n = s32[8] parameter(3)
  ar = (f32[8,6], bf16[8,6], s32[8]) all-reduce(x, h, n), replica_groups={}, to_apply=add_f32
  rs = (f32[1,6]{0,1}, f32[1,6]) reduce-scatter(x, x), dimensions={0}, replica_groups={}, to_apply=add_f32
  ag = (f32[8,48]{0,1}, bf16[8,48]) all-gather(x, h), dimensions={1}, replica_groups={}
  z = f32[0,3] all-reduce(e), replica_groups={}, to_apply=add_f32
  y = f32[0,24] all-gather(e), dimensions={1}, replica_groups={}
  ROOT out = ((f32[8,6], bf16[8,6], s32[8]), (f32[1,6]{0,1}, f32[1,6]),
    (f32[8,48]{0,1}, bf16[8,48]), f32[0,3], f32[0,24]) tuple(ar, rs, ag, z, y)"""
    report = run(hlo(entry, reducer(), header="replica_count=8"))
    assert report.result["exact"]
    assert report.result["calls"] == 5
    # left native, the same module runs too
    assert run(hlo(entry, reducer(), header="replica_count=8"), passes="").result["exact"]


BODIES = """
body {
  s = (s32[], f32[6]) parameter(0)
  k = s32[] get-tuple-element(s), index=0
  v = f32[6] get-tuple-element(s), index=1
  r = f32[6] all-reduce(v), replica_groups={{0,1,2,3},{7,6,5,4}}, to_apply=add_f32
  q = f32[] constant(0.25)
  qs = f32[6] broadcast(q), dimensions={}
  w = f32[6] multiply(r, qs)
  one = s32[] constant(1)
  k1 = s32[] add(k, one)
  ROOT t = (s32[], f32[6]) tuple(k1, w)
}
cond {
  s = (s32[], f32[6]) parameter(0)
  k = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(k, n), direction=LT
}
inner {
  v = f32[6] parameter(0)
  ROOT r = f32[6] all-reduce(v), replica_groups={}, to_apply=add_f32
}
outer {
  v = f32[6] parameter(0)
  a = f32[6] call(v), to_apply=inner
  ROOT b = f32[6] call(a), to_apply=inner
}
left {
  v = f32[6] parameter(0)
  ROOT r = f32[6] all-reduce(v), replica_groups={}, to_apply=add_f32
}
right {
  v = f32[6] parameter(0)
  ROOT r = f32[6] negate(v)
}"""


def test_loops_branches_and_calls_that_share_bodies() -> None:
    """One body, several places: each place is a meeting of its own, and a loop meets again and again."""
    entry = """
  x = f32[6] parameter(0)
  p = pred[] parameter(1)
  zero = s32[] constant(0)
  start1 = (s32[], f32[6]) tuple(zero, x)
  neg = f32[6] negate(x)
  start2 = (s32[], f32[6]) tuple(zero, neg)
  w1 = (s32[], f32[6]) while(start1), condition=cond, body=body
  w2 = (s32[], f32[6]) while(start2), condition=cond, body=body
  a = f32[6] get-tuple-element(w1), index=1
  b = f32[6] get-tuple-element(w2), index=1
  c = f32[6] call(x), to_apply=outer
  d = f32[6] call(neg), to_apply=outer
  e = f32[6] conditional(p, x, x), true_computation=left, false_computation=right
  f = f32[6] conditional(p, neg, neg), true_computation=right, false_computation=left
  ROOT out = (f32[6], f32[6], f32[6], f32[6], f32[6], f32[6]) tuple(a, b, c, d, e, f)"""
    text = hlo(entry, reducer(), BODIES, header="replica_count=8")
    report = run(text)
    assert report.result["exact"]
    assert report.after == {}
    # the entry computation only: converted and native collectives, and calls that the run itself opens
    mixed = run(text, passes="convert-collectives-to-custom-call")
    assert mixed.result["exact"]
    assert mixed.after == {"all-reduce": 3}


@pytest.mark.parametrize("ranks", [8, 64])
def test_converted_and_native_collectives_mixed(ranks: int) -> None:
    """Twenty independent collectives, every other one ours: ranks come to them in any order, and nobody hangs."""
    lines, out = ["  x = f32[40] parameter(0)"], {}
    for n in range(20):
        body = "inner" if n % 2 else "add_f32"
        lines.append(f"  c{n} = f32[] constant({n + 1})\n  b{n} = f32[40] broadcast(c{n}), dimensions={{}}")
        lines.append(f"  m{n} = f32[40] multiply(x, b{n})")
        lines.append(f"  r{n} = f32[40] all-reduce(m{n}), replica_groups={{}}, to_apply={body}")
        out[f"r{n}"] = "f32[40]"
    # a body that does more than combine its parameters is declined, and so stays native
    inner = """
inner {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  z = f32[] constant(0)
  s = f32[] add(a, b)
  ROOT r = f32[] add(s, z)
}"""
    text = hlo("\n".join([*lines, tuple_root(out)]), reducer(), inner, header=f"replica_count={ranks}")
    report = run(text, iters=5)
    assert report.result["exact"]
    assert report.after == {"all-reduce": 10}
    assert report.custom_calls == {"AwsNeuronAllReduceAdd_f32": 10}


def test_collectives_that_xla_cpu_lacks_run_on_the_oracle(tmp_path: object) -> None:
    entry = """
  x = f32[4] parameter(0)
  n = s32[4] parameter(1)
  b = f32[4] collective-broadcast(x), replica_groups={{2,0,1,3},{4,5,6,7}}
  o = s32[4] all-reduce(n), replica_groups={}, to_apply=xor_s32
  t = token[] after-all()
  s = (f32[4], u32[], token[]) send(x, t), channel_id=1,
    frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,2},{6,7}}}
  sd = token[] send-done(s), channel_id=1
  r = (f32[4], u32[], token[]) recv(t), channel_id=1,
    frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,2},{6,7}}}
  rd = (f32[4], token[]) recv-done(r), channel_id=1
  v = f32[4] get-tuple-element(rd), index=0
  ROOT out = (f32[4], s32[4], f32[4]) tuple(b, o, v)"""
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    n = np.arange(32, dtype=np.int32).reshape(8, 4) * 77
    np.savez(f"{tmp_path}/in.npz", p0=x, p1=n)
    text = hlo(entry.replace(",\n    ", ", "), reducer("xor", "s32"), header="replica_count=8")
    report, (broadcast, exclusive, received) = outputs_of(text, tmp_path, inputs=f"{tmp_path}/in.npz")
    assert report.result["exact"]
    assert np.array_equal(broadcast, x[[2, 2, 2, 2, 4, 4, 4, 4]])
    assert np.array_equal(exclusive, np.broadcast_to(np.bitwise_xor.reduce(n), (8, 4)))
    expected = np.zeros_like(x)
    for source, target in ((0, 1), (1, 2), (6, 7)):
        expected[target] = x[source]
    assert np.array_equal(received, expected)


def test_an_operand_that_lives_on_is_not_overwritten() -> None:
    """In place only where the operand is dead afterwards: here it is read later, returned, or somebody else's."""
    entry = """
  x = f32[300] parameter(0)
  k = f32[] constant(3)
  ks = f32[300] broadcast(k), dimensions={}
  a = f32[300] multiply(x, ks)
  r1 = f32[300] all-reduce(a), replica_groups={}, to_apply=add_f32
  d = f32[300] add(r1, a)
  b = f32[300] multiply(x, d)
  r2 = f32[300] all-reduce(b), replica_groups={}, to_apply=add_f32
  r3 = f32[300] all-reduce(x), replica_groups={}, to_apply=add_f32
  e = f32[300] multiply(x, x)
  f = f32[20,15] reshape(e)
  r4 = f32[20,15] all-reduce(f), replica_groups={}, to_apply=add_f32
  g = f32[300] negate(e)
  r5 = f32[300] all-reduce(ks), replica_groups={}, to_apply=add_f32
  v = (f32[300], f32[300]) all-reduce(g, g), replica_groups={}, to_apply=add_f32
  ROOT out = (f32[300], f32[300], f32[300], f32[300], f32[20,15], f32[300], (f32[300], f32[300]), f32[300])
    tuple(d, b, r2, r3, r4, r5, v, x)"""
    report = run(hlo(entry.replace("\n    tuple", " tuple"), reducer(), header="replica_count=8"))
    assert report.result["exact"]


def test_a_rank_that_never_arrives_ends_the_run_and_is_named() -> None:
    entry = """
  x = f32[4] parameter(0)
  ROOT r = f32[4] all-reduce(x), replica_groups={}, to_apply=add_f32, metadata={source_file="step.py" source_line=12}"""
    with pytest.raises(RunError, match=r"all-reduce %r \(step.py:12\) waited 1 s: .*rank 3 did not"):
        run(hlo(entry, reducer(), header="replica_count=8"), absent_rank=3, limit_s=1.0)


def test_a_converted_file_is_raised_to_get_its_original() -> None:
    entry = """
  x = f32[4] parameter(0)
  ROOT r = f32[4] custom-call(x), custom_call_target="AwsNeuronAllReduceMax_f32",
    frontend_attributes={replica_groups="{{0,1},{2,3}}"}, backend_config="constrain_layout=false"
"""
    report = run(hlo(entry.replace(",\n    ", ", "), header="replica_count=4"), passes="")
    assert report.result["exact"]
    assert report.before == {"all-reduce": 1}
    assert report.raised_for_original == 1
    assert report.custom_calls == {"AwsNeuronAllReduceMax_f32": 1}


def test_a_difference_is_found_and_named(tmp_path: object) -> None:
    """A conversion that means something else (Max for Add) must not pass: nothing here is equal by construction."""
    entry = "  x = f32[4] parameter(0)\n  ROOT r = f32[4] all-reduce(x), replica_groups={}, to_apply=add_f32"
    golden = np.zeros((8, 4), np.float32)
    np.savez(f"{tmp_path}/in.npz", p0=np.ones((8, 4), np.float32), o0=golden)
    report = run(hlo(entry, reducer(), header="replica_count=8"), inputs=f"{tmp_path}/in.npz")
    assert report.result["exact"]
    assert not report.result["golden"]["equal"]
    assert report.result["golden"]["first_difference"]["actual"] == "8.0"
    assert not report.equal


def test_a_golden_that_this_cpu_misses_by_a_little_is_a_warning(tmp_path: object) -> None:
    """The untouched original is as far off: the rewrite is not to blame."""
    entry = "  x = f32[4] parameter(0)\n  ROOT r = f32[4] all-reduce(x), replica_groups={}, to_apply=add_f32"
    np.savez(f"{tmp_path}/in.npz", p0=np.ones((8, 4), np.float32), o0=np.full((8, 4), 8.01, np.float32))
    report = run(hlo(entry, reducer(), header="replica_count=8"), inputs=f"{tmp_path}/in.npz")
    assert not report.result["golden"]["equal"]
    assert report.equal
    assert any("untouched original" in w for w in report.warnings)


def test_all_nan_outputs_are_a_warning() -> None:
    entry = """
  x = f32[4] parameter(0)
  z = f32[4] subtract(x, x)
  n = f32[4] divide(z, z)
  ROOT r = f32[4] all-reduce(n), replica_groups={}, to_apply=add_f32"""
    report = run(hlo(entry, reducer(), header="replica_count=2"))
    assert report.equal
    assert any("NaN" in w for w in report.warnings)


def test_bad_requests_are_input_errors() -> None:
    good = hlo("  x = f32[4] parameter(0)\n  ROOT r = f32[4] negate(x)", header="replica_count=2")
    with pytest.raises(InputError, match="for 2 ranks, not 3"):
        run(good, ranks=3)
    with pytest.raises(InputError, match="there is no file"):
        run(good, inputs="/nowhere/in.npz")
    silent = hlo(
        "  x = f32[4] parameter(0)\n  ROOT r = f32[4] all-reduce(x), replica_groups={}, to_apply=add_f32",
        reducer(),
        header="is_scheduled=false",
    )
    assert run(silent.replace(", is_scheduled=false", ""), ranks=4).ranks == 4


def test_first_difference_names_output_rank_and_element() -> None:
    """A module whose rewrite is wrong on purpose: the raised original adds, the custom-call's config multiplies."""
    entry = """
  x = f32[2,3] parameter(0)
  ROOT r = f32[2,3] custom-call(x), custom_call_target="AwsNeuronAllReduceAdd_f32",
    frontend_attributes={replica_groups="{}"}, backend_config="constrain_layout=false"
"""
    added = parse_module(hlo(entry.replace(",\n    ", ", "), header="replica_count=4").encode(), "test.hlo")
    report = run_module(added, [Swap()], RunOptions(iters=0))
    assert not report.equal
    assert report.result["first_difference"]["output"] == 0
    assert report.result["first_difference"]["rank"] == 0
    assert report.result["first_difference"]["element"] == [0, 0]


@dataclass(frozen=True)
class Swap(Pass[Module]):
    """A pass that does wrong: it makes a maximum of a sum."""

    name: ClassVar[str] = "swap"

    def run(self, module: Module, remarks: Remarks) -> bool:
        for i in module.instructions():
            if i.opcode == "custom-call":
                i.edit().custom_call_target = "AwsNeuronAllReduceMax_f32"
        return True


def test_every_combination_of_backend_and_scope_agrees() -> None:
    text = (
        every_reduction("{{0,1},{2,3},{4,5},{6,7}}", ("f32",))
        .replace("f32[2,3]", "f32[4,3]")
        .replace("[8,12]", "[8,6]")
    )
    for backend, passes in itertools.product(("kernels", "oracle"), ("", DEFAULT)):
        assert run(text, passes=passes, backend=backend).result["exact"], (backend, passes)


@pytest.mark.parametrize("backend", ["kernels", "oracle"])
def test_subnormals_are_what_xla_makes_of_them(backend: str, tmp_path: object) -> None:
    """XLA's threads flush them, in its collectives as in all other arithmetic, whoever's thread computes ours."""
    reductions = [("add", "f32"), ("maximum", "f32"), ("multiply", "f32"), ("add", "f64"), ("minimum", "f64")]
    parameters = {"f32": "x", "f64": "y"}
    lines = ["  x = f32[4] parameter(0)", "  y = f64[4] parameter(1)"]
    lines += [
        f"  {op}{t} = {t}[4] all-reduce({parameters[t]}), replica_groups={{}}, to_apply={op}_{t}"
        for op, t in reductions
    ]
    lines.append(tuple_root({f"{op}{t}": f"{t}[4]" for op, t in reductions}))
    x = np.full((2, 4), 1e-40, np.float32)
    x[:, 1] = (1.5e-38, -1.3e-38)
    x[:, 2] = 1e-20
    np.savez(f"{tmp_path}/in.npz", p0=x, p1=np.full((2, 4), -1e-310))
    text = hlo("\n".join(lines), *(reducer(op, t) for op, t in reductions), header="replica_count=2")
    report, outputs = outputs_of(text, tmp_path, inputs=f"{tmp_path}/in.npz", backend=backend)
    assert report.result["reference"] == "original"
    assert report.result["exact"]
    assert not outputs[0][:, :2].any()
    assert outputs[1][:, 1].all()


def test_a_library_call_keeps_the_layouts_that_it_asks_for(tmp_path: object) -> None:
    """LAPACK's functions take column-major buffers; JAX loads them only when it traces a call."""
    entry = """
  x = f32[6,6]{1,0} parameter(0)
  k = (f32[6,6]{0,1}, s32[]) custom-call(x), custom_call_target="lapack_spotrf_ffi",
    operand_layout_constraints={f32[6,6]{0,1}}, output_to_operand_aliasing={{0}: (0, {})},
    api_version=API_VERSION_TYPED_FFI, backend_config={uplo = 76 : ui8}
  l = f32[6,6]{0,1} get-tuple-element(k), index=0
  ROOT r = f32[6,6]{1,0} all-reduce(l), replica_groups={}, to_apply=add_f32"""
    a = np.random.default_rng(0).normal(size=(2, 6, 6)).astype(np.float32)
    x = a @ a.transpose(0, 2, 1) + 6 * np.eye(6, dtype=np.float32)
    np.savez(f"{tmp_path}/in.npz", p0=x)
    text = hlo(entry.replace(",\n    ", ", "), reducer(), header="replica_count=2")
    report, (factors,) = outputs_of(text, tmp_path, inputs=f"{tmp_path}/in.npz")
    assert report.result["exact"]
    lower = np.tril(factors[0])  # the upper part is whatever was there
    assert np.allclose(lower, np.linalg.cholesky(x).sum(0), atol=1e-4)


@pytest.mark.parametrize("backend", ["kernels", "oracle"])
def test_elements_below_a_byte_lie_packed_and_stay_native(backend: str, tmp_path: object) -> None:
    entry = """
  r = u32[] replica-id()
  x0 = s4[3] constant({1,-2,7})
  rc = s4[] convert(r)
  b = s4[3] broadcast(rc), dimensions={}
  x = s4[3] add(x0, b)
  g = s4[12] all-gather(x), replica_groups={}, dimensions={0}
  ROOT w = s32[12] convert(g)"""
    text = hlo(entry, header="replica_count=4")
    report, (gathered,) = outputs_of(text, tmp_path, backend=backend)
    assert report.result["exact"]
    assert [name for name, _ in report.result["raised"]] == ["%g"]
    rows = (np.array([1, -2, 7]) + np.arange(4)[:, None] + 8) % 16 - 8
    assert gathered[0].tolist() == rows.reshape(-1).tolist()


def test_bodies_in_a_wider_type_and_empty_dimensions_run_natively_too() -> None:
    """As XLA's own promotion leaves bf16 collectives; and StableHLO gathers along no empty dimension."""
    entry = """
  x = bf16[6] parameter(0)
  e = f32[3,0] parameter(1)
  r = bf16[6] all-reduce(x), replica_groups={}, to_apply=add_f32
  g = f32[3,0] all-gather(e), replica_groups={}, dimensions={1}
  v = (f32[12,0], bf16[24]) all-gather(e, x), replica_groups={}, dimensions={0}
  ROOT out = (bf16[6], f32[3,0], (f32[12,0], bf16[24])) tuple(r, g, v)"""
    text = hlo(entry, reducer(), header="replica_count=4")
    for passes in ("", DEFAULT):
        assert run(text, passes=passes).result["exact"]


ROUNDED = """
rounded_{op} {{
  a = bf16[] parameter(0)
  b = bf16[] parameter(1)
  c = f32[] convert(a)
  d = f32[] convert(b)
  e = f32[] {op}(c, d)
  ROOT f = bf16[] convert(e)
}}
"""


def test_bodies_that_widen_and_round_run_as_the_op_itself() -> None:
    """XLA's float normalization leaves them, and the widening of XLA:CPU aborts on them."""
    entry = """
  x = bf16[8,6] parameter(0)
  r = bf16[8,6] all-reduce(x), replica_groups={}, to_apply=rounded_add
  s = bf16[2,6] reduce-scatter(x), replica_groups={}, dimensions={0}, to_apply=rounded_maximum
  t = bf16[8,6] all-reduce(x), replica_groups={}, to_apply=add_bf16
  u = bf16[8,6] subtract(r, t)
  ROOT out = (bf16[8,6], bf16[2,6]) tuple(u, s)"""
    bodies = (reducer(dtype="bf16"), ROUNDED.format(op="add"), ROUNDED.format(op="maximum"))
    report = run(hlo(entry, *bodies, header="replica_count=4"), passes=DEFAULT, verify_each=True)
    assert report.result["exact"]
    assert report.as_dict()["verify_each"]["collectives"]["checked"] == 3
    assert report.as_dict()["collectives"]["after"] == {"all-reduce": 1, "reduce-scatter": 1}


def test_a_body_whose_root_is_a_copy_is_its_op() -> None:
    """shard_map leaves them where only some axes are manual; in bf16 XLA:CPU aborts on them."""
    body = """
copied {
  a = bf16[] parameter(0)
  b = bf16[] parameter(1)
  c = bf16[] add(a, b)
  ROOT d = bf16[] copy(c)
}
"""
    entry = "  x = bf16[6] parameter(0)\n  ROOT r = bf16[6] all-reduce(x), replica_groups={}, to_apply=copied"
    report = run(hlo(entry, body, header="replica_count=4"), passes=DEFAULT)
    assert report.result["exact"]
    assert report.as_dict()["custom_calls"] == {"AwsNeuronAllReduceAdd_bf16": 1}


def test_a_body_that_xla_would_abort_on_is_named() -> None:
    body = """
last {
  a = bf16[] parameter(0)
  b = bf16[] parameter(1)
  ROOT c = bf16[] copy(b)
}
"""
    entry = "  x = bf16[6] parameter(0)\n  ROOT r = bf16[6] all-reduce(x), replica_groups={}, to_apply=last"
    with pytest.raises(InputError, match="XLA:CPU has no collective with the reduction body of %r"):
        run(hlo(entry, body, header="replica_count=2"))


def test_ranks_that_part_ways_are_named_within_the_limit(tmp_path: object) -> None:
    """A branch that differs by rank: some come to the collective, others never do."""
    entry = """
  p = pred[] parameter(0)
  x = f32[6] parameter(1)
  ROOT e = f32[6] conditional(p, x, x), true_computation=left, false_computation=right"""
    np.savez(f"{tmp_path}/in.npz", p0=np.arange(8) != 2, p1=np.ones((8, 6), np.float32))
    text = hlo(entry, reducer(), BODIES, header="replica_count=8")
    with pytest.raises(RunError, match=r"all-reduce %r.* waited 1 s: ranks 0,1,3,4,5,6,7 arrived, rank 2 did not"):
        run(text, inputs=f"{tmp_path}/in.npz", limit_s=1.0)
    with pytest.raises(RunError, match="native all reduce until XLA gave up: 7 of 8 ranks came"):
        run(text, passes="", inputs=f"{tmp_path}/in.npz", limit_s=1.0)
