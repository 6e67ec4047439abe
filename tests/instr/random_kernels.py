"""Random kernels, each with what it must give.

`RandomKernel` draws tensors in every memory and steps on them: collectives among ranks (by one core, or by several
together on shared HBM) and among cores, permutes, sends and receives, exchanges of cores, barriers, computations; on
whole tensors and on parts of them, under conditions on the rank. The steps stand in one order on all cores, so nothing
can deadlock; where two cores would race, a barrier of all cores is drawn before.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from crossrank.instr.builder import KernelBuilder
from crossrank.instr.program import Kernel
from tests.instr.passes.kernels import Arrays, drawn, kernel_of
from tests.instr.reference import DTYPES, Array, Condition, Operand, Place, Scalar, State, Step, Tensor

OPS = ("add", "maximum", "minimum", "multiply", "average")
SPACES = ("private_hbm", "sbuf", "psum", "shared_hbm")
LOCAL = (
    *("sendrecv", "sendrecv", "cce", "cce", "barrier", "copy", "copy", "compute"),
    *(f"local {kind}" for kind in ("all_reduce", "all_reduce", "all_reduce", "all_gather", "reduce_scatter")),
    *(f"local {kind}" for kind in ("all_to_all", "ring", "ring_reduce", "broadcast", "permute", "variable")),
)
GLOBAL = (
    *("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "ring", "ring_reduce", "plain_ring"),
    *("permute", "permute_reduce", "variable", "prepared", "send", "send", "send_all", "processing", "rank"),
    *("copy", "compute", "gather", "scatter", "bytes"),
)
Cut = tuple[Any, ...]


# Races


class Clocks:
    """Finds races between the cores of a rank on shared memory: what is not ordered by meetings."""

    def __init__(self, ranks: int, lnc: int) -> None:
        self.now = np.zeros((ranks, lnc, lnc), int)
        self._written: dict[tuple[int, str], tuple[Array, Array]] = {}
        self._read: dict[tuple[int, str], Array] = {}
        self.lnc = lnc

    def met(self, rank: int, cores: Sequence[int]) -> None:
        both = list(cores)
        self.now[rank, both] = self.now[rank, both].max(axis=0)

    def races(self, rank: int, core: int, operand: Operand, writes: bool) -> bool:
        """Whether an access is not ordered after one of another core."""
        written, by, read = self._of(rank, operand.tensor)
        numbers, seen = operand.numbers(rank).reshape(-1), self.now[rank, core]
        if (written[numbers] > seen[by[numbers]]).any():
            return True
        return writes and bool((read[:, numbers] > seen[:, None]).any())

    def saw(self, rank: int, core: int, operand: Operand, writes: bool) -> None:
        written, by, read = self._of(rank, operand.tensor)
        numbers = operand.numbers(rank).reshape(-1)
        self.now[rank, core, core] += 1
        if writes:
            written[numbers], by[numbers] = self.now[rank, core, core], core
        read[core, numbers] = self.now[rank, core, core]

    def _of(self, rank: int, tensor: Tensor) -> tuple[Array, Array, Array]:
        key = (rank, tensor.name)
        if key not in self._written:
            self._written[key] = (np.zeros(tensor.size, int), np.zeros(tensor.size, int))
            self._read[key] = np.zeros((self.lnc, tensor.size), int)
        return (*self._written[key], self._read[key])


def _same_for_all(step: Step, one: int, two: int) -> bool:
    """Whether two cores get the same in the same place."""
    return (
        step.local
        and step.word in ("all_reduce", "all_gather", "broadcast")
        and len(step.groups) == 1
        and step.dsts[one] == step.dsts[two]
        and not step.told
    )


# The kernel


class RandomKernel:
    """A random kernel.

    Args:
        seed: draws it.
        local: collectives among cores above all.
        ranks: how many; drawn if None.
        steps: how many at most.

    Attributes:
        inputs: for each rank.
        steps: what it does, one after the other.
    """

    def __init__(self, seed: int, *, local: bool = False, ranks: int | None = None, steps: int = 10) -> None:
        self.draw = draw = random.Random(seed)
        self.seed = seed
        sizes = (1, 1, 1, 2) if local else (*range(1, 9), 2, 3, 4, 8)
        self.ranks = ranks or (16 if not local and draw.random() < 0.04 else draw.choice(sizes))
        self.lnc = draw.choice([2, 2, 3, 4] if local else [1, 1, 1, 2, 2, 3, 4])
        self.kinds = (*LOCAL, *LOCAL, *GLOBAL) if local else (*GLOBAL, *(LOCAL if self.lnc > 1 else ()))
        self.dtypes = draw.sample(sorted(DTYPES), draw.choice([1, 1, 2]))
        self.tensors: list[Tensor] = []
        self.steps: list[Step] = []
        self.barred: set[int] = set()
        """The positions of barriers that keep cores from racing."""
        self._clocks = Clocks(self.ranks, self.lnc)
        self._tables: dict[str, list[Array]] = {}
        self._together: dict[object, tuple[int, ...]] = {}
        for _ in range(draw.randrange(3, 6)):
            self._tensor(draw.choice([(4, 6), (8, 8), (2, 3, 4), (6, 12), (12, 24), (4, 4, 8)]))
        wanted = draw.randrange(1, steps + 1)
        for _ in range(40 * steps):
            if len(self.steps) - len(self.barred) >= wanted:
                break
            self._step()
        self.inputs = [
            [self._filling(t, rank, seed + 31 * rank + n) for n, t in enumerate(self.tensors)]
            for rank in range(self.ranks)
        ]

    @cached_property
    def kernel(self) -> Kernel:
        """It."""
        return self.build()

    def build(self, without: tuple[int, Place | int] | None = None) -> Kernel:
        """The kernel; ``without`` a step, on a core of one rank or on a core of all."""

        def body(b: KernelBuilder, core: int) -> None:
            inputs = [
                b.input(f"x_{t.name}", (self.lnc, *t.shape), t.dtype, "shared_hbm" if self.lnc > 1 else "private_hbm")
                for t in self.tensors
            ]
            tensors = {t.name: b.tensor(t.shape, t.dtype, t.space, t.name) for t in self.tensors}
            for t, x in zip(self.tensors, inputs, strict=True):
                if t.filled and (not t.shared or core == 0):
                    b.dma_copy(tensors[t.name], x[core])
            if self.lnc > 1:
                b._barrier(range(self.lnc))
            for n, step in enumerate(self.steps):
                rank = None
                if without is not None and without[0] == n:
                    if without[1] == core:
                        continue
                    if isinstance(without[1], tuple) and without[1][1] == core:
                        rank = without[1][0]
                step.build(b, core, tensors, rank)
            if self.lnc > 1:
                b._barrier(range(self.lnc))
            for t in self.tensors:
                space = "shared_hbm" if self.lnc > 1 else "private_hbm"
                out = b.tensor((self.lnc, *t.shape), t.dtype, space, f"out_{t.name}")
                b.dma_copy(out[core], tensors[t.name])
                b.output(out)

        return kernel_of(body, self.lnc, self.ranks)

    def expected(self, without: tuple[int, Place | int] | None = None) -> Arrays:
        """What it must give."""
        state = State(self.ranks, self.lnc, self.tensors)
        for rank in range(self.ranks):
            for n, t in enumerate(self.tensors):
                for core in range(self.lnc) if t.filled and not t.shared else range(1 if t.filled else 0):
                    state.flat(rank, core, t)[...] = self.inputs[rank][n][core].reshape(-1)
        for n, step in enumerate(self.steps):
            if without is None or without[0] != n:
                step.run(state)
            elif isinstance(without[1], tuple):
                step.run(state, without[1])
            else:
                kept = tuple(c for c in step.cores if c != without[1])
                replace(step, cores=kept).run(state)
        return [
            [np.stack([state.flat(r, c, t).reshape(t.shape) for c in range(self.lnc)]) for t in self.tensors]
            for r in range(self.ranks)
        ]

    def _filling(self, tensor: Tensor, rank: int, seed: int) -> Array:
        """What a tensor begins with on each core."""
        shape = (self.lnc, *tensor.shape)
        if tensor.name in self._tables:
            return np.broadcast_to(self._tables[tensor.name][rank].reshape(tensor.shape), shape)
        return drawn(shape, DTYPES[tensor.dtype], seed)

    # Tensors and operands

    def _tensor(
        self, shape: Sequence[int], dtype: str = "", spaces: Sequence[str] = SPACES, filled: Any = None
    ) -> Tensor:
        draw = self.draw
        space = draw.choice(spaces)
        if space in ("sbuf", "psum") and (not shape or shape[0] > 128):
            space = "private_hbm"
        filled = draw.random() < 0.9 if filled is None else filled
        made = Tensor(f"t{len(self.tensors)}", tuple(shape), dtype or draw.choice(self.dtypes), space, filled)
        self.tensors.append(made)
        return made

    def _scalar(self, modulus: int) -> Scalar:
        draw = self.draw
        return Scalar(draw.randrange(-3, 6), draw.randrange(0, 5), draw.randrange(0, 4), modulus)

    def _pool(self, dtype: str) -> list[Tensor]:
        return [t for t in self.tensors if t.dtype == dtype and t.name not in self._tables]

    def _operand(
        self, shape: tuple[int, ...], dtype: str, written: bool = False, spaces: Sequence[str] = SPACES
    ) -> Operand:
        """Some part of some tensor, of a shape."""
        draw = self.draw
        pool = [t for t in self._pool(dtype) if t.space in spaces and t.size >= math.prod(shape)]
        for _ in range(4):
            if not pool or draw.random() < 0.15:
                break
            found = self._part(draw.choice(pool), shape, written)
            if found is not None:
                return found
        rest = [n + draw.choice([0, 0, 1, 3]) for n in shape]
        if draw.random() < 0.3 and len(rest) > 1 and max(rest) <= 128:
            rest.reverse()
        if math.prod(rest) > 4096 and math.prod(shape) <= 4096:
            rest = list(shape)
        tensor = self._tensor(rest, dtype, spaces)
        found = self._part(tensor, shape, written)
        if found is None:
            tensor = self._tensor(shape, dtype, spaces)
            found = Operand(tensor)
        return found

    def _part(self, tensor: Tensor, shape: tuple[int, ...], written: bool) -> Operand | None:
        draw, count = self.draw, math.prod(shape)
        way = draw.choice(["index", "index", "index", "permute", "reshape", "flat", "pattern"])
        if way == "index":
            cuts = self._indices(tensor.shape, shape)
            return None if cuts is None else Operand(tensor, cuts)
        if way == "permute":
            order = draw.sample(range(len(shape)), len(shape))
            before = tuple(shape[order.index(n)] for n in range(len(shape)))
            cuts = self._indices(tensor.shape, before)
            return None if cuts is None else Operand(tensor, (*cuts, ("permute", *order)))
        if way in ("reshape", "flat"):
            start = draw.randrange(tensor.size - count + 1)
            if way == "reshape":
                cut: Cut = ("index", slice(start, start + count))
            else:
                cut = ("index", (self._scalar(tensor.size - count + 1), count))
            return Operand(tensor, (("reshape", tensor.size), cut, ("reshape", *shape)))
        step, dims = 1, []
        for extent in draw.sample(list(enumerate(shape)), len(shape)):
            stride = step * draw.choice([1, 1, 2])
            dims.append((extent[0], draw.choice([1, 1, -1]) * stride, extent[1]))
            step = stride * max(extent[1], 1)
        if not written and draw.random() < 0.2:
            dims = [(at, draw.choice([0, 1, s]), n) for at, s, n in dims]
        pattern = [[s, n] for _, s, n in sorted(dims)]
        low = sum(min(0, s * (n - 1)) for s, n in pattern)
        high = sum(max(0, s * (n - 1)) for s, n in pattern)
        if high - low >= tensor.size:
            return None
        return Operand(tensor, (("pattern", draw.randrange(-low, tensor.size - high), pattern),))

    def _indices(self, have: Sequence[int], want: Sequence[int]) -> tuple[Cut, ...] | None:
        """Indices that make one shape of another: some dimensions are dropped, the others cut."""
        draw = self.draw
        if len(have) < len(want):
            return None
        kept = sorted(draw.sample(range(len(have)), len(want)))
        found: list[Any] = []
        for n, extent in enumerate(have):
            if n not in kept:
                found.append(self._scalar(extent) if draw.random() < 0.3 else draw.randrange(extent))
                continue
            size = want[kept.index(n)]
            if size > extent or not size:
                return None
            step = draw.choice([1, 1, 2, 3])
            if (size - 1) * step + 1 > extent:
                step = 1
            last = extent - (size - 1) * step
            if step == 1 and draw.random() < 0.25:
                found.append((self._scalar(last), size))
            else:
                start = draw.randrange(last)
                found.append(slice(start, start + (size - 1) * step + 1, step))
        return (("index", *found),)

    # Steps

    def _add(self, step: Step) -> bool:
        """Add a step, behind a barrier where it would race; not at all where it cannot be."""
        if not step.local and any(
            replace(step, cores=(c,), srcs={c: step.srcs[c]}, dsts={c: step.dsts[c]}).joint for c in step.srcs
        ):
            if len({repr((step.srcs[c], step.dsts[c])) for c in step.cores}) > 1:
                return False  # some of its cores would do it together
            signature = (step.kind, *(repr(side[step.cores[0]]) for side in (step.srcs, step.dsts)), step.groups)
            if self._together.setdefault(signature, step.cores) != step.cores:
                return False
        if self._clash(step):
            return False
        if self._races(step):
            everyone = tuple(range(self.lnc))
            self.barred.add(len(self.steps))
            self.steps.append(Step("barrier", everyone, told=everyone))
            for rank in range(self.ranks):
                self._clocks.met(rank, everyone)
        self.steps.append(step)
        for rank in range(self.ranks):
            if step.does(rank):
                self._happened(step, rank)
        return True

    def _accesses(self, step: Step, rank: int) -> Iterator[tuple[int, Operand, bool]]:
        for core in step.cores:
            for side, writes in ((step.srcs, False), (step.dsts, True)):
                for operand in side.get(core, ()):
                    if operand.tensor.shared:
                        yield core, operand, writes or (step.word == "variable" and operand is step.srcs[core][-1])

    def _meetings(self, step: Step, rank: int) -> list[tuple[int, ...]]:
        """The cores of a rank that meet in it."""
        if step.local:
            return [g for g in step.members() if set(g) <= set(step.cores)]
        if step.word in ("sendrecv", "cce"):
            return [step.cores]
        if step.word == "barrier":
            return [step.told]
        in_group = any(rank in g for g in step.members()) or (step.kind == "send" and rank in step.told)
        return [step.cores] if step.joint and (in_group or step.kind == "send_all") else []

    def _races(self, step: Step) -> bool:
        """Whether something before it, on another core, is not ordered before it."""
        for rank in filter(step.does, range(self.ranks)):
            now = self._clocks.now.copy()
            for members in self._meetings(step, rank):
                self._clocks.met(rank, members)
            found = any(self._clocks.races(rank, *access) for access in self._accesses(step, rank))
            self._clocks.now = now
            if found:
                return True
        return False

    def _clash(self, step: Step) -> bool:
        """Whether it writes an element twice, or cores that do not meet in it touch what one of them writes."""
        for rank in range(self.ranks):
            for operands in step.dsts.values():
                done: dict[str, list[Array]] = {}
                for o in operands:
                    done.setdefault(o.tensor.name, []).append(o.numbers(rank).reshape(-1))
                if any(len(np.unique(n)) != len(n) for n in map(np.concatenate, done.values())):
                    return True
            if step.joint:
                continue
            together = {core: set(members) for members in self._meetings(step, rank) for core in members}
            touched = list(self._accesses(step, rank))
            for (one, a, writes), (two, z, too) in product(touched, touched):
                if one >= two or a.tensor is not z.tensor or not (writes or too):
                    continue
                if two in together.get(one, ()) and (not (writes and too) or _same_for_all(step, one, two)):
                    continue  # all read before any writes
                if np.intersect1d(a.numbers(rank), z.numbers(rank)).size:
                    return True
        return False

    def _happened(self, step: Step, rank: int) -> None:
        for members in self._meetings(step, rank):
            self._clocks.met(rank, members)
        for core, operand, writes in self._accesses(step, rank):
            self._clocks.saw(rank, core, operand, writes)
        for members in self._meetings(step, rank):
            self._clocks.met(rank, members)

    def _condition(self) -> Condition | None:
        if self.draw.random() < 0.8 or self.ranks == 1:
            return None
        return Condition(self._scalar(self.draw.choice([2, 3])))

    def _some_cores(self) -> tuple[int, ...]:
        cores = list(range(self.lnc))
        return tuple(sorted(self.draw.sample(cores, self.draw.choice([1, self.lnc, self.lnc]))))

    def _grouping(self, members: list[int]) -> tuple[tuple[int, ...], ...]:
        draw, members = self.draw, list(members)
        draw.shuffle(members)
        size = draw.choice([n for n in (1, 2, 3, 4, 8, len(members), len(members)) if n <= len(members)])
        if draw.random() < 0.3:
            members.sort()
        groups = [tuple(members[n : n + size]) for n in range(0, len(members) - size + 1, size)]
        return tuple(groups[: draw.randrange(1, len(groups) + 1)] if draw.random() < 0.2 else groups)

    def _step(self) -> bool:
        draw = self.draw
        kind = draw.choice(self.kinds)
        condition = self._condition()
        dtype = draw.choice(self.dtypes)
        word = kind.removeprefix("local ")
        shape = draw.choice([(2, 3), (4, 2), (3, 4), (4, 8), (2, 12), (1, 1), (2, 2, 2), (4,), (8, 4)])
        ranks = [r for r in range(self.ranks) if condition is None or condition.holds(r)]
        if not ranks:
            return False
        if kind in ("copy", "compute", "bytes"):
            return self._computation(kind, condition, dtype, shape)
        if kind in ("gather", "scatter"):
            return self._rows(kind, condition, dtype)
        if kind == "barrier":
            cores = tuple(draw.sample(range(self.lnc), draw.randrange(2, self.lnc + 1)))
            return self._add(Step(kind, tuple(sorted(cores)), condition=condition, told=cores))
        if kind in ("sendrecv", "cce"):
            return self._exchange(kind, condition, dtype, shape)
        if kind in ("send", "send_all"):
            return self._sends(kind, condition, dtype, shape, ranks)
        if word in ("variable", "prepared"):
            return self._ragged(kind, condition, ranks)
        if kind in ("rank", "processing"):
            return self._register(kind, condition)
        local = kind.startswith("local ")
        members = list(range(self.lnc)) if local else ranks
        return self._collective(kind, word, condition, dtype, shape, members, local)

    def _collective(
        self,
        kind: str,
        word: str,
        condition: Condition | None,
        dtype: str,
        shape: tuple[int, ...],
        members: list[int],
        local: bool,
    ) -> bool:
        draw = self.draw
        groups: tuple[tuple[int, ...], ...] = ()
        told: Any = None
        dims = (0, 0)
        if word in ("permute", "permute_reduce"):
            some = draw.randrange(1, len(members) + 1)
            sources, targets = draw.sample(members, some), draw.sample(members, some)
            told = tuple(zip(sources, targets, strict=True))
        else:
            groups = self._grouping(members)
        count = len(groups[0]) if groups else 1
        from_shape, to_shape = list(shape), list(shape)
        axes = list(range(min(2, len(shape))))
        if word == "all_gather":
            dims = (draw.choice(axes), 0)
            to_shape[dims[0]] *= count
        elif word == "reduce_scatter":
            dims = (draw.choice(axes), 0)
            from_shape[dims[0]] *= count
        elif word == "all_to_all":
            dims = (draw.choice(axes), draw.choice(axes))
            from_shape[dims[0]] *= count
            to_shape[dims[1]] *= count
            if dims[0] == dims[1]:
                to_shape = list(from_shape)
        elif word == "broadcast" and draw.random() < 0.4:
            told = tuple(draw.randrange(1, n + 1) for n in shape)
        elif word in ("ring", "ring_reduce"):
            channels = draw.choice([1, 2, 4])
            told = (draw.randrange(channels), channels)
        elif word == "all_reduce":
            told = draw.random() < 0.3 if not local else None
        if math.prod(from_shape) > 2048 or math.prod(to_shape) > 2048:
            return False
        several = draw.choice([1, 1, 2]) if word in ("all_reduce", "all_gather", "reduce_scatter") else 1
        inputs = 2 if word in ("ring_reduce", "permute_reduce") else several
        spaces = draw.choice([SPACES, SPACES, SPACES[:3], SPACES[3:]]) if self.lnc > 1 else SPACES
        whole = word == "plain_ring"
        together = not local and spaces == SPACES[3:]
        if local:
            wanted = {m for members in (told if word == "permute" else groups) for m in members}
            extra = [c for c in range(self.lnc) if draw.random() < 0.3]
            cores = tuple(sorted(wanted | set(extra)))
        else:
            cores = self._some_cores()
        srcs, dsts = {}, {}
        alike = draw.random() < 0.3
        for core in cores:
            if (together or alike) and srcs:
                srcs[core], dsts[core] = srcs[cores[0]], dsts[cores[0]]
                continue
            srcs[core] = tuple(self._one(tuple(from_shape), dtype, spaces, whole) for _ in range(inputs))
            dsts[core] = tuple(self._one(tuple(to_shape), dtype, spaces, whole, True) for _ in range(several))
        op = draw.choice(OPS)
        return self._add(Step(kind, cores, srcs, dsts, condition, groups, op, dims, told))

    def _one(
        self, shape: tuple[int, ...], dtype: str, spaces: Sequence[str], whole: bool, written: bool = False
    ) -> Operand:
        if not whole:
            return self._operand(shape, dtype, written, spaces)
        spaces = [s for s in spaces if s.endswith("hbm")] or ["private_hbm"]
        pool = [t for t in self._pool(dtype) if t.space in spaces and t.shape == shape]
        if pool and self.draw.random() < 0.8:
            return Operand(self.draw.choice(pool))
        return Operand(self._tensor(shape, dtype, spaces))

    def _computation(self, kind: str, condition: Condition | None, dtype: str, shape: tuple[int, ...]) -> bool:
        draw, cores, told, op = self.draw, self._some_cores(), None, ""
        srcs, dsts = {}, {}
        floats = np.dtype(DTYPES[dtype]).kind not in "iu"
        inputs = 1
        if kind == "compute":
            told = draw.choice([None, 0, 1, 2])
            inputs, op = (2, "subtract" if floats else "bitwise_xor") if told is None else (0, "")
        for core in cores:
            if kind == "bytes":
                srcs[core] = (self._one(shape, dtype, SPACES, True),)
                dsts[core] = (self._one(shape, dtype, SPACES, True, True),)
                continue
            srcs[core] = tuple(self._operand(shape, dtype) for _ in range(inputs))
            dsts[core] = (self._operand(shape, dtype, True),)
        return self._add(Step(kind, cores, srcs, dsts, condition, op=op, told=told))

    def _rows(self, kind: str, condition: Condition | None, dtype: str) -> bool:
        """A copy of rows that a tensor of indices names, or to them."""
        draw = self.draw
        pool = [t for t in self._pool(dtype) if len(t.shape) == 2 and not t.shared]
        if not pool:
            return False
        table, core = draw.choice(pool), draw.randrange(self.lnc)
        rows, width = table.shape
        count = draw.randrange(1, rows + 1)
        chosen = tuple(draw.sample(range(rows), count))
        if kind == "gather" and draw.random() < 0.5:
            chosen = tuple(draw.choices(range(rows), k=count))
        size = draw.randrange(1, width + 1)
        index = self._tensor((count,), "s32", SPACES[:1], False)
        self._add(Step("constant", (core,), {}, {core: (Operand(index),)}, condition, told=chosen))
        some = Operand(table, (("rows", index.name, [[width, count], [1, size]], chosen),))
        other = self._operand((count, size), dtype, kind == "gather")
        pair = (some, other) if kind == "gather" else (other, some)
        return self._add(Step("copy", (core,), {core: pair[:1]}, {core: pair[1:]}, condition))

    def _exchange(self, kind: str, condition: Condition | None, dtype: str, shape: tuple[int, ...]) -> bool:
        """Cores on one pipe: each sends to another one; one that reduces takes from several."""
        draw = self.draw
        cores = draw.sample(range(self.lnc), draw.randrange(2, self.lnc + 1))
        shift = draw.randrange(1, len(cores))
        to = {c: cores[(n + shift) % len(cores)] for n, c in enumerate(cores)}
        fro = {t: c for c, t in to.items()}
        pipe = sum(1 << c for c in cores)
        ordered = tuple(sorted(cores))
        told: dict[int, tuple[Any, ...]] = {c: (to[c], fro[c], pipe) for c in cores}
        if kind == "cce":
            for c in cores:
                further = [o for o in cores if o not in (c, fro[c]) and draw.random() < 0.4]
                told[c] = (to[c], draw.sample([fro[c], *further], 1 + len(further)), pipe)
        spaces = draw.choice([SPACES, SPACES[:3], ("sbuf",)])
        srcs = {c: (self._operand(shape, dtype, False, spaces),) for c in ordered}
        dsts = {c: (self._operand(shape, dtype, True, spaces),) for c in ordered}
        return self._add(Step(kind, ordered, srcs, dsts, condition, op=draw.choice(OPS), told=told))

    def _sends(
        self, kind: str, condition: Condition | None, dtype: str, shape: tuple[int, ...], ranks: list[int]
    ) -> bool:
        draw = self.draw
        spaces = draw.choice([SPACES[:3], SPACES[3:]]) if self.lnc > 1 else SPACES
        cores = self._some_cores()
        if kind == "send":
            several, told = draw.choice([1, 1, 2]), (draw.choice(ranks), draw.choice(ranks))
        elif len(ranks) < self.ranks or self.ranks > 8:
            return False
        else:
            several, told = self.ranks, None
        srcs, dsts = {}, {}
        for core in cores:
            if srcs and spaces == SPACES[3:]:
                srcs[core], dsts[core] = srcs[cores[0]], dsts[cores[0]]
                continue
            srcs[core] = tuple(self._operand(shape, dtype, False, spaces) for _ in range(several))
            dsts[core] = tuple(self._operand(shape, dtype, True, spaces) for _ in range(several))
        if kind == "send_all" and any(
            np.intersect1d(s.numbers(r), d.numbers(r)).size
            for c in cores
            for s in srcs[c]
            for d in dsts[c]
            for r in range(self.ranks)
            if s.tensor is d.tensor
        ):
            return False  # a rank that is ahead would send what another has just received
        return self._add(Step(kind, cores, srcs, dsts, condition, told=told))

    def _register(self, kind: str, condition: Condition | None) -> bool:
        draw, dtype = self.draw, self.draw.choice(self.dtypes)
        core = draw.randrange(self.lnc)
        if np.dtype(DTYPES[dtype]).itemsize < 4 and np.dtype(DTYPES[dtype]).kind not in "iu":
            return False
        dst = self._operand((1, 1), dtype, True)
        told: Any = self._scalar(draw.choice([2, 5, 100]))
        groups: tuple[tuple[int, ...], ...] = ()
        if kind == "processing":
            told, groups = (draw.randrange(9), (draw.randrange(4), 4)), self._grouping(list(range(self.ranks)))
        return self._add(Step(kind, (core,), {}, {core: (dst,)}, condition, groups, told=told))

    def _ragged(self, kind: str, condition: Condition | None, ranks: list[int]) -> bool:
        """A variable exchange, at once or in two halves with something in between."""
        draw, local = self.draw, kind.startswith("local ")
        groups = self._grouping(list(range(self.lnc)) if local else ranks)
        n, cores = len(groups[0]), (draw.randrange(self.lnc),)
        if n > 8:
            return False
        if local:
            cores = tuple(sorted(c for g in groups for c in g))
        dtype, room, rows = draw.choice(self.dtypes), draw.randrange(1, 5), draw.choice([3, 3, 4])
        options = {"has_rdispls": rows == 4, "uniform_send": rows == 3 and draw.random() < 0.4}
        options["recv_counts_known"] = draw.random() < 0.4
        srcs, dsts, height = {}, {}, draw.choice([2, 3])
        for core in cores:
            table = self._tensor(draw.choice([(rows, n), (1, rows, n)]), "u32", SPACES[:2], True)
            self._tables[table.name] = [self._table(rows, n, room) for _ in range(self.ranks)]
            srcs[core] = self._operand((height, 4), dtype, False, SPACES[:3]), Operand(table)
            dsts[core] = (self._operand((n, room), dtype, True, SPACES[:3]),)

        def half(phase: str) -> Step:
            return Step(
                "local variable" if local else "variable", cores, srcs, dsts, condition, groups, told=(phase, options)
            )

        if kind != "prepared":
            return self._add(half(""))
        self._add(half("prepare"))
        if draw.random() < 0.5:
            self._add(Step("compute", cores, {}, {c: srcs[c][1:] for c in cores}, condition, told=7))
        if draw.random() < 0.7:
            kinds, self.kinds = self.kinds, tuple(k for k in self.kinds if k != "prepared")
            self._step()
            self.kinds = kinds
        return self._add(half("trigger"))

    def _table(self, rows: int, members: int, room: int) -> Array:
        """What one member sends to each, and where what each sends goes: no two in one place."""
        draw = self.draw
        counts = [draw.randrange(min(room, 4) + 1) for _ in range(members)]
        starts = [draw.randrange(8 - count + 1) for count in counts]
        places = [place * room for place in draw.sample(range(members), members)]
        written = draw.choices(range(99), k=members)
        return np.array([counts, starts, written, places][:rows], np.uint32)
