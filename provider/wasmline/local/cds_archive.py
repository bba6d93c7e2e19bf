"""The CDS archive of this machine's Spark: class data sharing (JEP 350), with which its JVMs start sooner.

``python -m wasmline.local.cds_archive`` writes it into the environment of that Python: half a minute, 150 MB. An
archive is of one Java and of one Spark in its place; with others a JVM starts as without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from wasmline.errors import PrerequisiteMissing, ServiceFailed
from wasmline.local.installed_spark import INSTALL, spark_home, spark_release
from wasmline.local.jvm import find_java

APPLICATION = Path(__file__).with_name("cds_archive_application.py")
"""A Spark application that loads the classes."""

TIMEOUT_S = 300.0

SILENT = "-Xlog:cds*=off"
"""Of classes that cannot be archived, and of an archive that does not fit."""


def cds_archive() -> Path:
    """Return the path of the archive in this environment. Raises PrerequisiteMissing without Java or Spark."""
    return Path(sys.prefix) / f"spark-{spark_release()}-java-{find_java().version}.jsa"


def cds_archive_options() -> str:
    """Return the options with which Spark's JVMs use the archive, for SPARK_SUBMIT_OPTS; none where there is none."""
    try:
        archive = cds_archive()
    except PrerequisiteMissing:
        return ""
    return f"-XX:SharedArchiveFile={archive} {SILENT}" if archive.exists() else ""


def write_cds_archive() -> Path:
    """Run a small Spark application, write its classes into the archive, and return the path.

    Raises ServiceFailed with the application's log, PrerequisiteMissing without Java or Spark.
    """
    home, archive = spark_home(), cds_archive()
    if home is None:
        raise PrerequisiteMissing(f"there is no Spark on this machine: {INSTALL}", install=INSTALL)
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        written = Path(folder, archive.name)
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": f"-XX:TieredStopAtLevel=1 -XX:ArchiveClassesAtExit={written} {SILENT}",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONSAFEPATH": "1",
        }
        command = [str(home / "bin" / "spark-submit"), "--conf", "spark.ui.enabled=false", str(APPLICATION)]
        try:
            ended = subprocess.run(
                command,
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=TIMEOUT_S,
            )
        except subprocess.TimeoutExpired as error:
            raise ServiceFailed(f"Spark did not end within {TIMEOUT_S:.0f} s", log=str(error.stdout)) from error
        if ended.returncode or not written.exists():
            raise ServiceFailed(f"Spark wrote no CDS archive (exit status {ended.returncode})", log=ended.stdout)
        return written.replace(archive)


if __name__ == "__main__":
    try:
        write_cds_archive()
        sys.stdout.write(f"SPARK_SUBMIT_OPTS={cds_archive_options()}\n")
    except (PrerequisiteMissing, ServiceFailed) as error:
        sys.exit(f"{error}\n{getattr(error, 'log', '')}")
