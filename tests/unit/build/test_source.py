from pathlib import Path

import pytest

from wasmline.build.project import TransformProject
from wasmline.build.source import sources
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


@pytest.mark.parametrize("pattern", ["../*.cc", "/etc/*.cc"])
def test_sources_stay_inside_the_project(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(InvalidProject, match="leaves the project's folder"):
        sources(project(tmp_path, pattern), [])


def test_what_is_no_pattern_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidProject, match="`sources` has '', which is no pattern of files"):
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
