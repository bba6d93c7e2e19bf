"""The tests that the documentation names are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
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
