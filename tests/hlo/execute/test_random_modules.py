"""Random modules, a random part of their collectives converted: every value stays.

Shapes, layouts, groups, types, dimensions, reductions and users are drawn; converted and native collectives stand side
by side, and some depend on others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest

from crossrank.collective.dtypes import dtype
from crossrank.collective.kinds import ReduceOp
from crossrank.hlo.collectives import describe
from crossrank.hlo.execute.run import RunOptions, run_module
from crossrank.hlo.io import parse_module
from crossrank.hlo.module import Module
from crossrank.hlo.passes.convert_collectives_to_custom_call import convert
from crossrank.passes import Pass
from crossrank.remarks import Remarks
from tests.support import hlo, reducer

RANKS = 8
TYPES = ("f32", "f32", "f32", "bf16", "f16", "f64", "s32", "u8", "s64", "pred", "c64")
KINDS = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all", "collective-permute")


@dataclass
class Drawn:
    """A module under construction: values by name with type and extents."""

    rng: np.random.Generator
    lines: list[str] = field(default_factory=list)
    values: list[tuple[str, str, tuple[int, ...]]] = field(default_factory=list)
    bodies: dict[str, str] = field(default_factory=dict)

    def pick(self, options: tuple[str, ...]) -> str:
        return options[int(self.rng.integers(len(options)))]

    def add(self, t: str, dims: tuple[int, ...], text: str, name: str = "v") -> str:
        name = f"{name}{len(self.lines)}"
        layout = ""
        if len(dims) > 1 and self.rng.random() < 0.3:
            order = self.rng.permutation(len(dims))
            layout = "{" + ",".join(map(str, order)) + "}"
        self.lines.append(f"  {name} = {shape(t, dims)}{layout} {text}")
        self.values.append((name, t, dims))
        return name

    def operand(self) -> tuple[str, str, tuple[int, ...]]:
        return self.values[int(self.rng.integers(len(self.values)))]

    def groups(self) -> tuple[str, int]:
        size = int(self.rng.choice([1, 2, 4, 8]))
        ranks = self.rng.permutation(RANKS) if self.rng.random() < 0.5 else np.arange(RANKS)
        if size == RANKS and self.rng.random() < 0.3:
            return "{}", size
        if self.rng.random() < 0.3:
            return f"[{RANKS // size},{size}]<=[2,4]T(1,0)", size
        return str(ranks.reshape(-1, size).tolist()).replace("[", "{").replace("]", "}").replace(" ", ""), size


def shape(t: str, dims: tuple[int, ...]) -> str:
    return f"{t}[{','.join(map(str, dims))}]"


def draw_module(seed: int) -> str:
    d = Drawn(np.random.default_rng(seed))
    for n in range(4):
        t = d.pick(TYPES)
        dims = tuple(int(x) for x in d.rng.choice([1, 2, 3, 8, 16], int(d.rng.integers(0, 4))))
        d.add(t, dims, f"parameter({n})", "p")
    for _ in range(24):
        x, t, dims = d.operand()
        kind = d.pick((*KINDS, *KINDS, "negate", "add", "convert", "reshape"))
        if kind == "negate" and t != "pred" and not t.startswith("u"):
            d.add(t, dims, f"negate({x})")
        elif kind == "add" and t != "pred":
            d.add(t, dims, f"add({x}, {x})")
        elif kind == "convert" and t != "c64":
            to = d.pick(("f32", "bf16", "s32"))
            d.add(to, dims, f"convert({x})")
        elif kind == "reshape" and dims:
            d.add(t, (int(np.prod(dims)),), f"reshape({x})")
        elif kind in KINDS:
            collective(d, kind, x, t, dims)
    used = d.values[-16:]
    d.lines.append(
        f"  ROOT out = ({', '.join(shape(t, s) for _, t, s in used)}) tuple({', '.join(n for n, _, _ in used)})"
    )
    return hlo("\n".join(d.lines), *d.bodies.values(), header=f"num_partitions={RANKS}")


def collective(d: Drawn, kind: str, x: str, t: str, dims: tuple[int, ...]) -> None:
    if kind == "collective-permute":
        permute(d, x, t, dims)
        return
    groups, size = d.groups()
    if kind == "all-to-all":
        all_to_all(d, x, t, dims, groups, size)
        return
    attributes = f"replica_groups={groups}, channel_id={len(d.lines) + 1}, use_global_device_ids=true"
    if kind == "all-gather":
        if not dims or np.prod(dims) * size > 4096:
            return
        k = int(d.rng.integers(len(dims)))
        result = (*dims[:k], dims[k] * size, *dims[k + 1 :])
        d.add(t, result, f"{kind}({x}), dimensions={{{k}}}, {attributes}")
        return
    # a product of many values leaves every type's range: one in a while is enough
    ops = [op for op in ReduceOp if op.valid_for(dtype(t)) and (op is not ReduceOp.MULTIPLY or d.rng.random() < 0.3)]
    op = ops[int(d.rng.integers(len(ops)))]
    d.bodies[f"{op}_{t}"] = reducer(op, t)
    attributes += f", to_apply={op}_{t}"
    if kind == "all-reduce":
        if d.rng.random() < 0.2 and t != "pred":  # variadic
            other = d.add(t, dims, f"add({x}, {x})")
            pair = f"a{len(d.lines)}"
            d.lines.append(f"  {pair} = ({shape(t, dims)}, {shape(t, dims)}) all-reduce({x}, {other}), {attributes}")
            for n in range(2):
                d.add(t, dims, f"get-tuple-element({pair}), index={n}")
            return
        d.add(t, dims, f"{kind}({x}), {attributes}")
        return
    fitting = [k for k, extent in enumerate(dims) if extent % size == 0]
    if fitting:
        k = fitting[int(d.rng.integers(len(fitting)))]
        d.add(t, (*dims[:k], dims[k] // size, *dims[k + 1 :]), f"{kind}({x}), dimensions={{{k}}}, {attributes}")


def all_to_all(d: Drawn, x: str, t: str, dims: tuple[int, ...], groups: str, size: int) -> None:
    attributes = f"replica_groups={groups}, channel_id={len(d.lines) + 1}"
    if d.rng.random() < 0.3:  # an operand for each peer
        operands = [x, *(d.add(t, dims, f"copy({x})") for _ in range(size - 1))]
        if t not in ("pred", "c64"):
            operands = [d.add(t, dims, f"add({x}, {o})") for o in operands]
        pieces = f"a{len(d.lines)}"
        d.lines.append(
            f"  {pieces} = ({', '.join([shape(t, dims)] * size)}) all-to-all({', '.join(operands)}), {attributes}"
        )
        for n in range(size):
            d.add(t, dims, f"get-tuple-element({pieces}), index={n}")
        return
    fitting = [k for k, extent in enumerate(dims) if extent % size == 0]
    if fitting:
        k = fitting[int(d.rng.integers(len(fitting)))]
        d.add(t, dims, f"all-to-all({x}), dimensions={{{k}}}, {attributes}")


def permute(d: Drawn, x: str, t: str, dims: tuple[int, ...]) -> None:
    sources, targets = (d.rng.permutation(RANKS)[: int(d.rng.integers(0, RANKS + 1))] for _ in range(2))
    pairs = ",".join(f"{{{s},{t}}}" for s, t in zip(sources, targets, strict=False))
    attributes = f"source_target_pairs={{{pairs}}}, channel_id={len(d.lines) + 1}"
    if d.rng.random() < 0.2:  # variadic
        other, ot, odims = d.operand()
        pair = f"a{len(d.lines)}"
        d.lines.append(
            f"  {pair} = ({shape(t, dims)}, {shape(ot, odims)}) collective-permute({x}, {other}), {attributes}"
        )
        d.add(t, dims, f"get-tuple-element({pair}), index=0")
        d.add(ot, odims, f"get-tuple-element({pair}), index=1")
        return
    d.add(t, dims, f"collective-permute({x}), {attributes}")


@dataclass(frozen=True)
class ConvertSome(Pass[Module]):
    """Converts a random part of the collectives."""

    name: ClassVar[str] = "convert-some"
    seed: int = 0
    share: float = 0.6

    def run(self, module: Module, remarks: Remarks) -> bool:
        rng = np.random.default_rng(self.seed)
        found = [(i, info) for i in module.instructions() if i.opcode in KINDS and (info := describe(i))]
        for i, info in found:
            if rng.random() < self.share:
                convert(i, info)
        return bool(found)


@pytest.mark.parametrize("seed", range(6))
def test_a_random_part_converted(seed: int) -> None:
    file = parse_module(draw_module(seed).encode(), f"random{seed}.hlo")
    report = run_module(file, [ConvertSome(seed=seed)], RunOptions(iters=1, seed=seed, limit_s=30))
    assert report.result["exact"], report.result["first_difference"]
    assert report.custom_calls


def test_what_is_drawn_has_what_matters() -> None:
    """The generator itself: among its modules there are layouts, groups of all forms, variadic ones, every kind."""
    text = "".join(draw_module(seed) for seed in range(20))
    for word in (
        *(f"{kind}(" for kind in KINDS),
        ") all-to-all(",
        ") collective-permute(",
        "pairs={}",
        "{0,1}",
        "<=[2,4]T(1,0)",
        "replica_groups={}",
        "get-tuple-element",
        "bf16",
        "c64",
        "pred",
    ):
        assert word in text, word
