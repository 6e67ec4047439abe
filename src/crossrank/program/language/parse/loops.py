"""Loops: what their turns hand on, and what is known behind them."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xdsl.dialects import scf
from xdsl.dialects.builtin import IndexType, UnitAttr
from xdsl.ir import Attribute, Block, Region, SSAValue

from crossrank.errors import counted
from crossrank.program.dialect.calls import PARALLEL
from crossrank.program.language import scalars
from crossrank.program.language.control import Turns
from crossrank.program.language.operands import is_number, said, said_apart
from crossrank.program.language.parse.faults import Unbound
from crossrank.program.language.parse.liveness import bound_in, read_first
from crossrank.program.language.parse.source import place
from crossrank.program.types import is_scalar, moves

if TYPE_CHECKING:
    from crossrank.program.language.parse.statements import Statements


@dataclass
class Slot:
    """A value that the turns of a loop hand on.

    Attributes:
        first: its value before the loop.
        name: the name that it has at the begin of a turn.
        after: the name that it has behind the loop; empty: none.
        type: its type, as far as that is known.
        yielded: the place of its value among what `pl.yield_` hands on; None: what its name is worth then.
    """

    first: Any
    name: str
    after: str
    type: Attribute
    yielded: int | None = None


class Loop:
    """A loop over `pl.range` or `pl.parallel`.

    A name that is bound before it and again in it is handed on from turn to turn. Where it cannot be, since its type
    changes, it may be read neither behind the loop nor, before it is bound, in a turn.
    """

    def __init__(self, body: Statements, node: ast.For, turns: Turns) -> None:
        self.body = body
        self.node = node
        self.turns = turns
        self.title = f"the loop of line {node.lineno}"
        self.index, entries = self._targets()
        self.skipped: dict[str, Unbound] = {}
        self.slots = [
            self._slot(value, name, "", n)
            for n, (name, value) in enumerate(zip(entries, turns.carried or (), strict=True))
        ]
        self._find_slots({self.index, *entries})

    def _targets(self) -> tuple[str, list[str]]:
        """The name of the turn, and those of what turns hand on."""
        target, carried = self.node.target, self.turns.carried
        has, form = "a loop without init_values has one name", "i"
        if carried is not None:
            has, form = "a loop with init_values has a name, and a tuple of names", "i, (a,)"
        match target:
            case ast.Name(name) if carried is None:
                return name, []
            case ast.Tuple([ast.Name(name), ast.Tuple(targets)]) if carried is not None:
                names = [t.id for t in targets if isinstance(t, ast.Name)]
                if len(names) != len(targets) or len(names) != len(carried):
                    self.body.fail_at(
                        target, f"{counted(len(targets), 'name')} for {counted(len(carried), 'value')} of init_values"
                    )
            case _:
                self.body.fail_at(target, has, f"write for {form} in pl.range(…)")
        return name, names

    def _slot(self, value: Any, name: str, after: str, yielded: int | None = None) -> Slot:
        if isinstance(value, SSAValue):
            return Slot(value, name, after, value.type, yielded)
        self.body.ask(is_number(value), f"{name}: {said(value)} is no value that turns hand on")
        return Slot(value, name, after, scalars.type_of(value), yielded)

    def _find_slots(self, targets: set[str]) -> None:
        """The names that are handed on."""
        names, statements = self.body.names, self.node.body
        for name in bound_in(statements):
            value = names.get(name)
            if name in targets or name not in names or isinstance(value, Unbound):
                continue
            needed = read_first(statements, name) or self.body.behind.reads(name)
            if needed and (isinstance(value, SSAValue) or is_number(value)):
                self.slots.append(self._slot(value, name, name))
            else:
                what = f"{name} is bound before {self.title} and again in it, and turns cannot hand it on"
                self.skipped[name] = Unbound(what, "give the second one another name")

    def insert(self) -> None:
        """Insert it."""
        body, turns = self.body, self.turns
        begin, end, step = (body.index(v) for v in (turns.begin, turns.end, turns.step))
        made = len(body.made)
        while (block := self._turn()) is None:  # a type was found to be another one
            body.unmake(made)
        firsts = [body.typed(slot.first, slot.type) for slot in self.slots]
        kept = self._prune(block, firsts)
        with body.at(self.node):
            op = body.insert(scf.ForOp(begin, end, step, firsts, Region(block)))
        if turns.parallel:
            op.attributes[PARALLEL] = UnitAttr()
        for name in bound_in([self.node]):
            if name in self.skipped:
                body.names[name] = self.skipped[name]
            elif name not in kept and not isinstance(body.names.get(name), Unbound):
                what = f"{name} is bound only in {self.title}, which may have no turn"
                body.names[name] = Unbound(what, f"bind {name} before the loop, too")
        for slot, result in zip(self.slots, op.results, strict=True):
            if slot.after:
                body.bind(slot.after, result)

    def _turn(self) -> Block | None:
        """The body as a block; None where it must be parsed again, since a slot is another one now."""
        body, node = self.body, self.node
        block = Block(arg_types=[IndexType(), *(slot.type for slot in self.slots)])
        with body.within(block, self.title, turns=True):
            body.names |= self.skipped
            body.bind(self.index, block.args[0])
            for slot, argument in zip(self.slots, block.args[1:], strict=True):
                body.bind(slot.name, argument)
            body.yields = ((), []) if self.turns.carried else None
            body.run(node.body, node.body)
            body.location = place(body.file, node.body[-1])
            last = self._handed_on()
            if last is None:
                return None
            body.insert(scf.YieldOp(*last))
        return block

    def _handed_on(self) -> list[SSAValue] | None:
        """What a turn hands on, for each slot; None where one has another type than was thought."""
        body = self.body
        values, names = body.yields or ((), [])
        wanted = len(self.turns.carried or ())
        body.ask(
            len(values) == wanted,
            f"the loop hands on {counted(wanted, 'value')}, and pl.yield_ gives {len(values)}",
            "end the loop's body with x = pl.yield_(…), a value for each of init_values",
        )
        last = []
        for slot in self.slots:
            value = body.names[slot.name]
            if slot.yielded is not None:
                value = values[slot.yielded]
                slot.after = names[slot.yielded] if slot.yielded < len(names) else ""
            if not self._settle(slot, value):
                return None
            last.append(body.typed(value, slot.type))
        return last

    def _settle(self, slot: Slot, value: Any) -> bool:
        """Whether a turn's value has the slot's type; else the slot takes the value's, where it can, or is none."""
        if isinstance(value, Unbound):
            self._skip(slot, value)
            return False
        kind = scalars.kind_of(value)
        if not isinstance(value, SSAValue):
            if scalars.common_type(kind, slot.type) == slot.type:
                return True
        elif moves(value.type, slot.type):
            return True
        if not isinstance(slot.first, SSAValue) and slot.type == scalars.type_of(slot.first) and is_scalar(kind):
            adopted = scalars.common_type(scalars.kind_of(slot.first), kind)
            if adopted == kind:
                slot.type = adopted
                return False
        before, after = said_apart(slot.type, value)
        what = f"{slot.name} is {before} before {self.title}, and {after} after a turn"
        remedy = "give the second one another name"
        if is_scalar(slot.type):
            remedy = f"give it one type: {slot.name} = pl.const(0, pl.INT32), or pl.cast(…)"
        if slot.yielded is not None:
            self.body.fail(what, remedy)
        self._skip(slot, Unbound(what, remedy))
        return False

    def _skip(self, slot: Slot, why: Unbound) -> None:
        self.slots.remove(slot)
        self.skipped[slot.name] = why

    def _prune(self, block: Block, firsts: list[SSAValue]) -> set[str]:
        """What no turn changes is not handed on; gives the names of that."""
        kept = set()
        last = block.last_op
        assert last is not None
        for n in reversed(range(len(self.slots))):
            argument, slot = block.args[n + 1], self.slots[n]
            if last.operands[n] is argument and slot.yielded is None:
                argument.replace_all_uses_with(firsts[n])
                last.operands = [o for k, o in enumerate(last.operands) if k != n]
                block.erase_arg(argument)
                kept.add(slot.name)
                del self.slots[n], firsts[n]
        return kept


def unroll(body: Statements, node: ast.For, turns: Turns) -> None:
    """The statements of a loop over `pl.unroll`, once for each turn."""
    assert isinstance(turns.begin, int)
    assert isinstance(turns.end, int)
    with body.nested(f"the loop of line {node.lineno}"):
        for turn in range(turns.begin, turns.end, turns.step):
            body.assign(node.target, turn)
            body.run(node.body, node.body)
