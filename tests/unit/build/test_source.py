import subprocess
from pathlib import Path

import pytest

from wasmline.build.project import TransformProject
from wasmline.build.source import digest, revision, sources
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


def test_the_digest_is_of_what_the_compiler_may_read_not_of_where_it_lies(tmp_path: Path) -> None:
    first = tree(tmp_path / "a", src__m_DOT_cc="int x;", src__h_DOT_hpp="1")
    second = tree(tmp_path / "elsewhere", src__m_DOT_cc="int x;", src__h_DOT_hpp="1")
    before = digest([first], ["-O2"])
    assert digest([second], ["-O2"]) == before
    tree(first, samples__input_DOT_jsonl="{}", build__t_DOT_wasm="x", transform_DOT_yaml="name: t", _DOT_git__HEAD="r")
    assert digest([first], ["-O2"]) == before


def test_what_the_languages_tools_write_is_left_out_and_their_hidden_settings_count(tmp_path: Path) -> None:
    folder = tree(tmp_path, src__main_DOT_rs="")
    before = digest([folder], [], without=["target"])
    tree(folder, target__debug__x="x")
    assert digest([folder], [], without=["target"]) == before != digest([folder], [])
    tree(folder, _DOT_cargo__config_DOT_toml="[build]")
    assert digest([folder], [], without=["target"]) != before


@pytest.mark.parametrize("change", ["content", "header", "name", "flags", "border"])
def test_any_change_that_may_matter_changes_the_digest(tmp_path: Path, change: str) -> None:
    folder = tree(tmp_path / "a", src__m_DOT_cc="int x;", src__h_DOT_hpp="1")
    before = digest([folder], ["-O2", "c"])
    facts = ["-O2", "c"]
    if change == "content":
        tree(folder, src__m_DOT_cc="int y;")
    elif change == "header":
        tree(folder, src__h_DOT_hpp="2")
    elif change == "name":
        (folder / "src/h.hpp").rename(folder / "src/i.hpp")
    elif change == "flags":
        facts = ["-O3", "c"]
    else:
        facts = ["-O2c"]
    assert digest([folder], facts) != before


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_the_revision_is_the_commit_and_says_when_files_differ_from_it(tmp_path: Path) -> None:
    assert revision(tmp_path) is None
    git(tmp_path, "init", "-q")
    assert revision(tmp_path) is None
    tree(tmp_path, file="1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    commit = git(tmp_path, "rev-parse", "HEAD")
    tree(tmp_path, build__t_DOT_wasm="what it built is no source")
    assert revision(tmp_path) == commit
    tree(tmp_path, file="2")
    assert revision(tmp_path) == f"{commit}+dirty"
