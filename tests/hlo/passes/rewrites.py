"""What the tests of small rewrites share: modules of many cases, and what passes said."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from crossrank.files import read_bytes
from crossrank.hlo.io import ModuleFile, parse_module, to_text
from crossrank.hlo.module import Module

from ...support import apply, hlo, reread

DATA = Path(__file__).parents[2] / "data"
FLAGS = "channel_id=1, use_global_device_ids=true"
SIZES = {
    "{}": 8,
    "{{0,1,2,3,4,5,6,7}}": 8,
    "{{3,1},{0,2},{7,5},{4,6}}": 2,
    "[2,4]<=[8]": 4,
    "[4,2]<=[2,4]T(1,0)": 2,
    "mesh['a'=2,'b'=4] {'b'}": 4,
    "mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'a'}": 2,
}
"""Groups of 8 ranks in every form, and how many ranks each has."""


class Lines:
    """The lines of an entry computation, of which every named output goes into the result."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.outputs: list[tuple[str, str]] = []
        self._parameters = 0

    def add(self, shape: str, text: str, *, output: bool = False) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"  {name} = {shape} {text}")
        if output:
            self.outputs.append((name, shape))
        return name

    def parameter(self, shape: str) -> str:
        self._parameters += 1
        return self.add(shape, f"parameter({self._parameters - 1})")

    def text(self, *computations: str, header: str = "num_partitions=8") -> str:
        shapes = ", ".join(shape for _, shape in self.outputs)
        names = ", ".join(name for name, _ in self.outputs)
        return hlo("\n".join([*self.lines, f"  ROOT out = ({shapes}) tuple({names})"]), *computations, header=header)


def array(dtype: str, dims: Sequence[int], layout: Sequence[int] | None = None) -> str:
    """The text of an array's shape."""
    written = "" if layout is None else "{" + ",".join(map(str, layout)) + "}"
    return f"{dtype}[{','.join(map(str, dims))}]{written}"


def gather(lines: Lines, x: str, dtype: str, dims: Sequence[int], dim: int, groups: str, size: int = 0) -> str:
    """All-gather ``x`` (of ``dims``) along ``dim``."""
    full = [extent * (size or SIZES[groups]) if d == dim else extent for d, extent in enumerate(dims)]
    return lines.add(array(dtype, full), f"all-gather({x}), replica_groups={groups}, dimensions={{{dim}}}, {FLAGS}")


def pick_groups(rng: np.random.Generator) -> tuple[str, int]:
    groups = str(rng.choice(list(SIZES)))
    return groups, SIZES[groups]


def declined(module: Module, passes: str) -> list[str]:
    """Why a pass left candidates; it must have changed nothing."""
    result = apply(module, passes)
    assert not result.changed
    assert not module.modified
    return [r.reason for r in result.remarks]


def rewritten(file: ModuleFile, passes: str) -> Module:
    """The module after a pass that changes it, as XLA reads it again; the pass finds nothing more."""
    assert apply(file.module, passes).changed
    module = reread(file).module
    assert not apply(module, passes).changed
    return module


def data(name: str) -> ModuleFile:
    """A small real module that a pass changes, its calls opened."""
    file = parse_module(read_bytes(str(DATA / f"{name}.hlo")), name)
    apply(file.module, "inline-calls")
    return file


def data_text(name: str) -> str:
    return to_text(data(name))
