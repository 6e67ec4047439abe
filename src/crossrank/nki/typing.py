"""``nki.typing``: what kernels annotate their arguments with."""

from __future__ import annotations

from crossrank.instr.tensors import View

tensor = View
mutable_tensor = View
