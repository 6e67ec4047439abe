"""What kernels mean, said a second time: steps that become instructions, and a simulation of them in NumPy.

The simulation knows nothing of access patterns, matching or meetings. An operand is an array of element numbers, made
by NumPy's own indexing of ``arange``; a collective is a loop over its members, all of whom read before any writes. Only
`reduction` states what the project defines: in group order, narrow floats in f32, rounded once.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from crossrank.instr.builder import KernelBuilder
from crossrank.instr.tensors import DynamicSlice, Register, View

Array = np.ndarray[Any, Any]
Place = tuple[int, int]
_WORDS = {
    "f32": "float32",
    "f16": "float16",
    "f64": "float64",
    "s32": "int32",
    "u8": "uint8",
    "s8": "int8",
    "u32": "uint32",
}
DTYPES = {word: np.dtype(name) for word, name in _WORDS.items()}
DTYPES |= {"s64": np.dtype(np.int64), "bf16": np.dtype(ml_dtypes.bfloat16), "f8e5m2": np.dtype(ml_dtypes.float8_e5m2)}
GROUPED = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "ring", "ring_reduce", "plain_ring")


# Reductions


def reduction(op: str, arrays: Sequence[Array]) -> Array:
    """Arrays of one type, reduced one after the other; narrow floats in f32, rounded once; integers wrap."""
    dtype = arrays[0].dtype
    is_float = dtype.kind not in "iu"
    wide = dtype if not is_float or dtype.itemsize >= 4 else np.dtype(np.float32)
    if op == "average":
        wide = np.dtype(np.promote_types(wide, np.float32)) if is_float else np.dtype(f"{dtype.kind}8")
    values = [a.astype(wide) for a in arrays]
    with np.errstate(all="ignore"):
        if op in ("add", "average"):
            total = np.zeros_like(values[0])
            for value in values:
                total = total + value
            if op == "average":
                total = total / wide.type(len(arrays)) if is_float else total // wide.type(len(arrays))
        elif op == "multiply":
            total = np.ones_like(values[0])
            for value in values:
                total = total * value
        else:
            total = values[0]
            for value in values[1:]:
                wins = value > total if op == "maximum" else value < total
                total = np.where(wins | (value != value), value, total)
        return total.astype(dtype)


# Registers, tensors, operands


@dataclass(frozen=True)
class Scalar:
    """``((rank * factor + offset) ^ flip) % modulus``: what a register holds."""

    factor: int
    offset: int
    flip: int
    modulus: int

    def of(self, rank: int) -> int:
        return ((rank * self.factor + self.offset) ^ self.flip) % self.modulus

    def build(self, b: KernelBuilder) -> Register:
        return ((b.rank_id() * self.factor + self.offset) ^ self.flip) % self.modulus


@dataclass(frozen=True)
class Tensor:
    """A tensor that all cores declare; of a shared one they have one."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    space: str
    filled: bool

    @property
    def shared(self) -> bool:
        return self.space == "shared_hbm"

    @property
    def size(self) -> int:
        return math.prod(self.shape)


Cut = tuple[Any, ...]


@dataclass(frozen=True)
class Operand:
    """A tensor, and what is done to it one after the other: the same said to a view and to an array of numbers."""

    tensor: Tensor
    cuts: tuple[Cut, ...] = ()

    def view(self, b: KernelBuilder, tensors: dict[str, View]) -> View:
        view = tensors[self.tensor.name]
        for what, *given in self.cuts:
            if what == "index":
                view = view[tuple(self._index(i, b) for i in given)]
            elif what == "permute":
                view = view.permute(given)
            elif what == "reshape":
                view = view.reshape(given)
            elif what == "pattern":
                view = view.ap(given[1], given[0])
            elif what == "rows":
                view = view.ap(given[1], 0, vector_offset=tensors[given[0]], indirect_dim=0)
        return view

    @staticmethod
    def _index(i: Any, b: KernelBuilder) -> Any:
        if isinstance(i, Scalar):
            return i.build(b)
        if isinstance(i, tuple):
            return DynamicSlice(i[0].build(b), i[1])
        return i

    def numbers(self, rank: int) -> Array:
        """The numbers of its elements in the tensor."""
        found = np.arange(self.tensor.size).reshape(self.tensor.shape)
        for what, *given in self.cuts:
            if what == "index":
                found = found[tuple(self._at(i, rank) for i in given)]
            elif what == "permute":
                found = np.transpose(found, given)
            elif what == "reshape":
                found = found.reshape(given)
            elif what == "pattern":
                start, dims = given
                found = np.array(start)
                for stride, extent in dims:
                    found = found[..., None] + np.arange(extent) * stride
            elif what == "rows":
                rows = given[2]
                found = found[list(rows), : given[1][1][1]]
        return found

    @staticmethod
    def _at(i: Any, rank: int) -> Any:
        if isinstance(i, Scalar):
            return i.of(rank)
        if isinstance(i, tuple):
            return slice(i[0].of(rank), i[0].of(rank) + i[1])
        return i


@dataclass
class State:
    """What all tensors of all cores hold, what is under way, and what was prepared."""

    ranks: int
    lnc: int
    tensors: list[Tensor]
    memory: dict[tuple[int, int, str], Array] = field(default_factory=dict)
    mail: defaultdict[tuple[int, int, int], deque[list[Array]]] = field(default_factory=lambda: defaultdict(deque))
    prepared: dict[Place, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for rank in range(self.ranks):
            for core in range(self.lnc):
                for t in self.tensors:
                    fresh = np.full(t.size * np.dtype(DTYPES[t.dtype]).itemsize, 255, np.uint8)
                    self.memory[rank, -1 if t.shared else core, t.name] = fresh.view(DTYPES[t.dtype])

    def flat(self, rank: int, core: int, tensor: Tensor) -> Array:
        return self.memory[rank, -1 if tensor.shared else core, tensor.name]

    def read(self, place: Place, operand: Operand) -> Array:
        return self.flat(*place, operand.tensor)[operand.numbers(place[0])]

    def write(self, place: Place, operand: Operand, values: Array) -> None:
        numbers = operand.numbers(place[0])
        self.flat(*place, operand.tensor)[numbers] = values.reshape(numbers.shape)


# Steps


@dataclass(frozen=True)
class Condition:
    """Ranks that do a step: those for which ``scalar`` is not zero."""

    scalar: Scalar

    def holds(self, rank: int) -> bool:
        return self.scalar.of(rank) != 0


@dataclass(frozen=True)
class Step:
    """Something that some cores of some ranks do.

    Attributes:
        kind: what.
        cores: which cores.
        srcs: what each of them reads.
        dsts: what each of them writes.
        condition: which ranks do it; None: all.
        groups: of ranks, or of cores where it is local.
        told: whatever else the kind needs.
    """

    kind: str
    cores: tuple[int, ...]
    srcs: dict[int, tuple[Operand, ...]] = field(default_factory=dict)
    dsts: dict[int, tuple[Operand, ...]] = field(default_factory=dict)
    condition: Condition | None = None
    groups: tuple[tuple[int, ...], ...] = ()
    op: str = "add"
    dims: tuple[int, int] = (0, 0)
    told: Any = None

    @property
    def local(self) -> bool:
        return self.kind.startswith("local ")

    @property
    def word(self) -> str:
        return self.kind.removeprefix("local ")

    @property
    def joint(self) -> bool:
        """Whether its cores do it together: among ranks, on shared memory alone."""
        operands = [o for side in (self.srcs, self.dsts) for some in side.values() for o in some]
        among = self.word in (*GROUPED, "permute", "permute_reduce") and not self.local
        return (among or self.kind in ("send", "send_all")) and all(o.tensor.shared for o in operands)

    def does(self, rank: int) -> bool:
        return self.condition is None or self.condition.holds(rank)

    def group_of(self, member: int) -> tuple[int, ...] | None:
        return next((g for g in self.groups if member in g), None)

    # What it is in the program of a core

    def build(self, b: KernelBuilder, core: int, tensors: dict[str, View], left_out: int | None = None) -> None:
        """``left_out``: a rank that does not do it."""
        register = None if self.condition is None else self.condition.scalar.build(b)
        with nullcontext() if register is None else b.when(register):
            if core not in self.cores:
                return
            if left_out is None:
                self._build(b, core, tensors)
                return
            with b.when(b.rank_id().ne(left_out)):
                self._build(b, core, tensors)

    def _build(self, b: KernelBuilder, core: int, tensors: dict[str, View]) -> None:
        srcs, dsts = ([o.view(b, tensors) for o in side.get(core, ())] for side in (self.srcs, self.dsts))
        groups, local, word, op = self.groups, {"is_local": True} if self.local else {}, self.word, self.op
        if word == "all_reduce":
            b.all_reduce_cc_raw(op, srcs, dsts, groups, tiled=bool(self.told), **local)
        elif word == "all_gather":
            b.all_gather_cc_raw(srcs, dsts, groups, self.dims[0], **local)
        elif word == "reduce_scatter":
            b.reduce_scatter_cc_raw(op, srcs, dsts, groups, self.dims[0], **local)
        elif word == "all_to_all":
            b.all_to_all_cc_raw(srcs, dsts, groups, *self.dims, **local)
        elif word == "broadcast":
            b.broadcast_cc_raw(srcs, dsts, groups, self.told or (), **local)
        elif word == "plain_ring":
            b.collective_permute_cc_raw(srcs, dsts, groups, **local)
        elif word == "ring":
            b.tiled_collective_permute_implicit_cc_raw(srcs, dsts, groups, *self.told, **local)
        elif word == "ring_reduce":
            b.tiled_collective_permute_reduce_implicit_cc_raw(op, srcs, dsts, groups, *self.told, **local)
        elif word == "permute":
            b.tiled_collective_permute_cc_raw(srcs, dsts, self.told, **local)
        elif word == "permute_reduce":
            b.collective_permute_reduce_cc_raw(op, srcs, dsts, self.told, extension=True)
        elif word == "variable":
            phase, options = self.told
            table = srcs.pop()
            b.all_to_all_v_cc_raw(srcs, dsts, groups, table, phase=phase, **options, **local)
        elif word == "send":
            source, target = self.told
            with b.when(b.rank_id().eq(source)):
                b.send_cc_raw(srcs, target)
            with b.when(b.rank_id().eq(target)):
                b.recv_cc_raw(dsts, source)
        elif word == "send_all":
            for peer in range(b.world_size):
                b.send_cc_raw([srcs[peer]], peer)
            for peer in range(b.world_size):
                b.recv_cc_raw([dsts[peer]], peer)
        elif word == "sendrecv":
            to, fro, pipe = self.told[core]
            b.sendrecv(*dsts, *srcs, to, fro, pipe, use_gpsimd_dma=bool(core % 2))
        elif word == "cce":
            b.sendrecv_cce(*dsts, *srcs, *self.told[core][:2], op, self.told[core][2])
        elif word == "barrier":
            b._barrier(self.told)
        elif word == "copy":
            b.dma_copy(*dsts, *srcs)
        elif word == "compute":
            if self.told is None:
                b.compute("tensor_tensor", dsts, srcs, op=op)
            else:
                b.compute("memset", dsts, value=self.told)
        elif word == "bytes":
            raw, other = (o.view(o.dtype) for o in (srcs[0], dsts[0]))
            b.dma_copy(other.view("u8"), raw.view("u8"))
        elif word == "constant":
            b.compute("constant", dsts, values=self.told)
        elif word == "rank":
            b.register_store(dsts[0], self.told.build(b))
        elif word == "processing":
            b.register_store(dsts[0], b.cur_processing_rank_id(self.told[0], groups, *self.told[1]))
        else:
            raise AssertionError(word)

    # What it means

    def run(self, state: State, left_out: Place | None = None) -> None:
        """Do it on all ranks; ``left_out`` is a core of a rank that does not do it."""
        does = {
            (rank, core)
            for rank in range(state.ranks)
            if self.does(rank)
            for core in self.cores
            if (rank, core) != left_out
        }
        if self.word == "send":
            source, target = self.told
            for core in self._speakers(does):
                if (source, core) in does:
                    state.mail[source, target, core].append([state.read((source, core), o) for o in self.srcs[core]])
                if (target, core) in does:
                    values = state.mail[source, target, core].popleft()
                    for operand, value in zip(self.dsts[core], values, strict=True):
                        state.write((target, core), operand, value)
            return
        if self.word == "send_all":
            cores = self._speakers(does)
            for rank, core in does:
                for peer in range(state.ranks) if core in cores else ():
                    state.mail[rank, peer, core].append([state.read((rank, core), self.srcs[core][peer])])
            for rank, core in does:
                for peer in range(state.ranks) if core in cores else ():
                    state.write((rank, core), self.dsts[core][peer], state.mail[peer, rank, core].popleft()[0])
            return
        met: list[list[Place]] = []
        if self.word in ("sendrecv", "cce"):
            met = [[(r, c) for c in self.cores] for r in range(state.ranks) if self.does(r)]
        elif self.local:
            for rank in range(state.ranks):
                met += [[(rank, c) for c in g] for g in self.members() if all((rank, c) in does for c in g)]
        elif self.members():
            for core in self._speakers(does):
                met += [[(r, core) for r in g] for g in self.members() if all((r, core) in does for r in g)]
        else:
            met = [[place] for place in sorted(does)]
        for members in met:
            self._meet(state, members)

    def _speakers(self, does: set[Place]) -> list[int]:
        """Of cores that do it together, the first; else all."""
        cores = sorted({core for _, core in does})
        return cores[:1] if self.joint else cores

    def members(self) -> Sequence[tuple[int, ...]]:
        if self.word in ("permute", "permute_reduce"):
            joined: list[set[int]] = []
            for pair in self.told:
                touching = [s for s in joined if s & set(pair)]
                joined = [s for s in joined if s not in touching] + [set(pair).union(*touching)]
            return [tuple(sorted(s)) for s in joined]
        return self.groups if self.word != "processing" else ()

    def _meet(self, state: State, members: list[Place]) -> None:
        """What members do who have met: all read before any writes."""
        word = self.word
        if word == "variable":
            self._variable(state, members)
            return
        core_of = [core for _, core in members]
        srcs = [[state.read(p, o) for o in self.srcs.get(p[1], ())] for p in members]
        results: list[list[Array] | None]
        count = len(members)
        if word == "all_reduce":
            results = [[reduction(self.op, [s[n] for s in srcs]) for n in range(len(srcs[0]))] for _ in members]
        elif word == "all_gather":
            results = [[np.concatenate(one, self.dims[0]) for one in zip(*srcs, strict=True)] for _ in members]
        elif word == "reduce_scatter":
            totals = [reduction(self.op, one) for one in zip(*srcs, strict=True)]
            results = [[np.split(t, count, self.dims[0])[n] for t in totals] for n in range(count)]
        elif word == "all_to_all":
            parts = [np.split(s[0], count, self.dims[0]) for s in srcs]
            results = [[np.concatenate([p[n] for p in parts], self.dims[1])] for n in range(count)]
        elif word == "broadcast":
            results = []
            for place, mine in zip(members, self.dsts_of(core_of), strict=True):
                kept = state.read(place, mine[0]).copy()
                part = tuple(slice(0, n) for n in self.told or kept.shape)
                kept[part] = srcs[0][0][part]
                results.append([kept])
        elif word in ("ring", "ring_reduce", "plain_ring"):
            sent = [reduction(self.op, s) for s in srcs]
            back = word != "plain_ring" and self.told[0] in (1, 3)
            results = [[sent[(n + 1) % count if back else n - 1]] for n in range(count)]
            if word != "ring_reduce":
                results = [srcs[(n + 1) % count if back else n - 1] for n in range(count)]
        elif word in ("permute", "permute_reduce"):
            ids = [p[1] if self.local else p[0] for p in members]
            source_of = {t: ids.index(s) for s, t in self.told if s in ids}
            sent = srcs if word == "permute" else [[reduction(self.op, s)] for s in srcs]
            results = [sent[source_of[i]] if i in source_of else None for i in ids]
        elif word == "sendrecv":
            results = [srcs[self.cores.index(self.told[c][1])] for c in core_of]
        elif word == "cce":
            chosen = [[srcs[self.cores.index(s)][0] for s in self.told[c][1]] for c in core_of]
            results = [[reduction(self.op, some)] for some in chosen]
        elif word == "barrier":
            results = [None] * count
        else:
            results = [self._alone(state, members[0], srcs[0])]
        for place, mine in zip(members, results, strict=True):
            for operand, values in zip(
                self.dsts.get(place[1], ()) if mine is not None else (), mine or (), strict=True
            ):
                state.write(place, operand, values)

    def dsts_of(self, cores: Sequence[int]) -> list[tuple[Operand, ...]]:
        return [self.dsts[core] for core in cores]

    def _alone(self, state: State, place: Place, srcs: list[Array]) -> list[Array]:
        """A step that a core does by itself."""
        dst = self.dsts[place[1]][0]
        dtype = np.dtype(DTYPES[dst.tensor.dtype])
        shape = dst.numbers(place[0]).shape
        word, rank = self.word, place[0]
        if word in ("copy", "bytes"):
            return [srcs[0].reshape(shape)]
        if word == "compute" and self.told is not None:
            return [np.full(shape, self.told, dtype)]
        if word == "compute":
            function = {"subtract": np.subtract, "bitwise_xor": np.bitwise_xor}[self.op]
            with np.errstate(all="ignore"):
                if dtype.kind in "iu":
                    return [function(*srcs)]
                return [function(*(s.astype(np.promote_types(np.float32, dtype)) for s in srcs)).astype(dtype)]
        if word == "constant":
            return [np.array(self.told, dtype).reshape(shape)]
        if word == "rank":
            return [np.array(self.told.of(rank)).astype(dtype).reshape(shape)]
        assert word == "processing"
        group, (steps, (channel, _)) = self.group_of(rank), self.told
        holds = rank if group is None else group[(group.index(rank) + (steps if channel % 2 else -steps)) % len(group)]
        return [np.array(holds).astype(dtype).reshape(shape)]

    def _variable(self, state: State, members: list[Place]) -> None:
        phase, options = self.told
        tables = []
        for place in members:
            table = state.read(place, self.srcs[place[1]][-1]).copy()
            if phase == "prepare":
                state.prepared[place] = table
            tables.append(state.prepared.pop(place) if phase == "trigger" else table)
        if phase == "prepare":
            return
        tables = [t.reshape(-1, len(members)).astype(int) for t in tables]
        sent = [state.read(p, self.srcs[p[1]][0]).reshape(-1).copy() for p in members]
        received: list[list[int]] = [[] for _ in members]
        for s, values in enumerate(sent):
            for t, place in enumerate(members):
                column = 0 if options.get("uniform_send") else t
                size, start = tables[s][0, column], tables[s][1, column]
                operand = self.dsts[place[1]][0]
                target = np.ascontiguousarray(state.read(place, operand))
                at = tables[t][3, s] if options.get("has_rdispls") else target.size // len(members) * s
                target.reshape(-1)[at : at + size] = values[start : start + size]
                state.write(place, operand, target)
                received[t].append(int(size))
        for place, sizes in zip(members, received, strict=True):
            if not options.get("recv_counts_known"):
                operand = self.srcs[place[1]][-1]
                table = np.ascontiguousarray(state.read(place, operand))
                table.reshape(-1, len(members))[2] = sizes
                state.write(place, operand, table)
