"""A registry behind an fsspec driver: what its files may be, how much of them is read, and what a driver raises."""

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from wasmline.errors import InvalidLayout, RegistryUnavailable
from wasmline.registry import FilesystemRegistry, digest_of
from wasmline.registry.object_storage import ObjectStorage

WASM = b"\0asm\1\0\0\0"


@pytest.fixture
def storage(tmp_path: Path) -> ObjectStorage:
    """A store whose driver has links and pipes, as one that wraps a disk."""
    return ObjectStorage(LocalFileSystem(auto_mkdir=True), str(tmp_path), url="wrapped://")


@pytest.mark.parametrize(
    "irregular",
    [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero"), lambda path: path.symlink_to("file")],
)
def test_what_is_not_a_file_is_an_error_and_is_not_read(
    storage: ObjectStorage, tmp_path: Path, irregular: Callable[[Path], None]
) -> None:
    (tmp_path / "file").write_text("x")
    irregular(tmp_path / "index.json")
    with pytest.raises(
        InvalidLayout, match=r"index\.json in wrapped:// is not a file, and links are not followed: remove it"
    ):
        storage.read("index.json", 100)


def test_a_file_is_read_up_to_the_limit(storage: ObjectStorage, tmp_path: Path) -> None:
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 2**36)
    (tmp_path / "small").write_bytes(b"123")
    (tmp_path / "empty").touch()
    assert storage.read("large", 1000) == bytes(1001)
    assert (storage.read("small", 2), storage.read("small", 3), storage.read("small", 2**28)) == (b"123",) * 3
    assert storage.read("small", 1) == b"12"
    assert storage.read("empty", 5) == b""
    assert storage.read("missing", 5) is None


def test_folders_are_those_with_a_regular_marker(storage: ObjectStorage, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / "kind" / name).mkdir(parents=True)
    (tmp_path / "kind/a/marker").touch()
    (tmp_path / "kind/b/marker").mkdir()
    (tmp_path / "kind/file").touch()
    assert storage.folders("kind") == ["a", "b", "c"]
    assert storage.folders("kind", "marker") == ["a"]
    assert storage.folders("none") == storage.folders("none", "marker") == []


BLOB = f"modules/a/1.0.0/blobs/sha256/{digest_of(WASM).removeprefix('sha256:')}"


@pytest.mark.parametrize(
    "place", ["modules/a", "modules/a/1.0.0", "modules/a/1.0.0/blobs", "modules/a/1.0.0/blobs/sha256"]
)
@pytest.mark.parametrize("driver", ["memory", "wrapped"])
def test_a_file_in_the_way_of_a_version_is_named(tmp_path: Path, driver: str, place: str) -> None:
    """In a store whose folders are more than a part of a name."""
    url = str(tmp_path) if driver == "wrapped" else f"memory://{uuid.uuid4()}"
    filesystem, root = (LocalFileSystem(auto_mkdir=True), url) if driver == "wrapped" else url_to_fs(url)
    filesystem.pipe_file(f"{root}/{place}", b"")
    storage = ObjectStorage(filesystem, root, url=url)
    with pytest.raises(InvalidLayout, match=rf"^{place} in .* is not a folder, .*: remove it") as caught:
        storage.create("modules/a/1.0.0", [(BLOB.removeprefix("modules/a/1.0.0/"), WASM), ("index.json", b"{}")])
    assert caught.value.path == place


@pytest.mark.parametrize("place", [BLOB, "modules/a/1.0.0/oci-layout", "modules/a/1.0.0/index.json"])
@pytest.mark.parametrize("driver", ["memory", "wrapped"])
def test_a_folder_in_the_way_of_a_file_is_named(tmp_path: Path, driver: str, place: str) -> None:
    url = str(tmp_path) if driver == "wrapped" else f"memory://{uuid.uuid4()}"
    registry = FilesystemRegistry(url)
    if driver == "wrapped":
        registry._store._storage = ObjectStorage(LocalFileSystem(auto_mkdir=True), url, url=url)
    filesystem, root = (LocalFileSystem(auto_mkdir=True), url) if driver == "wrapped" else url_to_fs(url)
    filesystem.pipe_file(f"{root}/{place}/x", b"")
    with pytest.raises(InvalidLayout, match=rf"^{place} in .* is not a file, .*: remove it") as caught:
        registry.publish("a", "1.0.0", WASM)
    assert caught.value.path == place


def test_a_driver_that_returns_more_than_was_asked_for_is_read_up_to_the_limit(
    storage: ObjectStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "large").write_bytes(b"123456")
    monkeypatch.setattr(LocalFileSystem, "cat_file", lambda *_, **__: b"123456")
    assert storage.read("large", 2) == b"123"


@pytest.mark.parametrize("method", ["info", "ls", "cat_file", "pipe_file"])
def test_whatever_a_driver_raises_is_an_error_of_the_registry(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """Drivers have exceptions of their own, such as aiohttp's."""

    def fail(*_: Any, **__: Any) -> None:
        raise LookupError("the bucket is elsewhere")

    url = f"memory://{uuid.uuid4()}"
    registry = FilesystemRegistry(url)
    registry.publish("a", "1.0.0", WASM)
    monkeypatch.setattr(type(fsspec.filesystem("memory")), method, fail)
    with pytest.raises(RegistryUnavailable, match="the bucket is elsewhere"):
        registry.publish("a", "1.1.0", WASM) if method == "pipe_file" else registry.latest("a")
