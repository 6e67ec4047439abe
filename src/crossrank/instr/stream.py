"""The instruction stream of one core while it is built: tensors, computation, registers, and how an op gets in."""

from __future__ import annotations

import contextlib
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.utils.exceptions import VerifyException

from crossrank.errors import InputError
from crossrank.instr.compute import Value
from crossrank.instr.dialect import BranchOp, EndOp, JumpOp, ProgramOp
from crossrank.instr.fields import AccessFields, AluFields, ComputeFields, CopyFields, Fields, Pairs, TensorFields
from crossrank.instr.instructions import (
    InstCompute,
    InstDMACopy,
    InstRegisterAlu,
    InstRegisterLoad,
    InstRegisterStore,
    Instruction,
)
from crossrank.instr.kinds import Space
from crossrank.instr.op_classes import Op
from crossrank.instr.operands import AccessOp, TensorOp
from crossrank.instr.tensors import Register, View, element_type
from crossrank.instr.types import TensorType

HERE = str(Path(__file__).parents[1])


class InstructionStream:
    """Builds the program of one core: all that is no communication.

    Args:
        core: which core of its rank.
    """

    def __init__(self, core: int) -> None:
        self.core = core
        self._block = Block()
        self._blocks = [self._block]
        self._counters: dict[str, int] = {}
        self._names: set[str] = set()
        self._accesses: dict[tuple[object, ...], SSAValue] = {}
        self._inputs = 0
        self._outputs = 0
        self._finished = False
        self._loops: list[int] = []

    # Tensors and what becomes of the program

    def tensor(
        self, shape: Sequence[int], dtype: Any, space: Space | str = Space.SBUF, name: str | None = None
    ) -> View:
        """A new tensor; what it holds at first is NaN. Shared HBM of one name is one tensor for the cores of a rank."""
        return self._tensor(shape, dtype, space, name or "", -1)

    def input(self, name: str, shape: Sequence[int], dtype: Any, space: Space | str = Space.PRIVATE_HBM) -> View:
        """The next input of the program."""
        self._inputs += 1
        return self._tensor(shape, dtype, space, name, self._inputs - 1)

    def output(self, view: View) -> None:
        """Make a whole tensor the next output of the program; a view may take its bytes for another type."""
        own = view.tensor.type.dtype
        if not (view if view.element is own or not view.is_contiguous() else view.view(own)).is_whole:
            raise InputError(f"an output is a whole tensor, and {view} is a part of one", "copy it to one of its own")
        fields: TensorFields = view.tensor.fields
        view.tensor.fields = replace(fields, outputs=(*fields.outputs, self._outputs))
        self._outputs += 1

    def _tensor(self, shape: Sequence[int], dtype: Any, space: Space | str, name: str, input: int) -> View:
        if space not in list(Space):
            raise InputError(f"there is no memory {space!r}", f"there are {', '.join(Space)}")
        space = Space(space)
        name = self._named(name, name or self._unnamed(space), "tensor")
        (extents,) = integer_lists([shape], "shapes")
        type = TensorType.of(extents, element_type(dtype), space)
        op = TensorOp(TensorFields(name=name, input=input), type)
        self._add(op)
        return View.whole(self, op)

    def _unnamed(self, space: Space) -> str:
        """A name for a tensor without one; of what cores share, by where it is made: they may not make the same."""
        what = f"{space}-{author_line()}" if space.is_shared else str(space)
        return f"{what}-{self._count(what)}"

    def finish(self) -> ProgramOp:
        """The program; the builder is not to be used any more."""
        if self._finished:
            raise InputError("the program was finished already", "a builder makes one program")
        self._finished = True
        if self._loops:
            raise InputError("a loop that runs on the device was left before its end", "Python cannot break out of it")
        self._block.add_op(EndOp())
        return ProgramOp(f"core{self.core}", self.core, Region(self._blocks))

    @contextmanager
    def when(self, condition: Register) -> Iterator[None]:
        """What is built within runs where ``condition`` is not 0; what is made there is not to be used behind it."""
        then, after = Block(), Block()
        self._block.add_op(BranchOp(condition.value, then, after))
        accesses = dict(self._accesses)
        self._begin(then)
        yield
        self._block.add_op(JumpOp(after))
        self._begin(after)
        self._accesses = accesses

    @contextmanager
    def loop(self, proceed: Callable[[], Register]) -> Iterator[Register]:
        """What is built within runs again and again: as long as ``proceed``, built before it, gives anything but 0.

        What is made within is not to be used behind it. Gives the register that ``proceed`` gave.
        """
        before, turn, after = Block(), Block(), Block()
        self._block.add_op(JumpOp(before))
        accesses = dict(self._accesses)
        self._loops.append(len(self._blocks))
        self._begin(before)
        condition = proceed()
        if not isinstance(condition, Register):
            raise InputError(f"a loop goes on by a register, not by {condition!r}", "let Python loop where it knows")
        self._block.add_op(BranchOp(condition.value, turn, after))
        self._begin(turn)
        yield condition
        self._block.add_op(JumpOp(before))
        self._begin(after)
        self._accesses = accesses
        self._loops.pop()

    def is_of_this_turn(self, made: TensorOp | Register) -> bool:
        """Whether each turn of the loop that is being built makes it anew; of no loop, whether it is there at all."""
        op = made if isinstance(made, TensorOp) else made.value.owner
        block = op if isinstance(op, Block) else op.parent_block()
        return not self._loops or block in self._blocks[self._loops[-1] :]

    def _begin(self, block: Block) -> None:
        self._blocks.append(block)
        self._block = block

    # Computation

    def compute(
        self,
        function: str,
        outs: Sequence[View],
        ins: Sequence[View] = (),
        *,
        engine: str = "",
        name: str | None = None,
        **params: Value,
    ) -> Instruction:
        """A computation of one engine, by its name in `compute`."""
        fields = ComputeFields(function, tuple(sorted(params.items())), engine)
        return self._emit(InstCompute, function, fields, outs, ins, name=name)

    def dma_copy(self, dst: View, src: View, dma_qos: int | None = None, name: str | None = None) -> Instruction:
        """Copy; where the types differ, values are converted by way of f32."""
        self.validate_dma_qos(dma_qos)
        if dst.size != src.size:
            raise InputError(f"a copy from {src} to {dst}: they have {src.size} and {dst.size} elements")
        fields = CopyFields(dma_qos=-1 if dma_qos is None else dma_qos)
        return self._emit(InstDMACopy, "DMACopy", fields, [dst], [src], name=name)

    def register_alu(self, op: str, left: int | Register, right: int | Register | None = None) -> Register:
        """Arithmetic on registers and numbers; ``move`` takes one operand."""
        registers = [v.value for v in (left, right) if isinstance(v, Register)]
        numbers = [None if v is None or isinstance(v, Register) else _whole(v) for v in (left, right)]
        inst = self._emit(InstRegisterAlu, "RegisterAlu", AluFields(op, *numbers), registers=registers, result=True)
        assert inst.result is not None
        return Register(self, inst.result)

    def register_load(self, src: View) -> Register:
        """Read a register from a view of one element."""
        inst = self._emit(InstRegisterLoad, "RegisterLoad", Fields(), ins=[_one_element(src)], result=True)
        assert inst.result is not None
        return Register(self, inst.result)

    def register_store(self, dst: View, register: Register) -> Instruction:
        """Write a register to a view of one element."""
        return self._emit(InstRegisterStore, "RegisterStore", Fields(), [_one_element(dst)], registers=[register.value])

    def validate_dma_qos(self, dma_qos: int | None) -> None:
        """A queue priority is 0 to 3, or not given."""
        if dma_qos is not None and (isinstance(dma_qos, bool) or dma_qos not in range(4)):
            raise InputError(f"dma_qos is 0, 1, 2, 3 or None, not {dma_qos!r}")

    # How an op gets in

    def insert_raw(self, inst: Op) -> Instruction:
        """Insert an op as the instruction that its class implies."""
        return self._emit(
            inst.INSTRUCTION,
            inst.title,
            inst.fields,
            inst.outs,
            inst.ins,
            name=inst.name,
            deps=inst.deps,
            result=inst.gives_register,
        )

    def _emit(
        self,
        cls: type[Instruction],
        title: str,
        fields: Fields,
        outs: Sequence[View] = (),
        ins: Sequence[View] = (),
        registers: Sequence[SSAValue] = (),
        *,
        name: str | None = None,
        deps: Sequence[str] = (),
        result: bool = False,
    ) -> Instruction:
        for other in deps:
            if other not in self._names:
                raise InputError(f"there is no instruction {other} before this one, which is to come after it")
        label = self._named(name or "", name or f"{title}-{self._count(title)}", "instruction")
        where = author_line()
        operands = [self._access(v) for v in outs], [self._access(v) for v in ins]
        inst = cls(label, fields, *operands, registers, result=result, where=where, deps=deps)
        self._add(inst)
        return inst

    def _add(self, op: Operation) -> None:
        self._block.add_op(op)
        try:
            op.verify_()
            if isinstance(op, Instruction):
                op.check_core(self.core)
        except VerifyException as error:
            op.detach()  # type: ignore[no-untyped-call]
            raise InputError(str(error)) from None

    def _access(self, view: View) -> SSAValue:
        if not isinstance(view, View):
            raise InputError(f"an operand is a tensor of the kernel, not {type(view).__name__}")
        if view.builder is not self:
            raise InputError(f"{view} belongs to another program", "make tensors inside of the kernel")
        index = None if view.index is None else self._access(view.index[0])
        registers = [r.value for r, _ in view.registers]
        fields = AccessFields(
            offset=view.pattern.offset,
            pattern=view.pattern.dims,
            dtype="" if view.element is view.tensor.type.dtype else view.element.name,
            scale=tuple(scale for _, scale in view.registers),
            index_scale=0 if view.index is None else view.index[1],
            skip_outside=view.skip_outside,
        )
        key = (view.tensor, fields, *registers, index)
        if key not in self._accesses:
            op = AccessOp(view.tensor.result, fields, registers, index)
            self._add(op)
            self._accesses[key] = op.result
        return self._accesses[key]

    def _count(self, title: str) -> int:
        self._counters[title] = self._counters.get(title, -1) + 1
        return self._counters[title]

    def _named(self, given: str, name: str, what: str) -> str:
        if name in self._names:
            if given:
                raise InputError(f"two are named {name}", f"give this {what} another name")
            return self._named("", f"{name}.{self._count(name)}", what)
        self._names.add(name)
        return name


def author_line() -> str:
    """``file.py:line`` of whoever called us, the first frame outside of this package; empty where there is none."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((HERE, contextlib.__file__)):
        frame = frame.f_back  # type: ignore[assignment]
    return "" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def integer_lists(given: Any, what: str) -> Pairs:
    """Lists of integers, such as groups of ranks."""
    try:
        return tuple(tuple(operator.index(m) for m in members) for members in given)
    except TypeError:
        raise InputError(f"{what} are lists of integers, not {given!r}") from None


def _whole(number: Any) -> int:
    try:
        return operator.index(number)
    except TypeError:
        raise InputError(f"registers compute with whole numbers of 32 bits, and not with {number!r}") from None


def _one_element(view: View) -> View:
    if view.size != 1:
        raise InputError(f"a register holds one element, and {view} has {view.size}")
    return view
