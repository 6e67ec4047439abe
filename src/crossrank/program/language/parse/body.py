"""The body of a function, and the functions that its scopes ``with pl.at(…)`` become."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import FileLineColLoc
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Block, BlockArgument, SSAValue

from crossrank.program.dialect.calls import CallOp
from crossrank.program.dialect.tensors import CreateTensorOp, shaped
from crossrank.program.dialect.tiles import StoreOp
from crossrank.program.kinds import Direction, FunctionType, Level, Role
from crossrank.program.language.builder import Symbol
from crossrank.program.language.control import At
from crossrank.program.language.operands import is_tensor, is_tile, said
from crossrank.program.language.parse.faults import OfUnknown, Unbound
from crossrank.program.language.parse.liveness import bound_in
from crossrank.program.language.parse.names import Surroundings
from crossrank.program.language.parse.source import place
from crossrank.program.language.parse.statements import Statements
from crossrank.program.program import Function, Param
from crossrank.program.types import ShapedType, TensorType

if TYPE_CHECKING:
    from crossrank.program.language.parse.program import ProgramParser


class Body(Statements):
    """The statements of a function of a program.

    Attributes:
        program: the program.
        name: the function's.
        root: the function's own block.
    """

    def __init__(
        self, program: ProgramParser, name: str, block: Block, level: Level, file: str, around: Surroundings
    ) -> None:
        super().__init__(block, level, file, around)
        self.program = program
        self.name = name
        self.root = block

    def symbol(self, symbol: Symbol) -> SSAValue:
        """The value of a symbolic extent, which a parameter must have."""
        extents = {d for a in self.root.args if isinstance(a.type, ShapedType) for d in a.type.shape}
        self.ask(
            symbol.parts is not None or symbol.text in extents,
            f"nothing says what {symbol} is: no parameter of {self.name} has it as an extent",
            "make it an extent of one, or pass it as a scalar",
        )
        return super().symbol(symbol)

    def end(self, returned: list[SSAValue]) -> None:
        """End the function."""
        op = ReturnOp(*returned)  # its verifier wants it to stand in the function, which is not there yet
        op.location = self.location
        self.block.add_op(op)

    def outline(self, node: ast.With, scope: At, task: ast.expr | None) -> None:
        """Make a function of the statements, and call it where they stand."""
        location = place(self.file, node)
        inner = Outlined(self, self._outlined_as(scope), f"the with of line {node.lineno}")
        inner.run(node.body)
        if inner.is_faulty:
            raise OfUnknown(f"{self.name} has faults")
        inner.location = self.location = location
        results = self._results(node, inner)
        inner.end(list(results.values()))
        function = inner.finish(list(results.values()), location)
        self.program.add(function)
        self.made.append(function)
        call = self.insert(
            CallOp(
                function.name,
                list(inner.captures),
                [value.type for value in results.values()],
                deps=scope.deps,
                manual=self.launch.manual,
                core_num=None if self.launch.core_num is None else self.index(self.launch.core_num),
                sync_start=self.launch.sync_start,
            )
        )
        for name, result in zip(results, call.returned, strict=True):
            self.bind(name, result)
        if task is not None:
            self.assign(task, call.task)

    def _outlined_as(self, scope: At) -> tuple[str, Level]:
        """The name and the level of what statements become."""
        if self.level is Level.HOST:
            self.ask(
                scope.level is Level.CHIP and scope.role in (None, Role.Orchestrator),
                f"pl.at(level={scope.level}) stands in a HOST orchestrator",
                "write with pl.at(level=pl.Level.CHIP, role=pl.Role.Orchestrator), and a kernel within it",
            )
            return self.program.new_name(scope.name or f"{self.name}_chip"), Level.CHIP
        self.ask(
            scope.level is Level.CORE_GROUP and scope.role is None,
            f"pl.at(level={scope.level}) stands in a CHIP orchestration",
            "write with pl.at(level=pl.Level.CORE_GROUP)",
        )
        return self.program.new_name(scope.name or f"{self.name}_incore"), Level.CORE_GROUP

    def _results(self, node: ast.With, inner: Outlined) -> dict[str, SSAValue]:
        """What the function returns, by the names that it gets behind the scope; other names are settled here."""
        results: dict[str, SSAValue] = {}
        for name in bound_in(node.body):
            if name not in inner.names or not self.behind.reads(name):
                continue
            value = inner.names[name]
            if isinstance(value, SSAValue) and inner.is_outside(value):
                self.names[name] = value
                continue
            if is_tile(value):
                value = inner.exported(value)
            if is_tensor(value) and isinstance(self.program.lineage.root(value), BlockArgument):
                results[name] = value
            elif _values(value):
                self.names[name] = Unbound(
                    f"{name} is {said(value)} within the with of line {node.lineno}, and is not there behind it",
                    "only tensors from outside come out of it: write it into one of these",
                )
            else:
                self.names[name] = value
        return results


class Outlined(Body):
    """The statements of a ``with pl.at(…)``: a function whose parameters are the values from around that it needs.

    Attributes:
        captures: these values.
    """

    def __init__(self, outer: Body, made: tuple[str, Level], what: str) -> None:
        name, level = made
        super().__init__(outer.program, name, Block(), level, outer.file, outer.around)
        self.outer = outer
        self.location = outer.location
        self.names = dict(outer.names)
        self.behind = outer.behind
        self.made = outer.made
        self.captures: list[SSAValue] = []
        self._parameters: dict[SSAValue | str, BlockArgument] = {}
        self._params: list[Param] = []
        self._outside = set(_values(list(outer.names.values())))
        self._nested = self._turning = what

    def is_outside(self, value: SSAValue) -> bool:
        """Whether a value is one from around."""
        return value in self._outside

    def captured(self, value: SSAValue) -> SSAValue:
        """A value from around as a parameter."""
        if not self.is_outside(value):
            return value
        if value not in self._parameters:
            name = next((n for n, v in self.outer.names.items() if v is value), value.name_hint)
            self._parameters[value] = self._parameter(self.outer.captured(value), name or "")
        return self._parameters[value]

    def symbol(self, symbol: Symbol) -> SSAValue:
        """The value of a symbolic extent, from around."""
        if symbol.parts is not None:
            return super().symbol(symbol)
        if symbol.text not in self._parameters:
            self._parameters[symbol.text] = self._parameter(self.outer.symbol(symbol), symbol.text)
        return self._parameters[symbol.text]

    def _parameter(self, value: SSAValue, name: str, direction: Direction = Direction.In) -> BlockArgument:
        """A new parameter; its name is a new one, too."""
        base = name = name or f"arg{len(self._params)}"
        while any(p.name == name for p in self._params):
            name += "_"
        self.captures.append(value)
        self._params.append(Param(name, value.type, direction))
        argument = self.root.insert_arg(value.type, len(self.root.args))
        argument.name_hint = base
        return argument

    def exported(self, tile: SSAValue) -> SSAValue:
        """A tile that is needed behind the scope, as a tensor that is made before it."""
        type = TensorType.of(shaped(tile).shape, shaped(tile).dtype)
        tensor = self.outer.insert(CreateTensorOp(self.outer.indices(shaped(tile).extents), type)).result
        tensor.name_hint = tile.name_hint
        parameter = self._parameter(tensor, tile.name_hint or "", Direction.Out)
        return self.insert(StoreOp(tile, parameter, self.indices([0] * len(type.shape)))).result

    def finish(self, results: list[SSAValue], location: FileLineColLoc) -> Function:
        """The function; what it writes are its InOut parameters, and Out ones what is made for it."""
        lineage = self.program.lineage
        written = {lineage.root(v) for op in self.root.walk() for v in lineage.written(op)}
        params = [
            replace(p, direction=Direction.InOut) if a in written and p.direction is Direction.In else p
            for p, a in zip(self._params, self.root.args, strict=True)
        ]
        is_chip = self.level is Level.CHIP
        return Function.of(
            self.name,
            params,
            [value.type for value in results],
            type=FunctionType.Orchestration if is_chip else FunctionType.InCore,
            body=self.root,
            location=location,
        )


def _values(values: Any) -> list[SSAValue]:
    if isinstance(values, SSAValue):
        return [values]
    return [found for value in values for found in _values(value)] if isinstance(values, (list, tuple)) else []
