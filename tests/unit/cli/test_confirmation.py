"""Commands that change something at once ask at a terminal before."""

import os
import pty
import subprocess
import sys

import pytest

NOBODY = "bootstrap.servers=127.0.0.1:1"


@pytest.mark.parametrize("command", ["pause", "resume", "stop", "withdraw"])
def test_nothing_is_done_without_a_yes_at_a_terminal(command: str) -> None:
    owner, terminal = pty.openpty()
    try:
        os.write(owner, b"n\n")
        arguments = [sys.executable, "-m", "wasmline.cli", command, "name", "-X", NOBODY]
        done = subprocess.run(arguments, stdin=terminal, capture_output=True, text=True, timeout=60)
    finally:
        os.close(owner)
        os.close(terminal)
    assert done.returncode == 1
    assert " name? " in done.stderr
    assert done.stderr.endswith("[y/N]: Aborted!\n")
