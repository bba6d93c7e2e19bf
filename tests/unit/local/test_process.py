from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from wasmline.local.process import Service, wait_until

pytestmark = pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="looks at processes in /proc, which is Linux only"
)

LONG = 60.0
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
)


def sleeper(mark: str, code: str = "import time; time.sleep(600)") -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code, mark]


def is_running(pid: int, mark: str) -> bool:
    return Service(pid, mark, detached=True).alive()


def service_pid(supervisor: int, mark: str) -> int:
    """The supervised process itself: the one with the mark whose parent is the supervisor."""
    found: list[int] = []

    def look() -> bool:
        children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        found[:] = [int(pid) for pid in children if is_running(int(pid), mark)]
        return bool(found)

    assert wait_until(look, LONG)
    return found[0]


def test_an_owned_service_ends_when_asked(tmp_path: Path) -> None:
    service = Service.start(sleeper("mark-1"), "mark-1", tmp_path / "log")
    pid = service_pid(service.pid, "mark-1")
    service.stop()
    assert not service.alive()
    assert service.status() == 128 + signal.SIGTERM
    assert not is_running(pid, "mark-1")


def test_a_service_that_ignores_the_request_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    service = Service.start(sleeper("mark-2", STUBBORN), "mark-2", log)
    assert wait_until(lambda: log.exists() and "ready" in log.read_text(), LONG)
    service.stop(grace=0.3)
    assert service.status() == 128 + signal.SIGKILL


def test_a_killed_service_is_gone_when_kill_returns(tmp_path: Path) -> None:
    service = Service.start(sleeper("mark-3"), "mark-3", tmp_path / "log")
    pid = service_pid(service.pid, "mark-3")
    service.kill()
    assert not Path(f"/proc/{pid}").exists()


def test_the_status_and_the_output_of_a_service_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "log"
    service = Service.start(sleeper("mark-4", "import sys; print('spoken'); sys.exit(7)"), "mark-4", log)
    assert service.wait(LONG)
    assert service.status() == 7
    assert log.read_text() == "spoken\n"


def test_stopping_twice_is_allowed(tmp_path: Path) -> None:
    service = Service.start(sleeper("mark-5"), "mark-5", tmp_path / "log")
    service.stop()
    service.stop()
    service.kill()
    assert not service.alive()


def test_a_service_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    services: list[Service] = []
    start = threading.Thread(
        target=lambda: services.append(Service.start(sleeper("mark-6"), "mark-6", tmp_path / "log"))
    )
    start.start()
    start.join()
    pid = service_pid(services[0].pid, "mark-6")
    assert not wait_until(lambda: not is_running(pid, "mark-6"), 0.7)
    services[0].stop()


def test_a_service_does_not_outlive_its_supervisor(tmp_path: Path) -> None:
    service = Service.start(sleeper("mark-7"), "mark-7", tmp_path / "log")
    pid = service_pid(service.pid, "mark-7")
    os.kill(service.pid, signal.SIGKILL)
    assert wait_until(lambda: not is_running(pid, "mark-7"), LONG)
    assert service.wait(LONG)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_service_ends_with_its_owner_even_when_a_fork_of_the_owner_lives_on(tmp_path: Path, number: int) -> None:
    # The fork keeps every pipe of its parent open, which is what a supervisor that waits for an end of file trips over.
    owner_code = """
import os, sys, time
from pathlib import Path
from wasmline.local.process import Service
command = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)", "mark-8"]
service = Service.start(command, "mark-8", Path(sys.argv[1]))
fork = os.fork()
if fork:
    print(service.pid, fork, flush=True)
time.sleep(600)
"""
    owner = subprocess.Popen(
        [sys.executable, "-c", owner_code, str(tmp_path / "log")], stdout=subprocess.PIPE, start_new_session=True
    )
    assert owner.stdout is not None
    supervisor, fork = map(int, owner.stdout.readline().split())
    owner.stdout.close()
    try:
        pid = service_pid(supervisor, "mark-8")
        os.kill(owner.pid, number)
        owner.wait()
        assert wait_until(lambda: not is_running(pid, "mark-8"), LONG)
        assert wait_until(lambda: not is_running(supervisor, "mark-8"), LONG)
    finally:
        os.kill(fork, signal.SIGKILL)


def test_a_detached_service_outlives_its_starter_and_can_be_stopped_by_another(tmp_path: Path) -> None:
    starter_code = """
import sys
from pathlib import Path
from wasmline.local.process import Service
command = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)", "mark-9"]
print(Service.detach(command, "mark-9", Path(sys.argv[1])).pid)
"""
    started = subprocess.run(
        [sys.executable, "-c", starter_code, str(tmp_path / "log")], stdout=subprocess.PIPE, check=True
    )
    service = Service(int(started.stdout), "mark-9", detached=True)
    assert service.alive()
    service.stop()
    assert not service.alive()


def test_a_number_that_belongs_to_another_process_is_never_taken_for_the_service() -> None:
    stranger = Service(os.getpid(), "no argument of this test run", detached=True)
    assert not stranger.alive()
    stranger.stop()
    stranger.kill()
