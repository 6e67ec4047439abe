"""`raise-custom-call-collectives`: the inverse of the conversion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from crossrank.collective.dtypes import DType
from crossrank.collective.kinds import Kind
from crossrank.errors import InputError
from crossrank.hlo.collectives import (
    GROUPS_ATTRIBUTE,
    NATIVE_CONFIG_ATTRIBUTE,
    CollectiveInfo,
    describe,
    kind_of,
    write_groups,
)
from crossrank.hlo.module import Computation, Instruction, Module
from crossrank.hlo.shape import Shape
from crossrank.passes import Pass, register
from crossrank.remarks import Remarks


@register
@dataclass(frozen=True)
class RaiseCustomCallCollectives(Pass[Module]):
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
        for i in list(module.instructions()):
            if i.opcode != "custom-call" or kind_of(i) is None:
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


class ReductionBodies:
    """Bodies `op(parameter 0, parameter 1)` on scalars, made on demand, one for each op and type."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._made: dict[tuple[str, DType], Computation] = {}

    def get(self, opcode: str, dtype: DType) -> Computation:
        """The body for an HLO opcode on scalars of a type."""
        key = (opcode, dtype)
        if key not in self._made:
            scalar = Shape(dtype, (), ())
            body = self._module.add_computation(f"{opcode}_{dtype.name}")
            a, b = (
                body.add("parameter", scalar, name=f"{name}_{opcode}", edit=_numbered(n)) for n, name in enumerate("ab")
            )
            body.set_root(body.add(opcode, scalar, [a, b], name=f"{opcode}_root"))
            shape = body.proto.program_shape
            for name in (a.name, b.name):
                scalar.write(shape.parameters.add())
                shape.parameter_names.append(name)
            scalar.write(shape.result)
            self._made[key] = body
        return self._made[key]


def _numbered(n: int) -> Callable[[Any], None]:
    def edit(proto: Any) -> None:
        proto.parameter_number = n

    return edit
