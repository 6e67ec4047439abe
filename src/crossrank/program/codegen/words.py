"""The ops of the dialect that stand in kernels, each as a call of `crossrank/program.h`.

An op that changes something in place is a statement, and its result is what it changed; any other is an expression.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from xdsl.ir import Block, Operation, SSAValue

from crossrank.collective.dtypes import DType
from crossrank.errors import InputError
from crossrank.program.codegen.scalars import Names
from crossrank.program.codegen.spelling import element_type, quoted
from crossrank.program.dialect.remote import (
    DeferWaitOp,
    GetOp,
    InvalidateOp,
    NotifySignalOp,
    PutOp,
    RemoteLoadOp,
    RemoteStoreOp,
    TransferOp,
    WaitOp,
)
from crossrank.program.dialect.tensors import (
    AssembleOp,
    CreateArrayOp,
    DimOp,
    ReadOp,
    ReshapeOp,
    SliceOp,
    TransposeOp,
    WriteOp,
    shaped,
)
from crossrank.program.dialect.tiles import (
    BinaryOp,
    CastOp,
    FillPadOp,
    FullOp,
    LoadOp,
    MatmulOp,
    MoveOp,
    ReduceOp,
    SelectOp,
    SetValidShapeOp,
    StoreOp,
    UnaryOp,
    word,
)
from crossrank.program.dialect.windows import BlockIndexOp, NumBlocksOp, NumRanksOp, RankOp
from crossrank.program.program import where
from crossrank.program.types import ShapedType, TileType, spelled

UNARY = {
    "abs": "Abs",
    "exp": "Exp",
    "log": "Log",
    "neg": "Negate",
    "not": "Not",
    "recip": "Reciprocal",
    "relu": "Relu",
    "rsqrt": "ReciprocalRoot",
    "sqrt": "Root",
}
BINARY = {
    "add": "Add",
    "sub": "Subtract",
    "mul": "Multiply",
    "div": "Divide",
    "max": "Maximum",
    "min": "Minimum",
    "rem": "Remainder",
    "and": "And",
    "or": "Or",
    "xor": "Xor",
    "shl": "ShiftLeft",
    "shr": "ShiftRight",
}
REDUCE = {"sum": "Add", "max": "Maximum", "min": "Minimum"}
ROUNDING = {"none": "Trunc", "rint": "Rint", "round": "Round", "floor": "Floor", "ceil": "Ceil", "trunc": "Trunc"}
COMPARISONS = {
    "lt": "Less",
    "le": "LessEqual",
    "gt": "Greater",
    "ge": "GreaterEqual",
    "eq": "Equal",
    "ne": "NotEqual",
}
_OF_FLOATS = frozenset(("exp", "log", "recip", "rsqrt", "sqrt"))
_OF_INTEGERS = frozenset(("shl", "shr"))
_OF_BITS = frozenset(("not", "and", "or", "xor"))
_OF_TRUTHS = frozenset(("add", "mul", "max", "min")) | _OF_BITS


def is_there(name: str, dtype: DType) -> bool:
    """Whether an op of `UNARY` or `BINARY` is there for tiles of a type: of truths only what is one again."""
    if dtype.name == "pred":
        return name in _OF_TRUTHS
    return name not in (_OF_INTEGERS | _OF_BITS if dtype.is_float else _OF_FLOATS)


def _ask_there(op: Operation, name: str, dtype: DType) -> None:
    if not is_there(name, dtype):
        to = "FP32" if name in _OF_FLOATS else "INT32"
        raise InputError(
            f"{where(op)}{word(name)} is not there for tiles of {spelled(dtype)}", f"cast it: pl.cast(x, pl.{to})"
        )


def _element(value: SSAValue) -> str:
    return element_type(shaped(value).dtype)


def _sizes(type: ShapedType) -> str:
    return braced(map(str, type.extents))


def braced(parts: Any) -> str:
    """``{a, b}``."""
    return "{" + ", ".join(parts) + "}"


def _call(function: str, *arguments: str) -> str:
    return f"cr::{function}({', '.join(('core', *arguments))})"


def _list(values: Sequence[SSAValue], name: Names) -> str:
    return braced(map(name, values))


def _full(op: FullOp, name: Names) -> str:
    type = shaped(op.result)
    form = f"<{_element(op.result)}, {len(type.shape)}>"
    if op.value is None:
        return _call(f"create{form}", _sizes(type))
    return _call(f"full{form}", _sizes(type), name(op.value))


def _load(op: LoadOp, name: Names) -> str:
    valid = [_list(op.valid_shape, name)] if op.valid_shape else []
    return _call("load", name(op.source), _list(op.offsets, name), _sizes(shaped(op.result)), *valid)


def _remote_load(op: RemoteLoadOp, name: Names) -> str:
    valid = [_list(op.valid_shape, name)] if op.valid_shape else []
    places = (_list(op.offsets, name), _sizes(shaped(op.result)), *valid)
    return _call("remote_load", name(op.target), name(op.peer), *places)


def _slice(op: SliceOp, name: Names) -> str:
    whole = _call("slice", name(op.source), _list(op.offsets, name), _list(op.extents, name))
    return f"cr::drop<{', '.join(map(str, op.dropped))}>({whole})" if op.dropped else whole


def _assemble(op: AssembleOp, name: Names) -> str:
    whole = isinstance(op.target.type, TileType) and _is_last(op, op.target)
    target = f"cr::last({name(op.target)})" if whole else name(op.target)
    return _call("assemble", target, name(op.source), _list(op.offsets, name))


def _is_last(op: Operation, value: SSAValue) -> bool:
    """Whether nobody reads a value but an op that runs as often as it is made."""
    owner = value.owner
    return value.has_one_use() and op.parent_block() is (owner if isinstance(owner, Block) else owner.parent_block())


def _reshape(op: ReshapeOp, name: Names) -> str:
    type = shaped(op.result)
    extents = _sizes(type) if isinstance(type, TileType) else _list(op.extents, name)
    return _call(f"reshape<{len(type.shape)}>", name(op.source), extents)


def _transpose(op: TransposeOp, name: Names) -> str:
    return _call(f"transpose<{op.axis1.value.data}, {op.axis2.value.data}>", name(op.source))


def _dim(op: DimOp, name: Names) -> str:
    return f"{name(op.source)}.shape[{op.axis.value.data}]"


def _unary(op: UnaryOp, name: Names) -> str:
    _ask_there(op, op.op.data, shaped(op.source).dtype)
    return _call(f"unary<cr::{UNARY[op.op.data]}>", name(op.source))


def _binary(op: BinaryOp, name: Names) -> str:
    which, dtype = op.op.data, shaped(op.lhs).dtype
    _ask_there(op, which, dtype)
    divides = which in ("div", "rem") and not dtype.is_float
    checked = _call(f"divisor<{_element(op.lhs)}>", quoted(word(which)), name(op.rhs))
    divisor = checked if divides else name(op.rhs)
    return _call(f"binary<cr::{BINARY[which]}>", name(op.lhs), divisor)


def _cast(op: CastOp, name: Names) -> str:
    return _call(f"cast<{_element(op.result)}, cr::{ROUNDING[op.rounding.data]}>", name(op.source))


def _reduce(op: ReduceOp, name: Names) -> str:
    last = len(shaped(op.source).shape) - 1
    axis = last if op.axis.data == "row" else max(last - 1, 0)
    return _call(f"reduce<cr::{REDUCE[op.op.data]}, {axis}>", name(op.source))


def _matmul(op: MatmulOp, name: Names) -> str:
    return _call(f"matmul<{_element(op.result)}>", *(name(v) for v in op.operands))


def _select(op: SelectOp, name: Names) -> str:
    return _call(f"select<cr::{COMPARISONS[op.comparison.data]}>", *map(name, op.operands))


def _notify(op: NotifySignalOp, name: Names) -> str:
    how = {"AtomicAdd": "kAdd", "Set": "kSet"}[op.op.data]
    place = (name(op.target), name(op.peer), _list(op.offsets, name))
    return _call("notify", *place, name(op.value), f"crossrank::Notify::{how}")


def _wait(op: WaitOp, name: Names) -> str:
    how = {"Eq": "kEqual", "Ge": "kAtLeast"}[op.cmp.data]
    place = (name(op.signal), _list(op.offsets, name))
    return _call("wait", *place, name(op.expected), f"crossrank::Compare::{how}")


def _defer_wait(op: DeferWaitOp, name: Names) -> str:
    return _call("defer_wait", name(op.signal), _list(op.offsets, name), name(op.expected))


_ATOMIC = {"None_": "", "Add": "<cr::Atomic::kAdd>"}


def _remote_store(op: RemoteStoreOp, name: Names) -> str:
    place = (name(op.target), name(op.peer), _list(op.offsets, name))
    return _call(f"remote_store{_ATOMIC[op.atomic.data]}", name(op.source), *place)


def _transfer(word: str) -> Callable[[TransferOp, Names], str]:
    def expression(op: TransferOp, name: Names) -> str:
        region = [_list(v, name) for v in (op.dst_offsets, op.src_offsets, op.shape)] if op.shape else []
        pieces = [op.chunk_rows.value.data, op.chunk_cols.value.data]
        chunks = [f"cr::Chunks{braced(map(str, pieces))}"] if any(pieces) else []
        how = _ATOMIC[op.atomic.data] if word == "put" else ""
        return _call(f"{word}{how}", *(name(v) for v in (op.dst, op.peer, op.src)), *region, *chunks)

    return expression


Word = Callable[[Any, Names], str]

EXPRESSIONS: dict[type[Operation], Word] = {
    FullOp: _full,
    LoadOp: _load,
    RemoteLoadOp: _remote_load,
    SliceOp: _slice,
    AssembleOp: _assemble,
    ReshapeOp: _reshape,
    TransposeOp: _transpose,
    MoveOp: lambda op, name: _call("move", name(op.source)),
    SetValidShapeOp: lambda op, name: _call("set_valid", name(op.source), _list(op.valid_shape, name)),
    FillPadOp: lambda op, name: _call("fill_pad", name(op.source), name(op.value)),
    UnaryOp: _unary,
    BinaryOp: _binary,
    CastOp: _cast,
    ReduceOp: _reduce,
    MatmulOp: _matmul,
    SelectOp: _select,
    CreateArrayOp: lambda op, name: _call(f"create<{_element(op.result)}, 1>", _sizes(shaped(op.result))),
    ReadOp: lambda op, name: _call("read", name(op.source), _list(op.indices, name)),
}
"""What makes a value and can fail or needs the author's line."""

PLAIN: dict[type[Operation], Word] = {
    DimOp: _dim,
    RankOp: lambda op, name: f"crossrank::rank({name(op.ctx)})",
    NumRanksOp: lambda op, name: f"crossrank::size({name(op.ctx)})",
    BlockIndexOp: lambda op, name: "core.block()",
    NumBlocksOp: lambda op, name: "core.blocks()",
}
"""What is only asked."""

Changed = Callable[[Any], SSAValue | None]

CHANGES: dict[type[Operation], tuple[Word, Changed]] = {
    StoreOp: (
        lambda op, name: _call("store", name(op.source), name(op.target), _list(op.offsets, name)),
        lambda op: cast(SSAValue, op.target),
    ),
    WriteOp: (
        lambda op, name: _call("write", name(op.target), _list(op.indices, name), name(op.value)),
        lambda op: None,
    ),
    RemoteStoreOp: (_remote_store, lambda op: cast(SSAValue, op.target)),
    PutOp: (_transfer("put"), lambda op: cast(SSAValue, op.dst)),
    GetOp: (_transfer("get"), lambda op: cast(SSAValue, op.dst)),
    NotifySignalOp: (_notify, lambda op: None),
    WaitOp: (_wait, lambda op: None),
    DeferWaitOp: (_defer_wait, lambda op: None),
    InvalidateOp: (lambda op, name: "cr::invalidate()", lambda op: None),
}
"""What changes something in place: the statement, and the operand that its result is."""
