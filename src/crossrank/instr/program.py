"""A kernel as a module: the programs of all cores of a rank, and what they were traced for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from xdsl.dialects.builtin import IntAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute
from xdsl.utils.exceptions import VerifyException

from crossrank.errors import InputError
from crossrank.instr.dialect import BranchOp, EndOp, JumpOp, ProgramOp, context
from crossrank.instr.fields import BarrierFields, CollectiveFields, PeerFields, RankFields, RingFields
from crossrank.instr.instructions import InstCoreBarrier, InstGPSIMDSB2SB, Instruction
from crossrank.instr.operands import TensorOp
from crossrank.instr.verify import check_arch, check_members
from crossrank.mlir import parse_module

MOST_CORES = 1 << 16
"""Cores of all ranks together: each has its own memory, and time goes by their number."""


class Kernel:
    """A module of the dialect, seen as a kernel.

    Attributes:
        module: one program for each core of a rank; every rank runs them.
    """

    TITLE: ClassVar[str] = "kernels"

    def __init__(self, module: ModuleOp) -> None:
        self.module = module

    @staticmethod
    def of(
        programs: Sequence[ProgramOp],
        *,
        name: str = "kernel",
        world_size: int = 1,
        lnc: int = 1,
        arch: int = 40,
        has_collectives: bool = False,
    ) -> Kernel:
        """The kernel of these programs, one a core.

        Args:
            programs: in order of their cores; cores without one have nothing to do.
            name: the kernel's.
            world_size: how many ranks it was traced for.
            lnc: how many cores a rank has.
            arch: the architecture level.
            has_collectives: whether a collective was inserted that only says who talks to whom.
        """
        attributes: dict[str, Attribute] = {
            "instr.kernel": StringAttr(name),
            "instr.world_size": IntAttr(world_size),
            "instr.lnc": IntAttr(lnc),
            "instr.arch": IntAttr(arch),
        }
        if has_collectives:
            attributes["instr.has_collectives"] = IntAttr(1)
        return Kernel(ModuleOp(list(programs), attributes))

    def said(self, key: str) -> int | None:
        """What the module says of itself under ``instr.<key>``; None where it does not."""
        found = self.module.attributes.get(f"instr.{key}")
        return int(found.data) if isinstance(found, IntAttr) else None

    def say(self, key: str, number: int) -> None:
        """Let the module say that of itself."""
        self.module.attributes[f"instr.{key}"] = IntAttr(number)

    def _number(self, key: str, default: int) -> int:
        found = self.said(key)
        return default if found is None else found

    @property
    def name(self) -> str:
        """The kernel's name."""
        found = self.module.attributes.get("instr.kernel")
        return found.data if isinstance(found, StringAttr) else "kernel"

    @property
    def world_size(self) -> int:
        """How many ranks it is for."""
        return self._number("world_size", 1)

    @property
    def lnc(self) -> int:
        """How many cores a rank has."""
        return self._number("lnc", len(self.programs))

    @property
    def arch(self) -> int:
        """The architecture level: 20, 30, 40."""
        return self._number("arch", 40)

    @property
    def has_collectives(self) -> bool:
        """Whether a collective was inserted that only says who talks to whom."""
        return bool(self._number("has_collectives", 0))

    @property
    def programs(self) -> list[ProgramOp]:
        """The programs, by core."""
        return sorted((op for op in self.module.ops if isinstance(op, ProgramOp)), key=lambda p: p.index)

    def inputs(self) -> list[TensorOp]:
        """Its inputs in order, as the first core that has them declares them."""
        return list(self._declared(_input_of).values())

    def outputs(self) -> list[TensorOp]:
        """Its outputs in order, as the first core that has them declares them."""
        return list(self._declared(_outputs_of).values())

    def _declared(self, positions: Callable[[TensorOp], tuple[int, ...]]) -> dict[int, TensorOp]:
        """Tensors by the positions that they have."""
        found: dict[int, TensorOp] = {}
        for program in self.programs:
            for tensor in program.tensors().values():
                for position in positions(tensor):
                    found.setdefault(position, tensor)
        return dict(sorted(found.items()))

    def core_of(self, tensor: TensorOp) -> int:
        """The core whose program declares a tensor."""
        program = tensor.parent_op()
        assert isinstance(program, ProgramOp)
        return program.index

    def verify(self) -> None:
        """Raise an InputError where something cannot be."""
        stray = next((op for op in self.module.ops if not isinstance(op, ProgramOp)), None)
        if stray is not None:
            raise InputError(f"{stray.name} stands outside of the programs", "put it into the program of a core")
        for program in self.programs:
            for last in (block.last_op for block in program.body.blocks):
                if not isinstance(last, EndOp | JumpOp | BranchOp):
                    what = f"{last.label}: " if isinstance(last, Instruction) else ""
                    raise InputError(f"core {program.index}: {what}nothing says where it goes on", "end by instr.end")
        try:
            self.module.verify()
        except VerifyException as error:
            raise InputError(str(error).splitlines()[0]) from None
        cores = [p.index for p in self.programs]
        if not cores or len(set(cores)) != len(cores) or max(cores) >= self.lnc:
            raise InputError(f"the programs are for the cores {cores}, and a rank has {self.lnc}")
        check_world(self.world_size, self.lnc)
        for program in self.programs:
            for inst in program.instructions():
                self._check_members(program, inst)
        self._check_shared()
        for what, of in (("input", _input_of), ("output", _outputs_of)):
            positions = self._declared(of)
            if list(positions) != list(range(len(positions))):
                raise InputError(f"the {what}s of the kernel are numbered {list(positions)}, not from 0 on")

    def _check_members(self, program: ProgramOp, inst: Instruction) -> None:
        """All ranks and cores of which an instruction speaks are there, and can meet where they must."""
        fields = inst.fields
        ranks: list[int] = []
        cores: list[int] = []
        if isinstance(fields, CollectiveFields):
            listed = (*fields.replica_groups, *fields.src_target_pairs)
            (cores if fields.is_local else ranks).extend(m for members in listed for m in members)
            cores.extend((fields.send_to_rank, *fields.recv_from_ranks) if fields.kind.is_point_to_point else ())
        elif isinstance(fields, RingFields):
            ranks.extend(m for g in fields.replica_groups for m in g)
        elif isinstance(fields, PeerFields):
            ranks.append(fields.peer_id)
        elif isinstance(fields, BarrierFields):
            cores.extend(fields.cores)

        def ask(holds: object, text: str) -> None:
            if not holds:
                raise InputError(f"core {program.index}: {inst.label}: {text}")

        check_members(ranks, self.world_size, False, ask)
        check_members(cores, self.lnc, True, ask)
        if isinstance(fields, RankFields):
            ask(fields.world_size == self.world_size, f"it is of {fields.world_size} ranks, and {self.world_size} run")
        if isinstance(inst, InstCoreBarrier | InstGPSIMDSB2SB):
            check_arch(self.arch, inst.name.removeprefix("instr."), ask)

    def _check_shared(self) -> None:
        """Shared tensors of one name have one type on all cores; an alias speaks of a tensor that is there."""
        by_core = {p.index: p.tensors() for p in self.programs}
        shared: dict[str, TensorOp] = {}
        for core, tensors in by_core.items():
            for name, tensor in tensors.items():
                if tensor.type.space.is_shared and shared.setdefault(name, tensor).type != tensor.type:
                    raise InputError(
                        f"core {core}: the shared tensor {name} is {tensor.type.described}, and on another core "
                        f"{shared[name].type.described}",
                        "shared tensors of one name are one tensor: give each its own name",
                    )
                if tensor.fields.of and tensor.fields.of not in by_core.get(tensor.fields.core, {}):
                    raise InputError(
                        f"core {core}: {name} is an alias of {tensor.fields.of} on core {tensor.fields.core}, which "
                        "has no such tensor"
                    )

    def __str__(self) -> str:
        return str(self.module) + "\n"


def check_world(ranks: int, lnc: int) -> None:
    """Raise an InputError where there are no ranks, or more cores than one process takes."""
    if ranks < 1:
        raise InputError(f"a kernel is for one rank or more, not {ranks}")
    if ranks * lnc > MOST_CORES:
        raise InputError(f"{ranks} ranks have {ranks * lnc} cores, and one process here takes {MOST_CORES} at most")


def _input_of(tensor: TensorOp) -> tuple[int, ...]:
    return (tensor.fields.input,) if tensor.fields.input >= 0 else ()


def _outputs_of(tensor: TensorOp) -> tuple[int, ...]:
    return tuple(tensor.fields.outputs)


def read_kernel(text: str, path: str = "the text") -> Kernel:
    """Read a kernel from its text, and verify it."""
    kernel = parse_kernel(text, path)
    kernel.verify()
    return kernel


def parse_kernel(text: str, path: str = "the text") -> Kernel:
    """Read a kernel from its text, whatever it is."""
    kernel = Kernel(parse_module(context(), text, path))
    kernels = sum(isinstance(op, ModuleOp) for op in kernel.module.ops)
    if kernels:
        raise InputError(f"{path} has {kernels} kernels", "give one: save each builtin.module in a file of its own")
    return kernel
