from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from wasmline.errors import GuestProtocolError, GuestTrap, InvalidBatch
from wasmline.record_batches import OUTPUT_SCHEMA, RECORD_SCHEMA
from wasmline.testing import guests
from wasmline.wasm.transform_instance import SLICE_ROWS


def fields(batch: pa.RecordBatch, *, rows: bool = False) -> list[tuple[Any, ...]]:
    names = [*(["row"] if rows else []), "key", "value", "headers"]
    lists = [batch.column(name).to_pylist() for name in names]
    return [(*line[:-1], line[-1] or []) for line in zip(*lists, strict=True)]


@pytest.mark.parametrize("abi", [1, 2])
def test_identity_gives_the_same_records_in_order(start: Any, records: Any, abi: int) -> None:
    batch = records([b"a", b"", None, b"d"], [b"1", None, b"", b"4" * 1000])
    result = start(guests.guest(abi=abi)).transform(batch)
    assert result.outputs.schema == OUTPUT_SCHEMA
    assert result.outputs.column("row").to_pylist() == [0, 1, 2, 3]
    assert fields(result.outputs) == fields(batch)
    assert (result.failures, result.logs, result.logs_dropped) == ((), (), 0)
    result.outputs.validate(full=True)


def test_headers_keep_their_order_repeats_and_nulls(start: Any, records: Any) -> None:
    headers = [[("a", b"1"), ("a", None), ("", b"")], None, [], [("naïve", b"\xff" * 300)] * 70]
    batch = records([b"k"] * 4, headers=[h and [{"key": k, "value": v} for k, v in h] for h in headers])
    result = start(guests.guest()).transform(batch)
    assert fields(result.outputs) == fields(batch)


def test_any_slice_is_read_as_itself(start: Any, records: Any) -> None:
    headers = [[{"key": f"h{row}", "value": None if row % 3 else b"v"}] * (row % 4) for row in range(40)]
    keys = [None if row % 5 == 0 else b"k%d" % row for row in range(40)]
    batch = records(keys, headers=headers)
    instance = start(guests.guest())
    for first, count in [(0, 1), (1, 7), (13, 27), (39, 1)]:
        part = batch.slice(first, count)
        assert fields(instance.transform(part).outputs) == fields(part)


def test_an_empty_batch_gives_an_empty_result(start: Any, records: Any) -> None:
    result = start(guests.guest()).transform(records([]))
    assert result.outputs.num_rows == 0
    assert result.outputs.schema == OUTPUT_SCHEMA


def test_more_records_than_fit_one_slice_keep_their_rows(start: Any, records: Any) -> None:
    count = SLICE_ROWS * 2 + 5
    batch = records([b"%d" % row for row in range(count)])
    outputs = start(guests.guest()).transform(batch).outputs
    assert outputs.column("row").to_pylist() == list(range(count))
    assert outputs.column("key").equals(batch.column("key"))


def test_records_of_several_megabytes_pass(start: Any, records: Any) -> None:
    values = [b"s", b"x" * 5_000_000, b"t", b"y" * 3_000_001]
    batch = records([b"k"] * 4, values, headers=[[{"key": "h", "value": b"z" * 2_000_000}]] * 4)
    assert fields(start(guests.guest()).transform(batch).outputs) == fields(batch)


def test_a_filter_gives_no_output_and_no_failure(start: Any, records: Any) -> None:
    result = start(guests.guest(guests.when_key("k", guests.WRITE))).transform(records([b"k1", b"x", None, b"k2"]))
    assert result.outputs.column("row").to_pylist() == [0, 3]
    assert result.failures == ()


def test_outputs_go_to_the_topics_the_guest_names(start: Any, records: Any) -> None:
    body = guests.write_to(guests.topic("second"), expect=7) + guests.write_to(b"", expect=7) + guests.WRITE
    instance = start(guests.guest(body, abi=2), outputs=("first", "second"))
    outputs = instance.transform(records([b"a", b"b"], [b"val", b"val"])).outputs
    assert outputs.column("row").to_pylist() == [0, 0, 0, 1, 1, 1]
    assert outputs.column("output").to_pylist() == [1, 0, 0, 1, 0, 0]


def test_a_thousand_outputs_per_record_come_out_complete(start: Any, records: Any) -> None:
    body = (
        f"(local.set $zero (i32.const 1000)) (loop $again {guests.WRITE}"
        "(br_if $again (local.tee $zero (i32.sub (local.get $zero) (i32.const 1)))))"
    )
    batch = records([b"a", b"b", b"c"], [b"v" * 500] * 3, headers=[[{"key": "h", "value": b"1"}] * 3] * 3)
    outputs = start(guests.guest(body)).transform(batch).outputs
    assert outputs.column("row").to_pylist() == [row for row in range(3) for _ in range(1000)]
    assert fields(outputs.slice(1500, 1)) == fields(batch.slice(1, 1))


def test_the_guest_sees_each_records_own_offset_and_time(start: Any, records: Any) -> None:
    batch = records([b"a", b"b", b"c"], times=[10, 5, -1], offsets=[7, 9, 2**40])
    outputs = start(guests.guest(guests.write_cells(guests.OFFSET, guests.TIMESTAMP))).transform(batch).outputs
    assert [struct.unpack("<qq", value) for value in outputs.column("value").to_pylist()] == [
        (7, 10),
        (9, 5),
        (2**40, -1),
    ]


def test_the_batch_header_has_all_ten_fields(start: Any, records: Any) -> None:
    batch = records([b"a", b"b", b"c"], [b"1", b"22", b"3"], times=[10, 50, 20], offsets=[100, 101, 105])
    body = (
        guests.write_cells(0, 8, 16, 24, 32, 40, 48)
        + "(i64.store (i32.const 128) (i64.extend_i32_u (local.get $room)))"
        + guests.write_cells(128)
    )
    value, room = start(guests.guest(body)).transform(batch).outputs.column("value").to_pylist()[:2]
    base, count, epoch, attributes, last_delta = struct.unpack("<qiihxxi", value[:24])
    first, latest, producer, producer_epoch, sequence = struct.unpack("<qqqhxxi", value[24:])
    assert (base, count, epoch, attributes, last_delta) == (100, 3, 0, 0, 5)
    assert (first, latest) == (10, 50)
    assert (producer, producer_epoch, sequence) == (-1, -1, -1)
    assert struct.unpack("<q", room) == (1 + 1 + 1 + 2 + 1,)


MALFORMED = {
    "empty": b"",
    "ends after the key": b"\x01",
    "ends before the count": b"\x01\x01",
    "key shorter than said": b"\x06ab",
    "negative key": b"\x03\x01\x00",
    "negative value": b"\x01\x03\x00",
    "negative header count": b"\x01\x01\x01",
    "trailing byte": b"\x01\x01\x00\x00",
    "fewer headers than said": b"\x01\x01\x02\x00",
    "more headers than fit": b"\x01\x01\xfe\xff\xff\xff\x0f",
    "trailing byte after headers": b"\x01\x01\x02\x00\x00\x00",
    "negative header value": b"\x01\x01\x02\x00\x03",
    "length beyond 32 bits": b"\xfe\xff\xff\xff\xff\x7f\x01\x00",
    "varint without end": b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80",
}


@pytest.mark.parametrize("payload", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_payload_is_answered_minus_two_and_leaves_no_row(start: Any, records: Any, payload: bytes) -> None:
    body = guests.write_bytes(payload, expect=-2) + guests.WRITE
    batch = records([b"a", b"b"], headers=[[{"key": "h", "value": None}]] * 2)
    result = start(guests.guest(body)).transform(batch)
    assert result.failures == ()
    assert fields(result.outputs) == fields(batch)


@pytest.mark.parametrize(
    ("payload", "written"),
    [
        (b"\x01\x01\x00", (None, None, [])),
        (b"\x00\x00\x00", (b"", b"", [])),
        (b"\x82\x00a\x81\x80\x00\x00", (b"a", None, [])),
        (b"\x81\x80\x80\x80\x80\x80\x80\x80\x80\x00\x00\x00", (None, b"", [])),
        (b"\x01\x01\x02\x02h\x01", (None, None, [{"key": "h", "value": None}])),
    ],
)
def test_any_legal_payload_is_taken(start: Any, records: Any, payload: bytes, written: tuple[Any, ...]) -> None:
    result = start(guests.guest(guests.write_bytes(payload, expect=len(payload)))).transform(records([b"a"]))
    assert fields(result.outputs) == [written]


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        (guests.topic("third"), -3),
        (guests.topic("secon"), -3),
        (guests.topic(""), -3),
        (b"\x02\x02a", -2),
        (b"\x00", -2),
        (b"\x01", -2),
        (b"\x01\x01", -2),
        (guests.topic("second") + b"\x00", -2),
        (guests.topic("second") * 2, -2),
    ],
)
def test_options_that_name_no_topic_are_answered(start: Any, records: Any, options: bytes, answer: int) -> None:
    instance = start(guests.guest(guests.write_to(options, expect=answer), abi=2), outputs=("first", "second"))
    result = instance.transform(records([b"a"]))
    assert (result.outputs.num_rows, result.failures) == (0, ())


def test_options_longer_than_their_buffer_trap(start: Any, records: Any) -> None:
    result = start(guests.guest(guests.write_to(b"\x01\x20out"), abi=2)).transform(records([b"a"]))
    assert [failure.error.code for failure in result.failures if isinstance(failure.error, GuestTrap)] == [
        "out of bounds memory access"
    ]


def test_the_payload_is_checked_before_the_options(start: Any, records: Any) -> None:
    body = f"(i32.store8 (i32.const {guests.PAYLOAD}) (i32.const 3))" + guests.write_to(b"\x01\x20out", expect=-2)
    assert start(guests.guest(body, abi=2)).transform(records([b"a"])).failures == ()


def test_nothing_can_be_read_or_written_before_the_first_batch(start: Any, records: Any) -> None:
    early = guests.require(guests.READ, -1) + guests.write_bytes(b"\x01\x01\x00", expect=-1)
    assert start(guests.guest(on_start=early)).transform(records([b"a"])).outputs.num_rows == 1


def test_a_record_that_does_not_fit_is_not_consumed(start: Any, records: Any) -> None:
    small = "(call $read_next_record (i32.const 64) (i32.const 72) (i32.const 80) (i32.const 65536) (i32.const 2))"
    instance = start(guests.guest(on_batch=guests.require(small, -2) * 2))
    assert fields(instance.transform(records([b"key"], [b"v"])).outputs) == [(b"key", b"v", [])]


def test_after_the_last_record_reading_answers_minus_one(start: Any, records: Any) -> None:
    again = f"(if (i32.lt_s (local.get $size) (i32.const 0)) (then {guests.require(guests.READ, -1)}))"
    read = f"(block (result i32) (local.set $size {guests.READ}) {again} (local.get $size))"
    assert start(guests.guest(read=read)).transform(records([b"a", b"b"])).failures == ()


def test_what_is_written_before_the_first_record_belongs_to_it(start: Any, records: Any) -> None:
    instance = start(guests.guest(guests.WRITE, on_batch=guests.write_bytes(b"\x01\x01\x00", expect=3)))
    instance.transform(records([b"warm"] * 3))
    assert instance.transform(records([b"a", b"b"])).outputs.column("row").to_pylist() == [0, 0, 1]


def test_a_record_at_which_the_guest_asks_for_the_next_batch_fails_alone(start: Any, records: Any) -> None:
    instance = start(guests.guest(guests.WRITE + guests.when_key("s", guests.NEXT_BATCH)))
    result = instance.transform(records([b"a", b"skip", b"b", b"c"]))
    assert [failure.row for failure in result.failures] == [1]
    assert type(result.failures[0].error) is GuestProtocolError
    assert result.outputs.column("row").to_pylist() == [0, 2, 3]


@pytest.mark.parametrize("key", [b"\x04\xff\xfe", b"\x01", b"\x02\xc3"])
def test_a_header_key_that_is_no_text_fails_its_record_alone(start: Any, records: Any, key: bytes) -> None:
    payload = b"\x01\x01\x04" + b"\x02a\x00" + key + b"\x00"
    body = guests.WRITE + guests.when_key("p", guests.write_bytes(payload, expect=len(payload)))
    result = start(guests.guest(body)).transform(
        records([b"a", b"poison", b"b"], headers=[[{"key": "é", "value": b"1"}]] * 3)
    )
    assert [failure.row for failure in result.failures] == [1]
    assert isinstance(result.failures[0].error, GuestProtocolError)
    assert result.outputs.column("row").to_pylist() == [0, 2]
    result.outputs.validate(full=True)


def test_text_split_between_two_header_keys_is_found(start: Any, records: Any) -> None:
    split = b"\x01\x01\x04\x02\xc3\x00\x02\xa9\x00"
    result = start(guests.guest(guests.write_bytes(split, expect=len(split)))).transform(records([b"a"]))
    assert [failure.row for failure in result.failures] == [0]


def test_columns_of_other_layouts_are_cast(start: Any, records: Any) -> None:
    batch = records([b"a", None], headers=[[{"key": "h", "value": b"1"}], []])
    other = batch.set_column(0, "key", batch.column("key").cast(pa.large_binary()))
    other = other.set_column(1, "value", batch.column("value").dictionary_encode())
    other = other.set_column(3, "timestamp", batch.column("timestamp").cast(pa.timestamp("us", tz="UTC")))
    other = other.select(["offset", "partition", "timestamp", "headers", "value", "key"])
    assert fields(start(guests.guest()).transform(other).outputs) == fields(batch)


def test_columns_that_cannot_be_cast_or_are_missing_are_named(start: Any, records: Any) -> None:
    instance, batch = start(guests.guest()), records([b"a"])
    with pytest.raises(InvalidBatch, match="needs exactly one column value"):
        instance.transform(batch.drop_columns(["value"]))
    with pytest.raises(InvalidBatch, match="timestamp"):
        instance.transform(batch.set_column(3, "timestamp", pa.array([b"x"])))
    with pytest.raises(InvalidBatch, match="offset holds nulls"):
        instance.transform(batch.set_column(5, RECORD_SCHEMA.field("offset"), pa.array([None], pa.int64())))
    assert instance.transform(batch).outputs.num_rows == 1
