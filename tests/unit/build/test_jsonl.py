import base64
import io
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wasmline.build.jsonl import MAX_BATCH, output_lines, read_batches
from wasmline.errors import GuestTrap, InvalidJsonLine
from wasmline.record_batches import OUTPUT_SCHEMA, RECORD_SCHEMA
from wasmline.wasm import RecordFailure, TransformResult


def records(*lines: str | bytes) -> list[dict[str, Any]]:
    data = b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines)
    batches = list(read_batches(io.BytesIO(data), "input"))
    assert all(batch.schema == RECORD_SCHEMA for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


class Arriving(io.BytesIO):
    """A stream whose reads give one chunk each, as a pipe does."""

    def __init__(self, *chunks: bytes) -> None:
        super().__init__()
        self._chunks = list(chunks)

    def read1(self, size: int | None = -1, /) -> bytes:
        return self._chunks.pop(0) if self._chunks else b""


def test_a_line_gives_every_field_of_a_record() -> None:
    (record,) = records(
        '{"key":"k","value":{"base64":"/wA="},"headers":[["h","é"],["h",null],["b",{"base64":"gA=="}]],'
        '"timestamp":1700000000123,"partition":3,"offset":7}'
    )
    timestamp = record.pop("timestamp")
    assert timestamp.isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert record == {
        "key": b"k",
        "value": b"\xff\0",
        "headers": [
            {"key": "h", "value": "é".encode()},
            {"key": "h", "value": None},
            {"key": "b", "value": b"\x80"},
        ],
        "partition": 3,
        "offset": 7,
    }


def test_only_the_value_must_be_given() -> None:
    first, second, third = records('{"value":""}', "", '{"value":null}\r', '{"value":"x","offset":90}')
    assert (first["key"], first["value"], first["headers"], first["partition"], first["offset"]) == (
        None,
        b"",
        None,
        0,
        0,
    )
    assert (second["value"], second["offset"]) == (None, 1)
    assert third["offset"] == 90


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("nonsense", "malformed"),
        ("{}", "missing required field `value`"),
        ('{"value":1}', r"got `int` - at `\$.value`"),
        ('{"value":"x","topic":"t"}', "unknown field `topic`"),
        ('{"value":{"base64":"?"}}', r"Invalid base64 encoded string - at `\$.value"),
        ('{"value":"x","offset":-1}', r">= 0.*offset"),
        ('{"value":"x","partition":4294967296}', "partition"),
        ('{"value":"x","timestamp":"now"}', "timestamp"),
        ('{"value":"x","headers":[["k"]]}', "headers"),
        ('{"value":"x","headers":[[null,"v"]]}', "headers"),
        ("[]", "Expected `object`"),
        (b'{"value":"\xff"}', "not valid Unicode: byte 0xff is not UTF-8"),
        (b'{"value":"\xed\xa0\x80"}', "not valid Unicode: byte 0xed is not UTF-8"),
        (r'{"value":"\ud800"}', r"not valid Unicode: \\ud800 is half"),
        (r'{"value":"\uDC00 x"}', r"not valid Unicode: \\uDC00 is half"),
        (r'{"key":"\ud83d\ude00\\udc00","value":"\ud801\n"}', r"not valid Unicode: \\ud801 is half"),
        (r'{"value":"x","\ud83d\ude00\\ud800":1}', "unknown field"),
        (r'{"value":"\ud8zz"}', "unicode escape"),
    ],
)
def test_a_malformed_line_is_named_after_the_records_before_it(line: str | bytes, says: str) -> None:
    bad = line if isinstance(line, bytes) else line.encode()
    batches = read_batches(io.BytesIO(b'{"value":"good"}\n\n' + bad + b'\n{"value":"after"}\n'), "input.jsonl")
    assert next(batches).column("value").to_pylist() == [b"good"]
    with pytest.raises(InvalidJsonLine, match=says) as caught:
        next(batches)
    assert str(caught.value).startswith("input.jsonl:3: ")
    assert (caught.value.source, caught.value.line) == ("input.jsonl", 3)


def test_lines_are_given_as_they_arrive_and_may_be_torn_anywhere() -> None:
    stream = Arriving(b'{"value":"1"}\n{"va', b'lue":"2', b'"}\n', b'{"value":"3"}')
    batches = [batch.column("value").to_pylist() for batch in read_batches(stream, "input")]
    assert batches == [[b"1"], [b"2"], [b"3"]]


def test_a_batch_is_bounded_and_offsets_go_on_through_all_batches() -> None:
    stream = io.BytesIO(b'{"value":"x"}\n' * (MAX_BATCH + 5))
    sizes = [(batch.num_rows, batch.column("offset")[0].as_py()) for batch in read_batches(stream, "input")]
    assert sizes == [(MAX_BATCH, 0), (5, MAX_BATCH)]


def outputs(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=OUTPUT_SCHEMA)


def input_batch(count: int) -> pa.RecordBatch:
    stream = io.BytesIO(b"".join(b'{"value":"x","partition":2,"offset":%d}\n' % (10 + n) for n in range(count)))
    (batch,) = read_batches(stream, "input")
    return batch


def test_outputs_and_failures_come_in_input_order_with_their_source() -> None:
    result = TransformResult(
        rows=3,
        outputs=outputs(
            [
                {"row": 0, "output": 1, "key": None, "value": b"\xff", "headers": [{"key": "h", "value": b""}]},
                {"row": 0, "output": 0, "key": b"k", "value": None, "headers": None},
                {"row": 2, "output": 0, "key": b"", "value": "ü".encode(), "headers": []},
            ]
        ),
        failures=(RecordFailure(row=1, error=GuestTrap("it trapped", code="unreachable")),),
    )
    lines = [json.loads(line) for line in output_lines(input_batch(3), result, ("a", "b"))]
    first = {"partition": 2, "offset": 10}
    assert lines == [
        {"output": 1, "topic": "b", "key": None, "value": {"base64": "/w=="}, "headers": [["h", ""]], "source": first},
        {"output": 0, "topic": "a", "key": "k", "value": None, "headers": [], "source": first},
        {"error": "GuestTrap", "reason": "it trapped", "source": {"partition": 2, "offset": 11}},
        {"output": 0, "topic": "a", "key": "", "value": "ü", "headers": [], "source": {"partition": 2, "offset": 12}},
    ]


blobs = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)
headers = st.lists(st.tuples(st.text(max_size=5), blobs), max_size=3)


def spelled(value: bytes | None) -> Any:
    return None if value is None else {"base64": base64.b64encode(value).decode()}


@given(st.lists(st.tuples(blobs, blobs, headers), min_size=1, max_size=10))
def test_bytes_survive_both_directions(
    rows: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
) -> None:
    lines = [
        json.dumps({"key": spelled(key), "value": spelled(value), "headers": [[k, spelled(v)] for k, v in pairs]})
        for key, value, pairs in rows
    ]
    (batch,) = read_batches(io.BytesIO("".join(f"{line}\n" for line in lines).encode()), "input")
    columns = {name: batch.column(name) for name in ("key", "value", "headers")}
    echoed = pa.RecordBatch.from_arrays(
        [pa.array(range(len(rows)), pa.int32()), pa.array([0] * len(rows), pa.int32()), *columns.values()],
        schema=OUTPUT_SCHEMA,
    )
    printed = b"".join(output_lines(batch, TransformResult(rows=batch.num_rows, outputs=echoed), ("out",)))
    echo = [{name: json.loads(line)[name] for name in columns} for line in printed.splitlines()]
    (reread,) = read_batches(io.BytesIO("".join(f"{json.dumps(line)}\n" for line in echo).encode()), "echo")
    for name, column in columns.items():
        assert reread.column(name).to_pylist() == column.to_pylist()
