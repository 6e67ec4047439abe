"""What test_hook.py runs in child processes: JAX programs with the hook and without, on eight devices."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import crossrank.jax
from crossrank.bridge import hook
from crossrank.errors import InputError
from crossrank.hlo.execute.xla_cpu import Executable, fetch, place
from crossrank.hlo.ffi import custom_calls
from crossrank.hlo.ffi.native import Native
from crossrank.hlo.xla import text_to_proto

Program = tuple[str, Callable[..., Any], Sequence[Any]]

devices = np.array(jax.devices())
mesh = Mesh(devices.reshape(2, 4), ("a", "b"))
ALL = P(("a", "b"))
rng = np.random.default_rng(0)
X = rng.normal(size=(64, 8)).astype(np.float32)


def mapped(f: Callable[..., Any], inputs: Any = ALL, outputs: Any = ALL, on: Mesh = mesh) -> Any:
    return jax.jit(jax.shard_map(f, mesh=on, in_specs=inputs, out_specs=outputs, check_vma=False))


def total(x: Any, axes: Any = ("a", "b")) -> Any:
    return lax.psum(x, axes)


def types() -> Iterator[Program]:
    for dtype in ("float32", "bfloat16", "float16", "int32", "uint8", "bool", "complex64"):
        x = jnp.asarray(X * 100 if "int" in dtype else X).astype(dtype)

        def f(x: Any, dtype: str = dtype) -> Any:
            moved = [lax.all_gather(x, "b", axis=1, tiled=True), lax.all_to_all(x, "b", 1, 0, tiled=True)]
            moved.append(lax.ppermute(x, "a", [(0, 1)]))
            if dtype == "bool":
                return moved
            if dtype != "complex64":
                moved += [lax.pmax(x, ("a", "b")), lax.pmin(x, "b")]
            # more than two f16 are rounded after each step by XLA, and once by us
            few = "a" if dtype == "float16" else ("a", "b")
            return [*moved, lax.psum(x, few), lax.psum_scatter(x, "a", scatter_dimension=1, tiled=True)]

        yield dtype, mapped(f), (x,)


def programs() -> Iterator[Program]:
    yield (
        "groups of an odd mesh",
        mapped(lambda x: total(x, "b"), on=Mesh(devices[[5, 1, 7, 2]].reshape(2, 2), ("a", "b"))),
        (X,),
    )
    yield "some to nobody", mapped(lambda x: lax.ppermute(x, ("a", "b"), [(0, 3), (3, 4), (5, 0)])), (X,)
    yield "untiled", mapped(lambda x: lax.all_gather(x, "b"), outputs=P(None, ("a", "b"))), (X,)
    yield (
        "pmap",
        jax.pmap(lambda x: (total(x, "i") * lax.axis_index("i"), lax.pmean(x, "i")), axis_name="i"),
        (X.reshape(8, 8, 8),),
    )
    yield "combined", mapped(lambda x: [total(x * k) for k in range(4)] + [total(x[:3].astype(jnp.int32))]), (X,)
    yield (
        "scan",
        mapped(lambda x: lax.scan(lambda c, _: (jnp.tanh(total(c @ X[:8])), c.sum()), x, None, length=4)),
        (X,),
    )
    yield (
        "nested loops",
        mapped(lambda x: lax.fori_loop(0, 3, lambda i, c: lax.fori_loop(0, i, lambda _, d: total(d) / 8 + i, c), x)),
        (X,),
    )
    yield (
        "branches",
        mapped(
            lambda x: [
                lax.cond(k < total(x[0, 0]), lambda x: total(x, "a"), lambda x: lax.pmax(x, "b"), x)
                for k in (-99.0, 99.0)
            ]
        ),
        (X,),
    )
    yield (
        "gradient",
        jax.jit(jax.grad(lambda x: (mapped(lambda x: total(jnp.sin(x), "b"), outputs=P("a"))(x) ** 2).sum())),
        (X,),
    )
    yield (
        "columns first",
        mapped(lambda x: total((x @ X[:8]).T).T + lax.psum_scatter(x, "a", scatter_dimension=0, tiled=True).sum()),
        (X,),
    )
    yield (
        "updates",
        mapped(
            lambda x: lax.scan(lambda c, i: (total(c.at[i].set(c[i] * 2)).at[i].add(1.0) * 0.1, c[0]), x, jnp.arange(4))
        ),
        (X,),
    )
    placed = jax.device_put(X, NamedSharding(mesh, P("a", "b")))
    yield (
        "jit with shardings",
        jax.jit(lambda x: (jnp.tanh(x).T @ x, (x @ x.T).sum(), x.max(0)), out_shardings=NamedSharding(mesh, P())),
        (placed,),
    )
    yield "reshard", jax.jit(lambda x: x * 2, out_shardings=NamedSharding(mesh, P("b", "a"))), (placed,)


def values(f: Callable[..., Any], arguments: Sequence[Any]) -> list[Any]:
    return [np.asarray(v) for v in jax.tree.leaves(f(*arguments))]


def every_value_is_the_same(found: Iterator[Program]) -> crossrank.jax.Report:
    listed = list(found)
    expected = {name: values(f, arguments) for name, f, arguments in listed}
    with crossrank.jax.hook() as report:
        for name, f, arguments in listed:
            for _ in range(2):
                for want, got in zip(expected[name], values(f, arguments), strict=True):
                    assert (want.dtype, want.tobytes()) == (got.dtype, got.tobytes()), name
    assert report.left == {}
    assert report.as_dict()["errors"] == {}
    return report


def types_of_all_kinds() -> None:
    converted = every_value_is_the_same(types()).converted
    assert set(converted) == {"all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter"}


def programs_of_all_forms() -> None:
    report = every_value_is_the_same(programs())
    assert report.executables >= 13
    assert all(found["calls"] > 0 for found in report.ran.values())


def what_xla_lacks() -> None:
    """Each rank sends one row to each."""
    sizes, offsets = np.ones(64, np.int32), np.tile(np.arange(8), 8).astype(np.int32)
    f = mapped(lambda *x: lax.ragged_all_to_all(*x, axis_name=("a", "b")), (ALL,) * 6)
    with crossrank.jax.hook() as report:
        got = f(X, np.zeros_like(X), offsets, sizes, np.repeat(np.arange(8), 8).astype(np.int32), sizes)
        np.testing.assert_array_equal(got, X.reshape(8, 8, 8).swapaxes(0, 1).reshape(64, 8))
    assert report.converted == {"ragged-all-to-all": 1}


REPLICAS = """HloModule replicas, replica_count=8
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
ENTRY e {
  p = f32[16,8] parameter(0)
  r = f32[16,8] all-reduce(p), replica_groups={{5,1,3},{4,0,2},{6},{7}}, to_apply=add
  ROOT g = f32[16,16] all-gather(r), replica_groups={{0,7},{1,6},{5,2},{3,4}}, dimensions={1}
}"""


def a_module_for_replicas() -> None:
    """No function of JAX makes one any more; torch_xla does."""
    arguments = [place([rng.normal(size=(16, 8)).astype(np.float32) for _ in range(8)])]
    data = text_to_proto(REPLICAS)
    expected = fetch(Executable(data, 8, "it").run(arguments)[1])
    with crossrank.jax.hook() as report:
        got = fetch(Executable(data, 8, "it").run(arguments)[1])
    np.testing.assert_array_equal(expected, got)
    assert report.converted == {"all-gather": 1, "all-reduce": 1}


def only_while_it_is_there() -> None:
    f = mapped(total)
    before = np.asarray(f(X))
    report = crossrank.jax.install()
    np.testing.assert_array_equal(before, f(X))  # what was compiled before is compiled again
    assert crossrank.jax.uninstall() is report
    assert report.converted == {"all-reduce": 1}
    assert report.ran["all-reduce"]["calls"] == 1
    np.testing.assert_array_equal(before, f(X))
    assert report.ran["all-reduce"]["calls"] == 1
    with pytest.raises(InputError, match="no hook is installed"):
        crossrank.jax.uninstall()


def one_within_another() -> None:
    f = mapped(total)
    with crossrank.jax.hook() as outer, crossrank.jax.hook("inline-calls") as inner:
        f(X)
    assert (outer.executables, inner.executables) == (0, 1)
    assert [p.spec for p in inner.modules[0].passes] == ["inline-calls"]
    with pytest.raises(InputError, match="unknown pass"), crossrank.jax.hook("no-such-pass"):
        pass


def a_failure_of_ours_is_not_the_programs() -> None:
    f = mapped(total)
    expected = np.asarray(f(X))

    def broken(*_: Any) -> Any:
        raise KeyError("broken")

    rewrite, hook.rewrite = hook.rewrite, broken
    with crossrank.jax.hook() as report:
        np.testing.assert_array_equal(expected, f(X))
    hook.rewrite = rewrite
    assert report.errors == {"jit_total": "KeyError: 'broken'"}
    target, custom_calls.COLLECTIVE_TARGET = custom_calls.COLLECTIVE_TARGET, "nobody"
    with crossrank.jax.hook() as report:
        np.testing.assert_array_equal(expected, f(X))
    custom_calls.COLLECTIVE_TARGET = target
    assert report.errors["jit_total"].startswith("XLA does not compile what became of it: NOT_FOUND")
    assert (report.executables, report.converted) == (0, {})


def what_cannot_be_leaves_nothing_behind() -> None:
    for limit in ("a", None, float("nan"), float("inf"), -1, 0, 1e300):
        with pytest.raises(InputError, match="is no time to wait"), crossrank.jax.hook(limit=limit):  # type: ignore[arg-type]
            pass
    for passes in (5, None, ["inline-calls"]):
        with pytest.raises(InputError, match="are none"):
            crossrank.jax.install(passes)  # type: ignore[arg-type]

    def broken() -> None:
        raise OSError("broken")

    for module, name in ((hook.jax, "clear_caches"), (hook.Native, "set_limit")):
        usual = getattr(module, name)
        setattr(module, name, lambda *_: broken())
        with pytest.raises(OSError, match="broken"):
            crossrank.jax.install()
        setattr(module, name, usual)
        with pytest.raises(InputError, match="no hook is installed"):
            crossrank.jax.uninstall()
    f = mapped(total)
    with crossrank.jax.hook(limit=np.float32(5)) as report:
        f(X)
    assert report.converted == {"all-reduce": 1}
    assert str(report) == "\n".join(report.lines())
    assert repr(report) == f"<Report: {report}>"


def what_xla_does_not_compile_anyway() -> None:
    f = mapped(lambda x: (lax.pmax(x, "a"), lax.psum(x, "a")))
    with crossrank.jax.hook() as report, pytest.raises(jax.errors.JaxRuntimeError, match="Unsupported reduction"):
        f(X.astype(np.complex64))
    (reason,) = report.errors.values()
    assert reason.startswith("XLA does not compile it, with us or without: UNIMPLEMENTED")
    assert reason.endswith("-> c64[]")
    assert report.modules == []


def four_bits_are_bytes_by_then() -> None:
    four = jnp.asarray(rng.integers(-8, 8, X.shape)).astype(jnp.int4)
    f = mapped(lambda x: [total(x), lax.pmax(x, "b"), lax.all_gather(x, "a"), lax.all_to_all(x, "b", 1, 0, tiled=True)])
    assert every_value_is_the_same(iter([("int4", f, (four,))])).left == {}
    two = mapped(lambda x: total(x.astype(jnp.int2)).astype(jnp.int32))
    with crossrank.jax.hook() as report, pytest.raises(jax.errors.JaxRuntimeError):  # XLA has no sum of them
        two(jnp.ones(X.shape, jnp.int32))
    assert report.left == {"all-reduce": "there is no kernel for all-reduce add of s2"}


def an_absent_rank_ends_the_run_in_time() -> None:
    f = mapped(total)
    with crossrank.jax.hook(limit=1.0) as report:
        f(X)
        Native.load().absent(2)
        start = time.monotonic()
        with pytest.raises(jax.errors.JaxRuntimeError, match="rank 2 did not"):
            jax.block_until_ready(f(X))
        assert time.monotonic() - start < 10
        Native.load().absent(None)
        f(X)
    assert report.failure is not None
    assert "waited 1 s: ranks 0,1,3,4,5,6,7 arrived, rank 2 did not" in report.failure


def the_persistent_cache_stays_away() -> None:
    f = mapped(total)
    with tempfile.TemporaryDirectory() as folder:
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        expected = np.asarray(f(X))
        kept = set(Path(folder).iterdir())
        assert kept
        with crossrank.jax.hook() as report:
            np.testing.assert_array_equal(expected, f(X))
        assert report.converted == {"all-reduce": 1}
        assert set(Path(folder).iterdir()) == kept
        for converted in ({"all-reduce": 1}, {"all-reduce": 1}):
            with crossrank.jax.hook() as report:
                jax.config.update("jax_enable_compilation_cache", True)  # the program insists
                np.testing.assert_array_equal(expected, f(X))
            assert report.converted == converted
        with crossrank.jax.hook():
            pass
        np.testing.assert_array_equal(expected, f(X))
        jax.config.update("jax_compilation_cache_dir", None)


def several_processes_are_said() -> None:
    f = mapped(total)
    count = jax.process_count
    jax.process_count = lambda: 2
    with crossrank.jax.hook() as report:
        f(X)
    jax.process_count = count
    assert report.left == {"all-reduce": "the program runs in several processes, and the hook serves one"}
    assert report.executables == 0


for name in sys.argv[1:]:
    globals()[name]()
    print("done", name, flush=True)
