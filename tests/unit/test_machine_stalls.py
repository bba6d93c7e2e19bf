"""A test that fails is run again where the machine stood still meanwhile, and only there."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from support import nested_pytest

CONFTEST = """
import pytest
from support.machine_stalls import MachineStalls, rerun_after_stalls

stalls = MachineStalls(0.5, 0.0)

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    stalls.begin()

def pytest_collection_modifyitems(items):
    rerun_after_stalls(items, stalls)
"""

TEST = """
import pathlib, time

def test_fails_once():
    here = pathlib.Path(__file__).parent
    (here / "begun").touch()
    time.sleep(1.5)
    tried = here / "tried"
    assert tried.exists() or tried.touch()
"""


@pytest.mark.parametrize("stands_still", [True, False])
def test_a_failure_counts_unless_the_machine_stood_still(tmp_path: Path, stands_still: bool) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TEST)
    command, environment = nested_pytest.command(tmp_path, "-p no:xdist"), nested_pytest.environment()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment) as process:
        while not (tmp_path / "begun").exists():
            assert process.poll() is None
            time.sleep(0.01)
        if stands_still:
            process.send_signal(signal.SIGSTOP)
            time.sleep(1.5)
            process.send_signal(signal.SIGCONT)
        output, _ = process.communicate()
    assert ("1 passed, 1 rerun" in output) == stands_still, output
    assert process.returncode == (0 if stands_still else 1)
