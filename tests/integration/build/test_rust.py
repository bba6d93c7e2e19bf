"""Rust projects, built with the real compiler and Redpanda's real SDK."""

import os
import shutil
import socket
import subprocess
from contextlib import nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from wasmline.build import BuildReport, build, load_project, run_samples, scaffold
from wasmline.build.inputs import digest
from wasmline.build.toolchains import toolchain_for
from wasmline.cli import main
from wasmline.errors import BuildFailed, InvalidProject, ToolchainMissing, UnsupportedAbi
from wasmline.wasm import check_abi


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new project with its lock file, where this machine has Rust and its library for WebAssembly."""
    folder = tmp_path_factory.mktemp("rust") / "shout"
    scaffold(folder, language="rust")
    project, rust = load_project(folder), toolchain_for("rust")
    try:
        rust.prepare(project)
    except ToolchainMissing as missing:
        pytest.skip(str(missing))
    rust.inputs(project, [], cache_dir=folder.parent / "cache")
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
    second = built(folder, cache)
    assert (second.cached, second.source_digest) == (True, first.source_digest)


def test_the_user_s_settings_change_no_module(
    folder: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = built(folder, cache)
    home = tmp_path / "home"
    (home / "registry").parent.mkdir()
    (home / "registry").symlink_to(Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo") / "registry")
    (home / "config.toml").write_text("[profile.release]\nopt-level = 0\nlto = false\nstrip = false\ndebug = true\n")
    monkeypatch.setenv("CARGO_HOME", str(home))
    second = built(folder, tmp_path / "other cache")
    assert (second.cached, second.digest, second.source_digest) == (False, first.digest, first.source_digest)


EVIL = """#!/bin/sh
touch {canary}
exit 1
"""
SETTINGS = """
[build]
rustc = "{program}"
rustc-wrapper = "{program}"
rustc-workspace-wrapper = "{program}"
rustdoc = "{program}"
[target.wasm32-wasip1]
linker = "{program}"
runner = "{program}"
rustflags = ["-Clinker={program}"]
[alias]
vendor = ["!{program}"]
[registry]
global-credential-providers = ["{program}"]
[env]
RUSTC_WRAPPER = "{program}"
"""


def test_no_program_that_a_project_names_is_run(
    folder: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its settings of cargo and its choice of a toolchain are not read, in the folders above it neither."""
    plain = built(folder, cache)
    canary, evil = tmp_path / "canary", tmp_path / "evil"
    (evil / "bin").mkdir(parents=True)
    for name in ("cargo", "rustc", "rust-lld", "wasm-ld", "cc", "git", "sh"):
        for program in (evil / "bin" / name, folder / name):
            program.write_text(EVIL.format(canary=canary))
            program.chmod(0o755)
    for place in (folder, folder.parent):
        (place / ".cargo").mkdir()
        (place / ".cargo/config.toml").write_text(SETTINGS.format(program=evil / "bin/cc"))
        (place / "rust-toolchain.toml").write_text(f'[toolchain]\npath = "{evil}"\n')
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f":.:{os.environ['PATH']}")
    for name in ("RUSTC", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_RUSTC_WRAPPER"):
        monkeypatch.setenv(name, str(evil / "bin/rustc"))
    hostile = built(folder, tmp_path / "other cache")
    assert (hostile.cached, hostile.digest) == (False, plain.digest)
    assert not canary.exists()


RUNS = {
    "a build script": ("", {"build.rs": "fn main() {{ {touch} }}"}, r"transform 0\.1\.0 \(build script\)"),
    "a build script by another name": (
        'build = "x.rs"\n',
        {"x.rs": "fn main() {{ {touch} }}"},
        r"transform 0\.1\.0 \(build script\)",
    ),
    "a macro": (
        '[dependencies.evil]\npath = "evil"\n',
        {
            "evil/Cargo.toml": '[package]\nname = "evil"\nversion = "1.0.0"\n[lib]\nproc-macro = true\n',
            "evil/src/lib.rs": "",
        },
        r"evil 1\.0\.0 \(macro\)",
    ),
    "a build script of what it depends on": (
        '[dependencies.evil]\npath = "evil"\n',
        {
            "evil/Cargo.toml": '[package]\nname = "evil"\nversion = "1.0.0"\n',
            "evil/src/lib.rs": "",
            "evil/build.rs": "fn main() {{ {touch} }}",
        },
        r"evil 1\.0\.0 \(build script\)",
    ),
}


@pytest.mark.parametrize(("lines", "files", "named"), RUNS.values(), ids=RUNS)
def test_code_that_would_run_on_this_machine_is_named_and_not_run(
    folder: Path, cache: Path, tmp_path: Path, lines: str, files: dict[str, str], named: str
) -> None:
    changed(folder, tmp_path, lines, files)
    with pytest.raises(BuildFailed, match=rf"{named}.* If you trust it: wasmline build {folder} --allow"):
        built(folder, cache)
    assert not (tmp_path / "canary").exists()


def changed(folder: Path, tmp_path: Path, lines: str, files: dict[str, str]) -> None:
    """Add lines to a project's Cargo.toml, where ``[package]`` is still open, and files to its folder."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        touch = f'std::fs::write("{tmp_path}/canary", "").unwrap();'
        (folder / name).write_text(text.format(touch=touch))
    replace(folder / "Cargo.toml", "publish = false\n", f"publish = false\n{lines}")
    (folder / "Cargo.lock").unlink()


def test_a_build_script_runs_where_the_user_allows_it(folder: Path, cache: Path, tmp_path: Path) -> None:
    """And what was built is then there for commands that do not allow it."""
    changed(folder, tmp_path, "", {"build.rs": "fn main() {{ {touch} }}"})
    assert wasmline("test", folder, cache=cache).exit_code == 1
    assert not (tmp_path / "canary").exists()
    assert wasmline("build", "--allow-build-scripts", folder, cache=cache).exit_code == 0
    assert (tmp_path / "canary").exists()
    assert wasmline("test", folder, cache=cache).exit_code == 0


def wasmline(*arguments: str | Path, cache: Path) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)], env={"WASMLINE_CACHE": str(cache)})


def test_an_unstable_feature_of_cargo_is_refused(folder: Path, cache: Path) -> None:
    """One of them hands any option to rustc."""
    manifest = folder / "Cargo.toml"
    manifest.write_text("cargo-features = []\n" + manifest.read_text())
    with pytest.raises(BuildFailed, match="of cargo's unstable features"):
        built(folder, cache)


def test_no_other_member_of_the_workspace_is_compiled(folder: Path, cache: Path, tmp_path: Path) -> None:
    """Cargo prefers ``default-members``; one of them can have a program by the same name."""
    evil = '[package]\nname = "evil"\nversion = "1.0.0"\n[[bin]]\nname = "transform"\npath = "src/main.rs"\n'
    files = {"Cargo.toml": evil, "src/main.rs": "fn main() {{}}", "build.rs": "fn main() {{ {touch} }}"}
    replace(folder / "Cargo.toml", "[workspace]\n", '[workspace]\nmembers = ["evil"]\ndefault-members = ["evil"]\n')
    changed(folder, tmp_path, "", {f"evil/{name}": text for name, text in files.items()})
    assert "redpanda_transform.write_record" in built(folder, cache).imports
    assert not (tmp_path / "canary").exists()


OPTIONS = {
    "a library": ("main.rs", '#[link(name = "@options")]\nextern "C" {{}}\n'),
    "an export": ("main.rs", '#[export_name = "@options"]\npub extern "C" fn evil() {{}}\n'),
    "a type of crate": ("Cargo.toml", '[lib]\npath = "src/lib.rs"\ncrate-type = ["@options"]\n'),
}


@pytest.mark.parametrize(("file", "text"), OPTIONS.values(), ids=OPTIONS)
def test_no_name_becomes_a_response_file(folder: Path, cache: Path, tmp_path: Path, file: str, text: str) -> None:
    """rustc and the linker would take options from such a file, and so run any program, or overwrite any file."""
    program, canary = tmp_path / "program", tmp_path / "canary"
    program.write_text(EVIL.format(canary=canary))
    program.chmod(0o755)
    linker = f"c\n-Map={canary}\n"
    for name in ("options", "@options"):
        (folder / name).write_text(f"src/main.rs\n-Clinker={program}\n" if file == "Cargo.toml" else linker)
    (folder / "src/lib.rs").touch()
    place = folder / file if file == "Cargo.toml" else folder / "src" / file
    old = place.read_text()
    place.write_text(
        old.replace("[profile", f"{text.format()}\n[profile") if file == "Cargo.toml" else old + text.format()
    )
    with pytest.raises(BuildFailed) as caught:
        built(folder, cache)
    assert "@options would be a response file" in caught.value.log
    assert not canary.exists()


@pytest.mark.parametrize(
    "name",
    [
        'name = ":../../../proc/self/cwd{outside}"',
        'name = "{outside}"',
        'name = "{outside}", modifiers = "+verbatim"',
        'name = ":x.a"',
    ],
)
def test_a_library_outside_of_the_sources_is_not_linked(folder: Path, cache: Path, tmp_path: Path, name: str) -> None:
    outside = tmp_path / "x.a"
    outside.write_bytes(b"!<arch>\n")
    with (folder / "src/main.rs").open("a") as file:
        file.write(f'#[link({name.format(outside=outside)})]\nextern "C" {{}}\n')
    with pytest.raises(BuildFailed, match=r"x\.a would link a file that is not among the sources"):
        built(folder, cache)


@pytest.mark.parametrize("name", ["--print=target-list=canary", "@x.rs", "-"])
def test_a_source_by_the_name_of_an_option_is_refused(folder: Path, cache: Path, name: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / "src/main.rs").rename(folder / name)
    replace(folder / "Cargo.toml", "[profile", f'[[bin]]\nname = "transform"\npath = "{name}"\n\n[profile')
    (folder / "src/main.rs").touch()
    with pytest.raises(BuildFailed, match="cannot name a crate's file or folder"):
        built(folder, cache)
    assert not list(folder.rglob("canary"))


def test_a_folder_whose_name_ends_a_flag_is_refused(folder: Path, cache: Path, tmp_path: Path) -> None:
    """Flags reach rustc with U+001F between them, and hold the folders of crates."""
    lines = '[dependencies.evil]\npath = "x\\u001f-Clinker=."\n'
    manifest = '[package]\nname = "evil"\nversion = "1.0.0"\n'
    changed(folder, tmp_path, lines, {"x\x1f-Clinker=./Cargo.toml": manifest, "x\x1f-Clinker=./src/lib.rs": ""})
    with pytest.raises(BuildFailed, match="cannot name a crate's file or folder"):
        built(folder, cache)


READS = {
    'const _: &str = include_str!("{outside}/1.rs");': "1.rs",
    'const _: &[u8] = include_bytes!("../../../outside/2.rs");': "2.rs",
    '#[path = "{outside}/3.rs"]\nmod outside;': "3.rs",
    'include!("{outside}/4.rs");': "4.rs",
    'const _: &str = include_str!("link.rs");': "link.rs",
    'const _: &str = include_str!("linked/5.rs");': "5.rs",
    'const _: &str = include_str!("../.hidden/a b.rs");': "a b.rs",
    'const _: &str = include_str!("../samples/input.jsonl");': "input.jsonl",
}
"""What a source includes, and the name of the file that is not among the project's sources."""


def reading(folder: Path, tmp_path: Path, *lines: str) -> None:
    """Let a project include files outside of its folder, behind links, and hidden ones."""
    outside = tmp_path / "outside"
    outside.mkdir()
    for number in range(6):
        (outside / f"{number}.rs").touch()
    (folder / ".hidden").mkdir()
    for place in ("src/link.rs", ".hidden/a b.rs", ".hidden/x:\nmain.rs"):
        (folder / place).symlink_to(outside / "0.rs")
    (folder / "src/linked").symlink_to(outside)
    with (folder / "src/main.rs").open("a") as file:
        file.write("\n".join(lines).format(outside=outside))


def test_files_that_are_not_among_the_sources_are_refused(folder: Path, cache: Path, tmp_path: Path) -> None:
    reading(folder, tmp_path, *READS)
    with pytest.raises(BuildFailed, match="which is not among its sources") as caught:
        built(folder, cache)
    assert {Path(line).name for line in caught.value.log.splitlines()} == {*READS.values()}
    assert not (folder / "build").exists()


def test_variables_of_this_machine_do_not_get_into_a_module(folder: Path, cache: Path) -> None:
    main = folder / "src/main.rs"
    with main.open("a") as file:
        file.write(
            'const _: &str = concat!(env!("CARGO_PKG_NAME"), env!("CARGO_CRATE_NAME"), env!("CARGO_BIN_NAME"));\n'
        )
        file.write('const _: Option<&str> = option_env!("NOT_SET");\n')
    built(folder, cache)
    machine = {"CARGO_MANIFEST_DIR", "CARGO_HOME", "PATH", "RUSTC"}
    with main.open("a") as file:
        file.writelines(f'const _: Option<&str> = option_env!("{name}");\n' for name in machine)
    with pytest.raises(BuildFailed, match="puts the environment variable CARGO_HOME into its module") as caught:
        built(folder, cache)
    assert {*caught.value.log.splitlines()} == machine


def test_what_the_build_itself_writes_is_no_source(folder: Path, cache: Path) -> None:
    """It holds paths of this machine."""
    project = load_project(folder)
    settings = cache / (toolchain_for("rust").cache_name(project) or "") / "home/config.toml"
    with (folder / "src/main.rs").open("a") as file:
        file.write(f'const _: &str = include_str!("{settings}");\n')
    with pytest.raises(BuildFailed, match=r"home/config\.toml, which is not among its sources"):
        built(folder, cache)


def test_a_file_that_looks_like_two_in_rustc_s_list_is_refused(folder: Path, cache: Path, tmp_path: Path) -> None:
    reading(folder, tmp_path, 'const _: &str = include_str!("../.hidden/x:\nmain.rs");')
    with pytest.raises(BuildFailed, match="reads a file whose name is not supported"):
        built(folder, cache)


def test_a_link_to_a_source_is_a_source(folder: Path, cache: Path) -> None:
    """A change of what it leads to, and to another source, is a changed module."""
    for name, text in {"one.txt": "1", "two.txt": "22"}.items():
        (folder / name).write_text(text)
    link = folder / "src/table.txt"
    link.symlink_to("../one.txt")
    replace(
        folder / "src/main.rs", "to_ascii_uppercase()", 'to_ascii_uppercase().repeat(include_str!("table.txt").len())'
    )
    first = built(folder, cache)
    link.unlink()
    link.symlink_to("../two.txt")
    second = built(folder, cache)
    (folder / "two.txt").write_text("333")
    third = built(folder, cache)
    assert len({first.digest, second.digest, third.digest}) == 3


def test_a_file_of_the_same_age_as_its_predecessor_is_a_changed_source(folder: Path, cache: Path) -> None:
    """Cargo goes by the times of files."""
    table = folder / "src/table.txt"
    table.write_text("1")
    replace(
        folder / "src/main.rs", "to_ascii_uppercase()", 'to_ascii_uppercase().repeat(include_str!("table.txt").len())'
    )
    first = built(folder, cache)
    times = table.stat()
    table.write_text("22")
    os.utime(table, ns=(times.st_atime_ns, times.st_mtime_ns))
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
    with pytest.raises(BuildFailed, match=r"Cargo\.lock does not fit its Cargo\.toml: restore it, or remove it, and"):
        built(folder, cache)
    (folder / "Cargo.lock").unlink()
    assert built(folder, cache).size_bytes > 0


def test_a_link_in_the_place_of_the_lock_file_is_not_written_through(folder: Path, cache: Path, tmp_path: Path) -> None:
    (folder / "Cargo.lock").unlink()
    (folder / "Cargo.lock").symlink_to(tmp_path / "canary")
    with pytest.raises(BuildFailed, match="lock"):
        built(folder, cache)
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("name", ["Cargo.toml", "Cargo.lock"])
@pytest.mark.parametrize("link", [False, True])
def test_what_cargo_reads_of_a_project_is_a_file_of_the_project(
    folder: Path, cache: Path, tmp_path: Path, name: str, link: bool
) -> None:
    """It would wait for a pipe for ever, and print what another file holds."""
    (tmp_path / "secret").write_text("secret")
    (folder / name).unlink()
    (folder / name).symlink_to(tmp_path / "secret") if link else os.mkfifo(folder / name)
    says = r"is a link to /.*secret, outside the project" if link else "which is not a regular file"
    with pytest.raises(BuildFailed, match=says) as caught:
        built(folder, cache)
    assert caught.value.log == ""


@pytest.mark.parametrize(
    "lines",
    [
        "[patch.crates-io.x]\npath = 1\n",
        '[patch.crates-io.x]\npath = "a\\u0000b"\n',
        "[patch.crates-io.x]\ngit = 1\n",
        '[[patch.crates-io.x]]\npath = "/etc"\n',
        '[patch]\ncrates-io = [{ path = "/etc" }]\n',
        '[replace]\n"x:1.0.0" = { path = 1 }\n',
    ],
)
def test_an_override_that_cargo_does_not_know_is_refused_and_not_followed(
    folder: Path, cache: Path, lines: str
) -> None:
    with (folder / "Cargo.toml").open("a") as file:
        file.write(f"\n{lines}")
    with pytest.raises(BuildFailed, match=r"shout does not compile: .*(invalid type|NUL)"):
        inputs(folder, cache)


def test_a_workspace_without_a_program_of_its_own_is_refused(folder: Path, cache: Path) -> None:
    (folder / "member/src").mkdir(parents=True)
    (folder / "Cargo.toml").rename(folder / "member/Cargo.toml")
    replace(folder / "member/Cargo.toml", "[workspace]\n", "")
    (folder / "src/main.rs").rename(folder / "member/src/main.rs")
    (folder / "src/main.rs").touch()
    (folder / "Cargo.toml").write_text('[workspace]\nmembers = ["member"]\nresolver = "2"\n')
    with pytest.raises(BuildFailed, match="builds no program; a transform is exactly one program"):
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


@pytest.mark.parametrize("link", [True, False])
def test_the_lock_file_of_an_enclosing_workspace_is_not_written(
    folder: Path, cache: Path, tmp_path: Path, link: bool
) -> None:
    (folder.parent / "Cargo.toml").write_text('[workspace]\nmembers = ["shout"]\nresolver = "2"\n')
    replace(folder / "Cargo.toml", "[workspace]\n", "")
    lock, outside = folder.parent / "Cargo.lock", tmp_path / "outside"
    outside.touch()
    if link:
        lock.symlink_to(outside)
    with pytest.raises(InvalidProject, match="belongs to the cargo workspace"):
        built(folder, cache)
    assert lock.exists() == link
    assert outside.read_text() == ""


def test_a_crate_of_a_git_repository_is_refused(
    folder: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cargo would copy what its links lead to, and take a later commit for the same crate."""
    voice, secret = tmp_path / "voice", tmp_path / "secret"
    secret.write_text("what is in no repository")
    (voice / "src").mkdir(parents=True)
    (voice / "Cargo.toml").write_text('[package]\nname = "voice"\nversion = "1.0.0"\n')
    (voice / "src/lib.rs").write_text('pub const SECRET: &str = include_str!("secret");\n')
    (voice / "src/secret").symlink_to(secret)
    git = ("git", "-C", str(voice), "-c", "user.name=a", "-c", "user.email=a@b.c")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "a"]):
        subprocess.run([*git, *command], check=True)
    replace(folder / "Cargo.toml", 'redpanda-transform-sdk = "=1.1.0"', f'voice = {{ git = "{voice.as_uri()}" }}')
    (folder / "Cargo.lock").unlink()
    monkeypatch.setenv("CARGO_NET_OFFLINE", "false")
    for _ in ("without a lock file", "with one"):
        with pytest.raises(BuildFailed, match=r"voice: git\+file:.* is a git repository, which is not supported"):
            built(folder, cache)
    assert not list(cache.rglob("secret"))


ELSEWHERE = {
    "a git repository": '[dependencies.x]\ngit = "{server}"\n',
    "one that only tests on another system need": "[target.'cfg(windows)'.dev-dependencies.x]\ngit = \"{server}\"\n",
    "one in the place of a crate": '[patch.crates-io.x]\ngit = "{server}"\n',
    "one in the place of a version": '[replace."x:1.0.0"]\ngit = "{server}"\n',
    "a registry by its address": '[dependencies.x]\nversion = "1"\nregistry-index = "sparse+{server}/"\n',
    "a registry that a neighbour names": '[dependencies.voice]\npath = "../voice"\n',
}


@pytest.mark.parametrize("lines", ELSEWHERE.values(), ids=ELSEWHERE)
def test_no_server_that_a_project_names_is_asked(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, lines: str
) -> None:
    monkeypatch.setenv("CARGO_NET_OFFLINE", "false")
    monkeypatch.setenv("CARGO_HTTP_TIMEOUT", "1")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        server = f"http://127.0.0.1:{listening.getsockname()[1]}"
        (folder.parent / "voice/src").mkdir(parents=True)
        (folder.parent / "voice/src/lib.rs").touch()
        needs = ELSEWHERE["a registry by its address"].format(server=server)
        (folder.parent / "voice/Cargo.toml").write_text(f'[package]\nname = "voice"\nversion = "1.0.0"\n{needs}')
        manifest = folder / "Cargo.toml"
        manifest.write_text(f"{manifest.read_text()}\n{lines.format(server=server)}")
        (folder / "Cargo.lock").unlink()
        with pytest.raises(BuildFailed, match=r"is a git repository, which|, by its address, which"):
            inputs(folder, cache)
        with pytest.raises(BlockingIOError):
            listening.accept()


def inputs(folder: Path, cache: Path) -> dict[str, Path]:
    """Return what a build would read."""
    return toolchain_for("rust").inputs(load_project(folder), [], cache_dir=cache)


def with_crate(folder: Path, neighbour: Path, manifest: str = "") -> None:
    """Make the project take a crate from another folder."""
    (neighbour / "src").mkdir(parents=True)
    (neighbour / "src/lib.rs").touch()
    (neighbour / "Cargo.toml").write_text(manifest or '[package]\nname = "voice"\nversion = "0.0.0"\n')
    path = os.path.relpath(neighbour, folder)
    replace(folder / "Cargo.toml", "[dependencies]\n", f'[dependencies]\nvoice = {{ path = "{path}" }}\n')
    (folder / "Cargo.lock").unlink()


@pytest.mark.parametrize(
    ("repository", "crate", "allowed"),
    [
        (None, "here/voice", True),
        (None, "voice", False),
        (".", "voice", True),
        ("here/shout", "here/voice", False),
        (None, "here/shout/link/voice", False),
    ],
)
def test_a_crate_is_taken_from_the_repository_or_from_beside_the_project(
    folder: Path, cache: Path, tmp_path: Path, repository: str | None, crate: str, allowed: bool
) -> None:
    if repository is not None:
        (tmp_path / repository / ".git").mkdir()
    (tmp_path / "outside").mkdir()
    (folder / "link").symlink_to(tmp_path / "outside")
    with_crate(folder, tmp_path / crate)
    with nullcontext() if allowed else pytest.raises(BuildFailed, match=r"takes a crate or .* /.*voice, which is outs"):
        assert "voice/src/lib.rs" in inputs(folder, cache)


def test_a_member_behind_a_link_is_refused(folder: Path, cache: Path, tmp_path: Path) -> None:
    with_crate(folder, tmp_path / "outside/voice")
    (folder / "voice").symlink_to(tmp_path / "outside/voice")
    replace(folder / "Cargo.toml", '"../../outside/voice"', '"voice"')
    with pytest.raises(BuildFailed, match=r"takes a crate or its workspace from /.*shout/voice, which is outside"):
        inputs(folder, cache)


def test_what_a_crate_inherits_from_its_workspace_is_a_source(folder: Path, cache: Path, tmp_path: Path) -> None:
    """Its version, and the features of what it depends on; and the workspace is near the project, too."""
    manifest = '[package]\nname = "voice"\nversion.workspace = true\n'
    with_crate(folder, folder.parent / "library/voice", manifest)
    workspace = folder.parent / "library/Cargo.toml"
    workspace.write_text('[workspace]\nmembers = ["*"]\n[workspace.package]\nversion = "1.0.0"\n')
    first = digest(inputs(folder, cache), [])
    workspace.write_text(f'{workspace.read_text()}description = "another"\n')
    assert digest(inputs(folder, cache), []) != first
    workspace.rename(tmp_path / "Cargo.toml")
    replace(tmp_path / "Cargo.toml", '"*"', '"here/library/*"')
    with pytest.raises(BuildFailed, match=r"takes a crate or its workspace from /.* which is outside"):
        inputs(folder, cache)


def test_a_file_that_appears_after_the_sources_were_listed_fails_the_build(folder: Path, cache: Path) -> None:
    """It is in no list that the digest is of, although the compiler reads it."""
    (folder / "src/table.txt").touch()
    with (folder / "src/main.rs").open("a") as file:
        file.write('const _: &str = include_str!("table.txt");\n')
    before = inputs(folder, cache)
    del before["./src/table.txt"]
    project, rust = load_project(folder), toolchain_for("rust")
    with pytest.raises(BuildFailed, match="its files changed while they were compiled"):
        rust.compile(project, [], cache / "module.wasm", inputs=before, cache_dir=cache)


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
