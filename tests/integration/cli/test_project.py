"""The command line from an empty folder to a version that runs, each step a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from wasmline.build import load_project
from wasmline.build.toolchains import toolchain_for
from wasmline.errors import ToolchainMissing

ROOT = Path(__file__).parents[3]


@pytest.fixture
def wasmline(tmp_path: Path) -> "Wasmline":
    return Wasmline(tmp_path)


class Wasmline:
    """The command line in a folder, with a registry of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: str, lines: str = "", status: int = 0) -> "subprocess.CompletedProcess[str]":
        registry = ["--registry", str(self.folder / "registry")] if arguments[0] in ("publish", "run") else []
        ended = subprocess.run(
            [sys.executable, "-m", "wasmline.cli", *arguments, *registry],
            cwd=self.folder,
            input=lines,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert ended.returncode == status, ended.stderr
        assert "Traceback" not in ended.stderr
        return ended


def test_from_an_empty_folder_to_a_version_that_runs(wasmline: Wasmline) -> None:
    assert "shout/transform.yaml" in wasmline("init", "shout").stdout
    report = json.loads(wasmline("build", "shout", "--json").stdout)
    assert report["path"] == str(wasmline.folder / "shout/build/shout.wasm")
    assert report["digest"] in wasmline("build", "shout").stdout
    assert wasmline("test", "shout").stdout == "shout: 3 records, 2 outputs, 0 failures as expected\n"
    assert wasmline("publish", "shout").stdout.startswith(f"shout@0.1.0  {report['digest']}  ")
    assert wasmline("publish", "shout").stdout.startswith(f"shout@0.1.0  {report['digest']}  ")
    printed = {
        wasmline("run", transform, "--output-topic", "loud", lines='{"value":"hey"}\n').stdout
        for transform in ("shout", "shout/build/shout.wasm", "shout@0.1.0", "shout")
    }
    for transform in ("shout", "shout/build/shout.wasm", "shout@0.1.0"):
        wasmline("run", transform, "--input-topic", "loud", lines='{"value":"hey"}\n')
        refused = wasmline("run", transform, "--input-topic", "loud", "--output-topic", "loud", status=1)
        assert "loud is both input and output" in refused.stderr
    assert [json.loads(line) for line in printed] == [
        {
            "output": 0,
            "topic": "loud",
            "key": None,
            "value": "HEY",
            "headers": [],
            "source": {"partition": 0, "offset": 0},
        }
    ]


@pytest.mark.parametrize("language", [pytest.param("go", marks=pytest.mark.long), "rust"])
def test_a_project_in_another_language_goes_the_same_way(wasmline: Wasmline, language: str) -> None:
    wasmline("init", "shout", "--language", language)
    try:
        toolchain_for(language).prepare(load_project(wasmline.folder / "shout"))
    except ToolchainMissing as missing:
        pytest.skip(str(missing))
    assert wasmline("test", "shout").stdout == "shout: 3 records, 2 outputs, 0 failures as expected\n"
    expected = wasmline.folder / "shout/samples/expected.jsonl"
    accepted = expected.read_text()
    expected.write_text(accepted.replace("HELLO", "hello"))
    failed = wasmline("test", "shout", status=1)
    assert '-{"output":0,"topic":"shout.output","key":"a","value":"hello"' in failed.stderr
    assert '+{"output":0,"topic":"shout.output","key":"a","value":"HELLO"' in failed.stderr
    assert wasmline("test", "shout", "--accept").stdout.endswith("are now the expected ones\n")
    assert expected.read_text() == accepted
    assert wasmline("publish", "shout").stdout.startswith("shout@0.1.0  sha256:")
    printed = wasmline("run", "shout@0.1.0", lines='{"key":"k","value":"hey","headers":[["a",null]]}\n').stdout
    assert json.loads(printed) == {
        "output": 0,
        "topic": "shout.output",
        "key": "k",
        "value": "HEY",
        "headers": [["a", None]],
        "source": {"partition": 0, "offset": 0},
    }


def test_a_changed_transform_fails_its_samples_until_it_is_accepted_and_needs_a_new_version(wasmline: Wasmline) -> None:
    wasmline("init", "shout")
    wasmline("publish", "shout")
    source = wasmline.folder / "shout/src/main.cc"
    source.write_text(source.read_text().replace("toupper", "tolower"))
    failed = wasmline("test", "shout", status=1)
    assert failed.stdout == ""
    assert '-{"output":0,"topic":"shout.output","key":"a","value":"HELLO"' in failed.stderr
    assert '+{"output":0,"topic":"shout.output","key":"a","value":"hello"' in failed.stderr
    assert wasmline("test", "shout", "--bless").stdout.endswith("are now the expected ones\n")
    wasmline("test", "shout")
    refused = wasmline("publish", "shout", status=1)
    assert "shout@0.1.0 exists" in refused.stderr
    assert "publish under a new version" in refused.stderr


def test_a_changed_declaration_needs_a_new_version(wasmline: Wasmline) -> None:
    wasmline("init", "shout")
    wasmline("publish", "shout")
    file = wasmline.folder / "shout/transform.yaml"
    declared = file.read_text()
    file.write_text(declared.replace("shout.output", "other") + "env: {LANG: en}\n")
    refused = wasmline("publish", "shout", status=1)
    assert "with the same bytes and another declaration, which differs in env, output-topics;" in refused.stderr
    file.write_text(f"# A comment.\n{declared}")
    wasmline("publish", "shout")
    printed = wasmline("run", "shout@0.1.0", lines='{"value":"hey"}\n').stdout
    assert json.loads(printed)["topic"] == "shout.output"


def test_a_compile_error_is_shown_as_the_compiler_says_it(wasmline: Wasmline) -> None:
    wasmline("init", "broken")
    (wasmline.folder / "broken/src/main.cc").write_text("int main() {\n  return missing;\n}\n")
    failed = wasmline("build", "broken", status=1)
    assert failed.stdout == ""
    *log, last = failed.stderr.splitlines()
    assert any(line.startswith("src/main.cc:2:10: error: ") for line in log)
    assert last.startswith("wasmline: broken does not compile: src/main.cc:2:10: error: ")


def test_a_mistake_in_the_project_file_is_named_with_its_line(wasmline: Wasmline) -> None:
    wasmline("init", "typo")
    file = wasmline.folder / "typo/transform.yaml"
    file.write_text(file.read_text().replace("input-topic", "input_topic"))
    failed = wasmline("test", "typo", status=1)
    assert failed.stderr == (
        "wasmline: typo/transform.yaml:5: unknown key `input_topic`; did you mean `input-topic`?\n"
    )


def test_the_documentation_shows_what_the_command_line_prints(wasmline: Wasmline) -> None:
    """The console blocks of docs/cli.md, run: each ``$`` line, with the lines below it as its output."""
    text = (ROOT / "docs/cli.md").read_text()
    blocks = [block.split("```")[0] for block in text.split("```console\n")[1:]]
    assert blocks
    for block in blocks:
        for example in block.split("$ ")[1:]:
            command, _, output = example.partition("\n")
            ended = subprocess.run(
                ["sh", "-c", command.replace("wasmline ", f"{sys.executable} -m wasmline.cli ")],
                cwd=wasmline.folder,
                env={
                    "PATH": "/usr/bin:/bin",
                    "HOME": str(Path.home()),
                    "WASMLINE_REGISTRY": str(wasmline.folder / "r"),
                },
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
            )
            assert ended.stdout == output, ended.stderr
