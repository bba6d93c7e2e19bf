"""The outer form of a WebAssembly binary: numbers, names and sections. Source: the core specification, "Binary Format".

Only for bytes that the runtime found valid: nothing here checks again.
"""

from __future__ import annotations

TYPE, IMPORT, FUNCTION, TABLE, MEMORY, GLOBAL, EXPORT, START, ELEMENT, CODE, DATA, DATA_COUNT = range(1, 13)
"""The numbers of the sections."""

PREAMBLE_BYTES = 8
_CUSTOM = 0
_NAMES = b"name"


class Reader:
    """Bytes that are read one after another."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    @property
    def more(self) -> bool:
        """True while there is something left."""
        return self._at < len(self._data)

    def byte(self) -> int:
        """Return the next byte."""
        self._at += 1
        return self._data[self._at - 1]

    @property
    def at(self) -> int:
        """How much was read."""
        return self._at

    def rest(self) -> bytes:
        """Return all that is left."""
        return self.take(len(self._data) - self._at)

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self) -> int:
        """Return the next LEB128 number, read as an unsigned one."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def vector(self) -> bytes:
        """Return the next bytes, before which their number stands."""
        return self.take(self.number())

    def name(self) -> str:
        """Return the next name."""
        return self.vector().decode()


def number(value: int) -> bytes:
    """Return an unsigned LEB128 number."""
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*written, value])


def vector(data: bytes) -> bytes:
    """Return bytes behind their number."""
    return number(len(data)) + data


def sections(wasm: bytes) -> dict[int, bytes]:
    """Return the content of every section but the custom ones, by its number."""
    reader, found = Reader(wasm, PREAMBLE_BYTES), {}
    while reader.more:
        kind, content = reader.byte(), reader.vector()
        if kind != _CUSTOM:
            found[kind] = content
    return found


def names(wasm: bytes) -> list[bytes]:
    """Return the custom sections that say what things are called."""
    reader, found = Reader(wasm, PREAMBLE_BYTES), []
    while reader.more:
        kind, content = reader.byte(), reader.vector()
        if kind == _CUSTOM and Reader(content).vector() == _NAMES:
            found.append(content)
    return found
