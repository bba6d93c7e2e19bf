from pathlib import Path

import pytest

from wasmline.build import load_project, scaffold
from wasmline.errors import InvalidProject, ToolchainMissing


@pytest.mark.parametrize("language", ["c", "cpp", "go", "rust"])
def test_a_new_project_is_a_project(tmp_path: Path, language: str) -> None:
    files = scaffold(tmp_path / "My_Transform", language=language)
    assert all(path.is_file() for path in files)
    project = load_project(tmp_path / "My_Transform")
    assert (project.name, project.language, project.version) == ("my-transform", language, "0.1.0")
    assert project.output_topics == ("my-transform.output",)
    assert "@NAME@" not in "".join(path.read_text() for path in files)
    assert (tmp_path / "My_Transform/.gitignore").read_text().startswith("build/\n")


@pytest.mark.parametrize("link", ["transform.yaml", "src", "samples"])
def test_nothing_is_written_through_a_link(tmp_path: Path, link: str) -> None:
    folder, outside = tmp_path / "new", tmp_path / "outside"
    folder.mkdir()
    if link != "transform.yaml":
        outside.mkdir()
    (folder / link).symlink_to(outside)
    with pytest.raises(InvalidProject, match="exists already"):
        scaffold(folder, name="t")
    assert not outside.is_file()
    assert not [*outside.glob("*")]
    assert [path.name for path in folder.iterdir()] == [link]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/main.cc").write_text("mine")
    with pytest.raises(InvalidProject, match=r"main\.cc exists already"):
        scaffold(tmp_path, name="t")
    assert [path.name for path in tmp_path.iterdir()] == ["src"]


def test_a_repository_keeps_its_own_gitignore(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("mine")
    scaffold(tmp_path, name="t")
    assert (tmp_path / ".gitignore").read_text() == "mine"


def test_a_name_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidProject, match="'Not A Name' cannot name a transform"):
        scaffold(tmp_path, name="Not A Name")


def test_a_language_that_is_not_built_here_has_no_template(tmp_path: Path) -> None:
    with pytest.raises(ToolchainMissing, match="javascript is not built here"):
        scaffold(tmp_path / "new", language="javascript")
    assert not (tmp_path / "new").exists()
