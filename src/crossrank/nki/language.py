"""``nki.language``: types, memory, loops, the launch grid, operators; and tensors made, loaded and stored.

What computes a tile of tiles is in `tiles`, and in the call of an operator.

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
from crossrank.nki.operators import Extremum, Operator
from crossrank.nki.tiles import all as all
from crossrank.nki.tiles import broadcast_to as broadcast_to
from crossrank.nki.tiles import expand_dims as expand_dims
from crossrank.nki.tiles import gather_flattened as gather_flattened
from crossrank.nki.tiles import load_transpose2d as load_transpose2d
from crossrank.nki.tiles import matmul as matmul
from crossrank.nki.tiles import mean as mean
from crossrank.nki.tiles import prod as prod
from crossrank.nki.tiles import rms_norm as rms_norm
from crossrank.nki.tiles import softmax as softmax
from crossrank.nki.tiles import sum as sum
from crossrank.nki.tiles import transpose as transpose
from crossrank.nki.tiles import var as var
from crossrank.nki.tiles import where as where

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


class _TileSize:
    """Sizes that the hardware sets: elements, and bytes; those of SBUF are the architecture's."""

    pmax = PARTITIONS
    psum_fmax = 512
    psum_bank_fmax = 512
    psum_fmax_bytes = 2048
    psum_num_banks = limits.PSUM_BYTES // 2048
    gemm_stationary_fmax = limits.STATIONARY_FREE
    gemm_moving_fmax = limits.MOVING_FREE
    bn_stats_fmax = 512
    psum_min_align = 4
    sbuf_min_align = 1

    @property
    def sbuf_size_bytes(self) -> int:
        """All of SBUF."""
        return PARTITIONS * limits.SBUF_BYTES[isa.get_nc_version() * 10]

    @property
    def sbuf_fmax_bytes(self) -> int:
        """What a kernel can use of a partition."""
        return limits.SBUF_BYTES[isa.get_nc_version() * 10] - limits.SBUF_RESERVED

    @property
    def sbuf_fmax(self) -> int:
        """The same in elements of float32."""
        return self.sbuf_fmax_bytes // 4

    total_available_sbuf_size = sbuf_fmax_bytes


tile_size = _TileSize()


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
max = Extremum("max", True)
min = Extremum("min", True)
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
average = Operator("average", True)
fmod = Operator("fmod", True)
mod = Operator("mod", True)

abs = Operator("abs")
arctan = Operator("arctan")
ceil = Operator("ceil")
copy = Operator("copy")
cos = Operator("cos")
erf = Operator("erf")
erf_dx = Operator("erf_dx")
exp = Operator("exp")
floor = Operator("floor")
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
negative = Operator("negative")
prelu = Operator("prelu")
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
tan = Operator("tan")
tanh = Operator("tanh")
trunc = Operator("trunc")


# Tensors


def ndarray(shape: Sequence[int], dtype: Any, buffer: Space | None = None, name: str = "", address: Any = None) -> View:
    """A new tensor, in SBUF unless ``buffer`` says otherwise. It holds NaN (and all ones) until it is written.

    Shared HBM of one name is one tensor for all cores of a rank. ``address`` is for the vendor's allocator.
    """
    element, space = element_type(dtype), Space.SBUF if buffer is None else Space(buffer)
    extents = [int(n) for n in shape]
    limits.tensor_shape(extents, element.itemsize, space, current().arch)
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
    """A new tensor in HBM that holds the values of an array, or of the ``.npy`` file of that name."""
    values = np.load(constant) if isinstance(constant, str) else np.asarray(constant)
    tensor = ndarray(values.shape, values.dtype if dtype is None else dtype, Space.PRIVATE_HBM)
    numbers = values if values.dtype.kind in "iub" else values.astype(np.float64)
    current().compute("constant", [tensor], values=tuple(numbers.reshape(-1).tolist()))
    return tensor


def shared_identity_matrix(n: int, dtype: Any = np.uint8, dst: View | None = None) -> View:
    """The identity matrix of ``n`` rows, in SBUF; in ``dst`` where that is given."""
    matrix = ndarray((n, n), dtype) if dst is None else dst
    isa.memset(matrix, 1)
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


# Loops: unrolled, but for those that a register bounds


def _turns(start: int, stop: int | None, step: int) -> range:
    bounds = (0, start) if stop is None else (start, stop)
    if any(isinstance(b, Register) for b in (*bounds, step)):
        raise InputError("a register bounds a loop that is unrolled", "write nl.fori_loop or nl.while_loop")
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


def dynamic_range(
    start: int | Register, stop: int | Register | None = None, step: int = 1
) -> Iterator[isa.VirtualRegister]:
    """A loop whose variable is a register; where registers bound it, it runs on the device, and is traced once."""
    first, last = (0, start) if stop is None else (start, stop)
    if not isinstance(first, Register) and not isinstance(last, Register):
        yield from (isa.register_alloc(turn) for turn in _turns(first, last, step))
        return
    if not isinstance(step, int) or step < 1:
        raise InputError(f"the step of a loop is a positive number, not {step}")
    builder = current()
    counter = _counter(first)
    with builder.loop(lambda: builder.register_load(counter) < last):
        turn = builder.register_load(counter)
        yield isa.VirtualRegister(builder, turn.value)
        builder.register_store(counter, turn + step)


def fori_loop(
    lower: int | Register, upper: int | Register, body_fun: Callable[[isa.VirtualRegister], Any], step: int = 1
) -> None:
    """Call ``body_fun`` with a register for each turn."""
    for turn in dynamic_range(lower, upper, step):
        body_fun(turn)


def while_loop(init: Register, body_fun: Callable[[isa.VirtualRegister], Register]) -> None:
    """Call ``body_fun`` with a register as long as that is not 0, at first with ``init``; it returns the next one."""
    builder = current()
    condition = _counter(init)
    with builder.loop(lambda: builder.register_load(condition)) as register:
        following = body_fun(isa.VirtualRegister(builder, register.value))
        if not isinstance(following, Register):
            raise InputError(f"the body of a while_loop returns a register, not {type(following).__name__}")
        builder.register_store(condition, following)


def _counter(value: int | Register) -> View:
    """Where a loop keeps a register from turn to turn."""
    tile = ndarray((1, 1), int32)
    current().register_store(tile, current().register_alu("move", value))
    return tile


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
