"""The kernels that come with crossrank: what a collective becomes that a HOST or a CHIP function asks for.

Each is a function of the program whose body is never compiled: its source is a template, which its attributes name, and
it gives back its target. To every pass it is a kernel like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.dialects.builtin import IndexType, StringAttr, UnitAttr
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Attribute, Block, SSAValue

from crossrank.collective.dtypes import DType, dtype
from crossrank.errors import InputError
from crossrank.program.dialect.collectives import (
    AllGatherOp,
    AllReduceOp,
    AllToAllOp,
    AllToAllVOp,
    BarrierOp,
    BroadcastOp,
    CollectiveOp,
    IndexedAllToAllVOp,
    ReduceScatterOp,
)
from crossrank.program.dialect.tensors import shaped
from crossrank.program.kinds import Direction, FunctionType, ReduceOp
from crossrank.program.program import Function, Param, Program, where
from crossrank.program.types import UNKNOWN, Dim, DistTensorType, TensorType, spelled

PACKAGE = ":pypto.runtime.builtins.collectives."
"""Before the name of a builtin: how its template is called in the attributes of a function."""
TEMPLATE_DIR, TEMPLATE_VARS, CONTIGUOUS = "builtin_template_dir", "builtin_template_vars", "require_contiguous_operands"
"""The attributes of a builtin function."""
DISPATCH = "builtin.tensor."
"""Before the name of a variant: the chip function that the host dispatches for it."""
MOST_CORES = 2**31 - 1
SOURCE_RANKS = 16
"""As many ranks as the kernels of the source have room for."""

CPP = {
    "f16": "half",
    "bf16": "bfloat16_t",
    "f32": "float",
    "f64": "double",
    "pred": "bool",
    **{f"{sign}{bits}": f"{'u' * (sign == 'u')}int{bits}_t" for sign in "su" for bits in (8, 16, 32, 64)},
}
"""Element types as ``dtype_cpp`` names them."""


@dataclass(frozen=True)
class Operand:
    """A tensor that a builtin takes.

    Attributes:
        name: of the parameter.
        field: of the collective's operand.
        type: a `DistTensorType` where peers reach it by a context of its own, else a `TensorType`; either may be
            passed a view of a window.
        direction: what the builtin does to it.
        payload: it has the collective's element type; else it is INT32.
    """

    name: str
    field: str
    type: type[TensorType] | type[DistTensorType]
    direction: Direction
    payload: bool = False


_INPUT = Operand("input", "source", TensorType, Direction.In, payload=True)
_TARGET = Operand("target", "target", DistTensorType, Direction.InOut, payload=True)
_SIGNAL = Operand("signal", "signal", DistTensorType, Direction.InOut)


@dataclass(frozen=True)
class Builtin:
    """A collective as a kernel.

    Attributes:
        name: as programs' build folders have it.
        template: of its source.
        operands: its tensors, each of two dimensions.
        returned: which of them it gives back.
        reduces: its variants differ in their reduce op, too.
        in_rows: its target has rows for each rank.
        is_wide: it can be launched in several blocks.
        folds: of several blocks it takes what its peers can share evenly (`blocks`), else as many as are asked for.
    """

    name: str
    template: str
    operands: tuple[Operand, ...]
    returned: str = "target"
    reduces: bool = False
    in_rows: bool = False
    is_wide: bool = False
    folds: bool = False

    @property
    def signal(self) -> int:
        """The number of the operand that is the signal."""
        return self.operands.index(_SIGNAL)


ALL_REDUCE = Builtin("allreduce", "all_reduce", (_TARGET, _SIGNAL), reduces=True, is_wide=True)
RING = Builtin("allreduce_ring", "all_reduce_ring", (_TARGET, _SIGNAL), reduces=True)
BUILTINS: Mapping[type[CollectiveOp], Builtin] = {
    AllReduceOp: ALL_REDUCE,
    BarrierOp: Builtin("barrier", "barrier", (_SIGNAL,), returned="signal"),
    BroadcastOp: Builtin("broadcast", "collective_broadcast", (_TARGET, _SIGNAL)),
    AllGatherOp: Builtin("allgather", "all_gather", (_INPUT, _TARGET, _SIGNAL), in_rows=True),
    ReduceScatterOp: Builtin("reduce_scatter", "reduce_scatter", (_TARGET, _SIGNAL), reduces=True, in_rows=True),
    AllToAllOp: Builtin("all_to_all", "all_to_all", (_INPUT, _TARGET, _SIGNAL), in_rows=True),
    AllToAllVOp: Builtin(
        "all_to_all_v",
        "all_to_all_v",
        (
            _INPUT,
            _TARGET,
            _SIGNAL,
            Operand("send_counts", "send_counts", TensorType, Direction.In),
            Operand("recv_counts", "recv_counts", DistTensorType, Direction.InOut),
        ),
        in_rows=True,
        is_wide=True,
        folds=True,
    ),
    IndexedAllToAllVOp: Builtin(
        "indexed_all_to_all_v",
        "indexed_all_to_all_v",
        (
            _INPUT,
            _TARGET,
            _SIGNAL,
            Operand("send_counts", "send_counts", DistTensorType, Direction.In),
            Operand("recv_counts", "recv_counts", TensorType, Direction.InOut),
            Operand("index", "index", TensorType, Direction.In),
        ),
        in_rows=True,
        is_wide=True,
    ),
}
"""The builtin of each collective, but for the all-reduce that goes round a ring."""

_BY_PACKAGE = {PACKAGE + b.name: b for b in (*BUILTINS.values(), RING)}


def builtin_of(op: CollectiveOp) -> Builtin:
    """The builtin that a collective becomes."""
    return RING if isinstance(op, AllReduceOp) and op.mode.data == "ring" else BUILTINS[type(op)]


def blocks(ranks: int, limit: int) -> int:
    """In how many blocks an all-to-all-v among so many ranks is launched, of at most ``limit``.

    Each has peers of its own, or each peer as many blocks as any other: a multiple of the ranks, once there are enough.
    """
    return limit if limit < ranks else limit // ranks * ranks


def width(limit: int, ranks: Dim, stride: int, *, folds: bool) -> int | str:
    """In how many blocks a launch is made that may have at most ``limit``; in words, why it cannot be.

    Args:
        limit: the ``core_num`` that is asked for.
        ranks: of the domain; a number where it ``folds``.
        stride: the columns of the signal, of which each block needs one.
        folds: as `Builtin` has it.
    """
    if not 1 <= limit <= MOST_CORES:
        return f"core_num must be in [1, {MOST_CORES}], got {limit}"
    count = blocks(ranks, limit) if folds and isinstance(ranks, int) else limit
    if stride >= count:
        return count
    what = "folded block count" if folds else "block count"
    return f"signal stride {stride} is smaller than the {what} {count} (requested core_num {limit}, NR {ranks})"


def ring_rows(ranks: int) -> int:
    """The rows of the signal of a ring that is managed: one for each round, and one more."""
    return 2 * (ranks - 1) + 1


@dataclass(frozen=True)
class Variant:
    """A builtin for an element type, and a reduce op where it reduces.

    Attributes:
        builtin: the collective.
        element: the type of what it moves; FP32 where it moves nothing.
        op: the reduce op; None where it reduces nothing.
        root: of a broadcast.
    """

    builtin: Builtin
    element: DType
    op: ReduceOp | None = None
    root: int | None = None

    @staticmethod
    def of(op: CollectiveOp) -> Variant:
        """What a collective becomes."""
        builtin = builtin_of(op)
        moves = not isinstance(op, BarrierOp)
        reduce_op = op.properties.get("op")
        return Variant(
            builtin,
            shaped(op.returned).dtype if moves else dtype("f32"),
            ReduceOp[reduce_op.data] if isinstance(reduce_op, StringAttr) else None,
            op.root.value.data if isinstance(op, BroadcastOp) else None,
        )

    @property
    def _reduced(self) -> str:
        return "" if self.op is None else f"__{self.op.name.lower()}"

    @property
    def kernel(self) -> str:
        """The name of its kernel."""
        return f"__builtin_{self.builtin.name}{self._reduced}__{spelled(self.element).lower()}"

    @property
    def dispatch(self) -> str:
        """The name of the chip function that the host dispatches for it."""
        root = "" if self.root is None else f"__root{self.root}"
        return f"{DISPATCH}{self.builtin.name}{root}{self._reduced}__{spelled(self.element).lower()}"

    @property
    def template_vars(self) -> str:
        """What its template is rendered with."""
        op = "" if self.op is None else f",op={self.op.name.lower()}"
        return f"dtype_cpp={CPP[self.element.name]}{op}"

    def param_type(self, operand: Operand) -> TensorType | DistTensorType:
        """The type of a parameter, whatever extents a call has."""
        return operand.type.of([UNKNOWN, UNKNOWN], self.element if operand.payload else dtype("s32"))

    @property
    def tensors(self) -> list[Param]:
        """The parameters of its kernel that are tensors."""
        return [Param(o.name, self.param_type(o), o.direction) for o in self.builtin.operands]

    @property
    def params(self) -> list[Param]:
        """The parameters of its kernel: its tensors, and the root of a broadcast."""
        return self.tensors if self.root is None else [*self.tensors, Param("root", IndexType())]


def builtin_kernel(program: Program, variant: Variant) -> Function:
    """The kernel of a variant: the program's own, or a new one at its end, without a body of its own.

    Raises:
        InputError: a function of the author's has its name.
    """
    try:
        found = program.function(variant.kernel)
    except KeyError:
        return _add(program, _kernel(variant))
    if not is_builtin(found):
        raise InputError(
            f"{where(found.op)}synthesized builtin kernel name '{variant.kernel}' collides with an existing function",
            "give yours another name",
        )
    return found


def _kernel(variant: Variant) -> Function:
    params = variant.params
    body = Block(arg_types=[p.type for p in params])
    for argument, param in zip(body.args, params, strict=True):
        argument.name_hint = param.name
    target = next(n for n, p in enumerate(params) if p.name == variant.builtin.returned)
    body.add_op(ReturnOp(body.args[target]))
    made = Function.of(variant.kernel, params, [params[target].type], type=FunctionType.AIV, body=body)
    attributes: dict[str, Attribute] = {
        TEMPLATE_DIR: StringAttr(PACKAGE + variant.builtin.name),
        TEMPLATE_VARS: StringAttr(variant.template_vars),
        CONTIGUOUS: UnitAttr(),
    }
    made.op.attributes.update(attributes)
    return made


def _add(program: Program, function: Function) -> Function:
    program.module.body.block.add_op(function.op)
    return function


def is_builtin(function: Function) -> bool:
    """Whether its source is a template."""
    return TEMPLATE_DIR in function.op.attributes


def is_dispatch(function: str) -> bool:
    """Whether a function of that name is what the host dispatches for a collective of its own."""
    return function.startswith(DISPATCH)


def operands_of(op: CollectiveOp) -> dict[str, SSAValue]:
    """The tensors of a collective, by the names of its builtin's parameters, in their order."""
    return {o.name: getattr(op, o.field) for o in builtin_of(op).operands}


def role(op: CollectiveOp, name: str) -> str:
    """What messages call an operand that its builtin has under a name."""
    return "src" if isinstance(op, AllReduceOp) and name == "target" else name


def template_of(function: Function) -> tuple[Builtin, ReduceOp | None, DType]:
    """What a builtin function's attributes say: the collective, the reduce op, the element type.

    Raises:
        InputError: there is no such template, or its variables are not what it takes.
    """
    package, text = (function.op.attributes.get(key) for key in (TEMPLATE_DIR, TEMPLATE_VARS))
    assert isinstance(package, StringAttr)
    builtin = _BY_PACKAGE.get(package.data)
    if builtin is None:
        raise InputError(f"{where(function.op)}function {function.name}: there is no template {package.data}")
    said = dict(part.partition("=")[::2] for part in text.data.split(",")) if isinstance(text, StringAttr) else {}
    elements = {cpp: name for name, cpp in CPP.items()}
    ops = {op.name.lower(): op for op in ReduceOp}
    if said.get("dtype_cpp") not in elements or (said.get("op") in ops) is not builtin.reduces:
        wanted = "dtype_cpp and op" if builtin.reduces else "dtype_cpp"
        raise InputError(f"{where(function.op)}function {function.name}: {TEMPLATE_VARS} does not say {wanted}")
    return builtin, ops[said["op"]] if builtin.reduces else None, dtype(elements[said["dtype_cpp"]])
