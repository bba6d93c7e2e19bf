"""Go projects, built with the real compiler and Redpanda's real SDK."""

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

import pytest

from wasmline.build import BuildReport, build, load_project, run_samples, scaffold
from wasmline.build.toolchains import toolchain_for
from wasmline.build.toolchains.compiler_process import find_executable
from wasmline.errors import BuildFailed, InvalidProject, ToolchainMissing, UnsupportedAbi
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
    """One in a folder above is not the project's: what it says would decide about a module that it is no part of."""
    for name in ("go.mod", "go.sum"):
        (folder / name).rename(folder.parent / name)
    with pytest.raises(InvalidProject, match=r"shout has no go\.mod: .*`go mod init shout`"):
        built(folder, cache)


def test_a_machine_without_a_home_folder_or_a_cache_builds_in_a_temporary_folder(
    folder: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without dependencies: to download them needs more than a folder."""
    (folder / "main.go").write_text(
        "package main\n\n//go:wasmimport redpanda_transform check_abi_version_1\nfunc check()\n\n"
        "func main() { check() }\n"
    )
    (folder / "go.mod").write_text("module shout\n\ngo 1.21\n")
    first = built(folder, cache)
    for name in ("HOME", "XDG_CACHE_HOME", "GOCACHE", "GOPATH", "GOMODCACHE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    unusable = tmp_path / "unusable"
    unusable.touch()
    report = built(folder, unusable)
    assert (report.cached, report.digest, report.source_digest) == (False, first.digest, first.source_digest)
    assert not [*(tmp_path / "temporary").iterdir()]


def with_module(folder: Path, neighbour: Path) -> None:
    """Make the project take a module from another folder."""
    neighbour.mkdir(parents=True)
    (neighbour / "go.mod").write_text("module example.org/voice\n\ngo 1.21\n")
    (neighbour / "voice.go").write_text('package voice\n\nconst End = "!"\n')
    with (folder / "go.mod").open("a") as file:
        file.write(
            f"\nrequire example.org/voice v0.0.0\n\nreplace example.org/voice => {os.path.relpath(neighbour, folder)}\n"
        )
    main = folder / "main.go"
    main.write_text(
        main.read_text()
        .replace('"bytes"\n', '"bytes"\n\n\t"example.org/voice"\n')
        .replace("bytes.ToUpper(record.Value)", "append(bytes.ToUpper(record.Value), voice.End...)")
    )


def test_a_module_of_a_neighbouring_folder_is_a_source(folder: Path, cache: Path) -> None:
    """A change in it is a changed module, although the project's own files are the same."""
    neighbour = folder.parent / "voice"
    with_module(folder, neighbour)
    first = built(folder, cache)
    (neighbour / "voice.go").write_text('package voice\n\nconst End = "?"\n')
    second = built(folder, cache)
    assert not second.cached
    assert first.digest != second.digest
    assert first.source_digest != second.source_digest


@pytest.mark.parametrize(
    ("repository", "module", "allowed"),
    [
        (None, "here/voice", True),
        (None, "voice", False),
        (".", "voice", True),
        ("here", "voice", False),
        ("here/shout", "here/voice", False),
        (None, "here/link/voice", False),
    ],
)
def test_a_module_is_taken_from_the_repository_or_from_beside_the_project(
    folder: Path, cache: Path, tmp_path: Path, repository: str | None, module: str, allowed: bool
) -> None:
    if repository is not None:
        (tmp_path / repository / ".git").mkdir()
    (tmp_path / "outside").mkdir()
    (folder.parent / "link").symlink_to(tmp_path / "outside")
    with_module(folder, tmp_path / module)
    with (
        nullcontext()
        if allowed
        else pytest.raises(BuildFailed, match=r"replaces example\.org/voice by /.*voice, which")
    ):
        built(folder, cache)


@pytest.mark.parametrize("line", ["example.org/voice", "example.org/voice v0.0.0"])
def test_a_module_file_that_decides_about_versions_alone_is_a_source(folder: Path, cache: Path, line: str) -> None:
    """No package of its module is compiled; what it requires can still be what the others get."""
    voice = folder.parent / "voice"
    voice.mkdir()
    (voice / "go.mod").write_text("module example.org/voice\n\ngo 1.16\n")
    with (folder / "go.mod").open("a") as file:
        file.write(f"\nrequire example.org/voice v0.0.0\n\nreplace {line} => ../voice\n")
    first = built(folder, cache)
    with (voice / "go.mod").open("a") as file:
        file.write("\nrequire github.com/redpanda-data/redpanda/src/transform-sdk/go/transform v1.1.0\n")
    assert built(folder, cache).source_digest != first.source_digest


@pytest.mark.parametrize("path", ["/etc", "../../outside", "/proc/self/root/etc"])
def test_a_replaced_module_that_nothing_needs_is_not_read_elsewhere(folder: Path, cache: Path, path: str) -> None:
    with (folder / "go.mod").open("a") as file:
        file.write(f"\nrequire example.org/voice v0.0.0\n\nreplace example.org/voice => {path}\n")
    with pytest.raises(BuildFailed, match=r"go\.mod replaces example\.org/voice by /.*, which is outside of"):
        built(folder, cache)


@pytest.mark.parametrize("name", ["go.sum", "vendor/modules.txt", "voice/go.mod"])
@pytest.mark.parametrize("link", [False, True])
def test_what_go_reads_of_a_project_is_a_file_of_the_project(
    folder: Path, cache: Path, tmp_path: Path, name: str, link: bool
) -> None:
    """It would wait for a pipe for ever, and print what another file holds."""
    with (folder / "go.mod").open("a") as file:
        file.write("\nrequire example.org/voice v0.0.0\n\nreplace example.org/voice => ./voice\n")
    (tmp_path / "secret").write_text("secret")
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(tmp_path / "secret") if link else os.mkfifo(path)
    says = r"is a link to /.*secret, outside the project" if link else "which is not a regular file"
    with pytest.raises(BuildFailed, match=says) as caught:
        built(folder, cache)
    assert caught.value.log == ""


def test_a_vendored_module_needs_no_folder_of_its_own(folder: Path, cache: Path) -> None:
    with_module(folder, folder.parent / "voice")
    first = built(folder, cache)
    go = find_executable("go", Path(sys.executable).parent)
    assert go is not None
    subprocess.run([go, "mod", "vendor"], cwd=folder, check=True)
    shutil.rmtree(folder.parent / "voice")
    second = built(folder, cache)
    assert (second.cached, second.abi) == (False, first.abi)


EVIL = """#!/bin/sh
touch {canary}
exit 1
"""


def test_no_program_that_a_project_names_is_run(
    folder: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether by a directive, a toolchain, a workspace, a tool or a program of its name, in its folder or above it."""
    canary, program = tmp_path / "canary", tmp_path / "program"
    program.write_text(EVIL.format(canary=canary))
    program.chmod(0o755)
    with (folder / "go.mod").open("a") as file:
        file.write("\ntoolchain go1.99.0\n")
    with (folder / "main.go").open("a") as file:
        file.write(f"\n//go:generate {program}\n")
    plain = built(folder, cache)
    for place in (folder, folder.parent):
        for name in ("go", "git", "gcc", "compile", "asm", "link", "toolexec"):
            shutil.copy(program, place / name)
    settings = tmp_path / "settings"
    settings.write_text(f"GOFLAGS=-toolexec={program}\nGOEXPERIMENT=\nCC={program}\n")
    (folder.parent / "go.work").write_text("go 1.21\n\nuse ./shout\n\ntoolchain go1.99.0\n")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f":.:{os.environ['PATH']}")
    monkeypatch.setenv("GOENV", str(settings))
    monkeypatch.setenv("GOFLAGS", f"-toolexec={program}")
    monkeypatch.setenv("GOTOOLCHAIN", "path")
    hostile = built(folder, tmp_path / "other cache")
    assert (hostile.cached, hostile.digest) == (False, plain.digest)
    assert not canary.exists()


def test_an_embedded_file_is_a_source(folder: Path, cache: Path) -> None:
    """Also one that lies where samples do; the profile of an earlier run is none, and changes no module."""
    main = folder / "main.go"
    embed = 'import _ "embed"\n\n//go:embed samples/table.txt\nvar table []byte\n'
    main.write_text(main.read_text().replace("func main() {", f"{embed}\nfunc main() {{\n\tprintln(len(table))"))
    imports = 'import _ "embed"\n'
    main.write_text(main.read_text().replace(imports, "", 1).replace("import (", 'import (\n\t_ "embed"', 1))
    (folder / "samples/table.txt").write_text("1")
    first = built(folder, cache)
    (folder / "default.pgo").write_text("no profile")
    assert built(folder, cache).cached
    (folder / "samples/table.txt").write_text("22")
    second = built(folder, cache)
    assert not second.cached
    assert second.source_digest != first.source_digest
    assert second.digest != first.digest


def test_a_file_that_appears_after_the_sources_were_listed_fails_the_build(folder: Path, tmp_path: Path) -> None:
    """It is in no list that the digest is of, although the compiler reads it."""
    project, go = load_project(folder), toolchain_for("go")
    inputs = go.inputs(project, [], cache_dir=tmp_path)
    (folder / "late.go").write_text("package main\n")
    with pytest.raises(BuildFailed, match="its files changed while they were compiled"):
        go.compile(project, [], tmp_path / "module.wasm", inputs=inputs, cache_dir=tmp_path)


def test_a_folder_through_the_folder_of_processes_is_refused(
    folder: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leads this process beside the project, and Go, whose current folder is another, into it, or anywhere."""
    with_module(folder, folder / "voice")
    shutil.copytree(folder / "voice", folder.parent / "voice")
    module = folder / "go.mod"
    module.write_text(module.read_text().replace("=> voice", "=> /proc/self/cwd/voice"))
    monkeypatch.chdir(folder.parent)
    with pytest.raises(BuildFailed, match="a path through /proc"):
        built(folder, cache)


@pytest.mark.parametrize("name", ["link.go", "_link.h", "x_wasm.s"])
def test_a_link_out_of_the_project_is_refused(folder: Path, cache: Path, name: str) -> None:
    """Also of a header that ``go list`` leaves out, of which an assembly file may include the text."""
    outside = folder.parent / "outside.go"
    outside.write_text("package main\n")
    (folder / name).symlink_to(outside)
    if name == "_link.h":
        (folder / "x.s").write_text(f'#include "{name}"\n')
    with pytest.raises(BuildFailed, match=r"outside (of )?the project|assembly"):
        built(folder, cache)


@pytest.mark.parametrize(
    "text",
    [
        '#include "_h.h"\n',
        '#include "h.h"\n',
        '#define M # include\nM "../outside.h"\n',
        '// comment\r# /* a\nb */ include /**/ "../outside.h"\n',
        "TEXT ·secret(SB), $0-8\n\tRET\n",
    ],
)
def test_assembly_is_refused_by_its_package_and_file(folder: Path, cache: Path, text: str) -> None:
    """Its headers may lie anywhere, and include others: ``go list`` has neither their names nor their contents."""
    package = folder / "inner"
    package.mkdir()
    (package / "inner.go").write_text("package inner\n")
    (package / "x_wasm.s").write_text(text)
    (package / "_h.h").write_text("#define X 1\n")
    (package / "h.h").write_text('#include "../../outside.h"\n')
    (folder.parent / "outside.h").write_text("#define X 1\n")
    main = folder / "main.go"
    module = (folder / "go.mod").read_text().split("\n")[0].removeprefix("module ")
    main.write_text(main.read_text().replace("import (", f'import (\n\t_ "{module}/inner"', 1))
    with pytest.raises(BuildFailed, match=rf"{module}/inner has Go assembly for wasm, in x_wasm\.s.*go:build !wasm"):
        built(folder, cache)


def test_assembly_without_code_or_for_another_machine_is_compiled(folder: Path, cache: Path) -> None:
    """An empty file is what lets a package have functions whose body is linked from elsewhere."""
    (folder / "empty.s").write_text("// It allows functions without a body.\n\n")
    (folder / "fast_amd64.s").write_text('#include "/no/such/file.h"\n')
    (folder / "fast.s").write_text('//go:build !purego && !wasm\n\n#include "/no/such/file.h"\n')
    (folder / "now.go").write_text(
        'package main\n\nimport _ "unsafe"\n\n//go:linkname now time.Now\nfunc now() (int64, int32, int64)\n'
    )
    assert built(folder, cache).sources == ("main.go", "now.go")
