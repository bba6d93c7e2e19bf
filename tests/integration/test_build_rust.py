"""Rust projects, built with the real compiler and Redpanda's real SDK."""

import os
import shutil
from pathlib import Path

import pytest

from wasmline.build import BuildReport, build, load_project, run_samples, scaffold
from wasmline.build.toolchains import toolchain_for
from wasmline.errors import BuildFailed, InvalidProject, ToolchainMissing, UnsupportedAbi
from wasmline.wasm import check_abi


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new project with its lock file, where this machine has Rust and its library for WebAssembly."""
    folder = tmp_path_factory.mktemp("rust") / "shout"
    scaffold(folder, language="rust")
    try:
        toolchain_for("rust").prepare(load_project(folder))
    except ToolchainMissing as missing:
        pytest.skip(str(missing))
    return folder


@pytest.fixture
def folder(new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CARGO_NET_OFFLINE", "true")  # everything was fetched
    return shutil.copytree(new, tmp_path / "here/shout")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def built(folder: Path, cache: Path) -> BuildReport:
    return build(load_project(folder), cache_dir=cache)


def replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_a_new_project_builds_and_passes_its_samples(folder: Path, cache: Path) -> None:
    (folder / "Cargo.lock").unlink()
    report = built(folder, cache)
    wasm = Path(report.path).read_bytes()
    assert run_samples(load_project(folder), wasm).outputs == 2
    assert report.abi == check_abi(wasm) == 2
    assert report.toolchain.startswith("rustc 1.")
    assert ", cargo 1." in report.toolchain
    assert report.sources == ("src/main.rs",)
    assert "redpanda_transform.write_record" in report.imports
    assert "wasm32-wasip1" in report.flags
    assert 'name = "redpanda-transform-sdk"\nversion = "1.1.0"' in (folder / "Cargo.lock").read_text()
    again = built(folder, cache)
    assert (again.cached, again.digest) == (True, report.digest)


def test_the_same_sources_elsewhere_give_the_same_bytes(
    folder: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another folder, with another cargo home, and under an environment that asks for other code."""
    replace(folder / "src/main.rs", "let shouted", "let _: u8 = value[0];\n    let shouted")  # a panic names its place
    elsewhere = shutil.copytree(folder, tmp_path / "a place with spaces/elsewhere")
    first = built(folder, cache)
    home = tmp_path / "another home"
    home.symlink_to(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    monkeypatch.setenv("CARGO_HOME", str(home))
    monkeypatch.setenv("RUSTFLAGS", "-Copt-level=0")
    monkeypatch.setenv("CARGO_PROFILE_RELEASE_DEBUG", "true")
    monkeypatch.setenv("CARGO_TARGET_DIR", str(tmp_path / "target"))
    second = built(elsewhere, tmp_path / "other cache")
    assert not second.cached
    assert (second.digest, second.source_digest) == (first.digest, first.source_digest)
    assert str(tmp_path).encode() not in Path(second.path).read_bytes()
    assert str(Path.home()).encode() not in Path(second.path).read_bytes()
    assert not (tmp_path / "target").exists()


def test_what_cargo_wrote_beside_the_sources_is_no_source(folder: Path, cache: Path) -> None:
    first = built(folder, cache)
    (folder / "target").mkdir()
    (folder / "target/CACHEDIR.TAG").touch()
    assert built(folder, cache).cached
    (folder / ".cargo").mkdir()
    (folder / ".cargo/config.toml").write_text("[profile.release]\nopt-level = 's'\n")
    second = built(folder, cache)
    assert not second.cached
    assert second.digest != first.digest


def test_a_compile_error_names_its_place(folder: Path, cache: Path) -> None:
    (folder / "src/main.rs").write_text("fn main() {\n    missing();\n}\n")
    with pytest.raises(
        BuildFailed, match=r"shout does not compile: src/main\.rs:2:5: error\[E0425\]: cannot find function"
    ) as caught:
        built(folder, cache)
    assert "missing();" in caught.value.log
    assert not (folder / "build").exists()


def test_a_program_that_is_no_transform_is_not_a_module(folder: Path, cache: Path) -> None:
    (folder / "src/main.rs").write_text("fn main() {}\n")
    with pytest.raises(UnsupportedAbi):
        built(folder, cache)


def test_a_lock_file_that_no_longer_fits_is_refused(folder: Path, cache: Path) -> None:
    replace(folder / "Cargo.toml", 'name = "transform"', 'name = "renamed"')
    with pytest.raises(BuildFailed, match=r"shout does not compile: error: .*lock file.*--locked"):
        built(folder, cache)


def test_a_project_builds_exactly_one_program(folder: Path, cache: Path) -> None:
    (folder / "src/bin").mkdir()
    shutil.copy(folder / "src/main.rs", folder / "src/bin/second.rs")
    with pytest.raises(BuildFailed, match=r"Cargo\.toml builds (transform, second|second, transform); a transform is"):
        built(folder, cache)


def test_a_project_inside_a_workspace_is_told_how_to_leave_it(folder: Path, cache: Path) -> None:
    (folder.parent / "Cargo.toml").write_text('[workspace]\nmembers = ["shout"]\nresolver = "2"\n')
    replace(folder / "Cargo.toml", "[workspace]\n", "")
    replace(folder / "Cargo.toml", "[profile.release]", "[profile.dev]")
    (folder / "Cargo.lock").rename(folder.parent / "Cargo.lock")
    with pytest.raises(InvalidProject, match=r"add an empty \[workspace\] table to its Cargo\.toml"):
        built(folder, cache)


def test_a_crate_of_a_neighbouring_folder_is_a_source(folder: Path, cache: Path, tmp_path: Path) -> None:
    """A change in it is a changed module, and its place on the disk is not in the module."""
    neighbour = folder.parent / "voice"
    (neighbour / "src").mkdir(parents=True)
    (neighbour / "Cargo.toml").write_text('[package]\nname = "voice"\nversion = "0.0.0"\nedition = "2021"\n')
    (neighbour / "src/lib.rs").write_text("pub fn end(value: &[u8]) -> u8 {\n    value[0]\n}\n")
    replace(folder / "Cargo.toml", "[dependencies]\n", '[dependencies]\nvoice = { path = "../voice" }\n')
    replace(
        folder / "src/main.rs",
        "let shouted = value.to_ascii_uppercase();",
        "let mut shouted = value.to_ascii_uppercase();\n    shouted.push(voice::end(value));",
    )
    (folder / "Cargo.lock").unlink()
    first = built(folder, cache)
    assert str(tmp_path).encode() not in Path(first.path).read_bytes()
    replace(neighbour / "src/lib.rs", "value[0]", "value[1]")
    second = built(folder, cache)
    assert not second.cached
    assert second.digest != first.digest
