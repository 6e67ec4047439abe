"""What the engine computations of kernels written for NKI compute, in NumPy: all but communication.

Pure functions of arrays, by name (``COMPUTATIONS``); ``evaluate`` calls one. Parameters have the names that ``nki.isa``
gives them; operators are text.
"""

from crossrank.instr.compute import arithmetic, movement, reduction, search  # noqa: F401  (they register themselves)
from crossrank.instr.compute.alu import ACTIVATION, ALU
from crossrank.instr.compute.registry import COMPUTATIONS, Computation, Value, check, evaluate

__all__ = ["ACTIVATION", "ALU", "COMPUTATIONS", "Computation", "Value", "check", "evaluate"]
