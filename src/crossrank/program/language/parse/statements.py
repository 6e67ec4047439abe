"""What the statements of a function insert: assignments, loops, branches, scopes.

Loops and branches carry what they bind again. A name whose value afterwards is not the same, or not there, whichever
way they go may not be read; who reads it is told why.
"""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any

from xdsl.ir import Attribute, Block, SSAValue

from crossrank.errors import counted
from crossrank.program.dialect.tiles import MoveOp
from crossrank.program.kinds import Level
from crossrank.program.language import scalars
from crossrank.program.language.builder import Symbol
from crossrank.program.language.control import At, Launch, Turns, Yielded
from crossrank.program.language.operands import said
from crossrank.program.language.parse.annotations import convert
from crossrank.program.language.parse.branches import Branch, with_rest
from crossrank.program.language.parse.expressions import OPERATORS, Expressions
from crossrank.program.language.parse.faults import Unknown, recovering
from crossrank.program.language.parse.liveness import Behind, bound_in
from crossrank.program.language.parse.loops import Loop, unroll
from crossrank.program.language.parse.names import Surroundings
from crossrank.program.language.parse.parts import part, write
from crossrank.program.language.parse.source import place
from crossrank.program.program import Function
from crossrank.program.types import TileType

NO_STATEMENT: dict[type[ast.stmt], tuple[str, str]] = {
    ast.While: ("while", "write a loop over pl.range whose end is the most turns there can be, with an if in it"),
    ast.Break: ("break", "let the rest of the turns do nothing: an if around what they do"),
    ast.Continue: ("continue", "put what follows under an if"),
    ast.Try: ("try", "leave it away: nothing is raised while a program runs"),
    ast.FunctionDef: (
        "a function within a function",
        "make it a function of the program: a method, called by self.f(…)",
    ),
    ast.ClassDef: ("a class within a function", "define it outside of the program"),
    ast.Import: ("import", "import at the top of the file"),
    ast.ImportFrom: ("import", "import at the top of the file"),
    ast.Global: ("global", "pass what is needed as a parameter"),
    ast.Nonlocal: ("nonlocal", "pass what is needed as a parameter"),
    ast.Delete: ("del", "leave it away"),
    ast.Raise: ("raise", "leave it away: nothing is raised while a program runs"),
}


class Statements(Expressions):
    """The statements of a function.

    Attributes:
        returned: what it returns; None before that is known.
        behind: what runs behind the statement that is being parsed.
        yields: what the turn of a loop hands on by `pl.yield_`, and the names it gets; None outside of such loops.
        is_faulty: whether some statement of it is.
        made: the functions that `with pl.at(…)` made of statements.
    """

    def __init__(self, block: Block, level: Level, file: str, around: Surroundings) -> None:
        super().__init__(block, level, file, around)
        self.returned: tuple[Any, ...] | None = None
        self.is_faulty = False
        self.behind = Behind(())
        self.yields: tuple[tuple[Any, ...], list[str]] | None = None
        self.made: list[Function] = []
        self._nested = ""
        self._turning = ""

    def run(self, statements: Sequence[ast.stmt], turn: Sequence[ast.stmt] = ()) -> None:
        """Parse statements; ``turn``: they are the body of a loop."""
        outer = self.behind
        statements = with_rest(statements)
        for n, statement in enumerate(statements):
            if self.returned is not None:
                break
            self.behind = Behind(statements[n + 1 :], turn, outer)
            self.location = place(self.file, statement)
            with recovering() as failed:
                self._statement(statement)
            if failed:
                self.is_faulty = True
                self.names.update(dict.fromkeys(bound_in([statement]), Unknown("a fault above")))
        self.behind = outer

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Expr(value):
                self._expression(value)
            case ast.Assign(targets, value):
                found = self._value(value, targets[0].id if isinstance(targets[0], ast.Name) else "")
                for target in targets:
                    self.assign(target, found)
            case ast.AnnAssign(target, annotation, value):
                self.ask(value is not None, "a name is declared and has no value", "write name: type = value")
                assert value is not None
                found = self._value(value, target.id if isinstance(target, ast.Name) else "")
                with self.at(annotation):
                    found = convert(self, self.python(self.around.evaluate, annotation), found)
                self.assign(target, found)
            case ast.AugAssign(target, operator, value):
                current = self.evaluate(_as_read(target))
                more = self.evaluate(value)
                with self.at(node):
                    found = self.operate(OPERATORS.get(type(operator), "@"), current, more)
                self.assign(target, found)
            case ast.For():
                self._loop(node)
            case ast.If():
                self._branch(node)
            case ast.With():
                self._with(node)
            case ast.Return():
                self._return(node)
            case ast.Assert():
                self._assert(node)
            case ast.Pass():
                pass
            case _:
                what, remedy = NO_STATEMENT.get(type(node), (f"`{ast.unparse(node).splitlines()[0]}`", ""))
                self.fail(f"{what} is no part of the language", remedy)

    def _expression(self, node: ast.expr) -> None:
        if isinstance(node, ast.Constant):
            return  # a docstring, or …
        found = self.evaluate(node)
        if isinstance(found, Yielded):
            self._yield(found, [])

    def _value(self, node: ast.expr, name: str) -> Any:
        """What stands to the right of ``name =``."""
        if not isinstance(node, ast.Call):
            return self.evaluate(node)
        return self.call(node, {"name": name} if name else None)

    def _return(self, node: ast.Return) -> None:
        self.ask(not self._turning, f"return stands in {self._turning}", "return at the end of the function")
        value = None if node.value is None else self.evaluate(node.value)
        self.returned = value if isinstance(value, tuple) else () if value is None else (value,)

    def _assert(self, node: ast.Assert) -> None:
        holds = self.evaluate(node.test)
        self.ask(
            not isinstance(holds, (SSAValue, Symbol)),
            "assert of what is known only when the program runs",
            "leave it away, or assert what is known here",
        )
        message = "" if node.msg is None else str(self.evaluate(node.msg))
        self.ask(holds, message or f"this does not hold: {ast.unparse(node.test)}")

    # Names

    def assign(self, target: ast.expr, value: Any) -> None:
        """Bind what stands to the left of ``=``."""
        match target:
            case ast.Name(name):
                if isinstance(value, Yielded):
                    self._yield(value, [name])
                else:
                    self.bind(name, value)
            case ast.Tuple(targets) | ast.List(targets):
                if isinstance(value, Yielded):
                    self._yield(value, [t.id if isinstance(t, ast.Name) else "_" for t in targets])
                    return
                for starred in targets:
                    if isinstance(starred, ast.Starred):
                        self.fail_at(starred, "a starred name is no part of the language", "name each value")
                values = value if isinstance(value, (tuple, list)) else [value] if len(targets) == 1 else None
                if values is None:
                    self.fail_at(target, f"{said(value)} is no tuple")
                if len(values) != len(targets):
                    self.fail_at(target, f"{counted(len(targets), 'name')} for {counted(len(values), 'value')}")
                for each, one in zip(targets, values, strict=True):
                    self.assign(each, one)
            case ast.Subscript():
                self._write(target, value)
            case _:
                self.fail_at(target, f"{ast.unparse(target)} cannot be assigned to")

    def bind(self, name: str, value: Any) -> None:
        """Let a name be worth something."""
        if isinstance(value, SSAValue) and name.strip("_") and not value.name_hint:
            value.name_hint = name
        self.names[name] = value

    def _write(self, target: ast.Subscript, value: Any) -> None:
        """``x[…] = value``: an element, or a part."""
        of = self.evaluate(target.value)
        if not isinstance(of, SSAValue):
            self.fail_at(
                target, f"{said(of)} does not change: it is Python's", "make an array: pl.array.create(n, dtype)"
            )
        to = part(self, target, of)
        with self.at(target):
            handle = write(self, to, value)
        if isinstance(target.value, ast.Name) and handle is not of:
            self.bind(target.value.id, handle)

    # Loops

    def _loop(self, node: ast.For) -> None:
        self.ask(not node.orelse, "else of a for is no part of the language", "write its statements behind the loop")
        turns = self.evaluate(node.iter)
        with self.at(node.iter):
            self.ask(
                isinstance(turns, Turns),
                f"for … in {ast.unparse(node.iter)}: a loop runs over pl.range",
                "write pl.range(…); or pl.unroll(…), where the statements are to stand there once for each turn",
            )
        if turns.unrolled:
            unroll(self, node, turns)
        else:
            Loop(self, node, turns).insert()

    def _yield(self, found: Yielded, names: list[str]) -> None:
        """``names = pl.yield_(…)``: at the end of a turn what it hands on, in an arm of a branch what it binds."""
        if self.yields is not None:
            self.ask(not self.yields[0], "a turn hands on twice", "end the loop's body with one pl.yield_(…)")
            self.yields = (found.values, names)
            return
        self.ask(self._nested, "pl.yield_ stands in no loop and in no branch")
        self.ask(
            len(names) in (0, len(found.values)),
            f"{counted(len(names), 'name')} for {counted(len(found.values), 'value')}",
        )
        for name, value in zip(names, found.values, strict=False):
            self.bind(name, value)

    # Branches

    def _branch(self, node: ast.If) -> None:
        test = self.evaluate(node.test)
        with self.at(node.test):
            truth = scalars.truth_of(self, self.condition(test))
        if isinstance(truth, bool):
            self.run(node.body if truth else node.orelse)
        else:
            Branch(self, node, truth).insert()

    # Scopes

    def _with(self, node: ast.With) -> None:
        item = node.items[0]
        self.ask(len(node.items) == 1, "one with for each scope", "write one within the other")
        scope = self.evaluate(item.context_expr)
        if isinstance(scope, At):
            self.outline(node, scope, item.optional_vars)
            return
        with self.at(item.context_expr):
            self.ask(isinstance(scope, Launch), f"with {ast.unparse(item.context_expr)}: this is no scope")
            self.ask(item.optional_vars is None, "as gives no task here", "name the task of a call: pl.submit(…)")
        before, self.launch = self.launch, self.launch.within(scope)
        self.run(node.body)
        self.launch = before

    def unmake(self, number: int) -> None:
        """Leave the first so many of `made`; what made the others is parsed again."""
        for function in self.made[number:]:
            function.op.detach()  # type: ignore[no-untyped-call]
        del self.made[number:]

    @abstractmethod
    def outline(self, node: ast.With, scope: At, task: ast.expr | None) -> None:
        """Make a function of the statements of a ``with pl.at(…)``, and a call of it."""

    # Blocks

    def typed(self, value: Any, type: Attribute) -> SSAValue:
        """A value of that type, a tile moved to where it lies, or a number as a constant of it."""
        if isinstance(value, SSAValue):
            value = here = self.captured(value)
            if here.type == type:
                return here
        if isinstance(type, TileType):
            return self.insert(MoveOp(value, type)).result
        return self.scalar(value, type)

    @contextmanager
    def nested(self, what: str) -> Iterator[None]:
        """Statements within others."""
        before = (self._nested, self._turning)
        self._nested = self._turning = what
        yield
        self._nested, self._turning = before

    @contextmanager
    def within(self, block: Block, what: str, *, turns: bool = False) -> Iterator[None]:
        """Statements of a block within others, whose names are not those around; ``turns``: it is a loop's."""
        before = (self.block, self.names, self.yields, self.returned, self._nested, self._turning)
        self.block, self.names, self.yields, self.returned, self._nested = block, dict(self.names), None, None, what
        self._turning = what if turns else self._turning
        yield
        self.block, self.names, self.yields, self.returned, self._nested, self._turning = before

    @contextmanager
    def into(self, block: Block) -> Iterator[None]:
        """What is inserted comes to the end of a block."""
        before, self.block = self.block, block
        yield
        self.block = before


def _as_read(target: ast.expr) -> ast.expr:
    """What an augmented assignment reads, of what it binds."""
    read = copy(target)
    read.ctx = ast.Load()  # type: ignore[attr-defined]
    return read
