"""The tests of the long form are run by a target of the Makefile."""

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
MAKEFILE = (REPOSITORY / "Makefile").read_text()
FILES = sorted(
    path.relative_to(REPOSITORY)
    for path in (REPOSITORY / "tests").rglob("test_*.py")
    if path != Path(__file__) and "mark.long" in path.read_text()
)


@pytest.mark.parametrize("file", FILES, ids=str)
def test_a_file_with_long_tests_or_its_folder_is_named_by_a_target(file: Path) -> None:
    assert any(f" {place} " in MAKEFILE.replace("\n", " ") for place in (file, file.parent))
