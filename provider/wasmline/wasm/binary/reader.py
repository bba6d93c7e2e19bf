"""Reads the structure of a WebAssembly binary: numbers, names and sections (core specification, "Binary Format").

Strict: truncated bytes, a number that is too long and a section of an unknown kind are InvalidModule.
"""

from __future__ import annotations

from collections.abc import Iterator

from wasmline.errors import InvalidModule

CUSTOM, TYPE, IMPORT, FUNCTION, TABLE, MEMORY, GLOBAL, EXPORT, START, ELEMENT, CODE, DATA, DATA_COUNT = range(13)
"""Section ids."""

PREAMBLE_BYTES = 8
MAX_SECTIONS = 10_000
"""Maximum number of sections of a module. Compilers emit some dozens."""

NAMES = b"name"


class Reader:
    """Reads bytes sequentially."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    @property
    def more(self) -> bool:
        """True while bytes are left."""
        return self._at < len(self._data)

    def byte(self) -> int:
        """Return the next byte."""
        if self._at >= len(self._data):
            raise _cut_short(self._at)
        self._at += 1
        return self._data[self._at - 1]

    @property
    def at(self) -> int:
        """Number of bytes read."""
        return self._at

    def remaining(self) -> bytes:
        """Return the remaining bytes."""
        return self.take(len(self._data) - self._at)

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes."""
        self._at += size
        if self._at > len(self._data):
            raise _cut_short(self._at - size)
        return self._data[self._at - size : self._at]

    def number(self, longest: int = 5) -> int:
        """Return the next LEB128 number, decoded as unsigned, of at most ``longest`` bytes."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift == 7 * longest:
                raise InvalidModule(f"a number at byte {self._at} of its section has more than {longest} bytes")

    def vector(self) -> bytes:
        """Return the next length-prefixed bytes."""
        return self.take(self.number())

    def name(self) -> str:
        """Return the next name."""
        name = self.vector()
        try:
            return name.decode()
        except UnicodeDecodeError as error:
            raise InvalidModule(f"the name {name[:40]!r} is not UTF-8") from error


def _cut_short(at: int) -> InvalidModule:
    return InvalidModule(f"the module is truncated: there is nothing at byte {at} of a section")


def number(value: int) -> bytes:
    """Return an unsigned LEB128 number."""
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*written, value])


def vector(data: bytes) -> bytes:
    """Return length-prefixed bytes."""
    return number(len(data)) + data


def sections(wasm: bytes) -> dict[int, bytes]:
    """Return the content of every section except custom ones, by section id."""
    found: dict[int, bytes] = {}
    for kind, content in each_section(wasm):
        if kind in found or kind > DATA_COUNT:
            raise InvalidModule(f"section {kind} of the module is {'there twice' if kind in found else 'unknown'}")
        if kind != CUSTOM:
            found[kind] = content
    return found


def name_sections(wasm: bytes) -> list[bytes]:
    """Return the custom sections that hold names."""
    return [content for kind, content in each_section(wasm) if kind == CUSTOM and Reader(content).vector() == NAMES]


def each_section(wasm: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the id and the content of every section, in order."""
    reader, count = Reader(wasm, PREAMBLE_BYTES), 0
    while reader.more:
        count += 1
        if count > MAX_SECTIONS:
            raise InvalidModule(f"the module has more than {MAX_SECTIONS:,} sections")
        yield reader.byte(), reader.vector()
