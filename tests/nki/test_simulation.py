"""Kernels called with arrays: on one rank and on several, what they give, what they write, and what is refused."""

from __future__ import annotations

import functools
import inspect

import numpy as np
import pytest

from crossrank import nki
from crossrank.errors import InputError, RunError
from crossrank.nki import collectives as ncc
from crossrank.nki import isa as nisa
from crossrank.nki import language as nl

ONE = np.ones((2, 3), np.float32)


@nki.jit
def scaled(x, factor=2.0, name=None):
    """Doc."""
    tile = nl.load(x)
    nisa.tensor_scalar(tile, tile, nl.multiply, factor)
    result = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name=name or "")
    nisa.dma_copy(result, tile)
    return result


@nki.jit()
def summed(x, group):
    result = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    ncc.all_reduce([x], [result], group, nl.add)
    return {"sum": result, "of": [len(group.rank_lists), (result, x)]}


class TestForms:
    def test_on_one_rank(self):
        assert nki.simulate(scaled)(ONE).tolist() == (2 * ONE).tolist()
        assert nki.simulate(scaled[2])(ONE, factor=3.0, name="r").tolist() == (3 * ONE).tolist()
        assert scaled(ONE, 4.0).tolist() == (4 * ONE).tolist()
        assert nki.simulate(lambda x: scaled(scaled(x)))(ONE).tolist() == (4 * ONE).tolist()

    def test_on_several_ranks(self):
        group = ncc.ReplicaGroup([[0, 1, 2]])
        positional = [(np.float32([r]), group) for r in range(3)]
        by_name = [{"x": np.float32([r]), "group": ncc.ReplicaGroup([[0, 1, 2]])} for r in range(3)]
        for arguments in (positional, by_name, tuple(positional)):
            found = nki.simulate(summed, ranks=3)(arguments)
            assert [own["sum"].tolist() for own in found] == [[3.0]] * 3
            assert [own["of"][1][1].tolist() for own in found] == [[0.0], [1.0], [2.0]]
            assert found[0]["of"][0] == 1

    @pytest.mark.parametrize("backend", ["kernels", "oracle"])
    def test_backends(self, backend):
        group = ncc.ReplicaGroup([[0, 1]])
        found = nki.simulate(summed, ranks=2, backend=backend)([(ONE, group), (3 * ONE, group)])
        assert found[1]["sum"].tolist() == (4 * ONE).tolist()

    def test_what_the_kernel_writes_is_written(self):
        @nki.jit
        def kernel(x, y):
            nisa.dma_copy(y, x)

        x, y = ONE.copy(), np.zeros_like(ONE)
        x.flags.writeable = False
        assert nki.simulate(kernel)(x, y) is None
        np.testing.assert_array_equal(y, x)
        ys = [np.zeros_like(ONE), np.zeros_like(ONE)]
        nki.simulate(kernel, ranks=2)([(ONE, ys[0]), (5 * ONE, ys[1])])
        assert [y[0, 0] for y in ys] == [1, 5]

    def test_what_cannot_be_written(self):
        y = np.zeros_like(ONE)
        y.flags.writeable = False
        with pytest.raises(InputError, match="rank 0: the kernel writes y, which is read-only"):
            nki.simulate(lambda x, y: nisa.dma_copy(y, x))(ONE, y)

    def test_arrays_of_other_libraries(self):
        from jax import numpy as jnp

        assert scaled(jnp.ones((2, 3), jnp.bfloat16)).tolist() == (2 * ONE).tolist()
        assert nki.simulate(lambda xs: xs["a"])({"a": jnp.ones(3)}).tolist() == [1, 1, 1]

    def test_a_kernel_is_a_function(self):
        assert (scaled.__name__, scaled.__doc__) == ("scaled", "Doc.")
        assert list(inspect.signature(scaled[2]).parameters) == ["x", "factor", "name"]
        assert (repr(scaled), repr(scaled[2, 1])) == ("<kernel scaled>", "<kernel scaled[2, 1]>")

    def test_grid_makes_cores(self):
        @nki.jit
        def kernel():
            result = nl.ndarray((2, 2), nl.int32, buffer=nl.shared_hbm, name="result")
            nisa.dma_copy(result[nl.program_id(0), nl.program_id(1)], nl.full((1, 1), nl.num_programs(None), nl.int32))
            return result

        assert nki.simulate(kernel, grid=(2, 2))().tolist() == [[4, 4], [4, 4]]
        assert kernel[2, 2]().tolist() == [[4, 4], [4, 4]]

    def test_trace_gives_the_program(self):
        group = ncc.ReplicaGroup([[0, 1]])
        traced, arrays = nki.simulate(summed, ranks=2).trace([(ONE, group), (3 * ONE, group)])
        assert traced.kernel.world_size == 2
        assert "AllReduce-0" in str(traced.kernel)
        assert [[a[0, 0] for a in own] for own in arrays] == [[1], [3]]


def failing_assert(x):
    assert x.shape == (3,), f"a shape of {x.shape}"


def branches(x):
    if ncc.rank_id() == ncc.rank_id() or ncc.rank_id() < 1:
        return x
    return None


def unknown(x):
    return nl.no_such_thing(x)


def returns_a_part(x):
    return x[0:1]


BAD_KERNELS = [
    (failing_assert, r"^test_simulation.py:\d+: a shape of \(2, 3\)"),
    (branches, r"^test_simulation.py:\d+: a register has no value while the kernel is traced"),
    (unknown, r"^test_simulation.py:\d+: crossrank.nki.language has no no_such_thing"),
    (lambda x: x[5], r"^test_simulation.py:\d+: tensor x: index 5 is outside of dimension 0, which has 2"),
    (returns_a_part, r"an output is a whole tensor, and x\[1, 3\] is a part of one"),
    (lambda x: scaled[3](x), r"<kernel scaled\[3\]> is called in a kernel of grid \[\]"),
    (lambda x, y: x, "cannot take these arguments: missing a required argument: 'y'"),
]


@pytest.mark.parametrize(("kernel", "text"), BAD_KERNELS)
def test_errors_in_kernels(kernel, text):
    with pytest.raises(InputError, match=text):
        nki.simulate(kernel)(ONE)


GROUP = ncc.ReplicaGroup([[0, 1]])
BAD_CALLS = [
    ([(ONE, GROUP)], "arguments for 2 ranks are needed, and 1 are given"),
    (3, "arguments for 2 ranks are needed, and int is given"),
    ([(ONE, GROUP), ONE], "the arguments of rank 1 are ndarray\ngive a tuple of positional arguments"),
    (
        [(ONE, GROUP), (ONE[0:1], GROUP)],
        r"rank 1: the argument x is float32\[1, 3\], and on rank 0 float32\[2, 3\]",
    ),
    (
        [(ONE, GROUP), (ONE.astype(np.int32), GROUP)],
        r"rank 1: the argument x is int32\[2, 3\], and on rank 0 float32\[2, 3\]",
    ),
    (
        [(ONE, GROUP), (ONE, ncc.ReplicaGroup([[1, 0]]))],
        r"rank 1: the argument group is ReplicaGroup\(\[\[1, 0\]\]\), and on rank 0 ReplicaGroup\(\[\[0, 1\]\]\)",
    ),
    ([(ONE,), (ONE,)], "cannot take these arguments"),
]


@pytest.mark.parametrize(("arguments", "text"), BAD_CALLS)
def test_errors_in_calls(arguments, text):
    with pytest.raises(InputError, match=text):
        nki.simulate(summed, ranks=2)(arguments)


class Scaled:
    """A kernel with a memory."""

    def __call__(self, x):
        return scaled(x, 3.0)


@pytest.mark.parametrize(("kernel", "name"), [(Scaled(), "Scaled"), (functools.partial(scaled, factor=3.0), "scaled")])
def test_whatever_can_be_called_is_a_kernel(kernel, name):
    assert nki.simulate(kernel)(ONE).tolist() == (3 * ONE).tolist()
    assert nki.simulate(kernel, ranks=1).trace([(ONE,)])[0].kernel.name == name


async def later(x):
    return x


def yielded(x):
    yield x


@pytest.mark.parametrize(("kernel", "text"), [(later, "later is an async function"), (yielded, "yielded is a gen")])
def test_a_kernel_is_a_plain_function(kernel, text):
    with pytest.raises(InputError, match=text):
        nki.simulate(kernel)(ONE)


BAD_OPTIONS = [
    (lambda: nki.simulate(scaled, ranks=0), "one rank or more, not on 0"),
    (lambda: nki.simulate(scaled, ranks="2"), "ranks is '2', not a whole number"),
    (lambda: nki.simulate(scaled, lnc=1.5), "lnc is 1.5, not a whole number"),
    (lambda: nki.simulate(3), "3 is no kernel"),
    (lambda: nki.simulate(scaled[2], grid=3), r"the kernel has the grid \[2\], and \[3\] is given"),
    (lambda: nki.simulate(scaled, ranks=2)(ONE, 2.0), "takes one argument: the arguments of each rank"),
    (lambda: nki.simulate(scaled, grid=4, lnc=2)(ONE), "has 4 programs, and a rank has 2 cores"),
    (lambda: nki.simulate(scaled, backend="none")(ONE), "there is no backend none"),
    (lambda: nki.jit(platform_target="tpu")(lambda x: x), "there is no platform_target 'tpu'"),
    (lambda: nki.simulate(scaled, arch=7), "there is no architecture level 7"),
    (lambda: scaled[0], "a launch grid is a number of programs, or several, not 0"),
    (lambda: scaled["two"], "a launch grid is a number of programs, or several, not 'two'"),
]


@pytest.mark.parametrize(("body", "text"), BAD_OPTIONS)
def test_errors_in_options(body, text):
    with pytest.raises(InputError, match=text):
        body()


def test_a_deadlock_says_who_waits():
    @nki.jit
    def kernel():
        result = nl.ndarray((1,), nl.int32, buffer=nl.shared_hbm, name="result")
        if nl.program_id(0) == 0:
            nisa.core_barrier(result, (0, 1))
        return result

    with pytest.raises(RunError, match=r"rank 0 core 0 waits in CoreBarrier-0 \(test_simulation.py:\d+\) for"):
        kernel[2]()


def test_an_output_may_be_returned_as_another_type():
    def kernel(x, counts):
        counts = counts.view(nl.uint32)
        nisa.dma_copy(counts, counts)
        bits = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(bits, x)
        return counts, bits.view(nl.int16)

    x, counts = np.float32([[1, -2]]), np.int32([[-1, 3]])
    found = nki.simulate(kernel)(x, counts)
    np.testing.assert_array_equal(found[0], counts.view(np.uint32))
    np.testing.assert_array_equal(found[1], x.view(np.int16))
    with pytest.raises(InputError, match="an output is a whole tensor"):
        nki.simulate(lambda x: x[:, :1].view(nl.int32))(x)
