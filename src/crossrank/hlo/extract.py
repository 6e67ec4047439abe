"""Cutting a piece out of a module, as a small module that runs by itself.

The piece is a set of instructions of one computation. What they take from outside becomes parameters (constants and ids
come along instead), what the rest of the computation takes from them becomes the result. Ranks, groups and called
computations stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from crossrank.errors import InputError
from crossrank.hlo.build import element, tuple_of
from crossrank.hlo.config import ModuleConfig
from crossrank.hlo.module import Computation, Instruction, Module
from crossrank.hlo.shape import Shape

_CHEAP = {"constant", "iota", "partition-id", "replica-id", "after-all"}
"""What is copied into a piece rather than given to it."""


def find_instruction(module: Module, name: str) -> Instruction:
    """The instruction of that name, with or without ``%``; InputError where there is none."""
    wanted = name.removeprefix("%")
    for i in module.instructions():
        if i.name == wanted:
            return i
    raise InputError(
        f"there is no instruction %{wanted} in the module", "`crossrank inspect` lists the collectives by name"
    )


def neighbourhood(start: Instruction, depth: int) -> set[Instruction]:
    """The instruction, and what is at most ``depth`` steps above or below it in its computation."""
    found = {start}
    edge = [start]
    for _ in range(depth):
        edge = [n for i in edge for n in (*i.operands, *i.users) if n not in found and n.opcode != "parameter"]
        found.update(edge)
    return found


def extract(module: Module, piece: Collection[Instruction]) -> Module:
    """A module that holds ``piece`` (instructions of one computation of ``module``, which stays as it is).

    Raises:
        InputError: nothing is in the piece, or a parameter would have to be something that no run can be given.
    """
    if all(i.opcode in ("parameter", *_CHEAP) for i in piece):
        what = ", ".join(f"%{i.name} is a {i.opcode}" for i in piece)
        raise InputError(f"there is nothing to extract{f': {what}' if what else ''}", "name what computes something")
    copy = module.copy()
    by_id = {(i.computation.id, i.id): i for i in copy.instructions()}
    taken = {by_id[i.computation.id, i.id] for i in piece}
    source = next(iter(taken)).computation
    return _Cut(copy, source, _closed(taken)).run()


def _closed(taken: set[Instruction]) -> set[Instruction]:
    """With the cheap operands, and the tuples between members, so that no tuple has to be a parameter."""
    found = set(taken)
    work = list(taken)
    while work:
        for o in work.pop().operands:
            if o not in found and (o.opcode in _CHEAP or (o.opcode == "tuple" and not o.shape.is_array)):
                found.add(o)
                work.append(o)
    return found


class _Cut:
    def __init__(self, module: Module, source: Computation, taken: set[Instruction]) -> None:
        self.module = module
        self.source = source
        self.taken = taken
        self.entry = module.add_computation("extracted")
        self.parameters: list[Instruction] = []
        self.made: dict[Instruction, Instruction] = {}

    def run(self) -> Module:
        module = self.module
        order = [i for i in self.source.post_order() if i in self.taken]
        for i in order:
            if i.opcode != "parameter":
                self.made[i] = self.entry.clone_in(i, [self._outside(o) for o in i.operands])
        for i in order:
            inside = [self.made[p] for p in i.control_predecessors if p in self.made]
            if inside and i in self.made:
                self.made[i].set_control_predecessors(inside)
        given = [self.made[i] for i in order if i in self.made and self._is_result(i)]
        self.entry.set_root(self._root(given))
        module.entry = self.entry
        module.proto.entry_computation_id = self.entry.id
        for field in ("schedule", "input_output_alias", "buffer_donor"):
            module.proto.ClearField(field)
        # the rest of the header speaks of parameters and results that are no more
        counts = {k: v for k, v in module.config.fields.items() if k in ("replica_count", "num_partitions")}
        module.config = ModuleConfig(counts)
        module._call_graph_changed()
        module.remove_unreachable()
        self._name_as_before()
        self._describe_program()
        return module

    def _is_result(self, i: Instruction) -> bool:
        return i.opcode not in _CHEAP and (i.is_root or not i.users or any(u not in self.taken for u in i.users))

    def _outside(self, o: Instruction) -> Instruction:
        """What stands for an operand: its copy, or a new parameter."""
        if o not in self.made:
            self.made[o] = self._given(o.shape, o.name)
        return self.made[o]

    def _given(self, shape: Shape, name: str) -> Instruction:
        if shape.is_tuple:
            return tuple_of(self.entry, [self._given(s, f"{name}_{n}") for n, s in enumerate(shape.elements)])
        if not shape.is_array:
            if shape.dtype.name != "token":
                raise InputError(f"%{name} is a {shape}, which no run can be given")
            return self.entry.add("after-all", shape)
        parameter = self.entry.add("parameter", shape, name=name, edit=_numbered(len(self.parameters)))
        self.parameters.append(parameter)
        return parameter

    def _root(self, given: list[Instruction]) -> Instruction:
        arrays = [a for g in given for a in _arrays(g)]
        if len(given) == 1 and arrays == given:
            return given[0]
        return tuple_of(self.entry, arrays)

    def _name_as_before(self) -> None:
        """Give each copy the name of what it was copied from, now that that is gone."""
        live = {i.name for i in self.module.instructions()}
        for old, new in self.made.items():
            if new.opcode != "tuple" and old.name not in live:
                live.add(old.name)
                new.edit().name = old.name

    def _describe_program(self) -> None:
        for program in (self.entry.proto.program_shape, self.module.proto.host_program_shape):
            program.Clear()
            for p in self.parameters:
                p.shape.write(program.parameters.add())
                program.parameter_names.append(p.name)
            self.entry.root.shape.write(program.result)


def _arrays(value: Instruction) -> Iterable[Instruction]:
    """The arrays in a value; tokens are left out."""
    if value.shape.is_array:
        yield value
    elif value.shape.is_tuple:
        for n in range(len(value.shape.elements)):
            yield from _arrays(element(value, n))


def _numbered(number: int) -> Callable[[Any], None]:
    def edit(proto: Any) -> None:
        proto.parameter_number = number

    return edit
