import importlib
import logging
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from wasmline import __version__
from wasmline.cli import COMMANDS, Failure, TerminalFormatter, main
from wasmline.cli.table import aligned
from wasmline.errors import BuildFailed, SampleMismatch
from wasmline.printable import printable


def test_help_names_every_command_and_imports_none_of_them() -> None:
    program = """
import sys
from pathlib import Path
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


HOSTILE = "a driver\x1b[2J met \u202ea\nWARNING of nobody"
ESCAPED = "a driver\\u001b[2J met \\u202ea\\u000aWARNING of nobody"

LOGS = f"""
import click, logging, sys
from wasmline.cli import main
from wasmline.errors import InvalidLayout

@main.command("log")
def log():
    logging.getLogger("fsspec").warning("%s", {HOSTILE!r})
    raise InvalidLayout({HOSTILE!r}, path="x")

main.get_command = lambda *_: log
main(sys.argv[1:])
"""


@pytest.mark.parametrize("options", [[], ["--debug"]])
def test_what_a_library_logs_commands_no_terminal(options: list[str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LOGS, *options, "log"], capture_output=True, text=True, check=False, timeout=60
    )
    logged = ended.stderr.splitlines()
    assert logged[0].removeprefix("WARNING fsspec: ") == ESCAPED
    assert logged[-1] == f"wasmline: {ESCAPED}"
    assert ("Traceback (most recent call last):" in logged) == bool(options)
    assert all(line.isprintable() for line in logged)


def test_a_logged_traceback_keeps_its_lines_and_commands_no_terminal() -> None:
    try:
        raise LookupError(HOSTILE)
    except LookupError:
        record = logging.LogRecord("x", logging.ERROR, "x", 1, HOSTILE, (), sys.exc_info())
    first, second, *rest = TerminalFormatter().format(record).splitlines()
    assert (first, second) == (ESCAPED, "Traceback (most recent call last):")
    assert all(line.isprintable() for line in rest)


@pytest.mark.parametrize(
    "error", [BuildFailed("failed\x1b[2J", log="a\x1b[2J\n\tb"), SampleMismatch("failed\x1b[2J", diff="a\x1b[2J\n\tb")]
)
def test_a_log_or_a_diff_keeps_its_lines_and_commands_no_terminal(
    error: BuildFailed | SampleMismatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Failure(error).show()
    assert capsys.readouterr().err == "a\\u001b[2J\n\tb\nwasmline: failed\\u001b[2J\n"


def test_columns_hold_what_can_be_printed() -> None:
    assert aligned([["NAME", "TOPIC"], ["a\x1b[2J", "b\nc"]]).splitlines() == [
        "NAME        TOPIC",
        "a\\u001b[2J  b\\u000ac",
    ]
    assert printable("é → \u202e\t\n") == "é → \\u202e\\u0009\\u000a"


def test_without_a_home_folder_a_registry_is_to_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WASMLINE_REGISTRY", raising=False)
    monkeypatch.setattr(Path, "home", fail_without_home)
    result = CliRunner().invoke(main, ["inspect", "distance@1.0.0"])
    assert result.exit_code == 2
    assert "no home folder is known: set a registry by --registry or $WASMLINE_REGISTRY" in result.output


def fail_without_home() -> Path:
    raise RuntimeError("Could not determine home directory.")
