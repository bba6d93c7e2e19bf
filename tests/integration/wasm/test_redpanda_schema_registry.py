"""Modules that use the schema-registry clients of Redpanda's own SDKs find the schemas that are handed in."""

import dataclasses
from collections.abc import Callable

import pyarrow as pa
import pytest

from wasmline.record_batches import RECORD_SCHEMA
from wasmline.wasm import CompiledTransform, Schema, TransformContext

LONG = '{"type": "record", "doc": "' + "é" * 3000 + '"}'
SCHEMAS = (
    Schema(id=7, definition=LONG, format="avro"),
    Schema(id=70_000, definition="message M {}", format="protobuf", subject="orders-value", version=1),
    Schema(id=9, definition='"string"', format="json", subject="orders-value", version=2),
)
CONTEXT = TransformContext(name="guest", input_topic="in", output_topics=("out",))

QUESTIONS = {
    ("id", "7"): f"0 {LONG} 0",
    ("id", "70000"): "1 message M {} 0",
    ("id", "8"): "no",
    ("subject", "orders-value 1"): "70000 1 1 message M {}",
    ("subject", "orders-value 2"): '9 2 2 "string"',
    ("subject", "orders-value -1"): '9 2 2 "string"',
    ("subject", "orders-value 3"): "no",
    ("subject", "orders-key -1"): "no",
    ("create", 'orders-value "string"'): "9",
    ("create", 'orders-value "number"'): "no",
}


@pytest.mark.parametrize("language", ["go", "rust"])
def test_the_sdks_clients_find_what_is_handed_in(
    sdk_guest: Callable[[str, str], CompiledTransform], language: str
) -> None:
    records = [
        {"key": key.encode(), "value": value.encode(), "timestamp": 0, "partition": 0, "offset": row}
        for row, (key, value) in enumerate(QUESTIONS)
    ]
    batch = pa.RecordBatch.from_pylist(records, schema=RECORD_SCHEMA)
    for schemas, answers in ((SCHEMAS, list(QUESTIONS.values())), ((), ["no"] * len(QUESTIONS))):
        context = dataclasses.replace(CONTEXT, schemas=schemas)
        with sdk_guest("schemas", language).instantiate(context) as instance:
            result = instance.transform(batch)
        assert (result.failures, result.logs) == ((), ())
        assert [value.decode() for value in result.outputs.column("value").to_pylist()] == answers
