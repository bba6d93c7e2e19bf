import shutil
from pathlib import Path

import pytest

from wasmline.build import BuildReport, bless, build, load_project, run_samples, scaffold
from wasmline.cache_folder import cache_root
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


def test_the_same_sources_elsewhere_give_the_same_bytes(tmp_path: Path, cache: Path) -> None:
    first = built(echo(tmp_path / "here"), cache)
    shutil.rmtree(cache / "builds")
    second = built(echo(tmp_path / "some/where/else"), cache)
    assert not second.cached
    assert (second.digest, second.source_digest) == (first.digest, first.source_digest)


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
    with pytest.raises(SampleMismatch, match="wasmline test --bless") as caught:
        run_samples(project, wasm)
    changed = [line for line in caught.value.diff.splitlines() if line[:2] in ("-{", "+{")]
    assert [line[0] + str("HELLO?" in line) for line in changed] == ["-True", "+False"]
    assert bless(project, wasm).outputs == 2
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
