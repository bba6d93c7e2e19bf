"""Finds the Spark of this machine: its folder, its release, and whether its Python files are of one release."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from wasmline.errors import PrerequisiteMissing

INSTALL = "pip install 'wasmline[spark]'"

CORE = re.compile(r"spark-core_[\d.]+-(?P<release>\d+\.\d+\.\d+).*\.jar")
"""The jar whose name has Spark's release, in each of its distributions."""

BANNER = re.compile(r"_\\\s+version (?P<release>\d+\.\d+\.\d+)")
"""What ``spark-submit --version`` prints beside Spark's name; Scala's version is in another line."""

VERSION_TIMEOUT_S = 60.0

DISTRIBUTIONS = ("pyspark", "pyspark-client")
"""Both own the folder ``pyspark``; Airflow's provider needs the second, and no resolver knows that they share files."""


def spark_home() -> Path | None:
    """Return $SPARK_HOME, else the Spark of this environment's PySpark, else that of the PATH, else None.

    Raises PrerequisiteMissing for a PySpark with files of two releases.
    """
    packaged = packaged_spark()
    if asked := os.environ.get("SPARK_HOME"):
        if packaged and Path(asked).resolve().is_relative_to(packaged.resolve()):
            require_one_pyspark()
        return Path(asked)
    if packaged:
        require_one_pyspark()
        return packaged
    program = shutil.which("spark-submit")
    home = Path(program).resolve().parents[1] if program else None
    return home if home and (home / "jars").is_dir() else None


def packaged_spark() -> Path | None:
    """Return the Spark in this environment's PySpark, None without one."""
    spec = find_spec("pyspark")
    folders = map(Path, spec.submodule_search_locations or () if spec else ())
    return next((folder for folder in folders if (folder / "bin" / "spark-submit").exists()), None)


def spark_release(home: Path | None = None) -> str:
    """Return the release of a Spark, by default of this machine's, such as 4.2.0. Raises PrerequisiteMissing.

    Its jars name it; where a distribution has them elsewhere, its spark-submit is asked once.
    """
    home = home or spark_home()
    found = [match for jar in home.glob("jars/*.jar") if (match := CORE.fullmatch(jar.name))] if home else []
    if found:
        return found[0]["release"]
    program = str(home / "bin" / "spark-submit") if home else shutil.which("spark-submit")
    if program and Path(program).is_file():
        return _printed_release(program)
    where = f"no jars of Spark in {home}/jars, and no {program}" if home else "no Spark on this machine"
    raise PrerequisiteMissing(f"{where}: {INSTALL}, or set SPARK_HOME", install=INSTALL)


@cache
def _printed_release(program: str) -> str:
    try:
        ended = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=VERSION_TIMEOUT_S,
        )
        printed = BANNER.search(ended.stdout)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PrerequisiteMissing(f"{program} --version failed: {error}: {INSTALL}", install=INSTALL) from error
    if printed is None:
        raise PrerequisiteMissing(f"{program} --version prints no release of Spark: {INSTALL}", install=INSTALL)
    return printed["release"]


def require_one_pyspark() -> None:
    """Raise PrerequisiteMissing if pyspark and pyspark-client are installed in different releases."""
    try:
        releases = [version(each) for each in DISTRIBUTIONS]
    except PackageNotFoundError:
        return
    if releases[0] != releases[1]:
        older = min(releases, key=_numbers)
        install = "pip install --force-reinstall --no-deps " + " ".join(f"{each}=={older}" for each in DISTRIBUTIONS)
        raise PrerequisiteMissing(
            f"pyspark {releases[0]} and pyspark-client {releases[1]} are installed, and have overwritten each other's "
            f"files: {install}",
            install=install,
        )


def _numbers(release: str) -> list[int]:
    return [int(each) for each in re.findall(r"\d+", release)]
