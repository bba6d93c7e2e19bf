from __future__ import annotations

from pathlib import Path

import pytest

from wasmline.errors import PrerequisiteMissing
from wasmline.local import jvm


def java_home(folder: Path, answer: str, status: int = 0) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{answer}\nEND\nexit {status}\n")
    program.chmod(0o755)
    return folder


def test_the_java_of_this_machine_is_found() -> None:
    java = jvm.find_java()
    assert java.version >= 17
    assert java.path.is_file()


def test_java_home_goes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = java_home(tmp_path, 'openjdk version "25.0.2" 2026-01-20')
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert jvm.find_java() == jvm.Java(path=home / "bin" / "java", version=25)


@pytest.mark.parametrize(("version", "major"), [("11.0.22", 11), ("1.8.0_402", 8)])
def test_an_old_java_is_named_with_its_version_and_a_line_to_install_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, major: int
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path, f'openjdk version "{version}"')))
    with pytest.raises(PrerequisiteMissing, match=f"Java {major}.*but Java 17") as caught:
        jvm.find_java()
    assert caught.value.install in str(caught.value)


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(PrerequisiteMissing, match=f"JAVA_HOME is {tmp_path}"):
        jvm.find_java()


def test_no_java_at_all_is_a_missing_prerequisite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PrerequisiteMissing, match="no java on the PATH"):
        jvm.find_java()


def test_a_stub_that_asks_for_an_installation_counts_as_no_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = java_home(tmp_path, "The operation couldn't be completed. Unable to locate a Java Runtime.", status=1)
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(PrerequisiteMissing, match="does not run: The operation"):
        jvm.find_java()
