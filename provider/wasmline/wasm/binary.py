"""The outer form of a WebAssembly binary: numbers, names and sections. Source: the core specification, "Binary Format".

Only for bytes that the runtime found valid: nothing here checks again.
"""

from __future__ import annotations

_PREAMBLE_BYTES = 8
_CUSTOM = 0


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


def sections(wasm: bytes) -> dict[int, bytes]:
    """Return the content of every section but the custom ones, by its number."""
    reader, found = Reader(wasm, _PREAMBLE_BYTES), {}
    while reader.more:
        kind, content = reader.byte(), reader.vector()
        if kind != _CUSTOM:
            found[kind] = content
    return found
