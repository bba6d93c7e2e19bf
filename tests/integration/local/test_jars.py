"""The jar cache with the real Ivy, against a Maven repository in a folder: no network."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from wasmline.errors import ArtifactUnavailable, PrerequisiteMissing
from wasmline.local import ivy, jars
from wasmline.local.jar_lock import Jar, JarSet
from wasmline.local.jvm import find_java

SETTINGS = """<ivysettings><settings defaultResolver="here"/><resolvers><filesystem name="here" m2compatible="true">
<artifact pattern="{repository}/[organisation]/[module]/[revision]/[artifact]-[revision].[ext]"/>
</filesystem></resolvers></ivysettings>"""


class Repository:
    """A Maven repository in a folder, and a set of jars that lives in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = folder / "ivysettings.xml"
        self.settings.write_text(SETTINGS.format(repository=folder))
        locked = tuple(self.publish(name) for name in ("first", "second", "third"))
        self.set = JarSet(name="test", digest="0" * 64, jars=locked)

    def publish(self, name: str) -> Jar:
        content = f"the bytes of {name}".encode()
        path = self.path(name)
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        return Jar(organisation="org.example", module=name, revision="1.0", sha256=digest)

    def path(self, name: str) -> Path:
        return self.folder / "org" / "example" / name / "1.0" / f"{name}-1.0.jar"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    monkeypatch.setenv("WASMLINE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "repository").mkdir()
    repository = Repository(tmp_path / "repository")
    monkeypatch.setenv(ivy.SETTINGS_VARIABLE, str(repository.settings))
    return repository


def contents(paths: list[Path]) -> list[str]:
    return [path.read_text() for path in paths]


EXPECTED = ["the bytes of first", "the bytes of second", "the bytes of third"]


def test_jars_come_in_the_order_of_the_lock_and_nothing_else_stays(repository: Repository) -> None:
    paths = jars.cached(repository.set)
    assert contents(paths) == EXPECTED
    left = {path.name for path in paths[0].parent.iterdir()}
    assert left == {"first-1.0.jar", "second-1.0.jar", "third-1.0.jar", "lock"}


def test_a_second_call_needs_no_repository(repository: Repository) -> None:
    first = jars.cached(repository.set)
    repository.settings.unlink()
    assert jars.cached(repository.set) == first


@pytest.mark.parametrize("damage", ["removed", "truncated", "changed"])
def test_damage_in_the_cache_is_repaired(repository: Repository, damage: str) -> None:
    second = jars.cached(repository.set)[1]
    if damage == "removed":
        second.unlink()
    elif damage == "truncated":
        second.write_text("the")
    else:
        second.write_text("the bytes of sECOND")
    assert contents(jars.cached(repository.set)) == EXPECTED


def test_only_what_is_missing_is_fetched_again(repository: Repository) -> None:
    jars.cached(repository.set)[1].unlink()
    repository.path("first").unlink()
    assert contents(jars.cached(repository.set)) == EXPECTED


def test_other_bytes_than_the_locked_ones_never_get_a_name(repository: Repository) -> None:
    repository.path("second").write_bytes(b"something else")
    with pytest.raises(ArtifactUnavailable, match=r"org\.example:second:1\.0 arrived with other bytes") as caught:
        jars.cached(repository.set)
    assert caught.value.retryable
    assert not list(jars.jar_cache().rglob("*.jar"))


def test_a_jar_that_nobody_has_is_reported_with_the_end_of_the_log(repository: Repository) -> None:
    repository.path("third").unlink()
    with pytest.raises(ArtifactUnavailable, match=r"(?s)WASMLINE_IVY_SETTINGS.*org\.example#third;1\.0"):
        jars.cached(repository.set)


def test_processes_that_ask_at_once_share_one_download(repository: Repository, tmp_path: Path) -> None:
    lock = tmp_path / "test.lock"
    lock.write_text("".join(f"{jar.coordinate} {jar.sha256}\n" for jar in repository.set.jars))
    code = """
import logging, sys
from pathlib import Path
from wasmline.local import jars
from wasmline.local import jar_lock
logging.basicConfig(level=logging.INFO, format="%(message)s")
print(*[path.read_text() for path in jars.cached(jar_lock.read(Path(sys.argv[1])))], sep="|")
"""
    processes = [
        subprocess.Popen([sys.executable, "-c", code, lock], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    answers = [process.communicate() for process in processes]
    assert [output.strip() for output, _ in answers] == ["|".join(EXPECTED)] * 3
    assert sum("downloading" in errors for _, errors in answers) == 1


def test_without_pyspark_the_line_that_installs_it_is_given(tmp_path: Path) -> None:
    code = """
import sys
import os
os.environ.pop("SPARK_HOME", None)
os.environ["PATH"] = os.path.dirname(sys.argv[2])
sys.path[:] = [path for path in sys.path if "site-packages" not in path] + [sys.argv[1]]
from wasmline.errors import PrerequisiteMissing
from wasmline.local import ivy
try:
    ivy.fetch([], None)
except PrerequisiteMissing as error:
    print(error.install)
"""
    source = Path(jars.__file__).parents[2]
    answer = subprocess.run(
        [sys.executable, "-c", code, source, str(find_java().path)], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "pip install 'wasmline[spark]'"


def test_the_locked_jars_of_kafka_and_of_the_connector_are_there() -> None:
    assert len(jars.kafka_jars()) == 46
    assert len(jars.connector_jars()) == 4
    assert all(path.is_file() for path in [*jars.kafka_jars(), *jars.connector_jars()])


def test_no_java_means_no_download(repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(PrerequisiteMissing, match="JAVA_HOME"):
        jars.cached(repository.set)
