"""Says what this machine lacks, with the line that installs it, before anything is downloaded. Runs on any Python 3."""

import os
import re
import shutil
import subprocess
import sys

PYTHON = (3, 11)
OTHER_PYTHON = "Python {}.{} is too old, Wasmline needs 3.11 or newer: install it, then make PYTHON=python3.11 ..."
NO_VENV = "this Python cannot make virtual environments. Debian, Ubuntu: apt-get install python3-venv"
JAVA = 17
JDK = (
    "Kafka and Spark need a JDK >= 17. Debian, Ubuntu: apt-get install openjdk-17-jdk-headless; "
    "Fedora: dnf install java-17-openjdk-devel; macOS: brew install openjdk@17"
)


def missing():
    """Yield one sentence for each thing that is absent or too old."""
    if sys.version_info < PYTHON:
        yield OTHER_PYTHON.format(*sys.version_info[:2])
    try:
        import ensurepip  # noqa: F401
    except ImportError:
        yield NO_VENV
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None or not os.path.exists(java):
        yield "no java on the PATH or in JAVA_HOME. " + JDK
        return
    text = subprocess.run([java, "-version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout.decode()
    version = re.search(r'version "(\d+)', text)
    if not version or int(version.group(1)) < JAVA:
        yield "java is too old ({}). {}".format(text.splitlines()[0], JDK)


if __name__ == "__main__":
    problems = list(missing())
    for problem in problems:
        print("missing: " + problem, file=sys.stderr)
    sys.exit(1 if problems else 0)
