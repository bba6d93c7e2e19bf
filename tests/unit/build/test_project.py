import os
from collections.abc import Callable
from pathlib import Path

import pytest

from wasmline.build import TransformProject, load_project
from wasmline.errors import InvalidProject

MINIMAL = "name: a-transform\nlanguage: cpp\ninput-topic: in\noutput-topics: [out]\n"

FULL = """\
name: delivery-distance
version: 1.2.0-rc.1
description: Distances.   # a comment
language: cpp
input-topic: deliveries.raw
output-topics:
  - deliveries.features
  - deliveries.dlq
dead-letter-topic: deliveries.dlq
compression: zstd
env:
  RADIUS: 6371.0
  DEBUG: true
limits:
  memory: 32MiB
  timeout-ms: 250
sources: [src/main.cc, "src/geo/*.cc"]
"""


def project(folder: Path, text: str) -> TransformProject:
    (folder / "transform.yaml").write_text(text, "utf-8")
    return load_project(folder)


def refusal(folder: Path, text: str) -> InvalidProject:
    with pytest.raises(InvalidProject) as caught:
        project(folder, text)
    assert caught.value.path == str(folder / "transform.yaml")
    return caught.value


def test_every_key_is_read(tmp_path: Path) -> None:
    assert project(tmp_path, FULL) == TransformProject(
        folder=tmp_path,
        name="delivery-distance",
        version="1.2.0-rc.1",
        description="Distances.",
        language="cpp",
        input_topic="deliveries.raw",
        output_topics=("deliveries.features", "deliveries.dlq"),
        dead_letter_topic="deliveries.dlq",
        compression="zstd",
        env={"RADIUS": "6371.0", "DEBUG": "true"},
        memory_bytes=32 * 2**20,
        timeout_ms=250,
        sources=("src/main.cc", "src/geo/*.cc"),
    )


def test_a_file_of_rpk_s_keys_alone_is_a_project_without_a_version(tmp_path: Path) -> None:
    loaded = project(tmp_path, MINIMAL.replace("output-topics: [out]", "output-topic: out"))
    assert loaded.version is None
    assert loaded.output_topics == ("out",)
    assert (loaded.memory_bytes, loaded.timeout_ms) == (64 * 2**20, 3000)


def test_the_guest_is_told_what_the_file_declares(tmp_path: Path) -> None:
    loaded = project(tmp_path, FULL)
    assert loaded.context().environment() == {
        "RADIUS": "6371.0",
        "DEBUG": "true",
        "REDPANDA_INPUT_TOPIC": "deliveries.raw",
        "REDPANDA_OUTPUT_TOPIC_0": "deliveries.features",
        "REDPANDA_OUTPUT_TOPIC_1": "deliveries.dlq",
    }
    assert loaded.limits().memory_bytes == 32 * 2**20
    assert loaded.limits().cpu_ms_per_record == 250


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        (MINIMAL + "input_topic: x\n", 5, "unknown key `input_topic`; did you mean `input-topic`?"),
        (MINIMAL + "zzz: x\n", 5, "unknown key `zzz`; known are compression, dead-letter-topic"),
        (MINIMAL + "name: b\n", 5, "`name` is given twice, first in line 1"),
        (MINIMAL + "version: 1.0\n", 5, "`version`: '1.0' is not a semantic version"),
        (MINIMAL + "version:\n", 5, "`version` needs a plain value"),
        (MINIMAL + "compression: brotli\n", 5, "`compression` is 'brotli'; choose one of none, gzip"),
        (MINIMAL + "output-topic: other\n", 5, "older form of `output-topics`"),
        (MINIMAL + "dead-letter-topic: in\n", 5, "dead letters would be read again"),
        (MINIMAL + "env: [A]\n", 5, "expected keys with values"),
        (MINIMAL + "env:\n  REDPANDA_X: 1\n", 5, "REDPANDA_X cannot name an environment variable"),
        (MINIMAL + "env:\n  A:\n", 6, "`A` needs a plain value"),
        (MINIMAL + "limits:\n  memory: lots\n", 6, "`memory`: 'lots' is not an amount of memory"),
        (MINIMAL + "limits:\n  memory: 1\n", 6, "memory_bytes=1: choose a value from 65536"),
        (MINIMAL + "limits:\n  timeout-ms: soon\n", 6, "`timeout-ms` is 'soon', not a whole number"),
        (MINIMAL + "limits:\n  timeout-ms: 0\n", 6, "cpu_ms_per_record=0: choose a value from 1"),
        (MINIMAL + "limits:\n  timeout_ms: 9\n", 6, "did you mean `timeout-ms`?"),
        (MINIMAL.replace("cpp", "go") + "sources: [a.go]\n", 5, "`sources` is for c and cpp"),
        (MINIMAL + "sources: src\n", 5, "`sources` must be a list"),
        (MINIMAL.replace("cpp", "cobol"), 2, "`language` is 'cobol'; choose one of c, cpp, go"),
        (MINIMAL.replace("a-transform", "A Transform"), 1, "`name` is 'A Transform': use at most"),
        (MINIMAL.replace("[out]", "[out, 'a b']"), 4, "'a b' cannot name a Kafka topic"),
        (MINIMAL.replace("[out]", "[out, out]"), 4, "an output topic is named twice"),
        (MINIMAL.replace("[out]", "[in]"), 4, "in is both input and output"),
        (MINIMAL.replace("[out]", "[]"), 4, "0 output topics; a transform has 1 to 8"),
        (MINIMAL.replace("[out]", "[a, b, c, d, e, f, g, h, i]"), 4, "9 output topics"),
        (MINIMAL.replace("input-topic: in\n", ""), 1, "`input-topic` is missing"),
        (MINIMAL + "env: {\n", 6, "not YAML"),
        (MINIMAL + "env:\n  A: \0\n", 6, "not YAML: it contains the control character U+0000"),
        (MINIMAL + 'description: "\\ud800"\n', 5, "it contains U+D800, which is not text"),
        (MINIMAL.replace("[out]", '["\\0"]'), 4, "it contains U+0000, which is not text"),
        (MINIMAL + 'env: {"\\ud800": a}\n', 5, "it contains U+D800, which is not text"),
        (MINIMAL + 'env: {A: "\\udfff"}\n', 5, "it contains U+DFFF, which is not text"),
        ("- a\n", 1, "expected keys with values"),
        ("[a]: b\n", 1, "a key must be plain text"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, text: str, line: int, says: str) -> None:
    error = refusal(tmp_path, text)
    assert error.line == line
    assert f"transform.yaml:{line}: " in str(error)
    assert says in str(error)


@pytest.mark.parametrize(
    "text",
    [
        f'{MINIMAL}description: "\\UFFFFFFFF"',
        f'{MINIMAL}description: "\\U00110000"',
        f"%YAML 1.{'9' * 5_000}\n---\na: b",
    ],
)
def test_a_number_beyond_all_that_it_can_stand_for_is_no_yaml(tmp_path: Path, text: str) -> None:
    assert "transform.yaml: not YAML: " in str(refusal(tmp_path, text))


@pytest.mark.parametrize(
    "text",
    [
        MINIMAL.replace("a-transform", "A" * 100_000),
        MINIMAL.replace("input-topic: in", f"input-topic: {'/' * 100_000}"),
        f"{MINIMAL}limits: {{timeout-ms: {'9' * 4_000}}}",
        f"{MINIMAL}? {'x' * 100_000}\n: a",
        f'{MINIMAL}"a\\nwasmline: built\\e[2J": x',
    ],
)
def test_a_message_is_one_short_line_whatever_the_file_holds(tmp_path: Path, text: str) -> None:
    said = str(refusal(tmp_path, text)).removeprefix(str(tmp_path))
    assert len(said) < 1_200
    assert said.isprintable()


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[2J", "a\u202eb", "a\udcff"])
def test_a_folder_whose_name_is_not_printable_is_refused(tmp_path: Path, name: str) -> None:
    """It would be another text to some compilers, in reports and on a terminal."""
    (tmp_path / name).mkdir()
    with pytest.raises(InvalidProject, match=r"control character or bytes that are not text in its name: rename"):
        project(tmp_path / name, MINIMAL)


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    assert "is empty" in str(refusal(tmp_path, "# nothing\n"))


def test_a_file_nested_too_deeply_is_named(tmp_path: Path) -> None:
    assert "nested too deeply" in str(refusal(tmp_path, f"name: {'[' * 5_000}"))


def test_a_file_of_many_megabytes_is_refused(tmp_path: Path) -> None:
    """The parser would take twenty seconds for each."""
    with (tmp_path / "transform.yaml").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(InvalidProject, match=r"transform\.yaml cannot be read: it has more than 131072 bytes"):
        load_project(tmp_path)


def test_a_folder_without_the_file_is_no_project(tmp_path: Path) -> None:
    with pytest.raises(InvalidProject, match=r"does not exist.*wasmline init") as caught:
        load_project(tmp_path)
    assert caught.value.line is None


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir])
def test_what_is_no_regular_file_is_named(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "transform.yaml")
    with pytest.raises(InvalidProject, match=r"cannot be read: it is not a regular file"):
        load_project(tmp_path)


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "transform.yaml").write_bytes(b"name: \xff\n")
    with pytest.raises(InvalidProject, match="cannot be read"):
        load_project(tmp_path)


def test_what_is_written_stays_in_the_project(tmp_path: Path) -> None:
    """A link in the place of a file is replaced; one in the place of its folder is refused."""
    folder = tmp_path / "project"
    project = TransformProject(folder=folder, name="t", input_topic="in", output_topics=("out",), language="c")
    (folder / "inside").mkdir(parents=True)
    (folder / "samples").symlink_to("inside")
    (folder / "inside/expected.jsonl").symlink_to(tmp_path / "outside")
    assert project.output(Path("build/t.wasm")) == folder / "build/t.wasm"
    assert project.output(Path("samples/expected.jsonl")) == folder / "inside/expected.jsonl"
    (folder / "build").symlink_to(tmp_path)
    with pytest.raises(InvalidProject, match="is a link that leads out of the project"):
        project.output(Path("build/t.wasm"))
    (folder / "samples").unlink()
    (folder / "samples").symlink_to("samples")
    with pytest.raises(OSError, match="Too many levels"):
        project.output(Path("samples/expected.jsonl")).write_bytes(b"")
