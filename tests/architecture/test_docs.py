"""The tests that the documentation names are there, and so is what its links lead to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
ROOMS = sorted((ROOT / "provider").rglob("README.md"))
OTHERS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "wasm_modules/ABI.md")]
LINKING = [*PAGES, *ROOMS, *OTHERS]
LINK = re.compile(r"\]\((?!https?:)([^)\s]+)\)")
NAMED = re.compile(r"`(tests/[\w/.]+)`|`(test_\w+)`")
DEFINED = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)


@pytest.fixture(scope="module")
def tests() -> set[str]:
    return {name for path in ROOT.glob("tests/**/test_*.py") for name in DEFINED.findall(path.read_text())}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_test_that_a_page_names_is_there(page: Path, tests: set[str]) -> None:
    named = NAMED.findall(page.read_text())
    assert not [path for path, _ in named if path and not (ROOT / path).exists()]
    assert not [test for _, test in named if test and test not in tests]


def anchors(page: Path) -> set[str]:
    """Return what GitHub lets links to the headings of a page end in."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_of_a_page_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


def test_each_page_can_be_reached_from_the_index() -> None:
    reached = {ROOT / "docs" / "README.md"}
    waiting = list(reached)
    while waiting:
        page = waiting.pop()
        linked = {(page.parent / target.partition("#")[0]).resolve() for target in LINK.findall(page.read_text())}
        new = {each for each in linked if each.suffix == ".md" and each.is_file()} - reached
        reached |= new
        waiting += new
    assert not set(PAGES) - reached


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_module_that_a_page_names_is_there(page: Path) -> None:
    for path in re.findall(r"`([a-z]\w*(?:/\w+)+\.py)`", page.read_text()):
        places = [page.parent, ROOT, ROOT / "provider", ROOT / "provider/wasmline", ROOT / "dags"]
        assert any((place / path).exists() for place in places), path


@pytest.mark.parametrize("page", ROOMS, ids=lambda page: page.parent.name)
def test_a_package_says_what_each_of_its_modules_has(page: Path) -> None:
    table = page.read_text().partition("## In the order in which to read it")[2].partition("\n## ")[0]
    named = re.findall(r"`([\w/]+(?:\.py|/))`", table)
    folders = tuple(name for name in named if name.endswith("/"))
    files = {str(path.relative_to(page.parent)) for path in page.parent.rglob("*.py") if path.name != "__init__.py"}
    assert sorted(named) == sorted([*folders, *(file for file in files if not file.startswith(folders))])
    assert all((page.parent / folder).is_dir() for folder in folders)


def test_each_sentence_of_the_guarantees_names_what_holds_it() -> None:
    """A sentence ends in footnotes, and a footnote names tests, unless it says that there is nothing to hold."""
    text, *notes = re.split(r"^\[\^([\w-]+)\]: ", (ROOT / "docs" / "guarantees.md").read_text(), flags=re.MULTILINE)
    held = dict(zip(notes[::2], notes[1::2], strict=True))
    prose = re.sub(r"^(?:#|\|).*$", "", text, flags=re.MULTILINE)
    prose = re.sub(r"(\*+)[^*]+\.\1(?=\s)", "", prose)
    assert not re.findall(r"[^.\]]*\.[)*]*(?=\s)", prose), "sentences without a footnote"
    assert set(re.findall(r"\[\^([\w-]+)\]", prose)) == set(held)
    assert [name for name, note in held.items() if not NAMED.search(note)] == ["advice", "open"]
