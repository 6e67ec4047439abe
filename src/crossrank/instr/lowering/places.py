"""Parts of tensors that any core of a rank can name, and whether two of them may touch the same memory."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace

from crossrank.instr.access import AccessPattern
from crossrank.instr.dialect import ProgramOp
from crossrank.instr.fields import AccessFields
from crossrank.instr.operands import AccessOp, TensorOp
from crossrank.instr.types import TensorType

Tensors = Mapping[int, Mapping[str, TensorOp]]
"""The tensors of each core, by name."""


@dataclass(frozen=True)
class Part:
    """Elements of a tensor, known without registers.

    Attributes:
        core: the core that declares the tensor.
        tensor: the tensor.
        pattern: which of its elements.
        dtype: the type that its bytes are taken for; empty: its own.
    """

    core: int
    tensor: TensorOp
    pattern: AccessPattern
    dtype: str = ""

    @staticmethod
    def of(access: AccessOp) -> Part:
        """What an access without registers and indices touches."""
        return Part(core_of(access.of), access.of, access.pattern, access.fields.dtype)

    @staticmethod
    def whole(tensor: TensorOp) -> Part:
        """All of a tensor."""
        return Part(core_of(tensor), tensor, AccessPattern.row_major(tensor.type.shape))

    @property
    def fields(self) -> AccessFields:
        """The fields of an access to it."""
        return AccessFields(self.pattern.offset, self.pattern.dims, self.dtype)

    def slice(self, dim: int, index: int, parts: int) -> Part:
        """The ``index``-th of ``parts`` equal slices along a dimension."""
        extent = self.pattern.shape[dim] // parts
        cut = slice(index * extent, (index + 1) * extent)
        return replace(self, pattern=self.pattern.indexed([*[slice(None)] * dim, cut]))


def core_of(tensor: TensorOp) -> int:
    """The core whose program declares a tensor."""
    program = tensor.parent_op()
    assert isinstance(program, ProgramOp)
    return program.index


def memory_of(tensor: TensorOp, tensors: Tensors) -> Hashable:
    """Equal for tensors, on whatever core, that are the same memory: of a core, or shared by the cores of a rank."""
    while tensor.fields.of:  # an alias
        tensor = tensors[tensor.fields.core][tensor.fields.of]
    return tensor.fields.name if tensor.type.space.is_shared else (core_of(tensor), tensor.fields.name)


def tensors_of(access: AccessOp) -> Iterator[TensorOp]:
    """The tensors that an access needs: its own, and those that say where it goes."""
    yield access.of
    if access.index is not None and isinstance(access.index.owner, AccessOp):
        yield from tensors_of(access.index.owner)


def is_plain(access: AccessOp) -> bool:
    """Whether another core can write through it: no registers, no indices, and no element twice."""
    if not access.is_static:
        return False
    reach = 0
    for stride, extent in sorted((abs(s), n) for s, n in access.pattern.dims if n > 1):
        if stride <= reach:
            return False
        reach += stride * (extent - 1)
    return True


def may_overlap(a: AccessOp, b: AccessOp) -> bool:
    """Whether two accesses to the same memory may touch one element; True where that is not plain to see."""
    if not (a.type.size and b.type.size):
        return False
    if not (a.is_static and b.is_static):
        return True
    spans = [tuple(bound * x.type.dtype.itemsize for bound in x.pattern.bounds) for x in (a, b)]
    if spans[0][1] <= spans[1][0] or spans[1][1] <= spans[0][0]:
        return False
    columns = [_columns(x) for x in (a, b)]
    if columns[0] is None or columns[1] is None:
        return True
    return columns[0][0] < columns[1][1] and columns[1][0] < columns[0][1]


def _columns(access: AccessOp) -> tuple[int, int] | None:
    """The bytes that an access touches within each row of its tensor; None where it does not go row by row."""
    row = bytes_per_row(access.of.type)
    size = access.type.dtype.itemsize
    free = [dim for dim in access.pattern.dims if not row or dim[0] * size % row]
    low, high = AccessPattern(access.pattern.offset, tuple(free)).bounds
    if not row or low * size // row != (high * size - 1) // row:
        return None
    return low * size % row, (high * size - 1) % row + 1


def bytes_per_row(type: TensorType) -> int:
    """How many bytes a row of a tensor has: what lies under one index of its first dimension."""
    return type.size // type.shape[0] * type.dtype.itemsize if type.shape and type.shape[0] else 0
