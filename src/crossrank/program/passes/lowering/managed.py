"""The launch that a collective of a HOST or a CHIP function becomes: a call of a kernel that comes with crossrank."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import SSAValue

from crossrank.program.builtins import Operand, Variant, builtin_kernel, width
from crossrank.program.dialect.calls import CallOp
from crossrank.program.dialect.tensors import ReshapeOp, known, shaped
from crossrank.program.dialect.windows import LaunchWidthOp
from crossrank.program.passes.lowering.chunks import flat
from crossrank.program.passes.lowering.emitter import Emitter, Index
from crossrank.program.program import Program


def launch(
    e: Emitter, program: Program, variant: Variant, operands: Mapping[str, SSAValue], core_num: SSAValue | None
) -> CallOp:
    """Emit the call of a variant's kernel, which becomes a function of the program where it is none yet.

    Args:
        e: emits it.
        program: gets the kernel.
        variant: which.
        operands: the tensors by the names of the kernel's parameters; of any number of dimensions.
        core_num: the most blocks that it may have; None: one.

    Raises:
        InputError: so many blocks cannot be.
    """
    kernel = builtin_kernel(program, variant)
    arguments = [as_matrix(e, operands[o.name], o) for o in variant.builtin.operands]
    signal = arguments[variant.builtin.signal]
    count = None if core_num is None else _width(e, variant, core_num, signal)
    if variant.root is not None:
        arguments.append(e.index(variant.root))
    returned = next(
        a for a, o in zip(arguments, variant.builtin.operands, strict=False) if o.name == variant.builtin.returned
    )
    alone = count is None or count == 1
    call = CallOp(
        kernel.name,
        arguments,
        [returned.type],
        core_num=None if alone or count is None else e.index(count),
        sync_start=not alone,
    )
    return e.insert(call)


def _width(e: Emitter, variant: Variant, core_num: SSAValue, signal: SSAValue) -> Index:
    """In how many blocks it is launched: a number where all is known."""
    limit, (ranks, stride), folds = known(core_num), shaped(signal).shape, variant.builtin.folds
    if limit is None or not isinstance(stride, int) or (folds and not isinstance(ranks, int)):
        return e.insert(LaunchWidthOp(core_num, signal, folds=folds)).result
    count = width(limit, ranks, stride, folds=folds)
    if isinstance(count, str):
        e.fail(count)
    return count


def as_matrix(e: Emitter, value: SSAValue, operand: Operand) -> SSAValue:
    """An operand of two dimensions: payload as one row, what has a cell for each rank as a column."""
    type = shaped(value)
    if len(type.shape) == 2:
        return value
    if operand.payload:
        return flat(e, value)[0]
    column = type.with_shape([type.shape[0], 1])
    return e.insert(ReshapeOp(value, e.indices([e.dim(value, 0), 1]), column)).result
