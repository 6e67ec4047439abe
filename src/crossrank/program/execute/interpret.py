"""A body as closures: compiled once, run at each call.

What an op means is given by a table, so that HOST and CHIP bodies differ in nothing but their tables. A value has a
number in the frame of its function; an op becomes one closure over the numbers of its operands and results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from operator import itemgetter
from typing import Any, cast

from xdsl.dialects import arith, func, scf
from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import Block, Operation, SSAValue

from crossrank.errors import InputError
from crossrank.program.dialect.calls import CommDomainScopeOp, ScopeYieldOp
from crossrank.program.execute.failures import FAILURES, told
from crossrank.program.execute.scalars import ARITHMETIC, plain
from crossrank.program.program import Function, where

Frame = list[Any]
Step = Callable[[Frame], object]
Turn = Callable[[Any], None]
Meaning = Callable[[Any], Callable[..., Any]]
"""Of an op, what it does when it runs: a function of the state and of the operands' values, which gives the result (a
tuple, where there are several)."""

STATE = 0
"""Where a frame has what the body runs in."""


class Code:
    """A function's body, ready to run.

    Args:
        function: what to run.
        meanings: what its ops mean; arithmetic, loops, branches and scopes are known.
        turn: called with the state at each turn of a loop.

    Raises:
        InputError: an op has no meaning there.
    """

    def __init__(
        self, function: Function, meanings: Mapping[type[Operation], Meaning], turn: Turn = lambda state: None
    ) -> None:
        compiler = _Compiler(function, meanings, turn)
        for argument in function.body.args:
            compiler.number(argument)
        self._steps, self._returned = compiler.block(function.body)
        self._frame = compiler.frame

    def run(self, state: Any, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """What it returns, run in ``state``."""
        frame = self._frame.copy()
        frame[STATE : 1 + len(arguments)] = [state, *arguments]
        for step in self._steps:
            step(frame)
        return tuple(frame[i] for i in self._returned)


class _Compiler:
    """Numbers the values of a function, and makes closures of its ops.

    Attributes:
        frame: what a frame starts as: constants are there from the beginning.
    """

    def __init__(self, function: Function, meanings: Mapping[type[Operation], Meaning], turn: Turn) -> None:
        self.function = function
        self.turn = turn
        self.meanings = meanings
        self.frame: Frame = [None]
        self.numbers: dict[SSAValue, int] = {}

    def number(self, value: SSAValue, content: Any = None) -> int:
        """A new number, the next one, for a value."""
        self.numbers[value] = len(self.frame)
        self.frame.append(content)
        return self.numbers[value]

    def of(self, values: Sequence[SSAValue]) -> list[int]:
        return [self.numbers[v] for v in values]

    def block(self, block: Block) -> tuple[list[Step], list[int]]:
        """The steps of a block, and the numbers of what its terminator gives."""
        steps: list[Step] = []
        for op in block.ops:
            if isinstance(op, (func.ReturnOp, scf.YieldOp, ScopeYieldOp)):
                return steps, self.of(op.operands)
            if isinstance(op, arith.ConstantOp):
                value = cast(FloatAttr[Any] | IntegerAttr[Any], op.value).value.data
                self.number(op.result, plain(value, op.result.type))
            elif isinstance(op, scf.ForOp):
                steps.append(self.loop(op))
            elif isinstance(op, scf.IfOp):
                steps.append(self.branch(op))
            elif isinstance(op, CommDomainScopeOp):
                steps.append(self.scope(op))
            else:
                steps.append(self.leaf(op))
        return steps, []

    def meaning(self, op: Operation) -> Callable[..., Any]:
        for cls in type(op).__mro__:
            found = self.meanings.get(cls) or ARITHMETIC.get(cls)
            if found is not None:
                try:
                    return found(op)
                except FAILURES as failure:
                    raise told(op, failure) from None
        name = op.name.removeprefix("program.")
        raise InputError(
            f"{where(op)}{name} in function '{self.function.name}': no orchestrator does that",
            "it stands in kernels: write a function of type InCore for it, and call that",
        )

    def leaf(self, op: Operation) -> Step:
        do = self.meaning(op)
        operands, first, count = self.of(op.operands), len(self.frame), len(op.results)
        for result in op.results:
            self.number(result)
        values = itemgetter(STATE, *operands) if operands else lambda frame: (frame[STATE],)

        def one(frame: Frame) -> None:
            try:
                frame[first] = do(*values(frame))
            except FAILURES as failure:
                raise told(op, failure) from None

        def several(frame: Frame) -> None:
            try:
                given = do(*values(frame))
            except FAILURES as failure:
                raise told(op, failure) from None
            if count:
                frame[first : first + count] = given

        return one if count == 1 else several

    def loop(self, op: scf.ForOp) -> Step:
        low, high, stride = self.of([op.lb, op.ub, op.step])
        begin = self.of(op.iter_args)
        induction, *carried = op.body.block.args
        at = self.number(induction)
        first = len(self.frame)
        for argument in carried:
            self.number(argument)
        steps, given = self.block(op.body.block)
        end = first + len(carried)
        result = len(self.frame)
        for value in op.results:
            self.number(value)
        turn = self.turn

        def step(frame: Frame) -> None:
            if frame[stride] <= 0:
                raise InputError(f"{where(op)}a loop's step is positive, and this is {frame[stride]}")
            frame[first:end] = [frame[i] for i in begin]
            for i in range(frame[low], frame[high], frame[stride]):
                turn(frame[STATE])
                frame[at] = i
                for inner in steps:
                    inner(frame)
                frame[first:end] = [frame[i] for i in given]
            frame[result : result + len(given)] = frame[first:end]

        return step

    def branch(self, op: scf.IfOp) -> Step:
        condition = self.numbers[op.cond]
        arms = [self.block(r.block) if r.blocks else ([], []) for r in (op.false_region, op.true_region)]
        result = len(self.frame)
        for value in op.results:
            self.number(value)
        end = len(self.frame)

        def step(frame: Frame) -> None:
            steps, given = arms[bool(frame[condition])]
            for inner in steps:
                inner(frame)
            frame[result:end] = [frame[i] for i in given]

        return step

    def scope(self, op: CommDomainScopeOp) -> Step:
        enter = cast(Callable[[Any], AbstractContextManager[Any]], self.meaning(op))
        steps, given = self.block(op.body.block)
        result = len(self.frame)
        for value in op.results:
            self.number(value)
        end = len(self.frame)

        def step(frame: Frame) -> None:
            try:
                with enter(frame[STATE]):
                    for inner in steps:
                        inner(frame)
            except FAILURES as failure:
                raise told(op, failure) from None
            frame[result:end] = [frame[i] for i in given]

        return step
