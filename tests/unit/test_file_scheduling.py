"""A run of the suite ends although one of its processes crashes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

CRASH = """
import os, pathlib

def test_crashes_once():
    crashed = pathlib.Path(__file__).parent / "crashed"
    if not crashed.exists():
        crashed.touch()
        os._exit(1)
"""


@pytest.mark.parametrize(("processes", "files_after"), [(1, 1), (2, 0), (2, 10)])
def test_a_run_ends_although_one_of_its_processes_crashes(tmp_path: Path, processes: int, files_after: int) -> None:
    before = 20
    for number in range(before + files_after):
        (tmp_path / f"test_{number + 2 * (number >= before):02}.py").write_text("def test_passes(): pass")
    (tmp_path / f"test_{before:02}.py").write_text(CRASH)
    (tmp_path / f"test_{before + 1:02}.py").write_text("def test_passes(): pass")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    options = f"-q -p no:cacheprovider -p support.file_scheduling -n {processes} --dist loadfile --no-loadscope-reorder"
    command = [sys.executable, "-m", "pytest", *options.split(), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, sys.path)])}
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"):  # which are of this run
        environment.pop(name, None)
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert f"1 failed, {before + files_after + 2} passed" in run.stdout, run.stdout
