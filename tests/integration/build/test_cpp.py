import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from wasmline.build import BuildReport, accept_samples, build, load_project, run_samples, scaffold
from wasmline.build.inputs import digest
from wasmline.build.source_files import sources
from wasmline.build.toolchains import toolchain_for
from wasmline.disk_cache import cache_root
from wasmline.errors import BuildFailed, InvalidProject, SampleMismatch, UnsupportedAbi
from wasmline.registry import digest_of
from wasmline.wasm import check_abi

ECHO = """
#include "shout.hpp"
#include "wasmline/transform.hpp"
int main() {
  wasmline::on_record([](const wasmline::Record& record, wasmline::Writer& writer) {
    writer.write({.key = record.key, .value = SHOUT});
  });
}
"""


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache without any module, but with the compiled standard library of this machine."""
    folder = tmp_path / "cache"
    folder.mkdir()
    root = cache_root()
    assert root
    (root / "zig").mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / "zig").symlink_to(root / "zig")
    return folder


def echo(folder: Path) -> Path:
    scaffold(folder, name="echo")
    (folder / "src/main.cc").write_text(ECHO)
    (folder / "src/shout.hpp").write_text('#pragma once\n#define SHOUT "!"\n')
    return folder


def built(folder: Path, cache: Path) -> BuildReport:
    return build(load_project(folder), cache_dir=cache)


def test_a_project_becomes_a_module_and_a_report_of_how(tmp_path: Path, cache: Path) -> None:
    report = built(echo(tmp_path / "echo"), cache)
    wasm = Path(report.path).read_bytes()
    assert report.path == str(tmp_path / "echo/build/echo.wasm")
    assert (report.digest, report.size_bytes) == (digest_of(wasm), len(wasm))
    assert report.abi == check_abi(wasm) == 2
    assert "redpanda_transform.read_next_record" in report.imports
    assert (report.name, report.version, report.language, report.toolchain) == (
        "echo",
        "0.1.0",
        "cpp",
        "ziglang 0.17.0",
    )
    assert report.sources == ("src/main.cc",)
    assert "--target=wasm32-wasi" in report.flags
    assert str(tmp_path) not in " ".join(report.flags)
    assert not report.cached
    assert report.seconds > 0


def test_unchanged_sources_are_not_built_again(tmp_path: Path, cache: Path) -> None:
    folder = echo(tmp_path / "echo")
    first = built(folder, cache)
    shutil.rmtree(folder / "build")
    second = built(folder, cache)
    assert (first.cached, second.cached) == (False, True)
    assert second.digest == first.digest
    assert Path(second.path).stat().st_size == second.size_bytes


def test_a_changed_header_is_a_changed_module(tmp_path: Path, cache: Path) -> None:
    folder = echo(tmp_path / "echo")
    first = built(folder, cache)
    (folder / "src/shout.hpp").write_text('#pragma once\n#define SHOUT "?"\n')
    second = built(folder, cache)
    assert not second.cached
    assert second.source_digest != first.source_digest
    assert second.digest != first.digest


READS = {
    "../samples/table.h": "samples/table.h",
    "../build/generated.h": "build/generated.h",
    "../.hidden/table.h": ".hidden/table.h",
    "linked/table.h": "data/table.h",
    "table.h": "include/table.h",
}
"""What a source includes, and the file it finds."""


@pytest.mark.parametrize(("included", "file"), READS.items())
def test_a_header_counts_wherever_it_lies_in_the_project(tmp_path: Path, cache: Path, included: str, file: str) -> None:
    folder = tmp_path / "echo"
    scaffold(folder, language="c", name="echo")
    (folder / "data").mkdir()
    (folder / "src/linked").symlink_to("../data")
    header = folder / file
    header.parent.mkdir(exist_ok=True)
    header.write_text("enum { TABLE = 1 };\n")
    source = folder / "src/main.c"
    source.write_text(f'#include "{included}"\n{source.read_text()}\nint table(void) {{ return TABLE; }}\n')
    first = digests(folder, cache)
    assert digests(folder, cache) == first
    header.write_text("enum { TABLE = 2 };\n")
    assert digests(folder, cache) != first


def digests(folder: Path, cache: Path) -> str:
    """Return the digest of a project's sources, as a build would report it."""
    project = load_project(folder)
    toolchain = toolchain_for(project.language)
    return digest(toolchain.inputs(project, sources(project, toolchain.default_sources), cache_dir=cache), [])


def test_a_link_to_a_header_of_the_compiler_is_refused(tmp_path: Path, cache: Path) -> None:
    """The compiler's version does not say which of its headers a link of the project leads to."""
    folder = echo(tmp_path / "echo")
    spec = find_spec("ziglang")
    assert spec
    assert spec.origin
    header = Path(spec.origin).parent / "lib/include/stdbool.h"
    (folder / "src/shout.hpp").write_text('#include "link.h"\n#define SHOUT "!"\n')
    (folder / "src/link.h").symlink_to(header)
    with pytest.raises(BuildFailed, match=r"link\.h is a link to /.*stdbool\.h, outside the project"):
        built(folder, cache)


def test_a_new_header_that_is_found_first_is_a_changed_source(tmp_path: Path, cache: Path) -> None:
    folder = echo(tmp_path / "echo")
    (folder / "include").mkdir()
    (folder / "src/shout.hpp").rename(folder / "include/shout.hpp")
    first = built(folder, cache)
    (folder / "src/shout.hpp").write_text('#pragma once\n#define SHOUT "?"\n')
    second = built(folder, cache)
    assert not second.cached
    assert (second.digest != first.digest, second.source_digest != first.source_digest) == (True, True)


def test_a_header_that_a_source_only_looks_for_is_a_source(tmp_path: Path, cache: Path) -> None:
    folder = echo(tmp_path / "echo")
    main = folder / "src/main.cc"
    main.write_text(f'#if __has_include("../samples/flag.h")\n#endif\n{ECHO}')
    first = digests(folder, cache)
    (folder / "samples/flag.h").touch()
    assert digests(folder, cache) != first


def test_every_source_has_the_compiler_s_headers(tmp_path: Path, cache: Path) -> None:
    folder = tmp_path / "new"
    scaffold(folder, language="c", name="new")
    (folder / "src/deep").mkdir()
    for name in ("first.c", "deep/first.c"):
        (folder / "src" / name).write_text("#include <string.h>\n#ifndef NDEBUG\n#error other flags\n#endif\n")
    assert len(built(folder, cache).sources) == 3


def test_a_header_that_appears_after_the_sources_were_listed_fails_the_build(tmp_path: Path, cache: Path) -> None:
    """It is in no list that the digest is of, although the compiler reads it."""
    folder = tmp_path / "new"
    scaffold(folder, language="c", name="new")
    main = folder / "src/main.c"
    main.write_text(f'#if __has_include("late.h")\n#include "late.h"\n#endif\n{main.read_text()}')
    project, zig = load_project(folder), toolchain_for("c")
    files = sources(project, zig.default_sources)
    inputs = zig.inputs(project, files, cache_dir=cache / "zig")
    (folder / "src/late.h").touch()
    with pytest.raises(BuildFailed, match="its files changed while they were compiled"):
        zig.compile(project, files, tmp_path / "module.wasm", inputs=inputs, cache_dir=cache / "zig")


def test_a_module_says_nothing_of_when_it_was_built(tmp_path: Path, cache: Path) -> None:
    folder = tmp_path / "new"
    scaffold(folder, language="c", name="new")
    with (folder / "src/main.c").open("a") as file:
        file.write(
            '#pragma clang diagnostic ignored "-Wdate-time"\n__attribute__((export_name("built")))\n'
            "const char* built(void) { return __TIMESTAMP__ __DATE__ __TIME__; }\n"
        )
    wasm = Path(built(folder, cache).path).read_bytes()
    assert b"Thu Jan  1 00:00:00 1970Jan  1 197000:00:00\0" in wasm


def test_a_file_in_the_place_of_the_headers_folder_is_refused(tmp_path: Path, cache: Path) -> None:
    """Clang would take it for a map from the names of headers to those of files, and not list it."""
    folder = echo(tmp_path / "echo")
    (folder / "include").write_bytes(b"pamh")
    with pytest.raises(BuildFailed, match="include must be a folder"):
        digests(folder, cache)


OUTSIDE = {
    "#include": '#include "../../outside/secret.h"\n',
    "#include, absolute": '#include "{outside}/secret.h"\n',
    "#include of a link": '#include "link.h"\n',
    "#include in a linked folder": '#include "linked/secret.h"\n',
    "#include_next": '#include_next "{outside}/secret.h"\n',
    "#include by a macro": '#define FILE "{outside}/secret.h"\n#include FILE\n',
    "#import": '#import "{outside}/secret.h"\n',
    "#embed": 'const char secret[] = {{\n#embed "{outside}/secret.h"\n}};\n',
    "#embed <>": "const char secret[] = {{\n#embed <{outside}/secret.h> limit(4)\n}};\n",
    "__has_include": '#if __has_include("{outside}/secret.h")\n#endif\n',
    "__has_embed": '#if __has_embed("{outside}/secret.h")\n#endif\n',
    "a name with spaces": '#include "a b $# c.h"\n',
    "a name with a backslash": '#include "a\\b.h"\n',
    "a name that ends in a backslash": "#include <a\\>\n",
    "a name like two in quotes": '#include <x" "y>\n',
    "a name like two": "#include <x: y>\n",
    "a name like a rule": "#include <x:>\n",
}


@pytest.mark.parametrize("text", OUTSIDE.values(), ids=OUTSIDE)
def test_a_source_that_reads_a_file_outside_of_the_project_is_refused(tmp_path: Path, cache: Path, text: str) -> None:
    folder, outside = echo(tmp_path / "echo"), tmp_path / "outside"
    outside.mkdir()
    secret = outside / "secret.h"
    secret.write_text("1\n")
    (folder / "include").mkdir()
    for link in (
        "src/link.h",
        "src/a b $# c.h",
        "src/a\\b.h",
        "include/a\\",
        'include/x" "y',
        "include/x: y",
        "include/x:",
    ):
        (folder / link).symlink_to(secret)
    for decoy in ("src/a/b.h", "include/x", "include/y", "y", "include/x.h"):
        (folder / decoy).parent.mkdir(exist_ok=True)
        (folder / decoy).touch()
    (folder / "src/linked").symlink_to(outside)
    (folder / "src/main.cc").write_text(text.format(outside=outside) + ECHO)
    with pytest.raises(BuildFailed, match=r"secret\.h, (which is outside of|outside) the project|has a backslash"):
        digests(folder, cache)
    assert not (folder / "build").exists()


@pytest.mark.parametrize(
    "text",
    [
        'asm(".section .rodata.s,\\"\\",@\\ns: .incbin \\"/etc/hostname\\"\\n.size s, 1\\n");\n',
        'asm(".include \\"/etc/hostname\\"");\n',
        'void f() { __asm__ volatile(""); __asm("nop"); }\n',
    ],
)
def test_inline_assembly_which_could_include_any_file_is_refused(tmp_path: Path, cache: Path, text: str) -> None:
    folder = echo(tmp_path / "echo")
    (folder / "src/main.cc").write_text(text + ECHO)
    with pytest.raises(BuildFailed, match=r"src/main\.cc:\d+:\d+: error: GNU-style inline assembly is disabled"):
        built(folder, cache)


@pytest.mark.parametrize("name", ["src/x.S", "src/x.s", "src/x.ll", "src/x.zig", "src/x.o", "src/x.wasm"])
def test_every_source_is_c_whatever_its_name(tmp_path: Path, cache: Path, name: str) -> None:
    folder = tmp_path / "new"
    scaffold(folder, language="c", name="new")
    (folder / "transform.yaml").write_text((folder / "transform.yaml").read_text() + f'sources: ["{name}"]\n')
    (folder / name).write_text('.incbin "/etc/hostname"\n')
    with pytest.raises(BuildFailed, match=rf"{name}:1:1: error: expected identifier"):
        built(folder, cache)


def test_nothing_around_a_project_reaches_its_compiler(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its digest is that of the same sources in a folder without anything else, under an environment without more."""
    folder = echo(tmp_path / "echo")
    plain = built(folder, cache)
    evil, canary = tmp_path / "evil", tmp_path / "canary"
    evil.mkdir()
    (evil / "shout.hpp").write_text('#define SHOUT "evil"\n')
    for name in (
        "clang",
        "wasm-ld",
        "ld.lld",
        "zig",
        "python",
        "ziglang/__main__.py",
        "ziglang/__init__.py",
        "ziglang/zig",
    ):
        for place in (evil, folder):
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_text(f"#!/bin/sh\ntouch {canary}\n")
            (place / name).chmod(0o755)
    for name in ("clang.cfg", "clang++.cfg", "zig.cfg", "wasm32-unknown-wasi.cfg", "wasm32-wasi.cfg", ".clang"):
        (folder / name).write_text("-DSHOUT=evil\n")
    for name in ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "COMPILER_PATH", "ZIG_LIB_DIR", "ZIG_LIBC"):
        monkeypatch.setenv(name, str(evil))
    monkeypatch.setenv("CCC_OVERRIDE_OPTIONS", "+-DSHOUT=evil")
    monkeypatch.setenv("CLANG_CONFIG_PATH", str(folder))
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    monkeypatch.setenv("PYTHONPATH", str(evil))
    monkeypatch.setenv("PATH", f":.:{evil}")
    monkeypatch.chdir(folder)
    shutil.rmtree(cache / "builds")
    hostile = built(Path(), cache)
    assert (hostile.cached, hostile.digest, hostile.source_digest) == (False, plain.digest, plain.source_digest)
    assert not canary.exists()


def test_the_same_sources_elsewhere_give_the_same_bytes(tmp_path: Path, cache: Path) -> None:
    first = built(echo(tmp_path / "here"), cache)
    shutil.rmtree(cache / "builds")
    second = built(echo(tmp_path / "some/where/else"), cache)
    assert not second.cached
    assert (second.digest, second.source_digest) == (first.digest, first.source_digest)


@pytest.mark.long
def test_a_fresh_toolchain_cache_gives_the_same_bytes(tmp_path: Path, cache: Path) -> None:
    """In C, whose library takes half a minute of one core to compile; that of C++ takes twice as long."""
    for name in ("warm", "cold"):
        scaffold(tmp_path / name, language="c", name="echo")
    warm = built(tmp_path / "warm", cache)
    cold = built(tmp_path / "cold", tmp_path / "fresh")
    assert not cold.cached
    assert cold.digest == warm.digest
    assert (tmp_path / "fresh/zig").is_dir()


@pytest.mark.parametrize("language", ["c", "cpp"])
def test_a_new_project_builds_and_passes_its_samples(tmp_path: Path, cache: Path, language: str) -> None:
    scaffold(tmp_path / "new", language=language)
    report = built(tmp_path / "new", cache)
    outcome = run_samples(load_project(tmp_path / "new"), Path(report.path).read_bytes())
    assert (outcome.records, outcome.failures) == (3, 0)


def test_the_compiler_s_complaint_names_file_and_line(tmp_path: Path, cache: Path) -> None:
    folder = echo(tmp_path / "echo")
    (folder / "src/main.cc").write_text("int main() {\n  return missing;\n}\n")
    with pytest.raises(
        BuildFailed, match=r"src/main\.cc:2:10: error: use of undeclared identifier 'missing'"
    ) as caught:
        built(folder, cache)
    assert "return missing;" in caught.value.log
    assert not (folder / "build").exists()


def test_a_source_that_ends_the_compiler_leaves_no_copy_of_what_it_included(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = echo(tmp_path / "echo")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "secret.h").write_text("int secret;\n")
    (folder / "src/main.cc").write_text('#include "../../secret.h"\n#pragma clang __debug crash\n')
    with pytest.raises(BuildFailed, match="does not compile"):
        built(folder, cache)
    assert not [*(tmp_path / "temporary").rglob("*")]


def test_exceptions_are_refused_by_the_compiler(tmp_path: Path, cache: Path) -> None:
    folder = echo(tmp_path / "echo")
    (folder / "src/main.cc").write_text("int main() { throw 1; }\n")
    with pytest.raises(BuildFailed, match="exceptions disabled"):
        built(folder, cache)


def test_a_program_that_is_no_transform_is_not_a_module(tmp_path: Path, cache: Path) -> None:
    folder = echo(tmp_path / "echo")
    (folder / "src/main.cc").write_text("int main() {}\n")
    with pytest.raises(UnsupportedAbi):
        built(folder, cache)
    assert not (folder / "build").exists()


def test_a_link_in_the_place_of_the_module_is_not_followed(tmp_path: Path, cache: Path) -> None:
    folder = echo(tmp_path / "echo")
    (tmp_path / "keys").write_text("mine")
    for link in (folder / "build/echo.wasm", tmp_path / "output.wasm"):
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(tmp_path / "keys")
    built(folder, cache)
    build(load_project(folder), output=tmp_path / "output.wasm", cache_dir=cache)
    assert (tmp_path / "keys").read_text() == "mine"
    assert digest_of((folder / "build/echo.wasm").read_bytes()) == digest_of((tmp_path / "output.wasm").read_bytes())


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, cache: Path) -> None:
    project = load_project(echo(tmp_path / "echo"))
    (tmp_path / "file").touch()
    with pytest.raises(BuildFailed, match=r"echo cannot be built: .*Not a directory|File exists"):
        build(project, output=tmp_path / "file/echo.wasm", cache_dir=cache)


def test_outputs_that_differ_from_the_samples_are_shown_as_a_diff(tmp_path: Path, cache: Path) -> None:
    folder = tmp_path / "new"
    scaffold(folder, name="new")
    wasm = Path(built(folder, cache).path).read_bytes()
    project = load_project(folder)
    expected = folder / "samples/expected.jsonl"
    expected.write_text(expected.read_text().replace("HELLO", "HELLO?"))
    with pytest.raises(SampleMismatch, match="wasmline test --accept") as caught:
        run_samples(project, wasm)
    changed = [line for line in caught.value.diff.splitlines() if line[:2] in ("-{", "+{")]
    assert [line[0] + str("HELLO?" in line) for line in changed] == ["-True", "+False"]
    assert accept_samples(project, wasm).outputs == 2
    assert run_samples(project, wasm).outputs == 2


def test_the_order_of_keys_and_blank_lines_do_not_count_in_samples(tmp_path: Path, cache: Path) -> None:
    folder = tmp_path / "new"
    scaffold(folder, language="c", name="new")
    wasm = Path(built(folder, cache).path).read_bytes()
    (folder / "samples/input.jsonl").write_text('{"value":"x"}\n\n')
    (folder / "samples/expected.jsonl").write_text(
        '\n{"source": {"partition": 0, "offset": 0}, "value": "x", "key": null, "headers": [],'
        ' "topic": "new.output", "output": 0}\n'
    )
    assert run_samples(load_project(folder), wasm).records == 1


@pytest.mark.parametrize("missing", ["input.jsonl", "expected.jsonl"])
def test_a_project_without_samples_does_not_pass(tmp_path: Path, cache: Path, missing: str) -> None:
    folder = tmp_path / "new"
    scaffold(folder, language="c", name="new")
    wasm = Path(built(folder, cache).path).read_bytes()
    (folder / "samples" / missing).unlink()
    with pytest.raises(InvalidProject, match=f"has no samples: .*{missing} is missing"):
        run_samples(load_project(folder), wasm)
