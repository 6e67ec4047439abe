"""``nki.language``: types, memory, loops, the launch grid, operators; and tensors made, loaded and stored.

Dtypes are NumPy's (of ``ml_dtypes`` where NumPy has none), a memory is a `Space`, an operator an `Operator`. Loops are
unrolled while a kernel is traced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from crossrank.errors import InputError
from crossrank.instr.grid import ProgramAxis, program_ids
from crossrank.instr.kinds import PARTITIONS, Space
from crossrank.instr.tensors import DynamicSlice, Register, View, element_type
from crossrank.instr.trace import current
from crossrank.nki import isa, limits
from crossrank.nki.operators import Operator

NkiTensor = View
MemoryRegion = Space

# Types. tfloat32 is held and computed with as float32.

bool_ = np.dtype(np.bool_)
int8 = np.dtype(np.int8)
int16 = np.dtype(np.int16)
int32 = np.dtype(np.int32)
uint8 = np.dtype(np.uint8)
uint16 = np.dtype(np.uint16)
uint32 = np.dtype(np.uint32)
float16 = np.dtype(np.float16)
float32 = np.dtype(np.float32)
tfloat32 = float32
bfloat16 = np.dtype(ml_dtypes.bfloat16)
float8_e4m3 = np.dtype(ml_dtypes.float8_e4m3)
float8_e4m3fn = np.dtype(ml_dtypes.float8_e4m3fn)
float8_e5m2 = np.dtype(ml_dtypes.float8_e5m2)
float8_e8m0fnu = np.dtype(ml_dtypes.float8_e8m0fnu)

# Packs of four, which kernels name and no tensor here is made of
float8_e4m3fn_x4 = np.dtype([("float8_e4m3fn_x4", "V4")])
float8_e5m2_x4 = np.dtype([("float8_e5m2_x4", "V4")])
float4_e2m1fn_x4 = np.dtype([("float4_e2m1fn_x4", "V2")])

# Memory

sbuf = Space.SBUF
psum = Space.PSUM
private_hbm = Space.PRIVATE_HBM
shared_hbm = Space.SHARED_HBM
hbm = private_hbm


class tile_size:
    """Sizes that the hardware sets: elements, and bytes of a partition."""

    pmax = PARTITIONS
    psum_fmax = 512
    psum_bank_fmax = 512
    gemm_stationary_fmax = limits.STATIONARY_FREE
    gemm_moving_fmax = limits.MOVING_FREE
    bn_stats_fmax = 512
    psum_min_align = 4
    sbuf_min_align = 1
    total_available_sbuf_size = limits.SBUF_BYTES


def is_hbm(buffer: Space) -> bool:
    """Whether it is HBM, private or shared."""
    return buffer.is_hbm


def is_on_chip(buffer: Space) -> bool:
    """Whether it is SBUF or PSUM."""
    return not buffer.is_hbm


def is_sbuf(buffer: Space) -> bool:
    """Whether it is SBUF."""
    return buffer is Space.SBUF


def is_psum(buffer: Space) -> bool:
    """Whether it is PSUM."""
    return buffer is Space.PSUM


# Operators

add = Operator("add", True)
subtract = Operator("subtract", True)
multiply = Operator("multiply", True)
divide = Operator("divide", True)
maximum = Operator("maximum", True)
minimum = Operator("minimum", True)
max = Operator("max", True)
min = Operator("min", True)
power = Operator("power", True)
abs_max = Operator("abs_max", True)
abs_min = Operator("abs_min", True)
bitwise_and = Operator("bitwise_and", True)
bitwise_or = Operator("bitwise_or", True)
bitwise_xor = Operator("bitwise_xor", True)
left_shift = Operator("left_shift", True)
right_shift = Operator("right_shift", True)
logical_and = Operator("logical_and", True)
logical_or = Operator("logical_or", True)
logical_xor = Operator("logical_xor", True)
equal = Operator("equal", True)
not_equal = Operator("not_equal", True)
less = Operator("less", True)
less_equal = Operator("less_equal", True)
greater = Operator("greater", True)
greater_equal = Operator("greater_equal", True)
bypass = Operator("bypass", True)

abs = Operator("abs")
arctan = Operator("arctan")
copy = Operator("copy")
erf = Operator("erf")
erf_dx = Operator("erf_dx")
exp = Operator("exp")
gelu = Operator("gelu")
gelu_apprx_sigmoid = Operator("gelu_apprx_sigmoid")
gelu_apprx_sigmoid_dx = Operator("gelu_apprx_sigmoid_dx")
gelu_apprx_tanh = Operator("gelu_apprx_tanh")
gelu_dx = Operator("gelu_dx")
identity = Operator("identity")
invert = Operator("invert")
log = Operator("log")
logical_not = Operator("logical_not")
mish = Operator("mish")
reciprocal = Operator("reciprocal")
relu = Operator("relu")
rsqrt = Operator("rsqrt")
sigmoid = Operator("sigmoid")
sign = Operator("sign")
silu = Operator("silu")
silu_dx = Operator("silu_dx")
sin = Operator("sin")
softplus = Operator("softplus")
sqrt = Operator("sqrt")
square = Operator("square")
tanh = Operator("tanh")


# Tensors


def ndarray(shape: Sequence[int], dtype: Any, buffer: Space | None = None, name: str = "", address: Any = None) -> View:
    """A new tensor, in SBUF unless ``buffer`` says otherwise. It holds NaN (and all ones) until it is written.

    Shared HBM of one name is one tensor for all cores of a rank. ``address`` is for the vendor's allocator.
    """
    element, space = element_type(dtype), Space.SBUF if buffer is None else Space(buffer)
    extents = [int(n) for n in shape]
    limits.tensor_shape(extents, element.itemsize, space)
    return current().tensor(extents, element, space, name or None)


def full(shape: Sequence[int], fill_value: Any, dtype: Any, buffer: Space | None = None, name: str = "") -> View:
    """A new tensor of ``fill_value``."""
    tensor = ndarray(shape, dtype, buffer, name)
    if not tensor.buffer.is_hbm:
        isa.memset(tensor, fill_value)
    else:
        current().compute("memset", [tensor], engine="dma", value=fill_value)
    return tensor


def zeros(shape: Sequence[int], dtype: Any, buffer: Space | None = None, name: str = "") -> View:
    """A new tensor of zeros."""
    return full(shape, 0, dtype, buffer, name)


def ones(shape: Sequence[int], dtype: Any, buffer: Space | None = None, name: str = "") -> View:
    """A new tensor of ones."""
    return full(shape, 1, dtype, buffer, name)


def zeros_like(x: View, dtype: Any = None, buffer: Space | None = None, name: str = "") -> View:
    """A new tensor of zeros of the shape (and the type and memory, unless they are given) of ``x``."""
    return zeros(x.shape, x.element if dtype is None else dtype, x.buffer if buffer is None else buffer, name)


def empty_like(x: View, dtype: Any = None, buffer: Space | None = None, name: str = "") -> View:
    """A new tensor of the shape (and the type and memory, unless they are given) of ``x``."""
    return ndarray(x.shape, x.element if dtype is None else dtype, x.buffer if buffer is None else buffer, name)


def shared_constant(constant: npt.ArrayLike, dtype: Any = None) -> View:
    """A new tensor in HBM that holds the values of an array."""
    values = np.asarray(constant)
    tensor = ndarray(values.shape, values.dtype if dtype is None else dtype, Space.PRIVATE_HBM)
    numbers = values if values.dtype.kind in "iub" else values.astype(np.float64)
    current().compute("constant", [tensor], values=tuple(numbers.reshape(-1).tolist()))
    return tensor


def shared_identity_matrix(n: int, dtype: Any = np.uint8) -> View:
    """The identity matrix of ``n`` rows, in SBUF."""
    matrix = ones((n, n), dtype, Space.SBUF)
    isa.affine_select(matrix, [[-1, n]], 1, matrix, 0)
    return matrix


def load(src: View, dtype: Any = None) -> View:
    """A new tile in SBUF with what ``src`` holds."""
    tile = ndarray(src.shape, src.element if dtype is None else dtype, Space.SBUF)
    isa.dma_copy(tile, src)
    return tile


def store(dst: View, value: View) -> None:
    """Copy a tile to ``dst``."""
    if value.buffer is Space.PSUM:
        staged = ndarray(value.shape, value.element, Space.SBUF)
        isa.tensor_copy(staged, value)
        value = staged
    isa.dma_copy(dst, value)


def ds(start: int | Register, size: int) -> DynamicSlice:
    """An index: ``size`` elements from ``start`` on, which may be a register."""
    return DynamicSlice(start, int(size))


def par_dim(extent: int) -> int:
    """An extent that is the partitions': always the first one's here."""
    return extent


# Loops, all of them unrolled


def _turns(start: Any, stop: Any, step: Any) -> range:
    bounds = (0, start) if stop is None else (start, stop)
    if any(isinstance(b, Register) for b in (*bounds, step)):
        raise InputError(
            "a register bounds a loop, and loops are unrolled while the kernel is traced",
            "loop as often as it may be at most, and skip by masks or out-of-bounds indices",
        )
    return range(int(bounds[0]), int(bounds[1]), int(step))


def affine_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """A loop whose turns do not depend on one another."""
    return _turns(start, stop, step)


def sequential_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """A loop whose turns depend on one another."""
    return _turns(start, stop, step)


def static_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """A loop that is unrolled."""
    return _turns(start, stop, step)


def dynamic_range(start: int, stop: int | None = None, step: int = 1) -> Iterator[isa.VirtualRegister]:
    """A loop that runs on the device: its variable is a register."""
    return (isa.register_alloc(turn) for turn in _turns(start, stop, step))


def fori_loop(lower: int, upper: int, body_fun: Callable[[isa.VirtualRegister], Any], step: int = 1) -> None:
    """Call ``body_fun`` with a register for each turn."""
    for turn in dynamic_range(lower, upper, step):
        body_fun(turn)


@contextmanager
def no_reorder() -> Iterator[None]:
    """Instructions keep their order: they always do here."""
    yield


# The launch grid


def program_id(axis: int = 0) -> int:
    """The number of this program along an axis of the launch grid."""
    if program_ndim() == 0 and axis == 0:
        return 0
    return current().program_id(axis)


def num_programs(axes: int | Sequence[int] | None = 0) -> int:
    """How many programs there are along an axis, or along several; None: in all."""
    extents = [a.extent for a in current().program_axes]
    wanted = range(len(extents)) if axes is None else [axes] if isinstance(axes, int) else axes
    if not extents and set(wanted) <= {0}:
        return 1
    if any(a not in range(len(extents)) for a in wanted):
        raise InputError(f"the launch grid has {len(extents)} axes, and so no axis {axes}")
    return int(np.prod([extents[a] for a in wanted]))


def program_ndim() -> int:
    """How many axes the launch grid has; 0 where there is none."""
    return len(current().program_axes)


def all_reduce(
    x: View,
    op: Operator,
    program_axes: Any,
    dtype: Any = None,
    mask: Any = None,
    parallel_reduce: bool = True,
    asynchronous: bool = False,
) -> View:
    """A new tile with the reduction of ``x`` over the programs along axes of the launch grid.

    Args:
        x: a tile of each program.
        op: the reduction.
        program_axes: what ``program_id`` gave for the axes to reduce over, one or several.
        dtype: of the new tile; by default that of ``x``.
        mask: none may be given.
        parallel_reduce: a hint.
        asynchronous: whether nobody waits for the result here.
    """
    if mask is not None:
        raise InputError("all_reduce over program axes takes no mask", "reduce a tile of the neutral element instead")
    builder = current()
    axes = program_axes if isinstance(program_axes, (list, tuple)) else (program_axes,)
    if any(not isinstance(a, ProgramAxis) for a in axes):
        builder.post_process_allreduce_result(program_axes=axes)  # says what is wrong
    reduced = {a.axis for a in axes}
    groups: dict[tuple[int, ...], list[int]] = {}
    for core, ids in enumerate(program_ids(builder.program_axes)):
        groups.setdefault(tuple(i for n, i in enumerate(ids) if n not in reduced), []).append(core)
    total = ndarray(x.shape, x.element, x.buffer)
    builder.all_reduce_cc_raw(op, [x], [total], list(groups.values()), is_local=True)
    builder.post_process_allreduce_result(program_axes=axes, is_async=asynchronous)
    if dtype is None or element_type(dtype) is x.element:
        return total
    result = ndarray(x.shape, dtype, x.buffer)
    isa.tensor_copy(result, total)
    return result


def device_print(print_prefix: str, tensor: View) -> None:
    """Print a tensor on the device: nothing is printed here, a result can be looked at."""


class NKIObject:
    """What kernels keep their settings in: attributes by keyword, equal where all attributes are."""

    def __init__(self, **kwargs: Any) -> None:
        for key, given in kwargs.items():
            setattr(self, key, given)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]
