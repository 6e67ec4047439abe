"""Kernels compiled: for each the address of its entry, and what a task engine must know of it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from crossrank.kernels.compile import Progress, Unit, build_all
from crossrank.program.builtins import is_builtin
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
    return not is_builtin(function) and not any(isinstance(op, WaitOp) for op in function.op.walk())


def sources_of(program: Program) -> dict[str, CompiledKernel]:
    """All kernels of a program by name, not compiled: they have no address.

    Raises:
        InputError: something in a kernel cannot stand in one.
    """
    return {
        f.name: CompiledKernel(0, slots_of(f), never_waits(f), kernel_source(program, f.name))
        for f in program.functions
        if f.is_kernel and f.has_body
    }


def build_kernels(program: Program, progress: Progress | None = None) -> dict[str, CompiledKernel]:
    """All kernels of a program by name, compiled where the cache has them not.

    Args:
        program: its passes have run.
        progress: told how many libraries of how many are there, after each.

    Raises:
        InputError: something in a kernel cannot stand in one, or there is no compiler.
        RunError: the compiler failed.
    """
    made = sources_of(program)
    kernels = [program.function(name) for name in made]
    paths = _compiled(kernels, {name: kernel.source for name, kernel in made.items()}, progress)
    return {f.name: replace(made[f.name], address=entry(paths[f.name], symbol_of(f))) for f in kernels}


def _compiled(kernels: Sequence[Function], sources: Mapping[str, str], progress: Progress | None) -> dict[str, Path]:
    """The library of each kernel.

    The author's are compiled together, since they share most of what they are made of; of those that come with
    crossrank each is a library by itself, which other programs find in the cache.
    """
    builtin, own = ([f for f in kernels if is_builtin(f) is is_it] for is_it in (True, False))
    dealt = [own[n :: os.cpu_count() or 1] for n in range(min(os.cpu_count() or 1, len(own)))]
    units = [Unit(symbol_of(some[0]), "\n".join(sources[f.name] for f in some), flags=FLAGS) for some in dealt]
    units += [Unit(symbol_of(f), sources[f.name]) for f in builtin]
    paths = build_all(units, progress)
    return {f.name: path for some, path in zip([*dealt, *([f] for f in builtin)], paths, strict=True) for f in some}
