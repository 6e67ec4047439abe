import numpy as np
import pytest

from crossrank.errors import InputError
from crossrank.instr import run_kernel, trace
from crossrank.instr.trace import arrays_in, current

HBM = "private_hbm"


def scaled(tensors, factor, rest=None):
    """The sum over all ranks of each tensor, ``factor`` times as much; returns them by name."""
    b = current()
    results = {}
    for name, x in tensors.items():
        y = b.tensor(x.shape, x.dtype, HBM)
        b.all_reduce_cc("add", [x], [y])
        b.compute("tensor_scalar", [y], [y], op0="multiply", operand0=factor, tensors=("data",))
        results[name] = y
    return results, rest


def test_arrays_become_inputs_and_views_outputs():
    def given(rank):
        return {"a": np.full((2, 3), rank, np.float32), "b": np.full((4,), 10 * rank, np.float32)}, 2.0, [7, None]

    traced = trace(scaled, given(0), world_size=3)
    assert traced.arrays == ("tensors_a", "tensors_b")
    assert traced.kernel.name == "scaled"
    assert (traced.kernel.world_size, traced.kernel.lnc, traced.kernel.has_collectives) == (3, 1, True)
    outputs = run_kernel(traced.kernel, [list(arrays_in(given(rank))) for rank in range(3)])
    results, rest = traced.rebuilt(outputs[1])
    assert rest == [7, None]
    assert np.array_equal(results["a"], np.full((2, 3), 6))
    assert np.array_equal(results["b"], np.full((4,), 60))


def halves(x):
    """Each program of the grid doubles its own half."""
    b = current()
    y = b.tensor(x.shape, x.dtype, "shared_hbm", "y")
    half = slice(b.program_id(0) * 2, b.program_id(0) * 2 + 2)
    b.compute("tensor_tensor", [y[half]], [x[half], x[half]], op="add")
    b.sync_program()
    return y


def test_a_program_of_the_grid_is_a_core():
    x = np.arange(4, dtype=np.int32)
    traced = trace(halves, [x], grid=(2,), lnc=2)
    assert [p.index for p in traced.kernel.programs] == [0, 1]
    assert traced.rebuilt(run_kernel(traced.kernel, [[x]])[0]).tolist() == [0, 2, 4, 6]


def wrong(x):
    return x[5]  # the line that messages name


def uneven(x):
    b = current()
    return b.tensor((1 + b.program_id(0),), "f32", HBM)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: trace(wrong, [np.zeros(4)]), r"^test_trace.py:\d+: tensor x: index 5 is outside of dimension 0"),
        (lambda: trace(wrong, [1]), r"^test_trace.py:\d+: TypeError: 'int' object is not subscriptable"),
        (lambda: trace(wrong, []), "^the kernel wrong cannot take these arguments: missing a required argument: 'x'"),
        (lambda: trace(uneven, [0], grid=(2,), lnc=2), "^uneven: program 1 returns other shapes than program 0"),
        (lambda: trace(halves, [np.zeros(4)], grid=(0,)), r"a grid of \[0\] has 0 programs"),
        (lambda: trace(halves, [np.zeros(4)], grid=(2,)), r"a grid of \[2\] has 2 programs, and a rank has 1 core"),
        (lambda: halves(np.zeros(4)), "^no kernel is being traced"),
    ],
)
def test_errors(call, message):
    with pytest.raises(InputError, match=message):
        call()
