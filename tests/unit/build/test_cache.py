from pathlib import Path

import pytest

from wasmline.build.cache import BuildCache, write_whole


def test_a_module_is_remembered_under_its_inputs(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    assert cache.get("sha256:aa") is None
    cache.put("sha256:aa", b"module")
    assert BuildCache(tmp_path).get("sha256:aa") == b"module"
    assert cache.get("sha256:bb") is None


def test_a_damaged_module_is_forgotten(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    cache.put("sha256:aa", b"module")
    (path,) = (tmp_path / "builds").iterdir()
    path.write_bytes(path.read_bytes().replace(b"module", b"modulo"))
    assert cache.get("sha256:aa") is None


def test_without_a_folder_nothing_is_remembered() -> None:
    cache = BuildCache(None)
    cache.put("sha256:aa", b"module")
    assert cache.get("sha256:aa") is None


def test_a_file_that_cannot_be_written_whole_keeps_its_old_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")
    with pytest.raises(TypeError):
        write_whole(path, "not bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
