"""Earlier module paths and names lead to those of today, and the table of the documentation is that of the code."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from wasmline import renames

PAGE = (Path(__file__).parents[2] / "docs" / "renames.md").read_text()
ROWS = re.findall(r"^\| `([\w.]+)` \| `([\w.]+)` \|(.*)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("earlier", renames.MODULES)
def test_an_earlier_path_is_the_module_of_today(earlier: str) -> None:
    module, today = importlib.import_module(earlier), importlib.import_module(renames.MODULES[earlier])
    for name in vars(today):
        if not name.startswith("__"):
            assert getattr(module, name) is getattr(today, name)


@pytest.mark.parametrize("earlier", renames.NAMES)
def test_an_earlier_name_is_what_has_another_name_today(earlier: str) -> None:
    module = importlib.import_module(earlier)
    for name, today in renames.NAMES[earlier].items():
        home, _, attribute = today.rpartition(":")
        found = importlib.import_module(home or renames.MODULES.get(earlier, earlier))
        assert getattr(module, name) is getattr(found, attribute)


def test_a_name_that_never_was_is_named() -> None:
    for module in ("wasmline.kafka", "wasmline.consumer.memory"):
        with pytest.raises(AttributeError, match="nobody"):
            importlib.import_module(module).nobody  # noqa: B018


def test_the_page_has_what_can_be_imported() -> None:
    shown = {earlier: (today, dict(re.findall(r"`(\w+)` → `([\w.:]+)`", names))) for earlier, today, names in ROWS}
    for earlier in {*renames.MODULES, *renames.NAMES}:
        assert shown[earlier] == (renames.MODULES.get(earlier, earlier), renames.NAMES.get(earlier, {}))


def test_every_module_that_the_page_leads_to_is_there() -> None:
    folders = [Path(__file__).parents[2] / folder for folder in ("provider", "dags")]
    for _, today, _ in ROWS:
        path = Path(*today.split("."))
        assert any((folder / path).is_dir() or (folder / path).with_suffix(".py").exists() for folder in folders), today
