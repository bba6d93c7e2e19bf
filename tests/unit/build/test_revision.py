import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from wasmline.build import revision as module
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


def git(folder: Path, *arguments: str, text: str | None = None) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True, input=text
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


def test_a_reference_without_end_takes_bounded_memory(tmp_path: Path) -> None:
    committed(tmp_path)
    (tmp_path / ".git/HEAD").write_text("ref: refs/heads/endless")
    (tmp_path / ".git/refs/heads/endless").symlink_to("/dev/zero")
    ended = subprocess.run(
        [sys.executable, "-c", IN_A_NEW_PROCESS, tmp_path], check=True, capture_output=True, text=True
    )
    result, kilobytes = ended.stdout.split()
    assert result == "None"
    assert int(kilobytes) < 3 << 20


def test_a_repository_that_cannot_be_read_has_no_revision(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text(f"gitdir: {'x' * 3_000}")
    assert revision(tmp_path, []) is None


IN_A_NEW_PROCESS = """
import resource, sys
from pathlib import Path
from wasmline.build.revision import revision
print(revision(Path(sys.argv[1]), []), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
BY_ANOTHER_USER = """
import os, subprocess, sys
from pathlib import Path
from wasmline.build.revision import revision
os.setresuid(65534, 65534, 65534)
folder = Path(sys.argv[1])
print(subprocess.run(["git", "status"], cwd=folder, check=False, capture_output=True).returncode)
print(revision(folder, [folder / "file"]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_a_repository_of_another_user_runs_nothing_and_is_read_where_it_may_be(mode: int) -> None:
    """Git itself refuses it: its configuration may name programs to run."""
    with tempfile.TemporaryDirectory() as place:
        folder, canary = Path(place, "project"), Path(place, "canary")
        Path(place).chmod(0o777)
        commit = committed(folder)
        folder.chmod(0o755)
        with (folder / ".git/config").open("a") as file:
            file.write(MONITOR.format(canary=canary))
        (folder / ".git").chmod(mode)
        ended = subprocess.run(
            [sys.executable, "-c", BY_ANOTHER_USER, folder], check=True, capture_output=True, text=True
        )
        assert ended.stdout.split() == ["128", commit if mode == 0o755 else "None"]
        assert ("allow to read it, or remove it" in ended.stderr) == (mode == 0o700)
        assert not canary.exists()


def test_an_object_that_never_ends_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wasmline.build.revision._TIMEOUT_S", 0.2)
    commit = committed(tmp_path)
    loose = tmp_path / ".git/objects" / commit[:2] / commit[2:]
    loose.unlink()
    os.mkfifo(loose)
    assert revision(tmp_path, []) is None


def test_of_a_commit_only_the_files_that_were_read_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree that holds itself ten times over, to a depth of ten, has ten thousand million files."""
    monkeypatch.setattr("wasmline.build.revision._TIMEOUT_S", 5)
    committed(tmp_path)
    tree = git(tmp_path, "rev-parse", "HEAD^{tree}")
    for _ in range(9):
        entries = "".join(f"040000 tree {tree}\t{number}\n" for number in range(10))
        tree = git(tmp_path, "mktree", text=f"{entries}100644 blob {git(tmp_path, 'hash-object', 'file')}\tfile\n")
    commit = git(tmp_path, "commit-tree", "-m", "bomb", tree)
    git(tmp_path, "update-ref", "HEAD", commit)
    deep = tmp_path / "0/1/2/file"
    deep.parent.mkdir(parents=True)
    deep.write_text("1")
    assert revision(tmp_path, [tmp_path / "file", deep]) == commit
    deep.write_text("2")
    assert revision(tmp_path, [tmp_path / "file", deep]) == f"{commit}+dirty"


def test_names_that_git_could_take_for_patterns_are_names(tmp_path: Path) -> None:
    names = (":(glob)x", "*", "-r", "a\nb", "x" * 200, *map(str, range(1500)))
    for name in names:
        (tmp_path / name).write_text(name)
    commit = committed(tmp_path)
    assert revision(tmp_path, [tmp_path / name for name in names]) == commit
    (tmp_path / "*").unlink()
    git(tmp_path, "commit", "-qam", "second")
    (tmp_path / "*").touch()
    assert (revision(tmp_path, [tmp_path / "*"]) or "").endswith("+dirty")


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


def test_a_repository_and_its_submodules_share_one_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of many may answer just in time."""
    for name in ("inner", "middle", "outer"):
        committed(tmp_path / name)
    for name, below in (("middle", "inner"), ("outer", "middle")):
        git(tmp_path / name, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", f"../{below}", "s")
        git(tmp_path / name, "commit", "-qm", "second")
    git(tmp_path / "outer/s", "-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init")
    deadlines = []
    ask = module._git

    def asked(git: str, repository: Path, deadline: float, *arguments: str) -> bytes | None:
        deadlines.append(deadline)
        return ask(git, repository, deadline, *arguments)

    monkeypatch.setattr(module, "_git", asked)
    files = [tmp_path / "outer" / path for path in ("file", "s/file", "s/s/file")]
    commit = git(tmp_path / "outer", "rev-parse", "HEAD")
    assert revision(tmp_path / "outer", files) == commit
    assert len(deadlines) == 6
    assert len(set(deadlines)) == 1
    (tmp_path / "outer/s/s/file").write_text("2")
    assert revision(tmp_path / "outer", files) == f"{commit}+dirty"


def test_paths_that_do_not_fit_into_one_question_are_asked_in_several(tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["x" * 200] * 10)
    folder.mkdir(parents=True)
    files = [folder / f"{number}{'y' * 200}" for number in range(1_000)]
    for file in files:
        file.write_text("1")
    assert sum(len(os.fsencode(file.relative_to(tmp_path))) for file in files) > 2 << 20
    commit = committed(tmp_path)
    assert revision(tmp_path, files) == commit
