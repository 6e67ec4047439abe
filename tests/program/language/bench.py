"""A function's body to try words in, one line of a program at a time."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from xdsl.dialects.arith import ConstantOp
from xdsl.ir import Block, Operation, SSAValue

import crossrank.program.language as pl
import crossrank.program.language.distributed as pld
from crossrank.collective.dtypes import dtype
from crossrank.program.kinds import Level
from crossrank.program.language.builder import Builder, Symbol
from crossrank.program.language.op import KERNEL, Op
from crossrank.program.program import at
from crossrank.program.types import CommCtxType, DistTensorType, TensorType, TileType, scalar_type

F16, F32, S32 = dtype("f16"), dtype("f32"), dtype("s32")
VALUES = {
    "t": TensorType.of([4, 64], F32),
    "u": TensorType.of([4, 64], F32),
    "row": TensorType.of([1, 64], F32),
    "flat": TensorType.of([64], F32),
    "deep": TensorType.of([1, 4, 64], F32),
    "half": TensorType.of([4, 64], F16),
    "ids": TensorType.of([4, 1], S32),
    "dyn": TensorType.of(["NR", 64], F32),
    "a": TileType.of([4, 64], F32),
    "i": TileType.of([4, 64], S32),
    "col": TileType.of([4, 1], F32),
    "win": DistTensorType.of([4, 64], F32),
    "win2": DistTensorType.of([4, 64], F32),
    "line": DistTensorType.of([64], F32),
    "chunk": DistTensorType.of([1, 64], F32),
    "halfwin": DistTensorType.of([4, 64], F16),
    "longs": DistTensorType.of([4, 64], dtype("s64")),
    "dynwin": DistTensorType.of(["NR", 64], F32),
    "sig": DistTensorType.of([4, 1], S32),
    "wide": DistTensorType.of([4, 8], S32),
    "cells": DistTensorType.of([4], S32),
    "dynsig": DistTensorType.of(["NR", 1], S32),
    "three": DistTensorType.of([3, 1], S32),
    "recv": DistTensorType.of([4, 1], S32),
    "ctx": CommCtxType(),
    "x": scalar_type(S32),
    "y": scalar_type(F32),
}
"""What the lines can name, all of them the function's arguments."""


class Words:
    """A module's words, as a parser has them: calls of them insert ops."""

    def __init__(self, module: ModuleType, b: Builder) -> None:
        self.module, self.b = module, b

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.module, name)
        if isinstance(found, ModuleType):
            return Words(found, self.b)
        return (lambda *args, **kwargs: found.emit(self.b, args, kwargs)) if isinstance(found, Op) else found


@dataclass
class Line:
    """What came of one."""

    value: Any
    ops: list[Operation]

    @property
    def names(self) -> str:
        """The ops but for constants."""
        return " ".join(op.name.removeprefix("program.") for op in self.ops if not isinstance(op, ConstantOp))

    @property
    def last(self) -> Any:
        return self.ops[-1]


def line(text: str, level: Level = KERNEL) -> Line:
    """Parse an expression as the body of a function of that level, at a.py:7:3."""
    block = Block(arg_types=list(VALUES.values()))
    b = Builder(block, at("a.py", 7, 3), level)
    names: dict[str, Any] = dict(zip(VALUES, block.args, strict=True))
    names |= {"pl": Words(pl, b), "pld": Words(pld, b), "NR": Symbol("NR")}
    value = eval(text, names)
    for op in block.ops:
        op.verify()
    return Line(value, list(block.ops))


def is_ssa(value: Any) -> bool:
    return isinstance(value, SSAValue)
