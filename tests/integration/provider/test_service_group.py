"""Nothing outlives a service group: not its services, not what left their sessions, however its owner ends."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from wasmline_provider.local import service_group

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux hands orphans to a child subreaper")

SERVICE = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time, os; print(os.getpid(), flush=True); time.sleep(600)"],
                 start_new_session=True)
time.sleep(600)
"""
OWNER = """
import os, subprocess, sys, time
subprocess.Popen([sys.executable, sys.argv[1], sys.argv[2], str(os.getpid())], start_new_session=True)
time.sleep(600)
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    service = service_group.ServicePlan(command=[sys.executable, "-c", SERVICE], log=str(tmp_path / "service.log"))
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(service_group.Plan(environment=dict(os.environ), services=[service])))
    return path


def stray(plan: Path) -> psutil.Process:
    """Return the process that left its service's session, once it runs."""
    log = plan.with_name("service.log")
    deadline = time.monotonic() + 30
    while not (log.exists() and log.read_text().endswith("\n")):
        assert time.monotonic() < deadline, "the service did not start"
        time.sleep(0.05)
    return psutil.Process(int(log.read_text()))


def gone(process: psutil.Process) -> bool:
    try:
        process.wait(30)
    except psutil.TimeoutExpired:
        return False
    return True


def test_a_killed_owner_takes_everything_along(plan: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, service_group.__file__, str(plan)])
    left = stray(plan)
    owner.kill()
    owner.wait()
    assert gone(left)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGUSR1, 0)])
def test_a_service_group_that_is_told_to_end_leaves_nothing(plan: Path, number: signal.Signals, status: int) -> None:
    kept = subprocess.Popen([sys.executable, service_group.__file__, str(plan), str(os.getpid())])
    left = stray(plan)
    kept.send_signal(number)
    assert kept.wait(30) == status
    assert gone(left)


def test_a_service_that_ends_by_itself_ends_the_others_with_a_failure(plan: Path) -> None:
    written = json.loads(plan.read_text())
    written["services"].append({"command": [sys.executable, "-c", "input()"], "log": str(plan.with_suffix(".log"))})
    plan.write_text(json.dumps(written))
    kept = subprocess.Popen([sys.executable, service_group.__file__, str(plan), str(os.getpid())])
    assert kept.wait(30) == 1
