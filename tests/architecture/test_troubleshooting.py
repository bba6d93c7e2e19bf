"""The page of errors has each, and says of each whether it is retried."""

import re
from pathlib import Path

import pytest

from wasmline import errors
from wasmline.errors import WasmlineError
from wasmline.restart_policy import is_transient

PAGE = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text()
ENTRIES = dict(re.findall(r"^### (\w+)\n\n(.*?)(?=\n#|\Z)", PAGE, re.MULTILINE | re.DOTALL))
ERRORS = [
    name
    for name, found in vars(errors).items()
    if isinstance(found, type) and issubclass(found, WasmlineError) and not name.startswith("_")
]


def test_each_error_has_one_entry_and_no_entry_is_of_an_error_that_is_not_there() -> None:
    assert sorted(re.findall(r"^### (.+)$", PAGE, re.MULTILINE)) == sorted(ERRORS)


@pytest.mark.parametrize("name", ERRORS)
def test_an_entry_says_whether_the_error_is_retried_and_what_to_do(name: str) -> None:
    text = ENTRIES[name]
    assert text.startswith("*Retried.* " if is_transient(name) else "*Not retried.* ")
    assert "**Do:**" in text or "never raised itself" in text
