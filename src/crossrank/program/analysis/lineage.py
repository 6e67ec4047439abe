"""Which memory a value is: through views, calls, loops and branches back to where it begins."""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from crossrank.errors import InputError, counted
from crossrank.program.dialect.calls import CallOp, CommDomainScopeOp
from crossrank.program.dialect.collectives import CollectiveOp
from crossrank.program.dialect.remote import RemoteStoreOp, TransferOp
from crossrank.program.dialect.tensors import AssembleOp, ReshapeOp, SliceOp, TransposeOp, WriteOp
from crossrank.program.dialect.tiles import StoreOp
from crossrank.program.dialect.windows import WindowOp
from crossrank.program.program import Function, Program, where
from crossrank.program.types import ANY_TENSOR

READ_ONLY = ("source", "send_counts", "index")
"""The operands of a collective that it leaves as they are."""


def is_tensor(value: SSAValue) -> bool:
    """Whether it is a handle on memory that outlives a kernel."""
    return isinstance(value.type, ANY_TENSOR)


def yielded(block: Block) -> list[SSAValue]:
    """What the last op of a block hands on."""
    return [] if block.last_op is None else list(block.last_op.operands)


class Lineage:
    """The functions of a program, and what is known of their values.

    Attributes:
        functions: by name.
    """

    def __init__(self, program: Program) -> None:
        self.functions = {f.name: f for f in program.functions}
        self._roots: dict[SSAValue, tuple[SSAValue, ...]] = {}
        self._returned: dict[str, tuple[int | None, ...]] = {}

    def named(self, call: CallOp) -> Function:
        """The function whose name a call has; InputError where there is none."""
        if call.function not in self.functions:
            raise InputError(f"{where(call)}the program has no function {call.function}")
        return self.functions[call.function]

    def callee(self, call: CallOp) -> Function:
        """The function that is called; InputError where there is none, or it has another number of parameters."""
        function = self.named(call)
        wanted, given = len(function.params), len(call.arguments)
        if wanted != given:
            raise InputError(
                f"{where(call)}call of {call.function}: it has {counted(wanted, 'parameter')}, and is given {given}",
                "pass every parameter, those that it writes too",
            )
        return function

    def roots(self, value: SSAValue) -> tuple[SSAValue, ...]:
        """Where the memory of a value begins; several, where a loop or a branch decides.

        That is a function's parameter, a buffer of windows, a new tensor, or the result of a call whose callee returns
        none of its parameters.
        """
        straight = [value]  # as far as each is one other: those have the same roots, and are asked for one by one
        while straight[-1] not in self._roots:
            origins = self.origins(straight[-1])
            if len(origins) != 1:
                self._roots[straight[-1]] = self._walked(straight[-1])
            else:
                straight.append(origins[0])
        found = self._roots[straight[-1]]
        self._roots.update(dict.fromkeys(straight, found))
        return found

    def _walked(self, value: SSAValue) -> tuple[SSAValue, ...]:
        """The roots of a value, by all ways."""
        found: dict[SSAValue, None] = {}
        seen = {value}
        todo = [value]
        while todo:
            current = todo.pop()
            if current in self._roots:
                found.update(dict.fromkeys(self._roots[current]))
                continue
            origins = self.origins(current)
            if not origins:
                found[current] = None
            todo += [o for o in dict.fromkeys(reversed(origins)) if o not in seen]
            seen.update(origins)
        if len(found) == 1:  # all on the way begin there
            self._roots.update(dict.fromkeys(seen, tuple(found)))
        return tuple(found)

    def root(self, value: SSAValue) -> SSAValue | None:
        """The one root of a value; None where it has several."""
        roots = self.roots(value)
        return roots[0] if len(roots) == 1 else None

    def parameter(self, value: SSAValue) -> int | None:
        """The parameter of its function that a value is, or views; None where it is none, or one of several."""
        root = self.root(value)
        return root.index if isinstance(root, BlockArgument) else None

    def returned(self, name: str) -> tuple[int | None, ...]:
        """For each result of a function the parameter that it gives back; None where it gives none, or one of several.

        A function without a body gives back what it writes, where that is as many as it returns.
        """
        if name not in self._returned:
            function = self.functions[name]
            self._returned[name] = (None,) * len(function.returned)  # for a function that calls itself
            self._returned[name] = self._find_returned(function)
        return self._returned[name]

    def _find_returned(self, function: Function) -> tuple[int | None, ...]:
        if function.has_body:
            end = function.body.last_op
            return tuple(self.parameter(v) for v in end.operands) if isinstance(end, ReturnOp) else ()
        written = [n for n, p in enumerate(function.params) if p.direction.writes]
        unknown = (None,) * len(function.returned)
        return tuple(written) if len(written) == len(unknown) else unknown

    def origins(self, value: SSAValue) -> tuple[SSAValue, ...]:
        """The values that a value may be, or views; none where it begins here."""
        if isinstance(value, BlockArgument):
            loop = value.block.parent_op()
            return _carried(loop, value.index - 1) if isinstance(loop, scf.ForOp) and value.index > 0 else ()
        assert isinstance(value, OpResult)
        op, n = value.op, value.index
        match op:
            case scf.ForOp():
                return _carried(op, n)
            case scf.IfOp():
                return tuple(yielded(region.block)[n] for region in op.regions if region.blocks)
            case CommDomainScopeOp():
                return (yielded(op.body.block)[n],)
            case WindowOp():
                return (op.buffer,)
            case CallOp() if n < len(op.returned) and op.function in self.functions:
                returned = self.returned(op.function)
                parameter = returned[n] if n < len(returned) else None
                return () if parameter is None or parameter >= len(op.arguments) else (op.arguments[parameter],)
        handle = handed_on(op) if is_tensor(value) else None
        return () if handle is None else (handle,)

    def first_written(self, function: Function) -> dict[int, Operation]:
        """The parameters that a function's body changes, each with the first op that does."""
        first: dict[int, Operation] = {}
        for op in function.op.walk():
            for value in self.written(op):
                for root in self.roots(value):
                    if isinstance(root, BlockArgument):
                        first.setdefault(root.index, op)
        return first

    def written(self, op: Operation) -> list[SSAValue]:
        """The tensors that an op changes."""
        match op:
            case CallOp():
                params = self.callee(op).params
                return [a for a, p in zip(op.arguments, params, strict=True) if p.direction.writes and is_tensor(a)]
            case WriteOp():
                return [op.target] if is_tensor(op.target) else []
            case CollectiveOp():
                spared = [getattr(op, name, None) for name in READ_ONLY]
                return [v for v in op.operands if is_tensor(v) and v not in spared]
            case StoreOp() | AssembleOp() | RemoteStoreOp() | TransferOp():
                changed = handed_on(op)
                return [changed] if changed is not None and is_tensor(changed) else []
        return []


def handed_on(op: Operation) -> SSAValue | None:
    """The operand that the result of an op is a view of, or the handle of; None where it makes something new."""
    match op:
        case SliceOp() | ReshapeOp() | TransposeOp():
            return op.source
        case AssembleOp() | StoreOp() | RemoteStoreOp():
            return op.target
        case TransferOp():
            return op.dst
        case CollectiveOp():
            return op.returned
    return None


def _carried(loop: scf.ForOp, n: int) -> tuple[SSAValue, ...]:
    """What a loop-carried value is: what it begins with, and what each turn hands on."""
    return (loop.iter_args[n], yielded(loop.body.block)[n])
