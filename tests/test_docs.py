"""The documentation keeps up: every pass has a page and a place in the list, links lead somewhere."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossrank import nki
from crossrank.cli.main import main
from crossrank.instr.builder import KernelBuilder
from crossrank.instr.op_classes import KIND_OF
from crossrank.nki import collectives, isa, language, operators, tiles
from crossrank.nki.operators import Operator
from crossrank.passes import all_passes, all_pipelines
from crossrank.program import language as pl
from crossrank.program.language import distributed as pld
from crossrank.program.language.op import Op

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")])


@pytest.mark.parametrize("name", all_passes())
def test_every_pass_has_a_page_and_a_place_in_the_list(name: str) -> None:
    page = ROOT / "docs" / "passes" / f"{name}.md"
    assert page.read_text().startswith(f"# {name}\n")
    assert f"({name}.md)" in (page.parent / "README.md").read_text()


def test_every_pipeline_is_explained() -> None:
    text = (ROOT / "docs" / "passes" / "README.md").read_text()
    assert all(f"`{name}`" in text for name in all_pipelines())


def test_the_builder_is_explained() -> None:
    """Every method and every class of op has its place in the page."""
    text = (ROOT / "docs" / "builder.md").read_text()
    methods = [name for name, _ in inspect.getmembers(KernelBuilder, inspect.isfunction) if not name.startswith("_")]
    missing = [m for m in methods if f"`{m}" not in text] + [c for c in KIND_OF if f"`{c}`" not in text]
    assert missing == []


def test_the_example_of_a_kernel_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "kernel.py").write_text(_first_block("kernels.md"))
    assert main(["run", str(tmp_path / "kernel.py"), "--ranks", "2"]) == 0
    assert "expected: the given output" in capsys.readouterr().out


def test_the_example_of_a_program_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "shift.py").write_text(_first_block("programs.md"))
    assert main(["run", str(tmp_path / "shift.py"), "--ranks", "3"]) == 0
    assert "expected: the output" in capsys.readouterr().out


def test_the_words_of_programs_are_explained() -> None:
    """Each word of the language stands in the page, or, of a family of words (``row_expand_add``), what they share."""
    text = (ROOT / "docs" / "programs.md").read_text()
    words = [
        name
        for module in (pl, pld, pld.tensor, pld.tile, pld.system)
        for name, value in vars(module).items()
        if isinstance(value, Op)
    ]
    missing = [w for w in words if not re.search(rf"\b{re.sub('_expand.*', '_expand', w)}", text)]
    assert missing == []


def test_the_example_of_the_builder_runs() -> None:
    arrays = [np.full((128, 16), rank, np.float32) for rank in range(4)]
    names: dict[str, Any] = {"arrays": arrays}
    exec(_first_block("builder.md"), names)
    assert np.array_equal(names["outputs"], [[sum(arrays)]] * 4)


def _first_block(page: str) -> str:
    return (ROOT / "docs" / page).read_text().partition("```python\n")[2].partition("```")[0]


def test_the_functions_of_nki_are_listed() -> None:
    """All of them, and none that is not there."""
    listed = re.findall(r"`([^`]+)`", _section("kernels.md", "What there is of NKI").partition("\n\nTensors")[0])
    there = [
        name
        for module in (language, isa, collectives)
        for name, value in vars(module).items()
        if name[0] != "_"
        and (isinstance(value, Operator) or inspect.isfunction(value))
        and inspect.getmodule(value) in (module, tiles, operators)
    ]
    titles = {"nki.collectives", "nki.isa", "nki.language"}
    assert set(listed) - titles == set(there) - {"instruction", "value"}  # ours, not NKI's


def test_the_arguments_of_simulate_are_listed() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", _section("kernels.md", "From Python"), re.M)
    assert listed == list(inspect.signature(nki.simulate).parameters)


def _section(page: str, title: str) -> str:
    return (ROOT / "docs" / page).read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_the_source_has_no_page_too_many() -> None:
    pages = {p.stem for p in (ROOT / "docs" / "passes").glob("*.md")} - {"README"}
    assert pages == set(all_passes())
