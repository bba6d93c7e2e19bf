from __future__ import annotations

import compileall
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import wasmtime

from wasmline import wasm
from wasmline.wasm.compilation.cache_key import CACHE_KEY, compilation_key

PACKAGE = Path(wasm.__file__).parent
LIBRARY = Path(wasmtime._ffi.filename)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return Path(shutil.copytree(PACKAGE, tmp_path / "wasm", ignore=shutil.ignore_patterns("__pycache__")))


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "library.so"
    path.write_bytes(b"\x7fELF" + bytes(10_000))
    return path


def test_the_key_is_of_the_package_and_the_runtime_that_are_loaded(package: Path) -> None:
    assert compilation_key(package, LIBRARY) == CACHE_KEY
    assert len(str(CACHE_KEY)) == 32


def test_every_file_of_the_package_shapes_the_key(package: Path) -> None:
    keys = {compilation_key(package, LIBRARY)}
    files = sorted(package.rglob("*.py"))
    for path in files:
        path.write_text(path.read_text() + "\n")
        keys.add(compilation_key(package, LIBRARY))
    (package / "another.py").touch()
    keys.add(compilation_key(package, LIBRARY))
    (package / "another.py").rename(package / "another_name.py")
    keys.add(compilation_key(package, LIBRARY))
    (package / "another_name.py").rename(package / "shim" / "another_name.py")
    keys.add(compilation_key(package, LIBRARY))
    assert len(files) > 30
    assert len(keys) == 4 + len(files)


def test_what_python_does_not_import_does_not(package: Path) -> None:
    (package / ".shim.py.swp").touch()
    (package / "__pycache__").mkdir()
    assert compilation_key(package, LIBRARY) == CACHE_KEY


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content + b"\0",
        lambda content: content[:700] + b"another build" + content[713:],  # where linkers note a build's digest
    ],
)
def test_another_runtime_of_the_same_version_has_another_key(
    package: Path, library: Path, change: Callable[[bytes], bytes]
) -> None:
    before = compilation_key(package, library)
    library.write_bytes(change(library.read_bytes()))
    assert compilation_key(package, library) != before


def test_another_version_has_another_key(package: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = compilation_key(package, library)
    metadata = package.parent / "wasmtime-50.0.99.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: wasmtime\nVersion: 50.0.99\n")
    monkeypatch.syspath_prepend(package.parent)
    assert compilation_key(package, library) != before


def test_a_package_in_an_archive_has_the_same_key(package: Path, tmp_path: Path) -> None:
    archive = tmp_path / "wasmline.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in package.rglob("*.py"):
            file.write(path, Path("wasm", path.relative_to(package)))
    with archive.open("rb") as stream:
        assert compilation_key(zipfile.Path(stream, "wasm/"), LIBRARY) == CACHE_KEY


def test_a_package_without_its_sources_has_a_key_too(package: Path) -> None:
    compileall.compile_dir(package, legacy=True, quiet=1)
    for path in package.rglob("*.py"):
        path.unlink()
    key = compilation_key(package, LIBRARY)
    assert key
    path = package / "compilation" / "module_merge.pyc"
    path.write_bytes(path.read_bytes() + b"\0")
    assert compilation_key(package, LIBRARY) not in (key, None)


def test_without_files_there_is_no_key(tmp_path: Path, package: Path) -> None:
    assert compilation_key(tmp_path / "nothing", LIBRARY) is None
    (tmp_path / "empty").mkdir()
    assert compilation_key(tmp_path / "empty", LIBRARY) is None
    assert compilation_key(package, tmp_path / "no library") is None
