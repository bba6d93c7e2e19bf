"""Whatever bytes a guest writes, the host takes exactly the records of the ABI and refuses the rest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wasmline.errors import GuestProtocolError, GuestTrap
from wasmline.record_batches import RECORD_SCHEMA
from wasmline.testing import guests
from wasmline.wasm import TransformContext, TransformInstance, TransformRuntime

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "150"))
BAD_BUFFER, BAD_TOPIC = -2, -3
TOPICS = ("out", "rest", "t" * 100)
ANSWER = 1024

# The record's value, of less than 8,192 bytes: after a null key and its own length of one or two bytes.
_PREFIX = "(select (i32.const 2) (i32.const 3) (i32.le_u (local.get $size) (i32.const 66)))"
VALUE = f"(i32.add (i32.const {guests.PAYLOAD}) {_PREFIX})"
VALUE_SIZE = f"(i32.sub (local.get $size) (i32.add {_PREFIX} (i32.const 1)))"
WRITE_VALUE = f"(call $write_record {VALUE} {VALUE_SIZE})"
WRITE_WITH_VALUE = (
    f"(call $write_record_with_options (i32.const {guests.PAYLOAD}) (local.get $size) {VALUE} {VALUE_SIZE})"
)


def answering(call: str) -> str:
    """Return what a guest does with a record: a call, and a second record that says what it returned."""
    return f"(i64.store (i32.const {ANSWER}) (i64.extend_i32_s {call})) {guests.write_cells(ANSWER)}"


@pytest.fixture(scope="module", params=[WRITE_VALUE, WRITE_WITH_VALUE], ids=["payload", "options"])
def writer(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, TransformInstance]]:
    context = TransformContext(name="writer", input_topic="in", output_topics=TOPICS)
    transform = TransformRuntime(tmp_path_factory.mktemp("c")).compile(guests.guest(answering(request.param), abi=2))
    with transform.instantiate(context) as instance:
        yield request.param, instance


def varint(number: int) -> bytes:
    code = (number << 1 ^ number >> 63) & (1 << 64) - 1
    out = b""
    while code > 127:
        out, code = out + bytes([code & 127 | 128]), code >> 7
    return out + bytes([code])


def whole(text: bytes) -> bytes:
    return varint(len(text)) + text


NUMBERS = st.one_of(
    st.integers(-2, 5),
    st.sampled_from([63, 64, 127, 128, 8191, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, -(2**63)]),
).map(varint)
WHOLE = st.binary(max_size=20).map(whole)
OVERLONG = st.tuples(NUMBERS, st.integers(0, 10)).map(
    lambda pair: pair[0][:-1] + bytes([pair[0][-1] | 128]) + b"\x80" * pair[1] + b"\0"
)
TOPIC = st.sampled_from(TOPICS).map(lambda name: b"\x01" + whole(name.encode()))
PIECES = st.one_of(NUMBERS, WHOLE, OVERLONG, TOPIC, st.binary(max_size=3), st.sampled_from([b"\x01", b"\0", b"\xff"]))
SHAKY = st.one_of(WHOLE, WHOLE, st.just(varint(-1)), st.text(max_size=5).map(lambda text: whole(text.encode())), PIECES)
BODIES = st.builds(
    lambda fields, headers, tail: b"".join([*fields, varint(len(headers)), *(sum(headers, ())), tail]),
    st.tuples(SHAKY, SHAKY),
    st.lists(st.tuples(SHAKY, SHAKY), max_size=4),
    st.one_of(st.just(b""), st.just(b""), PIECES),
)
VALUES = st.one_of(st.binary(max_size=100), st.lists(PIECES, max_size=8).map(b"".join), BODIES)


class Malformed(Exception):
    """The bytes are not what the ABI says they should be."""


class OutOfBounds(Exception):
    """The bytes speak of others behind their end, where Redpanda traps."""


class Header(NamedTuple):
    key: bytes | None
    value: bytes | None


class Decoder:
    """The ABI's rules a second time, in the plainest way."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def number(self) -> int:
        code = 0
        for index in range(10):
            if not self.data:
                raise Malformed
            byte, self.data = self.data[0], self.data[1:]
            code |= (byte & 127) << 7 * index
            if byte < 128:
                break
        code &= (1 << 64) - 1
        number = code >> 1 ^ -(code & 1)
        if not -1 <= number < 2**31:
            raise Malformed
        return number

    def text(self) -> bytes | None:
        size = self.number()
        if size > len(self.data):
            raise Malformed
        text, self.data = self.data[: max(size, 0)], self.data[max(size, 0) :]
        return None if size < 0 else text

    def record(self) -> tuple[bytes | None, bytes | None, list[Header]]:
        key, value, count = self.text(), self.text(), self.number()
        if not 0 <= count <= len(self.data):
            raise Malformed
        headers = [Header(self.text(), self.text()) for _ in range(count)]
        if self.data:
            raise Malformed
        return key, value, headers

    def topic(self) -> bytes:
        if not self.data:
            return TOPICS[0].encode()
        first, self.data = self.data[0], self.data[1:]
        size = self.number() if first == 1 else -1
        if size < 0:
            raise Malformed
        if size > len(self.data):
            raise OutOfBounds
        if size < len(self.data):
            raise Malformed
        return self.data


def is_text(key: bytes | None) -> bool:
    try:
        return key is not None and key.decode() is not None
    except UnicodeDecodeError:
        return False


def expected_of_payload(value: bytes) -> type[Exception] | list[Any]:
    """Return the error of the record that holds this value, or its outputs: topic, key, value, headers."""
    try:
        key, text, headers = Decoder(value).record()
    except Malformed:
        return [answer(BAD_BUFFER)]
    if not all(is_text(header.key) for header in headers):
        return GuestProtocolError
    listed = [{"key": (header.key or b"").decode(), "value": header.value} for header in headers]
    return [(0, key, text, listed), answer(len(value))]


def expected_of_options(value: bytes) -> type[Exception] | list[Any]:
    size = len(b"\x01" + varint(len(value)) + value + b"\0")
    try:
        topic = Decoder(value).topic()
    except Malformed:
        return [answer(BAD_BUFFER)]
    except OutOfBounds:
        return GuestTrap
    names = [name.encode() for name in TOPICS]
    if topic not in names:
        return [answer(BAD_TOPIC)]
    return [(names.index(topic), None, value, []), answer(size)]


def answer(number: int) -> tuple[int, None, bytes, list[Any]]:
    return 0, None, number.to_bytes(8, "little", signed=True), []


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(values=st.lists(VALUES, min_size=1, max_size=30))
def test_bytes_that_a_guest_writes_are_a_record_or_are_refused(
    writer: tuple[str, TransformInstance], values: list[bytes]
) -> None:
    call, instance = writer
    expected = [(expected_of_payload if call == WRITE_VALUE else expected_of_options)(value) for value in values]
    rows = [
        {"key": None, "value": value, "headers": None, "timestamp": 0, "partition": 0, "offset": row}
        for row, value in enumerate(values)
    ]
    result = instance.transform(pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA))
    result.outputs.validate(full=True)
    got: list[Any] = [[] for _ in values]
    for output in result.outputs.to_pylist():
        got[output["row"]].append((output["output"], output["key"], output["value"], output["headers"]))
    for failure in result.failures:
        assert got[failure.row] == []
        got[failure.row] = type(failure.error)
    assert got == expected
