from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from wasmline.trusted_path import open_file, open_folder

STRANGER = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


def opens(path: Path) -> bool:
    try:
        with open_folder(path):
            return True
    except PermissionError:
        return False


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "above" / "folder"
    path.mkdir(parents=True)
    path.chmod(0o755)
    return path


def test_a_folder_that_others_may_only_read_is_opened(folder: Path) -> None:
    assert opens(folder)


@pytest.mark.parametrize("write", [0o775, 0o757, 0o777, 0o1777])
def test_a_folder_that_others_may_write_to_is_not(folder: Path, write: int) -> None:
    folder.chmod(write)
    assert not opens(folder)


@pytest.mark.parametrize("write", [0o775, 0o757, 0o777])
def test_a_folder_that_others_could_rename_is_not(folder: Path, write: int) -> None:
    folder.parent.chmod(write)
    assert not opens(folder)


def test_a_folder_below_a_sticky_one_is_opened(folder: Path) -> None:
    folder.parent.chmod(0o1777)
    assert opens(folder)


@needs_root
@pytest.mark.parametrize("stranger", ["above/folder", "above"])
def test_a_folder_of_another_user_is_not_opened_nor_what_is_in_it(tmp_path: Path, folder: Path, stranger: str) -> None:
    os.chown(tmp_path / stranger, STRANGER, STRANGER)
    assert not opens(folder)


def test_a_folder_that_an_access_list_lets_others_write_to_is_not_opened(folder: Path) -> None:
    entries = [(0x01, 7, -1), (0x02, 7, STRANGER), (0x04, 0, -1), (0x10, 7, -1), (0x20, 0, -1)]  # of acl(5)
    blob = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(folder, "system.posix_acl_access", blob)
    except (OSError, AttributeError) as error:
        pytest.skip(f"this file system has no POSIX access lists: {error}")
    assert not opens(folder)


def test_links_of_this_user_are_followed(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "absolute").symlink_to(folder.parent)
    (folder / "relative").symlink_to("../../absolute/folder")
    assert opens(folder / "relative")
    assert opens(tmp_path / "absolute" / "folder" / ".." / "folder")


def test_a_link_leads_to_a_folder_that_is_checked(tmp_path: Path, folder: Path) -> None:
    folder.parent.chmod(0o777)
    (tmp_path / "link").symlink_to(folder)
    assert not opens(tmp_path / "link")


@needs_root
def test_links_of_another_user_are_not_followed(tmp_path: Path, folder: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "link").symlink_to(folder)
    assert opens(shared / "link")
    os.chown(shared / "link", STRANGER, STRANGER, follow_symlinks=False)
    assert not opens(shared / "link")


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    with pytest.raises(OSError, match=r"one|two"), open_folder(tmp_path / "one" / "folder"):
        pass


@pytest.mark.parametrize("umask", [0, 0o022, 0o777])
def test_folders_that_are_made_are_this_users_alone(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with open_folder(tmp_path / "a" / "b" / "c", create=True):
            pass
    finally:
        os.umask(before)
    assert [(tmp_path / path).stat().st_mode & 0o7777 for path in ("a", "a/b", "a/b/c")] == [0o700] * 3


def test_nothing_is_made_where_others_may_write(folder: Path) -> None:
    folder.chmod(0o777)
    with (
        pytest.raises(PermissionError, match=f"other users may write to {folder} "),
        open_folder(folder / "new", create=True),
    ):
        pass
    assert not list(folder.iterdir())


def test_what_was_checked_is_what_is_used(folder: Path) -> None:
    (folder / "file").write_text("checked")
    with open_folder(folder) as opened:
        folder.rename(folder.with_name("elsewhere"))
        folder.mkdir()
        (folder / "file").write_text("put in its place")
        with open_file(opened, folder / "file") as file:
            assert os.read(file, 100) == b"checked"


def test_descriptors_are_closed(folder: Path) -> None:
    def descriptors() -> int:
        """Return the number of those of folders: other threads open and close sockets."""
        return sum(each.is_dir() for each in Path("/dev/fd").iterdir())

    (folder / "file").mkdir()
    before = descriptors()
    for _ in range(3):
        with pytest.raises(PermissionError), open_folder(folder) as opened, open_file(opened, folder / "file"):
            pass
    assert descriptors() == before
