"""Every instruction of a kernel by which cores or ranks have to do with one another: what `inspect` shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from crossrank.instr.fields import CollectiveFields, Pairs
from crossrank.instr.instructions import (
    InstCollectiveCompute,
    InstCoreBarrier,
    InstGPSIMDSB2SB,
    InstRecv,
    Instruction,
    InstSend,
    InstTensorCompletion,
)
from crossrank.instr.operands import AccessOp
from crossrank.instr.program import Kernel
from crossrank.statistics import Totals


@dataclass(frozen=True)
class Entry:
    """One communicating instruction.

    Attributes:
        core: the core whose program it stands in.
        name: its name.
        kind: which collective, a local one with ``Local`` before it, else the instruction's class; copies (and
            computations) count where they reach into another core's memory.
        number: the number of the kind, of a collective.
        reduce: the reduction, of one that reduces.
        groups: groups, pairs, cores or peer, as text.
        channel: the channel of a tiled permute, the pipe of what goes between cores, else None.
        dim: the dimension that is joined or split.
        dtype: element type; None where they differ, or there is none.
        shapes: of the results (of a send: of what is sent).
        bytes: of the same, on one core of one rank.
        spaces: where the operands lie, and where the results.
        extension: whether NKI has no such kind or reduction.
        where: the author's source line, or the empty string.
    """

    core: int
    name: str
    kind: str
    number: int | None
    reduce: str | None
    groups: str
    channel: int | None
    dim: int | None
    dtype: str | None
    shapes: str
    bytes: int
    spaces: str
    extension: bool
    where: str

    def as_dict(self) -> dict[str, Any]:
        """With stable keys, for JSON."""
        return asdict(self)


def inventory(kernel: Kernel) -> list[Entry]:
    """The communicating instructions of all cores, in order."""
    return [
        _entry(program.index, inst)
        for program in kernel.programs
        for inst in program.instructions()
        if _communicates(inst)
    ]


def totals(entries: Sequence[Entry]) -> Totals:
    """``{kind: {count, bytes}}``."""
    found: Totals = {}
    for e in entries:
        total = found.setdefault(e.kind, {"count": 0, "bytes": 0})
        total["count"] += 1
        total["bytes"] += e.bytes
    return dict(sorted(found.items()))


def measure(kernel: Kernel) -> Totals:
    """The totals of a kernel."""
    return totals(inventory(kernel))


def written_inputs(kernel: Kernel) -> set[int]:
    """The positions of the inputs that some instruction writes."""
    accesses = (a for p in kernel.programs for i in p.instructions() for a in i.out_accesses)
    return {a.of.fields.input for a in accesses if a.of.fields.input >= 0}


def private_outputs(kernel: Kernel) -> dict[int, list[int]]:
    """Outputs that are memory of a core's own on several cores, and on which."""
    found: dict[int, list[int]] = {}
    for program in kernel.programs:
        for tensor in program.tensors().values():
            for n in () if tensor.type.space.is_shared else tensor.fields.outputs:
                found.setdefault(n, []).append(program.index)
    return {n: cores for n, cores in sorted(found.items()) if len(cores) > 1}


_ALWAYS = (InstCollectiveCompute, InstSend, InstRecv, InstCoreBarrier, InstGPSIMDSB2SB, InstTensorCompletion)


def _communicates(inst: Instruction) -> bool:
    return isinstance(inst, _ALWAYS) or bool(_peers(inst))


def _peers(inst: Instruction) -> set[int]:
    """The other cores of the rank whose memory it reaches into."""
    return {a.of.fields.core for a in (*inst.out_accesses, *inst.in_accesses) if a.of.fields.of}


def _entry(core: int, inst: Instruction) -> Entry:
    fields = inst.fields
    collective = fields if isinstance(fields, CollectiveFields) else None
    moved = inst.out_accesses or inst.in_accesses
    semaphore = isinstance(inst, InstCoreBarrier)  # nothing of the kernel's own moves
    types = {a.type.dtype.name for a in moved}
    return Entry(
        core=core,
        name=inst.label,
        kind=_kind(inst, collective),
        number=int(collective.kind) if collective else None,
        reduce=collective.op.name.lower() if collective and collective.op is not None else None,
        groups=_groups(inst, collective),
        channel=_channel(fields),
        dim=None if collective is None or collective.cc_dim is None else int(collective.cc_dim),
        dtype=types.pop() if len(types) == 1 and not semaphore else None,
        shapes="" if semaphore else ", ".join(dict.fromkeys(_shape(a) for a in moved)),
        bytes=0 if semaphore else sum(a.type.size * a.type.dtype.itemsize for a in moved),
        spaces="" if semaphore else _spaces(inst),
        extension=collective is not None
        and (collective.kind.is_extension or (collective.op is not None and collective.op.is_extension)),
        where=inst.where,
    )


def _kind(inst: Instruction, collective: CollectiveFields | None) -> str:
    if collective is not None:
        return ("Local" if collective.is_local else "") + collective.kind.label
    return type(inst).__name__.removeprefix("Inst")


def _groups(inst: Instruction, collective: CollectiveFields | None) -> str:
    if collective is not None and collective.kind.is_point_to_point:
        sources = ",".join(map(str, collective.recv_from_ranks))
        return f"to core {collective.send_to_rank}, from core {sources}"
    if collective is not None:
        return _sets(collective.src_target_pairs if collective.kind.has_pairs else collective.replica_groups)
    if isinstance(inst, InstSend | InstRecv):
        return f"{'to' if isinstance(inst, InstSend) else 'from'} rank {inst.fields.peer_id}"
    if isinstance(inst, InstCoreBarrier):
        return f"cores {','.join(map(str, inst.fields.cores))}"
    writes = {a.of.fields.core for a in inst.out_accesses if a.of.fields.of}
    cores = ",".join(map(str, sorted(writes or _peers(inst))))
    return f"{'to' if writes else 'from'} core {cores}" if cores else ""


def _sets(ids: Pairs) -> str:
    return "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in ids) + "}"


def _channel(fields: object) -> int | None:
    for name in ("channel_id", "pipe_id"):
        found: int = getattr(fields, name, -1)
        if found >= 0:
            return found
    return None


def _shape(access: AccessOp) -> str:
    return f"{access.type.dtype.name}[{','.join(map(str, access.type.shape))}]"


def _spaces(inst: Instruction) -> str:
    sides = ((a.type.space.value for a in side) for side in (inst.in_accesses, inst.out_accesses))
    return " → ".join(filter(None, (", ".join(dict.fromkeys(side)) for side in sides)))
