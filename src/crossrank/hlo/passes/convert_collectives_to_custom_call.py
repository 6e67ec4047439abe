"""`convert-collectives-to-custom-call`: collectives become custom-calls with names that say what they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crossrank.collective.kinds import Kind
from crossrank.errors import InputError
from crossrank.hlo.collectives import (
    GROUP_FIELDS,
    GROUPS_ATTRIBUTE,
    NATIVE_CONFIG_ATTRIBUTE,
    PAIRS_ATTRIBUTE,
    CollectiveInfo,
    config_of,
    describe,
)
from crossrank.hlo.hlo_pass import WRAPPERS, HloPass
from crossrank.hlo.module import Instruction, Module
from crossrank.hlo.targets import BASES, INFIXES, NAMED_BY_THE_SOURCE, UNKNOWN_DTYPE, UNKNOWN_OP, target_for
from crossrank.passes import option, register
from crossrank.remarks import Remarks

# what a native collective says in fields that a custom-call does not have
_NATIVE_FIELDS = (
    *GROUP_FIELDS,
    "channel_id",
    "use_global_device_ids",
    "dimensions",
    "constrain_layout",
    "source_target_pairs",
)
API_VERSION_ORIGINAL = 1
_OPCODES = {
    "named": {str(k) for k in NAMED_BY_THE_SOURCE},
    "all": {str(k) for k in BASES if not k.has_tokens},
}


@register
@dataclass(frozen=True)
class ConvertCollectivesToCustomCall(HloPass):
    """Turns collectives into custom-calls whose target names kind, reduction and element type.

    Matches all-reduce, reduce-scatter and all-gather in the entry computation, or with `all_computations` in every
    computation that is no fusion body. With `kinds=all` all-to-all (as an array and as a tuple), collective-permute,
    collective-broadcast and ragged-all-to-all too. The start and done halves of asynchronous collectives are other
    opcodes; sends and receives are `fuse-send-recv`'s.

    Makes `custom-call`s of the same shape over the same operands, named by `hlo/targets.py`. Groups go as written into
    the frontend attribute `replica_groups`, pairs into `source_target_pairs`; channel id, dimension and flags into
    `backend_config` (`hlo/backend_config.py`); a config that the backend itself had written, as compiled modules have
    one, waits in `native_backend_config`. Metadata, sharding, frontend attributes and control dependencies stay. Names
    and attributes are taken from the whole module first and applied afterwards.

    Declines reductions whose body does more than combine its two parameters, permutes in place, collectives in fusion
    bodies and in the bodies of asynchronous wrappers. An unlisted reduction (`UNKNOWNOP`) or element type
    (`UNKNOWNDTYPE`) is converted.
    """

    name: ClassVar[str] = "convert-collectives-to-custom-call"

    all_computations: bool = option(False, "also while and conditional bodies, and whatever else is called")
    kinds: str = option("named", "`named`: the three kinds that the source has names for; `all`: the others too")

    def __post_init__(self) -> None:
        if self.kinds not in _OPCODES:
            raise InputError(f"pass {self.name}: kinds is {' or '.join(_OPCODES)}, not {self.kinds}")

    def run(self, module: Module, remarks: Remarks) -> bool:
        """Convert; returns whether anything was converted."""
        opcodes = _OPCODES[self.kinds]
        found: list[tuple[Instruction, CollectiveInfo]] = []
        scope = self.computations(module, wrapped=True) if self.all_computations else self.entry(module)
        for computation in scope:
            matched = [i for i in computation.post_order() if i.opcode in opcodes]
            if not matched:
                continue
            wrappers = {c.opcode for c in computation.callers}.intersection(WRAPPERS)
            for i in matched:
                info = describe(i)
                assert info is not None
                reason = f"it is in the body of {_A[wrappers.pop()]}" if wrappers else _why_not(i, info)
                if reason:
                    remarks.declined(f"%{i.name}", reason, i.where)
                else:
                    found.append((i, info))
        bodies = {c for i, _ in found for c in i.called}
        for i, info in found:
            target = convert(i, info)
            odd = " (no name in the contract)" if UNKNOWN_OP in target or UNKNOWN_DTYPE in target else ""
            remarks.done(f"%{i.name}", f"{info.kind} → {target}{odd}", i.where)
        if any(not b.callers for b in bodies):
            module.remove_unreachable()
        return bool(found)


_A = {"fusion": "a fusion", "async-start": "an asynchronous wrapper"}


def _why_not(i: Instruction, info: CollectiveInfo) -> str:
    if info.kind.reduces and not info.trivial_body:
        return "reduction body is not a binary op over its two parameters"
    if info.mode is None:
        return "Invalid combination of has_channel_id and use_global_device_ids"
    results = len(i.shape.elements) if i.shape.is_tuple else 1
    if info.kind is Kind.COLLECTIVE_PERMUTE and len(i.operands) != results:
        return "it permutes in place, at offsets of larger buffers"
    return ""


def convert(i: Instruction, info: CollectiveInfo) -> str:
    """Make a custom-call of one native collective, in its place; returns the target."""
    target = target_for(info.kind, info.reduce_op, i.shape)
    unnamed = info.kind.reduces and info.reduce_op not in INFIXES
    proto = i.edit()
    for field in _NATIVE_FIELDS:
        proto.ClearField(field)
    i.set_opcode("custom-call")
    i.set_called(())
    if proto.backend_config:
        i.set_frontend_attribute(NATIVE_CONFIG_ATTRIBUTE, proto.backend_config.decode(errors="replace"))
    proto.custom_call_target = target
    proto.custom_call_api_version = API_VERSION_ORIGINAL
    proto.backend_config = str(config_of(info, info.reduction if unnamed else None)).encode()
    if info.kind.has_pairs:
        i.set_frontend_attribute(PAIRS_ATTRIBUTE, str(info.pairs))
    else:
        i.set_frontend_attribute(GROUPS_ATTRIBUTE, str(info.groups))
    return target
