"""The builder, with the real Go toolchain's commands answered by a script in the place of ``go``."""

import logging
from pathlib import Path

import pytest

from wasmline import disk_cache
from wasmline.build import BuildReport, build
from wasmline.build.project import TransformProject
from wasmline.errors import BuildFailed
from wasmline.testing import guests

GO = """#!/bin/sh
case "$1" in
env) echo '{{"GOVERSION": "go1.24.0", "GOMODCACHE": "{folder}/modules"}}' ;;
mod) echo '{{}}' ;;
list) echo '{{"Dir": "{folder}/project", "GoFiles": ["main.go"]}}' ;;
build) {during}; cp {folder}/guest.wasm "$(echo "$*" | sed 's/.* -o \\([^ ]*\\) .*/\\1/')" ;;
esac
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TransformProject:
    folder = tmp_path / "project"
    folder.mkdir()
    for name in ("main.go", "go.mod", "transform.yaml"):
        (folder / name).write_text("first")
    (tmp_path / "guest.wasm").write_bytes(guests.guest(guests.WRITE))
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr("sys.executable", str(tmp_path / "bin/python"))  # `go` is looked for beside it first
    return TransformProject(folder=folder, name="t", input_topic="in", output_topics=("out",), language="go")


def built(project: TransformProject, *, during: str = ":") -> BuildReport:
    root = project.folder.parent
    (root / "bin/go").write_text(GO.format(folder=root, during=during))
    (root / "bin/go").chmod(0o755)
    return build(project, cache_dir=root / "cache")


@pytest.mark.parametrize("file", ["main.go", "go.mod"])
def test_a_build_fails_where_a_file_changes_while_it_is_compiled(project: TransformProject, file: str) -> None:
    with pytest.raises(BuildFailed, match=r"t: its files changed while they were compiled: build again"):
        built(project, during=f"echo second > {project.folder / file}")
    assert not (project.folder / "build").exists()
    assert not built(project).cached  # nothing was kept either
    assert built(project).cached


def test_no_cache_folder_is_tested_for_a_compiler_that_needs_none_of_ours(
    project: TransformProject, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(disk_cache, "MIN_FREE_BYTES", 1 << 62)
    built(project)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert [place.name for place in (project.folder.parent / "cache").iterdir()] == ["builds"]
