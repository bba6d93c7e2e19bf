import os
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from wasmline.build.project import TransformProject
from wasmline.build.source_files import sources
from wasmline.errors import InvalidProject


def project(folder: Path, *patterns: str) -> TransformProject:
    return TransformProject(
        folder=folder, name="t", input_topic="in", output_topics=("out",), language="cpp", sources=patterns
    )


def tree(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_sources_are_found_by_pattern_sorted_and_once(tmp_path: Path) -> None:
    tree(tmp_path, src__b_DOT_cc="", src__deep__a_DOT_cc="", src__x_DOT_hpp="", other_DOT_cc="")
    assert sources(project(tmp_path), ["src/**/*.cc", "src/b.cc"]) == (Path("src/b.cc"), Path("src/deep/a.cc"))
    assert sources(project(tmp_path, "*.cc"), ["src/**/*.cc"]) == (Path("other.cc"),)


def test_a_project_without_sources_is_told_where_to_put_them(tmp_path: Path) -> None:
    with pytest.raises(InvalidProject, match=r"no file matches src/\*\.cc; put the sources there"):
        sources(project(tmp_path), ["src/*.cc"])


def test_patterns_match_as_in_a_shell(tmp_path: Path) -> None:
    tree(tmp_path, a_DOT_cc="", x__a_DOT_cc="", x__y__a_DOT_cc="", x__y__z__b_DOT_cc="", _DOT_h__c_DOT_cc="")
    (tmp_path / "link").symlink_to("x/y")
    found = {pattern: [*map(str, sources(project(tmp_path, pattern), []))] for pattern in (
        "a.cc", "x/*.cc", "*/*.cc", "**/a.cc", "x/**/*.cc", "**/y/**/?.cc", "[xq]/y/*", "link/*.cc", "link/**/b.cc"
    )}  # fmt: skip
    assert found == {
        "a.cc": ["a.cc"],
        "x/*.cc": ["x/a.cc"],
        "*/*.cc": [".h/c.cc", "x/a.cc"],
        "**/a.cc": ["a.cc", "x/a.cc", "x/y/a.cc"],
        "x/**/*.cc": ["x/a.cc", "x/y/a.cc", "x/y/z/b.cc"],
        "**/y/**/?.cc": ["x/y/a.cc", "x/y/z/b.cc"],
        "[xq]/y/*": ["x/y/a.cc"],
        "link/*.cc": ["link/a.cc"],
        "link/**/b.cc": ["link/z/b.cc"],
    }


@pytest.mark.parametrize("pattern", ["**/**/**/**/**/*.cc", "*/*/*/*/*/*.cc", "**/*/**/*/**/*.cc"])
def test_a_pattern_visits_each_folder_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str) -> None:
    deep = tmp_path / "a/a/a/a/a/a/a/a/a/a"
    deep.mkdir(parents=True)
    (tmp_path / "a/a/a/a/a/x.cc").touch()
    for name in "bcd":
        (tmp_path / name).symlink_to(".")
    visited: list[str] = []
    scan = os.scandir

    def scandir(folder: str) -> AbstractContextManager[Iterable[os.DirEntry[str]]]:
        visited.append(os.fspath(folder))
        return scan(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    assert sources(project(tmp_path, pattern), []) == (Path("a/a/a/a/a/x.cc"),)
    assert len(visited) <= 11


@pytest.mark.parametrize("pattern", ["../*.cc", "/etc/*.cc"])
def test_sources_stay_inside_the_project(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(InvalidProject, match="leaves the project's folder"):
        sources(project(tmp_path, pattern), [])


@pytest.mark.parametrize("pattern", ["link/*.cc", "link/**/*.cc", "src/link/**/x/*.cc"])
def test_no_folder_outside_of_the_project_is_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    tree(tmp_path, project__src__a_DOT_cc="", outside__b_DOT_cc="", outside__x__b_DOT_cc="")
    for folder in ("project", "project/src"):
        (tmp_path / folder / "link").symlink_to(tmp_path / "outside")
    monkeypatch.delattr(os, "scandir")
    with pytest.raises(InvalidProject, match="which follows a link out of the project's folder"):
        sources(project(tmp_path / "project", pattern), [])


def test_a_link_that_leads_nowhere_is_no_source(tmp_path: Path) -> None:
    tree(tmp_path, a_DOT_cc="")
    (tmp_path / "b.cc").symlink_to("b.cc")
    (tmp_path / "c.cc").symlink_to("none")
    (tmp_path / "d.cc").symlink_to("x" * 300)
    assert sources(project(tmp_path), ["*.cc"]) == (Path("a.cc"),)


@pytest.mark.parametrize("pattern", ["loop/*.cc", f"{'x' * 300}/*.cc"])
def test_a_folder_that_cannot_be_read_is_named_with_a_remedy(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InvalidProject, match=r"cannot be read: .*: remove it, or name others in `sources`"):
        sources(project(tmp_path, pattern), [])


def test_many_patterns_are_refused(tmp_path: Path) -> None:
    """Each one would be looked for in all folders."""
    with pytest.raises(InvalidProject, match="more than 4096 letters: name folders"):
        sources(project(tmp_path, *(f"**/{number}.cc" for number in range(9_000))), [])


def test_a_pattern_of_many_folders_is_read_as_of_one_and_a_long_one_is_refused(tmp_path: Path) -> None:
    tree(tmp_path, src__deep__a_DOT_cc="")
    assert sources(project(tmp_path, "**/" * 1_000 + "*.cc"), []) == (Path("src/deep/a.cc"),)
    with pytest.raises(InvalidProject, match="more than 4096 letters"):
        sources(project(tmp_path, "**/" * 2_000 + "*.cc"), [])


def test_what_is_no_pattern_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidProject, match="`sources` has '', which is not a pattern of files"):
        sources(project(tmp_path, ""), [])


@pytest.mark.parametrize(
    "name",
    ["a\nb.cc", "a\x1b[2J.cc", "a\udcff.cc", "@x.cc", "-x.cc", "--version.cc", "src/@x.cc", "@d/x.cc", "src/-d/x.cc"],
)
def test_a_name_that_a_compiler_could_misunderstand_is_refused(tmp_path: Path, name: str) -> None:
    """clang expands a response file by the last part of a source's path, too."""
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).touch()
    with pytest.raises(InvalidProject, match="a source cannot be named"):
        sources(project(tmp_path, "**/*.cc"), [])
