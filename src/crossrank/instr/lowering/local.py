"""One operation of the cores of a rank, made into copies and barriers.

What other cores read of a member is its source, or a temporary copy of it: where what is written may be what others
still read, or where its place is known to its own core only (registers). What other cores write is the member's
destination, or a temporary that its own core copies from afterwards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from crossrank.instr.fields import ComputeFields, CopyFields, Fields
from crossrank.instr.instructions import InstCompute, InstDMACopy, InstGPSIMDSB2SB, Instruction
from crossrank.instr.kinds import AluOp, CollectiveKind
from crossrank.instr.lowering.editor import Editor, flag_written
from crossrank.instr.lowering.fences import Fences, Touched
from crossrank.instr.lowering.operations import Operation
from crossrank.instr.lowering.places import Part, is_plain, may_overlap, memory_of, tensors_of
from crossrank.instr.lowering.recipes import RECIPES, Cut, Take
from crossrank.instr.lowering.sb2sb import incompatibility
from crossrank.instr.operands import AccessOp
from crossrank.remarks import Remarks

SMALLEST_SCATTERED = 4
"""The smallest extent along which an all-reduce is split among the cores."""
_SAME_FOR_ALL = (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.BROADCAST)
"""The kinds that give all members the same, so that they may write the same memory."""


@dataclass(frozen=True)
class Settings:
    """What the pass was asked for, and for what machine.

    Attributes:
        lnc: cores of a rank.
        arch: the architecture level.
        max_bytes: the limit for SB2SB, in bytes per partition.
        remote_semaphores: whether semaphores take the place of the barriers after a send and receive.
    """

    lnc: int
    arch: int
    max_bytes: int
    remote_semaphores: bool


class Lowering:
    """Lowers one operation to whose instructions all of its members have come.

    Args:
        operation: the operation.
        editors: of the programs, by core.
        fences: what has been touched since the cores last met.
        settings: of the pass.
        remarks: told what becomes of it.
    """

    def __init__(
        self, operation: Operation, editors: Mapping[int, Editor], fences: Fences, settings: Settings, remarks: Remarks
    ) -> None:
        self._operation = operation
        self._cores = operation.members
        self._at = operation.at
        self._editors = editors
        self._tensors = {core: editor.tensors for core, editor in editors.items()}
        self._fences = fences
        self._settings = settings
        self._remarks = remarks
        self._made: dict[int, list[Instruction]] = {core: [] for core in self._cores}
        self._fenced = "" if len(self._cores) > 1 else "of a single core"

    def keep(self, reason: str) -> bool:
        """Keep the operation, behind a fence; returns whether there was none yet."""
        read = {self._memory(a) for inst in self._at.values() for a in inst.in_accesses}
        written = {self._memory(a) for inst in self._at.values() for a in inst.out_accesses}
        self._fence(dict.fromkeys(self._cores, read), dict.fromkeys(self._cores, written))
        for core, inst in self._operation.instructions:
            self._fences.saw(core, inst)
        self._say(dict.fromkeys(self._cores, f"{reason}; kept"), done=False)
        return any(self._made.values())

    def obstacle(self) -> str | None:
        """Why the operation cannot be lowered; None where it can."""
        kind = self._operation.fields.kind
        own = {"dma_qos": -1, "op_class": "", "use_gpsimd_dma": False, "initial_core_barrier": False}
        if kind.is_point_to_point:
            own |= {"send_to_rank": 0, "recv_from_ranks": ()}
        if len({replace(i.fields, **own) for i in self._at.values()}) > 1:
            return "its members are not alike"
        if kind.is_point_to_point:
            reason = self._astray()
            if reason:
                return reason
        elif len({tuple(map(_like, (*i.in_accesses, *i.out_accesses))) for i in self._at.values()}) > 1:
            return "its members have tensors of different shapes or types"
        written = self._operands(written_only=True).values()
        for (one, n, a), (other, m, b) in (pair for outs in written for pair in combinations(outs, 2)):
            same = kind in _SAME_FOR_ALL and n == m and a.is_static and a.fields == b.fields
            if one != other and not same and may_overlap(a, b):
                return "two cores write the same elements"
        return None

    def _astray(self) -> str | None:
        """Why something that is sent does not arrive."""
        goes_to = {core: self._at[core].fields.send_to_rank for core in self._cores}
        paired = self._operation.fields.kind is CollectiveKind.SEND_RECV  # a reducing one takes from all that it names
        for core in self._cores:
            for source in self._at[core].fields.recv_from_ranks:
                if source not in goes_to or (paired and goes_to[source] != core):
                    return f"core {core} receives from core {source}, which does not send to it"
                if _like(self._at[source].in_accesses[0]) != _like(self._at[core].out_accesses[0]):
                    return f"core {source} sends what core {core} does not expect"
        return None

    # What is lowered

    def idle(self) -> None:
        """Nobody takes part: take it away."""
        self._finish(dict.fromkeys(self._cores, "the core is in none of its groups; taken away"))

    def sendrecv(self) -> None:
        """Kind 0: each core copies into the memory of the core that it sends to."""
        target = {core: self._at[core].fields.send_to_rank for core in self._cores}
        self._settle({core: self._staged(core, remote=False) for core in self._cores})
        sent = {core: self._sources(core, remote=False)[0] for core in self._cores}
        landed = {core: self._landing(core, self._at[core].out_accesses[0]) for core in self._cores}
        self._fence(
            {core: [self._memory(sent[core])] for core in self._cores},
            {core: [memory_of(landed[target[core]].tensor, self._tensors)] for core in self._cores},
        )
        said = {}
        for core in self._cores:
            fields, dst = self._at[core].fields, self._push(core, landed[target[core]])
            reason = incompatibility(
                sent[core], dst, lnc=self._settings.lnc, arch=self._settings.arch, max_bytes=self._settings.max_bytes
            )
            copied = CopyFields(
                fields.dma_qos,
                target[core],
                fields.pipe_id,
                use_gpsimd_dma=fields.use_gpsimd_dma,
                semaphore=self._settings.remote_semaphores,
            )
            self._insert(core, InstDMACopy if reason else InstGPSIMDSB2SB, "copy", copied, [dst], [sent[core]])
            asked = "GPSIMD" if fields.use_gpsimd_dma else "DMA"
            chosen = f"DMA: {reason}" if reason else "GPSIMD (SB2SB)"
            said[core] = f"a copy to core {target[core]}, asked for by {asked}, made by {chosen}"
        if not self._settings.remote_semaphores:
            for pair in combinations(sorted(self._cores), 2):
                self._barrier(pair)
        self._fences.met(self._cores)
        self._unload({core: [landed[core]] for core in self._cores})
        self._finish(said)

    def all_reduce(self) -> None:
        """Kind 2: each core reduces its slice of what all have, and copies it to the others."""
        op, ordered = self._operation.fields.op, sorted(self._cores)
        count = range(len(self._at[self._cores[0]].out_accesses))
        self._settle(
            {core: self._at[core].in_accesses for core in self._cores},
            {core: self._at[core].out_accesses for core in self._cores},
        )
        work = {core: self._seeds(core) for core in self._cores}
        touched = {core: [memory_of(part.tensor, self._tensors) for part in work[core]] for core in self._cores}
        everything = [memory for memories in touched.values() for memory in memories]
        self._fence(dict.fromkeys(self._cores, everything), touched)
        cuts = [_scatter(work[ordered[0]][n].pattern.shape, len(ordered)) for n in count]
        for n in count:
            for place, core in enumerate(ordered if cuts[n] is not None else ordered[:1]):
                cut = _cut(cuts[n], place, len(ordered))
                parts = [_sliced(work[member][n], cut) for member in self._cores]
                srcs = [self._reach(core, part) for part in parts]
                self._reduce(core, self._reach(core, _sliced(work[core][n], cut)), srcs, op)
        self._barrier(self._cores)
        for n in count:
            for place, core in enumerate(ordered):
                cut = _cut(cuts[n], place, len(ordered))
                if cut is None:  # everything is on the first core
                    if place:
                        src = self._reach(core, work[ordered[0]][n])
                        self._copy(core, "copy", self._reach(core, work[core][n]), src)
                    continue
                src = self._reach(core, _sliced(work[core][n], cut))
                for peer in ordered:
                    if peer != core:
                        self._copy(core, "copy", self._push(core, _sliced(work[peer][n], cut)), src, to_core=peer)
        self._barrier(self._cores)
        self._unload(work)
        how = "slices, reduced on each core" if any(c is not None for c in cuts) else "reduced on one core"
        self._finish(dict.fromkeys(self._cores, f"{how} and copied to the others"))

    def pull(self) -> None:
        """Kind 1, and the further kinds: each core copies, or reduces, what the others have into its destinations."""
        fields = self._operation.fields
        takes = {core: self._takes(core, place) for place, core in enumerate(self._cores)}
        self._settle({core: self._staged(core, remote=True) for core in self._cores})
        parts = [[Part.of(a) for a in self._sources(core, remote=True)] for core in self._cores]
        given = [[memory_of(part.tensor, self._tensors) for part in member] for member in parts]
        self._fence(
            {core: [m for take in takes[core] for s in take.sources for m in given[s]] for core in self._cores},
            {core: [self._memory(a) for a in self._at[core].out_accesses] for core in self._cores},
        )
        for core in self._cores:
            landed = {}
            for n, out in enumerate(self._at[core].out_accesses):
                whole = all(take.dst is None for take in takes[core])
                if not whole:
                    landed[n] = self._landing(core, out)
                for take in takes[core]:
                    srcs = [self._reach(core, _sliced(parts[s][n], take.src)) for s in take.sources]
                    dst = out if whole else self._reach(core, _sliced(landed[n], take.dst))
                    if fields.kind.reduces and not fields.kind.is_ring:
                        self._reduce(core, dst, srcs, fields.op)
                    else:
                        self._copy(core, "copy", dst, srcs[0])
            self._unload({core: list(landed.values())})
        self._barrier(self._cores)
        what = "a reduction of" if fields.kind.reduces else "copies of"
        self._finish(dict.fromkeys(self._cores, f"{what} what the other cores have"))

    def _takes(self, core: int, place: int) -> list[Take]:
        fields = self._at[core].fields
        return RECIPES[fields.kind](fields, place, self._cores)

    # Sources and destinations

    def _memory(self, access: AccessOp) -> Hashable:
        return memory_of(access.of, self._tensors)

    def _operands(self, *, written_only: bool = False) -> Mapping[Hashable, list[tuple[int, int, AccessOp]]]:
        """The operands of all members by the memory that they touch: the core, the position, the access."""
        found = defaultdict(list)
        for core, inst in self._operation.instructions:
            for side in (inst.out_accesses, () if written_only else inst.in_accesses):
                for n, access in enumerate(side):
                    found[self._memory(access)].append((core, n, access))
        return found

    def _sources(self, core: int, *, remote: bool) -> list[AccessOp]:
        """What a member gives: its sources, or copies of them; of two that go out reduced, their reduction."""
        inst, fields = self._at[core], self._operation.fields
        if fields.kind is CollectiveKind.PERMUTE_REDUCE_IMPLICIT:
            sent = self._reach(core, self._temporary(core, "sent", inst.in_accesses[0]))
            self._reduce(core, sent, inst.in_accesses, fields.op)
            return [sent]
        staged, found = self._staged(core, remote=remote), []
        for access in inst.in_accesses:
            if access in staged:
                copy = self._reach(core, self._temporary(core, "staged", access))
                self._copy(core, "stage", copy, access)
                access = copy
            found.append(access)
        return found

    def _staged(self, core: int, *, remote: bool) -> list[AccessOp]:
        """The sources that a member copies, or reduces, before the others come to them."""
        sources = self._at[core].in_accesses
        if self._operation.fields.kind is CollectiveKind.PERMUTE_REDUCE_IMPLICIT:
            return sources
        written = self._operands(written_only=True)

        def unsafe(access: AccessOp) -> bool:
            return any(may_overlap(access, out) for _, _, out in written.get(self._memory(access), ()))

        return [access for access in sources if unsafe(access) or (remote and not access.is_static)]

    def _landing(self, core: int, out: AccessOp) -> Part:
        """Where others (or several copies) write what a destination gets."""
        if is_plain(out):
            return Part.of(out)
        return self._temporary(core, "landed", out)

    def _temporary(self, core: int, what: str, like: AccessOp) -> Part:
        return Part.whole(self._editors[core].temporary(f"{self._at[core].label}.{what}", like))

    def _seeds(self, core: int) -> list[Part]:
        """Where an all-reduce works: the destinations with the sources copied there, or temporaries."""
        inst = self._at[core]
        used = self._operands()
        found = []
        for n, (source, out) in enumerate(zip(inst.in_accesses, inst.out_accesses, strict=True)):
            others = [a for c, m, a in used[self._memory(out)] if (c, m) != (core, n)]
            if source is not out and self._memory(source) == self._memory(out):
                others.append(source)
            alone = is_plain(out) and not any(may_overlap(out, a) for a in others)
            part = Part.of(out) if alone else self._temporary(core, "work", out)
            if source is not out or not alone:
                self._copy(core, "seed", self._reach(core, part), source)
            found.append(part)
        return found

    def _unload(self, landed: Mapping[int, Sequence[Part]]) -> None:
        """Copy what landed in temporaries where it belongs."""
        shared = False
        for core, parts in landed.items():
            for part, out in zip(parts, self._at[core].out_accesses, strict=False):
                if part.tensor is not out.of:
                    self._copy(core, "unload", out, self._reach(core, part))
                    shared |= out.type.space.is_shared
        if shared and len(landed) > 1:
            self._barrier(self._cores)

    def _reach(self, core: int, part: Part) -> AccessOp:
        return self._editors[core].reach(part)

    def _push(self, core: int, part: Part) -> AccessOp:
        """What a core writes of another one."""
        if part.core != core:
            flag_written(part.tensor)
        return self._reach(core, part)

    # Instructions

    def _insert(
        self,
        core: int,
        cls: type[Instruction],
        what: str,
        fields: Fields,
        outs: Sequence[AccessOp],
        ins: Sequence[AccessOp],
    ) -> None:
        self._made[core].append(self._editors[core].insert(self._at[core], cls, what, fields, outs, ins))

    def _copy(self, core: int, what: str, dst: AccessOp, src: AccessOp, to_core: int = -1) -> None:
        self._insert(core, InstDMACopy, what, CopyFields(self._at[core].fields.dma_qos, to_core), [dst], [src])

    def _reduce(self, core: int, dst: AccessOp, srcs: Sequence[AccessOp], op: AluOp | None) -> None:
        """A sum of floats is what DMA engines compute; all else, and what must not pass through f32, is ours."""
        assert op is not None
        function, parameter = "group_reduce", ("op", op.name.lower())
        if op is AluOp.ADD and dst.type.dtype.is_float:
            function, parameter = "dma_compute", ("reduce_op", "add")
        self._insert(core, InstCompute, "reduce", ComputeFields(function, (parameter,), "dma"), [dst], srcs)

    def _fence(self, reads: Touched, writes: Touched) -> None:
        """Let the members meet before others touch what is theirs, unless they did since they touched it last."""
        if len(self._cores) < 2:
            return
        redundant = self._fences.enough(self._cores, reads, writes)
        self._fenced = "no fence is needed before it" if redundant else "behind a fence"
        if not redundant:
            self._barrier(self._cores)

    def _settle(
        self, read: Mapping[int, Sequence[AccessOp]], written: Mapping[int, Sequence[AccessOp]] | None = None
    ) -> None:
        """Let the members meet before they copy what others of them may have touched just now: shared HBM."""
        reads, writes = (
            {
                core: [memory_of(t, self._tensors) for a in some for t in tensors_of(a) if t.type.space.is_shared]
                for core, some in touched.items()
            }
            for touched in (read, written or {})
        )
        if any((*reads.values(), *writes.values())) and not self._fences.enough(self._cores, reads, writes):
            self._barrier(self._cores)

    def _barrier(self, cores: Sequence[int]) -> None:
        if len(cores) < 2:
            return
        for core in cores:
            self._made[core].append(self._editors[core].barrier(self._at[core], cores))
        self._fences.met(cores)

    def _say(self, said: Mapping[int, str], *, done: bool) -> None:
        for core, inst in self._operation.instructions:
            say = self._remarks.done if done else self._remarks.declined
            say(f"core {core}: {inst.label}", "; ".join(filter(None, (said[core], self._fenced))), inst.where)

    def _finish(self, said: Mapping[int, str]) -> None:
        self._say(said, done=True)
        for core in self._cores:
            self._editors[core].replace(self._at[core], self._made[core])


def _like(access: AccessOp) -> Hashable:
    return access.type.shape, access.type.dtype


def _scatter(shape: Sequence[int], parts: int) -> int | None:
    """The dimension along which an all-reduce is split: the first one, not of partitions, that is long enough."""
    return next((d for d, n in enumerate(shape) if d and n >= SMALLEST_SCATTERED and n % parts == 0), None)


def _cut(dim: int | None, place: int, parts: int) -> Cut | None:
    return None if dim is None else (dim, place, parts)


def _sliced(part: Part, cut: Cut | None) -> Part:
    return part if cut is None else part.slice(*cut)
