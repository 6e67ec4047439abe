"""`verify-collective-targets`: no custom-call may have a name that the contract does not know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crossrank.errors import InputError
from crossrank.hlo.hlo_pass import HloPass
from crossrank.hlo.module import Module
from crossrank.hlo.targets import CATALOGUE, FAMILY, SUFFIXES
from crossrank.hlo.verifier import check_target
from crossrank.passes import register
from crossrank.remarks import Remarks


@register
@dataclass(frozen=True)
class VerifyCollectiveTargets(HloPass):
    """Refuses a module in which a custom-call `AwsNeuron…` has a target outside the catalogue.

    Checks every `custom-call` of every computation whose target begins with `AwsNeuron`: names that say `UNKNOWNOP` or
    `UNKNOWNDTYPE`, and any other name that is not one of the legal ones, are errors; so is a suffix that contradicts
    the element type of the shape. The module is not changed.
    """

    name: ClassVar[str] = "verify-collective-targets"

    def run(self, module: Module, remarks: Remarks) -> bool:
        """Check all targets; InputError with the first bad one. Returns False: nothing changes."""
        bad = []
        for i in (i for c in self.computations(module, wrapped=True) for i in c.post_order()):
            name = i.proto.custom_call_target if i.opcode == "custom-call" else ""
            if not name.startswith(FAMILY):
                continue
            if name not in CATALOGUE:
                problem = f"{name} is not in the catalogue of collective targets"
            else:
                problem = check_target(i)
            if problem:
                bad.append(f"%{i.name}: {problem}")
                remarks.declined(f"%{i.name}", problem, i.where)
        if bad:
            more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
            raise InputError(bad[0] + more, f"legal types are {', '.join(SUFFIXES)}; legal reductions Add, Max, Min")
        return False
