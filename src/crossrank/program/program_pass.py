"""The type of the passes on programs: what they require, what they make sure of, both checked."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from crossrank.errors import InputError
from crossrank.passes import Pass
from crossrank.program.program import Program
from crossrank.program.properties import PROPERTIES
from crossrank.remarks import Remarks


@dataclass(frozen=True)
class ProgramPass(Pass[Program]):
    """A pass on a program.

    Between passes the properties that the program has are checked again, so that a pass that breaks what another
    made sure of is found at once.
    """

    works_on: ClassVar[str] = Program.TITLE
    requires: ClassVar[tuple[str, ...]] = ()
    """Properties without which it cannot work."""
    produces: ClassVar[tuple[str, ...]] = ()
    """Properties that programs have after it."""

    @abstractmethod
    def rewrite(self, program: Program, remarks: Remarks) -> bool:
        """Do it, in place; returns whether anything changed."""

    def run(self, module: Program, remarks: Remarks) -> bool:
        """Check, rewrite, check."""
        for name in self.requires:
            if name not in module.properties:
                raise InputError(
                    f"pass {self.name} requires {name}, which program {module.name} does not have yet",
                    f"run {PROPERTIES[name].made_by} before it",
                )
        changed = self.rewrite(module, remarks)
        module.properties = (*module.properties, *self.produces)
        if changed:
            module.verify()
        for name in module.properties:
            if name not in PROPERTIES:
                raise InputError(f"program {module.name} says that it has {name}, which is no property of programs")
            if fault := PROPERTIES[name].broken(module):
                raise InputError(f"after pass {self.name} the program does not have {name}: {fault}")
        return changed
