"""The kernels: one C++ source a collective, rendered for a reduction and an element type, compiled on first use."""

from crossrank.kernels.compile import compile_variants
from crossrank.kernels.variant import Variant, has_kernel

__all__ = ["Variant", "compile_variants", "has_kernel"]
