from __future__ import annotations

import hashlib
import os
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from wasmline.errors import PrerequisiteMissing
from wasmline.local import installed_spark, ivy, jar_lock, jars


def test_the_broker_is_locked_to_46_jars_of_one_kafka_release() -> None:
    locked = jar_lock.read(jars.KAFKA).jars
    assert len(locked) == 46
    releases = {jar.revision for jar in locked if jar.organisation == "org.apache.kafka"}
    assert releases == {jars.kafka_version()} == {"4.3.1"}


@pytest.mark.parametrize("minor", ["4.0", "4.1", "4.2"])
def test_the_connector_is_locked_for_each_minor_of_spark(minor: str) -> None:
    connector = {jar.module: jar.revision for jar in jar_lock.read(jars.CONNECTORS[minor]).jars}
    assert len(connector) == 4
    assert connector["spark-sql-kafka-0-10_2.13"] == f"{minor}.0"


def spark(folder: Path, release: str) -> Path:
    (folder / "jars").mkdir(parents=True)
    (folder / "jars" / f"spark-core_2.13-{release}.jar").touch()
    (folder / "jars" / "spark-core-extras.jar").touch()
    return folder


@pytest.mark.parametrize(("release", "minor"), [("4.0.4", "4.0"), ("4.1.2", "4.1"), ("4.2.1-vendor", "4.2")])
def test_the_connector_is_that_of_the_spark_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str, minor: str
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(spark(tmp_path, release)))
    monkeypatch.setattr(jars, "cached", lambda found: [Path(found.name)])
    assert jars.connector_jars() == [Path(f"connector-{minor}")]


def test_a_spark_without_a_connector_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(spark(tmp_path, "4.9.0")))
    with pytest.raises(
        PrerequisiteMissing, match=r"no Kafka connector here for Spark 4\.9\.0, only for 4\.0, 4\.1, 4\.2"
    ):
        jars.connector_jars()


def test_a_folder_without_sparks_jars_is_no_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(PrerequisiteMissing, match=r"no jars of Spark in .*pip install 'wasmline\[spark\]'"):
        installed_spark.spark_release()


BANNER = r"""
Welcome to
      ____              __
     / __/__  ___ _____/ /__
    _\ \/ _ \/ _ `/ __/  '_/
   /___/ .__/\_,_/_/ /_/\_\   version 4.1.1.3.5.7191.0-12
      /_/

Using Scala version 2.13.16, OpenJDK 64-Bit Server VM, 17.0.11
"""


def wrapper(folder: Path, text: str) -> Path:
    """Make a distribution with a script in the place of spark-submit, and its jars elsewhere."""
    program = folder / "bin" / "spark-submit"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{text}END\necho >> {folder}/calls\n")
    program.chmod(0o755)
    return folder


def test_a_spark_whose_jars_are_elsewhere_is_asked_for_its_release_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(wrapper(tmp_path, BANNER)))
    assert [installed_spark.spark_release() for _ in range(2)] == ["4.1.1", "4.1.1"]
    assert len((tmp_path / "calls").read_text()) == 1


def test_a_wrapper_of_the_path_is_asked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr(installed_spark, "packaged_spark", lambda: None)
    monkeypatch.setenv("PATH", f"{wrapper(tmp_path, BANNER)}/bin:{os.environ['PATH']}")
    assert installed_spark.spark_release() == "4.1.1"


def test_a_program_that_prints_no_release_is_no_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(wrapper(tmp_path, "Using Scala version 2.13.16\n")))
    with pytest.raises(PrerequisiteMissing, match="spark-submit --version prints no release"):
        installed_spark.spark_release()


def test_the_downloader_is_found_in_pyspark_beside_a_spark_home_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = tmp_path / "pyspark" / "jars" / "ivy-2.5.3.jar"
    jar.parent.mkdir(parents=True)
    jar.touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "gone"))
    monkeypatch.setattr(ivy, "packaged_spark", lambda: tmp_path / "pyspark")
    assert ivy._ivy_jar() == jar


def test_a_spark_home_in_the_package_is_checked_as_the_package_is(monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = installed_spark.packaged_spark()
    assert packaged is not None
    monkeypatch.setenv("SPARK_HOME", f"{packaged}/../pyspark")
    monkeypatch.setattr(installed_spark, "version", {"pyspark": "4.0.4", "pyspark-client": "4.2.0"}.__getitem__)
    with pytest.raises(PrerequisiteMissing, match="overwritten each other's"):
        installed_spark.spark_home()


@pytest.mark.parametrize(("pyspark", "client", "older"), [("4.0.4", "4.2.0", "4.0.4"), ("4.2.10", "4.2.9", "4.2.9")])
def test_a_pyspark_with_files_of_two_releases_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, pyspark: str, client: str, older: str
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr(installed_spark, "version", {"pyspark": pyspark, "pyspark-client": client}.__getitem__)
    with pytest.raises(PrerequisiteMissing, match=f"pyspark {pyspark} and pyspark-client {client}") as refused:
        jars.connector_jars()
    assert refused.value.install.endswith(f"pyspark=={older} pyspark-client=={older}")
    assert "\n" not in str(refused.value)


def test_a_pyspark_without_its_client_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(installed_spark, "version", version)
    installed_spark.require_one_pyspark()


def test_a_changed_lock_gets_another_folder(tmp_path: Path) -> None:
    path = tmp_path / "set.lock"
    path.write_text(f"a.b:c:1.0 {'0' * 64}\n")
    before = jar_lock.read(path)
    path.write_text(f"a.b:c:1.1 {'0' * 64}\n")
    after = jar_lock.read(path)
    assert before.jars[0].coordinate == "a.b:c:1.0"
    assert before.digest != after.digest


@pytest.mark.parametrize("line", ["a:b:1.0", "a:b 00", f"a:b:1.0:jar {'0' * 64}", f"a/../b:c:1 {'0' * 64}"])
def test_a_malformed_line_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "set.lock"
    path.write_text(line)
    with pytest.raises(ValueError, match="organisation:module:revision"):
        jar_lock.read(path)


def test_a_jar_matches_only_its_own_bytes(tmp_path: Path) -> None:
    path = tmp_path / "c-1.0.jar"
    jar = jar_lock.Jar(organisation="a", module="c", revision="1.0", sha256=hashlib.sha256(b"bytes").hexdigest())
    assert not jar.matches(path)
    path.write_bytes(b"bytes")
    assert jar.matches(path)
    path.write_bytes(b"bytez")
    assert not jar.matches(path)
