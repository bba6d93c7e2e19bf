from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from wasmline.local import jar_lock, jars


def test_the_broker_is_locked_to_46_jars_of_one_kafka_release() -> None:
    locked = jar_lock.read(jars.KAFKA).jars
    assert len(locked) == 46
    releases = {jar.revision for jar in locked if jar.organisation == "org.apache.kafka"}
    assert releases == {jars.kafka_version()} == {"4.3.1"}


def test_the_connector_is_locked_to_the_installed_spark() -> None:
    connector = {jar.module: jar.revision for jar in jar_lock.read(jars.CONNECTOR).jars}
    assert len(connector) == 4
    assert connector["spark-sql-kafka-0-10_2.13"] == "4.2.0"


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
