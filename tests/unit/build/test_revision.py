import os
import shutil
import subprocess
from pathlib import Path

import pytest

from wasmline.build.revision import revision

MONITOR = """
[core]
    fsmonitor = touch {canary}; false
"""
FILTER = """
[filter "evil"]
    clean = touch {canary}
"""
ALL = """
[core]
    fsmonitor = touch {canary}; false
    hooksPath = {folder}
    sshCommand = touch {canary}
    pager = touch {canary}
    editor = touch {canary}
    askPass = {program}
    gitProxy = {program}
    alternateRefsCommand = touch {canary}
    attributesFile = {folder}/attributes
    autocrlf = true
    worktree = {folder}
[include]
    path = {folder}/more
[includeIf "gitdir:/"]
    path = {folder}/more
[filter "evil"]
    clean = touch {canary}
    smudge = touch {canary}
    process = {program}
    required = true
[diff "evil"]
    command = touch {canary}
    textconv = touch {canary}
[diff]
    external = {program}
[merge "evil"]
    driver = touch {canary}
[gpg]
    program = {program}
[credential]
    helper = !touch {canary}
[alias]
    rev-parse = !touch {canary}
    ls-tree = !touch {canary}
[extensions]
    partialClone = origin
[remote "origin"]
    promisor = true
    url = ext::touch {canary}
    uploadpack = touch {canary}
[protocol]
    allow = always
[uploadpack]
    packObjectsHook = {program}
[log]
    showSignature = true
"""
HOOKS = ("fsmonitor-watchman", "post-checkout", "post-index-change", "query-watchman", "reference-transaction")


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def committed(folder: Path, text: str = "1") -> str:
    """Make a repository with one file, and return its commit."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q")
    (folder / "file").write_text(text)
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return git(folder, "rev-parse", "HEAD")


def test_a_folder_that_is_not_in_git_has_no_revision(tmp_path: Path) -> None:
    assert revision(tmp_path, []) is None
    git(tmp_path, "init", "-q")
    assert revision(tmp_path, []) is None


def test_the_revision_is_the_commit_and_says_when_a_file_differs_from_it(tmp_path: Path) -> None:
    commit = committed(tmp_path)
    file, new = tmp_path / "file", tmp_path / "new"
    new.touch()
    assert revision(tmp_path, [file]) == commit
    assert revision(tmp_path, [file, new]) == f"{commit}+dirty"
    file.write_text("2")
    assert revision(tmp_path, [file]) == f"{commit}+dirty"


def test_a_file_of_another_place_does_not_count(tmp_path: Path) -> None:
    commit = committed(tmp_path / "project")
    (tmp_path / "header").touch()
    assert revision(tmp_path / "project", [tmp_path / "header"]) == commit


def test_a_project_may_be_a_folder_of_its_repository(tmp_path: Path) -> None:
    (tmp_path / "deep/project").mkdir(parents=True)
    (tmp_path / "deep/project/source").write_text("1")
    commit = committed(tmp_path)
    assert revision(tmp_path / "deep/project", [tmp_path / "deep/project/source"]) == commit


def test_packed_references_and_objects_are_read(tmp_path: Path) -> None:
    commit = committed(tmp_path)
    git(tmp_path, "gc", "-q")
    assert not (tmp_path / ".git/refs/heads/main").exists()
    assert revision(tmp_path, [tmp_path / "file"]) == commit


def test_a_head_without_a_branch_is_read(tmp_path: Path) -> None:
    commit = committed(tmp_path)
    git(tmp_path, "checkout", "-q", "--detach")
    assert revision(tmp_path, [tmp_path / "file"]) == commit


def test_a_further_work_tree_has_the_revision_of_its_own_head(tmp_path: Path) -> None:
    first = committed(tmp_path / "main")
    git(tmp_path / "main", "worktree", "add", "-q", "-b", "other", "../other")
    git(tmp_path / "main", "commit", "-q", "--allow-empty", "-m", "second")
    assert revision(tmp_path / "other", [tmp_path / "other/file"]) == first
    assert revision(tmp_path / "main", [tmp_path / "main/file"]) != first


def test_a_machine_without_git_knows_no_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committed(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert revision(tmp_path, []) is None


@pytest.mark.parametrize(("commands", "by_status"), [(MONITOR, True), (FILTER, True), (ALL, False)])
def test_no_command_of_a_repository_runs(tmp_path: Path, commands: str, by_status: bool) -> None:
    """Of its configuration, its attributes, its hooks and its submodules, although one of its files was changed.

    ``by_status``: ``git status`` runs one; with all of them, it does not get as far.
    """
    project, folder, canary = tmp_path / "project", tmp_path / "folder", tmp_path / "canary"
    commit = committed(project)
    folder.mkdir()
    program = folder / "program"
    program.write_text(f"#!/bin/sh\ntouch {canary}\nexit 1\n")
    program.chmod(0o755)
    for hook in HOOKS:
        shutil.copy(program, project / ".git/hooks" / hook)
        shutil.copy(program, folder / hook)
    written = commands.format(canary=canary, folder=folder, program=program)
    for place in (project / ".git/config", folder / "more"):
        place.write_text(place.read_text() + written if place.exists() else written)
    for attributes in (project / ".gitattributes", project / ".git/info/attributes", folder / "attributes"):
        attributes.write_text("* filter=evil diff=evil merge=evil\n")
    (project / ".gitmodules").write_text(
        f'[submodule "s"]\n\tpath = s\n\turl = ext::{program}\n\tupdate = !{program}\n'
    )
    (project / "file").write_text("2")
    subprocess.run(["git", "status"], cwd=project, check=False, capture_output=True)
    assert canary.exists() == by_status
    canary.unlink(missing_ok=True)
    assert revision(project, [project / "file"]) == f"{commit}+dirty"
    (project / "file").write_text("1")
    assert revision(project, [project / "file"]) == commit
    assert not canary.exists()


def test_a_git_in_the_current_folder_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = committed(tmp_path)
    program = tmp_path / "git"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/canary\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    for entries in ("", ".", "./"):
        monkeypatch.setenv("PATH", f"{entries}{os.pathsep}/usr/local/bin{os.pathsep}/usr/bin{os.pathsep}/bin")
        assert revision(tmp_path, []) == commit
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize(
    "head", ["", "ref: ../../../file", "ref: refs/heads/../../../file", "0" * 40, "f" * 64, "ref: refs/heads/none"]
)
def test_a_head_that_names_no_commit_is_no_revision(tmp_path: Path, head: str) -> None:
    committed(tmp_path)
    (tmp_path / ".git/HEAD").write_text(head)
    assert revision(tmp_path, []) is None


def test_a_head_that_never_ends_is_not_read(tmp_path: Path) -> None:
    committed(tmp_path)
    (tmp_path / ".git/HEAD").unlink()
    os.mkfifo(tmp_path / ".git/HEAD")
    assert revision(tmp_path, []) is None
    (tmp_path / ".git/HEAD").unlink()
    (tmp_path / ".git/HEAD").symlink_to("/dev/zero")
    assert revision(tmp_path, []) is None


def test_references_that_never_end_are_not_read(tmp_path: Path) -> None:
    commit = committed(tmp_path)
    os.mkfifo(tmp_path / ".git/packed-refs")
    assert revision(tmp_path, [tmp_path / "file"]) == commit
    (tmp_path / ".git/HEAD").write_text("ref: refs/heads/none")
    assert revision(tmp_path, []) is None


def test_an_object_that_never_ends_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wasmline.build.revision._TIMEOUT_S", 0.2)
    commit = committed(tmp_path)
    loose = tmp_path / ".git/objects" / commit[:2] / commit[2:]
    loose.unlink()
    os.mkfifo(loose)
    assert revision(tmp_path, []) is None


@pytest.mark.parametrize("project", [".", "lib"])
def test_a_submodule_is_dirty_where_its_files_or_its_commit_are_others(tmp_path: Path, project: str) -> None:
    """Seen from the repository it is part of, and from itself."""
    library, main = tmp_path / "library", tmp_path / "main"
    committed(library)
    committed(main)
    git(main, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "../library", "lib")
    git(main, "commit", "-qm", "second")
    files = [main / "lib/file", *([main / "file"] if project == "." else [])]
    folder = main / project
    commit = git(folder, "rev-parse", "HEAD")
    assert revision(folder, files) == commit
    (main / "lib/new").touch()
    assert revision(folder, files) == commit
    assert revision(folder, [main / "lib/new"]) == f"{commit}+dirty"
    (main / "lib/file").write_text("2")
    assert revision(folder, files) == f"{commit}+dirty"
    git(main / "lib", "commit", "-qam", "another")
    assert revision(main, files) == f"{git(main, 'rev-parse', 'HEAD')}+dirty"
    (main / "lib/.git").unlink()
    assert revision(main, files) == f"{git(main, 'rev-parse', 'HEAD')}+dirty"
