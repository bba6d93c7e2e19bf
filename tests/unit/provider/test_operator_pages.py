"""The pages of operators are what the code is: examples, arguments, results, errors, links."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest
from airflow.sdk import BaseOperator
from airflow.triggers.base import BaseEventTrigger

from support.operator_pages import BLOCK, DOCS, example, filled
from wasmline import errors
from wasmline.restart_policy import is_transient
from wasmline_provider.get_provider_info import get_provider_info
from wasmline_provider.operators.multiple_outputs import MultipleOutputsOperator
from wasmline_provider.operators.user_action import UserActionOperator
from wasmline_provider.triggers.polling import PollingEventTrigger

PAGES = sorted((DOCS / "operators").glob("*.md"))
FILLED = [page for page in sorted(DOCS.rglob("*.md")) if BLOCK.search(page.read_text())]
SECTIONS = ["When to use", "Example", "Arguments", "Result", "Errors", "Access"]
BASES = {MultipleOutputsOperator, UserActionOperator, PollingEventTrigger}
OVERVIEW = (DOCS / "operators.md").read_text()

INFO = get_provider_info()
DESCRIBED = [
    found
    for kind in ("operators", "sensors", "triggers")
    for integration in INFO[kind]
    for module in integration["python-modules"]
    for found in vars(import_module(module)).values()
    if inspect.isclass(found) and issubclass(found, BaseOperator | BaseEventTrigger) and found.__module__ == module
    if not found.__name__.startswith("_") and found not in BASES
]


def section(page: Path, name: str) -> str:
    return page.read_text().partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def page_of(described: type) -> Path:
    block = f"<!-- arguments: {described.__module__}.{described.__name__} -->"
    (page,) = [page for page in PAGES if block in page.read_text()]
    return page


@pytest.mark.parametrize("page", FILLED, ids=lambda page: page.stem)
def test_a_block_of_a_page_is_as_the_code_is(page: Path) -> None:
    text = page.read_text()
    assert filled(text) == text, "make docs fills it"


def test_a_statement_that_is_not_there_or_twice_is_named() -> None:
    for name in ("no_such_task", "pause"):
        with pytest.raises(LookupError, match=rf"on_call\.py has \d statements that make {name}, not one"):
            example("dags/on_call.py", name)


@pytest.mark.parametrize("described", DESCRIBED, ids=lambda described: described.__name__)
def test_each_operator_sensor_and_trigger_has_a_page_to_which_the_overview_leads(described: type) -> None:
    page = page_of(described)
    if described.__name__ == "SparkJobOperator":
        assert f"({page.relative_to(DOCS)})" in OVERVIEW
        return
    link = f"[`{described.__name__}`]({page.relative_to(DOCS)})"
    (row,) = [line for line in OVERVIEW.splitlines() if line.startswith("|") and link in line.split(" | ")[0]]
    assert f"`{described.__module__}`" in row


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_each_section(page: Path) -> None:
    found = re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE)
    assert found == ([*SECTIONS[2:]] if page.stem == "job" else SECTIONS)


@pytest.mark.parametrize(
    "operator", [each for each in DESCRIBED if issubclass(each, BaseOperator)], ids=lambda operator: operator.__name__
)
def test_a_page_has_the_keys_of_the_result(operator: type[MultipleOutputsOperator]) -> None:
    text = section(page_of(operator), "Result")
    assert not [key for key in operator.output_keys if f"`{key}`" not in text]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_an_error_of_a_page_is_there_and_retried_as_it_says(page: Path) -> None:
    rows = re.findall(r"^\| (.+) \| .+ \| (.+) \|$", section(page, "Errors"), re.MULTILINE)
    assert rows
    for names, retried in rows:
        for name in re.findall(r"\[`(\w+)`\]", names):
            assert hasattr(errors, name), name
            assert f"](../troubleshooting.md#{name.lower()})" in names
            if retried in ("yes", "no"):
                assert is_transient(name) is (retried == "yes"), name
            else:
                assert retried.startswith(("yes, ", "no, ")), retried
