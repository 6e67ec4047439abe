"""What stands behind the colons of a program: ``pl.Tensor[[4, NR], pl.FP32]``, ``pl.Out[…]``, ``pl.Scalar[pl.INT32]``.

At run time they only keep what was written; the parser says what is wrong with it, and where.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crossrank.program.kinds import TensorLayout


@dataclass(frozen=True)
class Word:
    """A name that takes brackets.

    Attributes:
        title: as programs write it.
    """

    title: str

    def __getitem__(self, given: Any) -> Annotation:
        return Annotation(self, given)

    def __repr__(self) -> str:
        return self.title


@dataclass(frozen=True)
class Annotation:
    """A word and what its brackets hold."""

    word: Word
    given: Any

    def __repr__(self) -> str:
        return f"{self.word}[{self.given}]"


@dataclass(frozen=True, kw_only=True)
class TensorView:
    """How a tensor lies in memory, and how much of it means something: a third entry of its brackets.

    Attributes:
        valid_shape: as much of each dimension is valid; None: all.
        stride: elements from one to the next, by dimension; None: row-major and packed, which is all that there is.
        layout: `ND`, which is all that there is.
    """

    valid_shape: Sequence[int] | None = None
    stride: Sequence[int] | None = None
    layout: TensorLayout = TensorLayout.ND


Tensor = Word("pl.Tensor")
"""``pl.Tensor[[extents], dtype]``: in a rank's own memory, or in the host's; also with a `TensorView`."""

DistributedTensor = Word("pld.DistributedTensor")
"""``pld.DistributedTensor[[extents], dtype]``: a view of a window; also with a `TensorView`."""

Tile = Word("pl.Tile")
"""``pl.Tile[[extents], dtype]``: in a core's memory."""

Scalar = Word("pl.Scalar")
"""``pl.Scalar[dtype]``."""

Out = Word("pl.Out")
"""``pl.Out[pl.Tensor[…]]``: a parameter that the function writes."""

InOut = Word("pl.InOut")
"""``pl.InOut[pl.Tensor[…]]``: a parameter that the function reads and writes."""
