"""A registry's folder that others may write to: links, pipes and devices in it, and copies that were cut short."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import socket
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from wasmline.errors import DigestMismatch, InvalidLayout, RegistryUnavailable, VersionExists, VersionNotFound
from wasmline.registry import FilesystemRegistry, digest_of
from wasmline.registry.local_storage import LocalStorage

WASM = b"\0asm\1\0\0\0"
OTHER = b"\0asm\1\0\0\0\0\4\3abc"
SECRET = "not for readers of the registry"


@pytest.fixture
def registry(tmp_path: Path) -> FilesystemRegistry:
    registry = FilesystemRegistry(str(tmp_path / "registry"))
    registry.publish("a", "1.0.0", WASM)
    return registry


@pytest.fixture
def version(registry: FilesystemRegistry) -> Path:
    return Path(registry.url) / "modules/a/1.0.0"


def link(target: str | Path) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


def moved_and_linked(path: Path) -> None:
    """Put a link where ``path`` was, to itself outside of the registry."""
    outside = path.parents[len(path.parts) - path.parts.index("registry") - 1] / "outside"
    shutil.copytree(path, outside) if path.is_dir() else shutil.copy(path, outside)
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    path.symlink_to(outside)


def listening(path: Path) -> None:
    """Leave a socket's name."""
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(os.path.relpath(path))


FILES = ["index.json", "oci-layout", f"blobs/sha256/{digest_of(WASM).removeprefix('sha256:')}"]
IRREGULAR: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "device": link("/dev/zero"),
    "link out": link("/etc/hostname"),
    "link within": link("oci-layout"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "folder": Path.mkdir,
    "socket": listening,
}


@pytest.mark.parametrize("kind", IRREGULAR)
@pytest.mark.parametrize("file", FILES)
def test_what_is_not_a_regular_file_is_an_error_and_is_not_read(
    registry: FilesystemRegistry, version: Path, monkeypatch: pytest.MonkeyPatch, file: str, kind: str
) -> None:
    (version / file).unlink()
    monkeypatch.chdir((version / file).parent)  # a socket's path is short
    IRREGULAR[kind](version / file)
    with pytest.raises(
        InvalidLayout, match=rf"modules/a/1\.0\.0/{file} in .* is not a file, and links are not followed"
    ):
        registry.read("a", "1.0.0")
    with pytest.raises(InvalidLayout, match="remove it"):
        registry.publish("a", "1.0.0", WASM)


@pytest.mark.parametrize("folder", ["blobs/sha256", "blobs", "", "..", "../.."])
def test_a_linked_folder_is_not_followed(registry: FilesystemRegistry, version: Path, folder: str) -> None:
    moved_and_linked(Path(os.path.normpath(version / folder)))
    with pytest.raises(InvalidLayout, match="is not a folder, and links are not followed"):
        registry.read("a", "1.0.0")
    with pytest.raises(InvalidLayout, match="is not a folder"):
        registry.publish("a", "1.0.0", WASM)


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for linked in ("modules", "modules/a", "modules/a/1.0.0", "modules/a/1.0.0/blobs"):
        root = tmp_path / linked.replace("/", "-")
        (root / linked).parent.mkdir(parents=True)
        (root / linked).symlink_to(outside)
        (root / "modules/a/1.0.0/in the way").touch() if linked.endswith("blobs") else None
        with pytest.raises(InvalidLayout, match="is not a folder"):
            FilesystemRegistry(str(root)).publish("a", "1.0.0", WASM)
    assert list(outside.iterdir()) == []


def test_a_registry_that_is_itself_linked_is_read_and_written(registry: FilesystemRegistry, tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(registry.url)
    linked = FilesystemRegistry(str(tmp_path / "linked"))
    linked.publish("a", "1.1.0", WASM)
    assert registry.versions("a") == linked.versions("a") == ["1.0.0", "1.1.0"]


def test_a_file_without_end_is_read_up_to_the_limit(registry: FilesystemRegistry, version: Path) -> None:
    os.truncate(version / "index.json", 2**36)
    with pytest.raises(InvalidLayout, match="takes more than 4194304 bytes"):
        registry.get("a", "1.0.0")
    storage = LocalStorage(Path(registry.url))
    assert storage.read("modules/a/1.0.0/index.json", 5) == b'{"sche'
    assert storage.read("modules/a/1.0.0/oci-layout", 1000) == (version / "oci-layout").read_bytes()


def test_entries_that_cannot_be_versions_are_passed_over(registry: FilesystemRegistry, version: Path) -> None:
    os.mkfifo(version.parent / "1.1.0")
    (version.parent / "1.2.0").symlink_to(version)
    (version.parent / "1.3.0").touch()
    (version.parent / "1.4.0/index.json").mkdir(parents=True)
    (version.parent / os.fsdecode(b"\xff\x1b[2J")).mkdir()
    (version.parents[1] / "b").symlink_to(version.parent)
    os.mkfifo(version.parents[1] / "c")
    (version.parents[1] / "d").mkdir()
    assert registry.versions("a") == ["1.0.0"]
    assert registry.names() == ["a"]
    assert registry.latest("a").version == "1.0.0"


@contextmanager
def unprivileged() -> Iterator[None]:
    """Give up what lets root look into every folder."""
    user = os.geteuid()
    os.seteuid(user or 65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_folder_that_may_not_be_looked_into_does_not_hide_the_others(caplog: pytest.LogCaptureFixture) -> None:
    with tempfile.TemporaryDirectory() as root:
        Path(root).chmod(0o755)
        registry = FilesystemRegistry(root)
        registry.publish("a", "1.0.0", WASM)
        for place in ("modules/a/2.0.0", "modules/b"):
            (Path(root) / place).mkdir(mode=0)
        with caplog.at_level(logging.WARNING), unprivileged():
            assert registry.versions("a") == ["1.0.0"]
            assert registry.names() == ["a"]
    assert "'2.0.0' in the registry at" in caplog.text
    assert "modules/b is passed over" in caplog.text


def published_by_others(root: str) -> FilesystemRegistry:
    """Return a registry with ``a@1.0.0`` that no other user may write to."""
    registry = FilesystemRegistry(root)
    registry.publish("a", "1.0.0", WASM)
    return registry


def test_a_registry_whose_root_may_only_be_passed_through_is_read() -> None:
    with tempfile.TemporaryDirectory() as root:
        registry = published_by_others(root)
        Path(root).chmod(0o711)
        with unprivileged():
            assert registry.read("a", "1.0.0") == WASM
            assert registry.names() == ["a"]


@pytest.mark.parametrize("below", ["", "registry", "deep/registry"])
def test_a_registry_is_written_in_a_folder_that_may_not_be_listed(below: str) -> None:
    with tempfile.TemporaryDirectory() as root:
        Path(root).chmod(0o1733)
        with unprivileged():
            registry = FilesystemRegistry(f"{root}/{below}")
            registry.publish("a", "1.0.0", WASM)
            assert registry.read("a", "1.0.0") == WASM


def test_a_part_of_a_version_that_may_not_be_completed_is_named() -> None:
    with tempfile.TemporaryDirectory() as root:
        folder = partial(Path(root))
        for place in (folder, *folder.parents[: len(folder.relative_to(root).parts)]):
            place.chmod(0o777)
        (folder / "blobs/sha256").chmod(0o755)
        complaint = (
            r"modules/a/1\.0\.0 in .* has no index\.json and cannot be completed \(Permission denied\): remove it"
        )
        with unprivileged(), pytest.raises(InvalidLayout, match=complaint):
            FilesystemRegistry(root).publish("a", "1.0.0", WASM)


def test_where_there_are_no_hard_links_a_part_of_a_version_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partial(tmp_path)
    monkeypatch.setattr(os, "link", refusing(os.link, errno.EPERM))
    with pytest.raises(InvalidLayout, match=r"cannot be completed \(Operation not permitted\): remove it"):
        FilesystemRegistry(str(tmp_path)).publish("a", "1.0.0", WASM)


def refusing(call: Callable[..., None], error: int) -> Callable[..., None]:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(error, os.strerror(error))

    return refuse


def refusing_folders(error: int) -> Callable[[int], None]:
    """Return an fsync as of a file system that refuses it for folders."""
    fsync = os.fsync

    def refuse(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(error, os.strerror(error))
        fsync(descriptor)

    return refuse


@pytest.mark.parametrize("error", [errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.ENOSYS, errno.EACCES])
def test_a_file_system_that_does_not_flush_folders_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    partial(tmp_path / "partial")
    monkeypatch.setattr(os, "fsync", refusing_folders(error))
    for root in ("new/registry", "partial"):
        registry = FilesystemRegistry(str(tmp_path / root))
        registry.publish("a", "1.0.0", WASM)
        assert registry.read("a", "1.0.0") == WASM


@pytest.mark.parametrize("fsync", [refusing_folders(errno.EIO), refusing(os.fsync, errno.EINVAL)])
def test_a_flush_that_fails_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: Callable[[int], None]
) -> None:
    monkeypatch.setattr(os, "fsync", fsync)
    registry = FilesystemRegistry(str(tmp_path))
    with pytest.raises(RegistryUnavailable, match="nothing was published; see modules/a/1"):
        registry.publish("a", "1.0.0", WASM)
    assert registry.versions("a") == []


BLOB = FILES[-1]
IN_THE_WAY: dict[str, Callable[[Path], None]] = {
    "modules": Path.touch,
    "modules/a": Path.touch,
    "modules/a/1.0.0": Path.touch,
    "modules/a/1.0.0/oci-layout": Path.mkdir,
    "modules/a/1.0.0/index.json": Path.mkdir,
    "modules/a/1.0.0/blobs": Path.touch,
    "modules/a/1.0.0/blobs/sha256": Path.touch,
    f"modules/a/1.0.0/{BLOB}": Path.mkdir,
}


@pytest.mark.parametrize("place", IN_THE_WAY)
def test_what_is_in_the_way_of_a_version_is_named_and_can_be_removed(tmp_path: Path, place: str) -> None:
    """An entry that is neither a version nor a part of one, and keeps a version from being published."""
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    IN_THE_WAY[place](tmp_path / place)
    registry = FilesystemRegistry(str(tmp_path))
    with pytest.raises(InvalidLayout, match=rf"^{place} in .* is not a (file|folder), .*: remove it") as caught:
        registry.publish("a", "1.0.0", WASM)
    assert caught.value.path == place
    with pytest.raises((VersionNotFound, InvalidLayout)):
        registry.get("a", "1.0.0")
    (tmp_path / place).rmdir() if (tmp_path / place).is_dir() else (tmp_path / place).unlink()
    registry.publish("a", "1.0.0", WASM)
    assert registry.read("a", "1.0.0") == WASM


def test_a_hard_link_is_read_as_its_digest_says_or_not_at_all(
    registry: FilesystemRegistry, version: Path, tmp_path: Path
) -> None:
    """A link to a file elsewhere cannot be told from a file: its bytes are neither handed out nor shown."""
    (tmp_path / "secret").write_text(SECRET)
    for file in FILES:
        kept = (version / file).read_bytes()
        (version / file).unlink()
        (version / file).hardlink_to(tmp_path / "secret")
        with pytest.raises((InvalidLayout, DigestMismatch)) as caught:
            registry.load("a", "1.0.0")
        assert SECRET not in str(caught.value)
        (version / file).unlink()
        (version / file).write_bytes(kept)
    assert (tmp_path / "secret").read_text() == SECRET


def test_a_link_in_the_place_of_a_listed_folder_is_not_followed(registry: FilesystemRegistry, version: Path) -> None:
    """As by a writer that exchanges the two while they are listed."""
    (version.parent / "2.0.0").symlink_to(version)
    folder = os.open(version.parent, os.O_RDONLY)
    storage = LocalStorage(Path(registry.url))
    assert [storage._holds(folder, name, "index.json") for name in ("1.0.0", "2.0.0", "3.0.0")] == [True, False, False]
    os.close(folder)


@pytest.mark.parametrize("exchanged", ["another version", "a link out", "a link within", "a file", "nothing"])
@pytest.mark.parametrize("after", ["index.json", "oci-layout", "manifest"])
def test_a_folder_that_is_exchanged_while_it_is_read_is_an_error_or_as_it_was(
    registry: FilesystemRegistry, version: Path, monkeypatch: pytest.MonkeyPatch, after: str, exchanged: str
) -> None:
    other = FilesystemRegistry(str(version.parents[3] / "outside")).publish("a", "1.0.0", OTHER)
    registry.publish("a", "1.1.0", OTHER)
    read = LocalStorage.read
    paths: list[str] = []

    def read_and_exchange(storage: LocalStorage, path: str, limit: int) -> bytes | None:
        content = read(storage, path, limit)
        paths.append(path)
        if len(paths) == 3 if after == "manifest" else path.endswith(after):
            version.rename(version.with_name("moved"))
            exchange(version, exchanged)
        return content

    monkeypatch.setattr(LocalStorage, "read", read_and_exchange)
    with pytest.raises((InvalidLayout, DigestMismatch)) as caught:
        registry.load("a", "1.0.0")
    assert other.digest not in str(caught.value)


def exchange(version: Path, kind: str) -> None:
    """Put something else where a version was."""
    if kind == "another version":
        (version.parent / "1.1.0").rename(version)
    elif kind == "a link out":
        version.symlink_to(version.parents[3] / "outside/modules/a/1.0.0")
    elif kind == "a link within":
        version.symlink_to("1.1.0")
    elif kind == "a file":
        version.touch()


def partial(root: Path, *, of: bytes = OTHER) -> Path:
    """Return a version's folder as a copy leaves it that was cut short before its index."""
    FilesystemRegistry(str(root)).publish("a", "1.0.0", of, provenance={"_type": "x"})
    folder = root / "modules/a/1.0.0"
    (folder / "index.json").unlink()
    (folder / "oci-layout").write_bytes(b'{"image')
    for blob in list((folder / "blobs/sha256").iterdir())[:2]:
        blob.write_bytes(b"")
    return folder


def test_a_partial_version_is_not_visible_and_does_not_block_its_name(tmp_path: Path) -> None:
    partial(tmp_path)
    registry = FilesystemRegistry(str(tmp_path))
    assert registry.versions("a") == []
    with pytest.raises(VersionNotFound):
        registry.get("a", "1.0.0")
    published = registry.publish("a", "1.0.0", WASM)
    assert registry.load("a", "1.0.0") == (published, WASM)
    assert [path.name for path in (tmp_path / "modules/a").iterdir()] == ["1.0.0"]


def test_a_partial_version_of_the_same_bytes_is_completed(tmp_path: Path) -> None:
    folder = partial(tmp_path, of=WASM)
    registry = FilesystemRegistry(str(tmp_path))
    published = registry.publish("a", "1.0.0", WASM, provenance={"_type": "x"})
    assert registry.load("a", "1.0.0") == (published, WASM)
    assert (folder / "oci-layout").read_bytes() == b'{"imageLayoutVersion":"1.0.0"}'


def test_a_version_is_not_completed_through_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer exchanges what was just written for a link to a registry that is not its own."""
    victim = FilesystemRegistry(str(tmp_path / "victim"))
    published = victim.publish("z", "1.0.0", OTHER)
    partial(tmp_path / "registry")
    complete = LocalStorage._complete

    def exchange_and_complete(storage: LocalStorage, staging: str, folder: PurePosixPath, paths: Sequence[str]) -> bool:
        written = tmp_path / "registry" / folder.parent / staging
        written.rename(tmp_path / "moved")
        written.symlink_to(tmp_path / "victim/modules/z/1.0.0")
        return complete(storage, staging, folder, paths)

    monkeypatch.setattr(LocalStorage, "_complete", exchange_and_complete)
    with pytest.raises(InvalidLayout):
        FilesystemRegistry(str(tmp_path / "registry")).publish("a", "1.0.0", WASM)
    assert victim.load("z", "1.0.0") == (published, OTHER)


@pytest.mark.parametrize("left", ["nothing", "an empty folder", "a partial version"])
def test_of_many_publishers_over_what_was_left_one_wins(tmp_path: Path, left: str) -> None:
    for round_ in range(3):
        root = tmp_path / str(round_)
        if left == "an empty folder":
            (root / "modules/a/1.0.0").mkdir(parents=True)
        elif left == "a partial version":
            partial(root)
        winners = compete(root, [WASM + bytes([0, 2, 1, content % 4]) for content in range(32)])
        assert len(winners) == 8
        assert set(winners) == {FilesystemRegistry(str(root)).read("a", "1.0.0")}
        assert [path.name for path in (root / "modules/a").iterdir()] == ["1.0.0"]


def compete(root: Path, contents: list[bytes]) -> list[bytes]:
    """Publish all of ``contents`` as one version at the same time and return those of the publishers that succeeded."""
    outcomes: list[bytes | Exception] = []
    barrier = threading.Barrier(len(contents))

    def publish(content: bytes) -> None:
        registry = FilesystemRegistry(str(root))
        barrier.wait()
        try:
            registry.publish("a", "1.0.0", content)
            outcomes.append(content)
        except VersionExists:
            pass
        except Exception as error:
            outcomes.append(error)

    threads = [threading.Thread(target=publish, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each for each in outcomes if isinstance(each, Exception)] == []
    return [each for each in outcomes if isinstance(each, bytes)]


def test_all_that_a_version_needs_is_on_the_disk_before_it_is_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fsync is the real one; what it is called for is noted, and whether the version was visible by then."""
    flushed: dict[Path, bool] = {}
    index = tmp_path / "new/registry/modules/a/1.0.0/index.json"
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        flushed[Path(f"/proc/self/fd/{descriptor}").readlink()] = index.exists()
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    FilesystemRegistry(str(tmp_path / "new/registry")).publish("a", "1.0.0", WASM)
    modules = tmp_path / "new/registry/modules"
    (staging,) = {path.relative_to(modules / "a").parts[0] for path in flushed if (modules / "a") in path.parents}
    written = {Path(staging) / path.relative_to(index.parent) for path in [index.parent, *index.parent.rglob("*")]}
    assert {modules / "a" / path for path in written} <= {path for path, visible in flushed.items() if not visible}
    parents = {tmp_path, tmp_path / "new", tmp_path / "new/registry", modules}
    assert parents <= {path for path, visible in flushed.items() if not visible}
    assert flushed[modules / "a"]


def test_a_version_that_is_completed_is_on_the_disk_before_it_is_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = partial(tmp_path)
    flushed: list[tuple[Path, bool]] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        flushed.append((Path(f"/proc/self/fd/{descriptor}").readlink(), (folder / "index.json").exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    FilesystemRegistry(str(tmp_path)).publish("a", "1.0.0", WASM)
    assert (folder / "blobs/sha256", False) in flushed
    assert flushed[-1] == (folder, True)


def test_a_root_that_is_not_a_folder_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RegistryUnavailable, match=r"pipe refused: Not a directory"):
        FilesystemRegistry(str(tmp_path / "pipe")).get("a", "1.0.0")
