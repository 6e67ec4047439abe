"""A program as a module: its functions, what each of them is, and what passes have made sure of."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FileLineColLoc, FunctionType, IntAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from crossrank.errors import InputError
from crossrank.mlir import parse_module, reason
from crossrank.program import kinds
from crossrank.program.dialect import context
from crossrank.program.dialect.around import function_around
from crossrank.program.dialect.structure import faults
from crossrank.program.kinds import Direction, Level, Role


@dataclass(frozen=True)
class Param:
    """A parameter of a function.

    Attributes:
        name: the author's name for it.
        type: of the dialect, or a scalar's.
        direction: what the function does to it; `In` for what is no tensor.
    """

    name: str
    type: Attribute
    direction: Direction = Direction.In


class Function:
    """A ``func.func``, seen as a function of a program.

    Attributes:
        op: the function; a host sub-worker has no body, since it is plain Python.
    """

    def __init__(self, op: FuncOp) -> None:
        self.op = op

    @staticmethod
    def of(
        name: str,
        params: Sequence[Param],
        returned: Sequence[Attribute],
        *,
        type: kinds.FunctionType,
        level: Level | None = None,
        role: Role | None = None,
        body: Block | None = None,
        location: FileLineColLoc | None = None,
    ) -> Function:
        """A new function; without a body it is a declaration. The block has an argument for each parameter."""
        op = FuncOp(
            name,
            FunctionType.from_lists([p.type for p in params], returned),
            Region() if body is None else Region(body),
            "private" if body is None else None,
        )
        if location is not None:
            op.location = location
        op.attributes["program.type"] = StringAttr(type)
        if level is not None:
            op.attributes["program.level"] = StringAttr(level)
        if role is not None:
            op.attributes["program.role"] = StringAttr(role)
        made = Function(op)
        made._say_params(params)
        return made

    def _say_params(self, params: Sequence[Param]) -> None:
        said = ArrayAttr(
            [
                DictionaryAttr({"program.name": StringAttr(p.name), "program.direction": StringAttr(p.direction)})
                for p in params
            ]
        )
        if self.has_body:
            self.op.arg_attrs = said
        else:  # the text of a declaration has no attributes of arguments
            self.op.attributes["program.params"] = said

    @property
    def name(self) -> str:
        """Its name."""
        return self.op.sym_name.data

    def _said(self, key: str) -> str | None:
        found = self.op.attributes.get(f"program.{key}")
        return found.data if isinstance(found, StringAttr) else None

    @property
    def type(self) -> kinds.FunctionType:
        """What it is compiled to."""
        return kinds.FunctionType(self._said("type") or kinds.FunctionType.Opaque)

    @property
    def level(self) -> Level | None:
        """Where it runs: as its author says, or as its type has it."""
        said = self._said("level")
        return Level(said) if said else (Level.CHIP if self.type.orchestrates else None)

    @property
    def role(self) -> Role | None:
        """What it does there."""
        said = self._said("role")
        return Role(said) if said else (Role.Orchestrator if self.type.orchestrates else None)

    @property
    def is_kernel(self) -> bool:
        """Whether it runs on cores."""
        return self.type.is_kernel

    @property
    def is_host(self) -> bool:
        """Whether it orchestrates the host."""
        return self.level is Level.HOST and self.role is Role.Orchestrator

    @property
    def is_chip(self) -> bool:
        """Whether it orchestrates a chip."""
        return self.role is Role.Orchestrator and self.level is not Level.HOST

    @property
    def is_worker(self) -> bool:
        """Whether it is a host sub-worker: plain Python."""
        return self.role is Role.SubWorker

    @property
    def params(self) -> list[Param]:
        """The parameters in order."""
        attrs_of = self.op.arg_attrs if self.has_body else self.op.attributes.get("program.params")
        said = attrs_of.data if isinstance(attrs_of, ArrayAttr) else ()
        found = []
        for n, type in enumerate(self.op.function_type.inputs):
            attrs: Mapping[str, Attribute] = said[n].data if n < len(said) else {}
            name, direction = attrs.get("program.name"), attrs.get("program.direction")
            found.append(
                Param(
                    name.data if isinstance(name, StringAttr) else f"arg{n}",
                    type,
                    Direction(direction.data) if isinstance(direction, StringAttr) else Direction.In,
                )
            )
        return found

    @params.setter
    def params(self, params: Sequence[Param]) -> None:
        """Say others; whoever adds one adds an argument to the body's block, too."""
        self.op.function_type = FunctionType.from_lists([p.type for p in params], self.returned)
        self._say_params(params)

    @property
    def returned(self) -> Sequence[Attribute]:
        """The types of what it returns."""
        return self.op.function_type.outputs.data

    @property
    def body(self) -> Block:
        """Its statements; a declaration has none."""
        return self.op.body.block

    @property
    def has_body(self) -> bool:
        """Whether it is more than a declaration."""
        return bool(self.op.body.blocks)


class Program:
    """A module of the dialect, seen as a program.

    Attributes:
        module: its functions.
        workers: the Python of its host sub-workers, by name.
    """

    TITLE: ClassVar[str] = "programs"

    def __init__(self, module: ModuleOp, workers: Mapping[str, Callable[..., Any]] | None = None) -> None:
        self.module = module
        self.workers = dict(workers or {})

    @staticmethod
    def of(
        name: str, functions: Iterable[Function], workers: Mapping[str, Callable[..., Any]] | None = None
    ) -> Program:
        """The program of these functions."""
        return Program(ModuleOp([f.op for f in functions], {"program.name": StringAttr(name)}), workers)

    @property
    def name(self) -> str:
        """Its name."""
        found = self.module.attributes.get("program.name")
        return found.data if isinstance(found, StringAttr) else "program"

    @property
    def functions(self) -> list[Function]:
        """Its functions, in their order."""
        return [Function(op) for op in self.module.ops if isinstance(op, FuncOp)]

    def function(self, name: str) -> Function:
        """The function of that name; KeyError where there is none."""
        for function in self.functions:
            if function.name == name:
                return function
        raise KeyError(name)

    @property
    def entry(self) -> Function:
        """What a run begins with, unless its caller says: the last of `entries`."""
        return self.entries[-1]

    @property
    def entries(self) -> list[Function]:
        """What a run may begin with: the HOST orchestrator; where there is none, each function that orchestrates.

        Raises:
            InputError: it has neither.
        """
        hosts = [f for f in self.functions if f.is_host]
        if len(hosts) > 1:
            raise InputError(
                f"{where(hosts[1].op)}program {self.name} has two HOST orchestrators: {hosts[0].name}, {hosts[1].name}",
                "a program has one",
            )
        found = hosts or [f for f in self.functions if f.is_chip]
        if not found:
            raise InputError(
                f"program {self.name} has no orchestrator",
                "declare one: @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)",
            )
        return found

    @property
    def properties(self) -> tuple[str, ...]:
        """The names of what passes have made sure of (see `properties`)."""
        found = self.module.attributes.get("program.properties")
        return tuple(p.data for p in found if isinstance(p, StringAttr)) if isinstance(found, ArrayAttr) else ()

    @properties.setter
    def properties(self, names: Iterable[str]) -> None:
        if unique := sorted(set(names)):
            self.module.attributes["program.properties"] = ArrayAttr([StringAttr(n) for n in unique])

    def verify(self) -> None:
        """Raise an InputError where something cannot be: where, and what."""
        for op, what in faults(self.module):  # first: verifiers rely on it
            raise InputError(f"{where(op)}{what}")
        try:
            self.module.verify()
        except VerifyException as error:
            raise InputError(f"{self._faulty()}{reason(error)}") from None

    def _faulty(self) -> str:
        """Where the first op stands that cannot be."""
        for op in self.module.walk():
            try:
                op.verify_()
            except VerifyException:
                return where(op)
        return ""

    def clone(self) -> Program:
        """A copy, of which the original knows nothing."""
        return Program(self.module.clone(), self.workers)

    def text(self, *, locations: bool = False) -> str:
        """Its text, which `read_program` reads; with ``locations`` the author's lines in it."""
        stream = io.StringIO()
        Printer(stream=stream, print_debuginfo=locations).print_op(self.module)
        return stream.getvalue() + "\n"

    def __str__(self) -> str:
        return self.text()


def read_program(text: str, path: str | None = None) -> Program:
    """The program that a text is, verified; its sub-workers have no Python.

    Args:
        text: as `Program.text` writes it.
        path: the file that it is from, if any: the place of ops that say none.

    Raises:
        InputError: it cannot be read, or cannot be; the message has the place.
    """
    program = Program(parse_module(context(), text, path))
    program.verify()
    return program


def at(file: str, line: int, column: int) -> FileLineColLoc:
    """A place in an author's source; ``column`` from 1."""
    return FileLineColLoc(StringAttr(file), IntAttr(line), IntAttr(column))


def line_of(op: Operation) -> int:
    """The author's line that an op came from; 0 where it is not known."""
    return int(op.location.line.data) if isinstance(op.location, FileLineColLoc) else 0


def function_of(op: Operation) -> str:
    """The name of the function that an op stands in; empty where it stands in none."""
    function = function_around(op)
    return "" if function is None else function.sym_name.data


def place(op: Operation | SSAValue) -> str:
    """``file:line:column`` of an op, or of where a value is made; empty where it is not known."""
    if isinstance(op, SSAValue):
        owner = op.owner
        if isinstance(owner, Block):
            parent = owner.parent_op()
            return "" if parent is None else place(parent)
        op = owner
    location = op.location
    if not isinstance(location, FileLineColLoc):
        return ""
    return f"{location.filename.data}:{location.line.data}:{location.column.data}"


def where(op: Operation | SSAValue) -> str:
    """The place of an op, to begin a message with; empty where it is not known."""
    found = place(op)
    return f"{found}: " if found else ""
