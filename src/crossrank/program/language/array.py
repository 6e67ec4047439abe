"""``pl.array``: small arrays of scalars in a core. ``a[i]`` reads an element, ``a[i] = x`` writes one."""

from __future__ import annotations

from typing import Any

from crossrank.program.dialect.tensors import CreateArrayOp
from crossrank.program.language.builder import Builder
from crossrank.program.language.memory import read, write
from crossrank.program.language.op import KERNEL, op
from crossrank.program.language.operands import element, whole
from crossrank.program.types import ArrayType


@op("pl.array.create", KERNEL)
def create(b: Builder, size: Any, dtype: Any) -> Any:
    """An array of so many zeros."""
    title = "pl.array.create"
    return b.insert(CreateArrayOp(ArrayType.of(whole(b, title, "size", size), element(b, title, dtype)))).result


@op("pl.array.get_element", KERNEL)
def get_element(b: Builder, array: Any, index: Any) -> Any:
    """One element, a scalar."""
    return read.emit(b, [array, index], {})


@op("pl.array.update_element", KERNEL)
def update_element(b: Builder, array: Any, index: Any, value: Any) -> Any:
    """The array with a scalar as one of its elements, in place."""
    return write.emit(b, [array, index, value], {})
