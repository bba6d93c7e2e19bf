"""The tests of the long form are run by a target of the Makefile."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

MAKEFILE = (REPOSITORY / "Makefile").read_text().replace("\\\n", " ")

RECIPES = re.findall(r"^\t.*", MAKEFILE, re.MULTILINE)

LISTS = dict(re.findall(r"^(\w+) := (.*)", MAKEFILE, re.MULTILINE))

LEFT_OUT = [*LISTS["CHAOS"].split(), *LISTS["OTHER_LONG_FORMS"].split()]
"""What `make test-long` leaves to other targets."""


def left_out() -> list[Path]:
    """Return the files that have long tests, and that `make test-long` leaves to other targets."""
    files = {file for place in LEFT_OUT for file in [REPOSITORY / place, *(REPOSITORY / place).rglob("test_*.py")]}
    long = (file for file in files if file.is_file() and "mark.long" in file.read_text())
    return sorted(file.relative_to(REPOSITORY) for file in long)


@pytest.mark.parametrize("place", LEFT_OUT)
def test_what_is_left_out_is_there(place: str) -> None:
    assert (REPOSITORY / place).exists()


@pytest.mark.parametrize("file", left_out(), ids=str)
def test_a_file_with_long_tests_that_is_left_out_is_run_by_another_target(file: Path) -> None:
    run = [place for recipe in RECIPES if "-m long" not in recipe for place in recipe.split()]
    chaos = LISTS["CHAOS"].split() if "$(CHAOS)" in run else []
    assert {str(file), str(file.parent)} & {*run, *chaos}
