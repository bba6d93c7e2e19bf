from pathlib import Path

import pytest

from wasmline.build.cache import BuildCache, cache_root, write_whole


def test_a_module_is_remembered_under_its_inputs(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    assert cache.get("sha256:aa") is None
    cache.put("sha256:aa", b"module")
    assert BuildCache(tmp_path).get("sha256:aa") == b"module"
    assert cache.get("sha256:bb") is None


def test_the_cache_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WASMLINE_CACHE", str(tmp_path))
    assert cache_root() == tmp_path
    monkeypatch.delenv("WASMLINE_CACHE")
    assert cache_root() == Path.home() / ".cache/wasmline"


def test_a_file_that_cannot_be_written_whole_keeps_its_old_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")
    with pytest.raises(TypeError):
        write_whole(path, "not bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
