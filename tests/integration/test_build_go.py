"""Go projects, built with the real compiler and Redpanda's real SDK."""

import shutil
from pathlib import Path

import pytest

from wasmline.build import BuildReport, build, load_project, run_samples, scaffold
from wasmline.build.toolchains import toolchain_for
from wasmline.errors import BuildFailed, ToolchainMissing, UnsupportedAbi
from wasmline.wasm import check_abi


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A new project, where this machine has Go."""
    folder = tmp_path / "here/shout"
    scaffold(folder, language="go")
    try:
        toolchain_for("go").prepare(load_project(folder))
    except ToolchainMissing as missing:
        pytest.skip(str(missing))
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def built(folder: Path, cache: Path) -> BuildReport:
    return build(load_project(folder), cache_dir=cache)


def test_a_new_project_builds_and_passes_its_samples(folder: Path, cache: Path) -> None:
    report = built(folder, cache)
    wasm = Path(report.path).read_bytes()
    assert run_samples(load_project(folder), wasm).outputs == 2
    assert report.abi == check_abi(wasm) == 2
    assert report.toolchain.startswith("go1.")
    assert report.sources == ("main.go",)
    assert {"redpanda_transform.write_record_with_options", "wasi_snapshot_preview1.fd_write"} < {*report.imports}
    assert {"GOOS=wasip1", "-trimpath"} < {*report.flags}
    again = built(folder, cache)
    assert (again.cached, again.digest) == (True, report.digest)


def test_the_same_sources_elsewhere_give_the_same_bytes(
    folder: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another folder, with nothing compiled before, and under an environment that asks for other code."""
    elsewhere = shutil.copytree(folder, tmp_path / "a place with spaces/elsewhere")
    first = built(folder, cache)
    (tmp_path / "here/go.work").write_text("go 1.21\n")
    monkeypatch.setenv("GOCACHE", str(tmp_path / "go-build"))
    monkeypatch.setenv("GOFLAGS", "-gcflags=all=-N")
    monkeypatch.setenv("GOOS", "linux")
    second = built(elsewhere, tmp_path / "other cache")
    assert not second.cached
    assert (second.digest, second.source_digest) == (first.digest, first.source_digest)
    assert str(tmp_path).encode() not in Path(second.path).read_bytes()


def test_a_compile_error_names_its_place(folder: Path, cache: Path) -> None:
    (folder / "main.go").write_text("package main\n\nfunc main() {\n\tmissing()\n}\n")
    with pytest.raises(BuildFailed, match=r"shout does not compile: \./main\.go:4:2: undefined: missing") as caught:
        built(folder, cache)
    assert "main.go:4:2" in caught.value.log
    assert not (folder / "build").exists()


def test_a_program_that_is_no_transform_is_not_a_module(folder: Path, cache: Path) -> None:
    (folder / "main.go").write_text("package main\n\nfunc main() {}\n")
    with pytest.raises(UnsupportedAbi):
        built(folder, cache)


def test_a_project_for_a_newer_go_is_told_which(folder: Path, cache: Path) -> None:
    module = folder / "go.mod"
    module.write_text(module.read_text().replace("go 1.21", "go 1.99"))
    with pytest.raises(ToolchainMissing, match=r"shout needs Go 1\.99 or newer"):
        built(folder, cache)


def test_a_dependency_without_its_checksum_is_refused(folder: Path, cache: Path) -> None:
    (folder / "go.sum").unlink()
    with pytest.raises(BuildFailed, match=r"missing go\.sum entry"):
        built(folder, cache)


def test_a_folder_without_a_module_file_is_named(folder: Path, cache: Path) -> None:
    (folder / "go.mod").unlink()
    with pytest.raises(BuildFailed, match=r"go\.mod file not found"):
        built(folder, cache)


def test_a_module_of_a_neighbouring_folder_is_a_source(folder: Path, cache: Path) -> None:
    """A change in it is a changed module, although the project's own files are the same."""
    neighbour = folder.parent / "voice"
    neighbour.mkdir()
    (neighbour / "go.mod").write_text("module example.org/voice\n\ngo 1.21\n")
    (neighbour / "voice.go").write_text('package voice\n\nconst End = "!"\n')
    with (folder / "go.mod").open("a") as file:
        file.write("\nrequire example.org/voice v0.0.0\n\nreplace example.org/voice => ../voice\n")
    main = folder / "main.go"
    main.write_text(
        main.read_text()
        .replace('"bytes"\n', '"bytes"\n\n\t"example.org/voice"\n')
        .replace("bytes.ToUpper(record.Value)", "append(bytes.ToUpper(record.Value), voice.End...)")
    )
    first = built(folder, cache)
    (neighbour / "voice.go").write_text('package voice\n\nconst End = "?"\n')
    second = built(folder, cache)
    assert not second.cached
    assert first.digest != second.digest
    assert first.source_digest != second.source_digest
