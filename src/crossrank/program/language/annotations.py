"""What stands behind the colons of a program: ``pl.Tensor[[4, NR], pl.FP32]``, ``pl.Out[…]``, ``pl.Scalar[pl.INT32]``.

At run time they only keep what was written; the parser says what is wrong with it, and where.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


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


Tensor = Word("pl.Tensor")
"""``pl.Tensor[[extents], dtype]``: in a rank's own memory, or in the host's."""

DistributedTensor = Word("pld.DistributedTensor")
"""``pld.DistributedTensor[[extents], dtype]``: a view of a window."""

Tile = Word("pl.Tile")
"""``pl.Tile[[extents], dtype]``: in a core's memory."""

Scalar = Word("pl.Scalar")
"""``pl.Scalar[dtype]``."""

Out = Word("pl.Out")
"""``pl.Out[pl.Tensor[…]]``: a parameter that the function writes."""

InOut = Word("pl.InOut")
"""``pl.InOut[pl.Tensor[…]]``: a parameter that the function reads and writes."""
