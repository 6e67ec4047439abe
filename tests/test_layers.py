"""Arrows point down only: who may import whom, by what the sources say."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "crossrank"
LAYERS = [
    {"__main__"},
    {"cli"},
    {"report", "jax"},
    {"bridge", "check"},
    {"nki"},
    {"hlo", "instr", "program"},  # the doors, which do not import one another
    {"runtime", "doors", "compare", "statistics", "author"},
    {"kernels", "arrays", "files", "passes", "findings", "mlir"},
    {"collective", "errors", "remarks"},  # import nothing of ours
]
"""What stands in a row imports what stands in rows below it, and nothing else."""
ROW = {name: row for row, names in enumerate(LAYERS) for name in names}
APART = [
    ("instr/compute", "instr/dialect"),  # NumPy alone
    ("instr/builder", "instr/interpret"),
    ("instr/interpret", "instr/builder"),  # what runs is no matter of how it was made, or lowered
    ("instr/interpret", "instr/lowering"),
    ("instr/lowering", "instr/interpret"),
    ("instr/passes", "instr/interpret"),
    ("hlo/passes", "hlo/execute"),
    ("program/analysis", "program/passes"),
    ("program/passes", "program/execute"),
    ("program/passes", "program/cost"),
    ("program/execute", "program/cost"),
]
"""Within a package: the first imports nothing of the second."""


def imported(path: Path) -> Iterator[str]:
    """The modules of ours that a file imports, wherever in it, as ``hlo/module``; their names may follow."""
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports by dots"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (n.removeprefix("crossrank.").replace(".", "/") for n in names if n.startswith("crossrank."))


def layer(path: str) -> str:
    return path.partition("/")[0].removesuffix(".py")


FILES = [str(p.relative_to(ROOT)) for p in sorted(ROOT.rglob("*.py")) if p.name != "__init__.py" or p.parent != ROOT]


def test_every_module_has_its_layer() -> None:
    assert {layer(f) for f in FILES} <= ROW.keys()
    assert len(FILES) > 100


@pytest.mark.parametrize("name", sorted({layer(f) for f in FILES}))
def test_imports_point_down(name: str) -> None:
    wrong = [
        f"{file} imports {module}"
        for file in FILES
        if layer(file) == name
        for module in imported(ROOT / file)
        if layer(module) not in (name, "__version__") and ROW[layer(module)] <= ROW[name]
    ]
    assert wrong == []


@pytest.mark.parametrize(("name", "other"), APART)
def test_apart_within_a_package(name: str, other: str) -> None:
    files = [f for f in FILES if f"{f.removesuffix('.py')}/".startswith(f"{name}/")]
    assert files
    wrong = [f"{file} imports {m}" for file in files for m in imported(ROOT / file) if f"{m}/".startswith(f"{other}/")]
    assert wrong == []
