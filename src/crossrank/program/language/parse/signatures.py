"""What a function is, as its decorator and its first lines say: its kind, its parameters, what it returns."""

from __future__ import annotations

import ast
from typing import Any

from xdsl.ir import Attribute

from crossrank.program.kinds import FunctionType, Level, Role
from crossrank.program.language.declare import Declaration
from crossrank.program.language.parse.annotations import HOW, parameter, returned
from crossrank.program.language.parse.expressions import Expressions
from crossrank.program.language.parse.source import place
from crossrank.program.program import Function, Param


def signature(at: Expressions, declaration: Declaration, node: ast.FunctionDef) -> Function:
    """A function without its body; ``at`` knows the names around it, and says what is wrong where."""
    type, level, role = _kind(at, declaration, node)
    params = []
    for argument in _arguments(at, declaration, node):
        with at.at(argument.annotation or argument):
            if argument.annotation is None:
                at.fail(f"parameter {argument.arg} has no type", HOW)
            of, direction = parameter(at, _annotation(at, declaration, argument.arg, argument.annotation))
        params.append(Param(argument.arg, of, direction))
    types: list[Attribute] = []
    if node.returns is not None:
        with at.at(node.returns):
            types = returned(at, _annotation(at, declaration, "return", node.returns))
    return Function.of(
        declaration.name, params, types, type=type, level=level, role=role, location=place(at.file, node)
    )


def is_abstract(node: ast.FunctionDef) -> bool:
    """Whether a function's body is nothing but ``...``: a sub-worker that is given later."""
    match node.body:
        case [ast.Expr(ast.Constant(value))]:
            return value is ...
    return False


def _kind(
    at: Expressions, declaration: Declaration, node: ast.FunctionDef
) -> tuple[FunctionType, Level | None, Role | None]:
    name, type, level, role = declaration.name, declaration.type, declaration.level, declaration.role
    with at.at(node):
        at.ask(isinstance(type, FunctionType), f"Unsupported `@pl.function`(type=...) value: {type!r}")
        at.ask(level is None or isinstance(level, Level), f"@pl.function(level=…): {level!r} is no pl.Level")
        at.ask(role is None or isinstance(role, Role), f"@pl.function(role=…): {role!r} is no pl.Role")
        at.ask(type is not FunctionType.Inline, f"{name}: functions of type Inline are not there", "make it a kernel")
        if level is Level.HOST or role is Role.SubWorker:
            at.ask(
                role is not None and level is Level.HOST,
                f"{name} has level {level} and role {role}",
                "say both: level=pl.Level.HOST, and role=pl.Role.Orchestrator or role=pl.Role.SubWorker",
            )
        elif type is FunctionType.Opaque:
            at.ask(
                level in (None, Level.CHIP),
                f"{name} has level {level}, and no type",
                "say what it is: type=pl.FunctionType.InCore, or type=pl.FunctionType.Orchestration",
            )
            type = FunctionType.Orchestration
    return type, level, role


def _arguments(at: Expressions, declaration: Declaration, node: ast.FunctionDef) -> list[ast.arg]:
    """The parameters, without ``self``."""
    arguments = node.args
    special = [*arguments.posonlyargs, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    has_self = bool(arguments.args) and arguments.args[0].arg == "self"
    with at.at(node):
        at.ask(
            not any(special) and not arguments.defaults,
            f"{declaration.name}: parameters have no defaults, and no * or **",
            "write each as name: type",
        )
        if declaration.is_worker:
            at.ask(
                not has_self,
                f"SubWorker function '{declaration.name}' must not declare 'self'; declare it as a self-contained "
                "function inside @pl.program.",
            )
            return arguments.args
        at.ask(has_self, f"the first parameter of {declaration.name} must be self")
    return arguments.args[1:]


def _annotation(at: Expressions, declaration: Declaration, name: str, node: ast.expr) -> Any:
    """What an annotation is: what Python made of it, or where Python kept its text, what that is."""
    given = declaration.function.__annotations__.get(name)
    if isinstance(given, str):
        given = at.python(at.around.evaluate, node)
        if isinstance(given, str):
            given = at.python(lambda text: at.around.evaluate(ast.parse(text, mode="eval").body), given)
    return given
