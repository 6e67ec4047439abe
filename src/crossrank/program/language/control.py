"""The words that say how statements are run: loops, branches, scopes, and where a kernel begins.

They insert nothing: what they give says to the statement that holds them what its author wants.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import SSAValue

from crossrank.program.kinds import Level, Role
from crossrank.program.language.builder import Builder, Scalar, Symbol
from crossrank.program.language.dtypes import DataType
from crossrank.program.language.op import CHIP, HOST, op
from crossrank.program.types import TaskType


@dataclass(frozen=True)
class Turns:
    """The turns of a loop.

    Attributes:
        begin: the first.
        end: behind the last.
        step: from one to the next.
        carried: what ``init_values`` gives; None: the loop has none.
        parallel: no turn needs what another one did.
        unrolled: the statements stand there once for each turn.
    """

    begin: Scalar
    end: Scalar
    step: int
    carried: tuple[Any, ...] | None = None
    parallel: bool = False
    unrolled: bool = False


@dataclass(frozen=True)
class Yielded:
    """What a turn of a loop, or an arm of a branch, hands on."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class At:
    """Where the statements of a ``with`` run: a function of its own is made of them."""

    level: Level
    role: Role | None
    name: str
    deps: tuple[SSAValue, ...]


@dataclass(frozen=True)
class Launch:
    """How calls become tasks.

    Attributes:
        core_num: how many blocks a launch has; None: one.
        sync_start: all of them are to be resident together.
        manual: a task comes after nothing but ``deps``.
    """

    core_num: Scalar | None = None
    sync_start: bool = False
    manual: bool = False

    def within(self, inner: Launch) -> Launch:
        """How they do within a scope in this one."""
        if inner.core_num is None:
            return Launch(self.core_num, self.sync_start, self.manual or inner.manual)
        return Launch(inner.core_num, inner.sync_start, self.manual or inner.manual)


@dataclass(frozen=True)
class NoDep:
    """An argument whose ordering the author takes care of."""

    value: Any


class Callee(ABC):
    """A function of the program, as ``self.f``."""

    @abstractmethod
    def launch(
        self, b: Builder, arguments: Sequence[Any], keywords: Mapping[str, Any], deps: Sequence[SSAValue], how: Launch
    ) -> tuple[list[SSAValue], SSAValue]:
        """Insert a call: what it returns, and the task that it becomes."""


def _turns(b: Builder, title: str, bounds: Sequence[Scalar], init_values: Any) -> Turns:
    b.ask(1 <= len(bounds) <= 3, f"{title}() takes 1 to 3 positional arguments, got {len(bounds)}")
    for bound in bounds:
        b.ask(isinstance(bound, (int, Symbol, SSAValue)), f"{title}(): {bound!r} is no integer")
    begin, end = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
    step = bounds[2] if len(bounds) == 3 else 1
    if not isinstance(step, int) or step < 1:
        b.fail(f"{title}(): the step must be a positive number that is known here")
    b.ask(
        init_values is None or isinstance(init_values, (tuple, list)),
        f"{title}(): init_values is no tuple",
        "write (x,)",
    )
    return Turns(begin, end, step, None if init_values is None else tuple(init_values))


@op("pl.range")
def range_(b: Builder, *bounds: Scalar, init_values: Any = None) -> Turns:
    """``for i in pl.range(begin, end, step)``: one turn after the other.

    With ``init_values`` it is ``for i, (a, b) in …``: a and b begin as these and are, in each further turn, what
    ``c, d = pl.yield_(…)`` at the end of the turn before it handed on; behind the loop that is c and d.
    """
    return _turns(b, "range", bounds, init_values)


@op("pl.parallel")
def parallel(b: Builder, *bounds: Scalar, init_values: Any = None) -> Turns:
    """As `range_`, where no turn needs what another one did."""
    turns = _turns(b, "parallel", bounds, init_values)
    return Turns(turns.begin, turns.end, turns.step, turns.carried, parallel=True)


@op("pl.unroll")
def unroll(b: Builder, *bounds: int) -> Turns:
    """``for i in pl.unroll(begin, end, step)``: the statements once for each turn; numbers only."""
    turns = _turns(b, "unroll", bounds, None)
    b.ask(
        isinstance(turns.begin, int) and isinstance(turns.end, int),
        "unroll(): the bounds must be numbers that are known here",
        "where they are known only when it runs, write pl.range",
    )
    return Turns(turns.begin, turns.end, turns.step, unrolled=True)


@op("pl.yield_")
def yield_(b: Builder, *values: Any) -> Yielded:
    """What a turn of a loop with ``init_values``, or an arm of a branch, hands on: ``x = pl.yield_(value)``."""
    return Yielded(values)


@op("pl.at", HOST, CHIP)
def at(
    b: Builder,
    level: Level,
    role: Role | None = None,
    *,
    deps: Sequence[SSAValue | None] | None = None,
    name_hint: str = "",
) -> At:
    """``with pl.at(level=pl.Level.CORE_GROUP) as task``: the statements are a kernel, called where they stand.

    In a HOST orchestrator ``with pl.at(level=pl.Level.CHIP, role=pl.Role.Orchestrator)``: a CHIP orchestration.
    ``deps`` are tasks that it comes after.
    """
    return At(level, role, name_hint, tasks(b, "pl.at", deps))


@op("pl.manual_scope", CHIP)
def manual_scope(b: Builder) -> Launch:
    """``with pl.manual_scope()``: what is called within comes after nothing but its ``deps``."""
    return Launch(manual=True)


@op("pl.spmd", CHIP)
def spmd(b: Builder, core_num: Scalar, *, sync_start: bool = False) -> Launch:
    """``with pl.spmd(4)``: what is called within runs as that many blocks."""
    return Launch(core_num=blocks(b, core_num), sync_start=sync_start)


@op("pl.no_dep", CHIP)
def no_dep(b: Builder, arg: Any) -> NoDep:
    """An argument of a call whose ordering the author takes care of."""
    return NoDep(arg)


@op("pl.submit", HOST, CHIP)
def submit(b: Builder, fn: Callee, *args: Any, deps: Any = None, **keywords: Any) -> Any:
    """``out, task = pl.submit(self.f, a, b, deps=[…])``: a call that gives its task behind what it returns.

    In a HOST orchestrator ``device=`` says where it runs.
    """
    return _submitted(b, "pl.submit", fn, args, keywords, deps, Launch())


@op("pl.spmd_submit", CHIP)
def spmd_submit(
    b: Builder,
    fn: Callee,
    *args: Any,
    core_num: Scalar,
    sync_start: bool = False,
    deps: Any = None,
    **keywords: Any,
) -> Any:
    """`submit` of a launch of that many blocks, all resident together if ``sync_start``."""
    return _submitted(b, "pl.spmd_submit", fn, args, keywords, deps, Launch(blocks(b, core_num), sync_start))


def _submitted(
    b: Builder, title: str, fn: Callee, args: Sequence[Any], keywords: Mapping[str, Any], deps: Any, how: Launch
) -> Any:
    b.ask(isinstance(fn, Callee), f"{title}: the first argument is no function of the program", f"{title}(self.f, …)")
    results, task = fn.launch(b, args, keywords, tasks(b, title, deps), how)
    return (*results, task) if results else task


@op("pl.const")
def const(b: Builder, value: int | float | bool, dtype: DataType) -> SSAValue:
    """A constant of an element type."""
    b.ask(isinstance(value, (int, float)), f"pl.const: {value!r} is no number")
    return b.constant(value, dtype.scalar)


def dynamic(name: str) -> Symbol:
    """An extent whose value the arguments of a call bind: ``NR = pl.dynamic("NR")``; one name is one extent."""
    return Symbol(name)


def blocks(b: Builder, core_num: Scalar) -> Scalar:
    """A number of blocks that can be."""
    if isinstance(core_num, (SSAValue, Symbol)):
        return core_num
    b.ask(
        isinstance(core_num, int) and not isinstance(core_num, bool) and core_num > 0,
        f"core_num must be a positive integer, got {core_num!r}",
    )
    return core_num


def tasks(b: Builder, title: str, deps: Sequence[SSAValue | None] | None) -> tuple[SSAValue, ...]:
    """The tasks of a ``deps=[…]``; None among them stands for none."""
    found = []
    b.ask(deps is None or isinstance(deps, (list, tuple)), f"{title}: deps is a list of tasks", "write deps=[task]")
    for dep in deps or ():
        if dep is None:
            continue
        b.ask(
            isinstance(dep, SSAValue) and isinstance(dep.type, TaskType),
            f"{title}: deps has what is no task",
            "a task is what `as task` names, or the last value of pl.submit",
        )
        found.append(dep)
    return tuple(found)
