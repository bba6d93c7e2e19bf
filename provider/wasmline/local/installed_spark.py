"""Finds the Spark of this machine: its folder, its release, and whether its Python files are of one release."""

from __future__ import annotations

import os
import re
import shutil
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from wasmline.errors import PrerequisiteMissing

INSTALL = "pip install 'wasmline[spark]'"

CORE = re.compile(r"spark-core_[\d.]+-(?P<release>\d+\.\d+\.\d+).*\.jar")
"""The jar whose name has Spark's release, in each of its distributions."""

DISTRIBUTIONS = ("pyspark", "pyspark-client")
"""Both own the folder ``pyspark``; Airflow's provider needs the second, and no resolver knows that they share files."""


def spark_home() -> Path | None:
    """Return $SPARK_HOME, else the Spark of this environment's PySpark, else that of the PATH, else None.

    Raises PrerequisiteMissing for a PySpark with files of two releases.
    """
    if asked := os.environ.get("SPARK_HOME"):
        return Path(asked)
    spec = find_spec("pyspark")
    for folder in map(Path, spec.submodule_search_locations or () if spec else ()):
        if (folder / "bin" / "spark-submit").exists():
            require_one_pyspark()
            return folder
    program = shutil.which("spark-submit")
    home = Path(program).resolve().parents[1] if program else None
    return home if home and (home / "jars").is_dir() else None


def spark_release(home: Path | None = None) -> str:
    """Return the release of a Spark, by default of this machine's, such as 4.2.0. Raises PrerequisiteMissing."""
    home = home or spark_home()
    found = [match for jar in home.glob("jars/*.jar") if (match := CORE.fullmatch(jar.name))] if home else []
    if not found:
        where = f"no jars of Spark in {home}/jars" if home else "no Spark on this machine"
        raise PrerequisiteMissing(f"{where}: {INSTALL}, or set SPARK_HOME", install=INSTALL)
    return found[0]["release"]


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
