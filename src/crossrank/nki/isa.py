"""``nki.isa``: the instructions of the engines, destination first.

What they compute is in ``crossrank.instr.compute``; here are their signatures, defaults and limits. Each returns a
handle of what it inserted.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, ParamSpec, TypeVar

from crossrank.errors import InputError, ask
from crossrank.instr.compute import COMPUTATIONS
from crossrank.instr.instructions import Instruction
from crossrank.instr.kinds import Space
from crossrank.instr.tensors import Register, View
from crossrank.instr.trace import current, tracing
from crossrank.nki import constants as constants
from crossrank.nki import limits
from crossrank.nki.constants import dge_mode as dge_mode
from crossrank.nki.constants import dma_engine as dma_engine
from crossrank.nki.constants import engine as engine
from crossrank.nki.constants import gpsimd_engine as gpsimd_engine
from crossrank.nki.constants import matmul_perf_mode as matmul_perf_mode
from crossrank.nki.constants import nc_version as nc_version
from crossrank.nki.constants import oob_mode as oob_mode
from crossrank.nki.constants import reduce_cmd as reduce_cmd
from crossrank.nki.constants import scalar_engine as scalar_engine
from crossrank.nki.constants import tensor_engine as tensor_engine
from crossrank.nki.constants import unknown_engine as unknown_engine
from crossrank.nki.constants import vector_engine as vector_engine
from crossrank.nki.kernel import ARCHITECTURES
from crossrank.nki.limits import NkiValidationError as NkiValidationError
from crossrank.nki.operators import Operator, value
from crossrank.nki.state import NkiInstruction, is_documented, state


def get_nc_version() -> nc_version:
    """The generation that a kernel is traced for; outside of kernels what the environment says, else the newest."""
    if tracing():
        return nc_version(current().arch // 10)
    target = os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE", "")
    return nc_version(ARCHITECTURES.get(target, 40) // 10)


class VirtualRegister(Register):
    """A register that instructions can write anew."""


P = ParamSpec("P")
R = TypeVar("R")


def instruction(function: Callable[P, R]) -> Callable[P, R]:
    """Prepares the operands of an instruction.

    What must be a tensor and is none is refused. Engines get their tiles with the partitions as the first dimension,
    also where an index dropped them; DMA queues count elements, and take tensors as they are.
    """
    parameters = inspect.signature(function).parameters
    names, tensors = list(parameters), {n for n, p in parameters.items() if p.annotation in ("View", "View | None")}
    is_dma = function.__name__.startswith("dma_")

    def operand(name: str, given: Any) -> Any:
        if name in tensors and not isinstance(given, View | None):
            raise InputError(f"{function.__name__} {name} must be a tensor, not {type(given).__name__}")
        return given if is_dma or not isinstance(given, View) else _with_partitions(given)

    @functools.wraps(function)
    def prepared(*args: P.args, **kwargs: P.kwargs) -> R:
        positional = [operand(name, given) for name, given in zip(names, args, strict=False)]
        keywords = {name: operand(name, given) for name, given in kwargs.items()}
        return function(*positional, *args[len(names) :], **keywords)  # type: ignore[arg-type]

    return prepared


def _with_partitions(view: View) -> View:
    """A tile on chip whose partitions are its first dimension: one of them, where an index chose it."""
    if view.buffer.is_hbm or view.index is not None or not view.tensor.type.shape:
        return view
    row = math.prod(view.tensor.type.shape[1:]) * view.tensor.type.dtype.itemsize // view.element.itemsize
    moving = [stride for stride, extent in view.pattern.dims if extent != 1]
    return view if not moving or view.shape[0] == 1 or moving[0] in (0, row) else view.expand_dim(0)


def _handle(inserted: Instruction) -> NkiInstruction:
    return NkiInstruction.of(inserted)


def _compute(
    function: str, outs: Sequence[View], name: str | None, on: engine = engine.unknown, **given: Any
) -> NkiInstruction:
    """Insert a computation: tensors among its ins are operands, all else are parameters; defaults are not written."""
    found = COMPUTATIONS[function]
    ins: list[View] = []
    tensors: list[str] = []
    params: dict[str, Any] = {}
    for declared in found.ins:
        key = declared.rstrip("*")
        operand = given.pop(key, None)
        if isinstance(operand, View) or declared.endswith("*"):
            views = list(operand) if declared.endswith("*") else [operand]
            ins += views
            tensors.append(key)
        elif operand is not None:
            params[key] = operand
    if tensors != [key.rstrip("*") for key in found.ins]:
        params["tensors"] = tuple(tensors)
    params |= {k: v for k, v in given.items() if k not in found.hints and v is not None}
    written: dict[str, Any] = {}
    for key, parameter in params.items():
        word = parameter.name if isinstance(parameter, Enum) else value(parameter)
        if isinstance(word, Register):
            raise InputError(f"{function} {key} is a register", "store it to a tile by nisa.register_store")
        if key == "tensors" or key not in found.defaults or word != found.defaults[key]:
            written[key] = word
    inserted = current().compute(function, outs, ins, engine=on.value, name=name, **written)
    state().note_written([v for v in outs if v.buffer is Space.PSUM])
    return _handle(inserted)


def _on_chip(function: str, **views: Any) -> None:
    """All that are tensors lie on chip."""
    limits.on_chip(function, **{name: view for name, view in views.items() if isinstance(view, View)})


def _outs(*views: View | None) -> list[View]:
    return [v for v in views if v is not None]


def _skipping(view: View, mode: oob_mode) -> View:
    return replace(view, skip_outside=True) if mode is oob_mode.skip and view.index is not None else view


# DMA


@instruction
def dma_copy(
    dst: View,
    src: View,
    priority: int | Operator | None = None,
    oob_mode: oob_mode = oob_mode.error,
    dge_mode: dge_mode = dge_mode.unknown,
    engine: engine = engine.unknown,
    name: str | None = None,
    dst_rmw_op: Operator | None = None,
    unique_indices: bool = True,
) -> NkiInstruction:
    """Copy as many elements; where the types differ, by way of f32. ``dst_rmw_op=nl.add`` (older kernels) adds."""
    limits.dma("dma_copy", dst=dst, src=src)
    dst, src = _skipping(dst, oob_mode), _skipping(src, oob_mode)
    if isinstance(priority, Operator):  # the third argument of older kernels
        priority, dst_rmw_op = None, priority
    if dst_rmw_op is not None:
        return dma_compute(dst, [dst, src], dst_rmw_op, None, unique_indices, oob_mode, name)
    return _handle(current().dma_copy(dst, src, priority, name))


@instruction
def dma_transpose(
    dst: View,
    src: View,
    axes: Sequence[int] | None = None,
    priority: int | None = None,
    dge_mode: dge_mode = dge_mode.unknown,
    oob_mode: oob_mode = oob_mode.error,
    name: str | None = None,
) -> NkiInstruction:
    """Transpose: of two dimensions (1, 0), of three (2, 1, 0), of four (3, 1, 2, 0)."""
    limits.dma("dma_transpose", dst=dst, src=src)
    limits.same_type("dma_transpose", dst=dst, src=src)
    return _compute("dma_transpose", [_skipping(dst, oob_mode)], name, src=_skipping(src, oob_mode), axes=axes)


@instruction
def dma_compute(
    dst: View,
    srcs: Sequence[View],
    reduce_op: Any,
    scales: Any = None,
    unique_indices: bool = True,
    oob_mode: oob_mode = oob_mode.error,
    name: str | None = None,
) -> NkiInstruction:
    """Sum ``srcs``; with an indirect operand, two of them, it adds to the rows that are found."""
    if isinstance(scales, Operator):  # the order of older kernels
        reduce_op, scales = scales, reduce_op
    views = list(srcs)
    ask(all(isinstance(v, View) for v in views), "dma_compute srcs must be a list of tensors")
    limits.dma("dma_compute", dst=dst, **{f"srcs[{n}]": v for n, v in enumerate(views)})
    limits.ask(len(views) <= limits.DMA_SOURCES, f"dma_compute has {len(views)} srcs, and takes {limits.DMA_SOURCES}")
    if is_documented():
        ask(value(reduce_op) == "add", f"dma_compute reduces by nl.add only, not {reduce_op}")
        ask(all(s == 1.0 for s in scales or ()), "dma_compute takes scales of 1.0 only")
    if any(v.index is not None for v in (dst, *views)):
        ask(len(views) == 2, f"dma_compute with an indirect operand takes two srcs, not {len(views)}")
        ask(unique_indices, "dma_compute with an indirect operand needs unique_indices=True")
    return _compute(
        "dma_compute",
        [_skipping(dst, oob_mode)],
        name,
        srcs=[_skipping(v, oob_mode) for v in views],
        reduce_op=reduce_op,
        scales=scales or None,
    )


# The tensor engine


@instruction
def nc_matmul(
    dst: View,
    stationary: View,
    moving: View,
    is_stationary_onezero: bool = False,
    is_moving_onezero: bool = False,
    is_transpose: bool = False,
    accumulate: bool | None = None,
    tile_position: Sequence[int] = (),
    tile_size: Sequence[int] = (),
    perf_mode: matmul_perf_mode = matmul_perf_mode.none,
    name: str | None = None,
) -> NkiInstruction:
    """``stationary.T @ moving`` into PSUM.

    ``accumulate``: on top of what is there, or not; by default the first write to elements of a PSUM tensor since it
    was made overwrites them, and later ones accumulate.
    """
    rows = 2 if perf_mode is matmul_perf_mode.double_row else 1
    limits.matmul(dst, stationary, moving, current().arch, rows)
    return _compute(
        "nc_matmul",
        [dst],
        name,
        stationary=stationary,
        moving=moving,
        is_transpose=is_transpose,
        accumulate=state().is_written(dst) if accumulate is None else bool(accumulate),
        perf_mode=perf_mode,
    )


@instruction
def nc_transpose(dst: View, data: View, engine: engine = engine.unknown, name: str | None = None) -> NkiInstruction:
    """Exchange the partitions and the free dimensions, taken as one."""
    limits.transpose(dst, data, _transposing(dst, data, engine))
    return _compute("nc_transpose", [dst], name, engine, data=data)


def _transposing(dst: View, data: View, on: engine) -> str:
    """The engine that transposes: that one, or the one that can."""
    if on is engine.unknown and (dst.buffer is not Space.PSUM or data.buffer is not Space.SBUF):
        return "vector"
    return str(on.value)


# The vector, scalar and GPSIMD engines


@instruction
def tensor_copy(dst: View, src: View, engine: engine = engine.unknown, name: str | None = None) -> NkiInstruction:
    """Copy, partition by partition."""
    _on_chip("tensor_copy", dst=dst, src=src)
    return _compute("tensor_copy", [dst], name, engine, src=src)


@instruction
def tensor_copy_predicated(
    dst: View, src: Any, predicate: View, reverse_pred: bool = False, name: str | None = None
) -> NkiInstruction:
    """Copy a tile or a number where the predicate is not 0."""
    _on_chip("tensor_copy_predicated", dst=dst, src=src, predicate=predicate)
    return _compute(
        "tensor_copy_predicated", [dst], name, src=src, predicate=predicate, reverse_pred=bool(reverse_pred)
    )


@instruction
def memset(dst: View, value: Any, engine: engine = engine.unknown, name: str | None = None) -> NkiInstruction:
    """Write one number everywhere."""
    _on_chip("memset", dst=dst)
    return _compute("memset", [dst], name, engine, value=value)


@instruction
def tensor_tensor(
    dst: View, data1: View, data2: View, op: Any, engine: engine = engine.unknown, name: str | None = None
) -> NkiInstruction:
    """``data1 op data2``."""
    _on_chip("tensor_tensor", dst=dst, data1=data1, data2=data2)
    both = data1.buffer is Space.PSUM and data2.buffer is Space.PSUM
    limits.ask(not both, "tensor_tensor data1 and data2 may not both lie in psum", "copy one of them to SBUF")
    return _compute("tensor_tensor", [dst], name, engine, data1=data1, data2=data2, op=op)


@instruction
def tensor_scalar(
    dst: View,
    data: View,
    op0: Any,
    operand0: Any,
    reverse0: bool = False,
    op1: Any = None,
    operand1: Any = None,
    reverse1: bool = False,
    engine: engine = engine.unknown,
    name: str | None = None,
) -> NkiInstruction:
    """``(data op0 operand0) op1 operand1``; an operand is a number, or has one for each partition."""
    _on_chip("tensor_scalar", dst=dst, data=data, operand0=operand0, operand1=operand1)
    return _compute(
        "tensor_scalar",
        [dst],
        name,
        engine,
        data=data,
        op0=op0,
        operand0=operand0,
        reverse0=reverse0,
        op1=op1,
        operand1=operand1,
        reverse1=reverse1,
    )


@instruction
def scalar_tensor_tensor(
    dst: View,
    data: View,
    op0: Any,
    operand0: Any,
    op1: Any,
    operand1: View,
    reverse0: bool = False,
    reverse1: bool = False,
    name: str | None = None,
) -> NkiInstruction:
    """``(data op0 operand0) op1 operand1``; ``operand1`` is a tile like ``data``."""
    _on_chip("scalar_tensor_tensor", dst=dst, data=data, operand0=operand0, operand1=operand1)
    return _compute(
        "scalar_tensor_tensor",
        [dst],
        name,
        data=data,
        op0=op0,
        operand0=operand0,
        op1=op1,
        operand1=operand1,
        reverse0=reverse0,
        reverse1=reverse1,
    )


@instruction
def tensor_scalar_reduce(
    dst: View,
    data: View,
    op0: Any,
    operand0: Any,
    reduce_op: Any,
    reduce_res: View,
    reverse0: bool = False,
    reduce_cmd: reduce_cmd = reduce_cmd.reset_reduce,
    reduce_init: Any = None,
    name: str | None = None,
) -> NkiInstruction:
    """``data op0 operand0``, and its reduction along the free dimensions."""
    _on_chip("tensor_scalar_reduce", dst=dst, data=data, operand0=operand0, reduce_res=reduce_res)
    ask(reduce_init is None, "tensor_scalar_reduce takes no reduce_init here", "combine it with reduce_res afterwards")
    return _compute(
        "tensor_scalar_reduce",
        [dst, reduce_res],
        name,
        data=data,
        op0=op0,
        operand0=operand0,
        reduce_op=reduce_op,
        reverse0=reverse0,
        reduce_cmd=reduce_cmd,
    )


@instruction
def tensor_scalar_cumulative(
    dst: View,
    src: View,
    op0: Any,
    op1: Any,
    imm0: Any,
    imm1: Any = None,
    reduce_cmd: reduce_cmd = reduce_cmd.reset_reduce,
    name: str | None = None,
) -> NkiInstruction:
    """Element i of a partition is ``(src[i] op0 imm0) op1 element i-1``; ``load_reduce`` begins with ``imm1``."""
    _on_chip("tensor_scalar_cumulative", dst=dst, src=src, imm0=imm0, imm1=imm1)
    return _compute(
        "tensor_scalar_cumulative", [dst], name, src=src, op0=op0, op1=op1, imm0=imm0, imm1=imm1, reduce_cmd=reduce_cmd
    )


@instruction
def tensor_tensor_scan(
    dst: View,
    data0: View,
    data1: View,
    initial: Any,
    op0: Any,
    op1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
    name: str | None = None,
) -> NkiInstruction:
    """Element i of a partition is ``(data0[i] op0 element i-1) op1 data1[i]``."""
    _on_chip("tensor_tensor_scan", dst=dst, data0=data0, data1=data1, initial=initial)
    return _compute(
        "tensor_tensor_scan",
        [dst],
        name,
        data0=data0,
        data1=data1,
        initial=initial,
        op0=op0,
        op1=op1,
        reverse0=reverse0,
        reverse1=reverse1,
    )


@instruction
def tensor_reduce(
    dst: View,
    op: Any,
    data: View,
    axis: int | Sequence[int],
    negate: bool = False,
    keepdims: bool = False,
    name: str | None = None,
) -> NkiInstruction:
    """Reduce the last free dimensions, those of ``axis``."""
    _on_chip("tensor_reduce", dst=dst, data=data)
    return _compute("tensor_reduce", [dst], name, data=data, op=op, axis=axis, negate=negate, keepdims=keepdims)


@instruction
def tensor_partition_reduce(dst: View, op: Any, data: View, name: str | None = None) -> NkiInstruction:
    """Reduce the partitions to one."""
    _on_chip("tensor_partition_reduce", dst=dst, data=data)
    return _compute("tensor_partition_reduce", [dst], name, data=data, op=op)


@instruction
def activation(
    dst: View,
    op: Any,
    data: View,
    bias: Any = None,
    scale: Any = 1.0,
    reduce_op: Any = None,
    reduce_res: View | None = None,
    reduce_cmd: reduce_cmd = reduce_cmd.idle,
    name: str | None = None,
) -> NkiInstruction:
    """``op(data * scale + bias)``, and its reduction along the free dimensions where ``reduce_res`` is given."""
    _on_chip("activation", dst=dst, data=data, bias=bias, scale=scale, reduce_res=reduce_res)
    return _compute(
        "activation",
        _outs(dst, reduce_res),
        name,
        data=data,
        op=op,
        bias=bias,
        scale=scale,
        reduce_op=reduce_op,
        reduce_cmd=reduce_cmd,
    )


@instruction
def activation_reduce(
    dst: View,
    op: Any,
    data: View,
    reduce_op: Any,
    reduce_res: View,
    bias: Any = None,
    scale: Any = 1.0,
    name: str | None = None,
) -> NkiInstruction:
    """``activation`` with a reduction."""
    _on_chip("activation_reduce", dst=dst, data=data, bias=bias, scale=scale, reduce_res=reduce_res)
    return _compute(
        "activation_reduce", [dst, reduce_res], name, data=data, op=op, bias=bias, scale=scale, reduce_op=reduce_op
    )


@instruction
def reciprocal(dst: View, data: View, name: str | None = None) -> NkiInstruction:
    """``1 / data``."""
    _on_chip("reciprocal", dst=dst, data=data)
    return _compute("reciprocal", [dst], name, data=data)


@instruction
def select_reduce(
    dst: View,
    predicate: View,
    on_true: View,
    on_false: Any,
    reduce_res: View | None = None,
    reduce_cmd: reduce_cmd = reduce_cmd.idle,
    reduce_op: Any = "maximum",
    reverse_pred: bool = False,
    name: str | None = None,
) -> NkiInstruction:
    """``on_true`` where the predicate is not 0, else ``on_false``; and its reduction where ``reduce_res`` is given."""
    _on_chip("select_reduce", dst=dst, predicate=predicate, on_true=on_true, on_false=on_false, reduce_res=reduce_res)
    return _compute(
        "select_reduce",
        _outs(dst, reduce_res),
        name,
        predicate=predicate,
        on_true=on_true,
        on_false=on_false,
        reduce_cmd=reduce_cmd,
        reduce_op=reduce_op,
        reverse_pred=reverse_pred,
    )


@instruction
def range_select(
    dst: View,
    on_true_tile: View,
    comp_op0: Any,
    comp_op1: Any,
    bound0: View,
    bound1: View,
    reduce_cmd: reduce_cmd = reduce_cmd.reset_reduce,
    reduce_res: View | None = None,
    reduce_op: Any = "maximum",
    range_start: int = 0,
    on_false_value: float = float.fromhex("-0x1.fffffep+127"),
    name: str | None = None,
) -> NkiInstruction:
    """Elements whose place in the partition compares true with both bounds, else ``on_false_value``."""
    _on_chip("range_select", dst=dst, on_true_tile=on_true_tile, bound0=bound0, bound1=bound1, reduce_res=reduce_res)
    return _compute(
        "range_select",
        _outs(dst, reduce_res),
        name,
        on_true_tile=on_true_tile,
        comp_op0=comp_op0,
        comp_op1=comp_op1,
        bound0=bound0,
        bound1=bound1,
        reduce_cmd=reduce_cmd,
        reduce_op=reduce_op,
        range_start=range_start,
        on_false_value=on_false_value,
    )


@instruction
def iota(
    dst: View,
    pattern: Sequence[Sequence[int]],
    offset: int = 0,
    channel_multiplier: int = 0,
    name: str | None = None,
) -> NkiInstruction:
    """``offset + partition * channel_multiplier + sum of index * step``; ``pattern`` has ``[step, number]``."""
    _on_chip("iota", dst=dst)
    return _compute("iota", [dst], name, pattern=pattern, offset=offset, channel_multiplier=channel_multiplier)


@instruction
def affine_select(
    dst: View,
    pattern: Sequence[Sequence[int]],
    channel_multiplier: int,
    on_true_tile: View,
    on_false_value: float,
    cmp_op: Any = "equal",
    offset: int = 0,
    name: str | None = None,
) -> NkiInstruction:
    """Elements whose value of ``iota`` compares true with 0, else ``on_false_value``."""
    _on_chip("affine_select", dst=dst, on_true_tile=on_true_tile)
    return _compute(
        "affine_select",
        [dst],
        name,
        on_true_tile=on_true_tile,
        pattern=pattern,
        channel_multiplier=channel_multiplier,
        on_false_value=on_false_value,
        cmp_op=cmp_op,
        offset=offset,
    )


@instruction
def max8(dst: View, src: View, name: str | None = None) -> NkiInstruction:
    """The 8 largest values of a partition, in descending order."""
    _on_chip("max8", dst=dst)
    limits.searched("max8", src=src)
    return _compute("max8", [dst], name, src=src)


@instruction
def nc_find_index8(dst: View, data: View, vals: View, name: str | None = None) -> NkiInstruction:
    """Where each of 8 values stands in its partition; all ones where it does not. Equal values: successive places."""
    _on_chip("nc_find_index8", dst=dst, vals=vals)
    limits.searched("nc_find_index8", data=data)
    limits.ask(dst.element.name in ("u16", "u32"), f"nc_find_index8 dst must be of uint16 or uint32, not {dst.element}")
    return _compute("nc_find_index8", [dst], name, data=data, vals=vals)


@instruction
def nc_match_replace8(
    dst: View, data: View, vals: View, imm: float, dst_idx: View | None = None, name: str | None = None
) -> NkiInstruction:
    """``data`` with ``imm`` in the place of what ``nc_find_index8`` finds, and where that was."""
    _on_chip("nc_match_replace8", dst=dst, vals=vals, dst_idx=dst_idx)
    limits.searched("nc_match_replace8", data=data)
    return _compute("nc_match_replace8", _outs(dst, dst_idx), name, data=data, vals=vals, imm=imm)


@instruction
def nonzero_with_count(
    dst: View, src: View, index_offset: int = 0, padding_val: int = -1, name: str | None = None
) -> NkiInstruction:
    """Where the first of each 16 partitions is not 0, then padding, and last how many these are."""
    _on_chip("nonzero_with_count", dst=dst, src=src)
    limits.ask(dst.element.name == "s32", f"nonzero_with_count dst must be of int32, not {dst.element}")
    return _compute("nonzero_with_count", [dst], name, src=src, index_offset=index_offset, padding_val=padding_val)


@instruction
def nc_stream_shuffle(dst: View, src: View, shuffle_mask: Sequence[int], name: str | None = None) -> NkiInstruction:
    """Within 32 partitions, partition i gets partition ``shuffle_mask[i]``; with 255 it stays."""
    _on_chip("nc_stream_shuffle", dst=dst, src=src)
    limits.same_type("nc_stream_shuffle", dst=dst, src=src)
    return _compute("nc_stream_shuffle", [dst], name, src=src, shuffle_mask=shuffle_mask)


@instruction
def nc_n_gather(dst: View, data: View, indices: View, name: str | None = None) -> NkiInstruction:
    """In each partition the elements at ``indices``."""
    _on_chip("nc_n_gather", dst=dst, data=data, indices=indices)
    return _compute("nc_n_gather", [dst], name, data=data, indices=indices)


@instruction
def local_gather(
    dst: View,
    src_buffer: View,
    index: View,
    num_elem_per_idx: int = 1,
    num_valid_indices: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """In each 16 partitions, all gather the elements at the indices that these 16 have."""
    _on_chip("local_gather", dst=dst, src_buffer=src_buffer, index=index)
    return _compute(
        "local_gather",
        [dst],
        name,
        src_buffer=src_buffer,
        index=index,
        num_elem_per_idx=num_elem_per_idx,
        num_valid_indices=num_valid_indices,
    )


@instruction
def bn_stats(dst: View, data: View, name: str | None = None) -> NkiInstruction:
    """Count, mean and variance times count, of the even and of the odd places of a partition."""
    _on_chip("bn_stats", dst=dst, data=data)
    return _compute("bn_stats", [dst], name, data=data)


@instruction
def bn_aggr(dst: View, data: View, name: str | None = None) -> NkiInstruction:
    """Mean and variance of what ``bn_stats`` counted."""
    _on_chip("bn_aggr", dst=dst, data=data)
    return _compute("bn_aggr", [dst], name, data=data)


# Cores of a rank


@instruction
def sendrecv(
    src: View,
    dst: View,
    send_to_rank: int,
    recv_from_rank: int,
    pipe_id: int,
    dma_engine: dma_engine = dma_engine.dma,
    name: str | None = None,
) -> NkiInstruction:
    """Exchange tiles with another core of the rank; note that the source comes first here."""
    limits.lies_in("sendrecv", Space.SBUF, src=src, dst=dst)
    limits.same_type("sendrecv", src=src, dst=dst)
    ask(src.shape == dst.shape, f"sendrecv src of shape {list(src.shape)} and dst of {list(dst.shape)} differ")
    use_gpsimd = dma_engine.name == "gpsimd_dma"
    if is_documented():
        ask({send_to_rank, recv_from_rank} <= {0, 1}, "sendrecv is between the ranks 0 and 1 of a pair of cores")
        size, most = limits.free_size(src) * src.element.itemsize, 256 * src.element.itemsize
        ask(not use_gpsimd or size <= most, f"sendrecv by GPSIMD takes {most} bytes a partition, not {size}")
    found = current().sendrecv(dst, src, send_to_rank, recv_from_rank, pipe_id, use_gpsimd, name=name)
    assert found is not None
    return _handle(found)


@instruction
def core_barrier(
    data: View, cores: int | Sequence[int], engine: engine = engine.gpsimd, name: str | None = None
) -> NkiInstruction:
    """Wait until these cores of the rank have come here, so that what they wrote to ``data`` is seen."""
    cores = [cores] if isinstance(cores, int) else cores  # ``(0)`` is how some kernels write one core
    if is_documented():
        ask(data.buffer is Space.SHARED_HBM, f"core_barrier data must lie in shared_hbm, not in {data.buffer}")
        ask(set(cores) <= {0, 1}, f"core_barrier is for the cores 0 and 1, not {list(cores)}")
    return _handle(current().core_barrier(data, cores, engine.value or "gpsimd", name))


# Registers


def register_alloc(x: int | Register | View | None = None) -> VirtualRegister:
    """A new register, of that value; 0 where none is given."""
    return VirtualRegister(current(), _moved(0 if x is None else x).value)


def register_move(dst: VirtualRegister, src: int | Register) -> None:
    """Write a number or another register's value to a register."""
    _set(dst, _moved(src))


@instruction
def register_load(dst: VirtualRegister, src: View) -> None:
    """Write a tensor's one element to a register."""
    _set(dst, current().register_load(src))


@instruction
def register_store(dst: View, src: Register) -> NkiInstruction:
    """Write a register's value to a tensor of one element."""
    return _handle(current().register_store(dst, src))


def _set(dst: VirtualRegister, new: Register) -> None:
    if not current().is_of_this_turn(dst):
        raise InputError(
            "a register made before a loop is written in it, and would not be kept from turn to turn",
            "keep it in a tile, by nisa.register_store and nisa.register_load",
        )
    dst.value = new.value


def _moved(source: int | Register | View) -> Register:
    if isinstance(source, View):
        return current().register_load(source)
    return current().register_alu("move", source)
