"""A class, parsed: its functions, each when it is needed, and what they become."""

from __future__ import annotations

import ast
from typing import Any

from xdsl.ir import Block

from crossrank.errors import InputError
from crossrank.program.analysis.lineage import Lineage
from crossrank.program.kinds import Level
from crossrank.program.language.declare import Declaration
from crossrank.program.language.operands import is_tensor, is_tile, said
from crossrank.program.language.parse.annotations import same
from crossrank.program.language.parse.body import Body
from crossrank.program.language.parse.calls import Method
from crossrank.program.language.parse.faults import OfUnknown, collected, recovering
from crossrank.program.language.parse.names import Surroundings
from crossrank.program.language.parse.signatures import is_abstract, signature
from crossrank.program.language.parse.source import definition, place
from crossrank.program.program import Function, Program
from crossrank.program.types import spelled


def parse_program(cls: type[Any], where: str) -> Program:
    """The program of a decorated class; ``where`` it is decorated begins what is said of the class itself.

    Raises:
        InputError: what its source says that cannot be, with its place: file, line, column.
    """
    parser = ProgramParser(cls, where)
    before = collected()
    for name in parser.declarations:
        with recovering():
            parser.parsed(name)
    if collected() > before:
        raise OfUnknown(f"program {cls.__name__} has faults")
    parser.program.verify()
    return parser.program


class ProgramParser:
    """A program that is being parsed.

    Attributes:
        declarations: its functions as their author wrote them, by name.
        program: what they have become so far.
    """

    def __init__(self, cls: type[Any], where: str) -> None:
        found = {n: d for n, d in vars(cls).items() if isinstance(d, Declaration)}
        self.declarations = {d.name if n == _in_class(cls, d.name) else n: d for n, d in found.items()}
        if not self.declarations:
            raise InputError(
                f"{where}Class '{cls.__name__}' contains no @pl.function decorated methods",
                "decorate what shall be a function of the program with @pl.function(…)",
            )
        self.program = Program.of(cls.__name__, [])
        self.methods = Methods(self, cls)
        self._declared: dict[str, Function] = {}
        self._sources: dict[str, tuple[ast.FunctionDef, Surroundings, str]] = {}
        self._finished = Lineage(self.program)
        self._busy: list[str] = []
        self._faulty: set[str] = set()

    def source(self, name: str) -> tuple[ast.FunctionDef, Surroundings, str]:
        """A function's definition, the names around it, and its file."""
        if name not in self._sources:
            declaration = self.declarations[name]
            file = declaration.function.__code__.co_filename
            self._sources[name] = (definition(declaration.function), Surroundings(declaration), file)
        return self._sources[name]

    def declared(self, name: str) -> Function:
        """A function as its author declares it: its parameters and what it says that it returns, without a body."""
        if name not in self._declared:
            node, around, file = self.source(name)
            declaration = self.declarations[name]
            self._declared[name] = signature(Body(self, name, Block(), Level.HOST, file, around), declaration, node)
            if declaration.is_worker and not is_abstract(node):
                self.program.workers[name] = declaration.function
        return self._declared[name]

    def parsed(self, name: str) -> Function:
        """A function with its body; one that calls itself is refused."""
        for function in self.program.functions:
            if function.name == name:
                return function
        declared = self.declared(name)
        if name in self._busy:
            node, around, file = self.source(name)
            by = "" if self._busy[-1] == name else f", by way of {self._busy[-1]}"
            Body(self, name, Block(), Level.HOST, file, around).fail_at(node, f"{name} calls itself{by}")
        if name in self._faulty:
            raise OfUnknown(f"{name} has faults")
        self._busy.append(name)
        self._faulty.add(name)  # until it is parsed
        try:
            function = declared if declared.is_worker else self._parse(name, declared)
        finally:
            self._busy.pop()
        self._faulty.remove(name)
        self.add(function)
        return function

    def add(self, function: Function) -> None:
        """Let a function be one of the program's."""
        self.program.module.body.block.add_op(function.op)
        self._finished.functions[function.name] = function

    def new_name(self, base: str) -> str:
        """A name that no function has."""
        n, name = 0, base
        while name in self.declarations or any(f.name == name for f in self.program.functions):
            n, name = n + 1, f"{base}_{n + 1}"
        return name

    @property
    def lineage(self) -> Lineage:
        """What is known of values by now: those of functions that are being parsed still change."""
        return Lineage(self.program)

    def returned(self, name: str) -> tuple[int | None, ...]:
        """What a function that is parsed gives back, as `Lineage.returned` has it."""
        return self._finished.returned(name)

    def _parse(self, name: str, declared: Function) -> Function:
        """A function's statements."""
        node, around, file = self.source(name)
        level = Level.CORE_GROUP if declared.is_kernel else Level.HOST if declared.is_host else Level.CHIP
        params = declared.params
        block = Block(arg_types=[p.type for p in params])
        body = Body(self, name, block, level, file, around)
        for param, argument in zip(params, block.args, strict=True):
            body.bind(param.name, argument)
        body.names["self"] = self.methods
        try:
            body.run(node.body)
        except RecursionError:
            body.fail(
                "this is nested too deeply",
                "split it: an expression, or an if with its elifs, holds some hundred others within one another",
            )
        if body.is_faulty:
            raise OfUnknown(f"{name} has faults")
        values = list(body.returned or ())
        self._check_returned(body, declared, values)
        body.end(values)
        return Function.of(
            name,
            params,
            [v.type for v in values],
            type=declared.type,
            level=self.declarations[name].level,
            role=self.declarations[name].role,
            body=block,
            location=place(file, node),
        )

    def _check_returned(self, body: Body, declared: Function, values: list[Any]) -> None:
        """What a function returns are tensors, of the types that it says."""
        for value in values:
            if is_tile(value):
                body.fail(
                    f"{declared.name} returns {said(value)}",
                    "store it into a tensor: return pl.store(tile, offsets, x)",
                )
            body.ask(is_tensor(value), f"{declared.name} returns {said(value)}", "functions return tensors")
        wanted = declared.returned
        if not wanted:
            return
        theirs = ", ".join(said(v) for v in values) or "nothing"
        said_types = ", ".join(spelled(t) for t in wanted)
        fits = len(wanted) == len(values) and all(map(same, wanted, values))
        body.ask(fits, f"{declared.name} returns {theirs}, and is declared to return {said_types}")


def _in_class(cls: type[Any], name: str) -> str:
    """What a class calls what its source calls so: Python renames what begins with two underscores."""
    private = name.startswith("__") and not name.endswith("__")
    return f"_{cls.__name__.lstrip('_')}{name}" if private else name


class Methods:
    """``self``: the functions of the program, and what else its class has."""

    def __init__(self, program: ProgramParser, cls: type[Any]) -> None:
        self.__name__ = f"program {cls.__name__}"
        self._program = program
        self._class = cls

    def __getattr__(self, name: str) -> Any:
        if name in self._program.declarations:
            return Method(self._program, name)
        return getattr(self._class, _in_class(self._class, name))

    def __dir__(self) -> list[str]:
        return list(self._program.declarations)
