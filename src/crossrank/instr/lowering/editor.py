"""Editing the program of one core: accesses, aliases of other cores' tensors, temporary tensors, instructions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from crossrank.collective.dtypes import dtype
from crossrank.instr.dialect import ProgramOp
from crossrank.instr.fields import BarrierFields, Fields, TensorFields
from crossrank.instr.instructions import InstCoreBarrier, Instruction
from crossrank.instr.kinds import PARTITIONS, Space
from crossrank.instr.lowering.places import Part
from crossrank.instr.operands import AccessOp, TensorOp
from crossrank.instr.types import TensorType


class Editor:
    """The program of one core, while it is rewritten.

    Args:
        program: the program.
        inserted: told of every new instruction.
    """

    def __init__(self, program: ProgramOp, inserted: Callable[[int, Instruction], None]) -> None:
        self.core = program.index
        self.tensors: dict[str, TensorOp] = program.tensors()
        self._first: Block = program.body.blocks[0]
        self._last: TensorOp | None = None
        self._names = {*self.tensors, *(i.label for i in program.instructions())}
        self._inserted = inserted
        self._aliases: dict[TensorOp, TensorOp] = {}
        self._accesses: dict[tuple[TensorOp, Fields], AccessOp] = {}
        self._semaphores: dict[tuple[int, ...], TensorOp] = {}
        self._renamed: dict[str, str] = {}

    def reach(self, part: Part) -> AccessOp:
        """An access to a part of a tensor of this core or, by an alias, of another one."""
        tensor = part.tensor if part.core == self.core else self._remote(part)
        key = (tensor, part.fields)
        if key not in self._accesses:
            access = AccessOp(tensor.result, part.fields)
            Rewriter.insert_op(access, InsertPoint.after(tensor))
            self._accesses[key] = access
        return self._accesses[key]

    def _remote(self, part: Part) -> TensorOp:
        """What this core calls another one's tensor: ``<tensor>_remote_<core>``; its own name where they share it."""
        tensor, name = part.tensor, part.tensor.fields.name
        own = self.tensors.get(name)
        if own is not None and tensor.type.space.is_shared and own.type.space.is_shared and not tensor.fields.of:
            return own
        if tensor not in self._aliases:
            fields = TensorFields(self._named(f"{name}_remote_{part.core}"), core=part.core, of=name)
            self._aliases[tensor] = self._declare(TensorOp(fields, tensor.type))
        return self._aliases[tensor]

    def temporary(self, name: str, like: AccessOp) -> TensorOp:
        """A tensor of this core for what an access has; in SBUF where that lies on chip and fits."""
        type = like.type
        on_chip = type.space.has_partitions and bool(type.shape) and type.shape[0] <= PARTITIONS
        space = Space.SBUF if on_chip else Space.PRIVATE_HBM
        return self._declare(TensorOp(TensorFields(self._named(name)), TensorType.of(type.shape, type.dtype, space)))

    def _declare(self, tensor: TensorOp) -> TensorOp:
        where = InsertPoint.at_start(self._first) if self._last is None else InsertPoint.after(self._last)
        Rewriter.insert_op(tensor, where)
        self._last = tensor
        self.tensors[tensor.fields.name] = tensor
        return tensor

    def _named(self, name: str) -> str:
        found, n = name, 0
        while found in self._names:
            n += 1
            found = f"{name}.{n}"
        self._names.add(found)
        return found

    def insert(
        self,
        before: Instruction,
        cls: type[Instruction],
        what: str,
        fields: Fields,
        outs: Sequence[AccessOp],
        ins: Sequence[AccessOp],
    ) -> Instruction:
        """A new instruction before another one, named after it and with its source line."""
        values: list[list[SSAValue]] = [[a.result for a in side] for side in (outs, ins)]
        inst = cls(self._named(f"{before.label}.{what}"), fields, *values, where=before.where)
        Rewriter.insert_op(inst, InsertPoint.before(before))
        self._inserted(self.core, inst)
        return inst

    def barrier(self, before: Instruction, cores: Sequence[int]) -> Instruction:
        """A barrier of cores; barriers of the same cores have one semaphore."""
        key = tuple(sorted(cores))
        if key not in self._semaphores:
            name = self._named("_".join(["semaphore", *map(str, key)]))
            type = TensorType.of((1, 1), dtype("u32"), Space.SBUF)
            self._semaphores[key] = self._declare(TensorOp(TensorFields(name), type))
        semaphore = self.reach(Part.whole(self._semaphores[key]))
        return self.insert(before, InstCoreBarrier, "fence", BarrierFields(key), [semaphore], [semaphore])

    def replace(self, inst: Instruction, by: Sequence[Instruction]) -> None:
        """Take an instruction away, for which others stand now: who depended on it depends on the last of them."""
        if by:
            by[0].deps = (*inst.deps, *by[0].deps)
        self._renamed[inst.label] = by[-1].label if by else ""
        accesses = [*inst.out_accesses, *inst.in_accesses]
        Rewriter.erase_op(inst)
        for access in accesses:
            _erase_unused(access)

    def rewire(self, instructions: Iterable[Instruction]) -> None:
        """Correct what instructions depend on."""
        for inst in instructions:
            if any(name in self._renamed for name in inst.deps):
                inst.deps = [new for name in inst.deps if (new := self._renamed.get(name, name))]


def flag_written(tensor: TensorOp) -> None:
    """Say that another core writes a tensor, so that no allocator takes it for dead."""
    if not tensor.fields.written_by_peer:
        tensor.fields = replace(tensor.fields, written_by_peer=True)


def _erase_unused(access: Operation | Block) -> None:
    if isinstance(access, AccessOp) and access.parent is not None and access.result.first_use is None:
        index = access.index
        Rewriter.erase_op(access)
        if index is not None:
            _erase_unused(index.owner)
