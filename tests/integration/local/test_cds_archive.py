"""The archive of Spark's classes with which its JVMs start, as the installation has written it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wasmline.errors import ServiceFailed
from wasmline.local.cds_archive import cds_archive_options, write_cds_archive
from wasmline.local.installed_spark import spark_home, spark_release


def spark_version(*options: str) -> subprocess.CompletedProcess[str]:
    """Ask a JVM of Spark, which ends at once where it cannot use the archive of its options."""
    home = spark_home()
    assert home is not None
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": " ".join(["-Xshare:on", *options])}
    command = [str(home / "bin" / "spark-submit"), "--version"]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_sparks_jvms_use_the_archive() -> None:
    if not cds_archive_options():  # the installation has written it, unless it had no uv
        write_cds_archive()
    asked = spark_version(cds_archive_options())
    assert asked.returncode == 0
    assert f"version {spark_release()}" in asked.stderr
    assert spark_version("-XX:SharedArchiveFile=/nowhere.jsa").returncode != 0


def test_a_spark_that_does_not_start_leaves_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, prefix = tmp_path / "spark", tmp_path / "environment"
    for folder in (home / "bin", home / "jars", prefix):
        folder.mkdir(parents=True)
    (home / "jars" / "spark-core_2.13-4.2.0.jar").touch()
    program = home / "bin" / "spark-submit"
    program.write_text("#!/bin/sh\necho no memory; exit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.setattr(sys, "prefix", str(prefix))
    with pytest.raises(ServiceFailed, match="exit status 3") as failed:
        write_cds_archive()
    assert failed.value.log == "no memory\n"
    assert list(prefix.iterdir()) == []
    assert cds_archive_options() == ""


def test_without_java_there_is_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert cds_archive_options() == ""
