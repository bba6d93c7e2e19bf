"""Which thread a login of an object store is for, and what a probe of a storage finds."""

import threading
from pathlib import Path
from typing import Any

import fsspec
import pytest

from wasmline.errors import RegistryUnavailable
from wasmline.registry.storage_options import options_of, storage_options
from wasmline.registry.storage_probe import is_tried, probe_registry, probe_storage

OPTIONS = {"s3": {"key": "ours"}}


def test_a_login_holds_for_urls_of_its_protocol_in_its_block() -> None:
    with storage_options(OPTIONS):
        assert options_of("s3://bucket/registry") == {"key": "ours"}
        assert options_of("gs://bucket/registry") == options_of("/folder/s3") == options_of("s3") == {}
        with storage_options({}):
            assert options_of("s3://bucket/registry") == {}
        assert options_of("s3://bucket/registry") == {"key": "ours"}
    assert options_of("s3://bucket/registry") == {}


def test_no_other_thread_has_the_login_of_a_block() -> None:
    found: list[Any] = []
    with storage_options(OPTIONS):
        other = threading.Thread(target=lambda: found.append(options_of("s3://bucket/registry")))
        other.start()
        other.join()
    assert found == [{}]


@pytest.mark.parametrize("url", ["{folder}/new/storage", "memory://probe/storage"])
def test_a_probe_leaves_nothing_behind(url: str, tmp_path: Path) -> None:
    url = url.format(folder=tmp_path)
    probe_storage(url)
    filesystem, root = fsspec.url_to_fs(url)
    assert filesystem.find(root) == []


def test_a_probe_says_which_step_failed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RegistryUnavailable, match=r"^\S+/file/storage cannot be written to: Not a directory$"):
        probe_storage(f"{tmp_path}/file/storage")
    with pytest.raises(RegistryUnavailable, match=r"^nowhere://a/b cannot be opened: Protocol not known: nowhere"):
        probe_storage("nowhere://a/b")


def test_a_probe_writes_to_no_link_that_another_user_has_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    (tmp_path / ".wasmline_probe").symlink_to(tmp_path / "file")
    assert probe_storage(str(tmp_path)) == ""
    assert (tmp_path / "file").read_text() == "kept"


def test_a_registry_on_a_disk_keeps_no_file_of_a_probe_and_one_in_a_store_that_of_its_writers(tmp_path: Path) -> None:
    probe_registry(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    root = f"memory://{tmp_path}"
    probe_registry(root)
    probe_registry(root)
    assert fsspec.url_to_fs(root)[0].find(str(tmp_path)) == [f"{tmp_path}/.create_probe"]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("/folder", True),
        ("s3a://bucket/a", True),
        ("http://host/a", False),
        ("memory://a", False),
        ("simplecache::s3://bucket/a", False),
        ("/folder::s3://bucket/a", False),
    ],
)
def test_only_disks_and_object_stores_are_tried(url: str, expected: bool) -> None:
    assert is_tried(url) == expected
