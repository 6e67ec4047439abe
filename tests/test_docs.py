"""The documentation keeps up: every pass has a page and a place in the list, links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from crossrank.passes import all_passes, all_pipelines

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


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_the_source_has_no_page_too_many() -> None:
    pages = {p.stem for p in (ROOT / "docs" / "passes").glob("*.md")} - {"README"}
    assert pages == set(all_passes())
