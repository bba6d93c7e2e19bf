"""Modules built with Redpanda's own SDKs for Go and Rust run unchanged."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from wasmline.errors import GuestExit, GuestTrap
from wasmline.record_batches import RECORD_SCHEMA
from wasmline.wasm import CompiledTransform, ResourceLimits, TransformContext

SdkGuest = Callable[[str, str], CompiledTransform]

CONTEXT = TransformContext(name="guest", input_topic="in", output_topics=("first", "second"))

LANGUAGES = pytest.mark.parametrize("language", ["go", "rust"])

VALUES = (None, b"", b"\0", b"value", b"\xff" * 300)
HEADERS: tuple[list[dict[str, Any]], ...] = (
    [],
    [{"key": "", "value": None}],
    [{"key": "same", "value": b""}, {"key": "same", "value": b"2"}],
    [{"key": f"header {number}", "value": bytes([number]) * number} for number in range(100)],
)


def batch(*records: dict[str, Any]) -> pa.RecordBatch:
    filled = [
        {"timestamp": 1_700_000_000_000 + row, "partition": 0, "offset": row, **record}
        for row, record in enumerate(records)
    ]
    return pa.RecordBatch.from_pylist(filled, schema=RECORD_SCHEMA)


@LANGUAGES
def test_null_and_empty_keys_values_and_headers_survive(sdk_guest: SdkGuest, language: str) -> None:
    records = [
        {"key": key, "value": value, "headers": headers} for key in VALUES for value in VALUES for headers in HEADERS
    ]
    with sdk_guest("identity", language).instantiate(CONTEXT) as instance:
        result = instance.transform(batch(*records))
    assert (result.failures, result.logs) == ((), ())
    assert result.outputs.select(["key", "value", "headers"]).to_pylist() == records


@LANGUAGES
def test_records_of_several_megabytes_pass(sdk_guest: SdkGuest, language: str) -> None:
    value = bytes(range(256)) * (5 * 4096)
    with sdk_guest("identity", language).instantiate(CONTEXT) as instance:
        result = instance.transform(batch({"value": b"small"}, {"value": value}, {"value": b"small"}))
    assert result.failures == ()
    assert result.outputs.column("value").to_pylist() == [b"small", value, b"small"]


@LANGUAGES
def test_records_reach_a_topic_that_the_guest_names(sdk_guest: SdkGuest, language: str) -> None:
    with sdk_guest("tee", language).instantiate(CONTEXT) as instance:
        result = instance.transform(batch({"key": b"a", "value": b"1"}, {"value": None}))
    assert result.failures == ()
    assert result.outputs.select(["row", "output", "key", "value"]).to_pylist() == [
        {"row": row, "output": output, "key": key, "value": value}
        for row, key, value in ((0, b"a", b"1"), (1, None, None))
        for output in (0, 1)
    ]


@LANGUAGES
@pytest.mark.parametrize(
    ("key", "words"),
    [
        (b"panic", ("about to panic", "on purpose")),
        (b"error", ("transforming record failed", "refused on purpose")),
        (b"nowhere", ("transforming record failed",)),
    ],
)
def test_a_failure_is_the_records_own(sdk_guest: SdkGuest, language: str, key: bytes, words: tuple[str, ...]) -> None:
    """What the failing record wrote before is dropped, what the guest said is in the reason, the others come out."""
    records = ({"value": b"before"}, {"key": key, "value": b"bad"}, {"value": b"after"})
    with sdk_guest("failing", language).instantiate(CONTEXT) as instance:
        result = instance.transform(batch(*records))
    assert result.outputs.column("value").to_pylist() == [b"before", b"after"]
    (failure,) = result.failures
    assert failure.row == 1
    for word in words:
        assert word in str(failure.error)
    if language == "go":
        assert isinstance(failure.error, GuestExit)
        assert failure.error.status == 2
    else:
        assert isinstance(failure.error, GuestTrap)
        assert failure.error.code == "unreachable"


@LANGUAGES
def test_sixteen_mebibytes_are_enough_for_a_guest_without_state(sdk_guest: SdkGuest, language: str) -> None:
    limits = ResourceLimits(memory_bytes=16 * 2**20)
    assert limits.memory_bytes <= ResourceLimits().memory_bytes
    with sdk_guest("identity", language).instantiate(CONTEXT, limits) as instance:
        for _ in range(5):
            assert instance.transform(batch(*({"value": b"x" * 100},) * 10_000)).outputs.num_rows == 10_000
