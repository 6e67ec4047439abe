"""What must hold of a program and no op of ours sees for itself.

What is used was made before, blocks end as they must, and functions say what they are in words that there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from xdsl.dialects import scf
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from crossrank.program.dialect.calls import CommDomainScopeOp, ScopeYieldOp
from crossrank.program.kinds import Direction, FunctionType, Level, Role

END: dict[type[Operation], type[Operation]] = {
    FuncOp: ReturnOp,
    scf.IfOp: scf.YieldOp,
    scf.ForOp: scf.YieldOp,
    CommDomainScopeOp: ScopeYieldOp,
}
"""The ops that have blocks, and how those end."""

SAID: dict[str, type[StrEnum]] = {"program.type": FunctionType, "program.level": Level, "program.role": Role}
"""What a function says of itself."""

MOST_NESTED = 100
"""Loops and branches that stand within one another: whoever walks them calls itself for each."""

Fault = tuple[Operation, str]


def faults(module: ModuleOp) -> Iterator[Fault]:
    """Where a program is none, and why."""
    for op in module.ops:
        if isinstance(op, FuncOp):
            yield from ((op, what) for what in _function(op))
            yield from _blocks(op, set())
        else:
            yield op, f"{op.name} stands outside of a function"


def _function(op: FuncOp) -> Iterator[str]:
    """What is wrong with what a function says of itself and of its parameters."""
    name = op.sym_name.data
    if not all(part.isidentifier() for part in name.split(".")):  # builtin.tensor.…: what the host dispatches
        yield f"'{name}' is no name of a function"
    yield from (f"function {name}: {what}" for key, kind in SAID.items() for what in _unsaid(op.attributes, key, kind))
    params = op.attributes.get("program.params", op.arg_attrs)
    names = set[str]()
    for attrs in params if isinstance(params, ArrayAttr) else ():
        said = attrs.data if isinstance(attrs, DictionaryAttr) else {}
        yield from (f"a parameter of {name}: {what}" for what in _unsaid(said, "program.direction", Direction))
        match said.get("program.name"):
            case StringAttr(data=text) if text in names:
                yield f"two parameters of {name} are called {text}"
            case StringAttr(data=text) if not text.isidentifier():
                yield f"'{text}' is no name of a parameter of {name}"
            case StringAttr(data=text):
                names.add(text)


def _unsaid(attributes: Mapping[str, Attribute], key: str, kind: type[StrEnum]) -> Iterator[str]:
    """A fault, where an attribute is there and is none of a kind."""
    if (said := attributes.get(key)) is not None and not (isinstance(said, StringAttr) and said.data in set(kind)):
        yield f"{key} is {said}, and can be {', '.join(kind)}"


def _blocks(op: Operation, there: set[SSAValue], depth: int = 0) -> Iterator[Fault]:
    """The faults in the blocks of an op; ``there`` are the values that they may use."""
    for region in op.regions:
        if depth > MOST_NESTED:
            yield op, f"more than {MOST_NESTED} loops and branches stand within one another"
        elif type(op) not in END:
            yield op, f"{op.name} is no part of programs"
        elif len(region.blocks) > 1:
            yield op, f"{op.name} has a region of {len(region.blocks)} blocks, and may have one"
        elif not region.blocks and op.results:
            yield op, f"{op.name} has results, and an arm that gives none"
        else:
            for block in region.blocks:
                yield from _block(op, block, there, depth)


def _block(parent: Operation, block: Block, there: set[SSAValue], depth: int) -> Iterator[Fault]:
    made: list[SSAValue] = [*block.args]
    there.update(made)
    for op in block.ops:
        for n, operand in enumerate(op.operands):
            if operand not in there:
                yield op, f"operand {n} of {op.name} is used before it is made"
        yield from _blocks(op, there, depth + 1)
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
