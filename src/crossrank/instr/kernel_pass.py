"""The type of the passes on kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crossrank.instr.program import Kernel
from crossrank.passes import Pass


@dataclass(frozen=True)
class KernelPass(Pass[Kernel]):
    """A pass on a kernel: the programs of all cores of a rank."""

    works_on: ClassVar[str] = Kernel.TITLE
