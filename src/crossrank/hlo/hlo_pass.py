"""What the passes on HLO modules share: their type, and which computations they look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crossrank.hlo.module import Computation, Module
from crossrank.passes import Pass, option

WRAPPERS = ("fusion", "async-start")
"""Opcodes whose bodies belong to one instruction: nothing may be taken out of them or put in."""


@dataclass(frozen=True)
class HloPass(Pass[Module]):
    """A pass on an HLO module, confined to some execution threads where it is asked to be."""

    works_on: ClassVar[str] = Module.TITLE
    execution_threads: tuple[str, ...] = option((), "only computations of these threads; none named: of all")

    def entry(self, module: Module) -> list[Computation]:
        """The entry computation, or nothing where it belongs to another thread."""
        return [c for c in (module.entry,) if self.covers(c)]

    def computations(self, module: Module, *, wrapped: bool = False) -> list[Computation]:
        """All computations, callees first; bodies of fusions and of asynchronous wrappers only where ``wrapped``."""
        found = [c for c in module.computations if self.covers(c)]
        if wrapped:
            return found
        inside = {c for i in module.instructions() if i.opcode in WRAPPERS for c in i.called}
        return [c for c in found if c not in inside]

    def covers(self, c: Computation) -> bool:
        """Whether a computation belongs to one of the threads."""
        return not self.execution_threads or (c.proto.execution_thread or "main") in self.execution_threads
