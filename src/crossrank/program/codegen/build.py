"""Kernels compiled: for each the address of its entry, and what a task engine must know of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from crossrank.kernels.compile import Progress, Unit, build_all
from crossrank.program.codegen.kernel import kernel_source, symbol_of
from crossrank.program.codegen.slots import Slots, slots_of
from crossrank.program.dialect.remote import WaitOp
from crossrank.program.program import Function, Program
from crossrank.runtime.threads import entry

FLAGS = ("-O2", "-ftree-vectorize", "-fvect-cost-model=dynamic", "-fwrapv", "-fno-math-errno", "-fno-trapping-math")


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel that can be launched.

    Attributes:
        address: of its entry, ``int32_t (*)(const Slot*)``.
        slots: which of its parameters are in which slot.
        never_waits: it waits for no signal, so that it may run on a thread of the pool.
        source: its C++.
    """

    address: int
    slots: Slots
    never_waits: bool
    source: str


def never_waits(function: Function) -> bool:
    """Whether nothing in a kernel waits."""
    return not any(isinstance(op, WaitOp) for op in function.op.walk())


def build_kernels(program: Program, progress: Progress | None = None) -> dict[str, CompiledKernel]:
    """All kernels of a program by name, compiled where the cache has them not.

    Args:
        program: its passes have run.
        progress: told how many libraries of how many are there, after each.

    Raises:
        InputError: something in a kernel cannot stand in one, or there is no compiler.
        RunError: the compiler failed.
    """
    kernels = [f for f in program.functions if f.is_kernel and f.has_body]
    sources = {f.name: kernel_source(program, f.name) for f in kernels}
    units = min(os.cpu_count() or 1, len(kernels))
    dealt = [kernels[n::units] for n in range(units)]
    paths = build_all([_unit([sources[f.name] for f in some], some[0].name) for some in dealt], progress)
    return {
        f.name: CompiledKernel(entry(path, symbol_of(f.name)), slots_of(f), never_waits(f), sources[f.name])
        for some, path in zip(dealt, paths, strict=True)
        for f in some
    }


def _unit(sources: Sequence[str], name: str) -> Unit:
    """Kernels that are compiled together: they share most of what they are made of."""
    return Unit(symbol_of(name), "\n".join(sources), flags=FLAGS)
