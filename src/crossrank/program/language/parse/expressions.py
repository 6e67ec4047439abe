"""What an expression of the author's source is worth: an SSA value, or what Python knows before anything runs."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from xdsl.ir import Block, SSAValue

from crossrank.author import instead
from crossrank.errors import InputError
from crossrank.program.kinds import Level
from crossrank.program.language import arithmetic, scalars
from crossrank.program.language.builder import Builder, Scalar, Symbol
from crossrank.program.language.control import Callee, Launch
from crossrank.program.language.dtypes import DTYPES
from crossrank.program.language.op import Op
from crossrank.program.language.operands import extent, is_number, is_tensor, is_tile, said
from crossrank.program.language.parse.faults import OfUnknown, Unbound, Unknown
from crossrank.program.language.parse.names import Surroundings
from crossrank.program.language.parse.parts import part, read
from crossrank.program.language.parse.pure import is_pure, is_repeatable, is_short
from crossrank.program.language.parse.source import place
from crossrank.program.types import DTYPE_NAMES, ShapedType, spelled

OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.LShift: "shl",
    ast.RShift: "shr",
}
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
}
UNARY: dict[type[ast.unaryop], str] = {ast.USub: "neg", ast.Not: "not", ast.Invert: "invert"}
TILE_OPERATORS = {"add": arithmetic.add, "sub": arithmetic.sub, "mul": arithmetic.mul, "div": arithmetic.div}
REFUSED: dict[type[ast.AST], tuple[str, str]] = {
    ast.ListComp: ("a comprehension", "write a loop over pl.range, or pl.unroll"),
    ast.GeneratorExp: ("a comprehension", "write a loop over pl.range, or pl.unroll"),
    ast.DictComp: ("a comprehension", "write a loop over pl.range, or pl.unroll"),
    ast.SetComp: ("a comprehension", "write a loop over pl.range, or pl.unroll"),
    ast.Lambda: ("a lambda", "write its expression where it is used"),
    ast.NamedExpr: (":=", "assign in a line of its own"),
    ast.Await: ("await", "leave it away: what must wait for what is known by itself"),
    ast.Yield: ("yield", "write x = pl.yield_(…)"),
    ast.YieldFrom: ("yield", "write x = pl.yield_(…)"),
}


class Expressions(Builder):
    """The values of expressions.

    Attributes:
        file: where the source is.
        around: the names around the function.
        names: what the names are worth that the function binds.
        launch: how calls become tasks.
    """

    def __init__(self, block: Block, level: Level, file: str, around: Surroundings) -> None:
        super().__init__(block, level=level)
        self.file = file
        self.around = around
        self.names: dict[str, Any] = {}
        self.launch = Launch()

    @contextmanager
    def at(self, node: ast.AST) -> Iterator[None]:
        """What is inserted, and what is refused, stands there."""
        before, self.location = self.location, place(self.file, node)
        yield
        self.location = before

    def fail_at(self, node: ast.AST, what: str, remedy: str = "") -> NoReturn:
        """`fail` with the place of a node."""
        self.location = place(self.file, node)
        self.fail(what, remedy)

    def captured(self, value: SSAValue) -> SSAValue:
        """The value by which one that a name is worth is to be had in this function."""
        return value

    def evaluate(self, node: ast.expr) -> Any:
        """What an expression is worth."""
        if refused := REFUSED.get(type(node)):
            self.fail_at(node, f"{refused[0]} is no part of the language", refused[1])
        method: Callable[[Any], Any] | None = getattr(self, f"_of_{type(node).__name__.lower()}", None)
        if method is None:
            self.fail_at(node, f"`{ast.unparse(node)}` is no part of the language")
        return method(node)

    def _of_constant(self, node: ast.Constant) -> Any:
        return node.value

    def _of_name(self, node: ast.Name) -> Any:
        if node.id not in self.names:
            if node.id not in self.around:
                near = difflib.get_close_matches(node.id, [*self.names, *self.around], 1)
                self.fail_at(node, f"{node.id} is not defined", f"did you mean {near[0]}?" if near else "")
            return self.around[node.id]
        value = self.names[node.id]
        if isinstance(value, Unknown):
            raise OfUnknown(f"{node.id} is not known")
        if isinstance(value, Unbound):
            self.fail_at(node, value.what, value.remedy)
        return self._here(value)

    def _here(self, value: Any) -> Any:
        if isinstance(value, SSAValue):
            return self.captured(value)
        return type(value)(map(self._here, value)) if type(value) in (list, tuple) else value

    def _of_attribute(self, node: ast.Attribute) -> Any:
        value = self.evaluate(node.value)
        if isinstance(value, SSAValue):
            if isinstance(value.type, ShapedType) and node.attr in ("shape", "dtype"):
                if node.attr == "dtype":
                    return DTYPES[DTYPE_NAMES[value.type.dtype.name]]
                with self.at(node):
                    return tuple(extent(self, value, axis) for axis in range(len(value.type.shape)))
            self.fail_at(node, f"{spelled(value.type)} has no {node.attr}", "it has shape and dtype")
        try:
            return getattr(value, node.attr)
        except InputError as error:
            self.fail_at(node, error.what, error.remedy)
        except AttributeError:
            name = getattr(value, "__name__", None) or type(value).__name__
            self.fail_at(node, f"{ast.unparse(node)}: {name} has no {node.attr}", instead(value, node.attr))

    def _of_tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self._elements(node.elts))

    def _of_list(self, node: ast.List) -> list[Any]:
        return list(self._elements(node.elts))

    def _elements(self, nodes: list[ast.expr]) -> Iterator[Any]:
        for node in nodes:
            if isinstance(node, ast.Starred):
                yield from self._sequence(node.value)
            else:
                yield self.evaluate(node)

    def _sequence(self, node: ast.expr) -> list[Any] | tuple[Any, ...]:
        values = self.evaluate(node)
        if not isinstance(values, (list, tuple)):
            self.fail_at(node, f"* of {said(values)}", "it takes a tuple or a list")
        return values

    def _of_joinedstr(self, node: ast.JoinedStr) -> str:
        found = ""
        for piece in node.values:
            value = self.evaluate(piece.value if isinstance(piece, ast.FormattedValue) else piece)
            if isinstance(value, SSAValue):
                self.fail_at(piece, "this is known only when the program runs")
            found += str(value)
        return found

    def _of_unaryop(self, node: ast.UnaryOp) -> Any:
        value = self.evaluate(node.operand)
        if isinstance(node.op, ast.UAdd):
            return value
        name = UNARY[type(node.op)]
        with self.at(node):
            if (is_tensor(value) or is_tile(value)) and name == "neg":
                return arithmetic.neg.emit(self, [value], {})
            if not is_number(value):
                if name == "not" and not isinstance(value, SSAValue):
                    return not value
                self.fail(f"{ast.unparse(node)}: {said(value)} is no scalar")
            return scalars.unary(self, name, value)

    def _of_binop(self, node: ast.BinOp) -> Any:
        terms = [node]
        while isinstance(terms[-1].left, ast.BinOp):  # a + b + c …, as long as it may be
            terms.append(terms[-1].left)
        value = self.evaluate(terms[-1].left)
        for term in reversed(terms):
            other = self.evaluate(term.right)
            with self.at(term):
                value = self.operate(OPERATORS.get(type(term.op), "@"), value, other)
        return value

    def operate(self, name: str, lhs: Any, rhs: Any) -> Any:
        """An operator's value: of scalars; of tiles, and in kernels of tensors; else Python's own."""
        sign = scalars.SIGNS.get(name, name)
        if any(is_tensor(v) or is_tile(v) for v in (lhs, rhs)):
            word = TILE_OPERATORS.get(name)
            if word is None:
                self.fail(
                    f"{sign} of {said(lhs)} and {said(rhs)}", "of tiles there are + - * / and words: pl.maximum, …"
                )
            return word.emit(self, [lhs, rhs], {})
        if is_number(lhs) and is_number(rhs):
            return scalars.binary(self, name, lhs, rhs)
        if any(isinstance(v, (SSAValue, Symbol)) for v in (lhs, rhs)) or name not in scalars.FOLD:
            self.fail(f"{sign} of {said(lhs)} and {said(rhs)}")
        self.ask(name != "mul" or is_repeatable(lhs, rhs), f"{said(lhs)} times {said(rhs)} has too many items")
        return self.python(scalars.FOLD[name], lhs, rhs)

    def python(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """What a function of plain Python gives; what it raises begins with the place."""
        try:
            return function(*arguments, **keywords)
        except InputError as error:
            self.fail(error.what, error.remedy)
        except Exception as error:
            self.fail(f"{type(error).__name__}: {error}")

    def _of_boolop(self, node: ast.BoolOp) -> Any:
        name = "and" if isinstance(node.op, ast.And) else "or"
        value = self.evaluate(node.values[0])
        for node_of_other in node.values[1:]:
            if not isinstance(value, (SSAValue, Symbol)):  # as in Python: one of the two is what it is worth
                if bool(value) is (name == "or"):
                    return value
                value = self.evaluate(node_of_other)
                continue
            other = self.evaluate(node_of_other)
            with self.at(node):
                value = scalars.both(self, name, self.condition(value), self.condition(other))
        return value

    def condition(self, value: Any) -> Scalar:
        """What an if asks for: a scalar, or the truth of what Python knows."""
        if isinstance(value, SSAValue) and not is_number(value):
            self.fail(f"{said(value)} is no condition", "compare scalars")
        return value if isinstance(value, (SSAValue, Symbol)) else bool(value)

    def _of_compare(self, node: ast.Compare) -> Any:
        lhs, found = self.evaluate(node.left), None
        for comparison, right in zip(node.ops, node.comparators, strict=True):
            rhs = self.evaluate(right)
            with self.at(node):
                holds = self._compared(comparison, lhs, rhs)
                found = holds if found is None else scalars.both(self, "and", found, holds)
            lhs = rhs
        return found

    def _compared(self, comparison: ast.cmpop, lhs: Any, rhs: Any) -> bool | SSAValue:
        predicate = COMPARISONS.get(type(comparison))
        if predicate is not None and is_number(lhs) and is_number(rhs):
            return scalars.compare(self, predicate, lhs, rhs)
        if any(isinstance(v, SSAValue) for v in (lhs, rhs)):
            if isinstance(comparison, (ast.Is, ast.IsNot)) and None in (lhs, rhs):
                return isinstance(comparison, ast.IsNot)  # a value is never None
            self.fail(f"a comparison of {said(lhs)} and {said(rhs)}", "scalars can be compared")
        if predicate is not None:
            return bool(self.python(scalars.FOLD[predicate], lhs, rhs))
        match comparison:
            case ast.Is():
                return lhs is rhs
            case ast.IsNot():
                return lhs is not rhs
            case ast.In():
                return bool(self.python(lambda: lhs in rhs))
        return bool(self.python(lambda: lhs not in rhs))

    def _of_ifexp(self, node: ast.IfExp) -> Any:
        condition = self.condition(self.evaluate(node.test))
        with self.at(node):
            truth = scalars.truth_of(self, condition)
        if isinstance(truth, bool):
            return self.evaluate(node.body if truth else node.orelse)
        yes, no = self.evaluate(node.body), self.evaluate(node.orelse)
        with self.at(node):
            self.ask(is_number(yes) and is_number(no), f"{said(yes)} if … else {said(no)}", "write an if statement")
            return scalars.choose(self, truth, yes, no)

    def _of_call(self, node: ast.Call) -> Any:
        return self.call(node)

    def call(self, node: ast.Call, implied: Mapping[str, Any] | None = None) -> Any:
        """What a call is worth; ``implied`` are keywords that a word takes, unless the author gives them."""
        called = self.evaluate(node.func)
        arguments = list(self._elements(node.args))
        keywords: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.evaluate(keyword.value)
            keywords |= {keyword.arg: value} if keyword.arg is not None else value
        with self.at(node):
            if isinstance(called, Op):
                takes = called.__signature__.parameters
                more = {name: value for name, value in (implied or {}).items() if name in takes}
                return called.emit(self, arguments, {**more, **keywords})
            if isinstance(called, Callee):
                self.ask(
                    "deps" not in keywords,
                    "deps= is for pl.submit",
                    f"pl.submit({ast.unparse(node.func)}, …, deps=[…])",
                )
                results, _ = called.launch(self, arguments, keywords, (), Launch())
                return (tuple(results) if len(results) > 1 else results[0]) if results else None
            if called in (min, max) and len(arguments) > 1 and all(map(is_number, arguments)):
                found = arguments[0]
                for other in arguments[1:]:
                    found = scalars.binary(self, called.__name__, found, other)
                return found
            if called is abs and len(arguments) == 1 and is_number(arguments[0]):
                return scalars.unary(self, "abs", arguments[0])
            self.ask(callable(called), f"{ast.unparse(node.func)} cannot be called: it is {said(called)}")
            if any(_is_run(v) for v in (*arguments, *keywords.values())):
                self.fail(
                    f"{ast.unparse(node.func)} is plain Python, and is given what is known only when the program runs",
                    "use a word of the language, or a function of the program: self.f(…)",
                )
            self.ask(
                is_pure(called),
                f"{ast.unparse(node.func)} is plain Python, which a body does not run",
                "call it outside of the class, and name here what it gives; what can be called here is len, min, max, "
                "sum, round, int, float, str, range, zip, math.… and the like",
            )
            self.ask(
                is_short(called, arguments),
                f"{ast.unparse(node.func)} would take too long: it is worked out before anything runs",
                "call it outside of the class, and name here what it gives",
            )
            return self.python(called, *arguments, **keywords)

    def _of_subscript(self, node: ast.Subscript) -> Any:
        if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":  # this extent, and no other
            of, axis = self.evaluate(node.value.value), self.evaluate(node.slice)
            if isinstance(of, SSAValue) and isinstance(of.type, ShapedType) and isinstance(axis, int):
                rank = len(of.type.shape)
                if not -rank <= axis < rank:
                    self.fail_at(node, f"{spelled(of.type)} has no dimension {axis}")
                with self.at(node):
                    return extent(self, of, axis % rank)
        value = self.evaluate(node.value)
        if isinstance(value, SSAValue):
            of = part(self, node, value)
            with self.at(node):
                return read(self, of)
        index = self._python_index(node.slice)
        with self.at(node):
            if _is_run(index):
                self.fail(
                    f"{ast.unparse(node)}: {said(value)} is indexed by what is known only when the program runs",
                    "make it an array: pl.array.create(n, dtype)",
                )
            return self.python(lambda: value[index])

    def _python_index(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Slice):
            return slice(*(None if n is None else self.evaluate(n) for n in (node.lower, node.upper, node.step)))
        return self.evaluate(node)


def _is_run(value: Any) -> bool:
    """Whether a value, or one within it, is known only when the program runs."""
    return isinstance(value, SSAValue) or (isinstance(value, (list, tuple)) and any(map(_is_run, value)))
