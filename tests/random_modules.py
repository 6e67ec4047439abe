"""Random modules of 8 ranks, full of what passes look for, and of what looks like it and must be left alone.

`draw_module` gives HLO text. Types, extents, layouts, dimensions, groups (explicit, iota, mesh; subgroups, in any
order, in every mode), reductions, users, control dependencies, barriers, loops, branches and calls are all drawn.
Values stay within what a comparison can bear: no float is cut to an integer, and nothing is divided by what may be
near zero.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crossrank.collective.dtypes import dtype
from crossrank.collective.kinds import ReduceOp
from tests.support import hlo, reducer

RANKS = 8
WORLDS = ((1, RANKS), (1, RANKS), (RANKS, 1), (4, 2), (2, 4))
FLOATS = ("f32", "bf16", "f16", "f64")
INTEGERS = ("s32", "u8", "s64", "s8", "u32")
TYPES = (*FLOATS, "f32", "f32", "bf16", *INTEGERS, "pred", "c64")
EXTENTS = ((8, 16), (16, 8), (8, 8), (2, 8, 8), (8, 3), (16,), (8,), (), (1,), (4, 4, 2), (1, 8, 4), (0, 8))
MOST_ELEMENTS = 4096
COLLECTIVE_TYPES = ("tp_reduce_scatter", "tp_all_gather", "fsdp_reduce_scatter", "fsdp_all_gather")

Dims = tuple[int, ...]


@dataclass(frozen=True)
class Value:
    """A value under construction: its name, element type and extents."""

    name: str
    t: str
    dims: Dims

    @property
    def shape(self) -> str:
        return shape(self.t, self.dims)


@dataclass(frozen=True)
class Talk:
    """Who talks to whom: the attributes that say it, and the groups of flattened ranks."""

    attributes: str
    groups: list[list[int]]

    @property
    def size(self) -> int:
        return len(self.groups[0])


def shape(t: str, dims: Sequence[int]) -> str:
    return f"{t}[{','.join(map(str, dims))}]"


def braces(nested: object) -> str:
    """Nested lists as HLO writes them."""
    return str(nested).replace("[", "{").replace("]", "}").replace(" ", "")


def scaled(dims: Dims, dim: int, by: int) -> Dims:
    """``dims`` with one extent multiplied, or divided where ``by`` is negative."""
    extent = dims[dim] * by if by > 0 else dims[dim] // -by
    return (*dims[:dim], extent, *dims[dim + 1 :])


class Draw:
    """One module under construction: what its computations share."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.replicas, self.partitions = self.pick(WORLDS)
        self.computations: dict[str, str] = {}
        self.parameters: list[Value] = []
        self.same_channel = self.chance(0.3)
        self.pins = self.chance(0.1)
        self._numbers = 0
        self._channels = 0
        # few of each, so that many collectives agree
        self.favourites = self.rng.integers(1000, size=4).tolist()
        self.types = [self.pick(TYPES) for _ in range(3)]
        self.extents = [self.pick(EXTENTS) for _ in range(4)]
        self.texts = {n: [self.id_groups(n) for _ in range(2)] for n in (1, 2, 4, 8)}

    def pick(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def channel(self) -> int:
        self._channels += 1
        return 1 if self.same_channel else self._channels

    def header(self) -> str:
        found = [f"replica_count={self.replicas}"] if self.replicas > 1 else []
        found += [f"num_partitions={self.partitions}"] if self.partitions > 1 else []
        return ", ".join(found)

    def type(self) -> str:
        return str(self.pick(self.types) if self.chance(0.8) else self.pick(TYPES))

    def body(self, op: str, t: str) -> str:
        if t == "bf16" and self.chance(0.1):  # as XLA's own promotion leaves it
            t = "f32"
        name = f"{op}_{t}"
        text = reducer(op, t)
        if self.chance(0.1):  # the same, the other way round
            name += "_turned"
            text = reducer(op, t, name).replace(f"{name}.a, {name}.b)", f"{name}.b, {name}.a)")
        self.computations.setdefault(name, text)
        return name

    def op(self, t: str) -> str:
        if self.chance(0.6):
            return "add" if t != "pred" else "or"
        ops = [str(op) for op in ReduceOp if op.valid_for(dtype(t))]
        return str(self.pick(ops))

    # -- groups --------------------------------------------------------------------------------------------------------
    def id_groups(self, n: int) -> tuple[str, list[list[int]]]:
        """Groups of n ids in some form, and as lists."""
        size = int(self.pick([s for s in (1, 2, 2, 4, 4, 8, 8) if s <= n]))
        form = self.pick(("explicit", "shuffled", "iota", "turned", "mesh", "all"))
        if form == "mesh" and n > 2:
            minor = n // 2
            text, table = self.pick(
                (
                    (f"mesh['a'=2,'b'={minor}] {{'b'}}", np.arange(n).reshape(2, minor)),
                    (f"mesh['a'=2,'b'={minor}] {{'a'}}", np.arange(n).reshape(2, minor).T),
                    (f"mesh['a'=2,'b'={minor}] {{'a','b'}}", np.arange(n).reshape(1, n)),
                    (f"mesh['a'={n}] {{'a':(1)2}}", np.arange(n).reshape(2, minor).T),
                    (
                        f"mesh['a'=2,'b'={minor}], device_ids=([{minor},2]T(1,0)) {{'b'}}",
                        np.arange(n).reshape(minor, 2).T,
                    ),
                )
            )
            return text, table.tolist()
        if form == "turned" and n > 2:
            outer = int(self.pick([k for k in (2, 4) if k < n]))
            table = np.arange(n).reshape(outer, n // outer).T.reshape(n // size, size)
            return f"[{n // size},{size}]<=[{outer},{n // outer}]T(1,0)", table.tolist()
        if form == "iota" and n > 1:
            return f"[{n // size},{size}]<=[{n}]", np.arange(n).reshape(-1, size).tolist()
        if form == "all":
            return "{}", [list(range(n))]
        ids = self.rng.permutation(n) if form == "shuffled" else np.arange(n)
        table = ids.reshape(-1, size).tolist()
        return braces(table), table

    def talk(self, kind: str, *, uneven: bool = False) -> Talk:
        """Groups for a kind of collective, in one of the modes that it can have."""
        takes_flat = kind in ("all-reduce", "all-gather", "reduce-scatter")
        mode = self.pick(("flat", "flat", "flat", "replica", "both") if takes_flat else ("partition", "replica"))
        if mode in ("replica", "both") and self.replicas == 1 and self.chance(0.8):
            mode = "flat" if takes_flat else "partition"
        n = {"flat": RANKS, "replica": self.replicas, "both": self.replicas, "partition": self.partitions}[mode]
        text, ids = self.pick(self.texts[n]) if self.chance(0.8) else self.id_groups(n)
        if kind == "collective-broadcast" and len(ids) > 1 and self.chance(0.3):  # who is in no group gets zeros
            ids = ids[1:]
            text = braces(ids)
        elif uneven and n > 2:
            shuffled = self.rng.permutation(n).tolist()
            cut = int(self.rng.integers(1, n))
            ids = [shuffled[:cut], shuffled[cut:]]
            text = braces(ids)
        attributes = f"replica_groups={text}"
        if mode != "replica":
            attributes += f", channel_id={self.channel()}"
        if mode == "flat":
            attributes += ", use_global_device_ids=true"
        if self.chance(0.05):
            attributes += f', frontend_attributes={{collective_type="{self.pick(COLLECTIVE_TYPES)}"}}'
        if self.pins and takes_flat and self.chance(0.2):
            attributes += ", constrain_layout=true"
        return Talk(attributes, self.ranks(ids, mode))

    def ranks(self, ids: list[list[int]], mode: str) -> list[list[int]]:
        of = [[r * self.partitions + p for p in range(self.partitions)] for r in range(self.replicas)]
        if mode == "flat":
            return ids
        if mode == "both":
            return [[rank for r in group for rank in of[r]] for group in ids]
        if mode == "replica":
            return [[of[r][p] for r in group] for group in ids for p in range(self.partitions)]
        return [[of[r][p] for p in group] for group in ids for r in range(self.replicas)]

    def pairs(self) -> str:
        """The pairs and the channel of a permute."""
        across = self.partitions > 1 and (self.replicas == 1 or self.chance(0.5))
        n = self.partitions if across else self.replicas
        kind = self.pick(("some", "some", "ring", "chain", "self", "all", "none"))
        sources, targets = self.rng.permutation(n), self.rng.permutation(n)
        if kind == "some":
            count = int(self.rng.integers(0, n + 1))
            sources, targets = sources[:count], targets[:count]
        elif kind == "ring":
            targets = np.roll(sources, 1)
        elif kind == "chain":
            sources, targets = np.arange(n - 1), np.arange(1, n)
        elif kind == "self":
            targets = sources
        elif kind == "none":
            sources = targets = sources[:0]
        text = braces([[int(s), int(t)] for s, t in zip(sources, targets, strict=True)])
        return f"source_target_pairs={text}" + (f", channel_id={self.channel()}" if across else "")


@dataclass
class Block:
    """One computation under construction.

    Attributes:
        d: the module.
        lines: its instructions.
        values: what later instructions may take.
        accumulators: elements of its parameter, where that is a tuple.
        counter: of the loop whose body it is.
        entry: whether it is the entry computation, which may have parameters at will.
        depth: in how many others it is.
    """

    d: Draw
    lines: list[str] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    accumulators: list[Value] = field(default_factory=list)
    counter: str = ""
    entry: bool = False
    depth: int = 0

    # -- making instructions -------------------------------------------------------------------------------------------
    def add(self, t: str, dims: Sequence[int], text: str, *, layout: bool = True) -> Value:
        """One more instruction; now and then in another layout."""
        made = Value(f"v{self.d.number()}", t, tuple(dims))
        written = ""
        if layout and len(dims) > 1 and self.d.chance(0.15):
            written = braces(self.d.rng.permutation(len(dims)).tolist())
        self.lines.append(f"  {made.name} = {made.shape}{written} {text}")
        return made

    def leak(self, v: Value) -> Value:
        """Now and then something else may use it too."""
        if self.d.chance(0.04):
            self.values.append(v)
        return v

    def give(self, *found: Value) -> None:
        """What later instructions may take; now and then nobody takes it."""
        self.values += [v for v in found if not self.d.chance(0.02)]

    def fresh(self, t: str, dims: Dims) -> Value:
        """A value that no rewrite has touched."""
        if self.entry:
            made = Value(f"p{len(self.d.parameters)}", t, dims)
            self.d.parameters.append(made)
            return made
        return self.made_of(None, t, dims)

    def operand(self, t: str, dims: Dims) -> Value:
        """A value of that type and those extents: one that is there, or a new one."""
        same = [v for v in self.values if v.t == t and v.dims == dims]
        if same and self.d.chance(0.6):
            return self.d.pick(same)
        if self.values and self.d.chance(0.3):
            return self.made_of(self.d.pick(self.values), t, dims)
        return self.fresh(t, dims)

    def made_of(self, v: Value | None, t: str, dims: Dims) -> Value:
        """A value of some type and extents that depends on ``v``, where that can be, and on the rank."""
        d = self.d
        if v is not None and v.t == t and np.prod(v.dims) == np.prod(dims) and v.dims != dims:
            return self.add(t, dims, f"reshape({v.name})")
        if v is not None and not may_become(v.t, t):
            v = None
        if v is None:
            v = self.add("u32", (), self.d.pick(("partition-id()", "replica-id()")))
        if v.dims:
            if 0 in v.dims:
                v = self.constant(v.t, (), "false" if v.t == "pred" else "0")
            else:
                ones = tuple(1 for _ in v.dims)
                first = ", ".join(f"[{n}:{n + 1}]" for n in (int(d.rng.integers(e)) for e in v.dims))
                v = self.add(v.t, (), f"reshape({self.add(v.t, ones, f'slice({v.name}), slice={{{first}}}').name})")
        v = self.converted(v, t)
        wide = self.add(t, dims, f"broadcast({v.name}), dimensions={{}}") if dims else v
        if not dims:
            return wide
        steps = self.converted(self.add("s32", dims, f"iota(), iota_dimension={d.pick(range(len(dims)))}"), t)
        if t in FLOATS or t == "c64":
            steps = self.binary("multiply", steps, self.constant(t, dims, "0.125"))
        return self.binary("xor" if t == "pred" else "add", wide, steps)

    def converted(self, v: Value, t: str) -> Value:
        if v.t == t:
            return v
        if t == "pred":
            v = v if v.t in ("s32", "u32") else self.converted(v, "s32")
            one = self.constant(v.t, v.dims, "1")
            return self.add(
                "pred", v.dims, f"compare({self.binary('and', v, one).name}, {one.name}), direction=EQ", layout=False
            )
        return self.add(t, v.dims, f"convert({v.name})")

    def constant(self, t: str, dims: Dims, value: str) -> Value:
        """The same value everywhere."""
        text = f"({value}, 0)" if t == "c64" else value
        one = self.add(t, (), f"constant({text})")
        return self.add(t, dims, f"broadcast({one.name}), dimensions={{}}") if dims else one

    def binary(self, op: str, a: Value, b: Value) -> Value:
        return self.add(a.t, a.dims, f"{op}({a.name}, {b.name})")

    def element(self, whole: str, n: int, t: str, dims: Dims) -> Value:
        return self.add(t, dims, f"get-tuple-element({whole}), index={n}", layout=False)

    def whole(self, parts: Sequence[tuple[str, Dims]], text: str) -> str:
        """An instruction that gives a tuple."""
        name = f"t{self.d.number()}"
        self.lines.append(f"  {name} = ({', '.join(shape(*p) for p in parts)}) {text}")
        return name

    def elements(self, parts: Sequence[tuple[str, Dims]], text: str) -> list[Value]:
        """The elements of a tuple that an instruction gives, now and then behind a barrier, or one of them twice."""
        name = self.whole(parts, text)
        if self.d.chance(0.1) and "opt-barrier" not in text:
            name = self.whole(parts, f"opt-barrier({name})")
        found = [self.element(name, n, *p) for n, p in enumerate(parts)]
        if self.d.chance(0.1):
            n = int(self.d.rng.integers(len(parts)))
            self.values.append(self.element(name, n, *parts[n]))
        return found

    def behind_barrier(self, found: list[Value]) -> list[Value]:
        """The values behind one optimization barrier."""
        if len(found) == 1 and self.d.chance(0.5):
            return [self.add(found[0].t, found[0].dims, f"opt-barrier({found[0].name})", layout=False)]
        parts = [(v.t, v.dims) for v in found]
        made = self.whole(parts, f"tuple({names(found)})")
        return self.elements(parts, f"opt-barrier({made})")

    # -- collectives ---------------------------------------------------------------------------------------------------
    def all_reduce(self, x: Value, talk: Talk, op: str) -> Value:
        return self.leak(
            self.add(x.t, x.dims, f"all-reduce({x.name}), {talk.attributes}, to_apply={self.d.body(op, x.t)}")
        )

    def reduce_scatter(self, x: Value, talk: Talk, op: str, dim: int) -> Value:
        body = self.d.body(op, x.t)
        dims = scaled(x.dims, dim, -talk.size)
        text = f"reduce-scatter({x.name}), {talk.attributes}, dimensions={{{dim}}}, to_apply={body}"
        return self.leak(self.add(x.t, dims, text))

    def all_gather(self, x: Value, talk: Talk, dim: int) -> Value:
        dims = scaled(x.dims, dim, talk.size)
        return self.leak(self.add(x.t, dims, f"all-gather({x.name}), {talk.attributes}, dimensions={{{dim}}}"))

    def scatter_dim(self, dims: Dims, talk: Talk) -> int | None:
        fitting = [n for n, extent in enumerate(dims) if extent % talk.size == 0]
        return self.d.pick(fitting) if fitting else None

    def position(self, talk: Talk) -> Value:
        """The place of this rank in its group, ``s32[]``, from ids and a table or by arithmetic."""
        d = self.d
        place = [0] * RANKS
        for group in talk.groups:
            for n, rank in enumerate(group):
                place[rank] = n
        rank = self.rank()
        for op, by in (("remainder", talk.size), ("divide", RANKS // talk.size)):
            ranks = np.arange(RANKS)
            if (place == (ranks % by if op == "remainder" else ranks // by)).all() and d.chance(0.6):
                return self.binary(op, rank, self.add("s32", (), f"constant({by})"))
        if d.chance(0.08):  # somebody else's part
            place = np.roll(place, 1).tolist()
        table = self.add("s32", (RANKS,), f"constant({braces(place)})")
        at = self.add("s32", (1,), f"dynamic-slice({table.name}, {rank.name}), dynamic_slice_sizes={{1}}")
        return self.add("s32", (), f"reshape({at.name})")

    def rank(self) -> Value:
        """The flattened rank, ``s32[]``."""
        d = self.d
        replica, partition = (self.converted(self.add("u32", (), f"{k}-id()"), "s32") for k in ("replica", "partition"))
        if d.partitions == 1:
            return replica
        if d.replicas == 1 and d.chance(0.5):
            return partition
        count = self.add("s32", (), f"constant({d.partitions})")
        return self.binary("add", self.binary("multiply", replica, count), partition)

    # -- patterns ------------------------------------------------------------------------------------------------------
    def plain(self) -> None:
        """One collective of any kind."""
        d = self.d
        t, dims = d.type(), d.pick(d.extents)
        kind = d.pick(("all-reduce", "reduce-scatter", "all-gather"))
        talk = d.talk(kind, uneven=kind == "all-reduce" and d.chance(0.2))
        x = self.operand(t, dims)
        if kind == "all-reduce":
            self.give(self.all_reduce(x, talk, d.op(t)))
        elif kind == "reduce-scatter" and (dim := self.scatter_dim(dims, talk)) is not None:
            self.give(self.reduce_scatter(x, talk, d.op(t), dim))
        elif kind == "all-gather" and dims and np.prod(dims) * talk.size <= MOST_ELEMENTS:
            self.give(self.all_gather(x, talk, int(d.rng.integers(len(dims)))))

    def variadic(self) -> None:
        """A collective of several arrays, of one type or several."""
        d = self.d
        kind = d.pick(("all-reduce", "reduce-scatter", "all-gather"))
        talk = d.talk(kind)
        family = d.pick((FLOATS, FLOATS, ("s32", "s64", "s8"), ("f32",), ("bf16",), ("c64",)))
        types = [d.pick(family) for _ in range(int(d.rng.integers(1, 4)))]
        op = d.op(types[0])
        extents = [d.pick([e for e in EXTENTS if e and np.prod(e) * talk.size <= MOST_ELEMENTS]) for _ in types]
        dim = int(d.rng.integers(min(len(e) for e in extents)))
        if kind == "reduce-scatter":
            extents = [scaled(e, dim, talk.size) for e in extents]
        operands = [self.operand(t, e) for t, e in zip(types, extents, strict=True)]
        attributes = talk.attributes
        attributes += f", to_apply={d.body(op, types[0])}" if kind != "all-gather" else ""
        attributes += f", dimensions={{{dim}}}" if kind != "all-reduce" else ""
        by = {"all-reduce": 1, "all-gather": talk.size, "reduce-scatter": -talk.size}[kind]
        parts = [(t, scaled(e, dim, by)) for t, e in zip(types, extents, strict=True)]
        self.give(*self.elements(parts, f"{kind}({names(operands)}), {attributes}"))

    def integer(self) -> None:
        """An all-reduce of one integer."""
        d = self.d
        t = d.pick((*INTEGERS, "pred"))
        talk = d.talk("all-reduce", uneven=d.chance(0.1))
        self.give(self.all_reduce(self.operand(t, d.pick(((), (1,), (1, 1), (2,)))), talk, d.op(t)))

    def chains(self) -> None:
        """Chains of collectives that agree in all but their operands, some of which depend on each other."""
        d = self.d
        kind = d.pick(("all-reduce", "reduce-scatter", "all-gather"))
        talk, t = d.talk(kind), d.type()
        op = d.op(t)
        links = int(d.rng.integers(1, 3))
        heads: list[Value] = []
        for _ in range(int(d.rng.integers(2, 5))):
            dims = d.pick([e for e in EXTENTS if e])
            if kind == "reduce-scatter":
                dims = tuple(e * talk.size if n < 2 and e < talk.size else e for n, e in enumerate(dims))
            x = self.made_of(heads[-1], t, dims) if heads and d.chance(0.2) else self.operand(t, dims)
            for _ in range(links):
                dim = int(d.rng.integers(min(2, len(x.dims))))
                if kind == "all-reduce":
                    x = self.all_reduce(x, talk, op)
                elif kind == "all-gather" and np.prod(x.dims) * talk.size <= MOST_ELEMENTS:
                    x = self.all_gather(x, talk, dim)
                elif kind == "reduce-scatter" and x.dims[dim] % talk.size == 0:
                    x = self.reduce_scatter(x, talk, op, dim)
                x = self.damped(x)
            heads.append(x)
        self.give(*heads)

    def damped(self, x: Value) -> Value:
        """The same, in the range in which types can hold it."""
        return self.binary("multiply", x, self.constant(x.t, x.dims, "0.25")) if x.t in FLOATS else x

    def concatenated_scatters(self) -> None:
        """Reduce-scatters whose results are concatenated, with what may stand in between."""
        d = self.d
        talk, t = d.talk("reduce-scatter"), d.pick((*FLOATS, "f32", "bf16", "f32", "s32", "c64"))
        op = "add" if d.chance(0.7) else d.op(t)
        dims = d.pick([e for e in EXTENTS if e])
        dim = int(d.rng.integers(len(dims)))
        dims = scaled(dims, dim, talk.size)
        axis = int(d.rng.integers(len(dims)))
        after = [d.pick(("copy", "convert", "scale", "reshape", "turn")) for _ in range(int(d.rng.integers(0, 3)))]
        before, barrier = d.pick(("", "", "scale", "scale then reshape")), d.chance(0.3)
        by, how = d.pick(("2", "8", "0.25", "3", "0.1", "0")), d.pick(("divide", "divide", "multiply"))
        to = d.pick([f for f in (*FLOATS, "c64") if may_become(t, f)])
        parts: list[Value] = []
        for n in range(int(d.rng.integers(2, 5))):
            mine = scaled(dims, axis, int(d.pick((1, 1, 2)))) if axis != dim else dims
            x = self.operand(t, mine)
            if before and t in FLOATS:
                flat = (int(np.prod(mine)),) if before != "scale" else mine
                x = x if flat == mine else self.add(t, flat, f"reshape({x.name})")
                x = self.binary(how, x, self.constant(t, flat, by))
                x = x if flat == mine else self.add(t, mine, f"reshape({x.name})")
            said = d.op(t) if n and d.chance(0.1) else op
            other = d.talk("reduce-scatter") if n and d.chance(0.05) else talk
            if n and d.chance(0.05):
                part = self.operand(t, scaled(mine, dim, -talk.size))
            else:
                part = self.reduce_scatter(x, other if mine[dim] % other.size == 0 else talk, said, dim)
            parts.append(part)
        wanted = {len(p.dims) for p in parts}
        if barrier:
            more = [self.operand(t, d.pick(d.extents))] if d.chance(0.3) else []
            parts = self.behind_barrier([*parts, *more])
            self.give(*parts[len(parts) - len(more) :])
            parts = parts[: len(parts) - len(more)]
        for step in after:
            if step == "copy":
                parts = [self.add(p.t, p.dims, f"copy({p.name})") for p in parts]
            elif step == "convert":
                parts = [self.converted(p, to) if may_become(p.t, to) else p for p in parts]
            elif step == "scale" and parts[0].t in FLOATS:
                parts = [self.binary(how, p, self.constant(p.t, p.dims, by if by != "0" else "4")) for p in parts]
            elif step == "reshape":
                parts = [self.add(p.t, (*p.dims, 1), f"reshape({p.name})") for p in parts]
            elif step == "turn" and wanted == {2} and axis == 0:
                parts = [self.add(p.t, (1, *p.dims), f"reshape({p.name})") for p in parts]
        if d.chance(0.05):
            parts.append(parts[0])
        ranks = parts[0].dims
        along = [
            k
            for k in range(len(ranks))
            if all(
                len(p.dims) == len(ranks) and (*p.dims[:k], *p.dims[k + 1 :]) == (*ranks[:k], *ranks[k + 1 :])
                for p in parts
            )
        ]
        if not along:
            self.give(*parts)
            return
        k = d.pick(along)
        result = (*ranks[:k], sum(p.dims[k] for p in parts), *ranks[k + 1 :])
        self.give(self.add(parts[0].t, result, f"concatenate({names(parts)}), dimensions={{{k}}}"))

    def scatter_of_concatenation(self) -> None:
        """A reduce-scatter of a concatenate that is divided before."""
        d = self.d
        talk, t = d.talk("reduce-scatter"), d.pick(FLOATS)
        x = [self.operand(t, (8, 4)) for _ in range(2)]
        whole = self.add(t, (8, 8), f"concatenate({names(x)}), dimensions={{1}}")
        self.give(self.reduce_scatter(self.binary("divide", whole, self.constant(t, (8, 8), "8")), talk, "add", 0))

    def sliced_reduction(self) -> None:
        """An all-reduce of which each rank keeps a part."""
        d = self.d
        talk, t = d.talk("all-reduce"), d.type()
        dims = d.pick([e for e in EXTENTS if e])
        dim = int(d.rng.integers(len(dims)))
        dims = scaled(dims, dim, talk.size)
        x = self.all_reduce(self.operand(t, dims), talk, d.op(t))
        move = d.pick(("", "", "copy", "transpose", "flatten"))
        if move == "copy":
            x = self.add(t, x.dims, f"copy({x.name})")
        elif move == "transpose":
            order = d.rng.permutation(len(dims)).tolist()
            dim, turned = order.index(dim), tuple(dims[k] for k in order)
            x = self.add(t, turned, f"transpose({x.name}), dimensions={braces(order)}")
        elif move == "flatten":
            x, dim = self.add(t, (int(np.prod(x.dims)),), f"reshape({x.name})"), 0
        for _ in range(int(d.pick((1, 1, 2)))):
            self.give(self.own_part(x, talk, dim))

    def own_part(self, x: Value, talk: Talk, dim: int) -> Value:
        """The part of this rank; now and then not quite."""
        d = self.d
        if d.chance(0.1):
            dim = int(d.rng.integers(len(x.dims)))
        if x.dims[dim] % talk.size:
            return x
        sizes = list(scaled(x.dims, dim, -talk.size))
        offset = self.binary("multiply", self.position(talk), self.add("s32", (), f"constant({sizes[dim]})"))
        if d.chance(0.2):
            last = self.add("s32", (), f"constant({x.dims[dim] - sizes[dim]})")
            zero = self.add("s32", (), "constant(0)")
            offset = self.add("s32", (), f"clamp({zero.name}, {offset.name}, {last.name})")
        if d.chance(0.05) and self.entry:
            offset = self.fresh("s32", ())
        offset = self.converted(offset, d.pick(("s32", "s32", "u32", "s64")))
        zero = self.add(offset.t, (), f"constant({int(d.chance(0.1))})")
        starts = [offset if k == dim else zero for k in range(len(sizes))]
        if d.chance(0.1) and len(sizes) > 1:  # parts of two dimensions
            other = (dim + 1) % len(sizes)
            sizes[other] = max(1, sizes[other] // 2)
        return self.add(x.t, sizes, f"dynamic-slice({x.name}, {names(starts)}), dynamic_slice_sizes={braces(sizes)}")

    def gathered(self) -> tuple[Value, Talk, int]:
        d = self.d
        talk, t = d.talk("all-gather"), d.type()
        dims = d.pick([e for e in EXTENTS if e and np.prod(e) * talk.size <= MOST_ELEMENTS])
        dim = int(d.rng.integers(len(dims)))
        return self.all_gather(self.operand(t, dims), talk, dim), talk, dim

    def gather_and_convert(self) -> None:
        """What is gathered is converted."""
        x, _, _ = self.gathered()
        to = [t for t in (*FLOATS, *INTEGERS) if may_become(x.t, t) and t != x.t]
        self.give(self.converted(x, self.d.pick(to)) if to else x)

    def gather_and_reshape(self) -> None:
        """What is gathered is reshaped: merged, split, or with a new dimension of extent 1."""
        d = self.d
        x, _, _ = self.gathered()
        k = int(d.rng.integers(len(x.dims)))
        options: list[Dims] = [(*x.dims[:k], 1, *x.dims[k:]), (int(np.prod(x.dims)),)]
        if x.dims[k] % 2 == 0:
            options += [
                (*x.dims[:k], 2, x.dims[k] // 2, *x.dims[k + 1 :]),
                (*x.dims[:k], x.dims[k] // 2, 2, *x.dims[k + 1 :]),
            ]
        if k + 1 < len(x.dims):
            options += 2 * [(*x.dims[:k], x.dims[k] * x.dims[k + 1], *x.dims[k + 2 :])]
        self.give(self.add(x.t, d.pick(options), f"reshape({x.name})"))

    def gather_and_slice(self) -> None:
        """What is gathered is cut, at the same place everywhere or not."""
        d = self.d
        talk, t = d.talk("all-gather"), d.type()
        dims = d.pick(((4, 4, 4), (2, 8, 4), (8, 6), (2, 2, 4, 4)))
        gathered = int(d.rng.integers(len(dims)))
        x = self.all_gather(self.operand(t, dims), talk, gathered)
        sizes = [
            max(1, e // 2) if (k != gathered and d.chance(0.7)) or d.chance(0.05) else e for k, e in enumerate(x.dims)
        ]
        starts = []
        for k in range(len(dims)):
            kind = d.pick(("constant", "constant", "counter", "parameter", "id", "same in group"))
            if kind == "counter" and self.counter:
                starts.append(Value(self.counter, "s32", ()))
            elif kind == "parameter" and self.entry and sizes[k] != x.dims[k]:
                starts.append(self.fresh("s32", ()))
            elif kind == "id" and sizes[k] != x.dims[k] and d.chance(0.3):
                starts.append(self.rank())
            elif kind == "same in group":
                of = [0] * RANKS
                for n, group in enumerate(talk.groups):
                    for rank in group:
                        of[rank] = n % 3
                table = self.add("s32", (RANKS,), f"constant({braces(of)})")
                at = f"dynamic-slice({table.name}, {self.rank().name}), dynamic_slice_sizes={{1}}"
                starts.append(self.add("s32", (), f"reshape({self.add('s32', (1,), at).name})"))
            else:
                starts.append(self.add("s32", (), f"constant({int(d.rng.integers(0, 3))})"))
        text = f"dynamic-slice({x.name}, {names(starts)}), dynamic_slice_sizes={braces(sizes)}"
        self.give(self.add(t, sizes, text))

    def gathers_and_binary(self) -> None:
        """Two gathers are combined."""
        d = self.d
        talk, t = d.talk("all-gather"), d.pick((*FLOATS, *INTEGERS, "c64"))
        dims = d.pick([e for e in EXTENTS if e and np.prod(e) * talk.size <= MOST_ELEMENTS])
        dim = int(d.rng.integers(len(dims)))
        ops = ["add", "subtract", "multiply"]
        ops += ["maximum", "minimum"] if t != "c64" else []
        ops += ["and", "or", "divide", "remainder"] if t in INTEGERS else []
        op = d.pick(ops)
        one, two = (self.all_gather(self.operand(t, dims), talk, dim) for _ in range(2))
        if d.chance(0.1):
            two = one
        elif d.chance(0.2):
            other = d.talk("all-gather")
            two = self.all_gather(self.operand(t, dims), other, dim) if other.size == talk.size else two
        self.give(self.binary(op, one, two))

    def accumulated_reduction(self) -> None:
        """A gradient, reduced in a narrow type, is added to an element of a parameter."""
        d = self.d
        g = d.pick(self.accumulators)
        family = next((f for f in (FLOATS, INTEGERS) if g.t in f), (g.t,))
        narrow = d.pick(family)
        kind = d.pick(("all-reduce", "reduce-scatter"))
        talk = d.talk(kind)
        op = d.op(narrow)
        if kind == "all-reduce" or not g.dims:
            r = self.all_reduce(self.operand(narrow, g.dims), talk, op)
        else:
            dim = int(d.rng.integers(len(g.dims)))
            r = self.reduce_scatter(self.operand(narrow, scaled(g.dims, dim, talk.size)), talk, op, dim)
        wide_r = self.converted(r, g.t)
        self.give(self.binary("add", wide_r, g) if d.chance(0.5) else self.binary("add", g, wide_r))

    def transposed_scatter(self) -> None:
        """A reduce-scatter is transposed, perhaps converted before."""
        d = self.d
        talk, t = d.talk("reduce-scatter"), d.type()
        dims = d.pick(((8, 8), (8, 16), (2, 8, 8), (8, 4, 2)))
        fitting = [k for k, e in enumerate(dims) if e % talk.size == 0]
        dim = d.pick(fitting)
        accumulated = [a for a in self.accumulators if a.t == t and len(a.dims) > 1]
        if accumulated and d.chance(0.6):
            g = d.pick(accumulated)
            fitting = [k for k, e in enumerate(g.dims) if e % talk.size == 0]
            if not fitting:
                return
            dims, dim = g.dims, d.pick(fitting)
            x = self.binary("or" if t == "pred" else "add", g, self.operand(t, dims))
        elif d.chance(0.7):
            whole, part = (int(np.prod(dims)),), (int(np.prod(dims)) // 2,)
            at = self.add("s32", (), f"constant({int(d.rng.integers(0, 5))})")
            text = f"dynamic-update-slice({self.operand(t, whole).name}, {self.operand(t, part).name}, {at.name})"
            x = self.add(t, dims, f"reshape({self.add(t, whole, text).name})")
        else:
            x = self.operand(t, dims)
        r = self.reduce_scatter(x, talk, d.op(t), dim)
        if d.chance(0.4) and (to := [o for o in (*FLOATS, *INTEGERS) if may_become(t, o)]):
            r = self.converted(r, d.pick(to))
        order = d.rng.permutation(len(dims)).tolist()
        turned = [r.dims[k] for k in order]
        self.give(self.add(r.t, turned, f"transpose({r.name}), dimensions={braces(order)}"))

    def permute(self) -> None:
        """A permute, of one array or several."""
        d = self.d
        operands = [self.operand(d.type(), d.pick(d.extents)) for _ in range(int(d.pick((1, 1, 1, 2))))]
        pairs = d.pairs()
        if len(operands) == 1 and d.chance(0.9):
            self.give(self.add(operands[0].t, operands[0].dims, f"collective-permute({names(operands)}), {pairs}"))
        elif len(operands) > 1:
            parts = [(o.t, o.dims) for o in operands]
            self.give(*self.elements(parts, f"collective-permute({names(operands)}), {pairs}"))

    def all_to_all(self) -> None:
        """An exchange, along a dimension or of an array for each peer."""
        d = self.d
        talk, t, dims = d.talk("all-to-all"), d.type(), d.pick(d.extents)
        if d.chance(0.3):
            operands = [self.operand(t, dims) for _ in range(talk.size)]
            self.give(*self.elements([(t, dims)] * talk.size, f"all-to-all({names(operands)}), {talk.attributes}"))
        elif (dim := self.scatter_dim(dims, talk)) is not None:
            text = f"all-to-all({self.operand(t, dims).name}), {talk.attributes}, dimensions={{{dim}}}"
            self.give(self.add(t, dims, text))

    def broadcast(self) -> None:
        """A collective-broadcast."""
        d = self.d
        talk, t, dims = d.talk("collective-broadcast"), d.type(), d.pick(d.extents)
        text = f"collective-broadcast({self.operand(t, dims).name}), {talk.attributes}"
        self.give(self.add(t, dims, text))

    def send_recv(self) -> None:
        """Sends, and the recvs that they meet."""
        d = self.d
        n = d.partitions if d.partitions > 1 else d.replicas
        token = f"t{d.number()}"
        self.lines.append(f"  {token} = token[] after-all()")
        one_channel, channel, said = d.chance(0.3), "", ""
        for _ in range(int(d.pick((1, 1, 2, 3)))):
            t, dims = d.type(), d.pick(d.extents)
            if not (one_channel and channel):
                count = int(d.rng.integers(1, n + 1))
                pairs = zip(d.rng.permutation(n)[:count].tolist(), d.rng.permutation(n)[:count].tolist(), strict=True)
                routes = braces([list(p) for p in pairs])
                channel = f"channel_id={100 + d.number()}"
                said = f'{channel}, frontend_attributes={{_xla_send_recv_source_target_pairs="{routes}"}}'
            x = self.operand(t, dims)
            s, sd, r, rd = (f"t{d.number()}" for _ in range(4))
            first_send = one_channel or d.chance(0.5)
            send = [
                f"  {s} = ({shape(t, dims)}, u32[], token[]) send({x.name}, {token}), {said}",
                f"  {sd} = token[] send-done({s}), {channel}",
            ]
            recv = [
                f"  {r} = ({shape(t, dims)}, u32[], token[]) recv({sd if first_send else token}), {said}",
                f"  {rd} = ({shape(t, dims)}, token[]) recv-done({r}), {channel}",
            ]
            self.lines += [*send, *recv] if first_send else [*recv, *send]
            self.give(self.element(rd, 0, t, dims))
            token = sd
            if one_channel:  # the next send comes after this recv
                token = f"t{d.number()}"
                self.lines.append(f"  {token} = token[] get-tuple-element({rd}), index=1")

    def elementwise(self) -> None:
        """Something that is no collective."""
        d = self.d
        if not self.values:
            return
        x = d.pick(self.values)
        kind = d.pick(("negate", "add", "convert", "reshape", "transpose", "barrier", "damp", "copy"))
        if kind == "negate" and x.t in (*FLOATS, "s32", "c64"):
            self.give(self.add(x.t, x.dims, f"negate({x.name})"))
        elif kind == "add" and x.t != "pred":
            self.give(self.binary("add", x, self.operand(x.t, x.dims)))
        elif kind == "convert" and (to := [t for t in TYPES if may_become(x.t, t) and t != "pred"]):
            self.give(self.converted(x, d.pick(to)))
        elif kind == "reshape" and x.dims:
            self.give(self.add(x.t, (int(np.prod(x.dims)),), f"reshape({x.name})"))
        elif kind == "transpose" and len(x.dims) > 1:
            order = d.rng.permutation(len(x.dims)).tolist()
            self.give(self.add(x.t, [x.dims[k] for k in order], f"transpose({x.name}), dimensions={braces(order)}"))
        elif kind == "barrier":
            self.give(*self.behind_barrier([x, *(d.pick(self.values) for _ in range(int(d.rng.integers(0, 3))))]))
        elif kind == "copy":
            self.give(self.add(x.t, x.dims, f"copy({x.name})"))
        else:
            self.give(self.damped(x))

    # -- computations within -------------------------------------------------------------------------------------------
    def loop(self) -> None:
        """A while loop with collectives in its body."""
        d = self.d
        carried = self.carried()
        body = Block(d, depth=self.depth + 1)
        name, number = f"t{d.number()}", d.number()
        count = body.add("s32", (), f"get-tuple-element({name}), index=0", layout=False)
        body.counter = count.name
        body.values = [body.element(name, n + 1, v.t, v.dims) for n, v in enumerate(carried)]
        body.accumulators = list(body.values)
        given = set(body.values)
        body.fill(int(d.rng.integers(1, 4)))
        used = body.unused(given)
        nexts = []
        for v in carried:  # what the next turn starts from
            same = [u for u in used if u.t == v.t and u.dims == v.dims]
            nexts.append(body.damped(d.pick(same)) if same else body.accumulators[carried.index(v)])
        one = body.add("s32", (), "constant(1)")
        following = body.binary("add", count, one)
        state = [following, *nexts, *used]
        shapes = ", ".join(v.shape for v in state)
        body.lines.insert(0, f"  {name} = ({shapes}) parameter(0)")
        body.lines.append(f"  ROOT r{number} = ({shapes}) tuple({names(state)})")
        d.computations[f"body{number}"] = f"body{number} {{\n" + "\n".join(body.lines) + "\n}"
        d.computations[f"cond{number}"] = (
            f"cond{number} {{\n  given{number} = ({shapes}) parameter(0)\n"
            f"  i{number} = s32[] get-tuple-element(given{number}), index=0\n  n{number} = s32[] constant(2)\n"
            f"  ROOT l{number} = pred[] compare(i{number}, n{number}), direction=LT\n}}"
        )
        for _ in range(int(d.pick((1, 1, 1, 2)))):
            zeros = [self.constant(v.t, v.dims, "false" if v.t == "pred" else "0") for v in used]
            start = [self.add("s32", (), "constant(0)"), *(self.operand(v.t, v.dims) for v in carried), *zeros]
            init = self.whole([(v.t, v.dims) for v in start], f"tuple({names(start)})")
            text = f"while({init}), condition=cond{number}, body=body{number}"
            self.give(*self.elements([(v.t, v.dims) for v in state], text)[1:])

    def branches(self) -> None:
        """A conditional with collectives in its branches."""
        d = self.d
        carried = self.carried()
        number = d.number()
        blocks, made = [], []
        for _ in range(2):
            block = Block(d, depth=self.depth + 1)
            name = f"t{d.number()}"
            shapes = ", ".join(v.shape for v in carried)
            block.lines.append(f"  {name} = ({shapes}) parameter(0)")
            block.values = [block.element(name, n, v.t, v.dims) for n, v in enumerate(carried)]
            block.accumulators = list(block.values)
            given = set(block.values)
            block.fill(int(d.rng.integers(1, 3)))
            blocks.append(block)
            made.append(block.unused(given))
        parts = [(v.t, v.dims) for some in made for v in some]
        if not parts:
            return
        shapes = ", ".join(shape(*p) for p in parts)
        for n, block in enumerate(blocks):
            filled = [
                v if k == n else block.constant(v.t, v.dims, "false" if v.t == "pred" else "0")
                for k, some in enumerate(made)
                for v in some
            ]
            block.lines.append(f"  ROOT r{number}_{n} = ({shapes}) tuple({names(filled)})")
            d.computations[f"branch{number}_{n}"] = f"branch{number}_{n} {{\n" + "\n".join(block.lines) + "\n}"
        which = self.fresh("pred", ()) if self.entry else self.add("pred", (), "constant(true)")
        given_to = self.whole([(v.t, v.dims) for v in carried], f"tuple({names(carried)})")
        text = f"conditional({which.name}, {given_to}, {given_to}), true_computation=branch{number}_0, "
        self.give(*self.elements(parts, f"{text}false_computation=branch{number}_1"))

    def call(self) -> None:
        """A call, or two of the same computation."""
        d = self.d
        carried = self.carried()
        number = d.number()
        block = Block(d, depth=self.depth + 1)
        block.values = [Value(f"a{number}_{n}", v.t, v.dims) for n, v in enumerate(carried)]
        block.lines = [f"  {v.name} = {v.shape} parameter({n})" for n, v in enumerate(block.values)]
        given = set(block.values)
        block.fill(int(d.rng.integers(1, 4)))
        made = block.unused(given)
        if not made:
            return
        single = len(made) == 1 and block.lines[-1].startswith(f"  {made[0].name} = ") and d.chance(0.5)
        if single:
            block.lines[-1] = f"  ROOT {block.lines[-1].lstrip()}"
        else:
            shapes = ", ".join(v.shape for v in made)
            block.lines.append(f"  ROOT r{number} = ({shapes}) tuple({names(made)})")
        d.computations[f"called{number}"] = f"called{number} {{\n" + "\n".join(block.lines) + "\n}"
        for _ in range(int(d.pick((1, 1, 2)))):
            operands = [self.operand(v.t, v.dims) for v in carried]
            text = f"call({names(operands)}), to_apply=called{number}"
            if single:
                self.give(self.add(made[0].t, made[0].dims, text))
            else:
                self.give(*self.elements([(v.t, v.dims) for v in made], text))

    def carried(self) -> list[Value]:
        d = self.d
        types = [d.pick(("f32", "f32", "f64", "s32")), *(d.type() for _ in range(int(d.rng.integers(1, 4))))]
        return [self.operand(t, d.pick(d.extents)) for t in types]

    def unused(self, given: set[Value]) -> list[Value]:
        """What nothing takes yet, so that none of it is dead; at least something."""
        taken = {w for line in self.lines for w in re.findall(r"\w+", line.partition(" = ")[2])}
        found = [v for v in dict.fromkeys(self.values) if v.name not in taken and v not in given]
        return found or list(self.values[:1])

    def fill(self, count: int) -> None:
        """Draw ``count`` patterns."""
        within: list[Callable[[Block], None]] = [Block.loop, Block.loop, Block.branches, Block.call, Block.call]
        for _ in range(count):
            if self.d.chance((0.2, 0.08, 0)[self.depth]):
                self.d.pick(within)(self)
            else:
                known = PATTERNS_WITHIN if self.accumulators else PATTERNS
                favourite = self.d.favourites[int(self.d.rng.integers(4))] % len(known)
                (known[favourite] if self.d.chance(0.5) else self.d.pick(known))(self)
            if self.d.chance(0.4):
                self.elementwise()
        if self.d.chance(0.3):
            self.order()

    def order(self) -> None:
        """Control dependencies, from collectives to what stands before them."""
        defined = [
            n
            for n, line in enumerate(self.lines)
            if "parameter(" not in line and "constant(" not in line and " tuple(" not in line
        ]
        collective = [n for n in defined if re.search(r" (all-|reduce-scatter|collective-)\S*\(", self.lines[n])]
        for _ in range(int(self.d.rng.integers(1, 3))):
            if not collective:
                return
            late = self.d.pick(collective)
            before = [n for n in defined if n < late]
            if before and "control-predecessors" not in self.lines[late]:
                early = self.lines[self.d.pick(before)].split()[0]
                self.lines[late] += f", control-predecessors={{{early}}}"


PATTERNS: tuple[Callable[[Block], None], ...] = (
    Block.plain,
    Block.plain,
    Block.variadic,
    Block.variadic,
    Block.integer,
    Block.chains,
    Block.chains,
    Block.concatenated_scatters,
    Block.concatenated_scatters,
    Block.concatenated_scatters,
    Block.scatter_of_concatenation,
    Block.sliced_reduction,
    Block.sliced_reduction,
    Block.gather_and_convert,
    Block.gather_and_reshape,
    Block.gather_and_slice,
    Block.gathers_and_binary,
    Block.transposed_scatter,
    Block.permute,
    Block.permute,
    Block.all_to_all,
    Block.broadcast,
    Block.send_recv,
)
PATTERNS_WITHIN = (*PATTERNS, *[Block.accumulated_reduction] * 8, *[Block.transposed_scatter] * 2)


def names(found: Sequence[Value]) -> str:
    return ", ".join(v.name for v in found)


def may_become(t: str, to: str) -> bool:
    """Whether a conversion keeps close values close."""
    if t == "c64" or to == "pred":
        return t == to or (t in (*INTEGERS, "pred") and to == "pred")
    return to in (*FLOATS, "c64") or t not in FLOATS


def draw_module(seed: int, patterns: int = 7) -> str:
    """The text of a module of 8 ranks."""
    d = Draw(seed)
    block = Block(d, entry=True)
    block.fill(patterns)
    used = block.unused(set())
    used += [v for v in dict.fromkeys(block.values) if v not in used and d.chance(0.1)]
    lines = [f"  {p.name} = {p.shape} parameter({n})" for n, p in enumerate(d.parameters)]
    if len(used) == 1 and block.lines[-1].startswith(f"  {used[0].name} = "):
        block.lines[-1] = f"  ROOT {block.lines[-1].lstrip()}"
    else:
        block.lines.append(f"  ROOT out = ({', '.join(v.shape for v in used)}) tuple({names(used)})")
    return hlo("\n".join([*lines, *block.lines]), *d.computations.values(), header=d.header())
