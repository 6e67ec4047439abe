"""An HLO module that can be walked and edited: def-use, control dependencies, the call graph.

The module stays a protobuf message; nodes around its instructions hold what has to be found fast (operands, users,
callers), and the editing methods keep both true. Whatever is not touched is written back as it came.

Order: a computation lists its instructions so that operands come before their users. Editing may append out of order;
`Computation.post_order` puts things right again, in linear time and without moving what needs no moving.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

from crossrank.hlo.config import ModuleConfig
from crossrank.hlo.schedule import complete_schedule
from crossrank.hlo.schema import ComputationProto, InstructionProto, ModuleProto
from crossrank.hlo.shape import Shape

_FEW = 32
_NUMBERED = re.compile(r"\.\d+$")


class Instruction:
    """One instruction: a node around its message.

    Read any field through ``proto``; change fields through ``edit()``, and operands, control dependencies and called
    computations through the methods here, so that def-use stays true.

    Attributes:
        proto: the ``Instruction`` message. What the node holds too (operands, control predecessors) is right in it only
            once the module has been serialized.
        origin: the instruction of the module as it was read that this one stands for; kept by clones and by rewrites
            that put one instruction in another's place.
    """

    __slots__ = (
        "_places",
        "_shape",
        "_stale",
        "called",
        "computation",
        "control_predecessors",
        "control_successors",
        "id",
        "opcode",
        "operands",
        "origin",
        "proto",
        "users",
    )
    control_predecessors: tuple[Instruction, ...]
    control_successors: tuple[Instruction, ...]
    called: tuple[Computation, ...]

    def __init__(self, proto: Any, computation: Computation) -> None:
        self.proto = proto
        self.computation = computation
        self.id: int = proto.id
        self.opcode: str = proto.opcode
        self.operands: list[Instruction] = []
        self.users: dict[Instruction, None] = {}
        self.control_predecessors = self.control_successors = self.called = ()
        self.origin = self.id
        self._shape: Shape | None = None
        self._places: dict[Instruction, list[int]] | None = None  # where each operand stands; made for long lists
        self._stale = False  # the message does not have the operands and control predecessors of the node yet

    # -- reading -------------------------------------------------------------------------------------------------------
    @property
    def name(self) -> str:
        """The name without ``%``, unique in the module."""
        return str(self.proto.name)

    @property
    def shape(self) -> Shape:
        """The shape of the result."""
        if self._shape is None:
            self._shape = Shape.parse(self.proto.shape.SerializeToString())
        return self._shape

    @property
    def module(self) -> Module:
        """The module that holds this instruction."""
        return self.computation.module

    @property
    def is_root(self) -> bool:
        """Whether this is the result of its computation."""
        return self.computation.root is self

    @property
    def where(self) -> str:
        """``file:line`` of the author's source, or the empty string."""
        return self.module.source_line(self)

    @property
    def frontend_attributes(self) -> dict[str, str]:
        """A copy of the frontend attributes."""
        return dict(self.proto.frontend_attributes.map)

    def needs(self) -> Iterator[Instruction]:
        """What must run before it: its operands and control predecessors."""
        yield from self.operands
        yield from self.control_predecessors

    def __repr__(self) -> str:
        return f"<{self.opcode} %{self.name}>"

    # -- editing -------------------------------------------------------------------------------------------------------
    def edit(self) -> Any:
        """The message, for changing fields that are neither operands nor calls nor the shape."""
        self.computation.touch()
        return self.proto

    def set_opcode(self, opcode: str) -> None:
        """Make it another operation."""
        self.edit().opcode = opcode
        self.opcode = opcode

    def set_shape(self, shape: Shape) -> None:
        """Give the result another shape."""
        shape.write(self.edit().shape)
        self._shape = shape

    def set_operands(self, operands: Sequence[Instruction]) -> None:
        """Replace all operands."""
        for old in self.operands:
            old.users.pop(self, None)
        self.operands = list(operands)
        self._places = None
        for new in operands:
            new.users[self] = None
        self._stale = True
        self.computation.touch()
        self.computation._ordered = False

    def replace_operand(self, old: Instruction, new: Instruction) -> None:
        """Use ``new`` wherever ``old`` was an operand."""
        if self not in old.users:
            return
        for at in self._take_places(old, new):
            self.operands[at] = new
        del old.users[self]
        new.users[self] = None
        self._stale = True
        self.computation.touch()
        self.computation._ordered = False

    def _take_places(self, old: Instruction, new: Instruction) -> list[int]:
        """Where ``old`` stands among the operands, which is where ``new`` will.

        The result of a training step has thousands of operands, and a pass may replace one after the other.
        """
        if len(self.operands) <= _FEW:
            return [n for n, o in enumerate(self.operands) if o is old]
        if self._places is None:
            self._places = {}
            for n, o in enumerate(self.operands):
                self._places.setdefault(o, []).append(n)
        found = self._places.pop(old)
        self._places.setdefault(new, []).extend(found)
        return found

    def set_called(self, computations: Sequence[Computation]) -> None:
        """Replace the computations that it calls."""
        self.called = tuple(computations)
        ids = self.edit().called_computation_ids
        del ids[:]
        ids.extend(c.id for c in computations)
        self.module._call_graph_changed()

    def set_control_predecessors(self, predecessors: Iterable[Instruction]) -> None:
        """Replace the instructions that must run before this one without being operands."""
        for p in self.control_predecessors:
            p.control_successors = tuple(s for s in p.control_successors if s is not self)
        self.control_predecessors = tuple(dict.fromkeys(predecessors))
        for p in self.control_predecessors:
            p.control_successors += (self,)
        self._stale = True
        self.computation.touch()
        self.computation._ordered = False

    def _write(self) -> bytes:
        """The message, with what the node holds."""
        proto = self.proto
        if self._stale:
            proto.ClearField("operand_ids")
            proto.operand_ids.extend([o.id for o in self.operands])
            proto.ClearField("control_predecessor_ids")
            if self.control_predecessors:
                proto.control_predecessor_ids.extend([p.id for p in self.control_predecessors])
            self._stale = False
        data: bytes = proto.SerializeToString(deterministic=True)
        return data

    def set_frontend_attribute(self, key: str, value: str | None) -> None:
        """Set one frontend attribute, or drop it with None."""
        attributes = self.edit().frontend_attributes.map
        if value is None:
            attributes.pop(key, None)
        else:
            attributes[key] = value

    def replace_all_uses_with(self, new: Instruction) -> None:
        """Make every user (and the computation's result) take ``new`` instead; control dependencies stay."""
        for user in list(self.users):
            if user is not new:
                user.replace_operand(self, new)
        if self.is_root:
            self.computation.set_root(new)

    def take_place_of(self, old: Instruction) -> None:
        """Stand for ``old`` in everything: uses, control dependencies, origin; ``old`` is removed."""
        self.origin = old.origin
        self.set_control_predecessors((*self.control_predecessors, *old.control_predecessors))
        for s in old.control_successors:
            s.set_control_predecessors(self if p is old else p for p in s.control_predecessors)
        old.replace_all_uses_with(self)
        self.computation.remove(old)


class Computation:
    """A computation: instructions, one of which is its root (the result)."""

    def __init__(self, proto: Any, module: Module) -> None:
        self.module = module
        self.proto = proto
        self.id: int = proto.id
        self.instructions = [Instruction(p, self) for p in proto.instructions]
        self.root: Instruction
        self.touched = False
        self._ordered = True
        self._next_id = -1
        self._removed: set[Instruction] = set()

    @property
    def name(self) -> str:
        """The name without ``%``."""
        return str(self.proto.name)

    @property
    def is_fusion(self) -> bool:
        """Whether this is the body of a fusion."""
        return any(c.opcode == "fusion" for c in self.callers)

    @property
    def callers(self) -> list[Instruction]:
        """The instructions that call this computation."""
        return self.module.callers(self)

    @property
    def parameters(self) -> list[Instruction]:
        """The parameters, by number."""
        found = [i for i in self.instructions if i.opcode == "parameter" and i not in self._removed]
        return sorted(found, key=lambda i: int(i.proto.parameter_number))

    def __repr__(self) -> str:
        return f"<computation %{self.name}>"

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self.post_order())

    def touch(self) -> None:
        """Take note that something in it is being changed."""
        if not self.touched:
            self.touched = True
            self.module.modified = True
            # the nodes own the instruction messages from here on
            self.proto.ClearField("instructions")

    def post_order(self) -> list[Instruction]:
        """The instructions, operands and control predecessors first; a list to read, not to change."""
        if self._removed:
            self.instructions = [i for i in self.instructions if i not in self._removed]
            self._removed = set()
        if self._ordered:
            return self.instructions
        done: set[Instruction] = set()
        order: list[Instruction] = []
        for start in self.instructions:
            if start in done:
                continue
            if done.issuperset(start.operands) and done.issuperset(start.control_predecessors):
                done.add(start)  # it stands where it may: the common case
                order.append(start)
                continue
            stack: list[tuple[Instruction, Iterator[Instruction]]] = [(start, start.needs())]
            on_path = {start}
            while stack:
                node, needs = stack[-1]
                for n in needs:
                    if n not in done:
                        if n in on_path:
                            raise ValueError(f"%{n.name} and %{node.name} wait for each other")
                        on_path.add(n)
                        stack.append((n, n.needs()))
                        break
                else:
                    stack.pop()
                    on_path.discard(node)
                    done.add(node)
                    order.append(node)
        self.instructions = order
        self._ordered = True
        return order

    # -- editing -------------------------------------------------------------------------------------------------------
    def _new_id(self) -> int:
        # dense: XLA allocates tables by the largest local id
        if self._next_id < 0:
            self._next_id = max((i.id for i in self.instructions), default=self.id << 32) + 1
        self._next_id += 1
        return self._next_id - 1

    def _adopt(self, proto: Any, operands: Sequence[Instruction], name: str) -> Instruction:
        self.touch()
        proto.id = self._new_id()
        proto.name = self.module.unique_name(name)
        node = Instruction(proto, self)
        self.instructions.append(node)
        node.set_operands(operands)
        return node

    def add(
        self,
        opcode: str,
        shape: Shape,
        operands: Sequence[Instruction] = (),
        *,
        name: str = "",
        like: Instruction | None = None,
        called: Sequence[Computation] = (),
        edit: Callable[[Any], None] | None = None,
    ) -> Instruction:
        """Append a new instruction.

        Args:
            opcode: the HLO opcode.
            shape: of the result.
            operands: instructions of this computation.
            name: made unique; the opcode where empty.
            like: an instruction whose metadata and origin it takes.
            called: computations that it calls.
            edit: called with the new message, to set further fields.
        """
        proto = InstructionProto(opcode=opcode)
        shape.write(proto.shape)
        if like is not None:
            proto.metadata.CopyFrom(like.proto.metadata)
        if edit is not None:
            edit(proto)
        node = self._adopt(proto, operands, name or opcode)
        if called:
            node.set_called(called)
        if like is not None:
            node.origin = like.origin
        return node

    def move_in(self, other: Computation, operands: Sequence[Instruction]) -> Instruction:
        """Take over the instructions of a computation that nothing else calls, ``operands`` in the place of parameters.

        Returns what its root became. The other computation is empty afterwards.
        """
        self.touch()
        other.touch()
        for i in other.post_order():
            if i.opcode == "parameter":
                i.replace_all_uses_with(operands[int(i.proto.parameter_number)])
                for s in i.control_successors:
                    s.set_control_predecessors(p for p in s.control_predecessors if p is not i)
                continue
            i.id = i.proto.id = self._new_id()
            i.computation = self
            i._stale = True
            self.instructions.append(i)
        self._ordered = False
        other.instructions = []
        self.module._call_graph_changed()
        return other.root

    def clone_in(self, other: Instruction, operands: Sequence[Instruction]) -> Instruction:
        """Append a copy of ``other`` (of any computation) over ``operands``; control dependencies are not copied."""
        proto = InstructionProto()
        proto.CopyFrom(other.proto)
        for held_by_the_node in ("operand_ids", "control_predecessor_ids"):
            proto.ClearField(held_by_the_node)
        node = self._adopt(proto, operands, other.name)
        node.origin = other.origin
        if other.called:
            node.set_called(other.called)
        return node

    def set_root(self, root: Instruction) -> None:
        """Make ``root`` the result."""
        self.touch()
        self.root = root
        self.proto.root_id = root.id

    def remove(self, instruction: Instruction) -> None:
        """Take out an instruction that nothing uses; what it ordered by control dependencies stays ordered."""
        if instruction.users or instruction.is_root:
            raise ValueError(f"%{instruction.name} is still in use")
        self.touch()
        before = instruction.control_predecessors
        for s in instruction.control_successors:
            s.set_control_predecessors((*(p for p in s.control_predecessors if p is not instruction), *before))
        instruction.set_control_predecessors(())
        instruction.set_operands(())
        if instruction.called:
            instruction.set_called(())
        self._removed.add(instruction)

    def remove_dead(self, candidates: Iterable[Instruction]) -> None:
        """Take out those of ``candidates`` that nothing uses, and then their operands where those are dead too."""
        work = list(candidates)
        while work:
            i = work.pop()
            if i in self._removed or i.users or i.is_root or i.control_successors or i.opcode == "parameter":
                continue
            operands = list(dict.fromkeys(i.operands))
            self.remove(i)
            work.extend(operands)

    def serialize(self) -> bytes:
        """The ``Computation`` message, as bytes."""
        if not self.touched:
            return bytes(self.proto.SerializeToString(deterministic=True))
        parts = [self.proto.SerializeToString(deterministic=True)]
        for i in self.post_order():
            data = i._write()
            parts += (b"\x12", _varint(len(data)), data)  # field 2 (instructions), length-delimited
        return b"".join(parts)


class Module:
    """An HLO module.

    Args:
        data: a serialized ``Module`` message.
        config: what the header line says that the message does not.

    Attributes:
        proto: the message without its computations.
        computations: callees before their callers.
        entry: where the program starts.
        config: the module configuration.
        modified: whether anything was edited since it was read.
    """

    TITLE: ClassVar[str] = "HLO modules"

    def __init__(self, data: bytes, config: ModuleConfig) -> None:
        self.config = config
        self.proto = ModuleProto.FromString(data)
        self.computations = [Computation(p, self) for p in self.proto.computations]
        self.proto.ClearField("computations")  # each lives on in its node
        self.modified = False
        self._callers: dict[Computation, list[Instruction]] | None = None
        self._reachable: list[Computation] | None = None
        self._names: set[str] | None = None
        self._name_counters: dict[str, int] = {}
        self._source_lines: dict[int, str] = {}
        self._link()

    def _link(self) -> None:
        by_id = {c.id: c for c in self.computations}
        for c in self.computations:
            nodes = {i.id: i for i in c.instructions}
            for i in c.instructions:
                proto = i.proto
                i.operands = operands = [nodes[o] for o in proto.operand_ids[:]]
                for o in operands:
                    o.users[i] = None
                if proto.called_computation_ids:
                    i.called = tuple(by_id[k] for k in proto.called_computation_ids)
                if proto.control_predecessor_ids:
                    i.control_predecessors = tuple(nodes[k] for k in proto.control_predecessor_ids)
                    for p in i.control_predecessors:
                        p.control_successors += (i,)
            c.root = nodes[c.proto.root_id]
        self.entry = by_id[self.proto.entry_computation_id]

    # -- reading -------------------------------------------------------------------------------------------------------
    @property
    def name(self) -> str:
        """The module's name."""
        return str(self.proto.name)

    @property
    def world(self) -> int:
        """Number of ranks: replicas times partitions."""
        return self.config.replica_count * self.config.num_partitions

    def instructions(self) -> Iterator[Instruction]:
        """All instructions of all computations."""
        for c in self.computations:
            yield from c.post_order()

    def callers(self, computation: Computation) -> list[Instruction]:
        """The instructions that call ``computation``."""
        if self._callers is None:
            table: dict[Computation, list[Instruction]] = {}
            for c in self.computations:
                for i in c.post_order():
                    for callee in i.called:
                        table.setdefault(callee, []).append(i)
            self._callers = table
        return self._callers.get(computation, [])

    def reachable(self) -> list[Computation]:
        """The computations that the entry computation reaches, callees first, the entry last."""
        if self._reachable is not None:
            return list(self._reachable)
        order: list[Computation] = []
        seen = {self.entry}
        stack = [(self.entry, _callees(self.entry))]
        while stack:
            node, callees = stack[-1]
            for callee in callees:
                if callee not in seen:
                    seen.add(callee)
                    stack.append((callee, _callees(callee)))
                    break
            else:
                stack.pop()
                order.append(node)
        self._reachable = order
        return list(order)

    def source_line(self, instruction: Instruction) -> str:
        """``file:line`` that the metadata of ``instruction`` names, or the empty string."""
        if not instruction.proto.HasField("metadata"):
            return ""
        metadata = instruction.proto.metadata
        if metadata.source_file:
            return f"{metadata.source_file}:{metadata.source_line}"
        frame = metadata.stack_frame_id
        if frame and frame not in self._source_lines:
            index = self.proto.stack_frame_index
            try:  # ids count from 1
                location = index.file_locations[index.stack_frames[frame - 1].file_location_id - 1]
                self._source_lines[frame] = f"{index.file_names[location.file_name_id - 1]}:{location.line}"
            except IndexError:
                self._source_lines[frame] = ""
        return self._source_lines[frame] if frame else ""

    # -- editing -------------------------------------------------------------------------------------------------------
    def _call_graph_changed(self) -> None:
        self._callers = self._reachable = None

    def unique_name(self, wanted: str) -> str:
        """A name that nothing in the module has: ``wanted`` itself, or with a new number behind it."""
        if self._names is None:
            self._names = {i.name for c in self.computations for i in c.instructions}
            self._names.update(c.name for c in self.computations)
        name = wanted
        if name in self._names:
            base = _NUMBERED.sub("", wanted)
            number = self._name_counters.get(base, 0)
            while name in self._names:
                number += 1
                name = f"{base}.{number}"
            self._name_counters[base] = number
        self._names.add(name)
        return name

    def add_computation(self, name: str) -> Computation:
        """A new, empty computation; give it instructions and a root."""
        proto = ComputationProto(name=self.unique_name(name), id=max(c.id for c in self.computations) + 1)
        proto.execution_thread = self.entry.proto.execution_thread
        computation = Computation(proto, self)
        computation.touched = True
        self.computations.insert(len(self.computations) - 1, computation)
        self.modified = True
        return computation

    def clone_computation(self, original: Computation) -> Computation:
        """A copy of a computation that calls what the original calls."""
        copy = self.add_computation(original.name)
        copy.proto.program_shape.CopyFrom(original.proto.program_shape)
        copy.proto.execution_thread = original.proto.execution_thread
        new: dict[Instruction, Instruction] = {}
        for i in original.post_order():
            new[i] = copy.clone_in(i, [new[o] for o in i.operands])
            if i.control_predecessors:
                new[i].set_control_predecessors(new[p] for p in i.control_predecessors)
        copy.set_root(new[original.root])
        return copy

    def remove_unreachable(self) -> None:
        """Drop the computations that nothing calls any more."""
        kept = self.reachable()
        if len(kept) != len(self.computations):
            self.computations = kept
            self.modified = True
            self._call_graph_changed()

    def next_channel_id(self) -> int:
        """A channel id that no instruction has: the largest plus one, at least 1."""
        return max((int(i.proto.channel_id) for i in self.instructions()), default=0) + 1

    def copy(self) -> Module:
        """An independent copy; instructions keep ids, names and origins."""
        other = Module(self.serialize(), self.config)
        for mine, theirs in zip(self._in_written_order(), other.computations, strict=True):
            for a, b in zip(mine.post_order(), theirs.instructions, strict=True):
                b.origin = a.origin
        return other

    def _in_written_order(self) -> list[Computation]:
        if not self.modified:
            return self.computations
        # callees first, as XLA wants them; what nothing reaches comes before all
        reachable = self.reachable()
        live = set(reachable)
        return [c for c in self.computations if c not in live] + reachable

    def serialize(self) -> bytes:
        """The ``Module`` message, as bytes."""
        computations = self._in_written_order()
        if self.modified:
            complete_schedule(self)
            self.proto.entry_computation_name = self.entry.name
        parts = [self.proto.SerializeToString(deterministic=True)]
        for c in computations:
            data = c.serialize()
            parts += (b"\x1a", _varint(len(data)), data)  # field 3 (computations), length-delimited
        return b"".join(parts)


def _callees(c: Computation) -> Iterator[Computation]:
    for i in c.post_order():
        yield from i.called


def _varint(n: int) -> bytes:
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)
