import importlib
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from wasmline import __version__
from wasmline.cli import COMMANDS, main


def test_help_names_every_command_and_imports_none_of_them() -> None:
    program = """
import sys
from wasmline.cli import main
try:
    main(["--help"])
finally:
    heavy = {"wasmtime", "pyarrow", "confluent_kafka", "yaml", "fsspec", "rich", "msgspec"} & set(sys.modules)
    print("loaded:", sorted(heavy), [name for name in sys.modules if name.startswith("wasmline.cli.")])
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert "loaded: [] []" in ended.stdout
    for name, (_, summary) in COMMANDS.items():
        assert name in ended.stdout
        assert summary in ended.stdout


@pytest.mark.parametrize("place", [place for place, _ in COMMANDS.values()])
def test_every_command_is_where_the_table_says(place: str) -> None:
    module, _, attribute = place.partition(":")
    assert isinstance(getattr(importlib.import_module(module), attribute), click.Command)


def test_the_version_is_printed() -> None:
    assert CliRunner().invoke(main, ["--version"]).output == f"wasmline, version {__version__}\n"


def test_an_unknown_command_is_wrong_usage() -> None:
    assert CliRunner().invoke(main, ["bild"]).exit_code == 2


def test_an_error_is_one_line_on_stderr_and_exit_status_1(tmp_path: object) -> None:
    result = CliRunner().invoke(main, ["build", str(tmp_path)])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("wasmline: ")
    assert result.stderr.count("\n") == 1


def test_debug_shows_where_an_error_comes_from(tmp_path: object) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "wasmline.cli", "--debug", "build", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 1
    assert "Traceback" in ended.stderr
    assert "InvalidProject" in ended.stderr
