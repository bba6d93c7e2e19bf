"""The installation of ``make``: it says what it waits for, and why it failed."""

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from demo_stack.progress_lines import ProgressLines

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def install() -> Any:
    spec = importlib.util.spec_from_file_location("install", REPOSITORY / ".ci" / "install.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def progress(lines: list[str]) -> ProgressLines:
    """Progress with a clock on which four seconds pass between any two looks."""
    now = iter(range(0, 4_000, 4))
    return ProgressLines(lines.append, lambda: float(next(now)))


def test_the_last_line_of_a_tool_is_what_is_waited_for(install: Any, progress: ProgressLines, lines: list[str]) -> None:
    assert install.run(progress, "installing", [sys.executable, "-c", "print('first\\n  Building pyspark\\n')"])
    progress.check()
    assert lines[0].endswith("installing")
    assert lines[-1].partition("] ")[2].startswith("installing: Building pyspark (")


def test_the_output_of_a_tool_that_fails_is_printed_whole(
    install: Any, progress: ProgressLines, capfd: pytest.CaptureFixture[str]
) -> None:
    failing = "import sys; print('one'); print('no such package', file=sys.stderr, flush=True); sys.exit(2)"
    assert not install.run(progress, "installing", [sys.executable, "-u", "-c", failing])
    assert capfd.readouterr().err == "one\nno such package\n\n"


def test_a_tool_that_succeeds_prints_nothing(
    install: Any, progress: ProgressLines, capfd: pytest.CaptureFixture[str]
) -> None:
    assert install.run(progress, "installing", [sys.executable, "-c", "print('Installed 230 packages')"])
    assert capfd.readouterr() == ("", "")


def test_the_last_package_alone_is_left_out_of_what_is_installed_first(install: Any) -> None:
    lock = (REPOSITORY / "requirements.lock").read_text()
    packages = re.findall(r"^([a-z0-9-]+)==", lock, re.MULTILINE)
    rest = install.without(lock, install.LAST)
    assert re.findall(r"^([a-z0-9-]+)==", rest, re.MULTILINE) == [each for each in packages if each != "pyspark"]
    assert rest.count("--hash=") < lock.count("--hash=")
