"""``wasmline launcher`` where it cannot start."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from wasmline.cli import main


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([], 2, "Missing option '--name'"),
        (["--name", "a/b", "-X", "bootstrap.servers=127.0.0.1:9"], 1, "'a/b' is not a launcher's name"),
    ],
)
def test_a_launcher_without_a_name_does_not_start(arguments: list[str], status: int, message: str) -> None:
    result = CliRunner().invoke(main, ["launcher", *arguments])
    assert result.exit_code == status
    assert message in result.output


def test_the_help_says_what_outlives_a_launcher() -> None:
    assert "Drivers outlive this process" in CliRunner().invoke(main, ["launcher", "--help"]).output
