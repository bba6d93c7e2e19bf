"""Runs of pytest over a folder of its own, for tests of what the suite's run is made of."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]


def environment() -> dict[str, str]:
    """Return this process's environment for a run of its own: it finds ``support``, and has no options of this run."""
    own = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, sys.path)])}
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"):
        own.pop(name, None)
    return own


def command(folder: Path, options: str) -> list[str]:
    (folder / "pytest.ini").write_text("[pytest]\n")
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options.split(), str(folder)]


def output(folder: Path, options: str) -> str:
    run = subprocess.run(
        command(folder, options), cwd=folder, env=environment(), capture_output=True, text=True, timeout=120
    )
    return run.stdout
