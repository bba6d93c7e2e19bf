"""A run of the suite ends although one of its processes crashes."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import nested_pytest

CRASH = """
import os, pathlib, time

def test_crashes_once():
    crashed = pathlib.Path(__file__).with_suffix(".crashed")
    if not crashed.exists():
        crashed.touch()
        time.sleep({seconds})
        os._exit(1)
"""

SLOW_SUCCESSORS = """
import os, time

def pytest_collection_modifyitems(items):
    if os.environ.get("PYTEST_XDIST_WORKER", "gw0") not in ("gw0", "gw1"):
        time.sleep(3)
"""


def output_of_a_run(folder: Path, processes: int) -> str:
    scheduling = "-p support.file_scheduling --dist loadfile --no-loadscope-reorder"
    return nested_pytest.output(folder, f"{scheduling} -n {processes}")


@pytest.mark.parametrize(("processes", "files_after"), [(1, 1), (2, 0), (2, 10)])
def test_a_run_ends_although_one_of_its_processes_crashes(tmp_path: Path, processes: int, files_after: int) -> None:
    before = 20
    for number in range(before + files_after):
        (tmp_path / f"test_{number + 2 * (number >= before):02}.py").write_text("def test_passes(): pass")
    (tmp_path / f"test_{before:02}.py").write_text(CRASH.format(seconds=0))
    (tmp_path / f"test_{before + 1:02}.py").write_text("def test_passes(): pass")
    assert f"1 failed, {before + files_after + 2} passed" in output_of_a_run(tmp_path, processes)


def test_a_process_that_has_not_collected_is_given_nothing(tmp_path: Path) -> None:
    for number, seconds in enumerate((0, 2)):
        (tmp_path / f"test_{number:02}.py").write_text(CRASH.format(seconds=seconds))
    for number in range(2, 10):
        (tmp_path / f"test_{number:02}.py").write_text("def test_passes(): pass")
    (tmp_path / "conftest.py").write_text(SLOW_SUCCESSORS)
    assert "2 failed, 10 passed" in output_of_a_run(tmp_path, 2)
