"""The files of the plugin's page: what they may not contain, and that each of them is used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

STATIC = Path(__file__).parents[3] / "provider/wasmline_provider/plugin/static"

MODULES = sorted(STATIC.rglob("*.js"))

MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|createContextualFragment|setHTML|DOMParser|document\.write|srcdoc:"
    r"|\beval\b|new Function|set(?:Timeout|Interval)\(\s*[\"'`]|javascript:|cssText"
)
"""What makes markup, or a script, of a string."""

IMPORT = re.compile(r'^(?:import|export)\b[^"]*?\bfrom "([^"]+)";$', re.MULTILINE)

MAX_LINES = 200


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(STATIC)))
class TestModule:
    def test_makes_no_markup_of_strings(self, module: Path) -> None:
        assert MARKUP.findall(module.read_text()) == []

    def test_names_no_address_of_another_server(self, module: Path) -> None:
        addresses = set(re.findall(r"\bhttps?://[^\s\"'`]+", module.read_text()))
        assert addresses <= {"http://www.w3.org/2000/svg"}  # a namespace

    def test_can_be_read_in_one_go(self, module: Path) -> None:
        lines = module.read_text().splitlines()
        assert len(lines) <= MAX_LINES
        assert max(map(len, lines)) <= 120

    def test_imports_files_of_the_page_and_names_each_of_its_imports(self, module: Path) -> None:
        text = module.read_text()
        for imported in IMPORT.findall(text):
            assert imported.startswith("."), imported
            assert (module.parent / imported).is_file(), imported
        for names in re.findall(r"^import \{([^}]+)\} from", text, re.MULTILINE):
            for name in names.split(","):
                assert len(re.findall(rf"\b{name.strip()}\b", text)) > 1, f"{name.strip()} is imported and not used"


def test_each_file_is_reached_from_the_page() -> None:
    page = STATIC / "page.html"
    reached = {page, STATIC / "icon_dark.svg"}  # the dark icon is named by the plugin
    waiting = [STATIC / name for name in re.findall(r'(?:src|href)="static/([^"]+)"', page.read_text())]
    while waiting:
        file = waiting.pop()
        if file not in reached:
            reached.add(file)
            waiting += [(file.parent / name).resolve() for name in IMPORT.findall(file.read_text())]
    assert reached == {path for path in STATIC.rglob("*") if path.is_file()}


def test_the_page_has_nothing_inline() -> None:
    text = (STATIC / "page.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", text) == []


def test_the_styles_load_nothing() -> None:
    for path in STATIC.glob("*.css"):
        assert re.findall(r"url\(|@import", path.read_text()) == []
