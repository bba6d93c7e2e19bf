"""The compiled code that copies records: it fits the client or is not used; outputs are answered each once."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, Producer

from wasmline.errors import InexactMetadata
from wasmline.kafka import compiled_columns, librdkafka_ctypes
from wasmline.kafka.compiled_columns import CompiledColumns, CompiledWriter
from wasmline.kafka.message_columns import MessageWriter
from wasmline.record_batches import TIMED_OUTPUT_SCHEMA

TOPICS = ("first", "second")

SOURCE = Path(compiled_columns.__file__).with_name("compiled_columns.c")


@pytest.fixture(scope="module")
def library() -> CompiledColumns:
    return CompiledColumns()


@pytest.fixture
def loaded_anew() -> Iterator[None]:
    compiled_columns._loaded.cache_clear()
    yield
    compiled_columns._loaded.cache_clear()


def client(library: CompiledColumns, **settings: str) -> Producer:
    """Return a producer that connects to nothing."""
    names = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"log_level": "0", **library.producer_settings, **names})


def outputs(values: Sequence[bytes | None], topic: int = 0) -> pa.RecordBatch:
    rows = [{"row": 0, "output": topic, "key": None, "value": value, "timestamp": 1} for value in values]
    return pa.RecordBatch.from_pylist(rows, schema=TIMED_OUTPUT_SCHEMA)


def codes(failed: list[tuple[int, KafkaError]]) -> list[tuple[int, int]]:
    return [(row, error.code()) for row, error in failed]


def test_the_package_has_the_compiled_code_here() -> None:
    assert compiled_columns.compiled_columns() is not None


def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WASMLINE_COMPILED_COLUMNS", "0")
    assert compiled_columns.compiled_columns() is None


@pytest.mark.usefixtures("loaded_anew")
def test_a_package_without_it_does_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compiled_columns, "LIBRARY", tmp_path / "absent.so")
    assert compiled_columns.compiled_columns() is None
    assert not caplog.records


@pytest.mark.usefixtures("loaded_anew")
@pytest.mark.parametrize("content", [b"", b"not a library"])
def test_a_file_that_is_no_library_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    file = tmp_path / "library.so"
    file.write_bytes(content)
    monkeypatch.setattr(compiled_columns, "LIBRARY", file)
    assert compiled_columns.compiled_columns() is None
    assert "records are copied without compiled code" in caplog.text


@pytest.mark.usefixtures("loaded_anew")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int64_t key_bytes", "int64_t unknown, key_bytes"),  # a structure of another size
        ("VALUE = 4, KEY = 5", "VALUE = 5, KEY = 4"),  # what the client takes for a key
        ("char *value;\n  size_t value_size;\n  char *key;\n  size_t key_size;",
         "char *key;\n  size_t key_size;\n  char *value;\n  size_t value_size;"),  # what its messages have as one
        ("answer(slot, message->error);\n  return 0;", "return 0;"),  # deliveries that nobody counts
    ],
)  # fmt: skip
def test_a_library_that_does_not_fit_the_client_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture, old: str, new: str
) -> None:
    text = SOURCE.read_text()
    assert text.count(old) == 1
    changed, built = tmp_path / "changed.c", tmp_path / "changed.so"
    changed.write_text(text.replace(old, new))
    command = [sys.executable, "-m", "ziglang", "cc", "-shared", "-fPIC", "-O1", "-o", str(built), str(changed)]
    subprocess.run(command, check=True)
    monkeypatch.setattr(compiled_columns, "LIBRARY", built)
    assert compiled_columns.compiled_columns() is None
    assert "records are copied without compiled code" in caplog.text


@pytest.mark.usefixtures("loaded_anew")
@pytest.mark.parametrize(("code", "is_used"), [(compiled_columns.TRIAL, True), ("raise SystemExit(1)", False)])
def test_an_unknown_release_of_the_client_is_tried_in_a_process_of_its_own(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: str, is_used: bool
) -> None:
    for module in (librdkafka_ctypes, compiled_columns):
        monkeypatch.setattr(module, "KNOWN_CLIENTS", ())
    monkeypatch.setattr(compiled_columns, "TRIAL", code)
    caplog.set_level(logging.WARNING)
    assert (compiled_columns.compiled_columns() is not None) is is_used
    assert ("does not fit the compiled code" in caplog.text) is not is_used


def test_every_output_is_answered_once(library: CompiledColumns) -> None:
    producer = client(library)
    writer = CompiledWriter(library, outputs([b"%d" % number for number in range(2_500)]), TOPICS)
    assert writer.write(producer)
    assert writer.answers() == (2_500, [])
    producer.purge()
    unanswered, failed = writer.answers()
    assert unanswered == 0
    assert codes(failed) == [(row, KafkaError._PURGE_QUEUE) for row in range(2_500)]
    assert writer.answers() == (0, [])


def test_a_full_queue_takes_the_rest_later(library: CompiledColumns) -> None:
    producer = client(library, queue_buffering_max_messages="10")
    writer = CompiledWriter(library, outputs([b""] * 25), TOPICS)
    rows: list[int] = []
    for is_last in (False, False, True):
        assert writer.write(producer) is is_last
        producer.purge()
        producer.poll(0)  # frees the places
        rows += [row for row, _ in writer.answers()[1]]
    assert sorted(rows) == list(range(25))
    assert writer.answers() == (0, [])


def test_what_the_client_refuses_is_a_failure_of_its_row(library: CompiledColumns) -> None:
    producer = client(library, message_max_bytes="1000")
    writer = CompiledWriter(library, outputs([b"", b"x" * 2_000, b""]), TOPICS)
    assert writer.write(producer)
    unanswered, failed = writer.answers()
    assert (unanswered, codes(failed)) == (2, [(1, KafkaError.MSG_SIZE_TOO_LARGE)])
    producer.purge()


def test_a_topic_of_no_valid_name_is_a_failure_of_its_rows(library: CompiledColumns) -> None:
    producer = client(library)
    writer = CompiledWriter(library, outputs([b"", b""], topic=1), ("fine", "x" * 600))
    assert writer.write(producer)
    unanswered, failed = writer.answers()
    assert (unanswered, [row for row, _ in failed]) == (0, [0, 1])
    assert {error.code() for _, error in failed} == {KafkaError._INVALID_ARG}


def test_messages_without_reports_have_no_callback(library: CompiledColumns) -> None:
    """One that runs while a fence is reported fails on the client's own exception."""
    producer = client(library, message_max_bytes="1000")
    writer = MessageWriter(outputs([b"", b"x" * 2_000]), TOPICS, reports=False)
    assert writer.write(producer)
    unanswered, failed = writer.answers()
    assert (unanswered, codes(failed)) == (0, [(1, KafkaError.MSG_SIZE_TOO_LARGE)])
    producer.purge()
    producer.poll(0)
    assert writer.answers() == (0, [])


def test_columns_and_messages_share_a_producer(library: CompiledColumns) -> None:
    producer = client(library)
    answered: list[KafkaError | None] = []
    writer = CompiledWriter(library, outputs([b"", b""]), TOPICS)
    producer.produce("first", b"1", on_delivery=lambda error, _: answered.append(error))
    assert writer.write(producer)
    producer.produce("first", b"2", on_delivery=lambda error, _: answered.append(error))
    producer.produce("first", b"3")
    producer.purge()
    producer.poll(0)
    assert [error and error.code() for error in answered] == [KafkaError._PURGE_QUEUE] * 2
    assert codes(writer.answers()[1]) == [(0, KafkaError._PURGE_QUEUE), (1, KafkaError._PURGE_QUEUE)]


@pytest.mark.parametrize("passed", [0, 10, 25])
def test_a_writer_may_go_before_its_deliveries_come(library: CompiledColumns, passed: int) -> None:
    producer = client(library, queue_buffering_max_messages=str(max(passed, 1)))
    writer = CompiledWriter(library, outputs([b"x"] * 25), TOPICS)
    if passed:
        writer.write(producer)
    del writer
    gc.collect()
    producer.purge()
    producer.poll(0)


def test_outputs_have_the_columns_of_the_contract(library: CompiledColumns) -> None:
    with pytest.raises(TypeError, match="TIMED_OUTPUT_SCHEMA"):
        CompiledWriter(library, pa.record_batch({"value": [b""]}), TOPICS)


def test_a_producer_of_others_is_not_written_to(library: CompiledColumns) -> None:
    """It would take the addresses of the compiled code for its own."""
    with pytest.raises(InexactMetadata, match="without the plugin"):
        CompiledWriter(library, outputs([b""]), TOPICS).write(Producer({"log_level": "0"}))
