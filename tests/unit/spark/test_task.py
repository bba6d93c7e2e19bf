"""Spark's columns as a batch of records."""

import base64
import json

import pyarrow as pa

from wasmline.errors import HangingTransaction
from wasmline.record_batches import RECORD_SCHEMA
from wasmline.spark.error_parsing import cause, guest_failure, job_error
from wasmline.spark.microbatch.task import record_batch


def rows(*headers: list[tuple[str, bytes | None]] | None) -> pa.RecordBatch:
    """Return rows as Spark hands them over: headers as its to_json writes them, timestamps in microseconds."""
    texts = [
        None
        if each is None
        else json.dumps(
            [{"key": k} if v is None else {"key": k, "value": base64.b64encode(v).decode()} for k, v in each]
        )
        for each in headers
    ]
    count = len(texts)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"k"] * count),
            "value": pa.array([b"v"] * count),
            "headers": pa.array(texts, pa.string()),
            "timestamp": pa.array([1_700_000_000_123_000] * count, pa.timestamp("us", tz="UTC")),
            "partition": pa.array([1] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
        }
    )


def test_headers_keep_order_repetition_nulls_and_bytes() -> None:
    given = [("a", b"\x00\xff"), ("a", None), ("\u00e9", b"")]
    batch = record_batch(rows(None, given, []))
    assert batch.schema == RECORD_SCHEMA
    headers = batch.column("headers").to_pylist()
    assert headers == [None, [{"key": key, "value": value} for key, value in given], []]


def test_a_batch_without_headers_has_nulls() -> None:
    assert record_batch(rows(None, None)).column("headers").null_count == 2


def test_timestamps_become_milliseconds() -> None:
    assert record_batch(rows(None)).column("timestamp").cast(pa.int64()).to_pylist() == [1_700_000_000_123]


def test_the_guests_error_is_found_in_sparks_text() -> None:
    text = (
        "Job aborted\nTraceback (most recent call last):\n  File ...\nwasmline.errors.GuestTrap: it trapped\n\nDriver"
    )
    assert guest_failure(text) == "GuestTrap: it trapped"
    assert guest_failure("java.lang.OutOfMemoryError: heap") is None


def test_a_transaction_that_hangs_is_found_in_sparks_text() -> None:
    text = "Job aborted\n  File ...\nwasmline.errors.HangingTransaction: out-0@5 has one open\n\nDriver"
    found = job_error(text)
    assert isinstance(found, HangingTransaction)
    assert str(found) == "out-0@5 has one open"


def test_the_cause_is_the_innermost_exception() -> None:
    text = "org.apache.spark.SparkException: Job aborted\n\tat x\nCaused by: java.net.ConnectException: refused\n\tat y"
    assert cause(text) == "java.net.ConnectException: refused"
