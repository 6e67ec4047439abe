"""What must hold of a program and no op sees for itself: what is used was made before, and blocks end as they must."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from crossrank.program.dialect.calls import CommDomainScopeOp, ScopeYieldOp

END: dict[type[Operation], type[Operation]] = {
    FuncOp: ReturnOp,
    scf.IfOp: scf.YieldOp,
    scf.ForOp: scf.YieldOp,
    CommDomainScopeOp: ScopeYieldOp,
}
"""The ops that have blocks, and how those end."""

Fault = tuple[Operation, str]


def faults(module: ModuleOp) -> Iterator[Fault]:
    """Where a program is none, and why."""
    for op in module.ops:
        if isinstance(op, FuncOp):
            yield from _blocks(op, set())
        else:
            yield op, f"{op.name} stands outside of a function"


def _blocks(op: Operation, there: set[SSAValue]) -> Iterator[Fault]:
    """The faults in the blocks of an op; ``there`` are the values that they may use."""
    for region in op.regions:
        if type(op) not in END:
            yield op, f"{op.name} is no part of programs"
        elif len(region.blocks) > 1:
            yield op, f"{op.name} has a region of {len(region.blocks)} blocks, and may have one"
        elif not region.blocks and op.results:
            yield op, f"{op.name} has results, and an arm that gives none"
        else:
            for block in region.blocks:
                yield from _block(op, block, there)


def _block(parent: Operation, block: Block, there: set[SSAValue]) -> Iterator[Fault]:
    made: list[SSAValue] = [*block.args]
    there.update(made)
    for op in block.ops:
        for n, operand in enumerate(op.operands):
            if operand not in there:
                yield op, f"operand {n} of {op.name} is used before it is made"
        yield from _blocks(op, there)
        made += op.results
        there.update(op.results)
    end, wanted = block.last_op, _ended_with(parent)
    if not isinstance(end, END[type(parent)]):
        yield end or parent, f"a block of {parent.name} ends with {END[type(parent)].name}"
    elif [v.type for v in end.operands] != list(wanted):
        yield end, f"{end.name} gives other types than {parent.name} has results"
    there.difference_update(made)


def _ended_with(parent: Operation) -> Sequence[Attribute]:
    return parent.function_type.outputs.data if isinstance(parent, FuncOp) else parent.result_types
