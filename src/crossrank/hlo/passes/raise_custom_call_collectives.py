"""`raise-custom-call-collectives`: the inverse of the conversion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crossrank.collective.kinds import Kind
from crossrank.errors import InputError
from crossrank.hlo.build import ReductionBodies
from crossrank.hlo.collectives import (
    GROUPS_ATTRIBUTE,
    NATIVE_CONFIG_ATTRIBUTE,
    CollectiveInfo,
    describe,
    kind_of,
    write_groups,
)
from crossrank.hlo.hlo_pass import HloPass
from crossrank.hlo.module import Instruction, Module
from crossrank.passes import register
from crossrank.remarks import Remarks


@register
@dataclass(frozen=True)
class RaiseCustomCallCollectives(HloPass):
    """Turns custom-calls of the naming contract back into native collectives.

    Matches `custom-call`s whose target is a name of the contract, the UNKNOWN forms included, in all computations.

    Makes the native collective from the name, the `backend_config` and the groups; the element type is read from the
    shape. Reduction bodies are made anew, one for each op and type.

    Declines a reduction named `UNKNOWNOP` that has no `reduce=` in its config: its meaning is lost. A config or groups
    that cannot be read, or that no native collective could have, are an error.
    """

    name: ClassVar[str] = "raise-custom-call-collectives"

    def run(self, module: Module, remarks: Remarks) -> bool:
        """Raise; returns whether anything was raised."""
        bodies = ReductionBodies(module)
        changed = False
        found = [
            i for c in self.computations(module, wrapped=True) for i in c.post_order() if i.opcode == "custom-call"
        ]
        for i in found:
            if kind_of(i) is None:
                continue
            info = describe(i)
            assert info is not None
            _check_meaning(i, info)
            if info.kind.reduces and info.reduction is None:
                remarks.declined(f"%{i.name}", "its name says UNKNOWNOP and its config has no reduce=", i.where)
                continue
            target = i.proto.custom_call_target
            raise_collective(i, info, bodies)
            remarks.done(f"%{i.name}", f"{target} → {info.kind}", i.where)
            changed = True
        return changed


def _check_meaning(i: Instruction, info: CollectiveInfo) -> None:
    """InputError where no native collective can say what the custom-call says."""
    if info.mode is None:
        raise InputError(f"%{i.name}: Invalid combination of has_channel_id and use_global_device_ids")
    if info.kind is Kind.ALL_REDUCE:
        return
    rank = min(len(leaf.dims) for leaf in i.shape.leaves())
    if info.dim is None or info.dim >= rank:
        has = "no dimension" if info.dim is None else f"dimension={info.dim}"
        raise InputError(f"%{i.name}: its config has {has}, and its result {rank} dimensions")


def raise_collective(i: Instruction, info: CollectiveInfo, bodies: ReductionBodies) -> None:
    """Make a native collective of one custom-call, in its place."""
    assert info.groups is not None
    proto = i.edit()
    for field in ("custom_call_target", "custom_call_api_version", "backend_config"):
        proto.ClearField(field)
    i.set_opcode(str(info.kind))
    i.set_frontend_attribute(GROUPS_ATTRIBUTE, None)
    proto.backend_config = i.frontend_attributes.get(NATIVE_CONFIG_ATTRIBUTE, "").encode()
    i.set_frontend_attribute(NATIVE_CONFIG_ATTRIBUTE, None)
    write_groups(proto, info.groups)
    proto.channel_id = info.channel_id or 0
    proto.use_global_device_ids = bool(info.use_global_device_ids)
    proto.constrain_layout = info.constrain_layout
    if info.dim is not None and info.kind is not Kind.ALL_REDUCE:
        proto.dimensions.append(info.dim)
    if info.reduction is not None:
        i.set_called([bodies.get(info.reduction, next(i.shape.leaves()).dtype)])
