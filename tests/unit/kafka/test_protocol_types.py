"""Kafka's primitive types: what is written is read back, and what is not a message is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wasmline.kafka import protocol_types
from wasmline.kafka.protocol_types import MalformedMessage, Reader

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)


@given(st.text(max_size=20), INT32, st.integers(0, (1 << 32) - 1), st.lists(INT32, max_size=8))
def test_what_is_written_is_read(text: str, number: int, count: int, numbers: list[int]) -> None:
    encoded = [protocol_types.int32(each) for each in numbers]
    reader = Reader(
        protocol_types.compact_string(text)
        + protocol_types.int32(number)
        + protocol_types.uvarint(count)
        + protocol_types.compact_array(encoded)
        + protocol_types.array(encoded)
        + protocol_types.sized_bytes(text.encode())
    )
    assert reader.compact_string() == text
    assert (reader.int32(), reader.uvarint()) == (number, count)
    assert reader.compact_array(reader.int32) == numbers == reader.array(reader.int32)
    assert reader.sized_bytes().decode() == text
    reader.end()


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in ("boolean", "uvarint", "string", "nullable_string", "compact_string", "sized_bytes", "tagged_fields"):
        try:
            getattr(Reader(data), read)()
        except MalformedMessage:
            continue
    for array in ("array", "compact_array"):
        reader = Reader(data)
        try:
            getattr(reader, array)(reader.compact_nullable_string)
        except MalformedMessage:
            continue


@pytest.mark.parametrize(
    ("data", "read"),
    [
        (protocol_types.int16(5) + b"four", "string"),
        (protocol_types.int16(-1), "string"),
        (b"\0", "compact_string"),
        (protocol_types.int16(2) + b"\xff\xff", "string"),
        (b"\x80\x80\x80\x80\x80\x01", "uvarint"),
        (protocol_types.int32(-2), "sized_bytes"),
    ],
)
def test_a_length_that_is_none_and_text_that_is_none_are_refused(data: bytes, read: str) -> None:
    with pytest.raises(MalformedMessage):
        getattr(Reader(data), read)()


@pytest.mark.parametrize("count", [-1, 1 << 30])
def test_an_array_is_not_longer_than_its_message(count: int) -> None:
    reader = Reader(protocol_types.int32(count) + b"abc")
    with pytest.raises(MalformedMessage, match="an array of"):
        reader.array(reader.int8)


def test_what_is_left_over_is_refused() -> None:
    reader = Reader(b"ab")
    reader.int8()
    with pytest.raises(MalformedMessage, match="1 bytes are left over"):
        reader.end()
