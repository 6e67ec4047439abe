"""What a kernel holds while it is traced: tensors, views of them, and registers.

A `View` is a tensor with an access pattern, shaped like an array: it is indexed, reshaped and permuted without an
instruction, and becomes an access when an instruction takes it. Nothing here has a value; a `Register` gets one when
the program runs.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from xdsl.ir import SSAValue

from crossrank.collective.dtypes import DType, dtype, dtype_of
from crossrank.errors import InputError
from crossrank.instr.access import AccessPattern, Index, expanded
from crossrank.instr.kinds import Space
from crossrank.instr.operands import TensorOp

if TYPE_CHECKING:
    from crossrank.instr.stream import InstructionStream


def element_type(given: Any) -> DType:
    """The element type that a NumPy dtype, an XLA name, a NumPy name or one of ours says."""
    if isinstance(given, DType):
        return given
    try:
        return dtype(given) if isinstance(given, str) and given != "float" else dtype_of(np.dtype(given))
    except (ValueError, TypeError):
        pass
    try:
        wanted = np.dtype(given)
        if not wanted.isnative:
            raise InputError(f"{wanted} has another byte order than this machine", "convert the array: x.astype('=f4')")
        return dtype_of(wanted)
    except (ValueError, TypeError):
        raise InputError(
            f"{given!r} is no element type", "give one of nki.language, NumPy or XLA: f32, bfloat16, …"
        ) from None


class Register:
    """A scalar of 32 bits that a program computes while it runs.

    Arithmetic and comparisons with ints and other registers become instructions. It has no value while a kernel is
    traced, so that Python cannot branch on it.
    """

    def __init__(self, builder: InstructionStream, value: SSAValue) -> None:
        self.builder = builder
        self.value = value

    def _alu(self, op: str, left: Any, right: Any) -> Register:
        return self.builder.register_alu(op, left, right)

    def __add__(self, other: int | Register) -> Register:
        return self._alu("add", self, other)

    def __radd__(self, other: int) -> Register:
        return self._alu("add", other, self)

    def __sub__(self, other: int | Register) -> Register:
        return self._alu("subtract", self, other)

    def __rsub__(self, other: int) -> Register:
        return self._alu("subtract", other, self)

    def __mul__(self, other: int | Register) -> Register:
        return self._alu("multiply", self, other)

    def __rmul__(self, other: int) -> Register:
        return self._alu("multiply", other, self)

    def __floordiv__(self, other: int | Register) -> Register:
        return self._alu("divide", self, other)

    def __mod__(self, other: int | Register) -> Register:
        return self._alu("mod", self, other)

    def __and__(self, other: int | Register) -> Register:
        return self._alu("and", self, other)

    def __or__(self, other: int | Register) -> Register:
        return self._alu("or", self, other)

    def __xor__(self, other: int | Register) -> Register:
        return self._alu("xor", self, other)

    def __lshift__(self, other: int | Register) -> Register:
        return self._alu("shift_left", self, other)

    def __rshift__(self, other: int | Register) -> Register:
        return self._alu("shift_right", self, other)

    def __rfloordiv__(self, other: int) -> Register:
        return self._alu("divide", other, self)

    def __rmod__(self, other: int) -> Register:
        return self._alu("mod", other, self)

    def __rand__(self, other: int) -> Register:
        return self._alu("and", other, self)

    def __ror__(self, other: int) -> Register:
        return self._alu("or", other, self)

    def __rxor__(self, other: int) -> Register:
        return self._alu("xor", other, self)

    def __rlshift__(self, other: int) -> Register:
        return self._alu("shift_left", other, self)

    def __rrshift__(self, other: int) -> Register:
        return self._alu("shift_right", other, self)

    def __neg__(self) -> Register:
        return self._alu("subtract", 0, self)

    def __pos__(self) -> Register:
        return self

    def __invert__(self) -> Register:
        return self._alu("xor", self, -1)

    def __abs__(self) -> Register:
        return self._alu("max", self, -self)

    def __lt__(self, other: int | Register) -> Register:
        return self._alu("lt", self, other)

    def __le__(self, other: int | Register) -> Register:
        return self._alu("le", self, other)

    def __gt__(self, other: int | Register) -> Register:
        return self._alu("gt", self, other)

    def __ge__(self, other: int | Register) -> Register:
        return self._alu("ge", self, other)

    def eq(self, other: int | Register) -> Register:
        """1 where both are equal, else 0; ``==`` with a number or another register is the same."""
        return self._alu("eq", self, other)

    def ne(self, other: int | Register) -> Register:
        """0 where both are equal, else 1; ``!=`` is the same."""
        return self._alu("ne", self, other)

    def __eq__(self, other: object) -> Any:
        return self.eq(other) if isinstance(other, int | Register) else NotImplemented

    def __ne__(self, other: object) -> Any:
        return self.ne(other) if isinstance(other, int | Register) else NotImplemented

    __hash__ = object.__hash__

    def _no_value(self) -> Any:
        raise InputError(
            "a register has no value while the kernel is traced",
            "compute with it, index a tensor with it, or take it as an offset; Python cannot branch on it",
        )

    __bool__ = __int__ = __index__ = __float__ = _no_value


@dataclass(frozen=True)
class DynamicSlice:
    """``size`` elements from ``start`` on, which may be a register (``nl.ds``)."""

    start: int | Register
    size: int


KernelIndex = int | slice | EllipsisType | Register | DynamicSlice


@dataclass(frozen=True, eq=False)
class View:
    """Elements of a tensor, shaped like an array.

    Attributes:
        tensor: the tensor.
        pattern: which of its elements, counted in ``element``.
        element: the element type: the tensor's own, or what its bytes are taken for.
        registers: what is added to the offset: registers and what each is multiplied by.
        index: a view of indices along the first dimension, and what each is multiplied by.
        skip_outside: whether an index outside of the tensor leaves its elements out.
    """

    builder: InstructionStream
    tensor: TensorOp
    pattern: AccessPattern
    element: DType
    registers: tuple[tuple[Register, int], ...] = ()
    index: tuple[View, int] | None = None
    skip_outside: bool = False

    @staticmethod
    def whole(builder: InstructionStream, tensor: TensorOp) -> View:
        """All of a tensor."""
        return View(builder, tensor, AccessPattern.row_major(tensor.type.shape), tensor.type.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        return self.pattern.shape

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return len(self.pattern.dims)

    @property
    def size(self) -> int:
        """How many elements it has."""
        return self.pattern.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type, as NumPy knows it."""
        assert self.element.numpy is not None
        return self.element.numpy

    @property
    def buffer(self) -> Space:
        """Where the tensor lies."""
        return self.tensor.type.space

    @property
    def name(self) -> str:
        """The tensor's name."""
        return str(self.tensor.fields.name)

    @property
    def strides(self) -> tuple[int, ...]:
        """The strides, in elements."""
        return self.pattern.strides

    @property
    def offset(self) -> int:
        """The first element, registers left aside."""
        return self.pattern.offset

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole tensor, in order and in its own type."""
        return (
            not self.registers
            and self.index is None
            and self.element is self.tensor.type.dtype
            and self.pattern.covers(self.tensor.type.size)
        )

    def __str__(self) -> str:
        return f"{self.name}{list(self.shape)}"

    def __array__(self, *_given: Any, **_more: Any) -> Any:
        """What NumPy asks for the elements of: there are none while a kernel is traced."""
        raise InputError(
            f"NumPy's functions do not work on a kernel's tensors, and {self} is one",
            "take those of nki.language and nki.isa (nl.sum for np.sum)",
        )

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: KernelIndex | tuple[KernelIndex, ...]) -> View:
        """NumPy's basic indexing; registers and ``ds`` too. An int or a register drops its dimension."""
        self._no_index("index")
        given = index if isinstance(index, tuple) else (index,)
        plain: list[Index] = []
        for i in given:
            if isinstance(i, DynamicSlice):
                start = 0 if isinstance(i.start, Register) else int(i.start)
                if start < 0 or i.size < 0:
                    raise InputError(f"{i.size} elements from {start} on are no slice of {self}: ds counts from 0")
                plain.append(slice(start, start + i.size))
            elif isinstance(i, Register):
                plain.append(0)
            elif isinstance(i, slice):
                plain.append(slice(*(None if b is None else int(b) for b in (i.start, i.stop, i.step))))
            elif i is Ellipsis:
                plain.append(i)
            else:
                plain.append(int(i))
        with _named(self):
            pattern = self.pattern.indexed(plain)
            places = expanded([cast(Index, n) if g is not Ellipsis else g for n, g in enumerate(given)], self.ndim)
        added = list(self.registers)
        for dimension, place in enumerate(places):
            source = given[place] if isinstance(place, int) else None
            register = source.start if isinstance(source, DynamicSlice) else source
            if isinstance(register, Register):
                added.append((register, self.pattern.strides[dimension]))
        return replace(self, pattern=pattern, registers=tuple(added))

    def reshape(self, *shape: int | Sequence[int]) -> View:
        """The same elements under another shape; one extent may be -1."""
        self._no_index("reshape")
        wanted = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        with _named(self):
            return replace(self, pattern=self.pattern.reshaped([int(n) for n in cast(Sequence[int], wanted)]))

    def permute(self, dims: Sequence[int]) -> View:
        """The dimensions in another order."""
        self._no_index("permute")
        with _named(self):
            return replace(self, pattern=self.pattern.permuted(dims))

    def ap(
        self,
        pattern: Sequence[Sequence[int]],
        offset: int | None = 0,
        scalar_offset: Register | View | None = None,
        vector_offset: View | None = None,
        indirect_dim: int = 0,
        dtype: Any = None,
    ) -> View:
        """Any elements of the tensor, by strides.

        Element ``(i, j, …)`` is ``offset + i·stride_i + j·stride_j + …``, from the beginning of this view, in elements
        of ``dtype`` where that is given.

        Args:
            pattern: ``[stride, extent]`` of each dimension.
            offset: the first element; None: 0.
            scalar_offset: a register (or a view of one element): times this view's stride of ``indirect_dim``, it is
                added.
            vector_offset: a view with an index for each element of the first dimension: times this view's stride of
                ``indirect_dim``, it takes the place of the first stride.
            indirect_dim: see there.
            dtype: what the tensor's bytes are taken for.
        """
        self._no_index("take a pattern of")
        element = self.element if dtype is None else element_type(dtype)
        start, registers = self._counted_in(element)
        dims = tuple((int(s), int(n)) for s, n in pattern)
        moved = AccessPattern(start + int(offset or 0), dims)
        view = replace(self, pattern=moved, element=element, registers=registers)
        if scalar_offset is None and vector_offset is None:
            return view
        step, _ = self._dim(indirect_dim, "look up along")
        step = step * self.element.itemsize // element.itemsize
        if scalar_offset is not None:
            register = (
                scalar_offset if isinstance(scalar_offset, Register) else self.builder.register_load(scalar_offset)
            )
            view = replace(view, registers=(*view.registers, (register, step)))
        if vector_offset is not None:
            if vector_offset.size != dims[0][1]:
                raise InputError(f"vector_offset has {vector_offset.size} indices for {dims[0][1]} rows of {self}")
            view = view._with_dims(0, 0, [(0, dims[0][1])])
            view = replace(view, index=(vector_offset, step))
        return view

    def broadcast(self, dim: int, size: int) -> View:
        """A dimension of extent 1, ``size`` times."""
        _, extent = self._dim(dim, "broadcast")
        if extent != 1:
            raise InputError(f"cannot broadcast dimension {dim} of {self}: its extent is not 1")
        return self._with_dims(dim, dim, [(0, int(size))])

    def expand_dim(self, dim: int) -> View:
        """A new dimension of extent 1 before dimension ``dim``."""
        self._no_index("expand")
        if not 0 <= dim <= self.ndim:
            raise InputError(f"{self} has no place {dim} for a dimension")
        dims = self.pattern.dims
        return replace(self, pattern=AccessPattern(self.offset, (*dims[:dim], (1, 1), *dims[dim:])))

    def squeeze_dim(self, dim: int) -> View:
        """Without a dimension of extent 1."""
        _, extent = self._dim(dim, "squeeze")
        if extent != 1:
            raise InputError(f"cannot squeeze dimension {dim} of {self}: its extent is not 1")
        return self._with_dims(dim, dim, [])

    def flatten_dims(self, start: int, end: int) -> View:
        """Dimensions ``start`` to ``end``, both included, as one."""
        self._dim(start, "flatten")
        self._dim(end, "flatten")
        return self.reshape(*self.shape[:start], math.prod(self.shape[start : end + 1]), *self.shape[end + 1 :])

    def reshape_dim(self, dim: int, shape: Sequence[int]) -> View:
        """One dimension as several; one extent may be -1."""
        _, extent = self._dim(dim, "reshape")
        rest = math.prod(n for n in shape if n != -1)
        extents = [extent // max(rest, 1) if n == -1 else int(n) for n in shape]
        if math.prod(extents) != extent:
            raise InputError(f"dimension {dim} of {self} cannot have the shape {list(shape)}")
        return self.reshape(*self.shape[:dim], *extents, *self.shape[dim + 1 :])

    def rearrange(
        self,
        src_pattern: Sequence[str | Sequence[str]],
        dst_pattern: Sequence[str | Sequence[str]],
        fixed_sizes: Mapping[str, int] | None = None,
    ) -> View:
        """Dimensions split, reordered and merged by name.

        ``rearrange(("b", ("h", "w")), ("w", ("b", "h")), {"h": 4})`` splits the second dimension into 4 times what is
        left. A tuple stands for a dimension made of several; of these the size of one may be left out.
        """
        if len(src_pattern) != self.ndim:
            raise InputError(f"a pattern of {len(src_pattern)} dimensions for {self}, which has {self.ndim}")
        sizes = dict(fixed_sizes or {})
        for names, extent in zip(map(_names, src_pattern), self.shape, strict=True):
            unknown = [name for name in names if name not in sizes]
            known = math.prod(sizes[name] for name in names if name in sizes)
            if len(unknown) > 1 or not known or extent % known or (not unknown and known != extent):
                raise InputError(f"{' and '.join(names)} of {self} cannot be told from the extent {extent} and {sizes}")
            sizes |= dict.fromkeys(unknown, extent // known)
        order = [name for names in map(_names, src_pattern) for name in names]
        wanted = [name for names in map(_names, dst_pattern) for name in names]
        if sorted(order) != sorted(wanted) or len(set(order)) != len(order):
            raise InputError(f"{list(dst_pattern)} has not the dimensions of {list(src_pattern)}, each once")
        parts = self.reshape([sizes[name] for name in order]).permute([order.index(name) for name in wanted])
        return parts.reshape([math.prod(sizes[name] for name in names) for names in map(_names, dst_pattern)])

    def slice(self, dim: int, start: int, end: int, step: int = 1) -> View:
        """Indices ``start`` to ``end`` of a dimension, by ``step``."""
        self._dim(dim, "slice")
        index: list[KernelIndex] = [builtins.slice(None)] * self.ndim
        index[dim] = builtins.slice(start, end, step)
        return self[tuple(index)]

    def select(self, dim: int, index: int | Register | View) -> View:
        """One index of a dimension, which is dropped; it may be a register, or a view of one element."""
        self._dim(dim, "select from")
        one = self.builder.register_load(index) if isinstance(index, View) else index
        return self[(*[builtins.slice(None)] * dim, one)]

    def vector_select(self, dim: int = 0, vector_offset: View | None = None) -> View:
        """The rows that a vector of indices names, of the first dimension."""
        stride, _ = self._dim(dim, "select from")
        if dim != 0 or vector_offset is None:
            raise InputError(f"rows of {self} are selected along dimension 0, by a vector of indices")
        rows = self._with_dims(0, 0, [(0, vector_offset.size)])
        return replace(rows, index=(vector_offset, stride))

    def view(self, dtype: Any) -> View:
        """The same bytes taken for another element type: the last dimension gets more elements, or fewer."""
        self._no_index("take another type for")
        element, old = element_type(dtype), self.element.itemsize
        new = element.itemsize
        if not self.ndim and new != old:
            raise InputError(f"cannot take {self} for elements of {element}: it has no dimension")
        if new == old:
            start, registers = self._counted_in(element)
            return replace(self, pattern=AccessPattern(start, self.pattern.dims), element=element, registers=registers)
        *outer, (stride, extent) = self.pattern.dims
        if (stride != 1 and extent != 1) or any(p * old % new for p in (extent, *(s for s, n in outer if n != 1))):
            raise InputError(f"cannot take {self} for elements of {element}: they do not lie side by side", "copy it")
        start, registers = self._counted_in(element)
        dims = (*((s * old // new, n) for s, n in outer), (1, extent * old // new))
        return replace(self, pattern=AccessPattern(start, dims), element=element, registers=registers)

    reinterpret_cast = view

    def get_pattern(self) -> list[list[int]]:
        """``[stride, extent]`` of each dimension."""
        return [list(pair) for pair in self.pattern.dims]

    def is_contiguous(self) -> bool:
        """Whether its elements lie one after the other, in order."""
        return self.pattern.is_contiguous

    def is_indirect(self) -> bool:
        """Whether its rows are found by a vector of indices, or its beginning by a register."""
        return self.index is not None or bool(self.registers)

    def _counted_in(self, element: DType) -> tuple[int, tuple[tuple[Register, int], ...]]:
        """The offset, and what registers are multiplied by, in elements of another type."""
        old, new = self.element.itemsize, element.itemsize
        if any(n * old % new for n in (self.offset, *(scale for _, scale in self.registers))):
            raise InputError(f"{self} begins within an element of {element}", "begin where an element does")
        return self.offset * old // new, tuple((r, scale * old // new) for r, scale in self.registers)

    def _dim(self, dim: int, what: str) -> tuple[int, int]:
        """Stride and extent of a dimension."""
        self._no_index(what)
        if not 0 <= dim < self.ndim:
            raise InputError(f"cannot {what} dimension {dim} of {self}, which has {self.ndim}")
        return self.pattern.dims[dim]

    def _with_dims(self, first: int, last: int, dims: Sequence[tuple[int, int]]) -> View:
        """Other dimensions in the place of some."""
        mine = self.pattern.dims
        return replace(self, pattern=AccessPattern(self.offset, (*mine[:first], *dims, *mine[last + 1 :])))

    def _no_index(self, what: str) -> None:
        if self.index is not None:
            raise InputError(f"cannot {what} {self}, whose rows are found by a vector of indices", "do it before `.ap`")


def _names(part: str | Sequence[str]) -> Sequence[str]:
    """The names of the dimensions that make one."""
    return (part,) if isinstance(part, str) else part


class _named:
    """Says of which tensor a ValueError speaks."""

    def __init__(self, view: View) -> None:
        self._view = view

    def __enter__(self) -> None:
        return

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, ValueError):
            raise InputError(f"tensor {self._view.name}: {error}") from None
