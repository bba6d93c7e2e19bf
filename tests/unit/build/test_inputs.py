import os
from collections.abc import Callable
from pathlib import Path

import pytest

from wasmline.build.inputs import PROJECT, digest, input_names
from wasmline.build.project import TransformProject
from wasmline.errors import BuildFailed


@pytest.fixture
def project(tmp_path: Path) -> TransformProject:
    folder = tmp_path / "project"
    write(folder / "src/main.c", "int x;")
    return TransformProject(folder=folder, name="t", input_topic="in", output_topics=("out",), language="c")


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def names(project: TransformProject, *files: str, **places: Path) -> set[str]:
    return {*input_names(project, map(Path, files), {PROJECT: project.folder, **places})}


def test_a_file_is_named_by_its_place_in_the_project(project: TransformProject) -> None:
    write(project.folder / "samples/table.h", "")
    absolute = project.folder / "src/main.c"
    assert names(project, "src/main.c", str(absolute), "src/../samples/table.h") == {
        "./src/main.c",
        "./src/../samples/table.h",
    }


def test_a_file_of_another_place_is_named_by_that(project: TransformProject, tmp_path: Path) -> None:
    header = write(tmp_path / "installed/here/sdk.h", "")
    assert names(project, str(header), sdk=tmp_path / "installed") == {"sdk/here/sdk.h"}


def test_what_the_compiler_brings_along_is_left_out(project: TransformProject, tmp_path: Path) -> None:
    header = write(tmp_path / "compiler/stdio.h", "")
    places = {PROJECT: project.folder}
    assert input_names(project, [header], places, excluded=[tmp_path / "compiler"]) == {}


def test_a_project_inside_of_an_excluded_folder_has_its_own_files(project: TransformProject) -> None:
    """Such as one that was downloaded into the cache of Go's modules."""
    own, other = project.folder / "src/main.c", write(project.folder.parent / "other/x.c", "")
    places = {PROJECT: project.folder}
    assert {*input_names(project, [own, other], places, excluded=[project.folder.parent])} == {"./src/main.c"}


@pytest.mark.parametrize("file", ["src/link.h", "../compiler/../compiler/stdio.h", "{compiler}/../compiler/stdio.h"])
def test_what_the_compiler_brings_along_is_not_left_out_under_another_name(
    project: TransformProject, tmp_path: Path, file: str
) -> None:
    """The link may lead to another of its files tomorrow, and the compiler's version be the same."""
    header = write(tmp_path / "compiler/stdio.h", "")
    (project.folder / "src/link.h").symlink_to(header)
    named = Path(file.format(compiler=header.parent))
    with pytest.raises(BuildFailed, match=r"outside (of )?the project"):
        input_names(project, [named], {PROJECT: project.folder}, excluded=[header.parent])


@pytest.mark.parametrize("installed", ["compiler", "link"])
def test_a_compiler_may_be_installed_behind_a_link(project: TransformProject, tmp_path: Path, installed: str) -> None:
    write(tmp_path / "compiler/stdio.h", "")
    (tmp_path / "link").symlink_to("compiler")
    header = tmp_path / installed / "stdio.h"
    assert input_names(project, [header], {PROJECT: project.folder}, excluded=[tmp_path / "link"]) == {}


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir])
def test_what_is_no_regular_file_is_refused(project: TransformProject, make: Callable[[Path], None]) -> None:
    make(project.folder / "src/x.h")
    with pytest.raises(BuildFailed, match=r"t reads .*src/x\.h, which is not a regular file"):
        names(project, "src/x.h")


def test_a_file_that_does_not_fit_into_memory_is_refused(project: TransformProject) -> None:
    with (project.folder / "src/main.c").open("ab") as file:
        file.truncate(1 << 40)
    with pytest.raises(BuildFailed, match=r"t reads .*main\.c, which has more than 1073741824 bytes"):
        names(project, "src/main.c")


@pytest.mark.parametrize("file", ["../outside.h", "src/../../outside.h", "/etc/passwd"])
def test_a_file_that_is_not_the_project_s_is_refused(project: TransformProject, tmp_path: Path, file: str) -> None:
    write(tmp_path / "outside.h", "")
    with pytest.raises(
        BuildFailed, match=r"t reads /.*(outside\.h|passwd), which is outside of the project's folder"
    ) as caught:
        names(project, "src/main.c", file)
    assert caught.value.log == ("" if file == "/etc/passwd" else f"{file} is {tmp_path}/outside.h")


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("file", ["src/link.h", "src/folder/outside.h"])
def test_a_link_that_leads_outside_is_named(
    project: TransformProject, tmp_path: Path, file: str, absolute: bool
) -> None:
    outside = write(tmp_path / "outside.h", "")
    (project.folder / "src/link.h").symlink_to(outside)
    (project.folder / "src/folder").symlink_to(tmp_path)
    with pytest.raises(BuildFailed) as caught:
        names(project, "src/main.c", str(project.folder / file) if absolute else file)
    assert str(caught.value) == (
        f"t: {file} is a link to {outside}, outside the project: copy the file into the project"
    )
    assert caught.value.log == ""


def test_a_name_that_could_not_be_decoded_is_refused(project: TransformProject) -> None:
    write(project.folder / "src/\ufffd.h", "")
    with pytest.raises(BuildFailed, match="outside"):
        names(project, "src/\ufffd.h")


def test_a_link_within_the_project_counts_as_what_it_leads_to(project: TransformProject) -> None:
    link = project.folder / "src/choice"
    for name in ("first", "second"):
        write(project.folder / name / "x.h", name)
    link.symlink_to("../first")
    first = digest(input_names(project, [Path("src/choice/x.h")], {PROJECT: project.folder}), [])
    link.unlink()
    link.symlink_to("../second")
    assert digest(input_names(project, [Path("src/choice/x.h")], {PROJECT: project.folder}), []) != first


def test_a_link_and_a_copy_are_different_inputs(project: TransformProject) -> None:
    """To ``#pragma once`` and to a compiler's messages, a link and its target are one file."""
    write(project.folder / "src/a.h", "")
    (project.folder / "src/b.h").symlink_to("a.h")
    linked = names(project, "src/a.h", "src/b.h")
    (project.folder / "src/b.h").unlink()
    write(project.folder / "src/b.h", "")
    assert names(project, "src/a.h", "src/b.h") != linked


@pytest.mark.parametrize("link", [None, "/proc/self/cwd/project/src", "../chain", "/dev/fd/../cwd/project/src"])
def test_a_path_through_the_folder_of_processes_is_refused(
    project: TransformProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str | None
) -> None:
    """It leads this process into the project, and a compiler, whose current folder is another, out of it."""
    monkeypatch.chdir(tmp_path)
    (project.folder / "chain").symlink_to("/proc/thread-self/cwd/project/src")
    if link:
        (project.folder / "src/link").symlink_to(link)
    with pytest.raises(BuildFailed, match=r"t reads .*main\.c, a path through /proc"):
        names(project, "src/link/main.c" if link else "/proc/self/cwd/project/src/main.c")


def test_the_digest_is_of_names_and_contents_not_of_where_they_lie(tmp_path: Path) -> None:
    first = digest({"./a": write(tmp_path / "here/a", "1"), "./b": write(tmp_path / "here/b", "2")}, ["-O2"])
    second = digest({"./b": write(tmp_path / "there/y", "2"), "./a": write(tmp_path / "there/x", "1")}, ["-O2"])
    assert first == second


@pytest.mark.parametrize(
    ("inputs", "facts"),
    [
        ({"./a": "other", "./b": "2"}, ["-O2", "c"]),
        ({"./a": "1", "./c": "2"}, ["-O2", "c"]),
        ({"./a": "1"}, ["-O2", "c"]),
        ({"./a": "1", "./b": "2"}, ["-O3", "c"]),
        ({"./a": "1", "./b": "2"}, ["-O2c"]),
        ({"./b": "2"}, ["-O2", "c", "./a", "1"]),
    ],
)
def test_any_change_that_may_matter_changes_the_digest(
    tmp_path: Path, inputs: dict[str, str], facts: list[str]
) -> None:
    before = digest({"./a": write(tmp_path / "1", "1"), "./b": write(tmp_path / "2", "2")}, ["-O2", "c"])
    changed = {name: write(tmp_path / f"{name}.changed", text) for name, text in inputs.items()}
    assert digest(changed, facts) != before
