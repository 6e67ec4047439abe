"""What the cores hold: tensors as bytes, and accesses to them as NumPy arrays.

Fresh memory is all ones, which is NaN in every float type that has it (and -1, or the largest value, in integers, and
true): what nobody wrote shows in the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from xdsl.ir import SSAValue

from crossrank.arrays import check_room
from crossrank.instr.compute.values import cast
from crossrank.instr.kinds import Space
from crossrank.instr.operands import AccessOp, TensorOp

Array = npt.NDArray[Any]
FRESH = 0xFF


class Memory:
    """The tensors that one core sees, each allocated when it is first touched.

    Args:
        tensors: by name, as its program declares them.
        shared: the tensors of its rank in shared HBM, by name; the cores of a rank have it in common.
        cores: the memories of all cores of the rank, for aliases.
    """

    def __init__(self, tensors: Mapping[str, TensorOp], shared: dict[str, Array], cores: Mapping[int, Memory]) -> None:
        self._tensors = tensors
        self._shared = shared
        self._cores = cores
        self._own: dict[str, Array] = {}

    def bytes_of(self, name: str) -> Array:
        """The bytes of a tensor."""
        tensor = self._tensors[name]
        if tensor.fields.of:
            return self._cores[tensor.fields.core].bytes_of(tensor.fields.of)
        place = self._shared if tensor.type.space is Space.SHARED_HBM else self._own
        if name not in place:
            fresh = 1 if tensor.type.dtype.name == "pred" else FRESH
            size = tensor.type.size * tensor.type.dtype.itemsize
            check_room(size, f"the tensor {name}")
            place[name] = np.full(size, fresh, np.uint8)
        return place[name]

    def whole(self, name: str) -> Array:
        """A tensor, as an array of its type and shape."""
        type = self._tensors[name].type
        assert type.dtype.numpy is not None
        return self.bytes_of(name).view(type.dtype.numpy).reshape(type.shape)

    @property
    def held(self) -> set[str]:
        """The tensors of the core's own that have memory now."""
        return set(self._own)

    def forget(self, name: str) -> None:
        """Give a tensor's memory back: nothing touches it any more."""
        self._own.pop(name, None)


class Operand:
    """An access, made ready to be read and written on any core.

    A ValueError says that it reaches outside of its tensor.
    """

    def __init__(self, access: AccessOp) -> None:
        fields, type = access.fields, access.type
        assert type.dtype.numpy is not None
        self.tensor: str = access.of.fields.name
        self.shape = type.shape
        self.dtype = type.dtype.numpy
        self._offset: int = fields.offset
        self._strides = tuple(stride * self.dtype.itemsize for stride, _ in fields.pattern)
        self._registers = list(zip(access.registers, fields.scale, strict=True))
        low, high = access.pattern.bounds
        self._reach = (low - self._offset, high - self._offset)
        self._elements = access.of.type.size * access.of.type.dtype.itemsize // self.dtype.itemsize
        self._index = None
        if access.index is not None:
            assert isinstance(access.index.owner, AccessOp)
            self._index = Operand(access.index.owner)
        self._scale: int = fields.index_scale
        self._skip: bool = fields.skip_outside

    def tensors(self) -> list[str]:
        """The tensors that it touches: its own, and the one that holds its indices."""
        return [self.tensor, *(self._index.tensors() if self._index else ())]

    def read(self, memory: Memory, registers: Mapping[SSAValue, int]) -> Array:
        """Its elements: a view of memory where they are found by strides, else a copy."""
        if self._index is not None:
            places, inside = self._places(memory, registers)
            data = self._flat(memory)
            return data[np.where(inside, places, 0)] if len(data) else np.zeros(self.shape, self.dtype)
        return self._view(memory, registers)

    def write(
        self, memory: Memory, registers: Mapping[SSAValue, int], values: Array, only: Array | None = None
    ) -> None:
        """Store values, cast to its type; ``only`` where that is true, along the first dimension."""
        values = cast(values, self.dtype).reshape(self.shape)
        if self._index is not None:
            places, inside = self._places(memory, registers)
            inside = inside if only is None else inside & only.reshape(-1, *[1] * (inside.ndim - 1))
            self._flat(memory)[places[np.broadcast_to(inside, places.shape)]] = values[
                np.broadcast_to(inside, places.shape)
            ]
        elif only is None:
            self._view(memory, registers)[...] = values
        else:
            self._view(memory, registers)[only] = values[only]

    def rows_inside(self, memory: Memory, registers: Mapping[SSAValue, int]) -> Array | None:
        """Which rows of a gather that skips are inside of the tensor; None where all must be."""
        if self._index is None or not self._skip:
            return None
        inside = self._places(memory, registers)[1]
        return np.asarray(inside.reshape(len(inside), -1).all(axis=1))

    def _flat(self, memory: Memory) -> Array:
        return memory.bytes_of(self.tensor).view(self.dtype)

    def _start(self, registers: Mapping[SSAValue, int]) -> int:
        start = self._offset
        for register, scale in self._registers:
            start += registers[register] * scale
        return start

    def _view(self, memory: Memory, registers: Mapping[SSAValue, int]) -> Array:
        start = self._start(registers) if self._registers else self._offset
        if self._registers and (start + self._reach[0] < 0 or start + self._reach[1] > self._elements):
            raise ValueError(
                f"it reaches elements {start + self._reach[0]} to {start + self._reach[1] - 1} of tensor "
                f"{self.tensor}, which has {self._elements}"
            )
        offset = start * self.dtype.itemsize
        data = memory.bytes_of(self.tensor)
        if not data.size:
            return np.zeros(self.shape, self.dtype)
        return np.ndarray(self.shape, self.dtype, data, offset, self._strides)

    def _places(self, memory: Memory, registers: Mapping[SSAValue, int]) -> tuple[Array, Array]:
        """The flat position of each element, and whether its row lies inside of the tensor."""
        assert self._index is not None
        indices = self._index.read(memory, registers).reshape(-1).astype(np.int64) * self._scale
        places = np.full(self.shape, self._start(registers), np.int64)
        for dim, (extent, stride) in enumerate(zip(self.shape, self._strides, strict=True)):
            steps = np.arange(extent) * (stride // self.dtype.itemsize)
            places += (steps + (indices if dim == 0 else 0)).reshape(-1, *[1] * (len(self.shape) - dim - 1))
        inside = (places >= 0) & (places < self._elements)
        rows = inside.reshape(len(inside), -1).all(axis=1) if places.size else np.ones(self.shape[:1], bool)
        if not self._skip and not rows.all():
            row = int(np.argmin(rows))
            raise ValueError(f"row {row} has an index outside of tensor {self.tensor}")
        return places, rows.reshape(-1, *[1] * (len(self.shape) - 1))
