"""The public face of the instruction level: kernels written for NKI, which run on any number of ranks without hardware.

    from crossrank import nki
    from crossrank.nki import collectives as ncc, isa as nisa, language as nl

A kernel that imports ``nki`` itself runs unchanged after ``crossrank.nki.install()``.
"""

import numpy as np

from crossrank.instr.trace import Traced
from crossrank.nki import collectives, isa, language, typing
from crossrank.nki.aliases import install
from crossrank.nki.kernel import JitKernel, jit
from crossrank.nki.simulation import Simulation, simulate
from crossrank.nki.state import NkiInstruction

__version__ = "0.7.0"
"""The version of NKI whose names and parameters these are."""

dtype = np.dtype
"""What kernels annotate element types with."""

__all__ = [
    "JitKernel",
    "NkiInstruction",
    "Simulation",
    "Traced",
    "collectives",
    "dtype",
    "install",
    "isa",
    "jit",
    "language",
    "simulate",
    "typing",
]
