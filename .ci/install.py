"""Installs the project and its locked dependencies into a virtual environment, and says what it is doing.

There is a line at least every five seconds: the last one of the tool that runs, whose whole output follows if it fails.
PySpark, which is built from its sources on one core, and an archive of Spark's classes come last: meanwhile the C++
toolchain compiles its standard library into the user's cache, as the first build of a transform would. Runs on the
standard library alone; `dags` must be on PYTHONPATH.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import partial

from demo_stack.progress_lines import ProgressLines

LOCK = "requirements.lock"
LAST = "pyspark"
PROJECT = ["--no-deps", "--no-build-isolation", "-e", "."]
LIBRARY = "compiling the C++ standard library for WebAssembly (once; about a minute of one core)"
ARCHIVE = "archiving Spark's classes for a faster start (once; about half a minute)"


def run(progress, what, command):
    """Run a command and return whether it succeeded; print its output if it did not."""
    progress.say(what)
    progress.wait_for(what)
    lines = []
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        for line in process.stdout:
            lines.append(line)
            if line.strip():
                progress.wait_for(f"{what}: {line.strip()}")
    if process.returncode != 0:
        print("".join(lines), file=sys.stderr, flush=True)
    return process.returncode == 0


def without(lock, name):
    """Return the text of a lock file without one of its packages."""
    return re.sub(rf"^{name}==.*\n(?:[ #].*\n)*", "", lock, flags=re.MULTILINE)


def install_with_uv(progress, folder, command, scratch):
    """Install everything, PySpark beside the first build of a C++ project; return whether it is installed."""
    most, project, log = (os.path.join(scratch, name) for name in (LOCK, "first", "build.log"))
    with open(LOCK) as lock, open(most, "w") as file:
        file.write(without(lock.read(), LAST))
    dependencies = f"installing the dependencies into {folder} (once; about a minute)"
    wasmline = os.path.join(folder, "bin", "wasmline")
    if not (
        run(progress, dependencies, [*command, "--no-deps", "--require-hashes", "-r", most])
        and run(progress, "installing the project", [*command, *PROJECT])
        and run(progress, "writing a first C++ project", [wasmline, "init", project])
    ):
        return False
    progress.say(LIBRARY)
    with (
        open(log, "w") as output,
        subprocess.Popen(
            [wasmline, "build", project], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        ) as compiling,
    ):
        is_installed = run(progress, "installing PySpark", [*command, "--no-deps", "--require-hashes", "-r", LOCK])
        if is_installed:  # whatever becomes of the archive
            run(progress, ARCHIVE, [os.path.join(folder, "bin", "python"), "-P", "-m", "wasmline.local.cds_archive"])
        progress.wait_for(LIBRARY)
    if compiling.returncode != 0:
        with open(log) as output:
            progress.say("the C++ toolchain does not work here:\n" + output.read())
    return is_installed


def install(progress, folder):
    """Make the environment if there is none, install everything into it, and return whether it is installed."""
    python = os.path.join(folder, "bin", "python")
    has_python = os.access(python, os.X_OK)
    if not has_python and not run(progress, f"making {folder}", [sys.executable, "-m", "venv", folder]):
        return False
    uv = shutil.which("uv") or os.path.join(folder, "bin", "uv")
    if os.access(uv, os.X_OK) or run(progress, "installing uv", [python, "-m", "pip", "install", "uv"]):
        with tempfile.TemporaryDirectory() as scratch:
            return install_with_uv(progress, folder, [uv, "pip", "install", "--python", python], scratch)
    pip = [python, "-m", "pip", "install"]
    return run(
        progress,
        "uv is not to be had: using pip, which takes about twice as long",
        [*pip, "--require-hashes", "-r", LOCK],
    ) and run(progress, "installing the project", [*pip, *PROJECT])


def main(folder):
    """Install into ``folder`` and return the exit status."""
    try:
        with ProgressLines(partial(print, flush=True)) as progress:
            if not install(progress, folder):
                return 1
            progress.say("installed")
            return 0
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
