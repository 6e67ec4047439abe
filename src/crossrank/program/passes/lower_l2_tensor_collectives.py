"""`lower-l2-tensor-collectives`: collectives of a chip function become tasks of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import SSAValue

from crossrank.errors import InputError
from crossrank.passes import option, register
from crossrank.program.analysis.bounds import Bounds
from crossrank.program.analysis.contiguity import loose_step
from crossrank.program.analysis.lineage import Lineage
from crossrank.program.analysis.provenance import check_operands
from crossrank.program.builtins import RING, SOURCE_RANKS, Variant, builtin_of, operands_of, ring_rows
from crossrank.program.dialect.collectives import (
    AllReduceOp,
    AllToAllVOp,
    BroadcastOp,
    CollectiveOp,
    IndexedAllToAllVOp,
)
from crossrank.program.dialect.tensors import known, shaped
from crossrank.program.passes.lowering.emitter import Emitter
from crossrank.program.passes.lowering.managed import launch
from crossrank.program.program import Function, Program, place, where
from crossrank.program.program_pass import ProgramPass
from crossrank.program.types import spelled
from crossrank.remarks import Remarks

SOURCE_OPS = (AllToAllVOp, IndexedAllToAllVOp)
SOURCE_DTYPES = ("f32", "s8")


@register
@dataclass(frozen=True)
class LowerL2TensorCollectives(ProgramPass):
    """Lowers collectives of chip functions to calls of kernels that come with crossrank: each is one task.

    Matches every collective in the body of a function that orchestrates a chip (Orchestration and Graph).

    Makes of it a call with the same operands of `__builtin_<collective>__<type>`, an AIV function that is added to the
    program once for each collective, reduce op and element type. Its attributes name the template of its source; its
    body gives the target back and is never compiled. A launch of B > 1 blocks has `core_num` B and `sync_start`: of an
    all-to-all-v among P ranks B is the `core_num` that was asked for, rounded down to a multiple of P once it is that
    many; of an all-reduce and an indexed exchange it is what was asked for. Where that is known only when it runs, so
    is B.

    Fails, with the place, where the operands are not provably packed, the signal is too small, the number of blocks
    cannot be, or a function of the author's has the name of a kernel; and where a collective is left over.
    """

    name: ClassVar[str] = "lower-l2-tensor-collectives"
    produces: ClassVar[tuple[str, ...]] = ("L2CollectivesLowered",)
    as_source: bool = option(
        False, "only what its source lowers: all-to-all-v and indexed, FP32 and INT8, a core_num known when compiled"
    )

    def rewrite(self, program: Program, remarks: Remarks) -> bool:
        """Check all, lower all, look for what is left."""
        lineage = Lineage(program)
        if not self.as_source:
            check_operands(program, lambda function: function.is_chip)
        found = [(f, op) for f, op in _collectives(program) if self._lowers(op)]
        for _, op in found:
            _check(op, lineage)
        for function, op in found:
            at, variant = place(op), Variant.of(op)
            e = Emitter(op.location)
            self._check_source(e, op, variant)
            call = launch(e, program, variant, operands_of(op), _core_num(e, op))
            result = call.returned[0]
            e.replace(op, result if result.type == op.results[0].type else op.returned)
            remarks.done(op.title, f"in {function.name}: a task of {variant.kernel}, {_blocks(call.core_num)}", at)
        for function, op in _collectives(program):
            raise InputError(
                f"{where(op)}{op.title} in function '{function.name}' was not lowered",
                "write it in a HOST orchestrator, or in a kernel (an InCore function)",
            )
        return bool(found)

    def _lowers(self, op: CollectiveOp) -> bool:
        if isinstance(op, AllReduceOp) and op.signal is None:
            return False
        return not self.as_source or isinstance(op, SOURCE_OPS)

    def _check_source(self, e: Emitter, op: CollectiveOp, variant: Variant) -> None:
        """The limits of the source."""
        if not self.as_source:
            return
        given = getattr(op, "core_num", None)
        e.ask(
            variant.element.name in SOURCE_DTYPES,
            f"managed {op.title} supports FP32 and INT8, got {spelled(variant.element)}",
        )
        ranks = shaped(operands_of(op)["signal"]).shape[0]
        e.ask(
            not isinstance(ranks, int) or ranks <= SOURCE_RANKS,
            f"managed {op.title} supports {SOURCE_RANKS} or fewer ranks, got {ranks}",
        )
        e.ask(
            given is None or isinstance(_number(op, given), int),
            f"CHIP {op.title} needs a compile-time core_num; a runtime core_num is not supported on this rail yet",
        )


def _collectives(program: Program) -> list[tuple[Function, CollectiveOp]]:
    """Those in functions that orchestrate a chip, each with its function."""
    chips = [f for f in program.functions if f.is_chip]
    return [(f, op) for f in chips for op in f.op.walk() if isinstance(op, CollectiveOp)]


def _check(op: CollectiveOp, lineage: Lineage) -> None:
    """The shape of the signal, the root; and that all operands are packed."""
    e = Emitter(op.location)
    builtin = builtin_of(op)
    signal = list(operands_of(op).values())[builtin.signal]
    shape = shaped(signal).shape
    if builtin is RING:
        _check_ring(e, op, signal)
    else:
        e.ask(
            len(shape) in (1, 2),
            f"CHIP {op.title} signal must be rank-1 [NR] or rank-2 [NR, signal_stride], got rank {len(shape)}",
        )
        ranks = shape[0]
        if isinstance(op, BroadcastOp) and isinstance(ranks, int):
            root = op.root.value.data
            e.ask(root < ranks, f"{op.title} root ({root}) must be a valid rank in [0, {ranks})")
    for name, operand in operands_of(op).items():
        step = loose_step(operand, lineage)
        e.ask(step is None, f"operand {name} is not provably packed: {step}", "pass a tensor of its own, or a window")


def _check_ring(e: Emitter, op: CollectiveOp, signal: SSAValue) -> None:
    """A row of cells for each round, and one more; one block."""
    title, shape = f'CHIP {op.title} mode="ring"', shaped(signal).shape
    e.ask(len(shape) == 2, f"{title} signal must be rank-2 [2*(NR-1) + 1, NR], got rank {len(shape)}")
    rows, ranks = shape
    if isinstance(ranks, int) and isinstance(rows, int):
        needed = ring_rows(ranks)
        e.ask(rows == needed, f"{title} signal shape[0] ({rows}) must equal 2*(NR-1) + 1 = {needed} for NR = {ranks}")
    given = getattr(op, "core_num", None)
    count = 1 if given is None else _number(op, given)
    e.ask(
        count == 1,
        f"{title} does not support core_num > 1, got core_num={count or 'a runtime value'}; use "
        'mode="mesh" for a multi-core AllReduce',
    )


def _core_num(e: Emitter, op: CollectiveOp) -> SSAValue | None:
    """The most blocks that it may have, as a constant where that is known; None: one."""
    given: SSAValue | None = None if builtin_of(op) is RING else getattr(op, "core_num", None)
    number = None if given is None else _number(op, given)
    return given if number is None else e.index(number)


def _number(op: CollectiveOp, count: SSAValue) -> int | None:
    """The number that a count of blocks always is; None: it is known only when it runs."""
    low, high = Bounds().of(count, op)
    return int(low) if low == high else None


def _blocks(core_num: SSAValue | None) -> str:
    """How many blocks a launch has, in words."""
    count = 1 if core_num is None else known(core_num)
    if count is None:
        return "as many blocks as it asks for when it runs"
    return f"{count} blocks" if count > 1 else "1 block"
