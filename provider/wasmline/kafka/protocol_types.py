"""Encodes and decodes primitive types of Kafka's protocol (kafka.apache.org/protocol, "Protocol Primitive Types").

Decoding is strict: a length beyond the message, a null in a non-nullable field and bytes that are left over raise
MalformedMessage. Compact types and tagged fields are those of flexible versions (KIP-482).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

VARINT_BYTES = 5
"""Maximum bytes of a varint of 32 bits."""


class MalformedMessage(Exception):
    """The bytes are not a message of the expected type and version."""


class Reader:
    """Reads one message from its beginning to its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def boolean(self) -> bool:
        return self._take(1) != b"\0"

    def int8(self) -> int:
        return self._integer(1)

    def int16(self) -> int:
        return self._integer(2)

    def int32(self) -> int:
        return self._integer(4)

    def int64(self) -> int:
        return self._integer(8)

    def uvarint(self) -> int:
        value = 0
        for place in range(VARINT_BYTES):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return value
        raise MalformedMessage(f"a varint of more than {VARINT_BYTES} bytes before byte {self._position}")

    def raw(self, length: int) -> bytes:
        return self._take(length)

    def sized_bytes(self) -> bytes:
        return self._take(self.int32())

    def string(self) -> str:
        return self._text(self.int16())

    def nullable_string(self) -> str | None:
        length = self.int16()
        return None if length == -1 else self._text(length)

    def compact_string(self) -> str:
        return self._text(self.uvarint() - 1)

    def compact_nullable_string(self) -> str | None:
        length = self.uvarint()
        return None if length == 0 else self._text(length - 1)

    def array(self, element: Callable[[], T]) -> list[T]:
        return self._elements(self.int32(), element)

    def compact_array(self, element: Callable[[], T]) -> list[T]:
        return self._elements(self.uvarint() - 1, element)

    def tagged_fields(self) -> None:
        """Skip the tagged fields of a structure: this client knows none."""
        for _ in range(self.uvarint()):
            self.uvarint()
            self._take(self.uvarint())

    def end(self) -> None:
        """Raise MalformedMessage unless all was read."""
        if left := len(self._data) - self._position:
            raise MalformedMessage(f"{left} bytes are left over after {self._position}")

    def _integer(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big", signed=True)

    def _text(self, length: int) -> str:
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise MalformedMessage(f"a string that is not UTF-8 before byte {self._position}") from error

    def _elements(self, count: int, element: Callable[[], T]) -> list[T]:
        if not 0 <= count <= len(self._data) - self._position:  # an element takes at least a byte
            raise MalformedMessage(f"an array of {count} elements at byte {self._position} of {len(self._data)}")
        return [element() for _ in range(count)]

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if length < 0 or end > len(self._data):
            raise MalformedMessage(f"{length} bytes are expected at byte {self._position} of {len(self._data)}")
        taken, self._position = self._data[self._position : end], end
        return taken


def int8(value: int) -> bytes:
    """Return an INT8; a bool is 0 or 1."""
    return struct.pack(">b", value)


def int16(value: int) -> bytes:
    """Return an INT16."""
    return struct.pack(">h", value)


def int32(value: int) -> bytes:
    """Return an INT32."""
    return struct.pack(">i", value)


def int64(value: int) -> bytes:
    """Return an INT64."""
    return struct.pack(">q", value)


def uvarint(value: int) -> bytes:
    """Return an UNSIGNED_VARINT."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def sized_bytes(value: bytes) -> bytes:
    """Return BYTES: an INT32 of length, then the bytes."""
    return int32(len(value)) + value


def string(value: str) -> bytes:
    """Return a STRING."""
    encoded = value.encode()
    return int16(len(encoded)) + encoded


def compact_string(value: str) -> bytes:
    """Return a COMPACT_STRING."""
    encoded = value.encode()
    return uvarint(len(encoded) + 1) + encoded


def array(elements: Iterable[bytes]) -> bytes:
    """Return an ARRAY of encoded elements."""
    encoded = list(elements)
    return int32(len(encoded)) + b"".join(encoded)


def compact_array(elements: Iterable[bytes]) -> bytes:
    """Return a COMPACT_ARRAY of encoded elements."""
    encoded = list(elements)
    return uvarint(len(encoded) + 1) + b"".join(encoded)


NO_TAGGED_FIELDS = b"\0"
