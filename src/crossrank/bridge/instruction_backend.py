"""The backend ``instr`` of a run: collectives computed by the interpreter of instructions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from crossrank.bridge.instructions import has_instructions, kernel_of
from crossrank.collective.kinds import Kind
from crossrank.hlo.execute.backends import Array, CalledBack, flushed, prepare
from crossrank.hlo.ffi.call import Call
from crossrank.hlo.ffi.native import Native
from crossrank.instr.interpret import run_kernel
from crossrank.instr.program import Kernel
from crossrank.kernels import has_kernel
from crossrank.runtime.collectives import run_collective

_AS_XLA = partial(run_collective, flush_subnormals=True)


class InstructionBackend(CalledBack):
    """Computes collectives by the interpreter of instructions and the kernels, subnormals as XLA does."""

    name = "instr"

    def __init__(self, native: Native) -> None:
        super().__init__(native)
        self._kernels: dict[tuple[Call, int], Kernel] = {}

    def serves(self, call: Call) -> bool:
        """Whether there are instructions for it."""
        return super().serves(call) and has_instructions(call)

    def register(self, call: Call) -> int:
        """Build (and compile) its kernels before the run, and make it known."""
        c = call.collective
        if c.kind.reduces and all(has_kernel(c.kind, c.reduce_op, s.dtype) for s in call.operands):
            prepare([call])
        for group in range(len(call.collective.groups)):
            self._kernel(call, group)
        return super().register(call)

    def values(self, call: Call, group: int, members: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """What the kernel gives."""
        ranks = call.collective.groups[group]
        if call.collective.kind is Kind.RAGGED_ALL_TO_ALL:
            check_tables(members, ranks)
        return flushed(call, run_kernel(self._kernel(call, group), members, ranks, backend=_AS_XLA))

    def _kernel(self, call: Call, group: int) -> Kernel:
        """The kernel of a group; collectives that differ in their names only share it."""
        c = call.collective
        key = (replace(call, label=""), 0 if c.kind.has_pairs else len(c.groups[group]))
        if key not in self._kernels:
            self._kernels[key] = kernel_of(call, group)
        return self._kernels[key]


def check_tables(members: Sequence[Sequence[Array]], ranks: Sequence[int]) -> None:
    """What kind 6 cannot see: sizes that sender and receiver see differently, and entries whose order would matter.

    Raises:
        ValueError: naming ranks.
    """
    count = len(members)
    sends, places, receives = (np.array([m[k] for m in members]).reshape(count, count, -1) for k in (3, 4, 5))
    for i, j, e in np.argwhere(sends != receives.transpose(1, 0, 2)):
        raise ValueError(
            f"rank {ranks[i]} sends {sends[i, j, e]} rows to rank {ranks[j]}, which expects {receives[j, i, e]}"
        )
    if sends.shape[2] == 1:
        return
    for j, rank in enumerate(ranks):
        sizes, begins = sends[:, j].reshape(-1), places[:, j].reshape(-1)
        order = np.argsort(begins[sizes > 0])
        begins, ends = begins[sizes > 0][order], (begins + sizes)[sizes > 0][order]
        if (begins[1:] < ends[:-1]).any():
            raise ValueError(f"rows that rank {rank} receives overlap, and several exchanges bring them in any order")
