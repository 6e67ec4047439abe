"""Operators as kernels name them: tokens that instructions take, which also compute a new tile when they are called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crossrank.errors import InputError
from crossrank.instr.compute import ACTIVATION
from crossrank.instr.kinds import Space
from crossrank.instr.tensors import View, element_type
from crossrank.instr.trace import current


@dataclass(frozen=True)
class Operator:
    """An operator or an activation function, by its name in ``compute``.

    Called with tiles (or a tile and a number) in a kernel, it computes a new tile in SBUF.
    """

    name: str
    is_binary: bool = False

    @property
    def __name__(self) -> str:
        """Its name, as functions have one."""
        return self.name

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"nki.language.{self.name}"

    def __call__(self, x: Any, y: Any = None, dtype: Any = None) -> View:
        """The operator of tiles; ``y`` of binary ones only; ``dtype`` of the new tile, by default that of ``x``."""
        from crossrank.nki import isa

        first = x if isinstance(x, View) else y
        if not isinstance(first, View) or self.is_binary != (y is not None):
            taken = "two operands, and at least one of them is a tile" if self.is_binary else "one tile"
            raise InputError(f"nl.{self.name} takes {taken}")
        wide = y if isinstance(y, View) and _is_column(first, y) and not _is_column(y, first) else first
        dst = current().tensor(wide.shape, wide.element if dtype is None else element_type(dtype), Space.SBUF)
        if not self.is_binary:
            if self.name in ACTIVATION:
                isa.activation(dst, self, first)
            else:
                isa.tensor_scalar(dst, first, self, 0)
        elif isinstance(x, View) and isinstance(y, View) and x.shape == y.shape:
            isa.tensor_tensor(dst, x, y, self)
        elif wide is x:
            isa.tensor_scalar(dst, x, self, y)
        else:
            isa.tensor_scalar(dst, y, self, x, reverse0=True)
        return dst


class Extremum(Operator):
    """``max`` and ``min``: operators, and reductions along the last free dimensions where an axis is given."""

    def __call__(
        self,
        x: Any,
        y: Any = None,
        dtype: Any = None,
        keepdims: bool = False,
        *,
        axis: int | Sequence[int] | None = None,
    ) -> View:
        """The reduction of a tile along ``y`` (or ``axis``); the operator where ``y`` is a tile."""
        from crossrank.nki import tiles

        along = y if axis is None else axis
        if isinstance(along, View) or along is None:
            return super().__call__(x, y, dtype)
        return tiles.reduced(self, x, along, dtype, keepdims)


def _is_column(view: View, like: View) -> bool:
    """Whether ``view`` has one element for each partition of ``like``."""
    return view.shape[:1] == like.shape[:1] and view.size == view.shape[0] and like.size > view.size


def value(given: Any) -> Any:
    """A parameter of an instruction as the program holds it: numbers, words, and tuples of them."""
    if isinstance(given, Operator):
        return given.name
    if isinstance(given, np.ufunc):
        return given.__name__
    if isinstance(given, np.generic):
        return given.item()
    if isinstance(given, (list, tuple)):
        return tuple(value(item) for item in given)
    if isinstance(given, int) and not isinstance(given, bool):
        return int(given)
    return given
