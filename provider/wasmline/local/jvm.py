"""Finds the Java runtime of this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from wasmline.errors import PrerequisiteMissing

MIN_JAVA_VERSION = 17
"""The oldest Java for Kafka 4 and Spark 4."""

INSTALL = {
    "brew": "brew install openjdk@17 && export JAVA_HOME=$(brew --prefix openjdk@17)",
    "apt-get": "sudo apt-get install openjdk-17-jdk-headless || sudo apt-get install openjdk-21-jdk-headless",
    "dnf": "sudo dnf install java-21-openjdk-devel",
    "apk": "sudo apk add openjdk17",
    "pacman": "sudo pacman -S jdk17-openjdk",
    "zypper": "sudo zypper install java-17-openjdk-devel",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A runnable ``java`` and its major version."""

    path: Path
    version: int


def find_java() -> Java:
    """Return the Java of $JAVA_HOME, else of the PATH. Raises PrerequisiteMissing unless it is 17 or newer."""
    java = Java(path=(path := _locate()), version=_version(path))
    if java.version < MIN_JAVA_VERSION:
        raise _missing(f"{path} is Java {java.version}, but Java {MIN_JAVA_VERSION} or newer is needed")
    return java


def _locate() -> Path:
    if home := os.environ.get("JAVA_HOME"):
        path = Path(home) / "bin" / "java"
        if not os.access(path, os.X_OK):
            raise _missing(f"JAVA_HOME is {home}, but there is no program bin/java in it")
        return path
    found = shutil.which("java")
    if found is None:
        raise _missing("there is no java on the PATH and JAVA_HOME is not set")
    return Path(found)


def _version(path: Path) -> int:
    answer = subprocess.run([path, "-version"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    # 'openjdk version "17.0.15" ...'; before Java 9 it was "1.8.0_402".
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    if answer.returncode or match is None:
        raise _missing(f"{path} does not run: {answer.stderr.strip() or answer.stdout.strip()}")
    return int(match[1])


def _missing(what: str) -> PrerequisiteMissing:
    tool = next((tool for tool in INSTALL if shutil.which(tool)), None)
    install = INSTALL[tool] if tool else f"install a JDK {MIN_JAVA_VERSION} or newer and set JAVA_HOME to it"
    return PrerequisiteMissing(f"{what}. Install it with: {install}", install=install)
