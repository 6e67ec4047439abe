"""The instruction level: what kernels written for NKI are made of, and what each instruction does.

`trace` makes a `Kernel` of a Python function, `KernelBuilder` makes one by hand, `read_kernel` reads its text, and
`run_kernel` runs it on N ranks.
"""

from crossrank.instr import parallel_state
from crossrank.instr.builder import KernelBuilder
from crossrank.instr.interpret import run_kernel
from crossrank.instr.kinds import AluOp, CollectiveKind
from crossrank.instr.program import Kernel, read_kernel
from crossrank.instr.trace import trace

__all__ = [
    "AluOp",
    "CollectiveKind",
    "Kernel",
    "KernelBuilder",
    "parallel_state",
    "read_kernel",
    "run_kernel",
    "trace",
]
