"""The dead man's switch of a task, on processes of its own."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROVIDER = Path(__file__).parents[3] / "provider"

BEGIN = """
import ctypes, os, signal, threading, time
from wasmline.spark.parallel.process_watchdog import under_watchdog

def beats(beat, work):
    until = time.monotonic() + work
    while True:
        beat(until - time.monotonic())
        time.sleep(0.05)

"""
FOR_EVER = 60

KILLED = {
    "says nothing": "with under_watchdog(1.0) as beat: beat(60); time.sleep(60)",
    "takes too long": "with under_watchdog(20.0) as beat: beats(beat, 1.0)",
    "is frozen": """
with under_watchdog(1.0) as beat:
    beat(60)
    threading.Thread(target=beats, args=(beat, 60), daemon=True).start()
    os.kill(os.getpid(), signal.SIGSTOP)
""",
    "holds the lock of the interpreter": """
with under_watchdog(1.0) as beat:
    beat(60)
    threading.Thread(target=beats, args=(beat, 60), daemon=True).start()
    ctypes.PyDLL(None).sleep(60)
""",
}


def run(code: str) -> int:
    """Return the exit status of a process that runs the code."""
    environment = {**os.environ, "PYTHONPATH": str(PROVIDER)}
    return subprocess.run(
        [sys.executable, "-c", BEGIN + code], env=environment, timeout=FOR_EVER, check=False
    ).returncode


@pytest.mark.parametrize("code", KILLED.values(), ids=KILLED)
def test_a_process_that_gives_no_sign_of_life_or_takes_too_long_is_killed(code: str) -> None:
    assert run(code) == -signal.SIGKILL


def test_a_process_is_watched_only_while_it_works() -> None:
    assert (
        run("with under_watchdog(1.0) as beat: beat(60)\ntime.sleep(2)\nwith under_watchdog(1.0) as beat: beat(60)")
        == 0
    )
