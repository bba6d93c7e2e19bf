"""Environments made from the built wheel, by uv."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
UV = Path(sys.executable).with_name("uv")
TEST_DEPENDENCIES = (
    "greenlet",
    "hypothesis",
    "jsonschema",
    "pytest",
    "pytest-rerunfailures",
    "pytest-timeout",
    "pytest-xdist",
    "trustme",
)


def run(*command: str | Path) -> str:
    """Return the output of a command; raise RuntimeError with it if the command fails."""
    ended = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{ended.stdout}")
    return ended.stdout


def build_wheel(folder: Path) -> Path:
    """Return the wheel of this checkout, built with the hatchling of this environment."""
    run(sys.executable, "-c", f"from hatchling.build import build_wheel; build_wheel({str(folder)!r})")
    (wheel,) = folder.glob("*.whl")
    return wheel


def make_environment(folder: Path, python: str, requirements: Sequence[str], constraints: str = "") -> Path:
    """Return the Python of a new environment with these requirements, whose versions are compatible."""
    run(UV, "venv", "--quiet", "--no-config", "--clear", "--python", python, folder)
    interpreter = folder / "bin" / "python"
    options = ["--constraints", constraints] if constraints else []
    run(UV, "pip", "install", "--quiet", "--no-config", "--python", interpreter, *options, *requirements)
    run(UV, "pip", "check", "--no-config", "--python", interpreter)
    return interpreter


def newest(requirement: str) -> str:
    """Return the newest version that a requirement allows."""
    command: list[str | Path] = [UV, "pip", "compile", "--quiet", "--no-config", "--no-deps", "--no-header", "-"]
    found = subprocess.run(command, input=requirement, capture_output=True, text=True, check=True).stdout
    version = re.match(r"[\w-]+==(\S+)", found)
    assert version, found
    return version[1]


def variables(interpreter: Path) -> dict[str, str]:
    """Return the variables of a process in an environment: nothing of this one's Python or Spark."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK_"))}
    return {**kept, "PATH": f"{interpreter.parent}{os.pathsep}{os.environ['PATH']}"}
